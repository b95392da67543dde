"""How well the host kept up with virtual time in a paced run, as text."""

from emu.cluster.pace.timeliness import SHARE_IN_TIME, PaceFigures
from emu.units import format_time


def pacing_warning(paced: PaceFigures | None) -> list[str]:
    """Return the first lines of a report where too few messages were in time; none else."""
    if paced is None or paced.wall_in_time_share >= SHARE_IN_TIME:
        return []
    share = f"{100 * paced.wall_in_time_share:.3g} % of {paced.wall_messages:,} messages in time"
    worst = f"the worst {format_time(paced.wall_worst_late_s)} late"
    return [f"This host has not kept up: {share}, {worst}; take a larger --pace, or a host that does nothing else", ""]


def pacing_lines(paced: PaceFigures | None) -> list[str]:
    """Return the lines of a report about pacing; none where the run was not paced."""
    if paced is None:
        return []
    share = f"{100 * paced.wall_in_time_share:.4g} % of {paced.wall_messages:,} messages in time"
    worst = f"the worst {format_time(max(0.0, paced.wall_worst_late_s))} late"
    how = f", computation {format_time(paced.wall_compute_late_s)} late in all" if paced.computes else ", computation is not"
    met = ", ".join(paced.wall_met) or "none was met, as the ranks had ended before"
    return [f"paced           x {paced.pace:g}: {share}, {worst}{how}", *[f"faults          {met}"] * bool(paced.faults)]
