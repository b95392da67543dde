"""Find faults that no test sees: `python -m benchmarks.mutate --count 40 --seed 1 PATH ...`, from the root of the repository.

Small faults are drawn at random over the files of the paths, one at a time is put into a copy of the repository, and the tests
that should see it are run there until one fails. `benchmarks/README.md` tells how to read what it prints.
"""

import argparse
import sys
import tomllib
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from queue import SimpleQueue
from tempfile import TemporaryDirectory
from typing import NamedTuple

from benchmarks.mutate.executing_tests import Record, in_order, seconds_of_tests
from benchmarks.mutate.faults import Fault, drawn
from benchmarks.mutate.trial import Copy, Outcome, compiled, seeing

ROOT = Path(__file__).parents[2]
WITHOUT_EFFECT = Path(__file__).with_name("equivalent.toml")  # faults that a person has found to change no result, and why
LEAST_S = 60.0  # of the time limit, beside twice as long as all the tests take without a fault


class Tried(NamedTuple):
    """A fault and what the tests said of it."""

    fault: Fault
    outcome: Outcome
    told: str  # what it changed, as `shown` has it: of the copy, for the checkout may have gone on meanwhile


def asked(words: list[str]) -> argparse.Namespace:
    """Return what the command line asks for."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.mutate", description=__doc__, allow_abbrev=False)
    parser.add_argument("paths", nargs="+", metavar="PATH", help="a Python file, a folder of them, or FILE:LINE")
    parser.add_argument("--count", type=int, default=40, help="how many faults (default 40)")
    parser.add_argument("--seed", type=int, default=1, help="another seed draws others (default 1)")
    parser.add_argument("--jobs", type=int, default=1, help="how many at the same time, each in a copy of its own (default 1)")
    parser.add_argument("--tests", nargs="+", metavar="TESTS", help="run these, not those of the same name and of `ALSO`")
    parser.add_argument(
        "--record", type=Path, metavar="FILE", help="of these, run the ones that execute the line, by pytest-cov"
    )
    parser.add_argument(
        "--times", type=Path, metavar="FILE", help="of the record, run the quickest files first, by pytest's --junitxml"
    )
    parser.add_argument("--near", action="store_true", help="of these, run the ones of the same name and folder: in seconds")
    parser.add_argument(
        "--limit", type=float, metavar="S", help="seconds of one fault's tests; they are not run without a fault before"
    )
    parser.add_argument("--list", action="store_true", help="print the faults and their tests, and run nothing")
    found = parser.parse_args(words)
    if found.times and not found.record:
        parser.error("--times orders the tests of a record: give --record, too")
    for path, _ in map(split, found.paths):
        if not (ROOT / path).exists() or path.is_absolute():
            parser.error(f"PATH must be a file or folder below {ROOT}, got {path}")
    return found


def split(word: str) -> tuple[Path, int | None]:
    """Return the path and the line of FILE:LINE; a path alone has no line."""
    path, _, line = word.partition(":")
    return Path(path), int(line) if line else None


def faults(words: Iterable[str], seed: int, root: Path = ROOT) -> Iterator[Fault]:
    """Return the faults of some paths, in the order of the draw."""
    lines: dict[Path, set[int | None]] = {}
    for path, line in map(split, words):
        for file in [root / path] if (root / path).is_file() else sorted((root / path).rglob("*.py")):
            lines.setdefault(file.relative_to(root), set()).add(line)
    return (fault for fault in drawn(root, lines, seed) if lines[fault.path] & {None, fault.line})


def known(path: Path = WITHOUT_EFFECT) -> dict[tuple[str, str, str], str]:
    """Why a fault has no effect, by its file, what stood there and what stands there."""
    listed = tomllib.loads(path.read_text()).get("fault", [])
    return {(each["path"], each["old"], each["new"]): each["why"] for each in listed}


def shown(fault: Fault, root: Path = ROOT) -> str:
    """A fault as file and line, its kind, and what it changes."""
    return "\n".join([f"{fault.path}:{fault.line}  {fault.kind}", *(f"    {line}" for line in fault.diff(root))])


def tried(
    chosen: list[Fault], tests: list[list[str]], jobs: int, root: Path = ROOT, limit_s: float | None = None
) -> Iterator[Tried]:
    """Yield each fault with what its tests say, in order.

    Without a time limit the tests must first pass without a fault, and the limit is twice as long as they take.
    """
    with TemporaryDirectory() as folder, ThreadPoolExecutor(jobs) as pool:
        copies = SimpleQueue[Copy]()
        for i in range(jobs):
            copies.put(Copy(root, Path(folder, str(i))))
        if limit_s is None:
            limit_s = LEAST_S + 2 * _without_fault(copies, list(dict.fromkeys(name for names in tests for name in names)))

        def one(fault: Fault, names: list[str]) -> Tried:
            copy = copies.get()
            try:
                told, afresh = shown(fault, copy.root), compiled(copy.root, fault.path)
                with copy.faulty(fault):
                    for words in (names, seeing(copy.root, fault.path)):  # recorded names may not be there with the fault
                        outcome = copy.run(words, limit_s, afresh=afresh)
                        if not outcome.untried:
                            break
                    return Tried(fault, outcome, told)
            finally:
                copies.put(copy)

        yield from pool.map(one, chosen, tests)


def _without_fault(copies: SimpleQueue[Copy], tests: list[str]) -> float:
    copy = copies.get()
    outcome = copy.run(tests)
    copies.put(copy)
    if outcome.failed or outcome.untried:
        why = outcome.untried or f"{outcome.failed} failed"
        sys.exit(f"{outcome.output}\nmutate: the tests must pass without a fault, but {why}")
    sys.stderr.write(f"without a fault, {' '.join(tests)} pass in {outcome.wall_s:.0f} s\n")
    return outcome.wall_s


def score(results: Iterable[Tried], total: int) -> int:
    """Print each result as it is there, then how many were caught; how many were not is returned."""
    counts = Counter[str]()
    for i, each in enumerate(results, 1):
        kind, line = _result(each)
        counts[kind] += 1
        counts["slow"] += each.outcome.failed == "time limit"
        sys.stdout.write(f"{i}/{total} {kind} {line} ({each.outcome.wall_s:.0f} s)\n")
        sys.stdout.flush()
    caught, survived, untried = (counts[kind] for kind in ("caught", "SURVIVED", "NOT TRIED"))
    rate = f", {100 * caught / (caught + survived):.1f} %" if caught + survived else ""
    more = f"; {untried} not tried, which count for neither" * (untried > 0)
    told = f"{caught} of {caught + survived} faults caught{rate} ({counts['slow']} by the time limit)"
    sys.stdout.write(f"{told}; {survived} survived{more}\n")
    return survived + untried


def _result(each: Tried) -> tuple[str, str]:
    """Return what became of a fault, and what is told of it."""
    fault, outcome, told = each
    if outcome.failed:
        return "caught", f"{fault.path}:{fault.line}  {fault.kind}  {outcome.failed}"
    return ("NOT TRIED", f"{told}\n    {outcome.untried}") if outcome.untried else ("SURVIVED", f"{told}\n   ")


def chosen(words: Iterable[str], count: int, seed: int) -> list[Fault]:
    """Return so many faults of some paths; those known to be without effect are printed and passed over."""
    reasons, found = known(), list[Fault]()
    for fault in faults(words, seed):
        if len(found) == count:
            break
        why = reasons.get((str(fault.path), *fault.words(ROOT)))
        if why is None:
            found.append(fault)
        else:
            sys.stdout.write(f"without effect, left out: {shown(fault)}\n    {why}\n")
    return found


def tests_of(fault: Fault, record: Record | None, seconds: dict[str, float] | None, *, near: bool) -> list[str]:
    """Return the tests to run for a fault: those that execute its line if a record says so, else those chosen by its file.

    The import of a module is recorded under no test: tests that execute another line of the file come first, then all chosen.
    """
    named = seeing(ROOT, fault.path, near=near)
    if record is None:
        return named
    executing = in_order(record.tests(fault.path, fault.line), named, seconds)
    return executing or [*in_order(record.tests_of_file(fault.path), named, seconds), *named]


def main(words: list[str]) -> int:
    """Draw, try and print; 1 if any survived."""
    command = asked(words)
    record = Record(command.record, ROOT) if command.record else None
    found = chosen(command.paths, command.count, command.seed)
    seconds = seconds_of_tests(command.times) if command.times else None
    tests = [command.tests or tests_of(fault, record, seconds, near=command.near) for fault in found]
    if command.list:
        for fault, names in zip(found, tests, strict=True):
            sys.stdout.write(f"fault {shown(fault)}\n    {' '.join(names)}\n")
        return 0
    return int(score(tried(found, tests, command.jobs, limit_s=command.limit), len(found)) > 0)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
