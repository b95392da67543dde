"""Figure 14 of the RailX paper (6.1.2, 6.3): the throughput of an all_to_all, and throughput and latency of random packets.

A packet has 4 flits and goes to a random chip. Links share max-min fairly, without buffers, virtual channels and routers; one
row is by packets, with the buffers of table 5 and credits. A cycle is a tenth of the longest link's latency (6.1.2); a port
carries one flit in it. A port has the same rate on every fabric, and a chip has 8 of them; several ports to one neighbour are
one link.
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from typing import NamedTuple

import numpy as np

from emu.arrays import I64, column
from emu.collective.schedule import Schedule, Sends
from emu.fabric.engine.packets.packet_network import network_of
from emu.fabric.graph import Graph
from emu.fabric.lower import FabricJob, lower
from emu.fabric.run import run_graph
from emu.topology.topology import Topology
from emu.units import TICKS_PER_S
from launch.papers.networks import build_once, collective_s, run_by_packets
from launch.papers.railx.counts import HYPERX, line_cost
from launch.papers.targets import Answer

_FLITS, PORTS, _ROUNDS = 4, 8, 16  # flits of a packet; ports of a chip (m=4, n=2); packets of each port
PORT_BPS = 50e9  # bytes per second of a port
_CYCLES = 10  # cycles of the longest link's latency (6.1.2)
_OFFERED = 120  # cycles in which packets are offered; only the middle half counts


@cache
def saturated_throughput(word: str, ports: int = PORTS) -> float:
    """Return the flits of a chip in a cycle while no port is idle, measured over the middle half of all packets.

    Args:
        word: The topology.
        ports: The ports of a chip; each has one packet under way, and then the next.
    """
    topology = build_once(word)
    packets = _offered(topology, ports)
    return _throughput_of(topology, run_graph(_graph(topology, packets)).end_fs)


def throughput_with_credits(word: str, buffer: int) -> float:
    """Return the throughput of `saturated_throughput` by packets that wait for credits, on the lanes of the topology's routes.

    Args:
        word: The topology.
        buffer: The flits for which each channel of a link has room (16 in table 5).
    """
    topology = build_once(word)
    flit = round(_cycle_s(topology) * PORT_BPS)
    network = network_of(
        "ub", payload_bytes=_FLITS * flit, header_bytes=0, credit_bytes=buffer * flit, forwarding="cut-through"
    )
    packets = _offered(topology, PORTS)
    run = run_by_packets(packets, _FLITS * flit, topology, network)
    return _throughput_of(topology, run.timeline.end_fs[: packets.n_slots])


def _throughput_of(topology: Topology, end_fs: I64) -> float:
    """Return the flits of a chip in a cycle over the middle half of packets that arrive at these ticks [packets]."""
    arrived = np.sort(end_fs) / TICKS_PER_S
    first, last = len(arrived) // 4, 3 * len(arrived) // 4
    return float((last - first) * _FLITS / topology.n_npus / ((arrived[last] - arrived[first]) / _cycle_s(topology)))


@cache
def latency(word: str, load: float) -> float:
    """Return the mean number of cycles between the offer of a packet and its complete arrival.

    Args:
        word: The topology.
        load: The flits that each chip offers in a cycle, at random times.
    """
    topology, rng = build_once(word), np.random.default_rng(0)
    n = topology.n_npus
    number = round(n * load / _FLITS * _OFFERED)
    at, src = rng.uniform(0, _OFFERED * _cycle_s(topology), number), rng.integers(n, size=number)
    dst = (src + rng.integers(1, n, number)) % n
    packets = np.arange(number)  # a channel for each, because packets of one pair and channel are one message
    graph = _graph(topology, Schedule.build(n, number, [Sends(src, dst, packets, channel=packets)]))
    # The first tasks are the packets.
    ready = column(np.r_[np.round(at * TICKS_PER_S), np.zeros(graph.n_tasks - number)], np.int64)
    took_s = (run_graph(replace(graph, ready_fs=ready)).end_fs - ready)[:number] / TICKS_PER_S
    middle = np.abs(at / _cycle_s(topology) - _OFFERED / 2) < _OFFERED / 4
    return float(took_s[middle].mean() / _cycle_s(topology))


def _cycle_s(topology: Topology) -> float:
    """Return the seconds of a cycle, of which the largest latency of a link is a fixed number."""
    return int(topology.links.latency_fs.max()) / TICKS_PER_S / _CYCLES


def _graph(topology: Topology, packets: Schedule) -> Graph:
    """Return a graph with a message for each packet of a schedule."""
    sizes = np.full(packets.n_slots, round(_FLITS * _cycle_s(topology) * PORT_BPS))
    return lower(FabricJob(packets, sizes, topology, np.arange(topology.n_npus, dtype=np.int32))).graph


def _offered(topology: Topology, ports: int) -> Schedule:
    """Return the packets that ports of all chips send to chips drawn at random, one after another."""
    rng, n = np.random.default_rng(0), topology.n_npus
    src, port = np.repeat(np.arange(n), ports), np.tile(np.arange(ports), n)
    rounds = []
    for number in range(_ROUNDS):
        away: I64 = rng.integers(1, n, src.size)
        rounds.append(Sends(src, (src + away) % n, np.arange(src.size) + number * src.size, channel=port))
    return Schedule.build(n, _ROUNDS * src.size, rounds)


@cache
def all_to_all(word: str) -> float:
    """Return the flits of a chip in a cycle during an all_to_all."""
    n, item = build_once(word).n_npus, 2**20
    return (n - 1) * item / collective_s(word, "all_to_all", "at-once", n, n * item) / PORT_BPS


class ChipFabric(NamedTuple):
    """A fabric of about 1,300 chips with 8 ports each."""

    name: str
    word: str
    line: str  # the line of the cost table that has such a fabric at its full size; "": none

    def through(self) -> float:
        """Return the flits of a chip in a cycle during an all_to_all of large messages."""
        return all_to_all(self.word)

    def loads(self) -> list[float]:
        """Return the loads that the fabric can carry without end, in flits of a chip in a cycle."""
        most = 0.95 * self.through()
        return [load for load in (0.05, *np.arange(1, 9) / 10) if load <= most]

    def latency(self, load: float) -> float:
        """Return the mean latency of a packet in cycles, at a load given as a share of what ports can send."""
        return latency(self.word, load)

    def dollars(self) -> float:
        """Return the cost in dollars for each GB/s of a chip in an all_to_all, at full size."""
        return line_cost(self.line).dollars_per_injection_GBps / (self.through() / PORTS)


BY_K = {k: ChipFabric(f"RailX, k={k}", f"{HYPERX},k={k}", "Rx4") for k in (1, 2, 4)}
OTHERS = (
    ChipFabric("HammingMesh", "hammingmesh:boards=9x9,side=4,planes=2", "Hx4"),
    ChipFabric("2D torus", "torus:dims=36x36,bandwidth=100GB/s,latency=300ns", ""),
)
TREE = ChipFabric("fat tree", "fat-tree:radix=52,planes=8", "2FT")


def _throughput() -> Answer:
    """Return the throughput of random packets."""
    word = f"{HYPERX},k=4"
    words = (
        "packets of 4 flits to chips drawn at random, one under way from each of a chip's 8 ports; links share max-min fairly: "
        "no buffers, virtual channels or routers are modelled"
    )
    others = (
        f"with 4 under way {saturated_throughput(word, 4):.2f}; an all_to_all of 1 MiB a pair, at once, {all_to_all(word):.2f}"
    )
    return Answer(saturated_throughput(word), (words, others, "the bound by equation 3 is 1.125"))


def _throughput_with_credits() -> Answer:
    """Return the throughput of random packets where links have the buffers of table 5."""
    word = f"{HYPERX},k=4"
    words = "packets of 4 flits, cut through, with credits for 16 flits a channel (table 5), on the channels of the routes"
    wider = ", ".join(f"{flits} flits {throughput_with_credits(word, flits):.2f}" for flits in (24, 32))
    return Answer(throughput_with_credits(word, 16), (words, f"with room for {wider}"))


def _throughput_by_k() -> Answer:
    """Return how the throughput grows with the bandwidth k of links inside nodes."""
    by = {k: drawn.through() for k, drawn in BY_K.items()}
    words = ", ".join(f"k={k} {found:.2f}" for k, found in by.items())
    return Answer(words, holds=by[2] > 1.5 * by[1] and by[4] < 1.25 * by[2])


def _best() -> Answer:
    """Return the throughput and the latency of RailX, and whether both are better than those of the other fabrics."""
    ours, load = BY_K[4], 0.3
    through = {each: each.through() for each in (ours, *OTHERS, TREE)}
    cycles = {each: each.latency(load) for each in (ours, *OTHERS)}
    words = "; ".join(f"{each.word} {through[each]:.2f}, {cycles[each]:.0f} cycles" for each in OTHERS)
    holds = all(through[ours] > through[each] and cycles[ours] < cycles[each] for each in OTHERS)
    told = f"flits a cycle and chip; cycles of a packet where each chip offers {load}; {words}"
    shares = ", ".join(f"{each.name} {100 * rate / PORTS:.1f} %" for each, rate in through.items())
    dollars = ", ".join(f"{each.name} {each.dollars() / TREE.dollars():.2f}" for each in (ours, OTHERS[0], TREE))
    costs = f"{dollars} times the fat tree's dollars for a GB/s of all_to_all, where the shares hold at the sizes of table 6"
    timed = f"a timed all_to_all takes of a chip's 8 ports: {shares}; {costs}"
    return Answer(f"{through[ours]:.2f}, {cycles[ours]:.0f} cycles", (told, timed), holds=holds)


ALL_TO_ALL: Mapping[str, Callable[[], Answer]] = {
    "rx-f14-thr": _throughput,
    "rx-f14-credits": _throughput_with_credits,
    "rx-f14-k1": _throughput_by_k,
    "rx-f14-best": _best,
}
