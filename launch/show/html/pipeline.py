"""The HTML chart of a pipeline: a row for each stage, computation above communication."""

from collections.abc import Callable, Sequence
from types import SimpleNamespace

import numpy as np

from emu.fabric.graph import Timeline
from emu.study.training.step.step import TimedTrace
from emu.trace.replay.replay_graph import ReplayGraph
from emu.trace.report.report import RankTimes, rank_times
from emu.trace.report.request_times import Arrivals
from emu.trace.report.spans import Spans, covered
from emu.trace.trace import Trace
from emu.units import TICKS_PER_S, format_time, seconds
from launch.show.blocks import Block, ColouredPart, drawing_block, table_block
from launch.show.lanes import Lane, RepresentativeRank, lanes_of, representatives
from launch.show.step_parts import COMPUTE, IDLE, axes_in_order, colours_of
from launch.show.text.table import Column, figures

_WIDE, _HIGH = 2000, 24  # width and height of a row, in units of its drawing
_NEAR = 0.2  # units of a gap below which two spans are drawn as one
_LEAST = 0.5  # units of the narrowest span
_MOST = 64  # most rows
_STEPS = (1, 2, 2.5, 5, 10)  # round numbers of a step between ticks
_TICKS = 6


def rows_of(timed: TimedTrace) -> list[RepresentativeRank]:
    """Return the rank shown for each stage (or role, without a pipeline), at most 64."""
    found, told = representatives(timed), timed.report.rank
    if any(each.stage is not None for each in found):
        first: dict[int | None, RepresentativeRank] = {}
        for each in sorted(found, key=lambda each: each.row != told):  # the rank of the figures stands for its stage
            first.setdefault(each.stage, each)
        found = sorted(first.values(), key=lambda each: each.stage or 0)
    return found[:_MOST]


def pipeline(timed: TimedTrace) -> tuple[Block, Block]:
    """Return the chart of the reported step, and a table of its times."""
    began, ended = timed.report.began_fs, timed.report.ended_fs
    ranks, coming = rows_of(timed), Arrivals.of(timed.replayed, timed.timeline)
    lanes = [[lane.within(began, ended) for lane in lanes_of(*_parts_of_trace(timed), coming, each.row)] for each in ranks]
    apart = rank_times(*_parts_of_trace(timed), timed.report, [each.row for each in ranks])
    axes = axes_in_order(lane.stream for of_rank in lanes for lane in of_rank if len(lane.start) and not _computes(lane))
    colours, total = colours_of(axes), ended - began
    rows = [_row(each.name, of, parts, colours, total) for each, of, parts in zip(ranks, lanes, apart, strict=True)]
    talk = [ColouredPart(f"communication, {axis}", colour) for axis, colour in colours.items()]
    keys = [ColouredPart("computation", COMPUTE), *talk, ColouredPart("idle", IDLE)]
    told = f"computation and communication of {len(rows)} ranks over {format_time(seconds(total))}"
    chart = SimpleNamespace(wide=_WIDE, high=_HIGH, idle=IDLE, rows=rows, ticks=_ticks(total))
    return drawing_block("pipeline.html", told, chart, keys), _table([*zip(ranks, apart, strict=True)], total)


def _parts_of_trace(timed: TimedTrace) -> tuple[Trace, ReplayGraph, Timeline]:
    """Return the trace, the replay graph and the timeline of a timed trace."""
    return timed.trace, timed.replayed, timed.timeline


def _computes(lane: Lane) -> bool:
    """Return whether a lane of the timeline is a compute stream of a rank."""
    return lane.stream.startswith("compute")


def _row(
    name: str, lanes: Sequence[Lane], parts: RankTimes, colours: dict[str, str], total: int
) -> tuple[str, str, list[tuple[str, str]]]:
    """Return the row of one rank: its name, its shares as text, and an SVG path for each colour.

    Args:
        name: The rank in words.
        lanes: Its lanes, in ticks from the beginning of the step.
        parts: The parts of its time.
        colours: The colour of each axis of communication.
        total: The step time in ticks.
    """
    computing = [lane for lane in lanes if _computes(lane)]
    talking = {lane.stream: lane for lane in lanes if not _computes(lane)}
    half, thin = _HIGH / 2, _HIGH / 2 / max(1, len(colours))
    stretches = [(COMPUTE, _path(computing, total, 0.0, half))]
    for place, (axis, colour) in enumerate(colours.items()):
        if axis in talking:
            stretches.append((colour, _path([talking[axis]], total, half + place * thin, thin)))
    exposed = sum(parts.exposed_fs.values())
    shares = {"computes": parts.compute_fs, "communicates": exposed, "is idle": total - parts.compute_fs - exposed}
    said = ", ".join(f"{what} {100 * ticks / max(total, 1):.1f} %" for what, ticks in shares.items())
    return name, f"{name} {said} of the step", [(colour, path) for colour, path in stretches if path]


def _path(lanes: Sequence[Lane], total: int, top: float, high: float) -> str:
    """Return the spans of lanes as one SVG path, with nearby spans merged.

    Args:
        lanes: The lanes.
        total: The step time in ticks.
        top: The upper edge of the spans in the row.
        high: The height of the spans.
    """
    spans = covered(*(Spans(lane.start, lane.end) for lane in lanes), gap=int(_NEAR * total / _WIDE))
    return "".join(_box(*box, total, top, high) for box in zip(spans.start.tolist(), spans.end.tolist(), strict=True))


def _box(start: int, end: int, total: int, top: float, high: float) -> str:
    """Return the SVG path of the rectangle of one span, from tick `start` to tick `end` of `total`."""
    left, wide = round(_WIDE * start / total, 1), max(_LEAST, round(_WIDE * (end - start) / total, 1))
    return f"M{left:g} {top:.3g}h{wide:g}v{high:.3g}h-{wide:g}z"


def _ticks(total: int) -> list[tuple[float, str]]:
    """Return the marks of a time axis at round times: the position of each from 0 to 1, and its text."""
    if not total:
        return []
    least_s = seconds(total) / _TICKS
    power = 10.0 ** np.floor(np.log10(least_s))
    step_s = float(next(step * power for step in _STEPS if step * power >= least_s))
    count = int(seconds(total) / step_s)
    return [(i * step_s * TICKS_PER_S / total, format_time(i * step_s)) for i in range(count + 1)]


def _table(rows: Sequence[tuple[RepresentativeRank, RankTimes]], total: int) -> Block:
    """Return a table of the parts of each rank's time."""
    axes = axes_in_order(axis for _, parts in rows for axis, ticks in parts.exposed_fs.items() if ticks)
    staged = any(rank.stage is not None for rank, _ in rows)

    def time(head: str, ticks: Callable[[RankTimes], int]) -> Column[tuple[RepresentativeRank, RankTimes]]:
        return figures(head, lambda row: seconds(ticks(row[1])), format_time)

    def exposed(axis: str) -> Column[tuple[RepresentativeRank, RankTimes]]:
        return time(f"{axis or 'other'} exposed", lambda parts: parts.exposed_fs.get(axis, 0))

    columns = [
        *([figures("stage", lambda row: row[0].stage or 0)] if staged else []),
        figures("rank", lambda row: row[0].rank),
        figures("stands for", lambda row: row[0].alike),
        time("computation", lambda parts: parts.compute_fs),
        *map(exposed, axes),
        *([time("bubble", lambda parts: parts.bubble_fs)] if staged else []),
        time("idle", lambda parts: total - parts.compute_fs - sum(parts.exposed_fs.values())),
    ]
    return table_block(columns, rows)
