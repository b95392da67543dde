"""Groups that are alike: their members, place by place, play the same roles, so that all of them ask for the same.

N ranks, G groups that are alike, A askers of each.
"""

from collections import defaultdict
from typing import NamedTuple

import numpy as np

from emu.arrays import I64
from emu.trace.trace import Group, Trace


class Requester(NamedTuple):
    """A rank in one of the groups."""

    role: int
    numbers: tuple[int, ...]  # of the group, as the role counts
    place: int  # in the group; -1: it is not a member


class EquivalentGroups(NamedTuple):
    """Groups whose askers are the same."""

    first: Group
    numbers: I64  # [G] index of each into the trace's groups, ascending
    askers: tuple[Requester, ...]  # by place, then by rank
    ranks: I64  # [G, A] the askers of each group


def equivalent_groups(trace: Trace) -> list[EquivalentGroups]:
    """All groups of a trace, by the first of those that are alike."""
    found: dict[tuple[int, tuple[Requester, ...]], tuple[list[int], list[tuple[int, ...]]]] = {}
    for number, askers in enumerate(_askers(trace)):
        who = tuple(asker for asker, _ in askers)
        numbers, ranks = found.setdefault((len(trace.groups[number].ranks), who), ([], []))
        numbers.append(number)
        ranks.append(tuple(rank for _, rank in askers))
    return [
        EquivalentGroups(trace.groups[numbers[0]], np.array(numbers), who, np.array(ranks, np.int64).reshape(len(numbers), -1))
        for (_, who), (numbers, ranks) in found.items()
    ]


def _askers(trace: Trace) -> list[list[tuple[Requester, int]]]:
    """Of each group its askers, with their ranks."""
    places = [{rank: i for i, rank in enumerate(g.ranks)} for g in trace.groups]
    found: list[list[tuple[Requester, int]]] = [[] for _ in trace.groups]
    for rank, role in enumerate(trace.role_of_rank.tolist()):
        numbers: defaultdict[int, list[int]] = defaultdict(list)
        for number, group in enumerate(trace.group_of[rank]):
            numbers[group].append(number)
        for group, own in numbers.items():
            found[group].append((Requester(role, tuple(own), places[group].get(rank, -1)), rank))
    return [sorted(askers, key=lambda who: (who[0].place, who[1])) for askers in found]
