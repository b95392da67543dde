"""Rows of papers computed by several processes; the answers equal those of one process."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from emu.study.job_pool import job_pool, results_of
from emu.study.planning.search.result_cache import ResultCache
from launch.papers.paper import Paper
from launch.papers.row_cache import answer_of
from launch.papers.targets import Answer

Make = Callable[[ResultCache], Paper]


class RowRequest(NamedTuple):
    """A row to compute: its paper, its place, and its number among the paper's rows."""

    paper: str
    place: str
    number: int


class _RowWorker:
    """A function that computes rows; each process that calls it opens the cache for itself."""

    def __init__(self, makers: Mapping[str, Make], folder: Path | None) -> None:
        self._makers, self._folder = makers, folder
        self._kept: ResultCache | None = None
        self._papers: dict[str, Paper] = {}

    def __call__(self, group: Sequence[RowRequest]) -> list[Answer]:
        """Return the answers to a group of rows."""
        if self._kept is None:
            self._kept = ResultCache(self._folder)
            self._papers = {name: make(self._kept) for name, make in self._makers.items()}
        papers = self._papers
        return [answer_of(papers[row.paper], papers[row.paper].targets[row.number], self._kept) for row in group]

    def close(self) -> None:
        """Close the cache."""
        if self._kept is not None:
            self._kept.close()


def answers(makers: Mapping[str, Make], asked: Sequence[RowRequest], folder: Path | None, processes: int) -> Iterator[Answer]:
    """Yield the answers to rows in their order; rows of one place share work and are computed by one process.

    Args:
        makers: The functions that make the papers, by name.
        asked: The rows.
        folder: The folder of the cache; None: nothing is kept.
        processes: The largest number of processes.
    """
    groups = [[*each] for _, each in groupby(asked, key=lambda row: row[:2])]
    with closing(_RowWorker(makers, folder)) as desk, job_pool(desk, max(1, min(processes, len(groups)))) as submit:
        for _, found in results_of(((None, submit(group)) for group in groups), len(groups)):
            yield from found
