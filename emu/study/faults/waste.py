"""The effect of faults on a machine: NPUs that work but cannot be used, the largest job, and time lost to restarts.

E states, N NPUs of the machine, U units that fail, each of N / U NPUs in a row.
delta the time of a checkpoint, R the time of a restart, M the mean time between faults that interrupt a job.
"""

from dataclasses import dataclass
from math import exp, expm1, lcm, sqrt

import numpy as np

from emu.arrays import F64, I64, Bool, column
from emu.errors import must_be
from emu.study.faults.source import MachineStates
from emu.topology.topology import Topology
from emu.topology.usable_npus import usable_npus

_CHUNK = 2**24  # bytes of states that are looked at together


@dataclass(frozen=True, eq=False, slots=True)
class CopyStates:
    """The different states of the copies of a topology, and which of them each copy has in each state of the machine.

    Finding them costs more than counting NPUs does; all topologies of one size have the same.
    """

    different: Bool  # [D, n] faulty NPUs of a copy of n NPUs
    place: I64  # [E * copies] number in `different`

    @staticmethod
    def of(faulty: Bool, npus: int) -> "CopyStates":
        """Return the states of copies of `npus` NPUs, given [E, N] the faulty NPUs of the machine."""
        packed = np.packbits(faulty.reshape(-1, npus), axis=1)
        width, number = packed.shape[1], dict[bytes, int]()  # np.unique sorts the rows, which takes ten times as long
        place = [number.setdefault(row, len(number)) for row in packed.view(f"V{width}").ravel().tolist()]
        different = np.frombuffer(b"".join(number), np.uint8).reshape(-1, width)
        return CopyStates(np.unpackbits(different, axis=1, count=npus).astype(np.bool_), np.array(place, np.int64))

    @staticmethod
    def of_units(machine: "Machine", units: Bool) -> "CopyStates":
        """Return the states of the copies of a machine, given [E, U] its faulty units.

        Raises:
            InputError: The units do not divide the machine.
        """
        count = units.shape[1]
        if machine.npus % count:
            raise must_be("faults", "units", f"a divisor of the {machine.npus} NPUs of {machine.topology.name}", count)
        return CopyStates.of(np.repeat(units, machine.npus // count, axis=1), machine.topology.n_npus)


@dataclass(frozen=True, slots=True)
class Machine:
    """A machine of several equal copies of a topology; the NPUs of a group belong to one copy."""

    topology: Topology
    copies: int

    @property
    def npus(self) -> int:
        """The number of NPUs of the machine, over all copies of its topology."""
        return self.copies * self.topology.n_npus

    def usable(self, group: int, faulty: Bool) -> I64:
        """Return [E] the NPUs that can be in groups of a size, given [E, N] the faulty NPUs."""
        return self.usable_of(group, CopyStates.of(faulty, self.topology.n_npus))

    def usable_of(self, group: int, states: "CopyStates") -> I64:
        """Return [E] the NPUs that can be in groups of a size, given the states of its copies."""
        left = usable_npus(self.topology, group, states.different)[states.place]
        return column(left.reshape(-1, self.copies).sum(axis=1), np.int64)


def machine_of(topology: Topology, npus: int) -> Machine:
    """Return a machine of `npus` NPUs: as many copies of the topology as fit.

    Raises:
        InputError: There are fewer NPUs than the topology has.
    """
    if npus < topology.n_npus:
        raise must_be("faults", "--npus", f"{topology.n_npus} or more, those of {topology.name}", npus)
    return Machine(topology, npus // topology.n_npus)


@dataclass(frozen=True, eq=False, slots=True)
class Waste:
    """The waste of a machine for groups of one size, in each of its states: the share of faulty NPUs, and the usable NPUs.

    `explosion_radius` is the most NPUs that no group can use because one unit fails; 0 if NPUs outside groups replace them.
    """

    topology: str
    npus: int
    copies: int
    group: int
    share: F64  # [E] of the time
    begin: F64  # [E] days
    faulty: F64  # [E] share of the NPUs
    usable: I64  # [E] NPUs in groups
    explosion_radius: int  # NPUs that leave groups when one unit fails and nothing else
    room: int  # NPUs in groups where nothing is faulty

    @property
    def wasted(self) -> F64:
        """Array [E] of the share of the NPUs that work and find no group: InfiniteHBD's waste ratio (2.1).

        Backup NPUs do not count as NPUs, so groups may take more than work; then nothing is wasted.
        """
        return np.maximum(0.0, 1 - self.faulty - self.usable / self.npus)

    @property
    def mean(self) -> float:
        """The waste ratio, in the mean over the time."""
        return float(self.share @ self.wasted)

    @property
    def availability(self) -> float:
        """The share of the NPUs that are in groups, in the mean over the time."""
        return float(self.share @ self.usable) / self.npus

    def largest_job(self, quantile: float) -> int:
        """Return the NPUs of the largest job that has room for a share of the time."""
        return int(self.usable[self._state_at_quantile(-self.usable, quantile)])

    def waiting(self, job: int) -> float:
        """Return the share of the time in which a job has no room, and waits for a repair (InfiniteHBD 6.2).

        Args:
            job: The NPUs of the job.

        Raises:
            InputError: The job has no NPU, or more than all groups of the whole machine.
        """
        check_job(self.topology, self.room, self.group, job)
        return float(self.share @ (self.usable < job))

    def quantile(self, quantile: float) -> float:
        """Return the waste ratio that is not exceeded for a share of the time."""
        return float(self.wasted[self._state_at_quantile(self.wasted, quantile)])

    def _state_at_quantile(self, values: F64 | I64, quantile: float) -> int:
        """Return the index of the state at a quantile of the values, each weighted by the time that its state lasts."""
        order = np.argsort(values)
        at = int(np.searchsorted(self.share[order].cumsum(), quantile - 1e-12))
        return int(order[min(at, len(order) - 1)])


def check_job(topology: str, room: int, group: int, job: int) -> None:
    """Refuse a job that no state of a machine has room for.

    Args:
        topology: The name of the topology.
        room: The NPUs in groups where nothing is faulty.
        group: The NPUs of a group.
        job: The NPUs of the job.

    Raises:
        InputError: The job has no NPU, or more than all groups of the machine.
    """
    if not 1 <= job <= room:
        what = f"1..{room}, the NPUs in groups of {group} that {topology} has room for"
        raise must_be("faults", "--job", what, job, "take a smaller job")


def check_group(machine: Machine, group: int, job: int | None = None) -> None:
    """Check that the machine can hold groups of this size, and a job, before its states are examined.

    Raises:
        InputError: No part of the machine can hold such a group, or as `check_job`.
    """
    room = _room(machine, group)
    if job is not None:
        check_job(machine.topology.name, room, group, job)


def _room(machine: Machine, group: int) -> int:
    """Return the NPUs in groups where nothing is faulty.

    Raises:
        InputError: No part of the machine can hold such a group.
    """
    return int(machine.usable(group, np.zeros((1, machine.npus), np.bool_))[0])


def waste_of(machine: Machine, group: int, states: MachineStates) -> Waste:
    """Return the waste of a machine for groups of a number of NPUs.

    Raises:
        InputError: The units do not divide the machine, or no part of it can hold such a group.
    """
    left = machine.usable_of(group, CopyStates.of_units(machine, states.faulty))
    return Waste(
        machine.topology.name,
        machine.npus,
        machine.copies,
        group,
        states.share,
        states.begin,
        states.faulty.mean(axis=1),
        left,
        _explosion_radius(machine, group, states.faulty.shape[1]),
        _room(machine, group),
    )


def availability_of(machine: Machine, group: int, share: F64, states: CopyStates) -> float:
    """Return `Waste.availability` of a machine without the rest of its waste.

    Args:
        machine: The machine.
        group: The NPUs of a group.
        share: [E] of the time that each state lasts.
        states: The states of the copies of the machine's topology.

    Raises:
        InputError: No part of the machine can hold such a group.
    """
    return float(share @ machine.usable_of(group, states)) / machine.npus


def _explosion_radius(machine: Machine, group: int, units: int) -> int:
    """Return the fault explosion radius: the largest number of NPUs that one faulty unit makes unusable for groups.

    Args:
        machine: The machine.
        group: The NPUs of a group.
        units: The number of units (nodes, for example) into which the machine's NPUs are divided; a unit fails as a whole.
    """
    each, copy = machine.npus // units, machine.topology.n_npus
    alike = Machine(machine.topology, lcm(copy, each) // copy)  # further units lie in their copies as these do
    whole = alike.usable(group, np.zeros((1, alike.npus), np.bool_))
    first = np.arange(0, alike.npus, each)
    left = [
        alike.usable(group, _states_with_one_fault(at, each, alike.npus)).min()
        for at in np.array_split(first, -(-alike.npus * len(first) // _CHUNK))
    ]
    return int(whole[0] - min(left))


def _states_with_one_fault(first: I64, each: int, npus: int) -> Bool:
    """Return [E, N] states in each of which only the NPUs of one unit are faulty; `first` has the unit's first NPU."""
    return np.asarray(np.arange(npus) // each == first[:, None] // each)


@dataclass(frozen=True, slots=True)
class CheckpointLoss:
    """The interval at which a job saves, and the share of the time that it loses to checkpoints, faults and restarts."""

    interval_s: float  # of work from one checkpoint to the next
    lost: float  # share of the time that is no work that lasts


def least_checkpoint_loss(checkpoint_s: float, restart_s: float, mtbf_s: float) -> CheckpointLoss:
    """Return the interval between checkpoints that loses the least time, and the share of the time that is lost.

    Daly, A higher order estimate of the optimum checkpoint interval for restart dumps, FGCS 22 (2006): equation 37 for the
    interval, whose first term is Young's (CACM 17, 1974); equation 20 for the time that exponential faults make of it.

    Args:
        checkpoint_s: The time of a checkpoint, delta.
        restart_s: The time of a restart, R.
        mtbf_s: The mean time between two faults that interrupt the job, M: not that of one of its nodes.

    Raises:
        InputError: The time of a checkpoint or between faults is not above 0, or the time of a restart is below 0.
    """
    for name, value in (("--checkpoint", checkpoint_s), ("the mean time between faults", mtbf_s)):
        if value <= 0:
            raise must_be("faults", name, "a time above 0", f"{value:g} s")
    if restart_s < 0:
        raise must_be("faults", "--restart", "a time of 0 or more", f"{restart_s:g} s")
    interval = _interval(checkpoint_s, mtbf_s)
    whole = mtbf_s * exp(min(restart_s / mtbf_s, 700.0)) * expm1(min((interval + checkpoint_s) / mtbf_s, 700.0))
    return CheckpointLoss(interval, 1 - interval / whole)


def _interval(delta: float, mtbf: float) -> float:
    """Return the best time between checkpoints by Daly's formula.

    Args:
        delta: The time that a checkpoint takes.
        mtbf: The mean time between failures, in the same unit.
    """
    if delta >= 2 * mtbf:
        return mtbf
    x = sqrt(delta / (2 * mtbf))
    return sqrt(2 * delta * mtbf) * (1 + x / 3 + x * x / 9) - delta
