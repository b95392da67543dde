"""Does a row's test look at what is built? Put another topology of the family in its place: the test must fail.

    python -m benchmarks.swap [--most 6] [ROW ...]

A row is a row of docs/targets/*.md, or the beginning of its id. Exit code 1 if any test stays green.
"""

import argparse
import sys
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks.swap.rows import PAGES, rows
from benchmarks.swap.trial import BUILDS_NONE, Swap, Trial

_OPTIONS = ["-o", "addopts=--import-mode=importlib", "-p", "no:terminal", "-p", "no:cacheprovider"]
_TESTS = ["tests/topologies", "tests/collectives", "tests/test_decompose.py"]


def main(words: list[str]) -> int:
    """Print a line for each row and topology; 1 if any stayed green."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.swap", description=__doc__)
    parser.add_argument("rows", nargs="*", help="ids of rows, or how they begin; all unless given")
    parser.add_argument("--most", type=int, default=6, help="how many topologies are tried in the place of one")
    parser.add_argument("--pages", type=Path, default=PAGES, help="where the pages with rows are")
    parser.add_argument("--tests", nargs="+", default=_TESTS, help="files and folders of tests")
    asked = parser.parse_args(words)
    chosen = [row for row in rows(asked.pages) if not asked.rows or row.id.startswith(tuple(asked.rows))]
    trial = Trial(chosen, asked.most)
    code = pytest.main([*_OPTIONS, *asked.tests], plugins=[trial])
    if code not in {pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED, pytest.ExitCode.NO_TESTS_COLLECTED}:
        sys.exit(f"swap: pytest ended with {code!r}; do the tests run alone?")
    order = {row.id: i for i, row in enumerate(chosen)}
    return told(sorted(trial.swaps, key=lambda swap: order[swap.row]))


def told(swaps: list[Swap]) -> int:
    """A table of all; 1 if any topology of a row's test could be swapped unseen, or a test fails as it is."""
    out = sys.stdout.write
    out("| row | test | builds | swapped for | red? |\n|---|---|---|---|---|\n")
    by_test = {(swap.test, swap.row) for swap in swaps}
    for swap in _one_a_test(swaps):
        red = "yes" if swap.red else swap.said or "**no**"
        out(f"| {swap.row} | `{swap.test}` | {_few(swap.lines)} | {_few(swap.others)} | {red} |\n")
    hollow = {swap.row for swap in swaps if not swap.red and swap.said != BUILDS_NONE}
    none = {swap.row for swap in swaps if swap.said == BUILDS_NONE} - {swap.row for swap in swaps if swap.red}
    rows_of = Counter(test for test, _ in by_test)
    shared = {row for test, row in by_test if rows_of[test] > 1}
    for what, found in (
        ("are in all", {swap.row for swap in swaps}),
        ("are not red", hollow),
        (f"have tests that all {BUILDS_NONE.replace('builds', 'build')}", none),
        ("share a test that has no case for each, so that one may hide another", shared),
    ):
        out(f"\n{len(found)} rows {what}" + (f": {' '.join(sorted(found))}" if what != "are in all" and found else ""))
    out("\n")
    return int(bool(hollow))


def _one_a_test(swaps: list[Swap]) -> Iterator[Swap]:
    """Of the cases of a test that are alike for a row, the first; those that are not red all."""
    seen: set[tuple[str, str, bool, str]] = set()
    for swap in swaps:
        like = (swap.row, swap.test.partition("[")[0], swap.red, "" if swap.red else swap.said)
        if like not in seen or not (swap.red or swap.said):
            yield swap
        seen.add(like)


def _few(lines: tuple[str, ...]) -> str:
    return ", ".join(lines[:2]) + (f" and {len(lines) - 2} more" if len(lines) > 2 else "")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
