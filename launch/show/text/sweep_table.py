"""The steps of a sweep as CSV, for other programs."""

import csv
import io
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from emu.study.planning.search.row import PlanRow
from emu.study.training.estimate import StepEstimate
from launch.show.step_parts import exposed_axes

SweepStep = StepEstimate | PlanRow  # a step of the given plan, or of the best plan found
_RATES = ("step_time_s", "tokens_per_s", "mfu", "hfu", "peak_memory_bytes")
_OF_ESTIMATE = ("ranks", "dp", "global_batch", *_RATES, "compute_s", "exposed_comm_s", "idle_s", "bubble_s")
_OF_PLAN = ("plan", "axes", *_RATES, "compute_s", "idle_s", "bubble_s")


@dataclass(frozen=True, slots=True)
class SweepRow:
    """One point of a sweep on one topology, with its step or the reason why there is none."""

    topology: str
    point: Mapping[str, str]
    refused: str  # reason why there is no step; "": there is one
    step: SweepStep | None


def sweep_csv(rows: Sequence[SweepRow]) -> str:
    """Return a line for each point and topology under a head; times are in seconds."""
    steps = [row.step for row in rows if row.step is not None]
    axes = exposed_axes(steps)
    names = _OF_PLAN if isinstance(steps[0], PlanRow) else _OF_ESTIMATE
    text = io.StringIO()
    lines = csv.writer(text, lineterminator="\n")
    lines.writerow([*rows[0].point, "topology", *names, *(f"exposed_{axis or 'other'}_s" for axis in axes), "refused"])
    for row in rows:
        lines.writerow([*row.point.values(), row.topology, *_figures(row.step, names, axes), row.refused])
    return text.getvalue()


def _figures(step: SweepStep | None, names: Sequence[str], axes: Sequence[str]) -> list[object]:
    """Return the cells of a step; empty ones where there is no step."""
    if step is None:
        return [""] * (len(names) + len(axes))
    return [*(getattr(step, name) for name in names), *(step.exposed_comm_by_axis_s.get(axis, 0.0) for axis in axes)]
