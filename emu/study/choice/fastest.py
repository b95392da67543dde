"""The fastest algorithm of one operation for one group and size, by timing as few candidates as possible on the fabric.

Each algorithm has lower bounds, each dearer than the one before: what its claim says of latency and of bytes, before it is
built; what its busiest link carries and how long its messages wait for one another, before it is timed. The least is looked at
first.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from threading import Lock
from typing import NamedTuple

import numpy as np
from cachetools import LRUCache, cached

from emu.collective.algorithm import Algorithm, schedule, stored
from emu.collective.algorithm import AlgorithmOnDims as Served
from emu.collective.operation import operation
from emu.collective.schedule import MAX_ROWS, RowsError, Schedule
from emu.errors import InputError
from emu.fabric.lowering.circuits import TornError
from emu.sources import of_edition
from emu.study.choice import algorithm_cache
from emu.study.choice.candidates import has_helpers, takers
from emu.study.choice.requirement import Requirement, Selection
from emu.study.choice.site import Site
from emu.study.timing.collective import Job, time_collective
from emu.study.timing.time_bound import LIGHT, ROUNDING, TimeBound, claimed_bytes_fs, claimed_fs, time_bound

MOST_MESSAGES = 2**19  # that are timed of one algorithm, where it has to compete: some seconds
WORTH = 0.01  # of the best time so far, that one of more than 2**15 messages must promise to save: to time it may take minutes
PER = 2**19  # messages of all groups that ask at once: it must promise as much again for each, up to
MOST_WORTH = 0.1
_ALIKE = 2**10  # rows of a schedule, up to which it is looked whether another sends the same


class _Turn(NamedTuple):
    """The next look at one algorithm; turns are taken in the order of these fields."""

    heavy: bool
    bound_fs: float
    name: str
    is_built: bool
    saves: float = 0.0  # the share of the best time that its bound must be below it
    messages: int = 0  # of all groups that ask at once, once it is built


class Bound(NamedTuple):
    """An algorithm that could serve a request, known as far as it is without timing it."""

    least_fs: float  # that it takes, were its group alone
    name: str
    messages: int  # of all groups that ask at once


@cached(LRUCache(2**14), key=of_edition, lock=Lock())
def fastest(site: Site, wanted: Requirement) -> Selection:
    """Return the fastest algorithm, as it is kept or by a race; of equal ones the first by name.

    An algorithm is not timed if its bound is beyond the best so far: it cannot be faster. One of more than 2**15 messages is
    not timed if its bound is not 1 % below the best: so the choice takes at most 1 % more than the fastest. Where many groups
    ask at once, it is 1 % for each 2**19 messages of all groups, 10 % at most. Passed over are algorithms of more than 2**19
    messages that no symmetry makes equal, or of more for all groups than can be timed, but for the default.

    Raises:
        InputError: none fits.
    """
    known = algorithm_cache.recall(site, wanted)
    if known is None:
        known = _race(site, wanted)
        algorithm_cache.keep(site, wanted, known)
    return known


def bounds(site: Site, wanted: Requirement) -> Iterator[Bound]:
    """Yield the algorithms that may serve a request, the least bound first; of those that send the same one.

    An algorithm is built no sooner than its claim is the least of what is left. Those that cannot be timed are left out.

    Raises:
        InputError: as `takers`.
    """
    race = _Race(site, wanted, {each.name: each for each in takers(wanted.operation, site)})
    turns = [(race.claimed_fs(name), name, _Turn(False, race.claimed_fs(name), name, False)) for name in race.found]
    heapify(turns)
    seen = set[tuple[float, int, str]]()
    while turns:
        least_fs, name, turn = heappop(turns)
        if not turn.is_built:
            for ready in race.built(turn):
                heappush(turns, (ready.bound_fs, name, ready))
        elif (sends := (least_fs, turn.messages, race.digest(name))) not in seen:
            seen.add(sends)
            yield Bound(least_fs, name, turn.messages)


def _race(site: Site, wanted: Requirement) -> Selection:
    found = {each.name: each for each in takers(wanted.operation, site)}
    race = _Race(site, wanted, found)
    turns = [_Turn(False, race.claimed_fs(name), name, False) for name in found]
    heapify(turns)
    best, end = "", np.inf
    while turns:
        turn = heappop(turns)
        if turn.bound_fs > end * (1 - turn.saves):
            continue
        if not turn.is_built:
            for ready in race.built(turn):
                heappush(turns, ready)
            continue
        taken = race.end_fs(turn.name)
        if (taken, turn.name) < (end, best):
            best, end = turn.name, taken
    if not best:
        raise race.none()
    shape = found[best].fit(len(site.npus), site.grid)
    return Selection(Served(best, () if isinstance(shape, int) else shape), tuple(sorted(race.passed)))


@dataclass(frozen=True, slots=True)
class _Race:
    """A race of algorithms to serve one request; a schedule is built anew for each look, as a few fill the memory."""

    site: Site
    wanted: Requirement
    found: dict[str, Algorithm]
    passed: list[str] = field(default_factory=list)
    refused: list[InputError] = field(default_factory=list)  # why some cannot be timed

    def none(self) -> InputError:
        """Return the error where none can be timed: what the first that was refused says."""
        where = f"{len(self.site.npus)} ranks of {self.site.topology.name}"
        why = str(self.refused[0]) if self.refused else "all need a switch that adds, or are too large; name one to time it"
        return InputError(f"choice: no algorithm of {self.wanted.operation} can be timed on {where}; {why}")

    def claimed_fs(self, name: str) -> float:
        """Return what an algorithm takes at least, by its claim."""
        (topology, npus), found, wanted = (self.site.topology, self.site.npus), self.found[name], self.wanted
        shape = found.fit(len(npus), self.site.grid)
        sent_fs = claimed_bytes_fs(found, shape, topology, npus, wanted.elements, wanted.item_bytes)
        return max(claimed_fs(found, shape, topology), sent_fs) * (1 - ROUNDING)

    def built(self, turn: _Turn) -> list[_Turn]:
        """Return the turn with what an algorithm takes at least, by its schedule; nothing where it is not to be timed."""
        known = _least_of(self.site, self.wanted._replace(groups=1), turn.name)
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
        """Return a key that is equal for schedules that send the same; for large ones, which would take long, the name."""
        plan = _plan(self.site, self.wanted, name)
        return plan.digest() if plan.n_rows <= _ALIKE else name

    def end_fs(self, name: str) -> float:
        """Return when the last task ends; never where an optical switch would be torn, or every row be needed."""
        try:
            timeline = time_collective(*_job(self.site, self.wanted, name, _plan(self.site, self.wanted, name)))
        except (RowsError, TornError) as error:
            self.refused.append(error)
            return np.inf
        return float(timeline.end_fs.max(initial=0))


def _job(site: Site, wanted: Requirement, name: str, plan: Schedule) -> Job:
    op, called = operation(wanted.operation, len(site.npus), wanted.root), f"{wanted.operation} {name}"
    where = site.topology, site.placement()
    return Job(op, plan, wanted.elements, wanted.item_bytes, *where, wanted.send_overhead_fs, called)


def _plan(site: Site, wanted: Requirement, name: str) -> Schedule:
    """As it is stored; with every row where these are few: to look for symmetries would take longer than to do without."""
    asked = wanted.operation, name, len(site.npus), wanted.root, site.grid
    plan = stored(*asked)
    return schedule(*asked) if plan.n_rows_of_all <= LIGHT else plan


@cached(LRUCache(2**14), key=of_edition, lock=Lock())
def _least_of(site: Site, wanted: Requirement, name: str) -> TimeBound | InputError | None:
    """What an algorithm takes at least for one group; None: it needs more switches that add; or why it cannot be timed."""
    try:
        plan = _plan(site, wanted, name)
        return time_bound(_job(site, wanted, name, plan), MOST_MESSAGES) if has_helpers(plan.helpers, site) else None
    except (RowsError, TornError) as error:
        return error
