"""An HPN as its tests look at it: which node is what, what leads out of it, and which a route passes."""

import networkx as nx
import numpy as np

POD = "hpn:pod:dims=3x4x2,aggs=3"
PAPER = "hpn:pod:backup=8"
PORT = 25e9


def firsts(topology):
    """First switch of NVLink, ToR, Agg, Core, and the end."""
    counts = [topology.bill.get(f"{kind} switch", 0) for kind in ("ToR", "Agg", "Core")]
    ends = np.cumsum([topology.n_npus, topology.bill["host"], *counts])
    assert ends[-1] == topology.n_nodes
    return ends.tolist()


def of_kind(topology, kind):
    first = firsts(topology)
    place = ("host", "ToR", "Agg", "Core").index(kind)
    return np.arange(first[place], first[place + 1])


def out_of(topology, node, to):
    """Bandwidth and cables from a node to each kind of node above or below it."""
    chosen = (topology.links.src == node) & np.isin(topology.links.dst, to)
    return topology.links.bandwidth_Bps[chosen].sum(), int(chosen.sum())


def nodes_on(topology, src, dst, key=0):
    routes = topology.routes(np.array([src]), np.array([dst]), np.array([key]))
    return [src, *topology.links.dst[routes.of(0)].tolist()]


def switches_on(topology, nodes):
    return [node for node in nodes[1:-1] if node >= firsts(topology)[1]]


def graph_of(topology):
    graph = nx.MultiDiGraph()
    graph.add_nodes_from(range(topology.n_nodes))
    graph.add_edges_from(zip(topology.links.src.tolist(), topology.links.dst.tolist(), strict=True))
    return graph
