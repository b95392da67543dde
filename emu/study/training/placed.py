"""Which axis of a plan has neighbouring places of a topology: ranks in another order than their own."""

from collections.abc import Sequence
from dataclasses import replace
from math import prod

import numpy as np

from emu.arrays import I64, column
from emu.errors import must_be
from emu.model.plan.plan import Plan
from emu.model.plan.rank_axes import AXES
from emu.topology.placement import order, place
from emu.topology.topology import Topology


def axes_of(plan: Plan, axes: Sequence[str] = ()) -> tuple[str, ...]:
    """The axes of a plan that have more than one rank, in the order that is asked for, or in that of its ranks' numbers.

    Raises:
        InputError: not each of them once.
    """
    sizes = plan.sizes
    own = tuple(axis for axis in AXES if sizes[axis] > 1)
    if not axes:
        return own
    named = tuple(axis for axis in axes if plan.sizes.get(axis, 0) != 1)
    if sorted(named) != sorted(own):
        what = f"each of {','.join(own)} once, the one of neighbouring NPUs first"
        raise must_be("estimate", "axes", what, ",".join(axes), f"such as {','.join(reversed(own))}")
    return named


def with_axes(topology: Topology, plan: Plan, axes: Sequence[str]) -> Topology:
    """A topology whose own order of NPUs is such that the first of the axes has neighbouring ones, and the last far ones.

    Raises:
        InputError: as `axes_of`, or more ranks than NPUs.
    """
    wanted = axes_of(plan, axes)
    if wanted == axes_of(plan):
        return topology
    npus = np.concatenate((npus_of(topology, plan, axes), order(topology)[plan.world :]))

    def placer(ranks: int, faulty: I64) -> I64:
        kept = npus[~np.isin(npus, faulty)]
        return column(kept[:ranks], np.int64)

    return replace(topology, placer=placer)


def npus_of(topology: Topology, plan: Plan, axes: Sequence[str]) -> I64:
    """[ranks] the NPU of each; arguments and errors as of `with_axes`."""
    return column(place(topology, plan.world)[_slots(plan, axes_of(plan, axes))], np.int64)


def _slots(plan: Plan, axes: tuple[str, ...]) -> I64:
    """[ranks] the place of each in the order in which the first axis counts fastest."""
    sizes = [plan.sizes[axis] for axis in axes]
    stride = dict(zip(axes, [prod(sizes[:i]) for i in range(len(sizes))], strict=True))
    ranks, slots, below = np.arange(plan.world), np.zeros(plan.world, np.int64), 1
    for axis in AXES:
        slots += ranks // below % plan.sizes[axis] * stride.get(axis, 0)
        below *= plan.sizes[axis]
    return slots
