"""Does a row of a paper look at what is built? Put another topology of the family in its place: then it must not be met.

    python -m benchmarks.swap [--most 6] [ROW ...]

A row is the id of one of `emu repro all`, or its beginning. Exit code 1 if any row is met by other topologies too.
"""

import argparse
import sys
from collections.abc import Callable, Iterator
from contextlib import closing
from functools import partial

from benchmarks.swap.trial import BUILDS_NONE, Builder, Swap, tried
from emu.study.planning.search.result_cache import ResultCache
from emu.topology import catalogue
from launch.papers.paper import IS, Paper
from launch.papers.targets import MET, Target, with_others


def main(words: list[str]) -> int:
    """Print a line for each row and family that it builds; 1 if any was met by others."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.swap", description=__doc__)
    parser.add_argument("rows", nargs="*", help="ids of rows, or how they begin; all that count or time unless given")
    parser.add_argument("--most", type=int, default=6, help="how many topologies are tried in the place of one")
    asked = parser.parse_args(words)
    catalogue.build_topology = builder = Builder(asked.most)  # before the papers are imported
    return told([swap for row in _rows(tuple(asked.rows)) for swap in tried(*row, builder)])


def _rows(chosen: tuple[str, ...]) -> Iterator[tuple[str, Callable[[], bool]]]:
    """Yield the id of each row that Emu computes, with a function that answers it anew and returns whether it is met."""
    from launch.papers.catalogue import PAPERS  # noqa: PLC0415 -- papers take what stands for build_topology

    for make in PAPERS.values():
        with closing(ResultCache(None)) as kept:
            paper = make(kept)
        for target in paper.targets:
            if target.kind != "H" and "(" in target.given.get(IS, "(") and (not chosen or target.id.startswith(chosen)):
                yield target.id, partial(_is_met, make, target)


def _is_met(make: Callable[[ResultCache], Paper], target: Target) -> bool:
    """Return whether a row is met by an answer for which nothing was kept."""
    with closing(ResultCache(None)) as kept:
        paper = make(kept)
        return paper.judge(target, {each.id: paper.answer(each) for each in with_others([target])}).verdict == MET


def told(swaps: list[Swap]) -> int:
    """A table of all; 1 if any row is met by other topologies."""
    out = sys.stdout.write
    out("| row | builds | swapped for | red? |\n|---|---|---|---|\n")
    for swap in swaps:
        red = "yes" if swap.red else swap.said or "**no**"
        out(f"| {swap.row} | {_few(swap.lines)} | {_few(swap.others)} | {red} |\n")
    hollow = sorted({swap.row for swap in swaps if not swap.red and not swap.said})
    none = sorted({swap.row for swap in swaps if swap.said == BUILDS_NONE})
    out(f"\n{len(hollow)} rows are not red: {' '.join(hollow)}\n\n{len(none)} rows build no topology: {' '.join(none)}\n")
    return int(bool(hollow))


def _few(lines: tuple[str, ...]) -> str:
    return ", ".join(lines[:2]) + (f" and {len(lines) - 2} more" if len(lines) > 2 else "")


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
