"""The group that each of gloo's threads works for: gloo does not say which group a request is of.

Each group has two threads of its own on a rank, made one after the other when the group is made. So threads with numbers in a
row belong together, and groups that were made later have larger numbers. Where groups without requests let that be read in
several ways, that is taken in which all members of each group run the same; of several such, the one without the default group.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import combinations
from math import comb

import numpy as np

from emu.errors import InputError
from emu.trace.formats.kineto.profiled_request import MESSAGES, ProfiledGroup
from emu.trace.formats.kineto.rank_profile import RankProfile

RUNS = "gloo:"  # the beginning of the names of what gloo's threads run
_A_GROUP = 2  # threads that each group has
_MOST = 1000  # ways to read the threads of a rank
_DEFAULT = "default_pg"
_EQUAL = (f"{RUNS}all_reduce", f"{RUNS}broadcast")  # whose tensors have equal shapes on all members

_Reading = tuple[int, ...]  # the number of the group that each set of threads works for
_Signature = frozenset[tuple[tuple[str, str], int]]  # how often each request runs, by its name and shapes


def groups_of(profile: RankProfile) -> list[ProfiledGroup]:
    """Return the groups of a rank, in the order in which they were made; one of all ranks where the profile names none."""
    told = [(ranks, profile.labels.get(name, "")) for name, ranks in profile.groups.items()]
    return told or [(tuple(range(profile.world or 0)), _DEFAULT)]


class _Rank:
    """The groups of a rank, the sets of its threads, and the ways in which these may belong together."""

    def __init__(self, profile: RankProfile) -> None:
        self.file, self.groups = profile.file, groups_of(profile)
        ran = profile.annotations
        names = np.array([name.startswith(RUNS) for name in profile.names], np.bool_)
        rows = np.flatnonzero(names[ran.name])
        self.threads = _together(profile, sorted(set(ran.place[rows].tolist())), len(self.groups))
        self.runs = [_signature(profile, rows[np.isin(ran.place[rows], of)].tolist()) for of in self.threads]
        self.readings = list(combinations(range(len(self.groups)), len(self.threads)))

    def runs_of(self, reading: _Reading, group: ProfiledGroup) -> _Signature:
        """Return what a group runs, if the threads are read so; nothing, where no thread works for it."""
        number = self.groups.index(group)
        return self.runs[reading.index(number)] if number in reading else frozenset()


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


def _signature(profile: RankProfile, rows: Sequence[int]) -> _Signature:
    """Return how often some requests run; messages are left out, whose two ends have different names."""
    ran, args = profile.annotations, profile.args
    said = [(profile.names[ran.name[row]], args.get(int(ran.event[row]), {}).get("Input Dims")) for row in rows]
    told = [
        (name, str(dims) if name in _EQUAL else "") for name, dims in said if not name.removeprefix(RUNS).startswith(MESSAGES)
    ]
    return frozenset(Counter(told).items())


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
    changed = True
    while changed:
        changed = sum(_drop(number, ranks) for number in ranks) > 0  # each of them, so that none is left out
    found = {}
    for number, rank in ranks.items():
        reading = _best(rank)
        pairs = zip(rank.threads, reading, strict=True)
        found[number] = {place: rank.groups[group] for places, group in pairs for place in places}
    return found


def _drop(number: int, ranks: Mapping[int, _Rank]) -> bool:
    """Drop the readings of a rank that agree with no reading of another member of a group; return whether there were any."""
    rank = ranks[number]
    if len(rank.readings) == 1:  # if others do not agree with it, a later check names the request
        return False
    kept = [reading for reading in rank.readings if _agrees(rank, reading, ranks)]
    dropped = len(kept) < len(rank.readings)
    rank.readings = kept
    return dropped


def _agrees(rank: _Rank, reading: _Reading, ranks: Mapping[int, _Rank]) -> bool:
    """Return whether each member of each group can be read so that it runs the same requests."""
    for group in rank.groups:
        runs = rank.runs_of(reading, group)
        others = (ranks[each] for each in group[0] if each in ranks and group in ranks[each].groups)
        if not all(any(other.runs_of(each, group) == runs for each in other.readings) for other in others):
            return False
    return True


def _best(rank: _Rank) -> _Reading:
    """Return the one reading that is left, or the one in which no thread works for the default group.

    Raises:
        InputError: none or several are left.
    """
    several = [each for each in rank.readings if all(rank.groups[number][1] != _DEFAULT for number in each)]
    for left in (rank.readings, several):
        if len(left) == 1:
            return left[0]
    raise _unknown(rank)


def _unknown(rank: _Rank) -> InputError:
    return InputError(
        f"profile: gloo does not say of which of {len(rank.groups)} groups the requests of {rank.file!r} are, and threads do "
        "not tell; record the script itself by `emu run --trace`, or profile it on GPUs"
    )
