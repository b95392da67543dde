"""What faults leave of a machine: GPUs that work but find no group (waste), the largest job, and what one fault costs.

E states, N NPUs of the machine, U units that fail, each of N / U NPUs in a row.
"""

from dataclasses import dataclass
from math import lcm

import numpy as np

from emu.arrays import F64, I64, Bool, column
from emu.errors import must_be
from emu.study.faults.log import States
from emu.topology.topology import Topology
from emu.topology.usable_npus import usable_npus as usable

_CHUNK = 2**24  # bytes of states that are looked at together


@dataclass(frozen=True, slots=True)
class Machine:
    """As many copies of a topology as make so many NPUs; a group stays within a copy."""

    topology: Topology
    copies: int

    @property
    def npus(self) -> int:
        """Of all copies."""
        return self.copies * self.topology.n_npus

    def usable(self, group: int, faulty: Bool) -> I64:
        """[E] NPUs that groups can be made of; [E, N] which are faulty."""
        alone = faulty.reshape(-1, self.topology.n_npus)
        different, place = np.unique(np.packbits(alone, axis=1), axis=0, return_inverse=True)
        states = np.unpackbits(different, axis=1, count=self.topology.n_npus).astype(np.bool_)
        left = usable(self.topology, group, states)[place.ravel()]
        return column(left.reshape(len(faulty), self.copies).sum(axis=1), np.int64)


def machine_of(topology: Topology, npus: int) -> Machine:
    """Copies of a topology side by side.

    Raises:
        InputError: fewer NPUs than the topology has.
    """
    if npus < topology.n_npus:
        raise must_be("faults", "npus", f"{topology.n_npus} or more, those of {topology.name}", npus)
    return Machine(topology, npus // topology.n_npus)


@dataclass(frozen=True, eq=False, slots=True)
class Waste:
    """What the states of a machine leave for groups of a size."""

    topology: str
    npus: int
    copies: int
    group: int
    share: F64  # [E] of the time
    begin: F64  # [E] days
    faulty: F64  # [E] share of the NPUs
    usable: I64  # [E] NPUs in groups
    radius: int  # NPUs out of groups at most when one unit fails and nothing else

    @property
    def wasted(self) -> F64:
        """[E] the share of the NPUs that work and find no group: InfiniteHBD's waste ratio (2.1).

        Backup NPUs are none of the NPUs, so that groups may take more than work; then nothing is wasted.
        """
        return np.maximum(0.0, 1 - self.faulty - self.usable / self.npus)

    @property
    def mean(self) -> float:
        """Waste ratio, over the time."""
        return float(self.share @ self.wasted)

    @property
    def availability(self) -> float:
        """The share of the NPUs that do work, over the time."""
        return float(self.share @ self.usable) / self.npus

    def largest_job(self, quantile: float) -> int:
        """NPUs that a job finds for such a share of the time, or more."""
        return int(self.usable[self._at(-self.usable, quantile)])

    def waiting(self, job: int) -> float:
        """The share of the time in which a job of so many NPUs finds no room, and waits for a repair (InfiniteHBD 6.2).

        Raises:
            InputError: no such job, or one that is larger than all groups of the whole machine.
        """
        check_job(self.topology, self.npus, self.group, job)
        return float(self.share @ (self.usable < job))

    def quantile(self, quantile: float) -> float:
        """The waste ratio that is not exceeded for such a share of the time."""
        return float(self.wasted[self._at(self.wasted, quantile)])

    def _at(self, values: F64 | I64, quantile: float) -> int:
        """The state up to which the values, from the smallest, have such a share of the time."""
        order = np.argsort(values, kind="stable")
        at = int(np.searchsorted(self.share[order].cumsum(), quantile - 1e-12))
        return int(order[min(at, len(order) - 1)])


def check_job(topology: str, npus: int, group: int, job: int) -> None:
    """Refuse a job that no state of a machine has room for.

    Raises:
        InputError: a job of no NPU, or of more than all groups of the machine have.
    """
    most = npus // group * group
    if not 1 <= job <= most:
        what = f"1..{most}, those of all groups of {group} on {npus} NPUs of {topology}"
        raise must_be("faults", "NPUs of a job", what, job, "take a smaller job")


def check_group(machine: Machine, group: int, job: int | None = None) -> None:
    """Refuse groups, and a job, that the machine cannot hold, before its states are looked at.

    Raises:
        InputError: no part of the machine can hold such a group, or as `check_job`.
    """
    machine.usable(group, np.zeros((1, machine.npus), np.bool_))
    if job is not None:
        check_job(machine.topology.name, machine.npus, group, job)


def waste(machine: Machine, group: int, states: States) -> Waste:
    """What the states leave for groups of so many NPUs.

    Raises:
        InputError: units that do not divide the machine, or no part of it can hold such a group.
    """
    units = states.faulty.shape[1]
    if machine.npus % units:
        raise must_be("faults", "units", f"a divisor of the {machine.npus} NPUs of {machine.topology.name}", units)
    each = machine.npus // units
    left = machine.usable(group, np.repeat(states.faulty, each, axis=1))
    return Waste(
        machine.topology.name,
        machine.npus,
        machine.copies,
        group,
        states.share,
        states.begin,
        states.faulty.mean(axis=1),
        left,
        _radius(machine, group, units),
    )


def _radius(machine: Machine, group: int, units: int) -> int:
    """The fault explosion radius: how many NPUs one unit takes out of groups, where it does most harm."""
    each, copy = machine.npus // units, machine.topology.n_npus
    alike = Machine(machine.topology, lcm(copy, each) // copy)  # further units lie in their copies as these do
    whole = alike.usable(group, np.zeros((1, alike.npus), np.bool_))
    first = np.arange(0, alike.npus, each)
    left = [
        alike.usable(group, _alone(at, each, alike.npus)).min()
        for at in np.array_split(first, -(-alike.npus * len(first) // _CHUNK))
    ]
    return int(whole[0] - min(left))


def _alone(first: I64, each: int, npus: int) -> Bool:
    """[E, N] in each state as many NPUs from one on are faulty."""
    return np.asarray(np.arange(npus) // each == first[:, None] // each)
