"""The representatives of a step: one rank of each place, which stands for all ranks of the place.

A place is a set of ranks that one rank stands for: all ranks of a stage of a pipeline, or the ranks of a script that do the
same work. A axes, N ranks, P places.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from emu.arrays import I64, ascending
from emu.model.generate.generate import groups_of_axis
from emu.model.generate.states import Role
from emu.model.generate.tape import Tape
from emu.model.plan.plan import Plan
from emu.trace.trace import Events


@dataclass(frozen=True, eq=False, slots=True)
class Axis:
    """An axis with its groups: which ranks are in each."""

    name: str
    ranks: I64  # [groups, members]


@dataclass(frozen=True, eq=False, slots=True)
class Representatives:
    """One rank of each place of a pipeline with its events, which represents all ranks of the place."""

    events: tuple[Events, ...]  # [P]
    axes_of: tuple[tuple[int, ...], ...]  # [P] the axis of each group, as the rank numbers it
    axes: tuple[Axis, ...]  # [A]
    place_of_rank: I64  # [N]
    meta: tuple[tuple[str, str], ...] = ()  # the meta data of the trace
    peak_by_part: I64 | None = None  # [P, parts of memory] bytes, the most of any rank of a place; None: known otherwise
    dtype: str = "float32"  # what float32 is timed as
    rings: bool = False  # whether each is the first rank of its groups, and others of its place send equally far

    def waited_rank(self, rank: int, place: int, waited: Sequence[str] = ()) -> int:
        """Return the rank, at one place of the pipeline, for which a rank of another place waits.

        Groups of the axes in `waited` are searched first. The answer is the lowest rank of the place in a group of the waiting
        rank. If these groups have no rank of the place, the groups of their members are searched, and so on.

        Args:
            rank: The rank that waits.
            place: The place of the rank that it waits for.
            waited: Names of axes, the longest wait first.
        """
        axes = sorted(self.axes, key=lambda axis: waited.index(axis.name) if axis.name in waited else len(waited))
        reached = np.array([rank])
        for _ in range(len(self.events) + 1):
            groups = [axis.ranks[np.isin(axis.ranks, reached).any(axis=1)].ravel() for axis in axes]
            found = (group[(self.place_of_rank[group] == place) & (group != rank)] for group in groups)
            nearest = next((int(others.min()) for others in found if len(others)), None)
            if nearest is not None:
                return nearest
            reached = ascending(np.concatenate([reached, *groups]))
        return int(np.flatnonzero(self.place_of_rank == place)[0])


def representatives_of_plan(
    of_places: Sequence[Sequence[Role]], plan: Plan, meta: tuple[tuple[str, str], ...] = ()
) -> Representatives:
    """Return one rank of each stage of a plan.

    Ranks of a place may differ in their optimizers: the rank with most work is taken. The first rank of a ring of cp represents
    all of the ring.

    Args:
        of_places: [P] the roles of each place.
        plan: The plan, which gives the groups of ranks.
        meta: The meta data of the trace.
    """
    tapes = [max((role.tape for role in roles if not role.at), key=Tape.own_bytes) for roles in of_places]
    axes = list(dict.fromkeys(axis for tape in tapes for axis in tape.axes))
    return Representatives(
        tuple(tape.events() for tape in tapes),
        tuple(tuple(axes.index(axis) for axis in tape.axes) for tape in tapes),
        tuple(Axis(axis, groups_of_axis(plan, axis)) for axis in axes),
        np.arange(plan.world) // plan.stage_ranks,
        meta,
        rings=True,
    )
