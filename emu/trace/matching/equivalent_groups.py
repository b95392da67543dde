"""Equivalent groups: place by place, their members play the same roles, so all of them make the same requests.

N ranks, G equivalent groups, A requesters of each group.
"""

from collections import defaultdict
from typing import NamedTuple

import numpy as np

from emu.arrays import I64
from emu.trace.trace import Group, Trace


class Requester(NamedTuple):
    """A rank that may make requests on a group."""

    role: int
    numbers: tuple[int, ...]  # the numbers that the role gives the group
    place: int  # the rank's place in the group; -1: the rank is no member


class EquivalentGroups(NamedTuple):
    """Groups whose requesters are equal."""

    first: Group
    numbers: I64  # [G] indexes into the trace's groups, ascending
    requesters: tuple[Requester, ...]  # by place, then by rank
    ranks: I64  # [G, A] the ranks of the requesters of each group


def equivalent_groups(trace: Trace) -> list[EquivalentGroups]:
    """Return all groups of a trace in classes of equivalent groups, in the order of the first group of each class."""
    found: dict[tuple[int, tuple[Requester, ...]], tuple[list[int], list[tuple[int, ...]]]] = {}
    for number, requesters in enumerate(_requesters(trace)):
        who = tuple(requester for requester, _ in requesters)
        numbers, ranks = found.setdefault((len(trace.groups[number].ranks), who), ([], []))
        numbers.append(number)
        ranks.append(tuple(rank for _, rank in requesters))
    return [
        EquivalentGroups(trace.groups[numbers[0]], np.array(numbers), who, np.array(ranks, np.int64).reshape(len(numbers), -1))
        for (_, who), (numbers, ranks) in found.items()
    ]


def _requesters(trace: Trace) -> list[list[tuple[Requester, int]]]:
    """Return, for each group of a trace, its requesters and their ranks."""
    places = [{rank: i for i, rank in enumerate(g.ranks)} for g in trace.groups]
    found: list[list[tuple[Requester, int]]] = [[] for _ in trace.groups]
    for rank, role in enumerate(trace.role_of_rank.tolist()):
        numbers: defaultdict[int, list[int]] = defaultdict(list)
        for number, group in enumerate(trace.group_of[rank]):
            numbers[group].append(number)
        for group, own in numbers.items():
            found[group].append((Requester(role, tuple(own), places[group].get(rank, -1)), rank))
    return [sorted(requesters, key=lambda who: (who[0].place, who[1])) for requesters in found]
