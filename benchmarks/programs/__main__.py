"""Programs of public repositories on emulated ranks, beside gloo: python -m benchmarks.programs CHECKOUTS [NAME ...].

CHECKOUTS has a folder owner/name for each repository of programs.toml, at its commit; what the programs import must be
installed. Exit code 1 if a program ends otherwise than the manifest says.
"""

import argparse
import shutil
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from benchmarks.programs.compare import Likeness, compare
from benchmarks.programs.data import generate
from benchmarks.programs.manifest import ManifestError, Program, read
from benchmarks.programs.place import LIMIT_S, Ended, prepare, run

MANIFEST = Path(__file__).with_name("programs.toml")
PLACES = ("gloo", "threads")


class Row(NamedTuple):
    """The outcome of one program in each place."""

    program: Program
    ended: Mapping[str, Ended]
    likeness: Likeness | None  # None: it did not run in both places

    @property
    def faults(self) -> list[str]:
        """Return what is otherwise than the manifest says, a line each."""
        said = {"gloo": self.program.not_gloo, "threads": self.program.not_emulated}
        hung = self.likeness is not None and self.likeness.equal and not self.ended["gloo"].ok
        of = {place: ended for place, ended in self.ended.items() if not (hung and place == "gloo")}
        told = [_fault(self.program.name, place, ended, said[place]) for place, ended in of.items()]
        if self.likeness is not None and not self.likeness.equal:
            told.append(f"{self.program.name}: gloo and threads differ: {self.likeness}")
        if self.likeness is not None and self.program.trains and not self.likeness.steps:
            told.append(f"{self.program.name}: it ended without an optimizer step")
        return [each for each in told if each]

    def __str__(self) -> str:
        on = [_how(self.ended[place]) if place in self.ended else "" for place in ("threads", "gloo")]
        why = [pair[0] for pair in (self.program.not_emulated, self.program.not_gloo) if pair]
        equal = "" if self.likeness is None else str(self.likeness)
        cells = (f"`{self.program.name}`", self.program.uses, *on, equal, "; ".join(dict.fromkeys(why)), _changes(self.program))
        return "| " + " | ".join(cells) + " |"


def _how(ended: Ended) -> str:
    return "yes" if ended.ok else "no" if ended.code is not None else "hangs"


def _changes(program: Program) -> str:
    whys = [change.why for change in program.changes]
    return ", ".join(f"{whys.count(why)} {why}" for why in dict.fromkeys(whys)) or "none"


def _fault(name: str, place: str, ended: Ended, said: tuple[str, str] | None) -> str:
    """Return what is otherwise than the manifest says of one place; empty if nothing is."""
    if said is None:
        return "" if ended.ok else f"{name}: {place} ended with {ended.code}: {last(ended.said)}"
    if ended.ok:
        return f"{name}: {place} is said not to run it, and does"
    return "" if said[1] in ended.said else f"{name}: {place} ended for another reason than {said[1]!r}: {last(ended.said)}"


def last(said: str) -> str:
    """Return the last line that tells why."""
    told = (line.strip() for line in said.splitlines() if "ChildFailedError" not in line)
    lines = [line for line in told if "Error" in line or line.startswith("emu:")]
    return lines[-1][:300] if lines else said.strip()[-300:]


def row(program: Program, data: Path, told: argparse.Namespace) -> Row:
    """Return what becomes of a program in the places that are asked for."""
    with tempfile.TemporaryDirectory() as folder:
        ended = {}
        for place in told.place or PLACES:
            root = Path(folder) / place / "root"
            script = prepare(program, told.checkouts.resolve(), data, root)
            ended[place] = run(program, place, script, root, data, told.limit)
        likeness = _likeness(program, ended)
        if told.keep:
            shutil.copytree(folder, told.keep / program.name.replace("/", "+"), dirs_exist_ok=True)
    return Row(program, ended, likeness)


def _likeness(program: Program, ended: Mapping[str, Ended]) -> Likeness | None:
    """Compare what a program did in both places; None: it did not run in both. On gloo it may hang as it ends."""
    if len(ended) < len(PLACES) or not ended["threads"].ok or ended["gloo"].code not in (0, None):
        return None
    return compare(ended["gloo"].record, ended["threads"].record, program.ranks, program.noise)


def main() -> int:
    """Print the table; return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("checkouts", type=Path)
    parser.add_argument("names", nargs="*", help="beginnings of programs' names; none: all")
    parser.add_argument("--place", choices=PLACES, action="append", help="only there")
    parser.add_argument("--keep", type=Path, help="a folder for what the programs were made and have said")
    parser.add_argument("--limit", type=float, default=LIMIT_S, help="seconds that a program may take in one place")
    told = parser.parse_intermixed_args()
    chosen = [p for p in read(MANIFEST) if not told.names or p.name.startswith(tuple(told.names))]
    faults: list[str] = []
    say("| program | uses | on threads | on gloo | equal | why not | changes |")
    say("|---|---|---|---|---|---|---|")
    with tempfile.TemporaryDirectory() as folder:
        generate(Path(folder))
        for program in chosen:
            faults += _told(program, told, Path(folder))
    say(*faults, sep="\n")
    return 1 if faults else 0


def _told(program: Program, told: argparse.Namespace, data: Path) -> list[str]:
    """Print the row of a program; return what is wrong with it."""
    try:
        found = row(program, data, told)
    except ManifestError as error:
        return [str(error)]
    say(found)
    for fault in found.faults:
        print(fault, file=sys.stderr, flush=True)  # noqa: T201
    return found.faults


def say(*words: object, sep: str = " ") -> None:
    """Print at once."""
    print(*words, sep=sep, flush=True)  # noqa: T201


if __name__ == "__main__":
    sys.exit(main())
