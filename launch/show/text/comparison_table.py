"""The comparison of two traces as text."""

from emu.trace.comparison import Comparison
from launch.show.text.table import table


def comparison_report(compared: Comparison) -> str:
    """Return whether the traces are equal, the first difference, and a table of both by axis."""
    which = f"step {compared.steps[0]} of the first trace and step {compared.steps[1]} of the second"
    first = compared.first
    if first is None:
        lines = [f"equal: {which}, on each of {compared.ranks} ranks"]
    else:
        where = f"event {first.event}" if first.event >= 0 else "beyond the first trace's events"
        lines = [
            f"not equal: {which}, on {compared.differing_ranks} of {compared.ranks} ranks",
            f"first on rank {first.rank}, {where}: {first.what}",
        ]
    rows = [
        (axis or "other", *(str(n) for n in (*of.events, *of.bytes)), *(f"{f:.6g}" for f in of.flops))
        for axis, of in compared.by_axis.items()
    ]
    head = ("axis", "events", "second", "bytes", "second", "FLOPs", "second")
    return "\n".join([*lines, "", table(head, rows)])
