"""How soon commands answer: `python -m benchmarks.start [CASE ...]`, those whose names begin so, or all.

Every command is run from its start to its end in a process of its own. Ratios are held against bounds, not seconds, because one
machine is faster than another: `python -c "import torch"` runs just before each command, and the least time of several runs is
divided by its least. The bounds are those of the wall time on an idle machine; CPU time (user and system, of all threads) says
more on a busy one.
"""

import os
import shutil
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benchmarks.command import EMU, Ran, ran

REPEATS = 5
TORCH = sys.executable, "-c", "import torch"
SWITCH = "bandwidth=50GB/s,latency=1us"
RING = "bench", "all_reduce", "--algorithm", "ring", "--size", "1MiB", "--topology"
AUTO = "bench", "all_reduce", "--algorithm", "auto", "--size", "1MiB", "--timing-only", "--ranks", "64", "--topology"


@dataclass(frozen=True, slots=True)
class Folders:
    """The folders where commands keep what they have compiled and chosen, and Python its bytecode if not beside the source."""

    cache: Path
    bytecode: Path | None = None

    @property
    def environ(self) -> dict[str, str]:
        """Return the environment variables that name these folders to a command."""
        bytecode = {"PYTHONPYCACHEPREFIX": str(self.bytecode)} if self.bytecode else {}
        return {"XDG_CACHE_HOME": str(self.cache), **bytecode}


def warm(place: Path) -> Folders:
    """Return folders that have all that earlier commands have left."""
    return Folders(place / "warm")


def without_choices(place: Path) -> Folders:
    """Return folders with compiled functions, and no algorithm chosen yet."""
    shutil.rmtree(place / "warm" / "emu" / "choices", ignore_errors=True)
    return warm(place)


def cold(place: Path) -> Folders:
    """Return folders with nothing: neither compiled functions nor bytecode, of Emu or of any library."""
    new = Path(tempfile.mkdtemp(dir=place))
    return Folders(new / "cache", new / "bytecode")


def uncompiled(place: Path) -> Folders:
    """Return folders that leave libraries as they are installed, with nothing compiled and nothing chosen yet."""
    return Folders(Path(tempfile.mkdtemp(dir=place)))


@dataclass(frozen=True, slots=True)
class Case:
    """A command, what it finds, and how long it may take."""

    words: str
    command: tuple[str, ...]
    bound: float  # times `import torch`
    finds: Callable[[Path], Folders] = warm

    def run(self, place: Path) -> Ran:
        """Run it once; its folders are in `place`."""
        return ran(EMU, *self.command, environ=self.finds(place).environ, quiet=True)


def _ring(n: int, *more: str) -> tuple[str, ...]:
    return *RING, f"switch:n={n},{SWITCH}", *more


CASES = {
    "list": Case("`emu list collectives`", ("list", "collectives"), 0.5),
    "show": Case("`emu show topology ub-mesh:rack`", ("show", "topology", "ub-mesh:rack"), 0.5),
    "timing-64": Case("`emu bench --timing-only`, ring of 64 on a switch", _ring(64, "--timing-only"), 0.7),
    "data-64": Case("the same with data, moved and checked", _ring(64), 1.7),
    "timing-1024": Case("`emu bench --timing-only`, ring of 1,024", _ring(1024, "--timing-only"), 0.8),
    "cold-ring": Case("ring of 64 without data, no compiled function, no bytecode", _ring(64, "--timing-only"), 5, cold),
    "cold-auto": Case(
        "`--algorithm auto`, 64 ranks, ub-mesh:rack, no compiled function", (*AUTO, "ub-mesh:rack"), 5, uncompiled
    ),
    "auto-mesh": Case("the same, functions compiled, nothing chosen", (*AUTO, "ub-mesh:rack"), 2.5, without_choices),
    "auto-tree": Case("the same, fat-tree:radix=16", (*AUTO, "fat-tree:radix=16"), 2.5, without_choices),
    "auto-hpn": Case("the same, hpn:segment:dims=8x8", (*AUTO, "hpn:segment:dims=8x8"), 2.5, without_choices),
}


@dataclass(frozen=True, slots=True)
class Measured:
    """The runs of a command, and those of `import torch` before each."""

    command: tuple[Ran, ...]
    torch: tuple[Ran, ...]

    @property
    def ratio(self) -> float:
        """Least wall time over torch's least."""
        return min(run.wall_s for run in self.command) / min(run.wall_s for run in self.torch)

    @property
    def cpu_ratio(self) -> float:
        """Return the least CPU time over torch's least."""
        return min(run.cpu_s for run in self.command) / min(run.cpu_s for run in self.torch)


def measure(case: Case, place: Path, repeats: int = REPEATS) -> Measured:
    """Run a command several times, after one run that fills its caches, each after an `import torch`."""
    case.run(place)
    torch, command = [], []
    for _ in range(repeats):
        torch.append(ran(*TORCH))
        command.append(case.run(place))
    return Measured(tuple(command), tuple(torch))


def row(name: str, case: Case, found: Measured) -> str:
    """Return one row of the table."""
    wall_s, cpu_s = min(run.wall_s for run in found.command), min(run.cpu_s for run in found.command)
    torch_s = min(run.wall_s for run in found.torch)
    met = "yes" if found.ratio <= case.bound else "no"
    ratios = f"{found.ratio:.2f} | {case.bound:g} | {met} | {found.cpu_ratio:.2f}"
    return f"| `{name}` | {case.words} | {ratios} | {wall_s:.2f} s | {cpu_s:.2f} s | {torch_s:.2f} s |"


def chosen(beginnings: list[str]) -> list[str]:
    """The names that begin with one of `beginnings`, or all."""
    return [name for name in CASES if not beginnings or name.startswith(tuple(beginnings))]


def main() -> int:
    """Print the table, ready for the README, and how busy the machine was."""
    names, before = chosen(sys.argv[1:]), os.getloadavg()[0]
    if not names:
        sys.stderr.write(f"start: no case begins with {' or '.join(sys.argv[1:])}; there are {', '.join(CASES)}\n")
        return 2
    columns = ("name", "command", "wall, of torch's", "bound", "met", "CPU time, of torch's", "wall", "CPU time", "torch, wall")
    sys.stdout.write(f"| {' | '.join(columns)} |\n|{'---|' * len(columns)}\n")
    ran(*TORCH)  # so that the first that is timed reads torch from memory, as the others do
    with tempfile.TemporaryDirectory() as place:
        for name in names:
            sys.stdout.write(row(name, CASES[name], measure(CASES[name], Path(place))) + "\n")
            sys.stdout.flush()
    sys.stdout.write(f"\nLoad before: {before:.1f}, after: {os.getloadavg()[0]:.1f} of {os.cpu_count()} cores.\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
