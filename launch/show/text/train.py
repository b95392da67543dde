"""What a training run learned and took, as text."""

from emu.study.training.train import Trained
from emu.units import format_time
from launch.show.text.paced import paced_lines, warned
from launch.show.text.step import foot_lines, rate_lines, step_lines


def train_report(r: Trained) -> str:
    """One topology's figures."""
    rows = zip(r.loss, r.reference_loss, r.step_times_s, strict=True)
    lines = [
        *warned(r.paced),
        f"{r.model} on {r.ranks} {r.device} of {r.topology}, {r.plan}",
        "",
        f"{'step':>6}  {'loss':>10}  {'one process':>11}  {'virtual time':>12}",
        *(f"{i:>6}  {loss:>10.6f}  {one:>11.6f}  {format_time(t):>12}" for i, (loss, one, t) in enumerate(rows, 1)),
        "",
        f"gradients       within {r.gradient_error:.1e} of one process's, from the same weights",
        *step_lines(r),
        *rate_lines(r),
        *paced_lines(r.paced),
        f"wall            {r.wall_run_s:.1f} s run, {r.wall_reference_s:.1f} s one process, {r.wall_fabric_s:.1f} s timing",
        *foot_lines(r),
    ]
    return "\n".join(lines)
