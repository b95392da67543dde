"""How fast `emu plan` decides its candidates: with an empty cache, with the requests of before, and once more with everything.

    python -m benchmarks.planning [CASE ...]

Code that Emu has compiled is kept throughout; choices of algorithms are not, when the cache is empty.
"""

import json
import sqlite3
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.command import EMU, Ran, asked_for, ran
from emu.store import user_folder

COLD, WARM, AGAIN = "cold", "warm", "again"
TARGETS = {COLD: 180, WARM: 60}  # seconds that 10,000 candidates may take on two idle cores


@dataclass(frozen=True, slots=True)
class Case:
    """A search."""

    model: str
    npus: int
    global_batch: int
    seq: int
    topology: str
    software: str = "megatron"

    def command(self, folder: Path) -> tuple[str, ...]:
        """Its words."""
        batch = ("--global-batch", str(self.global_batch), "--seq", str(self.seq))
        where = ("--npus", str(self.npus), "--topology", self.topology, "--stack", f"software={self.software}")
        return ("plan", "--model", self.model, *where, *batch, "--cache", str(folder), "--json")


CASES = {
    "8b-64": Case("llama3-8b", 64, 64, 4096, "ub-mesh:rack"),
    "8b-32": Case("llama3-8b", 32, 32, 4096, "servers:nodes=4,gpus=8"),
    "mixtral-32": Case("mixtral-8x7b", 32, 16, 4096, "fat-tree:radix=8"),
}
_COLUMNS = (
    "case",
    "cache",
    "plans",
    "candidates",
    "memory",
    "bound",
    "requests",
    "composed",
    "wall",
    "CPU",
    "10,000 in",
    "target",
)


def times(case: Case, home: Path) -> Iterator[tuple[str, Ran]]:
    """The search with less and less left to do."""
    (home / "emu").mkdir()
    (home / "emu" / "compiled").symlink_to(user_folder() / "compiled", target_is_directory=True)
    for cache in (COLD, WARM, AGAIN):
        if cache == WARM:
            with closing(sqlite3.connect(home / "plans" / "plans.sqlite", isolation_level=None)) as kept:
                kept.execute("DELETE FROM timed WHERE name LIKE 'step %'")
        yield cache, ran(EMU, *case.command(home / "plans"), environ={"XDG_CACHE_HOME": str(home)}, quiet=True)


def row(name: str, cache: str, done: Ran, found: Mapping[str, Any]) -> str:
    """One line of the table; shares are of all candidates, those too that do not fit the memory."""
    decided = found["decided"]
    every = sum(decided.values())
    shares = [f"{decided[by] / every:.1%}" for by in ("memory", "bound", "requests")]
    composed = f"{decided['composed'] / every:.2%} ({decided['composed']})"
    each_s = 10_000 * done.wall_s / every
    size = (name, cache, f"{found['plans']:,}", f"{every:,}")
    target = f"{TARGETS[cache]} s" if cache in TARGETS else ""
    cost = (f"{done.wall_s:.0f} s", f"{done.cpu_s:.0f} s", f"{each_s:.0f} s", target)
    return f"| {' | '.join((*size, *shares, composed, *cost))} |\n"


def main() -> int:
    """Print a table, ready for the README."""
    names = asked_for(CASES, "planning")
    sys.stdout.write(f"| {' | '.join(_COLUMNS)} |\n|{'---|' * len(_COLUMNS)}\n")
    for name in names:
        with tempfile.TemporaryDirectory() as home:
            for cache, done in times(CASES[name], Path(home)):
                sys.stdout.write(row(name, cache, done, json.loads(done.said)))
                sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
