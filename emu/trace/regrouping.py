"""Regrouping of a trace: the members of its groups change, the requests of each rank stay the same.

Use: Megatron-LM's expert groups are neighbours after tensor parallelism; systems that order axes otherwise have other groups.
"""

from collections.abc import Mapping
from dataclasses import replace

import numpy as np

from emu.arrays import I64
from emu.errors import InputError, must_be
from emu.registry import unknown
from emu.trace.trace import Group, Trace


def regrouped(trace: Trace, rows: Mapping[str, I64]) -> Trace:
    """Return a trace in which the groups of some axes have other members, with unchanged requests of each rank.

    Args:
        trace: The trace.
        rows: Of each axis [groups, members] the ranks of its groups, in the order of their group ranks.

    Raises:
        InputError: An axis has no groups, or its new groups do not have each rank of the old ones once, in groups as large.
    """
    kept = [i for i, group in enumerate(trace.groups) if group.axis not in rows]
    groups, number = [trace.groups[i] for i in kept], {old: new for new, old in enumerate(kept)}
    of_rank = dict[tuple[str, int], int]()
    for axis, members in rows.items():
        _check(trace, axis, members)
        for each in members.tolist():
            of_rank |= {(axis, rank): len(groups) for rank in each}
            groups.append(Group(axis, tuple(each)))
    found = (
        tuple(number[i] if i in number else of_rank[trace.groups[i].axis, rank] for i in of)
        for rank, of in enumerate(trace.group_of)
    )
    return replace(trace, groups=tuple(groups), group_of=tuple(found))


def _check(trace: Trace, axis: str, members: I64) -> None:
    """Check that the new groups of an axis have the same ranks and sizes as the old ones."""
    old = [group.ranks for group in trace.groups if group.axis == axis]
    if not old:
        raise unknown("axis of a trace", axis, {group.axis for group in trace.groups})
    sizes = sorted({len(ranks) for ranks in old})
    if sizes != [members.shape[1]]:
        raise must_be("trace", f"members of a group of {axis}", " or ".join(map(str, sizes)), members.shape[1])
    if not np.array_equal(np.sort(members, axis=None), sorted(rank for ranks in old for rank in ranks)):
        raise InputError(f"trace: groups of {axis} must have each of its ranks once; give each rank one group")
