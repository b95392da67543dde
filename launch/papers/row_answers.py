"""Answers to the rows of papers, computed by one or several processes, and cached between commands.

Each answer is computed once, until the code or its inputs change, and kept between commands.
"""

import importlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import NamedTuple

from emu.arrays import digest
from emu.sources import code_digest
from emu.study.job_pool import JobPool, known_result, results_of
from emu.study.planning.search.result_cache import ResultCache
from launch.papers.paper import Paper
from launch.papers.targets import Answer, Target

_FOLDERS = (Path(__file__).parent, Path(__file__).parents[1] / "data")  # code of rows, and devices, prices, models and logs


def name_of(what: str, *asked: object) -> str:
    """Return the name of a result in the cache, which depends on all code and data from which the result follows.

    Args:
        what: The kind of result.
        *asked: The inputs of the result.
    """
    return f"{what} {digest((code_digest(*_FOLDERS), *asked))}"


def kept_answer(target: Target, kept: ResultCache) -> Answer | None:
    """Return the cached answer to a row; None if it is not cached."""
    found = kept.read(name_of("row", target))
    return None if found is None else Answer(**{**found, "notes": tuple(found["notes"])})


def answer_of(paper: Paper, target: Target, kept: ResultCache) -> Answer:
    """Return the answer to a row, from the cache if possible."""
    found = kept_answer(target, kept)
    if found is not None:
        return found
    answer = paper.answer(target)
    holds = None if answer.holds is None else bool(answer.holds)  # JSON cannot hold numpy's bool
    kept.write(name_of("row", target), {"ours": answer.ours, "notes": answer.notes, "off": answer.off, "holds": holds})
    return answer


Make = Callable[[ResultCache], Paper]


class RowRequest(NamedTuple):
    """A row to be computed: its paper, its table or figure, and its number in the paper."""

    paper: str
    place: str
    number: int


class _RowWorker:
    """A function that computes the answers to a group of rows, and stores each answer at once."""

    def __init__(self, makers: Mapping[str, Make], kept: ResultCache) -> None:
        self._makers, self._kept = makers, kept
        self._papers: dict[str, Paper] = {}

    def __reduce__(self) -> tuple[object, ...]:
        return _worker_of, (tuple(self._makers), self._kept)  # another machine has these papers, in folders of its own

    def __call__(self, group: Sequence[RowRequest]) -> list[Answer]:
        """Return the answers to a group of rows."""
        return [answer_of(self._paper(row), self._target(row), self._kept) for row in group]

    def recall(self, group: Sequence[RowRequest]) -> list[Answer] | None:
        """Return the cached answers to a group of rows; None if one is missing."""
        found = [kept_answer(self._target(row), self._kept) for row in group]
        return None if None in found else [answer for answer in found if answer is not None]

    def _paper(self, row: RowRequest) -> Paper:
        """Return the paper of a row."""
        if row.paper not in self._papers:
            self._papers[row.paper] = self._makers[row.paper](self._kept)
        return self._papers[row.paper]

    def _target(self, row: RowRequest) -> Target:
        """Return the printed form of a row."""
        return self._paper(row).targets[row.number]


def _worker_of(papers: Sequence[str], kept: ResultCache) -> _RowWorker:
    """Return the worker for the rows of papers of the catalogue."""
    catalogue = importlib.import_module("launch.papers.catalogue").PAPERS  # not above: papers import this module
    return _RowWorker({name: catalogue[name] for name in papers}, kept)


def answers(makers: Mapping[str, Make], asked: Sequence[RowRequest], kept: ResultCache, pool: JobPool) -> Iterator[Answer]:
    """Yield the answers to rows in order; rows of one place are computed together.

    Args:
        makers: The functions that make the papers, by name.
        asked: The rows.
        kept: The cache.
        pool: The processes that compute rows.
    """
    worker = _RowWorker(makers, kept)
    groups = [[*each] for _, each in groupby(asked, key=lambda row: row[:2])]
    known = [worker.recall(group) for group in groups]
    with pool.open(worker, kept, known.count(None)) as opened:
        pending = (
            opened.submit(group) if told is None else known_result(told) for group, told in zip(groups, known, strict=True)
        )
        for found in results_of(pending, len(groups)):
            yield from found
