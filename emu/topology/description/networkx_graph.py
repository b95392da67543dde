"""Topologies from networkx graphs, or from the GraphML that networkx and other programs write.

An edge has `bandwidth` and `latency`, and may have `count`, `tier` and `cost`. A node may have `kind`, npu or switch. A
switch may have `adds`, whether it adds what it passes on.
"""

import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np

from emu.arrays import Bool, column
from emu.errors import InputError, must_be
from emu.files import read_input
from emu.topology.description.assembly import assemble
from emu.topology.description.canonical_order import TopologyDescription
from emu.topology.description.topology_file import ListedCable, NodeNames, by_kind, by_name, description_of, read_row
from emu.topology.description.values import BUILD_IT, ROUTING_KEYS, check_keys, read_bool, read_routing, read_word
from emu.topology.topology import Topology

_KINDS = ("npu", "switch")
_OF_GRAPH = ("bandwidth", "latency", *ROUTING_KEYS)
_OF_NODE = ("kind", "adds")
_OF_EDGE = ("bandwidth", "latency", "count", "tier", "cost")


def topology_of(graph: nx.Graph, name: str = "graph", **settings: object) -> Topology:
    """Return the topology of a networkx graph; an edge is a cable, or a one-way link if the graph is directed.

    A node is an NPU or a switch as its `kind` says. Where no node has a kind, nodes called 0, 1, 2, ... are NPUs and the others
    are switches. A switch with `adds=True` adds what it passes on. Parallel edges of a multigraph are parallel cables.

    Args:
        graph: Its edges, or the graph itself for all edges, have `bandwidth` and `latency`: texts with units.
        name: The name of the topology.
        **settings: Settings that win over the graph's own: bandwidth, latency, dims, routes ("shortest", "by-dimension"),
            npus_relay.

    Raises:
        InputError: A value is invalid, or the graph is no topology; the message names the node or the edge.
    """
    check_keys(settings, _OF_GRAPH, name)
    return assemble(describe(graph, name, settings, repeats=graph.is_multigraph()))


def read_graphml(path: Path, where: str) -> TopologyDescription:
    """Return the topology that a GraphML file describes.

    Raises:
        InputError: The file is no GraphML; or see `topology_of`.
    """
    data = read_input("topology", path, where, mend=BUILD_IT)
    try:
        graph = nx.read_graphml(io.BytesIO(data))
    except (SyntaxError, nx.NetworkXException, LookupError, ValueError, TypeError) as error:  # SyntaxError: of the XML
        raise InputError(f"{where}: no GraphML: {' '.join(str(error).split())}") from None
    return describe(graph, where, {})


def describe(graph: nx.Graph, where: str, settings: Mapping[str, object], *, repeats: bool = False) -> TopologyDescription:
    """Return the description of the topology in a networkx graph.

    Args:
        graph: See `topology_of`.
        where: The beginning of messages.
        settings: Settings that win over the graph's own.
        repeats: Whether parallel edges are parallel cables, and not one that is written twice.

    Raises:
        InputError: See `topology_of`.
    """
    check_keys(graph.graph, _OF_GRAPH, where, others=True)
    given = {key: value for key, value in graph.graph.items() if key in _OF_GRAPH} | dict(settings)
    defaults = {key: given[key] for key in ("bandwidth", "latency") if key in given}
    edges = [(str(a), str(b), defaults | of) for a, b, of in graph.edges(data=True)]
    listed, named = [_row(*edge, where) for edge in edges], _nodes(graph, where)
    return description_of(
        where,
        listed,
        named,
        lambda row: "edge {} to {}".format(*listed[row][:2]),
        routing=read_routing(given, where),
        one_way=graph.is_directed(),
        repeats=repeats,
        adders=_adders(graph, named, where),
    )


def _nodes(graph: nx.Graph, where: str) -> NodeNames:
    """Return the names of a graph's NPUs and switches, by the attribute `kind` of nodes, or else by their names."""
    kinds = {str(node): of.get("kind") for node, of in graph.nodes(data=True)}
    for node, of in graph.nodes(data=True):
        check_keys(of, _OF_NODE, f"{where}, node {node}", others=True)
    if not any(kind is not None for kind in kinds.values()):
        return by_name(kinds, where)
    return by_kind({node: read_word(kind, "kind", _KINDS, f"{where}, node {node}") for node, kind in kinds.items()}, where)


def _adders(graph: nx.Graph, named: NodeNames, where: str) -> Bool | None:
    """Return [nodes] marks of the switches whose attribute `adds` is true; None if there is no such switch.

    Raises:
        InputError: an NPU has the attribute.
    """
    names, n_npus = named
    told = {
        str(node): read_bool(of["adds"], "adds", f"{where}, node {node}")
        for node, of in graph.nodes(data=True)
        if of.get("adds") is not None
    }
    if wrong := [name for name in names[:n_npus] if name in told]:
        raise must_be(f"{where}, node {wrong[0]}", "adds", "given to switches only", told[wrong[0]], "leave it out of NPUs")
    return column([told.get(name, False) for name in names], np.bool_) if any(told.values()) else None


def _row(a: str, b: str, given: Mapping[str, Any], where: str) -> ListedCable:
    """Return the cable that one edge of a graph describes, from node a to node b."""
    here = f"{where}, edge {a} to {b}"
    check_keys(given, _OF_EDGE, here, others=True)
    for key, example in (("bandwidth", "50GB/s"), ("latency", "500ns")):
        if key not in given:
            raise InputError(f"{here}: no {key} is given; give the edge one such as '{example}', or the graph one for all")
    return read_row(a, b, given, here)
