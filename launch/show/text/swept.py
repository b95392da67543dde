"""A step at the points of a sweep, as rows of a table that other programs read."""

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from emu.study.training.estimate import Estimated
from launch.show.text.estimates import exposed_axes

_OF_STEP = ("ranks", "dp", "global_batch", "step_time_s", "tokens_per_s", "mfu", "hfu", "peak_memory_bytes")
_PARTS = ("compute_s", "exposed_comm_s", "idle_s", "bubble_s")


@dataclass(frozen=True, slots=True)
class Swept:
    """One point, on one topology."""

    topology: str
    point: Mapping[str, str]
    refused: str  # why there is no step; "": there is
    step: Estimated | None


def swept_csv(rows: Sequence[Swept]) -> str:
    """A line a point and topology, with a head; times in seconds; what is refused has a reason in place of figures."""
    steps = [row.step for row in rows if row.step is not None]
    axes = exposed_axes(steps)
    text = io.StringIO()
    lines = csv.writer(text, lineterminator="\n")
    lines.writerow(
        [*rows[0].point, "topology", *_OF_STEP, *_PARTS, *(f"exposed_{axis or 'other'}_s" for axis in axes), "refused"]
    )
    for row in rows:
        lines.writerow([*row.point.values(), row.topology, *_figures(row.step, axes), row.refused])
    return text.getvalue()


def _figures(step: Estimated | None, axes: Sequence[str]) -> list[object]:
    if step is None:
        return [""] * (len(_OF_STEP) + len(_PARTS) + len(axes))
    return [
        *(getattr(step, name) for name in (*_OF_STEP, *_PARTS)),
        *(step.exposed_comm_by_axis_s.get(axis, 0.0) for axis in axes),
    ]
