"""Topologies from a user's own file; the suffix of its name gives the notation.

Also here: topologies as lists of cables in CSV: `a,b,bandwidth,latency`, and `count`, `tier` and `cost` where they are wanted.

Topologies from networkx graphs, or from the GraphML that networkx and other programs write.

An edge has `bandwidth` and `latency`, and may have `count`, `tier` and `cost`. A node may have `kind`, npu or switch.
"""

import csv
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import networkx as nx

from emu.errors import InputError, must_be
from emu.topology.description.assembly import TopologyDescription, assemble
from emu.topology.description.node_names import ListedCable, NodeNames, by_kind, by_name, description_of, read_row
from emu.topology.description.toml_groups import read_toml
from emu.topology.description.values import ROUTING_KEYS, check_keys, read_routing, read_word
from emu.topology.topology import Topology

_KINDS = ("npu", "switch")
_OF_GRAPH = ("bandwidth", "latency", *ROUTING_KEYS)
_OF_EDGE = ("bandwidth", "latency", "count", "tier", "cost")


def topology_of(graph: nx.Graph, name: str = "graph", **settings: object) -> Topology:
    """Return the topology of a networkx graph; an edge is a cable, or a one-way link in a directed graph.

    A node is an NPU or a switch as its `kind` says. Where no node has a kind, nodes called 0, 1, 2, ... are NPUs and the others
    are switches. Parallel edges of a multigraph are parallel cables.

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
    try:
        graph = nx.read_graphml(path)
    except (SyntaxError, nx.NetworkXException, LookupError, ValueError, TypeError) as error:  # SyntaxError: of the XML
        raise InputError(f"{where}: no GraphML: {' '.join(str(error).split())}") from None
    return describe(graph, where, {})


def describe(graph: nx.Graph, where: str, settings: Mapping[str, object], *, repeats: bool = False) -> TopologyDescription:
    """Return the topology that a graph describes.

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
    listed = [_graph_row(*edge, where) for edge in edges]
    return description_of(
        where,
        listed,
        _nodes(graph, where),
        partial(_graph_entry, listed),
        routing=read_routing(given, where),
        one_way=graph.is_directed(),
        repeats=repeats,
    )


def _graph_entry(listed: Sequence[ListedCable], number: int) -> str:
    """Return the name of an edge for messages."""
    return f"edge {listed[number].a} to {listed[number].b}"


def _nodes(graph: nx.Graph, where: str) -> NodeNames:
    """Return the names of a graph's nodes, as NPUs and switches by their `kind`, or by their names where none has a kind."""
    kinds = {str(node): of.get("kind") for node, of in graph.nodes(data=True)}
    for node, of in graph.nodes(data=True):
        check_keys(of, ("kind",), f"{where}, node {node}", others=True)
    if not any(kind is not None for kind in kinds.values()):
        return by_name(kinds, where)
    return by_kind({node: read_word(kind, "kind", _KINDS, f"{where}, node {node}") for node, kind in kinds.items()}, where)


def _graph_row(a: str, b: str, given: Mapping[str, Any], where: str) -> ListedCable:
    """Return the cable that one edge of a graph lists."""
    here = f"{where}, edge {a} to {b}"
    check_keys(given, _OF_EDGE, here, others=True)
    for key, example in (("bandwidth", "50GB/s"), ("latency", "500ns")):
        if key not in given:
            raise InputError(f"{here}: no {key} is given; give the edge one such as '{example}', or the graph one for all")
    return read_row(a, b, given, here)


_NEEDED = ("a", "b", "bandwidth", "latency")
_OPTIONAL = ("count", "tier", "cost")


def read_csv(path: Path, where: str) -> TopologyDescription:
    """Return the topology that a CSV file describes.

    Each line is a cable. Nodes called 0, 1, 2, ... are NPUs, the others are switches.

    Raises:
        InputError: The head is missing, a column is unknown, a value is invalid, or NPUs are not called 0, 1, 2, ....
    """
    try:
        with path.open(encoding="utf-8-sig", newline="") as file:
            reader = csv.reader(file, strict=True)
            lines = [(reader.line_num, [cell.strip() for cell in cells]) for cells in reader]
    except (csv.Error, UnicodeDecodeError) as error:
        raise InputError(f"{where}: no CSV: {error}") from None
    places = _places(lines[0][1] if lines else [], f"{where}, line 1")
    lines = [(line, cells) for line, cells in lines[1:] if any(cells)]
    listed = [_row(cells, places, f"{where}, line {line}") for line, cells in lines]
    named = by_name((name for row in listed for name in row[:2]), where)
    return description_of(where, listed, named, partial(_entry, [line for line, _ in lines]))


def _entry(lines: Sequence[int], row: int) -> str:
    """Return the name of a row for messages: its line in the file."""
    return f"line {lines[row]}"


def _places(head: list[str], where: str) -> dict[str, int]:
    """Return the index of each column."""
    check_keys(filter(None, head), _NEEDED + _OPTIONAL, where)
    if len(set(head)) != len(head) or not set(_NEEDED) <= set(head):
        raise must_be(where, "the head", f"{','.join(_NEEDED)}, and count, tier and cost if you like", ",".join(head))
    return {name: place for place, name in enumerate(head)}


def _row(cells: list[str], places: dict[str, int], where: str) -> ListedCable:
    """Return the cable that one row of the CSV file lists."""
    if len(cells) != len(places):
        raise must_be(where, "values", f"as many as the head has, {len(places)}", len(cells))
    given = {name: cells[place] for name, place in places.items() if cells[place] or name not in _OPTIONAL}
    if not given["a"] or not given["b"]:
        raise must_be(where, "a and b", "names of nodes", f"{given['a']},{given['b']}")
    return read_row(given["a"], given["b"], given, where)


def _read_graphml(path: Path, where: str) -> TopologyDescription:
    """Read a GraphML file as `read_graphml` does, which is imported here because it loads networkx.

    Args:
        path: The file.
        where: The name of the file in messages.
    """
    return read_graphml(path, where)


READERS: dict[str, Callable[[Path, str], TopologyDescription]] = {
    ".toml": read_toml,
    ".csv": read_csv,
    ".graphml": _read_graphml,
}


def is_file(text: str) -> bool:
    """Return whether a text that names a topology names a file."""
    return any(Path(word).suffix.lower() in READERS for word in (text, text.partition(":")[0]))


def read_file(text: str) -> Topology:
    """Return the topology that a file describes; its path, as it is written, is its name.

    Raises:
        InputError: The file cannot be read, or describes no topology; the message names the file, and the line or the entry.
    """
    path = Path(text)
    reader = READERS.get(path.suffix.lower())
    if reader is None:
        raise InputError(f"topology: {text!r} is a file, which takes no settings; write them into it")
    try:
        described = reader(path, text)
    except OSError as error:
        raise InputError(f"topology: cannot read {text!r}: {error.strerror}") from None
    return assemble(described)
