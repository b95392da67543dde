"""The assignment of gloo's threads to process groups, because gloo does not say to which group a request belongs.

Each group has two threads of its own on a rank, which are made when the group is made: threads of later groups have larger
numbers. If threads that ran nothing allow several assignments, that is taken in which all members of each group run
the same; of several such, the one in which they do so at the same time, as nobody leaves a request before all have come (that
needs one clock, such as that of one host); then the one that keeps threads with consecutive numbers together. Messages, which
the thread that asks sends itself, are taken to be of the first group.
"""

from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import islice, pairwise
from typing import NamedTuple

import numpy as np

from emu.arrays import F64, I64
from emu.errors import InputError
from emu.trace.formats.kineto.profiled_request import MESSAGES
from emu.trace.formats.kineto.rank_profile import RankProfile
from emu.trace.formats.rank_group import RankGroup, told_apart

ASKS, RUNS = "c10d::", "gloo:"  # the beginnings of the names of operators that ask, and of what gloo's threads run
_A_GROUP = 2  # the threads of each group
_MOST = 1000  # limit of the ways to read the threads of a rank
_EQUAL = (f"{RUNS}all_reduce", f"{RUNS}broadcast")  # operations whose tensors have equal shapes on all members

_WHOLE = (*_EQUAL[:1], f"{RUNS}barrier")  # operations that no member leaves before all have come
_Reading = tuple[int, ...]  # the number of the group that each thread works for


class _Runs(NamedTuple):
    """The requests that the threads of one gloo group run on a rank, in order, with their times."""

    often: frozenset[tuple[tuple[str, str], int]]  # each request, by its name and shapes, and how often it is made
    start: F64  # when the requests of `_WHOLE` begin, in order
    end: F64  # when these end

    def meets(self, other: "_Runs") -> bool:
        """Return whether the requests of two ranks may belong to the same calls: taken in order, each two overlap in time."""
        most = min(len(self.start), len(other.start))
        early = np.minimum(self.end[:most], other.end[:most])
        return bool((np.maximum(self.start[:most], other.start[:most]) <= early).all())


def groups_of(profile: RankProfile) -> list[RankGroup]:
    """Return the groups of a rank in the order of their creation; one group of all ranks if the profile names none."""
    named = [(name, RankGroup(ranks, profile.labels.get(name, ""))) for name, ranks in profile.groups.items()]
    apart = told_apart(named)
    return [apart[each] for each in named] or [RankGroup(tuple(range(profile.world or 0)), "default_pg")]


class _Rank:
    """A rank with its groups, its threads in the order of creation, and the possible assignments of threads to groups."""

    def __init__(self, profile: RankProfile) -> None:
        self.file, self.groups = profile.file, groups_of(profile)
        self._profile, ran = profile, profile.annotations
        names = np.array([name.startswith(RUNS) for name in profile.names], np.bool_)
        asks = np.array([name.startswith(ASKS) for name in profile.names], np.bool_)
        self.asking = set(profile.operators.place[asks[profile.operators.name]].tolist())
        self._rows = np.flatnonzero(names[ran.name])
        self.threads = sorted(set(ran.place[self._rows].tolist()) - self.asking, key=lambda place: _order(profile, place))
        several = len(self.groups) > 1
        found = _readings(len(self.threads), len(self.groups)) if several else iter([(0,) * len(self.threads)])
        self.readings = list(islice(found, _MOST + 1))
        self._known: dict[tuple[int, ...], _Runs] = {}

    def runs_of(self, reading: _Reading, group: RankGroup) -> _Runs:
        """Return the requests that a group runs under a given assignment of threads to groups."""
        number = self.groups.index(group)
        threads = tuple(place for place, of in zip(self.threads, reading, strict=True) if of == number)
        if threads not in self._known:
            rows = self._rows[np.isin(self._profile.annotations.place[self._rows], threads)]
            self._known[threads] = _runs(self._profile, rows)
        return self._known[threads]

    def best(self) -> _Reading:
        """Return the only remaining assignment of threads to groups.

        Of several, it is the one that keeps most consecutive threads together.

        Raises:
            InputError: Several assignments keep equally many threads together.
        """
        numbers = [_order(self._profile, place)[1] for place in self.threads]
        row = [b == a + 1 for a, b in pairwise(numbers)]
        kept = [sum(near and a == b for near, (a, b) in zip(row, pairwise(of), strict=True)) for of in self.readings]
        best = [of for of, pairs in zip(self.readings, kept, strict=True) if pairs == max(kept, default=0)]
        if len(best) != 1:
            raise _unknown(self)
        return best[0]


def _readings(threads: int, groups: int, first: int = 0) -> Iterator[_Reading]:
    """Yield the numbers of the groups that threads may work for, in order: two threads at most work for each group."""
    if not threads:
        yield ()
        return
    for number in range(first, groups):
        for count in range(1, min(_A_GROUP, threads) + 1):
            yield from ((*(number,) * count, *rest) for rest in _readings(threads - count, groups, number + 1))


def _order(profile: RankProfile, place: int) -> tuple[bool, int]:
    """Return the sort key of a thread: by number, but numbers below that of their process come last.

    Args:
        profile: The profile.
        place: The number of the thread in the profile.
    """
    process, number = (int(str(of)) if str(of).isdigit() else 0 for of in profile.threads[place])
    return number < process, number


def _runs(profile: RankProfile, rows: I64) -> _Runs:
    """Return the requests in the given rows; messages are without names, because their two ends differ."""
    ran, args = profile.annotations, profile.args
    rows = rows[np.argsort(ran.start[rows], kind="stable")]
    names = [profile.names[number] for number in ran.name[rows].tolist()]
    dims = [str(args.get(event, {}).get("Input Dims")) for event in ran.event[rows].tolist()]
    told = [(name, of * (name in _EQUAL)) for name, of in zip(names, dims, strict=True)]
    often = Counter(each for each in told if not each[0].removeprefix(RUNS).startswith(MESSAGES))
    whole = rows[np.array([name in _WHOLE for name in names], np.bool_)]
    return _Runs(frozenset(often.items()), ran.start[whole], ran.end[whole])


def gloo_groups(profiles: Mapping[int, RankProfile]) -> dict[int, dict[int, RankGroup]]:
    """Return, by rank and by the number of a thread, the group that the thread works for.

    Args:
        profiles: The profile of each rank.

    Raises:
        InputError: the threads of a rank may belong to its groups in several ways, or in none.
    """
    ranks = {number: _Rank(profile) for number, profile in profiles.items()}
    for rank in ranks.values():
        if not 0 < len(rank.readings) <= _MOST:
            raise _unknown(rank)
    _settle(ranks, together=False)
    known = {number: rank.readings for number, rank in ranks.items()}
    _settle(ranks, together=True)
    for number, rank in ranks.items():
        if not rank.readings:  # clocks differ
            rank.readings = known[number]
    found = {}
    for number, rank in ranks.items():
        pairs = zip(rank.threads, rank.best(), strict=True)
        found[number] = {**dict.fromkeys(rank.asking, rank.groups[0]), **{place: rank.groups[group] for place, group in pairs}}
    return found


def _settle(ranks: Mapping[int, _Rank], *, together: bool) -> None:
    """Remove assignments of ranks that agree with no assignment of another member, until nothing changes.

    Args:
        ranks: The ranks.
        together: Whether members must run their requests at the same time, too.
    """
    changed = True
    while changed:
        changed = False
        for rank in ranks.values():
            if len(rank.readings) > 1:  # if others do not agree with the only one, a later check names the request
                kept = [reading for reading in rank.readings if _agrees(rank, reading, ranks, together)]
                changed |= len(kept) < len(rank.readings)
                rank.readings = kept


def _agrees(rank: _Rank, reading: _Reading, ranks: Mapping[int, _Rank], together: bool) -> bool:
    """Return whether each member of each group has an assignment in which it runs the same requests."""
    for group in rank.groups:
        runs = rank.runs_of(reading, group)
        for other in (ranks[each] for each in group.ranks if each in ranks and group in ranks[each].groups):
            theirs = (other.runs_of(each, group) for each in other.readings)
            if not any(each.often == runs.often and (not together or each.meets(runs)) for each in theirs):
                return False
    return True


def _unknown(rank: _Rank) -> InputError:
    return InputError(
        f"profile: gloo does not say of which of {len(rank.groups)} groups the requests of {rank.file!r} are, and threads do "
        "not tell; record the script itself by `emu run --trace`, or profile it on GPUs"
    )
