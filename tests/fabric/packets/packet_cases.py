"""Graphs on small topologies for the tests of the packet engine."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from emu.arrays import I64
from emu.fabric.engine.packets.packet_network import NETWORKS, PacketNetwork
from emu.fabric.graph import Graph
from emu.topology.catalogue import build_topology
from emu.topology.topology import Topology
from tests.fabric.reference import Task, graph_of

STAR = build_topology("switch:n=8,bandwidth=50GB/s,latency=500ns")
RING = build_topology("ring:n=6,bandwidth=50GB/s,latency=500ns")
TORUS = build_topology("torus:dims=4x4,bandwidth=50GB/s,latency=500ns")
TREE = build_topology("fat-tree:pgft:down=4x4,up=1x2,parallel=1x1,bandwidth=50GB/s,latency=500ns")
FABRICS = (STAR, RING, TORUS, TREE)
BARE = replace(
    NETWORKS["roce"], header_bytes=0, acks="none", pause_above_bytes=2**40, resume_below_bytes=2**40, queue_bytes=2**41
)
PACKET_FS = 4096 * 10**15 // (50 * 10**9)  # of a payload without headers

Sent = tuple[int, int, int]  # source, destination, bytes


def chain(folder: Path, *rates: str) -> Topology:
    """Return nodes in a row, whose links have these rates."""
    path = folder / "chain.csv"
    rows = [f"{i},{i + 1},{rate},500ns" for i, rate in enumerate(rates)]
    path.write_text("\n".join(["a,b,bandwidth,latency", *rows]), encoding="utf-8")
    return build_topology(str(path))


def messages(topology: Topology, sent: Sequence[Sent], waits: Sequence[Sequence[int]] = (), key: I64 | None = None) -> Graph:
    """Messages, each of which waits for the end of others; the keys of their routes are 0 if none are given."""
    src, dst, _ = (np.array(c, np.int64) for c in zip(*sent, strict=True))
    routes = topology.routes(src, dst, np.zeros(len(sent), np.int64) if key is None else key)
    tasks = []
    for v, (_, _, size) in enumerate(sent):
        links = routes.of(v).tolist()
        alpha = int(topology.links.latency_fs[links].sum())
        preds = tuple((p, False) for p in waits[v]) if waits else ()
        tasks.append(Task(size=size, alpha=alpha, hops=tuple((k, 1) for k in links), preds=preds))
    return graph_of(topology.links.bandwidth_Bps.tolist(), tasks)


def rounds_of_ring(topology: Topology, n: int, size: int) -> Graph:
    """A ring all-reduce: each message waits for the one before it from the left, and for its own sender's last one."""
    sent, waits = [], []
    for t in range(2 * (n - 1)):
        for r in range(n):
            sent.append((r, (r + 1) % n, size))
            waits.append([(t - 1) * n + (r - 1) % n, (t - 1) * n + r] if t else [])
    return messages(topology, sent, waits)


def wire_bytes(network: PacketNetwork, size: int) -> int:
    """The bytes on the wire of a message."""
    return size + network.header_bytes * -(-size // network.payload_bytes)
