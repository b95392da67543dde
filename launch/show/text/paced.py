"""How far a host has kept up with virtual time, as text."""

from emu.cluster.pace.kept import SHARE_IN_TIME, Paced
from emu.units import format_time


def warned(paced: Paced | None) -> list[str]:
    """What a report says in its first line where too few messages were in time."""
    if paced is None or paced.wall_in_time_share >= SHARE_IN_TIME:
        return []
    share = f"{100 * paced.wall_in_time_share:.3g} % of {paced.wall_messages:,} messages in time"
    worst = f"the worst {format_time(paced.wall_worst_late_s)} late"
    return [f"This host has not kept up: {share}, {worst}; take a larger --pace, or a host that does nothing else", ""]


def paced_lines(paced: Paced | None) -> list[str]:
    """The lines of a paced run."""
    if paced is None:
        return []
    share = f"{100 * paced.wall_in_time_share:.4g} % of {paced.wall_messages:,} messages in time"
    worst = f"the worst {format_time(max(0.0, paced.wall_worst_late_s))} late"
    how = f", computation {format_time(paced.wall_compute_late_s)} late in all" if paced.computes else ", computation is not"
    met = ", ".join(paced.wall_met) or "none was met, as the ranks had ended before"
    return [f"paced           x {paced.pace:g}: {share}, {worst}{how}", *[f"faults          {met}"] * bool(paced.faults)]
