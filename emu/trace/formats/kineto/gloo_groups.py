"""The group that each of gloo's threads works for: gloo does not say which group a request is of.

Each group has two threads of its own on a rank, made one after the other when the group is made. So threads with numbers in a
row belong together, and groups that were made later have larger numbers. Where groups without requests let that be read in
several ways, that is taken in which all members of each group run the same; of several such, the one in which they do so at the
same time, as nobody leaves a request before all have come. That asks for one clock, such as that of one host.
"""

from collections import Counter
from collections.abc import Mapping
from itertools import combinations
from math import comb
from typing import NamedTuple

import numpy as np

from emu.arrays import F64, I64
from emu.errors import InputError
from emu.trace.formats.kineto.profiled_request import MESSAGES, ProfiledGroup
from emu.trace.formats.kineto.rank_profile import RankProfile

RUNS = "gloo:"  # the beginning of the names of what gloo's threads run
_A_GROUP = 2  # threads that each group has
_MOST = 1000  # ways to read the threads of a rank
_EQUAL = (f"{RUNS}all_reduce", f"{RUNS}broadcast")  # whose tensors have equal shapes on all members

_WHOLE = (*_EQUAL[:1], f"{RUNS}barrier")  # that nobody leaves before all have come
_Reading = tuple[int, ...]  # the number of the group that each set of threads works for


class _Runs(NamedTuple):
    """The requests that a set of threads runs."""

    often: frozenset[tuple[tuple[str, str], int]]  # how often each request, by its name and shapes
    start: F64  # of those that nobody leaves before all have come, in order
    end: F64

    def meets(self, other: "_Runs") -> bool:
        """Return whether each request may be the same as the other's in its turn, at the same time."""
        most = min(len(self.start), len(other.start))
        early = np.minimum(self.end[:most], other.end[:most])
        return bool((np.maximum(self.start[:most], other.start[:most]) <= early).all())


_NOTHING = _Runs(frozenset(), np.empty(0), np.empty(0))


def groups_of(profile: RankProfile) -> list[ProfiledGroup]:
    """Return the groups of a rank, in the order in which they were made; one of all ranks where the profile names none."""
    told = [(ranks, profile.labels.get(name, "")) for name, ranks in profile.groups.items()]
    return told or [(tuple(range(profile.world or 0)), "default_pg")]


class _Rank:
    """The groups of a rank, the sets of its threads, and the ways in which these may belong together."""

    def __init__(self, profile: RankProfile) -> None:
        self.file, self.groups = profile.file, groups_of(profile)
        ran = profile.annotations
        names = np.array([name.startswith(RUNS) for name in profile.names], np.bool_)
        rows = np.flatnonzero(names[ran.name])
        self.threads = _together(profile, sorted(set(ran.place[rows].tolist())), len(self.groups))
        self.runs = [_runs(profile, rows[np.isin(ran.place[rows], of)]) for of in self.threads]
        self.readings = list(combinations(range(len(self.groups)), len(self.threads)))

    def runs_of(self, reading: _Reading, group: ProfiledGroup) -> _Runs:
        """Return what a group runs, if the threads are read so; nothing, where no thread works for it."""
        number = self.groups.index(group)
        return self.runs[reading.index(number)] if number in reading else _NOTHING


def _together(profile: RankProfile, places: list[int], groups: int) -> list[list[int]]:
    """Return the sets of threads that work for one group each, in the order in which their groups were made."""
    if groups == 1:
        return [places]
    found: list[list[int]] = []
    before = -1
    for number, place in sorted((_number(profile, place), place) for place in places):
        if found and number == before + 1 and len(found[-1]) < _A_GROUP:
            found[-1].append(place)
        else:
            found.append([place])
        before = number
    return found


def _number(profile: RankProfile, place: int) -> int:
    thread = profile.threads[place]
    told = str(thread[1]) if isinstance(thread, tuple) else ""
    return int(told) if told.isdigit() else -1


def _runs(profile: RankProfile, rows: I64) -> _Runs:
    """Return what some rows run; messages are left out of the names, as their two ends have different ones."""
    ran, args = profile.annotations, profile.args
    rows = rows[np.argsort(ran.start[rows], kind="stable")]
    names = [profile.names[number] for number in ran.name[rows].tolist()]
    dims = [str(args.get(event, {}).get("Input Dims")) for event in ran.event[rows].tolist()]
    told = [(name, of * (name in _EQUAL)) for name, of in zip(names, dims, strict=True)]
    often = Counter(each for each in told if not each[0].removeprefix(RUNS).startswith(MESSAGES))
    whole = rows[np.array([name in _WHOLE for name in names], np.bool_)]
    return _Runs(frozenset(often.items()), ran.start[whole], ran.end[whole])


def gloo_groups(profiles: Mapping[int, RankProfile]) -> dict[int, dict[int, ProfiledGroup]]:
    """Return, by rank and by the number of a thread, the group that the thread works for.

    Args:
        profiles: The profile of each rank.

    Raises:
        InputError: the threads of a rank may belong to its groups in several ways, or in none.
    """
    ranks = {number: _Rank(profile) for number, profile in profiles.items()}
    for rank in ranks.values():
        if not 0 < comb(len(rank.groups), len(rank.threads)) <= _MOST:
            raise _unknown(rank)
    _settle(ranks, at_once=False)
    known = {number: rank.readings for number, rank in ranks.items()}
    _settle(ranks, at_once=True)
    for number, rank in ranks.items():
        if not rank.readings:  # clocks differ
            rank.readings = known[number]
    found = {}
    for number, rank in ranks.items():
        if len(rank.readings) != 1:
            raise _unknown(rank)
        pairs = zip(rank.threads, rank.readings[0], strict=True)
        found[number] = {place: rank.groups[group] for places, group in pairs for place in places}
    return found


def _settle(ranks: Mapping[int, _Rank], *, at_once: bool) -> None:
    """Drop readings of ranks that agree with no reading of another member of a group, until none is left to drop.

    Args:
        ranks: The ranks.
        at_once: Whether members must run their requests at the same time, too.
    """
    changed = True
    while changed:
        changed = False
        for rank in ranks.values():
            if len(rank.readings) > 1:  # if others do not agree with the only one, a later check names the request
                kept = [reading for reading in rank.readings if _agrees(rank, reading, ranks, at_once)]
                changed |= len(kept) < len(rank.readings)
                rank.readings = kept


def _agrees(rank: _Rank, reading: _Reading, ranks: Mapping[int, _Rank], at_once: bool) -> bool:
    """Return whether each member of each group can be read so that it runs the same requests."""
    for group in rank.groups:
        runs = rank.runs_of(reading, group)
        for other in (ranks[each] for each in group[0] if each in ranks and group in ranks[each].groups):
            theirs = (other.runs_of(each, group) for each in other.readings)
            if not any(each.often == runs.often and (not at_once or each.meets(runs)) for each in theirs):
                return False
    return True


def _unknown(rank: _Rank) -> InputError:
    return InputError(
        f"profile: gloo does not say of which of {len(rank.groups)} groups the requests of {rank.file!r} are, and threads do "
        "not tell; record the script itself by `emu run --trace`, or profile it on GPUs"
    )
