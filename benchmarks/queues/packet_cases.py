"""The flows of a run of htsim as a graph on the same fabric, by the same routes, for the packet engine."""

import itertools
from dataclasses import replace

import numpy as np

from benchmarks.queues.reference import US_FS, HtsimRun
from emu.arrays import I64
from emu.fabric.engine.packets.packet_network import PacketNetwork, network_of
from emu.fabric.engine.packets.packet_run import PacketRun, run_packets, ways_of
from emu.fabric.engine.packets.ways import path_ways
from emu.fabric.graph import Graph
from emu.topology.topology import Routes

ACK_BYTES = 64
LONGEST = 4  # links of the longest path: up to a spine and down again
NETWORKS = {
    "roce": network_of("roce"),
    "roce+rr": network_of("roce", route="in-turn"),
    "roce+rnd": network_of("roce", route="random"),
    "roce+ar": network_of("roce", route="adaptive"),
    "uec": network_of("ultra-ethernet"),
    "uec+oblivious": network_of("ultra-ethernet", route="entropy"),
    "uec+ecmp": network_of("ultra-ethernet", route="hash"),
    "roce+dcqcn": network_of("roce", congestion="dcqcn", raise_bytes=10_000_000 * 4096),  # htsim counts packets as bytes
    "roce+rr+gbn": network_of("roce", route="in-turn", recovery="go-back-n", reorder_packets=64),
    "roce+ar+gbn": network_of("roce", route="adaptive", recovery="go-back-n", reorder_packets=64),
    "dctcp+ecmp": network_of("ultra-ethernet", route="hash", congestion="dctcp"),
}


def paths(run: HtsimRun, src: I64, dst: I64, spine: I64) -> Routes:
    """The links from each src to each dst over a spine, where they are not under one leaf."""
    links = run.topology.links
    number = {ends: link for link, ends in enumerate(zip(links.src.tolist(), links.dst.tolist(), strict=True))}
    n_hosts, found = run.leaves * run.hosts, []
    for a, b, s in zip(src.tolist(), dst.tolist(), spine.tolist(), strict=True):
        here, there = n_hosts + a // run.hosts, n_hosts + b // run.hosts
        over = [] if here == there else [n_hosts + run.leaves + s]
        nodes = [a, here, *over, *([there] if over else []), b]
        found.append([number[ends] for ends in itertools.pairwise(nodes)])
    return Routes.laid(np.array([len(own) for own in found]), np.concatenate(found))


def graph_of(run: HtsimRun, routes: Routes, late_fs: I64) -> Graph:
    """The flows as tasks, each of which starts a little later.

    Where htsim says only when the last acknowledgement came, and starts other flows then, its way back is a part of a task.
    """
    n, waits = len(run.src), run.after >= 0
    hops = np.diff(routes.start)
    latency = int(run.topology.links.latency_fs[0])
    back_fs = hops * (latency + int(ACK_BYTES * 1e15 / run.topology.links.bandwidth_Bps[0]))
    return Graph(
        capacity_Bps=run.topology.links.bandwidth_Bps,
        size_bytes=run.size_bytes,
        alpha_fs=hops * latency + (back_fs if run.ends_acknowledged else 0),
        ready_fs=run.ready_fs + np.where(waits, 0, late_fs),
        hop_start=routes.start,
        hop_link=routes.link,
        hop_weight=np.ones(len(routes.link), np.int32),
        pred_start=np.concatenate(([0], np.cumsum(waits))),
        pred=run.after[waits].astype(np.int32),
        pred_left=np.zeros(int(waits.sum()), np.bool_),
        owner=run.src.astype(np.int32),
        origin=np.arange(n, dtype=np.int32),
    )


def packet_us(run: HtsimRun) -> float:
    """The time of a packet on a link."""
    network = NETWORKS[run.transport]
    return network.wire_bytes(network.payload_bytes) * 1e6 / float(run.topology.links.bandwidth_Bps[0])


def round_trip_fs(run: HtsimRun) -> int:
    """Return the ticks of a packet and its acknowledgement over the longest path of the fabric; htsim tells its senders."""
    links, network = run.topology.links, NETWORKS[run.transport]
    n_bytes = network.wire_bytes(network.payload_bytes) + network.ack_bytes
    return LONGEST * (2 * int(links.latency_fs[0]) + int(n_bytes * 1e15 / float(links.bandwidth_Bps[0])))


def simulate(run: HtsimRun, seed: int, is_perturbed: bool, cell_bytes: int = 0) -> PacketRun:
    """The run by packets; perturbed, each flow starts up to the time of a packet later.

    What htsim draws at random (paths of acknowledgements, and where a path is not known the spine) is drawn here, too.
    """
    random = np.random.default_rng(seed)
    network: PacketNetwork = replace(NETWORKS[run.transport], cell_bytes=cell_bytes, round_trip_fs=round_trip_fs(run))
    spine = np.where(run.spine < 0, random.integers(run.spines, size=len(run.src)), run.spine)
    late = random.integers(int(packet_us(run) * US_FS), size=len(run.src)) if is_perturbed else np.zeros(len(run.src), np.int64)
    graph = graph_of(run, paths(run, run.src, run.dst, spine), late)
    ways = ways_of(graph, run.topology, network)
    if network.route == "hash":
        back = paths(run, run.dst, run.src, random.integers(run.spines, size=len(run.src)))
        ways = path_ways(graph, run.topology.links, back=back)
    return run_packets(graph, run.topology, network, seed, ways)
