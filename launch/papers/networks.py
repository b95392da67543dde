"""Counts and times on built topologies, for rows of papers: NPUs, parts, and one or several collectives."""

from functools import cache

import numpy as np

from emu.arrays import I64
from emu.collective.algorithm import algorithm
from emu.collective.operation import operation
from emu.collective.schedule import Schedule, Sends
from emu.collective.shape import Shape
from emu.fabric.engine.packets.packet_network import PacketNetwork
from emu.fabric.engine.packets.packet_run import PacketRun, run_packets, ways_of
from emu.fabric.lower import FabricJob, lower
from emu.fabric.run import run_graph
from emu.study.timing import CollectiveJob, time_collective
from emu.topology.catalogue import build_topology
from emu.topology.topology import Topology
from emu.units import TICKS_PER_S

GBPS = 1e9 / 8  # bytes per second


@cache
def build_once(word: str) -> Topology:
    """Return the topology of a text such as `hpn:pod:backup=8`, from a cache."""
    return build_topology(word)


def npus(word: str) -> int:
    """Return the number of NPUs of a topology."""
    return build_once(word).n_npus


def parts(word: str, part: str) -> int:
    """Return the number of parts of one kind, such as `switch`, in the bill of parts of a topology.

    Args:
        word: The topology with its settings, as `--topology` takes it.
        part: The kind, as the bill names it.
    """
    return build_once(word).bill[part]


def collective_s(word: str, operation_name: str, name: str, shape: Shape, size: int, at: I64 | None = None) -> float:
    """Return the seconds of one collective.

    Args:
        word: The topology.
        operation_name: The operation.
        name: The algorithm.
        shape: The shape of the ranks.
        size: The bytes of one rank's buffer.
        at: [ranks] the NPU of each rank; None: rank i is on NPU i.
    """
    return plan_s(word, operation_name, algorithm(operation_name, name).compact_schedule(shape), size, at)


def plan_s(word: str, operation_name: str, plan: Schedule, size: int, at: I64 | None = None) -> float:
    """Return the seconds of one collective with a given schedule; see `collective_s` for the other arguments."""
    npu_of = (np.arange(plan.n_ranks) if at is None else at).astype(np.int32)
    job = CollectiveJob(operation(operation_name, plan.n_ranks), plan, size // 4, 4, build_once(word), npu_of)
    return int(time_collective(job).end_fs.max()) / TICKS_PER_S


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
    return run_graph(lower(FabricJob(schedule, slots, topology, np.arange(schedule.n_ranks, dtype=np.int32))).graph).end_s


def all_reduces_s(word: str, name: str, shape: Shape, groups: I64, size: int) -> float:
    """Return the seconds until all groups have completed an all_reduce.

    Args:
        word: The topology.
        name: The algorithm.
        shape: The shape of a group.
        groups: [groups, ranks] the NPUs of each group.
        size: The bytes of one rank's buffer.
    """
    plan, topology = algorithm("all_reduce", name).schedule(shape), build_once(word)
    return time_s(concurrent_schedule(plan, groups, topology.n_npus), size // plan.n_slots, topology)


def run_by_packets(plan: Schedule, size: int, topology: Topology, network: PacketNetwork) -> PacketRun:
    """Return the run of a schedule by packets, in which each slot has `size` bytes and rank i is on NPU i."""
    npus = np.arange(topology.n_npus, dtype=np.int32)
    lowered = lower(FabricJob(plan, np.full(plan.n_slots, size), topology, npus))
    ways = ways_of(lowered.graph, topology, network, lowered.route_keys)
    return run_packets(lowered.graph, topology, network, ways=ways)
