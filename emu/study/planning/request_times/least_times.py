"""Lower bounds of the time of each request of a plan for a rank, in any placement.

In any placement and by any algorithm it is the time of the bytes that a rank itself sends and receives, over all links of an
NPU: no message leaves before both its ends have entered, and a rank leaves when all its own messages are delivered. Each rank
gives every slot of others that it adds to, and gets every slot of others that it wants, at least once.
"""

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from emu.dtypes import item_bytes
from emu.model.generate.item import Ask
from emu.model.plan.plan import Plan
from emu.study.planning.request_times.rates import LeastTime, Rates, ranks_of
from emu.study.training.composed.request_parts import goes_round
from emu.trace.matching.role_requests import MESSAGE


@dataclass(frozen=True, eq=False)
class LeastTimes:
    """The least times of a plan's requests in any placement, from the rates of an NPU; subclasses are for one placement."""

    rates: Rates
    plan: Plan

    @cached_property
    def sizes(self) -> Mapping[str, int]:
        """The size of each axis of the plan, by its name."""
        return self.plan.sizes

    def place_key(self, place: int) -> Hashable:
        """Return a key that is equal for places whose requests take equal times; without a placement all places are equal."""
        return ()

    def axes_key(self, place: int, axes: tuple[str, ...]) -> Hashable:
        """Return a key that is equal if the requests of the given axes take equal times."""
        return self.rates, tuple(ranks_of(self.sizes, axis) for axis in axes)

    def collective(self, place: int, ask: Ask) -> LeastTime:
        """Return the least time of a collective of the ranks at one place of a pipeline."""
        ring, item = ask.operation == MESSAGE or goes_round(ask.splits), item_bytes(ask.dtype)
        rates = self.rates_of(place, ask.axis, ring=ring)
        if ring:
            return rates.message(ask.elements * item)
        elements = 0 if ask.splits else ask.elements  # of blocks that differ a rank may have the largest itself
        return LeastTime(0.0, rates.least_s(ask.operation, elements, item, ranks_of(self.sizes, ask.axis)))

    def rates_of(self, place: int, axis: str, *, ring: bool) -> Rates:
        """Return the largest rates of a rank within its group of an axis; with `ring`, only to its neighbours there."""
        return self.rates

    def messages(self, to: int, size: int) -> Sequence[LeastTime]:
        """Return [P] the least times of messages of `size` bytes from each place to the place `to` later, round the end."""
        return [self.rates.message(size)] * self.plan.pp
