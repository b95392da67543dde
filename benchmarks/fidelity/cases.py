"""Messages that are sent over ns-3 and Emu alike: hosts hang on routers by one cable each, and all cables are alike."""

from dataclasses import dataclass

import numpy as np

from emu.arrays import I64
from emu.collective.algorithm import schedule
from emu.collective.operation import divide_blocks, operation
from emu.collective.schedule import Schedule, Sends

MIB = 2**20


@dataclass(frozen=True, eq=False, slots=True)
class Traffic:
    """Messages between hosts, with the cables that they may take."""

    case: str
    n_hosts: int
    cables: tuple[tuple[int, int], ...]  # hosts first, then routers
    plan: Schedule
    slot_bytes: I64

    @property
    def n_nodes(self) -> int:
        """The number of hosts and routers."""
        return 1 + max(map(max, self.cables))


def star(case: str, n: int, plan: Schedule, slot_bytes: I64) -> Traffic:
    """Hosts round one router."""
    return Traffic(case, n, tuple((host, n) for host in range(n)), plan, slot_bytes)


def collective(name: str, algorithm: str, n: int, size: int) -> Traffic:
    """A collective's schedule on a star."""
    plan = schedule(name, algorithm, n).expand()
    sizes = divide_blocks(operation(name, n).block_counts(size), plan.n_slots, plan.shares).count
    return star(f"{name} {algorithm}, {n} hosts, {size // MIB} MiB", n, plan, sizes)


def into_one(case: str, mib: tuple[int, ...]) -> Traffic:
    """Flows of so many MiB from host 1, 2, ... to host 0, all at once."""
    senders = np.arange(len(mib))
    plan = Schedule.build(len(mib) + 1, len(mib), [Sends(1 + senders, 0, senders)])
    return star(case, len(mib) + 1, plan, np.array(mib) * MIB)


def parking_lot(crossing: tuple[int, ...], mib: int) -> Traffic:
    """One flow along a line of routers, and on each cable between two of them so many others."""
    on = np.repeat(np.arange(len(crossing)), crossing)
    enters, leaves = np.append(0, on), np.append(len(crossing), on + 1)
    n = 2 * len(enters)
    src = np.arange(len(enters))
    plan = Schedule.build(n, n, [Sends(src, len(enters) + src, src)])
    ports = zip(range(n), (n + np.concatenate((enters, leaves))).tolist(), strict=True)
    line = ((n + i, n + i + 1) for i in range(len(crossing)))
    case = f"parking lot, {'-'.join(map(str, crossing))} crossing, {mib} MiB each"
    return Traffic(case, n, (*ports, *line), plan, np.full(n, mib * MIB))


ALL_TO_ALL = collective("all_to_all", "at-once", 8, 8 * MIB)
INCAST = into_one("incast of 7 x 1 MiB", (1,) * 7)
UNEQUAL = into_one("4 MiB and 1 MiB to one", (4, 1))
LOT = parking_lot((1, 2, 1), 4)
FAIR = (
    collective("all_reduce", "ring", 4, 4 * MIB),
    collective("all_reduce", "ring", 8, 16 * MIB),
    into_one("two flows of 1 MiB to one", (1, 1)),
    into_one("two flows of 4 MiB to one", (4, 4)),
    UNEQUAL,
    INCAST,
    ALL_TO_ALL,
    LOT,
)
QUEUED = (collective("all_reduce", "ring", 4, 4 * MIB), UNEQUAL, INCAST, ALL_TO_ALL, LOT)
