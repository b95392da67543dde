"""Random packets among all chips of a fabric (RailX 6.1.2, 6.3): throughput, and latency of a packet.

A packet has 4 flits and goes to a random chip. Links share max-min fairly; buffers, virtual channels and routers are not
modelled. A cycle is a tenth of the longest link's latency (6.1.2); a port carries one flit in it.
"""

from dataclasses import replace
from functools import cache

import numpy as np

from emu.arrays import F64, I64, column
from emu.collective.schedule import Schedule, Sends
from emu.fabric.graph import Graph
from emu.fabric.lower import lower
from emu.fabric.run import run
from emu.topology.topology import Topology
from emu.units import TICKS_PER_S
from launch.papers.topology_counts import build_once

_FLITS, _PORTS, _ROUNDS = 4, 8, 16  # flits of a packet; ports of a chip (m=4, n=2); packets of each port
_CYCLES = 10  # cycles of the longest link's latency (6.1.2)
_OFFERED = 120  # cycles in which packets are offered; only the middle half counts


@cache
def saturated_throughput(word: str, ports: int = _PORTS) -> float:
    """Return the flits of a chip in a cycle while no port is idle, measured over the middle half of all packets.

    Args:
        word: The topology; its slowest link is one port.
        ports: The ports of a chip; each has one packet under way, and then the next.
    """
    topology = build_once(word)
    arrived = np.sort(_arrivals_s(topology, ports))
    first, last = len(arrived) // 4, 3 * len(arrived) // 4
    return float((last - first) * _FLITS / topology.n_npus / ((arrived[last] - arrived[first]) / _cycle_s(topology)))


@cache
def latency(word: str, load: float, ports_a_link: int = 1) -> float:
    """Return the mean number of cycles from the offer of a packet until all of it has arrived.

    Args:
        word: The topology.
        load: The flits that each chip offers in a cycle, at random times.
        ports_a_link: The ports of the slowest link.
    """
    topology, rng = build_once(word), np.random.default_rng(0)
    n = topology.n_npus
    number = round(n * load / _FLITS * _OFFERED)
    at, src = rng.uniform(0, _OFFERED * _cycle_s(topology), number), rng.integers(n, size=number)
    dst = (src + rng.integers(1, n, number)) % n
    packets = np.arange(number)  # a channel for each, because packets of one pair and channel are one message
    graph = _graph(topology, Schedule.build(n, number, [Sends(src, dst, packets, channel=packets)]), ports_a_link)
    ready = column(
        np.r_[np.round(at * TICKS_PER_S), np.zeros(graph.n_tasks - number)], np.int64
    )  # the first tasks are the packets
    took_s = (run(replace(graph, ready_fs=ready)).end_fs - ready)[:number] / TICKS_PER_S
    middle = np.abs(at / _cycle_s(topology) - _OFFERED / 2) < _OFFERED / 4
    return float(took_s[middle].mean() / _cycle_s(topology))


def _cycle_s(topology: Topology) -> float:
    """Return the seconds of a cycle."""
    return int(topology.links.latency_fs.max()) / TICKS_PER_S / _CYCLES


def _graph(topology: Topology, packets: Schedule, ports_a_link: int = 1) -> Graph:
    """Return the tasks of the packets."""
    rate_Bps = float(topology.links.bandwidth_Bps.min()) / ports_a_link
    sizes = np.full(packets.n_slots, round(_FLITS * _cycle_s(topology) * rate_Bps))
    return lower(packets, sizes, topology, np.arange(topology.n_npus, dtype=np.int32)).graph


def _arrivals_s(topology: Topology, ports: int) -> F64:
    """Return [packets] the seconds until each packet has arrived."""
    rng, n = np.random.default_rng(0), topology.n_npus
    src, port = np.repeat(np.arange(n), ports), np.tile(np.arange(ports), n)
    rounds = []
    for number in range(_ROUNDS):
        away: I64 = rng.integers(1, n, src.size)
        rounds.append(Sends(src, (src + away) % n, np.arange(src.size) + number * src.size, channel=port))
    found = run(_graph(topology, Schedule.build(n, _ROUNDS * src.size, rounds))).end_fs / TICKS_PER_S
    return np.asarray(found, np.float64)
