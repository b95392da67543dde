"""How many NPUs find a place in groups where some are faulty: what a tensor-parallel group, or any other, can be made of.

The rule is the system's own, its `grouper`. A system without one has room for a group on any NPUs that work, as many as its
placement finds. E states of a machine, N NPUs.
"""

import numpy as np

from emu.arrays import I64, Bool, column
from emu.errors import must_be
from emu.topology.topology import Topology


def usable(topology: Topology, group: int, faulty: Bool) -> I64:
    """[E] the NPUs that groups of so many can be made of in each state.

    Args:
        topology: With the rule.
        group: NPUs of a group.
        faulty: [E, N] which NPUs are faulty.

    Raises:
        InputError: the machine has fewer NPUs than a group, or no part of it can hold such a group.
    """
    if not 1 <= group <= topology.n_npus:
        raise must_be(topology.name, "NPUs of a group", f"1..{topology.n_npus}", group, "take a smaller group")
    if topology.grouper is not None:
        return topology.grouper(group, faulty)
    if topology.placer is None:
        return _whole(group, topology.n_npus - faulty.sum(axis=1))
    return _whole(group, np.array([len(topology.placer(topology.n_npus, np.flatnonzero(state))) for state in faulty]))


def in_units(name: str, unit: int, group: int, faulty: Bool) -> I64:
    """[E] the same where a group stays within a unit of so many NPUs in a row, whose other NPUs go on where one fails.

    A larger group takes whole units in which none is faulty.

    Raises:
        InputError: a group that is larger than a unit, and no multiple of it.
    """
    left = unit - faulty.reshape(len(faulty), -1, unit).sum(axis=2)
    if group <= unit:
        return column((left // group * group).sum(axis=1), np.int64)
    if group % unit:
        raise must_be(name, "NPUs of a group", f"at most {unit}, or a multiple of it", group)
    return _whole(group, (left == unit).sum(axis=1) * unit)


def in_whole_units(name: str, unit: int, group: int, faulty: Bool) -> I64:
    """[E] the same where a unit of which an NPU is faulty holds no group at all, as a ring that is broken.

    Raises:
        InputError: a group that is larger than a unit, and no multiple of it.
    """
    broken = faulty.reshape(len(faulty), -1, unit).any(axis=2)
    return in_units(name, unit, group, np.repeat(broken, unit, axis=1))


def in_blocks(name: str, group: int, faulty: Bool) -> I64:
    """[E] the same where a group has its NPUs in a row, from a multiple of its size on, and none of them faulty.

    Raises:
        InputError: a group that does not divide the machine.
    """
    if faulty.shape[1] % group:
        raise must_be(name, "NPUs of a group", f"a divisor of {faulty.shape[1]}, as groups are blocks", group)
    return in_whole_units(name, group, group, faulty)


def _whole(group: int, npus: I64) -> I64:
    return column(npus // group * group, np.int64)
