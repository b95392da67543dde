"""Shortest paths, flows and cuts by networkx, against Emu's routes, cuts and bisections of small instances."""

from collections.abc import Iterator
from itertools import combinations
from math import inf

import networkx as nx
import numpy as np

from benchmarks.fidelity.row import Row, farthest
from emu.arrays import Bool
from emu.topology.catalogue import build_topology
from emu.topology.facts.facts import bisection, cut, diameter
from emu.topology.topology import Topology

# Of 8 or 9 NPUs each: all their halvings can be tried.
SMALL = (
    "ring:n=8,bandwidth=50GB/s,latency=500ns",
    "torus:dims=4x2,bandwidth=50GB/s,latency=500ns",
    "torus:dims=3x3,bandwidth=50GB/s,latency=500ns",
    "hypercube:d=3,bandwidth=50GB/s,latency=500ns",
    "full-mesh:n=8,bandwidth=50GB/s,latency=500ns",
    "switch:n=8,bandwidth=50GB/s,latency=500ns",
    "ub-mesh:board",
    "dgx-h100",
    "fat-tree:pgft:down=4x2,up=1x2,parallel=1x1",
)
# Whose routes are as short as can be, or why not.
LARGER = {
    "torus:dims=8x4x4,bandwidth=50GB/s,latency=500ns": "",
    "hypercube:d=6,bandwidth=50GB/s,latency=500ns": "",
    "fat-tree:radix=8": "",
    "ub-mesh:rack": "",
    "hammingmesh:boards=4x4,side=2": "",
    "dragonfly:p=2,a=4,h=2": "its routes take one global link, where two without a local one between are shorter",
}


def graph_of(topology: Topology) -> nx.DiGraph:
    """Nodes and links; parallel links are one of their joint bandwidth."""
    graph = nx.DiGraph()
    graph.add_nodes_from(range(topology.n_nodes))
    links = topology.links
    for src, dst, rate in zip(links.src.tolist(), links.dst.tolist(), links.bandwidth_Bps.tolist(), strict=True):
        joint = graph.get_edge_data(src, dst, {"capacity": 0})["capacity"] + rate
        graph.add_edge(src, dst, capacity=joint)
    return graph


def _paths(word: str, reason: str) -> Iterator[Row]:
    topology = build_topology(word)
    n, away = topology.n_npus, dict(nx.all_pairs_shortest_path_length(graph_of(topology)))
    src, dst = (a.ravel() for a in np.mgrid[0:n, 0:n])
    src, dst = src[src != dst], dst[src != dst]
    theirs = [away[a][b] for a, b in zip(src.tolist(), dst.tolist(), strict=True)]
    ours = topology.routes(src, dst, np.zeros_like(src)).hops.tolist()
    pairs, bound = zip(theirs, ours, strict=True), None if reason else 0.0
    yield farthest(f"networkx: shortest paths of {len(ours)} pairs, {word}", "links", pairs, bound, reason)
    yield Row(f"networkx: diameter, {word}", max(theirs), diameter(topology)[0] or 0, "links", 0.0)


def least_cut(graph: nx.DiGraph, low: Bool) -> float:
    """The lesser of the minimum cuts from the NPUs where `low` to the others and back."""
    joined = graph.copy()
    for npu, is_low in enumerate(low.tolist()):
        joined.add_edge("low" if is_low else "high", npu, capacity=inf)
        joined.add_edge(npu, "low" if is_low else "high", capacity=inf)
    return min(float(nx.minimum_cut_value(joined, *ends)) for ends in (("low", "high"), ("high", "low")))


def _cuts(word: str) -> Iterator[Row]:
    topology = build_topology(word)
    n, graph = topology.n_npus, graph_of(topology)
    chosen = (np.array((0, *rest)) for rest in combinations(range(1, n), n // 2 - 1))
    halvings = [np.isin(np.arange(n), low) for low in chosen]
    theirs = [least_cut(graph, low) for low in halvings]
    ours = [cut(topology, low) for low in halvings]
    pairs = zip(theirs, ours, strict=True)
    yield farthest(f"networkx: minimum cuts of {len(theirs)} halvings, {word}", "B/s", pairs, 1e-6)
    yield Row(f"networkx: bisection as the least of them, {word}", min(theirs), bisection(topology)[0], "B/s", 1e-6)


def rows() -> Iterator[Row]:
    """Paths of the larger ones, cuts of the small ones."""
    for word, reason in LARGER.items():
        yield from _paths(word, reason)
    for word in SMALL:
        yield from _cuts(word)
