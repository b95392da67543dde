"""The NPUs that remain usable in groups of a given size (such as tensor-parallel groups) when some NPUs are faulty.

The rule is the system's own, its `usable_counter`. A system without a rule can place a group on any NPUs that work, as many as
its placement finds. Letters: E states of a machine, N NPUs.
"""

import numpy as np

from emu.arrays import I64, Bool, column
from emu.errors import must_be
from emu.topology.topology import Topology


def usable_npus(topology: Topology, group: int, faulty: Bool) -> I64:
    """Return [E] the number of NPUs that groups of `group` NPUs can use in each state.

    Args:
        topology: The machine, with its rule.
        group: The number of NPUs of a group.
        faulty: [E, N] whether each NPU is faulty.

    Raises:
        InputError: The machine has fewer NPUs than a group, or no part of it can hold such a group.
    """
    if not 1 <= group <= topology.n_npus:
        raise must_be(topology.name, "NPUs of a group", f"1..{topology.n_npus}", group, "take a smaller group")
    if topology.usable_counter is not None:
        return topology.usable_counter(group, faulty)
    if topology.placer is None:
        return _round_to_groups(group, topology.n_npus - faulty.sum(axis=1))
    return _round_to_groups(group, np.array([len(topology.placer(topology.n_npus, np.flatnonzero(state))) for state in faulty]))


def usable_within_units(name: str, unit: int, group: int, faulty: Bool) -> I64:
    """Return [E] the number of usable NPUs of a system in which a group stays within a unit of `unit` consecutive NPUs.

    The other NPUs of a unit can still be used if one fails. A larger group takes whole units without a faulty NPU.

    Args:
        name: The name of the system, for errors.
        unit: The number of NPUs of a unit.
        group: The number of NPUs of a group.
        faulty: [E, NPUs] whether each NPU is faulty, in each of E states of the machine.

    Raises:
        InputError: A group is larger than a unit, and no multiple of it.
    """
    left = unit - faulty.reshape(len(faulty), -1, unit).sum(axis=2)
    if group <= unit:
        return column((left // group * group).sum(axis=1), np.int64)
    if group % unit:
        raise must_be(name, "NPUs of a group", f"at most {unit}, or a multiple of it", group)
    return _round_to_groups(group, (left == unit).sum(axis=1) * unit)


def usable_in_healthy_units(name: str, unit: int, group: int, faulty: Bool) -> I64:
    """Return [E] how many NPUs groups can use if a unit with a faulty NPU cannot be used at all, as a broken ring.

    Args:
        name: The system, for errors.
        unit: The number of NPUs of a unit.
        group: The number of NPUs of a group.
        faulty: [E, NPUs] whether each NPU is faulty, in each of E states.

    Raises:
        InputError: A group is larger than a unit, and no multiple of it.
    """
    broken = faulty.reshape(len(faulty), -1, unit).any(axis=2)
    return usable_within_units(name, unit, group, np.repeat(broken, unit, axis=1))


def usable_in_blocks(name: str, group: int, faulty: Bool) -> I64:
    """Return [E] the number of usable NPUs if a group is a block of consecutive NPUs of which none is faulty.

    A block begins at a multiple of the group's size.

    Raises:
        InputError: A group does not divide the machine.
    """
    if faulty.shape[1] % group:
        raise must_be(name, "NPUs of a group", f"a divisor of {faulty.shape[1]}, as groups are blocks", group)
    return usable_in_healthy_units(name, group, group, faulty)


def _round_to_groups(group: int, npus: I64) -> I64:
    """Return the number of NPUs that whole groups of `group` NPUs take, for each number in `npus`."""
    return column(npus // group * group, np.int64)
