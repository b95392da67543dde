"""The NPUs of the groups of a plan's axes, place by place; the time of a request depends on nothing else of a placement.

G is the number of groups, N the number of members of each.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

import numpy as np

from emu.arrays import I64, digest
from emu.model.generate.generate import members
from emu.model.plan.plan import Plan
from emu.study.choice.site import canonical_npus
from emu.study.planning.bound.rates import RequestTime
from emu.study.training.axes import npus_of
from emu.study.training.composed.place_requests import choosing
from emu.topology.facts.facts import routes_spread
from emu.topology.topology import Topology


@dataclass(frozen=True, eq=False, slots=True)
class Groups:
    """Groups that ask for one request at one time."""

    npus: I64  # [G, N] the NPUs that stand for all equal ones by symmetry
    choosing: I64  # [.., N] NPUs of the groups that choose the algorithm
    numbers: int  # possible numbers of their communicator, from 0 on; 1 where the number changes nothing
    name: str  # equal for equal groups


@dataclass(frozen=True, eq=False)
class PlacedGroups:
    """The groups of all plans with equal sizes of axes, in one placement."""

    topology: Topology
    plan: Plan  # one of the plans
    npus: I64  # [ranks] the NPU of each rank
    numbers: int  # possible numbers of communicators, as in `Groups`
    messages: dict[Hashable, Sequence[RequestTime]] = field(
        default_factory=dict
    )  # known times of messages by distance and size
    _members: dict[str, I64] = field(default_factory=dict)
    _groups: dict[Hashable, Groups] = field(default_factory=dict)
    _names: dict[Hashable, Hashable] = field(default_factory=dict)

    @staticmethod
    def of(topology: Topology, plan: Plan, axes: tuple[str, ...]) -> "PlacedGroups":
        """Return the groups of a plan on a topology, with the first of its axes on neighbouring NPUs."""
        return PlacedGroups(
            topology, plan, npus_of(topology, plan, axes), _communicators(plan) if routes_spread(topology) else 1
        )

    def at(self, place: int, axis: str) -> Groups:
        """Return the groups of an axis at one place of a pipeline; all groups if the axis crosses places."""
        if (place, axis) not in self._groups:
            self._groups[place, axis] = self._of(self._own(place, axis), self._every(axis))
        return self._groups[place, axis]

    def neighbours(self, place: int, axis: str) -> Groups:
        """Return pairs: each rank of a place with the next member of its group of an axis."""
        if ("neighbours", place, axis) not in self._groups:
            own = self._own(place, axis)
            rows = np.stack((own, np.roll(own, -1, axis=1)), axis=-1).reshape(-1, 2)
            self._groups["neighbours", place, axis] = self._of(rows, rows)
        return self._groups["neighbours", place, axis]

    def between(self, src: int, dst: int) -> Groups:
        """Return pairs: each rank of a place with the rank of its pipeline at another place."""
        if (src, dst) not in self._groups:
            rows = self._every("pp")[:, [src, dst]]
            self._groups[src, dst] = self._of(rows, rows)
        return self._groups[src, dst]

    def names(self, place: int, axes: tuple[str, ...]) -> Hashable:
        """Return the names of the groups of several axes; equal for equal groups."""
        if (place, axes) not in self._names:
            self._names[place, axes] = tuple(self.at(place, axis).name for axis in axes)
        return self._names[place, axes]

    def _own(self, place: int, axis: str) -> I64:
        """Return the ranks of the groups of an axis at one place."""
        every, of_place = self._every(axis), self.plan.stage_ranks
        across = every[0, 0] // of_place != every[0, -1] // of_place
        return every if across else every[every[:, 0] // of_place == place]

    def _every(self, axis: str) -> I64:
        """Return the ranks of all groups of an axis."""
        if axis not in self._members:
            self._members[axis] = members(self.plan, axis)
        return self._members[axis]

    def _of(self, ranks: I64, every: I64) -> Groups:
        """Return groups of ranks, as NPUs that stand for all equal ones."""
        asking = choosing(ranks, every)
        both = canonical_npus(self.topology, self.npus[np.concatenate((ranks.ravel(), asking.ravel()))])
        npus, chosen = both[: ranks.size].reshape(ranks.shape), both[ranks.size :].reshape(asking.shape)
        return Groups(npus, chosen, self.numbers, digest((npus, chosen, self.numbers)))


def _communicators(plan: Plan) -> int:
    """Return the largest possible number of communicators of a plan."""
    both = plan.ep > 1 < plan.expert_tp
    return sum(size > 1 for size in plan.sizes.values()) + both + (plan.copies > 1) + (plan.pp > 1)
