"""The order in which the axes of a plan get NPUs."""

from collections.abc import Sequence
from dataclasses import replace
from math import prod

import numpy as np

from emu.arrays import I64, column
from emu.errors import must_be
from emu.model.plan.plan import AXES, Plan
from emu.topology.placement import npu_order, place
from emu.topology.topology import Topology


def axes_of(plan: Plan, axes: Sequence[str] = ()) -> tuple[str, ...]:
    """Return the axes of a plan with more than one rank, in the given order or in the default order.

    Raises:
        InputError: The given axes do not name each of them once.
    """
    sizes = plan.sizes
    own = tuple(axis for axis in AXES if sizes[axis] > 1)
    if not axes:
        return own
    named = tuple(axis for axis in axes if plan.sizes.get(axis, 0) != 1)
    if sorted(named) != sorted(own):
        what = f"each of {','.join(own)} once, the one of neighbouring NPUs first"
        raise must_be("estimate", "--axes", what, ",".join(axes), f"such as {','.join(reversed(own))}")
    return named


def with_axes(topology: Topology, plan: Plan, axes: Sequence[str]) -> Topology:
    """Return a topology that places ranks of the first of the axes on neighbouring NPUs, those of the last on distant ones.

    Links and numbers of NPUs stay as they are; only the placement is another one.

    Raises:
        InputError: As `axes_of`, or the plan has more ranks than there are NPUs.
    """
    wanted = axes_of(plan, axes)
    if wanted == axes_of(plan):
        return topology
    npus = np.concatenate((npus_of(topology, plan, axes), npu_order(topology)[plan.world :]))

    def placer(ranks: int, faulty: I64) -> I64:
        kept = npus[~np.isin(npus, faulty)]
        return column(kept[:ranks], np.int64)

    return replace(topology, placer=placer)


def npus_of(topology: Topology, plan: Plan, axes: Sequence[str]) -> I64:
    """Return [ranks] the NPU of each rank; ranks of one group of the first axis get neighbouring NPUs.

    Arguments and errors as in `with_axes`.
    """
    return column(place(topology, plan.world)[slots_of(plan, axes)], np.int64)


def slots_of(plan: Plan, axes: Sequence[str]) -> I64:
    """Return [ranks] the position of each rank in the order in which NPUs are given, where the first axis counts fastest.

    Arguments and errors as in `axes_of`.
    """
    axes = axes_of(plan, axes)
    sizes = [plan.sizes[axis] for axis in axes]
    stride = dict(zip(axes, [prod(sizes[:i]) for i in range(len(sizes))], strict=True))
    ranks, slots, below = np.arange(plan.world), np.zeros(plan.world, np.int64), 1
    for axis in AXES:
        slots += ranks // below % plan.sizes[axis] * stride.get(axis, 0)
        below *= plan.sizes[axis]
    return slots
