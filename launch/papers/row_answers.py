"""Answers to the rows of papers: each is computed once, until the code or its inputs change, by one or several processes.

The answers of several processes equal those of one.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from emu.arrays import digest
from emu.sources import code_digest
from emu.study.job_pool import job_pool, results_of
from emu.study.planning.search.timer import ResultCache
from launch.papers.paper import Paper
from launch.papers.targets import Answer, Target

_FOLDERS = (Path(__file__).parent, Path(__file__).parents[1] / "data")  # code of rows, and devices, prices, models and logs


def name_of(what: str, *asked: object) -> str:
    """Return the name of a result in the cache; it depends on all code and data that the result follows from.

    Args:
        what: The kind of result.
        *asked: The inputs of the result.
    """
    return f"{what} {digest((code_digest(*_FOLDERS), *asked))}"


def answer_of(paper: Paper, target: Target, kept: ResultCache) -> Answer:
    """Return Emu's answer to a row, read from the cache if it is there."""
    name = name_of("row", target)
    found = kept.read(name)
    if found is not None:
        return Answer(**{**found, "notes": tuple(found["notes"])})
    answer = paper.answer(target)
    holds = None if answer.holds is None else bool(answer.holds)  # JSON cannot hold numpy's bool
    kept.write(name, {"ours": answer.ours, "notes": answer.notes, "off": answer.off, "holds": holds})
    return answer


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
    with closing(_RowWorker(makers, folder)) as worker, job_pool(worker, max(1, min(processes, len(groups)))) as submit:
        for _, found in results_of(((None, submit(group)) for group in groups), len(groups)):
            yield from found
