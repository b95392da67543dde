"""Compare what timing at scale costs in two checkouts: `python -m benchmarks.against FOLDER [CASE ...]`.

FOLDER is another checkout with a `.venv` of its own. The cases are those of `benchmarks.scale`. Processor time is compared, so
that other work on the machine counts for little.
"""

import json
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.scale import chosen

HERE = Path(__file__).resolve().parents[1]
REPEATS, ROUNDS, GB = 3, 2, 10**9
# Any checkout's own benchmarks.scale runs it: what it imports has been in other places.
MEASURE = """
import json, resource, sys, time
from benchmarks.scale import CASES
what, spent = CASES[sys.argv[1]].what, []
while len(spent) <= int(sys.argv[2]) or (len(spent) < 30 and sum(spent[1:]) < 2):  # what is short is told by more runs
    since = time.process_time()
    timeline = what.time()
    spent.append(time.process_time() - since)
    end_s, tasks = timeline.end_s, len(timeline.end_fs)
    del timeline
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
print(json.dumps([min(spent[1:]), peak, tasks, end_s]))
"""


@dataclass(frozen=True, slots=True)
class Cost:
    """The cost of a case in one checkout; processor time is the least of several runs, after one that loads or compiles."""

    cpu_s: float
    peak_bytes: int
    tasks: int
    end_s: float


def cost(folder: Path, name: str, repeats: int = REPEATS) -> Cost | None:
    """Return the cost of a case in a process of its own; None where that checkout has no such case or cannot time it."""
    command: list[str | Path] = [folder / ".venv" / "bin" / "python", "-c", MEASURE, name, str(repeats)]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)
    return Cost(*json.loads(done.stdout)) if done.returncode == 0 else None


def least(folders: Sequence[Path], name: str) -> list[Cost | None]:
    """Return the least cost of a case in each checkout, which take turns; None where a turn has failed."""
    turns = [[cost(folder, name) for folder in folders] for _ in range(ROUNDS)]
    return [None if None in found else min(found, key=lambda each: each.cpu_s) for found in zip(*turns, strict=True)]


def row(name: str, before: Cost | None, now: Cost | None) -> str:
    """Return one row of the table."""
    if before is None or now is None:
        return f"| `{name}` | not in {'both' if before is now else 'the other' if before is None else 'this'} | | | | | |"
    virtual = "same" if before.end_s == now.end_s else f"{now.end_s / before.end_s:.6g}"
    peaks = f"{before.peak_bytes / GB:.2f} | {now.peak_bytes / GB:.2f}"
    ratio = now.cpu_s / before.cpu_s
    return f"| `{name}` | {before.cpu_s:.3g} | {now.cpu_s:.3g} | {ratio:.2f} | {peaks} | {virtual} |"


def main() -> int:
    """Print the table, ready for the README."""
    if len(sys.argv) < 2 or not (python := Path(sys.argv[1], ".venv", "bin", "python")).exists():
        sys.stderr.write("against: needs the folder of another checkout, with its .venv: python -m benchmarks.against FOLDER\n")
        return 2
    columns = ("case", "CPU before (s)", "CPU now (s)", "now / before", "GB before", "GB now", "virtual time")
    sys.stdout.write(f"| {' | '.join(columns)} |\n|{'---|' * len(columns)}\n")
    for name in chosen(sys.argv[2:]):
        sys.stdout.write(row(name, *least((python.parents[2].resolve(), HERE), name)) + "\n")
        sys.stdout.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
