"""Rows of papers worked out by several processes where there are cores for them; what they come to is that of one."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from emu.study.forked import ahead, forked
from emu.study.planning.search.kept import Kept
from launch.papers.kept import answer_of
from launch.papers.paper import Paper
from launch.papers.targets import Answer

Make = Callable[[Kept], Paper]


class Asked(NamedTuple):
    """A row: its paper, where in it, and its place among the paper's targets."""

    paper: str
    place: str
    number: int


class _Desk:
    """Works out rows, in whichever process asks it first: a connection to SQLite is of one."""

    def __init__(self, makers: Mapping[str, Make], folder: Path | None) -> None:
        self._makers, self._folder = makers, folder
        self._kept: Kept | None = None
        self._papers: dict[str, Paper] = {}

    def __call__(self, group: Sequence[Asked]) -> list[Answer]:
        """What Emu says of each."""
        if self._kept is None:
            self._kept = Kept(self._folder)
            self._papers = {name: make(self._kept) for name, make in self._makers.items()}
        papers = self._papers
        return [answer_of(papers[row.paper], papers[row.paper].targets[row.number], self._kept) for row in group]

    def close(self) -> None:
        """Nothing is asked any more."""
        if self._kept is not None:
            self._kept.close()


def answers(makers: Mapping[str, Make], asked: Sequence[Asked], folder: Path | None, processes: int) -> Iterator[Answer]:
    """What Emu says of rows, in their order; those of one place in a paper share work, and so a process.

    Args:
        makers: The papers that are asked about.
        asked: The rows.
        folder: Where they are kept; None: nowhere.
        processes: How many, at most.
    """
    groups = [[*each] for _, each in groupby(asked, key=lambda row: row[:2])]
    with closing(_Desk(makers, folder)) as desk, forked(desk, max(1, min(processes, len(groups)))) as submit:
        for _, found in ahead(((None, submit(group)) for group in groups), len(groups)):
            yield from found
