"""Times of collectives on what is built: of one, and of several that run at once."""

import numpy as np

from emu.arrays import I64
from emu.collective.algorithm import algorithm
from emu.collective.operation import operation
from emu.collective.schedule import Schedule, Sends
from emu.collective.shape import Shape
from emu.collective.transform import on_channels
from emu.fabric.lower import lower
from emu.fabric.run import run
from emu.study.timing.collective import time_collective
from emu.topology.topology import Topology
from emu.units import TICKS_PER_S
from launch.papers.wiring import built


def collective_s(
    word: str, operation_name: str, name: str, shape: Shape, size: int, *, channels: int = 1, npus: I64 | None = None
) -> float:
    """Seconds of one of so many bytes; its rank i is on NPU i unless told."""
    plan = on_channels(algorithm(operation_name, name).stored(shape), channels)
    at = np.arange(plan.n_ranks) if npus is None else npus
    found = time_collective(operation(operation_name, plan.n_ranks), plan, size // 4, 4, built(word), at.astype(np.int32))
    return int(found.end_fs.max()) / TICKS_PER_S


def together(plan: Schedule, groups: I64, n: int) -> Schedule:
    """A schedule of n NPUs by which each group [groups, ranks] of them does the same, in slots and channels of its own."""
    of, each = plan.expand(), np.arange(len(groups))
    channel = np.add.outer(each * (int(of.channel.max(initial=0)) + 1), of.channel)
    slot = np.add.outer(each * plan.n_slots, of.slot)
    reduce = np.broadcast_to(of.reduce, slot.shape)
    rounds = [
        Sends(
            groups[:, of.src[rows]].ravel(),
            groups[:, of.dst[rows]].ravel(),
            slot[:, rows].ravel(),
            reduce=reduce[:, rows].ravel(),
            channel=channel[:, rows].ravel(),
        )
        for rows in of.rounds()
    ]
    return Schedule.build(n, len(groups) * plan.n_slots, rounds)


def time_s(schedule: Schedule, size: int, topology: Topology) -> float:
    """Seconds until all is done, where each slot has so many bytes."""
    slots = np.full(schedule.n_slots, size)
    return run(lower(schedule, slots, topology, np.arange(schedule.n_ranks, dtype=np.int32)).graph).end_s


def time_together_s(word: str, operation_name: str, shape: Shape, groups: I64, size: int, topology: Topology) -> float:
    """Seconds until all groups have done a collective of so many bytes."""
    plan = algorithm(operation_name, word).schedule(shape)
    return time_s(together(plan, groups, topology.n_npus), size // plan.n_slots, topology)
