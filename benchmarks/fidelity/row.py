"""A line of the table: what someone else's physics gives, what Emu gives, and how far apart they may be."""

from collections.abc import Iterable
from dataclasses import dataclass

from launch.show.text.table import table

HEAD = ("case", "measured", "Emu", "unit", "ratio", "bound", "verdict")


@dataclass(frozen=True, slots=True)
class Row:
    """One comparison; without a bound it is not judged, and the reason says why."""

    case: str
    measured: float
    emu: float
    unit: str
    bound: float | None  # of |ratio - 1|
    reason: str = ""

    @property
    def ratio(self) -> float:
        """Return the quotient of what was measured and Emu's."""
        return self.measured / self.emu if self.emu else 1.0 + self.measured

    @property
    def failed(self) -> bool:
        """Return whether the ratio lies outside its bound."""
        return self.bound is not None and not abs(self.ratio - 1) <= self.bound

    @property
    def verdict(self) -> str:
        """Return the verdict in a word, and the reason if there is one."""
        word = "" if self.bound is None else "outside" if self.failed else "within"
        return ": ".join(part for part in (word, self.reason) if part)

    def cells(self) -> tuple[str, ...]:
        """Return the cells of the row, in the order of the head."""
        bound = "-" if self.bound is None else f"{100 * self.bound:.3g} %"
        return self.case, f"{self.measured:.6g}", f"{self.emu:.6g}", self.unit, f"{self.ratio:.4f}", bound, self.verdict


def farthest(case: str, unit: str, pairs: Iterable[tuple[float, float]], bound: float | None, reason: str = "") -> Row:
    """The row of that (measured, Emu) whose ratio is farthest from 1."""
    return max((Row(case, *pair, unit, bound, reason) for pair in pairs), key=lambda row: abs(row.ratio - 1))


def show(rows: list[Row]) -> str:
    """The table, and how many lines are outside their bounds."""
    judged, failed = sum(row.bound is not None for row in rows), sum(row.failed for row in rows)
    return f"{table(HEAD, [row.cells() for row in rows])}\n\n{judged} lines have a bound, {failed} of them lie outside it"
