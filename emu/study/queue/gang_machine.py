"""A machine that is shared by jobs: which places serve and are free, where a gang finds room, and what NPU time goes to.

A place is an NPU of the machine, or the backup that stands in for it. Letters: N places.
"""

from collections import Counter
from collections.abc import Callable

import numpy as np
from cachetools import LRUCache

from emu.arrays import I64, Bool, column
from emu.study.faults.waste import Machine
from emu.topology.gang_rule import NOWHERE, gang_placer

_KEPT = 2**12  # states of a copy whose largest job is kept
FREE, STOPPED = -1, -2  # holders of a place: none; jobs that have stopped and still save their state
# What the time of an NPU goes to, in the order of reports.
WORK, SAVING, STARTING, AGAIN, UNUSED = "work", "saving", "starting", "again", "unused"
FAULTY, OUT, FRAGMENTED, BLOCKED, IDLE = "faulty", "out", "fragmented", "blocked", "idle"
REASONS = {
    WORK: "work that lasts",
    SAVING: "checkpoints",
    STARTING: "starts from a checkpoint",
    AGAIN: "work lost to a fault and done again",
    UNUSED: "held by a job that asked for fewer NPUs, as its grid or box has more",
    FAULTY: "faulty",
    OUT: "without a fault, but out of service: backups, and hosts with a faulty NPU",
    FRAGMENTED: "free, and enough for the first job that waits, but not where it finds room",
    BLOCKED: "free, but too few for the first job that waits",
    IDLE: "free, and no job waits",
}


class GangMachine:
    """The places of a machine, with the job that holds each; groups stay within a copy of its topology."""

    def __init__(self, machine: Machine, npus_per_node: int) -> None:
        self.machine = machine
        self.holder = np.full(machine.npus, FREE, np.int64)  # [N] number of the job; or FREE, STOPPED
        self.serves = np.ones(machine.npus, np.bool_)  # [N] places that can take a job
        self._faults = np.zeros(machine.npus, np.int64)  # [N] faults that last
        self._node = npus_per_node
        self._place = gang_placer(machine.topology)
        self._backups: dict[int, frozenset[int]] = {}
        for copy in range(machine.copies):
            self._see(copy)
        self.whole = self.serves.copy()  # [N] places that serve without a fault
        self._ever: dict[tuple[int, int, bool], bool] = {}
        self._most: LRUCache[tuple[int, bytes], int] = LRUCache(_KEPT)

    @property
    def failed(self) -> Bool:
        """Marks [N] of the places whose NPU has failed and that no backup stands in for."""
        return np.asarray((self._faults > 0) & ~self.serves)

    @property
    def sound(self) -> Bool:
        """Marks [N] of the places whose own NPU works."""
        return np.asarray(self._faults == 0)

    @property
    def free(self) -> Bool:
        """Marks [N] of the places that serve and have no job."""
        return np.asarray(self.serves & (self.holder == FREE))

    def node(self, number: int) -> I64:
        """Return the NPUs that fail together with one another, by the number of their node."""
        return np.arange(number * self._node, (number + 1) * self._node)

    def fail(self, number: int) -> None:
        """Count a fault of a node."""
        self._change(number, 1)

    def repair(self, number: int) -> None:
        """Count the end of a fault of a node."""
        self._change(number, -1)

    def _change(self, number: int, by: int) -> None:
        npus, size = self.node(number), self.machine.topology.n_npus
        self._faults[npus] += by
        for copy in range(int(npus[0]) // size, int(npus[-1]) // size + 1):
            self._see(copy)

    def _see(self, copy: int) -> None:
        """Find out which places of a copy serve, now that its faults are others."""
        topology = self.machine.topology
        own = slice(copy * topology.n_npus, (copy + 1) * topology.n_npus)
        faulty = self._faults[own] > 0
        if topology.backups and topology.placer is not None:
            placed = topology.placer(topology.n_npus, np.flatnonzero(faulty))
            self.serves[own] = _with_backups(placed, faulty, self._backups_of)
        else:
            self.serves[own] = ~faulty

    def _backups_of(self, npu: int) -> frozenset[int]:
        """Return the backups that stand in for an NPU of the topology if it alone is faulty."""
        topology = self.machine.topology
        if npu not in self._backups:
            placed = topology.placer(topology.n_npus, column([npu], np.int64)) if topology.placer else NOWHERE
            self._backups[npu] = frozenset(placed[placed >= topology.n_npus].tolist())
        return self._backups[npu]

    def hold(self, places: I64, holder: int) -> None:
        """Give places to a job, or take them back with FREE."""
        self.holder[places] = holder

    def has_ever_room(self, size: int, group: int, *, in_one_copy: bool = False) -> bool:
        """Return whether a job has room on the machine without any fault and without other jobs."""
        key = size, group, in_one_copy
        if key not in self._ever:
            self._ever[key] = len(self.place(size, group, self.whole, in_one_copy=in_one_copy)) > 0
        return self._ever[key]

    def place(self, size: int, group: int, free: Bool, *, in_one_copy: bool = False) -> I64:
        """Return the places of a job among free ones; none without room for all of it.

        A job goes to one copy of the topology, the fullest that has room, or else to the emptiest ones together.

        Args:
            size: The NPUs of the job.
            group: The NPUs of a group.
            free: [N] the places that it may take.
            in_one_copy: Whether all of it must lie on one copy of the topology.
        """
        copies, n = self.machine.copies, self.machine.topology.n_npus
        if copies == 1:
            return self._place(size, group, free)
        apart = free.reshape(copies, n)
        left = apart.sum(axis=1)
        if left.sum() < size:
            return NOWHERE
        for copy in [int(c) for c in np.argsort(left, kind="stable") if left[c] >= size]:
            found = self._place(size, group, apart[copy])
            if len(found):
                return column(found + copy * n, np.int64)
        return NOWHERE if in_one_copy else self._over_copies(size, group, apart)

    def _over_copies(self, size: int, group: int, apart: Bool) -> I64:
        """Return the places of a job on several copies, those with most free places first; `apart` is [copies, NPUs]."""
        found, left = [], size
        if (apart.sum(axis=1) // group).sum() * group + group <= size:
            return NOWHERE
        for copy in np.argsort(-apart.sum(axis=1), kind="stable").tolist():
            served, part = self._most_groups(left, group, apart[copy])
            found.append(part + copy * apart.shape[1])
            left -= served
            if left <= 0:
                return column(np.concatenate(found), np.int64)
        return NOWHERE

    def _most_groups(self, size: int, group: int, free: Bool) -> tuple[int, I64]:
        """Return the most NPUs of a job, in whole groups, that have room on one copy, and the places that they hold there.

        They hold more places than they are NPUs where groups are filled up to whole blocks.
        """
        for count in range(min(-(-size // group), int(free.sum()) // group), 0, -1):
            found = self._place(min(size, count * group), group, free)
            if len(found):
                return min(size, count * group), found
        return 0, NOWHERE

    def largest(self, group: int) -> int:
        """Return the NPUs of the largest job of whole groups that could start now."""
        copies = self.free.reshape(self.machine.copies, -1)
        return sum(self._groups_on(group, free) for free in copies) * group

    def _groups_on(self, group: int, free: Bool) -> int:
        """Return the number of groups of the largest job on one copy."""
        key = group, np.packbits(free).tobytes()
        if key not in self._most:
            low, high = 0, int(free.sum()) // group
            while low < high:
                middle = (low + high + 1) // 2
                low, high = (middle, high) if len(self._place(middle * group, group, free)) else (low, middle - 1)
            self._most[key] = low
        return self._most[key]


def _with_backups(placed: I64, faulty: Bool, backups_of: Callable[[int], frozenset[int]]) -> Bool:
    """Return [N] which places serve if a system's placement has backups, which are not of the N NPUs, for faulty NPUs.

    Args:
        placed: The NPUs that serve, in the order of the placement.
        faulty: [N] the faulty NPUs.
        backups_of: Gives the backups that stand in for an NPU if it alone is faulty.
    """
    serves = np.zeros(len(faulty), np.bool_)
    serves[placed[placed < len(faulty)]] = True
    left = set(placed[placed >= len(faulty)].tolist())
    for npu in np.flatnonzero(faulty).tolist():
        if own := left & backups_of(npu):
            serves[npu] = True
            left.remove(min(own))
    return serves


class NpuTime:
    """The NPU time of a machine by what it went to, in NPU-microseconds."""

    def __init__(self) -> None:
        self.spent_us: Counter[str] = Counter(dict.fromkeys(REASONS, 0))
        self._rate: dict[str, int] = {}
        self._since_us = 0

    def add(self, reason: str, npu_us: int) -> None:
        """Add time of NPUs that a job holds."""
        self.spent_us[reason] += npu_us

    def change(self, now_us: int, rate: dict[str, int]) -> None:
        """Add the time until now of the NPUs that no job holds, and note how many there are from now on, by reason."""
        for reason, npus in self._rate.items():
            self.spent_us[reason] += npus * (now_us - self._since_us)
        self._rate, self._since_us = rate, now_us
