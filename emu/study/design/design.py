"""The design of a machine for a training job: which networks, devices and sizes are worth their money, and why.

Points are worked out only as far as the answer needs (`search`). The answer is the same as if every point had been timed.
"""

import time
from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np

from emu.arrays import F64, I64
from emu.study.design.design_search import DesignSearch
from emu.study.design.design_table import DesignRow, DesignTable
from emu.study.design.pareto import is_beaten
from emu.study.design.point import DesignPoint, DesignRequest
from emu.study.design.reasons import change_text, differences
from emu.study.design.sensitivity import challengers, family_bests, needed_changes, price_ranges, price_winners, ranked
from emu.study.design.survey import DesignWorker
from emu.study.job_pool import THIS_PROCESS, JobPool
from emu.study.planning.search.result_cache import ResultCache
from emu.study.planning.search.search_state import Progress, quiet

_MEASURES = (("faster", "slower"), ("cheaper", "dearer"), ("less power", "more power"), ("more available", "less available"))


def find_design(
    request: DesignRequest,
    points: Sequence[DesignPoint],
    kept: ResultCache,
    *,
    pool: JobPool = THIS_PROCESS,
    progress: Progress = quiet,
) -> DesignTable:
    """Return the points of a design space that no other beats, and what the choice among them depends on.

    Args:
        request: The model and its plans, the prices and the limits.
        points: The space; neighbours differ little, best of all in the topology alone.
        kept: A cache of earlier results, to which new ones are added.
        pool: The processes that price, bound and time points.
        progress: A function that is called with the progress.

    Raises:
        InputError: a part has no price, no point has a step, or none is within the budget and the power.
    """
    began_s = time.perf_counter()
    worker = DesignWorker(request, tuple(points), kept)
    with pool.open(worker, kept) as opened:
        search = DesignSearch(worker, opened, progress)
        try:
            search.survey()
            search.settle(lambda: _all_that_count(search))
        except KeyboardInterrupt as stopped:
            stopped.add_note("what was timed is kept; started again, the design goes on from here")
            raise
    return _table(search, time.perf_counter() - began_s)


def _all_that_count(search: DesignSearch) -> I64:
    """Return the points that the answer names: the front, the first two for the money, the best of families, the winners."""
    return np.unique(np.concatenate((search.front(), ranked(search)[:2], family_bests(search), price_winners(search))))


def _table(search: DesignSearch, wall_s: float) -> DesignTable:
    """Return the table of a search that has ended."""
    order, bests, on_front = ranked(search).tolist(), family_bests(search).tolist(), {*search.front().tolist()}
    front = [number for number in order if number in on_front]
    lost = [number for number in order if number in search.best and number not in on_front]
    compared = challengers(search, order, bests)
    return DesignTable(
        **_counts(search),
        **_job(search.request),
        rows=tuple(_front_rows(search, front)),
        beaten=tuple(_beaten_row(search, number, front) for number in lost),
        ranges=tuple(price_ranges(search)),
        changes=tuple(each for other, role in compared for each in needed_changes(search, order[0], other, role)),
        refused_why=dict(Counter(search.refused.values()).most_common()),
        wall_s=wall_s,
    )


def _counts(search: DesignSearch) -> dict[str, Any]:
    """Return the fields of a table that count points and steps."""
    return {
        "points": len(search.points),
        "too_dear": len(search.too_dear),
        "no_better": len(search.no_better),
        "refused": len(search.refused),
        "timed": len(search.best),
        "bounded": len(search.alive) - len(search.best),
        "steps": sum(found.steps for found in search.best.values()),
    }


def _job(request: DesignRequest) -> dict[str, Any]:
    """Return the fields of a table that say what is trained, and by which prices."""
    plans, model = request.plans, request.plans.model
    return {
        "model": model if isinstance(model, str) else model.name,
        "global_batch": plans.global_batch,
        "seq": plans.seq,
        "software": plans.stack.software.name,
        "given": plans.given,
        "prices": request.book.name,
    }


def _values(search: DesignSearch, numbers: I64) -> F64:
    """Return [P, A] the measures of points, larger where better; open points count with their bounds."""
    return np.column_stack([search.tokens_per_s(numbers), search.measures[numbers]])


def _front_rows(search: DesignSearch, front: Sequence[int]) -> Iterator[DesignRow]:
    """Yield the rows of the front, each with the reason why it is there beside a row above it."""
    every = _values(search, search.alive)
    for at, number in enumerate(front):
        beats = int(is_beaten(_values(search, np.array([number]))[0], every).sum())
        yield _row(search, number, _reason(search, front[:at], number) if at else "the most tokens/s a dollar", beats)


def _beaten_row(search: DesignSearch, number: int, front: Sequence[int]) -> DesignRow:
    """Return the row of a timed point that is beaten, with the first row of the front that beats it."""
    own = _values(search, np.array([number]))
    by = next(at for at, other in enumerate(front) if is_beaten(_values(search, np.array([other]))[0], own)[0])
    return _row(search, number, _beside(search, front[by], number, by + 1), 0, by + 1)


def _reason(search: DesignSearch, above: Sequence[int], number: int) -> str:
    """Return what a point has that no row above it has: beside the row above that differs from it in the fewest settings."""
    settings = dict(search.points[number].settings)
    near = [len(differences(settings, dict(search.points[other].settings))) for other in above]
    at = max(at for at, count in enumerate(near) if count == min(near))
    return _beside(search, above[at], number, at + 1)


def _beside(search: DesignSearch, other: int, number: int, row: int) -> str:
    """Return how a point differs from another one, which is in a row of the table."""
    mine, theirs = (search.points[each] for each in (number, other))
    told = differences(dict(mine.settings), dict(theirs.settings)) if mine.family == theirs.family else [mine.family]
    own, its = (np.abs(_values(search, np.array([each]))[0]) for each in (number, other))
    words = [change_text(a, b, *_order(at)) for at, (a, b) in enumerate(zip(own, its, strict=True))]
    return f"beside {row}, {', '.join(told)}: {', '.join(filter(None, words)) or 'equal'}"


def _order(measure: int) -> tuple[str, str]:
    """Return the words for a larger and for a smaller value of a measure; of money and power, less is better."""
    better, worse = _MEASURES[measure]
    return (worse, better) if measure in (1, 2) else (better, worse)


def _row(search: DesignSearch, number: int, why: str, beats: int, beaten_by: int | None = None) -> DesignRow:
    """Return the row of a timed point."""
    point, found, prices = search.points[number], search.best[number].row, search.prices
    measures = search.measures[number].tolist()
    return DesignRow(
        topology=found.topology,
        device=point.device,
        npus=point.npus,
        tokens_per_s=found.tokens_per_s,
        dollars=float(search.dollars[number]),
        low_dollars=float(prices.dollars("low")[number]),
        high_dollars=float(prices.dollars("high")[number]),
        watts=-measures[1],
        availability=measures[2] if len(measures) > 2 else None,
        tokens_per_s_dollar=found.tokens_per_s / float(search.dollars[number]),
        step_time_s=found.step_time_s,
        plan=found.plan,
        axes=found.axes,
        mfu=found.mfu,
        settings=dict(point.settings),
        beats=beats,
        why=why,
        beaten_by=beaten_by,
    )
