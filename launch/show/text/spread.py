"""How far a chaotic time spreads, in a line."""

from emu.fabric.perturb import Spread
from emu.units import format_time


def spread_told(what: str, spread: Spread | None) -> list[str]:
    """A line, or none where the time is not chaotic."""
    if spread is None:
        return []
    apart = f"{100 * (spread.most_s / spread.least_s - 1):.1f} %"
    low, high = format_time(spread.least_s), format_time(spread.most_s)
    return [f"chaotic: {what} takes {low} to {high} ({apart} apart) in {spread.seeds} runs whose starts moved by a tick"]
