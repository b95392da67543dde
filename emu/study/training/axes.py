"""Axes in requests: algorithms for one axis (`dp.all_gather=ring`), and the order in which axes get NPUs."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from math import prod

import numpy as np

from emu.arrays import I64, column
from emu.collective.algorithm import algorithm
from emu.collective.choice import Choice, operation_of
from emu.collective.operation import OPERATIONS
from emu.errors import InputError, must_be
from emu.model.plan.plan import AXES, Plan
from emu.registry import nearest, unknown
from emu.study.choice.site import Site, choosers, fitting_algorithms
from emu.topology.placement import npu_order, place
from emu.topology.topology import Topology
from emu.trace.trace import Events, Kind

_MOST = 64  # groups of an axis that are looked at: they are of one size, and differ in their place alone


def axes_named(words: Sequence[str]) -> dict[str, list[str]]:
    """Return, by axis, the words of `--algorithm` for that axis only; they stay whole, such as `dp.all_gather=ring`."""
    found: dict[str, list[str]] = {}
    for word in words:
        axis, dot, _ = word.partition("=")[0].rpartition(".")
        if dot:
            found.setdefault(axis, []).append(word)
    return found


def operations_by_axis(ranks: Iterable[tuple[Events, Sequence[str]]]) -> dict[str, set[str]]:
    """Return the collectives that ranks ask for on each axis.

    Args:
        ranks: Of each rank its events, and the axis of each group that they number.
    """
    found: dict[str, set[str]] = {}
    for events, axes in ranks:
        for row in np.flatnonzero(events.kind == Kind.COLLECTIVE).tolist():
            found.setdefault(axes[events.group[row]], set()).add(events.name[row])
    return found


def check_axes(
    words: Sequence[str],
    groups: Mapping[str, Sequence[Sequence[int]] | I64],
    operations: Mapping[str, Collection[str]],
    topology: Topology,
) -> None:
    """Check words of `--algorithm` for an axis: the axis communicates, has the operation, and can use the algorithm.

    Args:
        words: Words of --algorithm, as typed.
        groups: For each axis, the NPUs of each of its groups.
        operations: For each axis, the collectives that its ranks ask for.
        topology: The topology with these NPUs.

    Raises:
        InputError: The message names the nearest axis or algorithm.
    """
    for axis, own in axes_named(words).items():
        if axis not in groups:
            raise unknown("axis with communication", axis, groups)
        sites = [Site.of(topology, tuple(map(int, group))) for group in groups[axis][:_MOST]]
        for word in own:
            operation, known = operation_of(word.partition("=")[0]), operations.get(axis, ())
            if operation in OPERATIONS and operation not in known:
                raise unknown(f"collective on {axis}", operation, known)
            check_taken(word, axis, sites)


def check_taken(word: str, axis: str, sites: Sequence[Site]) -> None:
    """Refuse an algorithm that no group of its axis can use.

    Args:
        word: The operation and the algorithm, such as `all_gather=ring`.
        axis: The axis.
        sites: The NPUs of each group of the axis, as far as groups are looked at.

    Raises:
        InputError: No group can use it; the message names the most similar algorithm that the first group can use.
    """
    asked, _, served = word.partition("=")
    if served in choosers():
        return
    operation, name = operation_of(asked), Choice.parse((word,)).by_operation[asked]
    found = algorithm(operation, name)
    if any(site.takes(found) and (site.topology.adds or not found.needs_adding) for site in sites):
        return
    others = [each.name for each in fitting_algorithms(operation, sites[0])]
    where = f"groups of {len(sites[0].npus)} ranks of {sites[0].topology.name}"
    raise InputError(
        f"--algorithm: {operation} of {axis} must be one that {where} can have, got {served!r}; {nearest(name, others)}"
    )


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
    return column(place(topology, plan.world)[_slots(plan, axes_of(plan, axes))], np.int64)


def _slots(plan: Plan, axes: tuple[str, ...]) -> I64:
    """Return [ranks] the position of each rank in the order in which the first axis counts fastest."""
    sizes = [plan.sizes[axis] for axis in axes]
    stride = dict(zip(axes, [prod(sizes[:i]) for i in range(len(sizes))], strict=True))
    ranks, slots, below = np.arange(plan.world), np.zeros(plan.world, np.int64), 1
    for axis in AXES:
        slots += ranks // below % plan.sizes[axis] * stride.get(axis, 0)
        below *= plan.sizes[axis]
    return slots
