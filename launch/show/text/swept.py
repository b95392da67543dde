"""A step at the points of a sweep, as rows of a table that other programs read."""

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from emu.study.planning.search.row import PlanRow
from emu.study.training.estimate import Estimated
from launch.show.text.estimates import exposed_axes

Timed = Estimated | PlanRow  # a step of a plan that was named, or of the best that was found
_RATES = ("step_time_s", "tokens_per_s", "mfu", "hfu", "peak_memory_bytes")
_OF_ESTIMATE = ("ranks", "dp", "global_batch", *_RATES, "compute_s", "exposed_comm_s", "idle_s", "bubble_s")
_OF_PLAN = ("plan", "axes", *_RATES, "compute_s", "idle_s", "bubble_s")


@dataclass(frozen=True, slots=True)
class Swept:
    """One point, on one topology."""

    topology: str
    point: Mapping[str, str]
    refused: str  # why there is no step; "": there is
    step: Timed | None


def swept_csv(rows: Sequence[Swept]) -> str:
    """A line a point and topology, with a head; times in seconds; what is refused has a reason in place of figures."""
    steps = [row.step for row in rows if row.step is not None]
    axes = exposed_axes(steps)
    names = _OF_PLAN if isinstance(steps[0], PlanRow) else _OF_ESTIMATE
    text = io.StringIO()
    lines = csv.writer(text, lineterminator="\n")
    lines.writerow([*rows[0].point, "topology", *names, *(f"exposed_{axis or 'other'}_s" for axis in axes), "refused"])
    for row in rows:
        lines.writerow([*row.point.values(), row.topology, *_figures(row.step, names, axes), row.refused])
    return text.getvalue()


def _figures(step: Timed | None, names: Sequence[str], axes: Sequence[str]) -> list[object]:
    if step is None:
        return [""] * (len(names) + len(axes))
    return [*(getattr(step, name) for name in names), *(step.exposed_comm_by_axis_s.get(axis, 0.0) for axis in axes)]
