"""A step's figures as text."""

from emu.study.training.step import Step
from emu.units import format_size, format_time
from launch.show.text.spread import spread_told


def step_lines(step: Step) -> list[str]:
    """Where the time of the last step went, a line each."""
    return [
        f"step            {format_time(step.step_time_s)}, the last",
        f"  compute       {format_time(step.compute_s)}",
        f"  exposed comm  {format_time(step.exposed_comm_s)}{_by_axis(step)}; of {format_time(step.total_comm_s)} in all",
        f"  idle          {format_time(step.idle_s)}",
    ]


def foot_lines(step: Step) -> list[str]:
    """Memory, algorithms and what was assumed."""
    return [
        f"peak memory     {format_size(step.peak_memory_bytes)} a rank",
        f"algorithms      {', '.join(f'{op} {name}' for op, name in step.algorithms.items()) or 'none'}",
        "",
        "Assumed:",
        *(f"- {line}" for line in step.assumptions),
    ]


def _by_axis(step: Step) -> str:
    parts = [f"{axis or 'other'} {format_time(s)}" for axis, s in step.exposed_comm_by_axis_s.items() if s]
    return f" ({', '.join(parts)})" if parts else ""


def step_report(step: Step) -> str:
    """One topology's figures."""
    times = ", ".join(format_time(t) for t in step.step_times_s)
    head = [f"{step.ranks} {step.device} on {step.topology}", "", f"steps           {times}"]
    chaotic = spread_told("the last step", step.spread)
    return "\n".join([*head, *step_lines(step), *chaotic, *foot_lines(step)])
