"""The report of a training run, as text."""

from emu.study.training.train import TrainingResult
from emu.units import format_time
from launch.show.text.pacing_report import pacing_lines, pacing_warning
from launch.show.text.step_report import expected_lines, foot_lines, rate_lines, step_lines


def train_report(r: TrainingResult) -> str:
    """Return the losses and times of a training run on one topology as text."""
    rows = zip(r.loss, r.reference_loss, r.step_times_s, strict=True)
    lines = [
        *pacing_warning(r.paced),
        f"{r.model} on {r.ranks} {r.device} of {r.topology}, {r.plan}",
        "",
        f"{'step':>6}  {'loss':>10}  {'one process':>11}  {'virtual time':>12}",
        *(f"{i:>6}  {loss:>10.6f}  {one:>11.6f}  {format_time(t):>12}" for i, (loss, one, t) in enumerate(rows, 1)),
        "",
        f"gradients       within {r.gradient_error:.1e} of one process's, from the same weights",
        *step_lines(r),
        *expected_lines(r),
        *rate_lines(r),
        *pacing_lines(r.paced),
        f"wall            {r.wall_run_s:.1f} s run, {r.wall_reference_s:.1f} s one process, {r.wall_fabric_s:.1f} s timing",
        *foot_lines(r),
    ]
    return "\n".join(lines)
