"""The fastest algorithm of an operation for one group and size, found by timing as few algorithms as possible on the fabric.

Each algorithm has several lower bounds; each takes longer to compute than the one before. Before it is built, its claim bounds
the latency and the bytes. Before it is timed, its busiest link and its chains of messages bound the time. The algorithm with
the least bound is looked at first.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from threading import Lock
from typing import NamedTuple

import numpy as np
from cachetools import LRUCache, cached

from emu.collective.algorithm import Algorithm, AlgorithmOnDims, schedule, stored
from emu.collective.operation import operation
from emu.collective.schedule import MAX_ROWS, RowsError, Schedule
from emu.errors import InputError
from emu.fabric.lowering.circuits import TornError
from emu.sources import of_edition
from emu.study.choice import algorithm_cache
from emu.study.choice.candidates import fitting_algorithms, has_helpers
from emu.study.choice.site import Requirement, Selection, Site
from emu.study.timing.collective import Job, time_collective
from emu.study.timing.time_bound import LIGHT, ROUNDING, TimeBound, claimed_bytes_fs, claimed_fs, time_bound

MOST_MESSAGES = 2**19  # limit of messages of an algorithm that is timed in a race: some seconds
WORTH = 0.01  # share of the best time that an algorithm of many messages must promise to save, as to time it takes long
PER = 2**19  # messages of all groups for which WORTH counts once more, up to MOST_WORTH
MOST_WORTH = 0.1
_ALIKE = 2**10  # limit of rows of schedules that are compared with each other


class _Turn(NamedTuple):
    """The next look at one algorithm; turns are taken in the order of these fields."""

    heavy: bool
    bound_fs: float
    name: str
    is_built: bool
    saves: float = 0.0  # the share of the best time that its bound must be below it
    messages: int = 0  # messages of all groups that ask at once, once it is built


class AlgorithmBound(NamedTuple):
    """An algorithm that could serve a request, with the lower bound of its time."""

    least_fs: float  # lower bound of its time if its group were alone
    name: str
    messages: int  # messages of all groups that ask at once


@cached(LRUCache(2**14), key=of_edition, lock=Lock())
def fastest(site: Site, wanted: Requirement) -> Selection:
    """Return the fastest algorithm, from the cache or by a race; of equal ones the first by name.

    An algorithm is not timed if its bound is above the best time so far: it cannot be faster. An algorithm of more than 2**15
    messages is not timed if its bound is not 1 % below the best time. So the choice takes at most 1 % more than the fastest.
    Where many groups ask at once, this share is 1 % for each 2**19 messages of all groups, 10 % at most. Algorithms of more
    than 2**19 messages that no symmetry makes equal are not timed, nor those of more messages of all groups than can be timed.
    The default algorithm is not left out for its number of messages.

    Raises:
        InputError: no algorithm fits.
    """
    known = algorithm_cache.recall(site, wanted)
    if known is None:
        known = _race(site, wanted)
        algorithm_cache.keep(site, wanted, known)
    return known


def bounds(site: Site, wanted: Requirement) -> Iterator[AlgorithmBound]:
    """Yield the algorithms that may serve a request, the least bound first; of algorithms with equal sends only the first.

    An algorithm is built only when its claim is the least bound left. Algorithms that cannot be timed are left out.

    Raises:
        InputError: no algorithm fits, as in `fitting_algorithms`.
    """
    race = _Race(site, wanted, {each.name: each for each in fitting_algorithms(wanted.operation, site)})
    turns = [(race.claimed_fs(name), name, _Turn(False, race.claimed_fs(name), name, False)) for name in race.found]
    heapify(turns)
    seen = set[tuple[float, int, str]]()
    while turns:
        least_fs, name, turn = heappop(turns)
        if not turn.is_built:
            for ready in race.built_turns(turn):
                heappush(turns, (ready.bound_fs, name, ready))
        elif (sends := (least_fs, turn.messages, race.digest(name))) not in seen:
            seen.add(sends)
            yield AlgorithmBound(least_fs, name, turn.messages)


def _race(site: Site, wanted: Requirement) -> Selection:
    """Return the fastest algorithm by a race of all that fit."""
    found = {each.name: each for each in fitting_algorithms(wanted.operation, site)}
    race = _Race(site, wanted, found)
    turns = [_Turn(False, race.claimed_fs(name), name, False) for name in found]
    heapify(turns)
    best, end = "", np.inf
    while turns:
        turn = heappop(turns)
        if turn.bound_fs > end * (1 - turn.saves):
            continue
        if not turn.is_built:
            for ready in race.built_turns(turn):
                heappush(turns, ready)
            continue
        taken = race.end_fs(turn.name)
        if (taken, turn.name) < (end, best):
            best, end = turn.name, taken
    if not best:
        raise race.error()
    shape = found[best].fit(len(site.npus), site.grid)
    return Selection(AlgorithmOnDims(best, () if isinstance(shape, int) else shape), tuple(sorted(race.passed)))


@dataclass(frozen=True, slots=True)
class _Race:
    """A race of algorithms to serve one request; schedules are built again for each look, as a few of them fill the memory."""

    site: Site
    wanted: Requirement
    found: dict[str, Algorithm]
    passed: list[str] = field(default_factory=list)
    refused: list[InputError] = field(default_factory=list)  # why some cannot be timed

    def error(self) -> InputError:
        """Return the error that says why no algorithm can be timed: the reason of the first that was refused."""
        where = f"{len(self.site.npus)} ranks of {self.site.topology.name}"
        why = str(self.refused[0]) if self.refused else "all need a switch that adds, or are too large; name one to time it"
        return InputError(f"choice: no algorithm of {self.wanted.operation} can be timed on {where}; {why}")

    def claimed_fs(self, name: str) -> float:
        """Return the lower bound of an algorithm's time by its claim, in ticks."""
        (topology, npus), found, wanted = (self.site.topology, self.site.npus), self.found[name], self.wanted
        shape = found.fit(len(npus), self.site.grid)
        sent_fs = claimed_bytes_fs(found, shape, topology, npus, wanted.elements, wanted.item_bytes)
        return max(claimed_fs(found, shape, topology), sent_fs) * (1 - ROUNDING)

    def built_turns(self, turn: _Turn) -> list[_Turn]:
        """Return the next turn of an algorithm, with the bound by its schedule; an empty list if it is not timed."""
        known = _bound_of(self.site, self.wanted._replace(groups=1), turn.name)
        if not isinstance(known, TimeBound):
            self.refused.extend([known] if known is not None else [])
            return []
        all_of_them = known.messages * self.wanted.groups
        if (known.messages > MOST_MESSAGES or all_of_them > MAX_ROWS) and not self.found[turn.name].default:
            self.passed.append(turn.name)
            return []
        bound_fs = max(turn.bound_fs, known.end_fs * (1 - ROUNDING))
        heavy = known.messages > LIGHT
        saves = min(MOST_WORTH, WORTH * max(1.0, all_of_them / PER)) if heavy else 0.0
        return [_Turn(heavy, bound_fs, turn.name, True, saves, all_of_them)]

    def digest(self, name: str) -> str:
        """Return a key that is equal for schedules with equal sends; for large schedules, where this takes long, the name."""
        plan = _schedule_of(self.site, self.wanted, name)
        return plan.digest() if plan.n_rows <= _ALIKE else name

    def end_fs(self, name: str) -> float:
        """Return the end of an algorithm's last task; infinity where a circuit would be torn, or it has too many rows."""
        try:
            timeline = time_collective(*_job(self.site, self.wanted, name, _schedule_of(self.site, self.wanted, name)))
        except (RowsError, TornError) as error:
            self.refused.append(error)
            return np.inf
        return float(timeline.end_fs.max(initial=0))


def _job(site: Site, wanted: Requirement, name: str, plan: Schedule) -> Job:
    """Return the job that times a schedule for a requirement at a site."""
    op, called = operation(wanted.operation, len(site.npus), wanted.root), f"{wanted.operation} {name}"
    where = site.topology, site.placement()
    return Job(op, plan, wanted.elements, wanted.item_bytes, *where, wanted.send_overhead_fs, called)


def _schedule_of(site: Site, wanted: Requirement, name: str) -> Schedule:
    """Return an algorithm's schedule; with every row where there are few, as a search for symmetries would take longer."""
    asked = wanted.operation, name, len(site.npus), wanted.root, site.grid
    plan = stored(*asked)
    return schedule(*asked) if plan.n_rows_of_all <= LIGHT else plan


@cached(LRUCache(2**14), key=of_edition, lock=Lock())
def _bound_of(site: Site, wanted: Requirement, name: str) -> TimeBound | InputError | None:
    """Return the time bound of an algorithm for one group; None if it needs more adding switches; or why it cannot be timed."""
    try:
        plan = _schedule_of(site, wanted, name)
        return time_bound(_job(site, wanted, name, plan), MOST_MESSAGES) if has_helpers(plan.helpers, site) else None
    except (RowsError, TornError) as error:
        return error
