"""Rows of papers worked out by several processes where there are cores for them; what they come to is that of one."""

import multiprocessing
import signal
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

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
    """Works out rows."""

    def __init__(self, makers: Mapping[str, Make], kept: Kept) -> None:
        self._kept = kept
        self._papers = {name: make(kept) for name, make in makers.items()}

    def __call__(self, asked: Asked) -> Answer:
        """What Emu says of one."""
        paper = self._papers[asked.paper]
        return answer_of(paper, paper.targets[asked.number], self._kept)


_DESKS: list[_Desk] = []  # of a process that was forked


def _begin(makers: Mapping[str, Make], folder: Path | None) -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the first process says when it ends
    _DESKS[:] = [_Desk(makers, Kept(folder))]


def _answers(group: Sequence[Asked]) -> list[Answer]:
    return [_DESKS[0](asked) for asked in group]


def answers(makers: Mapping[str, Make], asked: Sequence[Asked], folder: Path | None, processes: int) -> Iterator[Answer]:
    """What Emu says of rows, in their order; those of one place in a paper share work, and so a process.

    Args:
        makers: The papers that are asked about.
        asked: The rows.
        folder: Where they are kept; None: nowhere.
        processes: How many, at most.
    """
    groups = [[*each] for _, each in groupby(asked, key=lambda row: row[:2])]
    if min(processes, len(groups)) < 2 or "fork" not in multiprocessing.get_all_start_methods():
        with closing(Kept(folder)) as kept:
            yield from map(_Desk(makers, kept), asked)
        return
    with multiprocessing.get_context("fork").Pool(min(processes, len(groups)), _begin, (makers, folder)) as pool:
        for found in pool.imap(_answers, groups):
            yield from found
