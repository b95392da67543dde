"""The report of a step that was estimated on one topology, as text."""

from emu.model.stack.stack import find_software
from emu.study.training.estimate import StepEstimate
from launch.show.text.step_report import expected_told, foot_lines, rate_lines, step_lines


def estimate_report(r: StepEstimate) -> str:
    """Return the figures of one estimate as text."""
    ranks = "all ranks" if r.domain == r.ranks else f"{r.domain} of {r.ranks} ranks, which stand for all"
    software = f"software={r.software}{'' if find_software(r.software).is_executed else ' (generated, not executed)'}"
    lines = [
        f"{r.model} on {r.ranks} {r.device} of {r.topology}, {r.plan}, {software}",
        *([] if r.stack == f"software={r.software}" else [f"with {r.stack}"]),
        "",
        *step_lines(r),
        f"expected        {expected_told(r)}",
        *rate_lines(r),
        *([f"placement       {r.axes}: neighbouring NPUs are on the first axis"] if r.axes else []),
        f"timed           {r.tasks:,} tasks of {ranks} (engine: {r.how}), in {r.wall_s:.1f} s",
        *foot_lines(r),
    ]
    return "\n".join(lines)
