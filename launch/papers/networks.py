"""Counts and times on built topologies: nodes of a kind, cables, bandwidths, and collectives alone or several at once."""

from functools import cache

import numpy as np

from emu.arrays import I64, Bool
from emu.collective.algorithm import algorithm
from emu.collective.operation import operation
from emu.collective.schedule import Schedule, Sends
from emu.collective.shape import Shape
from emu.collective.transform import on_channels
from emu.fabric.lower import FabricJob, lower
from emu.fabric.run import run
from emu.study.timing.collective import CollectiveJob, time_collective
from emu.topology.catalogue import build_topology
from emu.topology.topology import Topology
from emu.units import TICKS_PER_S

GBPS = 1e9 / 8  # bytes per second


@cache
def build_once(word: str) -> Topology:
    """Return the topology that a word names, such as `hpn:pod:backup=8`; each is built once."""
    return build_topology(word)


def is_of_tier(topology: Topology, word: str) -> Bool:
    """Return [L] whether a link is of the tier with this name."""
    return np.asarray(topology.links.dimension == topology.tiers.index(word))


def above(topology: Topology, tier: str) -> I64:
    """Return the switches at the upper end of a tier's links; upper nodes have higher numbers."""
    links, of = topology.links, is_of_tier(topology, tier)
    return np.unique(np.maximum(links.src[of], links.dst[of])).astype(np.int64)


def out_of(topology: Topology, node: int, to: I64) -> tuple[float, int]:
    """Return the links from a node to some others: the bytes per second of all together, and their number."""
    chosen = (topology.links.src == node) & np.isin(topology.links.dst, to)
    return float(topology.links.bandwidth_Bps[chosen].sum()), int(chosen.sum())


def collective_s(
    word: str, operation_name: str, name: str, shape: Shape, size: int, *, channels: int = 1, npus: I64 | None = None
) -> float:
    """Return the seconds of one collective.

    Args:
        word: The topology.
        operation_name: The operation.
        name: The algorithm.
        shape: The shape of the ranks.
        size: The bytes of one rank's buffer.
        channels: The number of channels over which slots are spread.
        npus: [ranks] the NPU of each rank; None: rank i is on NPU i.
    """
    plan = on_channels(algorithm(operation_name, name).stored(shape), channels)
    at = np.arange(plan.n_ranks) if npus is None else npus
    found = time_collective(
        CollectiveJob(operation(operation_name, plan.n_ranks), plan, size // 4, 4, build_once(word), at.astype(np.int32))
    )
    return int(found.end_fs.max()) / TICKS_PER_S


def concurrent_schedule(plan: Schedule, groups: I64, n: int) -> Schedule:
    """Return a schedule of n NPUs in which each group runs the given schedule, with slots and channels of its own.

    Args:
        plan: The schedule of one group.
        groups: [groups, ranks] the NPUs of each group.
        n: The number of NPUs.
    """
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
    """Return the seconds until a schedule is complete, with this number of bytes in each slot."""
    slots = np.full(schedule.n_slots, size)
    return run(lower(FabricJob(schedule, slots, topology, np.arange(schedule.n_ranks, dtype=np.int32))).graph).end_s


def concurrent_time_s(word: str, operation_name: str, shape: Shape, groups: I64, size: int, topology: Topology) -> float:
    """Return the seconds until all groups have completed a collective.

    Args:
        word: The algorithm.
        operation_name: The operation.
        shape: The shape of a group.
        groups: [groups, ranks] the NPUs of each group.
        size: The bytes of one rank's buffer.
        topology: The topology.
    """
    plan = algorithm(operation_name, word).schedule(shape)
    return time_s(concurrent_schedule(plan, groups, topology.n_npus), size // plan.n_slots, topology)
