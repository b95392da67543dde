"""The fastest algorithm of an operation for one group and size, found with as few timed candidates as possible.

Each algorithm has several lower bounds; each takes longer to compute than the one before. Before it is built, its claim bounds
the latency and the bytes. Before it is timed, its busiest link and its chains of messages bound the time. The algorithm with
the least bound is always processed first.
"""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from threading import Lock
from typing import NamedTuple

import numpy as np
from cachetools import LRUCache, cached

from emu.arrays import digest
from emu.collective.algorithm import Algorithm, algorithm, compact_schedule, schedule
from emu.collective.choice import AlgorithmOnDims
from emu.collective.operation import operation
from emu.collective.schedule import MAX_ROWS, RowsError, Schedule
from emu.errors import InputError
from emu.fabric.lowering.circuit_turns import TornError
from emu.sources import of_edition
from emu.study.choice.algorithm_cache import keep_entry, recall_entry
from emu.study.choice.race_progress import RACE
from emu.study.choice.site import Requirement, Selection, Site, fitting_algorithms, has_helpers
from emu.study.timing import (
    LIGHT,
    ROUNDING,
    CollectiveJob,
    TimeBound,
    claimed_bytes_fs,
    claimed_fs,
    time_bound,
    time_collective,
)

MOST_MESSAGES = 2**19  # limit of messages of an algorithm that is timed in a race: some seconds
MOST_BY_RANK = 2**23  # the same for a schedule of which only the rows of rank 0 are stored: such ones are timed far faster
LEAST_SAVING = 0.01  # share of the best time that an algorithm of many messages must promise to save, as to time it takes long
MESSAGES_PER_SAVING = 2**19  # messages of all groups for which LEAST_SAVING counts once more, up to MOST_SAVING
MOST_SAVING = 0.1
_ALIKE = 2**10  # limit of rows of schedules that are compared with each other


class Entrant(NamedTuple):
    """A candidate algorithm with the best lower bound known so far; candidates are processed in the order of these fields."""

    heavy: bool  # whether it has more than 2**15 messages: such algorithms come last
    bound_fs: float
    name: str
    is_built: bool  # whether its schedule gave the bound; else its claim did
    saves: float = 0.0  # the share of the best time that its bound must be below it
    messages: int = 0  # messages of all groups that ask at once, once it is built


@cached(LRUCache(2**14), key=of_edition, lock=Lock())
def fastest(site: Site, wanted: Requirement) -> Selection:
    """Return the fastest algorithm for an operation on a group, from the cache or by a race; of equal ones the first by name.

    An algorithm is not timed if its lower bound is above the best time so far: it cannot be faster. An algorithm of more than
    2**15 messages is timed only if its bound is a share s below the best time. So the choice takes at most s more than the
    fastest. The share s is 1 % up to 2**19 messages of all groups that ask at once; it grows with that number, up to 10 %.

    Two kinds of algorithms are never timed, unless they are the default: those of more than 2**19 messages of one group (2**23
    where translations give the rows of all ranks from those of rank 0), where messages that a symmetry makes equal count once,
    and those of more than 2**24 messages of all groups.

    Args:
        site: The NPUs of the group.
        wanted: The operation, with its size and the number of groups that ask at once.

    Raises:
        InputError: no algorithm fits.
    """
    key = digest((site.npus, site.grid, site.only, *wanted))
    with suppress(InputError, ValueError, TypeError):  # nothing is kept, or nothing that can be read
        word, skipped = recall_entry(site.topology, key)
        return Selection(AlgorithmOnDims.parse(wanted.operation, word), tuple(skipped))
    with RACE.race():
        chosen = _race(site, wanted)
    keep_entry(site.topology, key, (str(chosen.served), chosen.skipped))
    return chosen


def bounds(site: Site, wanted: Requirement) -> Iterator[Entrant]:
    """Yield the algorithms that may serve a request, the least bound first; of algorithms with equal sends only the first.

    An algorithm is built only when its claim is the least bound left. Algorithms that cannot be timed are left out.

    Raises:
        InputError: no algorithm fits, as in `fitting_algorithms`.
    """
    race, seen = _Race(site, wanted), set[tuple[float, int, str]]()
    entrants = race.entrants()
    while entrants:
        entrant = heappop(entrants)
        if not entrant.is_built:
            for ready in race.built_entrants(entrant):
                heappush(entrants, ready._replace(heavy=False))  # here the order is that of bounds alone
        elif (sends := (entrant.bound_fs, entrant.messages, race.digest(entrant.name))) not in seen:
            seen.add(sends)
            yield entrant


def _race(site: Site, wanted: Requirement) -> Selection:
    """Return the fastest algorithm, found by timing all that fit the group, the most promising first."""
    race, best, end = _Race(site, wanted), "", np.inf
    entrants = race.entrants()
    while entrants:
        entrant = heappop(entrants)
        if entrant.bound_fs > end * (1 - entrant.saves):
            continue
        if not entrant.is_built:
            for ready in race.built_entrants(entrant):
                heappush(entrants, ready)
            continue
        left = sum(each.bound_fs <= end * (1 - each.saves) for each in entrants)
        RACE.note(wanted.operation, entrant.name, len(site.npus), left)
        taken = race.end_fs(entrant.name)
        if (taken, entrant.name) < (end, best):
            best, end = entrant.name, taken
    if not best:
        raise race.error()
    return Selection(AlgorithmOnDims(best, site.dims_for(race.found[best])), tuple(sorted(race.skipped)))


@dataclass(slots=True)
class _Race:
    """The search for the fastest algorithm for one requirement on one site, which times one algorithm after another."""

    site: Site
    wanted: Requirement
    found: dict[str, Algorithm] = field(init=False)  # those that fit, by name
    skipped: list[str] = field(default_factory=list)  # names of those that have too many messages to be timed
    refused: list[InputError] = field(default_factory=list)  # why some cannot be timed

    def __post_init__(self) -> None:
        self.found = {each.name: each for each in fitting_algorithms(self.wanted.operation, self.site)}

    def entrants(self) -> list[Entrant]:
        """Return all algorithms that fit as a heap, ordered by the least time that their claims allow."""
        entrants = [Entrant(False, self.claimed_fs(name), name, False) for name in self.found]
        heapify(entrants)
        return entrants

    def error(self) -> InputError:
        """Return the error for a requirement that no algorithm can serve, with the reason why the first was refused."""
        where = f"{len(self.site.npus)} ranks of {self.site.topology.name}"
        why = str(self.refused[0]) if self.refused else "all need a switch that adds, or are too large; name one to time it"
        return InputError(f"choice: no algorithm of {self.wanted.operation} can be timed on {where}; {why}")

    def claimed_fs(self, name: str) -> float:
        """Return the lower bound of an algorithm's time by its claim, in ticks."""
        (topology, npus), found, wanted = (self.site.topology, self.site.npus), self.found[name], self.wanted
        shape = self.site.dims_for(found) or len(npus)
        sent_fs = claimed_bytes_fs(found, shape, topology, npus, wanted.elements, wanted.item_bytes)
        return max(claimed_fs(found, shape, topology), sent_fs) * (1 - ROUNDING)

    def built_entrants(self, entrant: Entrant) -> list[Entrant]:
        """Return the candidate with the bound of its built schedule; an empty list if it must not be timed."""
        known = _bound_of(self.site, self.wanted._replace(groups=1), entrant.name)
        if not isinstance(known, TimeBound):
            self.refused.extend([known] if known is not None else [])
            return []
        all_of_them = known.messages * self.wanted.groups
        if (known.messages > self.most_messages(entrant.name) or all_of_them > MAX_ROWS) and not self.found[
            entrant.name
        ].default:
            self.skipped.append(entrant.name)
            return []
        bound_fs = max(entrant.bound_fs, known.end_fs * (1 - ROUNDING))
        heavy = known.messages > LIGHT
        saves = min(MOST_SAVING, LEAST_SAVING * max(1.0, all_of_them / MESSAGES_PER_SAVING)) if heavy else 0.0
        return [Entrant(heavy, bound_fs, entrant.name, True, saves, all_of_them)]

    def most_messages(self, name: str) -> int:
        """Return the limit of messages up to which an algorithm is timed."""
        return _most_messages(_schedule_of(self.site, self.wanted, name))

    def digest(self, name: str) -> str:
        """Return a key that is equal for schedules with equal sends; for a large schedule, just the algorithm's name."""
        plan = _schedule_of(self.site, self.wanted, name)
        return plan.digest() if plan.n_rows <= _ALIKE else name

    def end_fs(self, name: str) -> float:
        """Return the tick at which the collective ends if an algorithm serves it.

        It is infinity if the schedule has too many rows to be timed, or if no route joins a pair.
        """
        try:
            return float(end_fs(self.site, self.wanted, name))
        except (RowsError, TornError) as error:
            self.refused.append(error)
            return np.inf


def end_fs(site: Site, wanted: Requirement, name: str) -> int:
    """Return the tick at which a collective ends if an algorithm serves it and nothing else runs.

    Raises:
        InputError: As `time_collective`.
    """
    timeline = time_collective(_job(site, wanted, name, _schedule_of(site, wanted, name)))
    return int(timeline.end_fs.max(initial=0))


def _job(site: Site, wanted: Requirement, name: str, plan: Schedule) -> CollectiveJob:
    """Return the job that times a schedule for a requirement at a site."""
    op, called = operation(wanted.operation, len(site.npus), wanted.root), f"{wanted.operation} {name}"
    where = site.topology, site.placement()
    return CollectiveJob(op, plan, wanted.elements, wanted.item_bytes, *where, wanted.send_overhead_fs, called)


def _schedule_of(site: Site, wanted: Requirement, name: str) -> Schedule:
    """Return the schedule of an algorithm, with every row stored if there are few rows."""
    grid = site.dims_for(algorithm(wanted.operation, name))
    asked = wanted.operation, name, len(site.npus), wanted.root, grid
    plan = compact_schedule(*asked)
    return schedule(*asked) if plan.n_rows_of_all <= LIGHT else plan


def _most_messages(plan: Schedule) -> int:
    """Return the limit of messages up to which a schedule is timed in a race."""
    return MOST_BY_RANK if plan.by_rank else MOST_MESSAGES


@cached(LRUCache(2**14), key=of_edition, lock=Lock())
def _bound_of(site: Site, wanted: Requirement, name: str) -> TimeBound | InputError | None:
    """Return the time bound of an algorithm for one group; None or the error if it cannot run there."""
    try:
        plan = _schedule_of(site, wanted, name)
        return time_bound(_job(site, wanted, name, plan), _most_messages(plan)) if has_helpers(plan, site) else None
    except (RowsError, TornError) as error:
        return error
