"""On which NPUs the groups of a plan's axes are, place by place: what a request takes depends on nothing else of a placement.

G groups, N members of each.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

import numpy as np

from emu.arrays import I64, digest
from emu.model.generate.generate import members
from emu.model.plan.plan import Plan
from emu.study.choice.equal_groups import canonical_npus
from emu.study.planning.bound.rates import Taken
from emu.study.training.axis_placement import npus_of
from emu.study.training.composed.place_requests import choosing
from emu.topology.facts.route_spread import routes_spread as spreads
from emu.topology.topology import Topology


@dataclass(frozen=True, eq=False, slots=True)
class Groups:
    """Groups that ask for the same at one time."""

    npus: I64  # [G, N] where the topology's symmetry brings the first of them to the least; it takes as long there
    choosing: I64  # [.., N] those that choose what serves them
    numbers: int  # that their communicator may have, from 0 on; 1: its number changes nothing
    name: str  # equal for equal ones


@dataclass(frozen=True, eq=False)
class Where:
    """The groups of all plans with the same sizes of axes, in one placement."""

    topology: Topology
    plan: Plan  # any of them
    npus: I64  # [ranks]
    numbers: int  # of communicators, as of `Groups`
    messages: dict[Hashable, Sequence[Taken]] = field(default_factory=dict)  # that are known, by their way and size
    _members: dict[str, I64] = field(default_factory=dict)
    _groups: dict[Hashable, Groups] = field(default_factory=dict)
    _names: dict[Hashable, Hashable] = field(default_factory=dict)

    @staticmethod
    def of(topology: Topology, plan: Plan, axes: tuple[str, ...]) -> "Where":
        """The ranks of a plan on a topology, the first of its axes on neighbouring NPUs."""
        return Where(topology, plan, npus_of(topology, plan, axes), _communicators(plan) if spreads(topology) else 1)

    @staticmethod
    def key(plan: Plan, axes: tuple[str, ...]) -> Hashable:
        """Equal for plans whose groups are."""
        return plan.tp, plan.cp, plan.dp, plan.pp, plan.ep, plan.expert_tp, axes

    def at(self, place: int, axis: str) -> Groups:
        """Those of an axis at one place of their pipelines; or all, of an axis that reaches over places."""
        if (place, axis) not in self._groups:
            self._groups[place, axis] = self._of(self._own(place, axis), self._every(axis))
        return self._groups[place, axis]

    def neighbours(self, place: int, axis: str) -> Groups:
        """Each rank of a place with the next of its group of an axis."""
        if ("neighbours", place, axis) not in self._groups:
            own = self._own(place, axis)
            rows = np.stack((own, np.roll(own, -1, axis=1)), axis=-1).reshape(-1, 2)
            self._groups["neighbours", place, axis] = self._of(rows, rows)
        return self._groups["neighbours", place, axis]

    def between(self, src: int, dst: int) -> Groups:
        """Each rank of a place with its own of another."""
        if (src, dst) not in self._groups:
            rows = self._every("pp")[:, [src, dst]]
            self._groups[src, dst] = self._of(rows, rows)
        return self._groups[src, dst]

    def names(self, place: int, axes: tuple[str, ...]) -> Hashable:
        """Of those of several axes: equal for equal ones."""
        if (place, axes) not in self._names:
            self._names[place, axes] = tuple(self.at(place, axis).name for axis in axes)
        return self._names[place, axes]

    def _own(self, place: int, axis: str) -> I64:
        every, of_place = self._every(axis), self.plan.stage_ranks
        across = every[0, 0] // of_place != every[0, -1] // of_place
        return every if across else every[every[:, 0] // of_place == place]

    def _every(self, axis: str) -> I64:
        if axis not in self._members:
            self._members[axis] = members(self.plan, axis)
        return self._members[axis]

    def _of(self, ranks: I64, every: I64) -> Groups:
        asking = choosing(ranks, every)
        both = canonical_npus(self.topology, self.npus[np.concatenate((ranks.ravel(), asking.ravel()))])
        npus, chosen = both[: ranks.size].reshape(ranks.shape), both[ranks.size :].reshape(asking.shape)
        return Groups(npus, chosen, self.numbers, digest((npus, chosen, self.numbers)))


def _communicators(plan: Plan) -> int:
    """At most: of each axis, of both that share experts, of states shared over dp and cp or a part, of a pipeline's ends."""
    both = plan.ep > 1 < plan.expert_tp
    return sum(size > 1 for size in plan.sizes.values()) + both + (plan.dp * plan.cp > 1) + (plan.pp > 1)
