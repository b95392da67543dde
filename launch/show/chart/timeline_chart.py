"""A picture of a timeline: a band for each rank, computation in the upper half, each axis of communication in the lower."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.collections import PatchCollection
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle

from emu.errors import must_be
from emu.trace.report.request_times import merged
from emu.units import TICKS_PER_S
from launch.show.canvas import new_page
from launch.show.lanes import Lane

MOST_RANKS = 32
_COLOURS = ("#8d99ae", "#d95f02", "#0072b2", "#009e73", "#cc79a7", "#e6ab02")


def picture(lanes: Sequence[Lane], title: str, low_fs: int, high_fs: int) -> Figure:
    """Return a picture of the lanes of the ranks between two ticks, with a colour for each stream.

    Raises:
        InputError: there are more than 32 ranks, or none.
    """
    within = (lane.within(low_fs, high_fs) for lane in lanes if lane.owner != "links")
    of_ranks = [lane for lane in within if len(lane.start)]
    ranks = list(dict.fromkeys(lane.owner for lane in of_ranks))
    if not 0 < len(ranks) <= MOST_RANKS:
        raise must_be(
            "show timeline",
            "the picture",
            f"of 1 to {MOST_RANKS} ranks",
            len(ranks),
            "write --timeline and open it in Perfetto",
        )
    streams = list(dict.fromkeys(["compute", *(lane.stream for lane in of_ranks)]))
    figure, axes = new_page(12, 1.6 + 0.36 * len(ranks), title)
    scale, unit = _scale(high_fs - low_fs)
    for lane in of_ranks:
        _draw_lane(axes, lane, ranks.index(lane.owner), streams, scale)
    _dress(axes, ranks, unit, (high_fs - low_fs) * scale)
    _legend(figure, streams)
    return figure


def _draw_lane(axes: Axes, lane: Lane, row: int, streams: Sequence[str], scale: float) -> None:
    """Draw a lane in the band of its rank: computation in the upper half, an axis of communication in a strip of the lower.

    Args:
        axes: The axes to draw on; rows count downwards.
        lane: The lane, in ticks.
        row: The number of the band of the rank.
        streams: All streams; the place of the lane's stream gives its strip and colour.
        scale: Units of the lower axis in a tick.
    """
    place, talk = streams.index(lane.stream), max(1, len(streams) - 1)
    height = 0.42 if place == 0 else 0.42 / talk
    base = row - 0.42 if place == 0 else row + (place - 1) * height
    start, end = merged(lane.start, lane.end) if place == 0 else (lane.start, lane.end)
    boxes = [Rectangle((s, base), e - s, height) for s, e in zip(start * scale, end * scale, strict=True)]
    colour = _COLOURS[place % len(_COLOURS)]
    axes.add_collection(PatchCollection(boxes, facecolor=colour, edgecolor=colour if place == 0 else "white", linewidth=0.3))


def _scale(end_fs: int) -> tuple[float, str]:
    """Return how many units of the lower axis a tick is, and the name of the unit (s, ms, us or ns)."""
    for power, unit in ((0, "s"), (3, "ms"), (6, "us")):
        if end_fs >= TICKS_PER_S // 10**power:
            return 10**power / TICKS_PER_S, unit
    return 1e9 / TICKS_PER_S, "ns"


def _dress(axes: Axes, ranks: Sequence[str], unit: str, end: float) -> None:
    """Label the bands with the ranks, and the lower axis with virtual time."""
    axes.set_ylim(len(ranks) - 0.5, -0.5)
    axes.set_yticks(np.arange(len(ranks)), ranks, fontsize=8)
    axes.set_xlabel(f"virtual time ({unit})")
    axes.set_xlim(0, end)
    axes.spines[["top", "right", "left"]].set_visible(False)
    axes.tick_params(axis="y", length=0)


def _legend(figure: Figure, streams: Sequence[str]) -> None:
    """Write the stream of each colour below the picture."""
    names = ["computation", *(s if s.startswith("compute ") else f"communication, {s}" for s in streams[1:])]
    patches = [Patch(color=_COLOURS[i % len(_COLOURS)], label=name) for i, name in enumerate(names)]
    figure.legend(handles=patches, loc="outside lower left", ncols=min(len(names), 5), frameon=False, fontsize=9)
