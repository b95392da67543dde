"""The spread of a chaotic time, in one line."""

from emu.fabric.perturb import Spread
from emu.units import format_time


def spread_lines(what: str, spread: Spread | None) -> list[str]:
    """Return the line; none where the time is not chaotic.

    Args:
        what: The name of the thing that takes the time.
        spread: The least and the most time over several runs; None: the time is not chaotic.
    """
    if spread is None:
        return []
    apart = f"{100 * (spread.most_s / spread.least_s - 1):.1f} %"
    low, high = format_time(spread.least_s), format_time(spread.most_s)
    return [f"chaotic: {what} takes {low} to {high} ({apart} apart) in {spread.seeds} runs whose starts moved by a tick"]
