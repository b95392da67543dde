"""The groups of a plan's axes on the NPUs of one placement, and which of them take equal times.

G is the number of groups, N the number of members of each.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field

import numpy as np

from emu.arrays import I64, digest
from emu.memo import kept_by
from emu.model.generate.generate import groups_of_axis
from emu.model.plan.plan import Plan
from emu.study.choice.site import canonical_npus
from emu.study.planning.request_times.ports import Ports
from emu.study.planning.request_times.rates import LeastTime, Rates
from emu.study.training.axes import npus_of
from emu.study.training.composed.requests_by_place import choosing
from emu.topology.facts.facts import routes_spread
from emu.topology.topology import Topology


@dataclass(frozen=True, eq=False, slots=True)
class Groups:
    """Groups of NPUs that make one request at the same time; one group stands for all that symmetry makes equal."""

    npus: I64  # [G, N] the NPUs that stand for all equal ones by symmetry
    choosing: I64  # [.., N] NPUs of the groups that choose the algorithm
    numbers: int  # possible numbers of their communicator, from 0 on; 1 where the number changes nothing
    rates: Rates  # the largest rates of a member for messages within its group
    name: str  # equal for equal groups


@dataclass(frozen=True, eq=False)
class PlacedGroups:
    """The groups of all axes in one placement, for all plans with equal sizes of axes."""

    topology: Topology
    plan: Plan  # one of the plans
    npus: I64  # [ranks] the NPU of each rank
    numbers: int  # possible numbers of communicators, as in `Groups`
    anywhere: Rates  # of any NPU
    ports: Ports | None = None  # None: not known
    messages: dict[Hashable, Sequence[LeastTime]] = field(default_factory=dict)  # known times by distance and size

    @staticmethod
    def of(
        topology: Topology, plan: Plan, axes: tuple[str, ...], anywhere: Rates, ports: Ports | None = None
    ) -> "PlacedGroups":
        """Return the groups of a plan on a topology, with the first of its axes on neighbouring NPUs."""
        numbers = _communicators(plan) if routes_spread(topology) else 1
        return PlacedGroups(topology, plan, npus_of(topology, plan, axes), numbers, anywhere, ports)

    @kept_by(lambda _, *asked: asked)
    def at(self, place: int, axis: str) -> Groups:
        """Return the groups of an axis at one place of a pipeline; the groups of all places if the axis crosses places."""
        return self._groups_of(self._ranks_at(place, axis), self._every(axis))

    @kept_by(lambda _, *asked: asked)
    def neighbours(self, place: int, axis: str) -> Groups:
        """Return groups of two: each rank of a place with the next member of its group of an axis."""
        rows = self._pairs(place, axis)
        return self._groups_of(rows, rows)

    @kept_by(lambda _, *asked: asked)
    def between(self, src: int, dst: int) -> Groups:
        """Return groups of two: each rank of a place with the rank of its pipeline at another place."""
        rows = self._every("pp")[:, [src, dst]]
        return self._groups_of(rows, rows)

    @kept_by(lambda _, *asked: asked)
    def rates(self, place: int, axis: str) -> tuple[Rates, Rates]:
        """Return the largest rates of a rank within its group of an axis, and its rates to its two neighbours."""
        return self._rates(self._ranks_at(place, axis)), self._rates(self._pairs(place, axis))

    @kept_by(lambda _, *asked: asked)
    def rates_between(self, src: int, dst: int) -> Rates:
        """Return the largest rates of the messages between two places."""
        return self._rates(self._every("pp")[:, [src, dst]])

    def _rates(self, ranks: I64) -> Rates:
        """Return the largest rates of any member for messages within its group; `ranks` is [G, N]."""
        return self.anywhere if self.ports is None else self.ports.rates(self.npus[ranks], self.anywhere)

    def _pairs(self, place: int, axis: str) -> I64:
        """Return [pairs, 2] the ranks of a place, each with the next member of its group of an axis."""
        own = self._ranks_at(place, axis)
        return np.stack((own, np.roll(own, -1, axis=1)), axis=-1).reshape(-1, 2)

    @kept_by(lambda _, *asked: asked)
    def names(self, place: int, axes: tuple[str, ...]) -> Hashable:
        """Return a key of the groups of several axes at a place; groups with equal times have equal keys."""
        return tuple(self.at(place, axis).name for axis in axes)

    def _ranks_at(self, place: int, axis: str) -> I64:
        """Return [G, N] the ranks of the groups of an axis at one place, or at all places if the axis crosses places."""
        every, of_place = self._every(axis), self.plan.stage_ranks
        across = every[0, 0] // of_place != every[0, -1] // of_place
        return every if across else every[every[:, 0] // of_place == place]

    @kept_by(lambda _, *asked: asked)
    def _every(self, axis: str) -> I64:
        """Return [G, N] the ranks of all groups of an axis."""
        return groups_of_axis(self.plan, axis)

    def _groups_of(self, ranks: I64, every: I64) -> Groups:
        """Return groups of ranks [G, N], with the NPUs that represent all equivalent groups."""
        asking = choosing(ranks, every)
        both = canonical_npus(self.topology, self.npus[np.concatenate((ranks.ravel(), asking.ravel()))])
        npus, chosen = both[: ranks.size].reshape(ranks.shape), both[ranks.size :].reshape(asking.shape)
        rates = self._rates(ranks)
        numbers = self.numbers if self.ports is None or self.ports.routes_vary(self.npus[ranks]) else 1
        return Groups(npus, chosen, numbers, rates, digest((npus, chosen, numbers, rates)))


def _communicators(plan: Plan) -> int:
    """Return the largest possible number of communicators of a plan."""
    both = plan.ep > 1 < plan.expert_tp
    return sum(size > 1 for size in plan.sizes.values()) + both + (plan.copies > 1) + (plan.pp > 1)
