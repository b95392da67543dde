"""Topologies in TOML: groups of nodes, and entries that wire them.

One node of a group G is written `G.0`, several `G.0-3`, and all of them `G`. The pairs of nodes that an entry joins are counted
before they are made. Letters: M, A, B nodes; D dims.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from emu.arrays import I64, Bool, column
from emu.errors import InputError, must_be
from emu.registry import unknown
from emu.topology.builders.route_parts import pairs
from emu.topology.description.assembly import check_nodes
from emu.topology.description.canonical_order import CableRows, TopologyDescription
from emu.topology.description.values import (
    BUILD_IT,
    ROUTING_KEYS,
    check_keys,
    load_toml,
    located,
    read_bool,
    read_cost,
    read_count,
    read_dims,
    read_latency,
    read_rate,
    read_routing,
    read_word,
)
from emu.topology.topology import check_link_count

NodePairs = tuple[I64, I64, int]  # [C] both nodes of each pair that an entry joins, and the number of its parallel cables


def _cycle(size: int) -> NodePairs:
    """Return the pairs of neighbours on a ring of `size` nodes, and the cables of each pair (two if there are two nodes)."""
    here = np.arange(size if size > 2 else size - 1)
    return here, (here + 1) % size, 2 if size == 2 else 1


AMONG: dict[str, tuple[Callable[[int], int], Callable[[int], NodePairs]]] = {  # number of pairs for a size, and the pairs
    "complete": (lambda size: size * (size - 1) // 2, lambda size: (*pairs(size), 1)),
    "cycle": (lambda size: size if size > 2 else size - 1, _cycle),
    "line": (lambda size: size - 1, lambda size: (np.arange(size - 1), np.arange(1, size), 1)),
    "none": (lambda _: 0, lambda _: (np.arange(0), np.arange(0), 1)),
}
# By a word, the pairs of nodes a and b: each with each, the i-th with the i-th, neighbours with one node, nodes in turn.
BETWEEN: dict[str, Callable[[I64, I64], NodePairs]] = {
    "each": lambda a, b: (np.repeat(a, len(b)), np.tile(b, len(a)), 1),
    "pairs": lambda a, b: (a, b, 1),
    "blocks": lambda a, b: (a, np.repeat(b, len(a) // len(b)), 1),
    "turns": lambda a, b: (a, np.tile(b, len(a) // len(b)), 1),
}


def count_among(dims: tuple[int, ...], wirings: tuple[str, ...]) -> int:
    """Return the number of pairs that `pairs_among` yields for a grid, without making them."""
    return sum(prod(dims) // size * AMONG[wiring][0](size) for size, wiring in zip(dims, wirings, strict=True))


def pairs_among(nodes: I64, dims: tuple[int, ...], wirings: tuple[str, ...]) -> list[NodePairs]:
    """Return, for each dim, the pairs of nodes that its cables join: nodes that differ in its digit only.

    Args:
        nodes: [M] the nodes, numbered over `dims` in C order.
        dims: The sizes, whose product is M.
        wirings: [D] a word of `AMONG` for each dim.
    """
    grid = nodes.reshape(dims)
    found = []
    for axis, (size, wiring) in enumerate(zip(dims, wirings, strict=True)):
        along = np.moveaxis(grid, axis, -1)
        a, b, count = AMONG[wiring][1](size)
        found.append((along[..., a].ravel(), along[..., b].ravel(), count))
    return found


def count_between(n_a: int, n_b: int, wiring: str, where: str) -> int:
    """Return the number of cables that a wiring word makes between two groups of `n_a` and `n_b` nodes.

    Raises:
        InputError: The wiring cannot join these numbers of nodes.
    """
    if wiring == "pairs" and n_a != n_b:
        raise must_be(where, "between", "as many nodes on both sides for wiring pairs", f"{n_a} and {n_b}")
    if wiring in ("blocks", "turns") and n_a % n_b:
        what = f"two groups for wiring {wiring}, where the second divides the first into equal parts"
        raise must_be(where, "between", what, f"groups of {n_a} and {n_b} nodes")
    return n_a * n_b if wiring == "each" else n_a


_KEYS = ("npus", "switches", "links", "network", "bandwidth", "latency", *ROUTING_KEYS)
_GROUP_KEYS = {"npus": ("count",), "switches": ("count", "adds")}  # of a group that is written as a table
_LINK_KEYS = ("among", "between", "wiring", "dims", "bandwidth", "latency", "count", "tier", "cost")


_Groups = dict[str, range]  # the consecutive numbers of the nodes that are called by one name


@dataclass(frozen=True, slots=True)
class _Line:
    """A wiring rule: one entry of `links` in the file, parsed but not yet turned into cables."""

    where: str
    sides: tuple[range, ...]  # one: links among its nodes; two: links between them
    wirings: tuple[str, ...]
    dims: tuple[int, ...]  # dims of the only side
    bandwidth_Bps: float
    latency_fs: int
    count: int
    tier: str
    cost: int

    @property
    def n_rows(self) -> int:
        """The number of pairs of nodes that this entry of `links` joins."""
        if len(self.sides) == 1:
            return count_among(self.dims, self.wirings)
        return count_between(len(self.sides[0]), len(self.sides[1]), self.wirings[0], self.where)

    @property
    def tiers(self) -> tuple[str, ...]:
        """The names of the tiers of links of this entry: one, or one for each dimension of a grid."""
        several = len(self.sides) == 1 and len(self.dims) > 1
        return tuple(f"{self.tier} dimension {axis}" for axis in range(len(self.dims))) if several else (self.tier,)

    def wire(self) -> list[NodePairs]:
        """Return the pairs of nodes of each tier."""
        first, *second = (np.arange(side.start, side.stop, dtype=np.int64) for side in self.sides)
        return [BETWEEN[self.wirings[0]](first, *second)] if second else pairs_among(first, self.dims, self.wirings)


def read_toml(path: Path, where: str) -> TopologyDescription:
    """Return the topology that a TOML file describes.

    Raises:
        InputError: The file is no TOML, a key, word or value is invalid, a node does not exist, or there are too many nodes.
    """
    given = load_toml(path, "topology", where, BUILD_IT)
    check_keys(given, _KEYS, where)
    groups, n_npus, n_nodes = _groups(given, where)
    lines = _lines(given, groups, where)
    check_link_count(where, 2 * sum(line.n_rows * line.count for line in lines))
    rows, tiers = _wire_entries(lines)
    return TopologyDescription(
        where=where,
        n_npus=n_npus,
        n_nodes=n_nodes,
        rows=rows,
        tiers=tiers,
        switches={f"switch {name}": len(group) for name, group in groups.items() if group.start >= n_npus},
        node=partial(_call, groups),
        entry=_entry,
        routing=read_routing(given, where),
        adders=_adders(given, groups, n_nodes, where),
        network=_network(given.get("network", {}), f"{where}, network"),
    )


def _entry(number: int) -> str:
    """Return the name in errors of an entry of `links`, counted from 0: `links entry 1` is the name of entry 0."""
    return f"links entry {number + 1}"


def _call(groups: _Groups, node: int) -> str:
    """Return the name of a node, such as `gpu.3`, made of its group and its number there."""
    return next(f"{name}.{node - group.start}" for name, group in groups.items() if node < group.stop)


def _groups(given: Mapping[str, Any], where: str) -> tuple[_Groups, int, int]:
    """Return the groups by name, the number of NPUs, and the number of nodes."""
    groups: _Groups = {}
    total, n_npus = 0, 0
    for key in ("npus", "switches"):
        table = given.get(key, {})
        if not isinstance(table, dict):
            raise must_be(where, key, "a table of group = number, such as [npus] and under it gpu = 8", table)
        for name, size in table.items():
            if name in groups or not re.fullmatch(r"[A-Za-z_][\w-]*", name):
                raise must_be(f"{where}, {key}", "a group's name", "one new word of letters, digits, - and _", name)
            groups[name] = range(total, total + _group_size(size, name, _GROUP_KEYS[key], f"{where}, {key}"))
            total = groups[name].stop
        n_npus = total if key == "npus" else n_npus
    check_nodes(where, n_npus, total)
    return groups, n_npus, total


def _group_size(size: object, name: str, keys: tuple[str, ...], where: str) -> int:
    """Return the number of nodes of a group, from a number or from the `count` of a table."""
    if not isinstance(size, dict):
        return read_count(size, name, where)
    check_keys(size, keys, f"{where}, {name}")
    if "count" not in size:
        raise InputError(
            f"{where}, {name}: no count is given; write {name} = {{ count = 3, ... }}, with the number of its nodes"
        )
    return read_count(size["count"], "count", f"{where}, {name}")


def _adders(given: Mapping[str, Any], groups: _Groups, n_nodes: int, where: str) -> Bool | None:
    """Return [nodes] marks of the switches in groups with `adds = true`; None if there is no such group."""
    found = np.zeros(n_nodes, np.bool_)
    for name, group in given.get("switches", {}).items():
        if isinstance(group, dict) and "adds" in group:
            found[groups[name].start : groups[name].stop] = read_bool(group["adds"], "adds", f"{where}, switches, {name}")
    return column(found, np.bool_) if found.any() else None


def _network(table: object, where: str) -> dict[str, str]:
    """Return the texts of the table that says which network of packets the links are.

    Only the packet engine knows the settings, and checks them.
    """
    if not isinstance(table, dict):
        raise must_be(where, "network", "a table, such as [network] and under it kind = 'roce'", table)
    for name, value in table.items():
        if isinstance(value, bool) or not isinstance(value, str | int | float):
            raise must_be(where, name, "a word, a number, or a size or time in quotes, such as '512KiB'", value)
    return {name: str(value) for name, value in table.items()}


def _lines(given: Mapping[str, Any], groups: _Groups, where: str) -> list[_Line]:
    """Return the wiring rules of a description, one for each entry of `links`.

    Args:
        given: The table that has `links`; its own `bandwidth` and `latency` are the defaults of all entries.
        groups: The groups of nodes that entries may name.
        where: The place of the table in the file, for messages.
    """
    entries = given.get("links", [])
    if not isinstance(entries, list) or not all(isinstance(entry, dict) for entry in entries):
        raise must_be(where, "links", "written as [[links]], once for each line that wires nodes", entries)
    defaults = {key: given[key] for key in ("bandwidth", "latency") if key in given}
    return [_line({**defaults, **entry}, groups, f"{where}, {_entry(i)}") for i, entry in enumerate(entries)]


def _line(entry: Mapping[str, Any], groups: _Groups, where: str) -> _Line:
    """Return the wiring rule of one entry of `links`."""
    check_keys(entry, _LINK_KEYS, where)
    for key, example in (("bandwidth", "50GB/s"), ("latency", "500ns")):
        if key not in entry:
            raise InputError(f"{where}: no {key} is given; write {key} = '{example}' here, or above all for every link")
    names = _sides(entry, where)
    sides = tuple(_nodes(name, groups, where) for name in names)
    dims, wirings = _shape(entry, sides, where)
    tier = entry.get("tier", " to ".join(name.partition(".")[0] for name in names))
    if not isinstance(tier, str) or not tier:
        raise must_be(where, "tier", "a word", tier)
    return _Line(
        where,
        sides,
        wirings,
        dims,
        read_rate(entry["bandwidth"], where),
        read_latency(entry["latency"], where),
        read_count(entry.get("count", 1), "count", where),
        tier,
        read_cost(entry, where),
    )


def _sides(entry: Mapping[str, Any], where: str) -> tuple[str, ...]:
    """Return the names of the groups that an entry wires: one for `among`, two for `between`."""
    if ("among" in entry) == ("between" in entry):
        raise InputError(f"{where}: give either among = 'group' or between = ['group', 'other']")
    if "among" in entry:
        return (entry["among"],)
    if not isinstance(entry["between"], list) or len(entry["between"]) != 2:
        raise must_be(where, "between", "two groups or nodes, such as ['gpu', 'leaf']", entry["between"])
    return tuple(entry["between"])


def _nodes(text: object, groups: _Groups, where: str) -> range:
    """Return the nodes that `gpu`, `gpu.3` or `gpu.0-3` names."""
    found = re.fullmatch(r"([^.]+)(?:\.([0-9]{1,18})(?:-([0-9]{1,18}))?)?", text) if isinstance(text, str) else None
    if found is None:
        raise must_be(where, "nodes", "written as group, group.3 or group.0-3", text)
    if found[1] not in groups:
        with located(where):
            raise unknown("group", found[1], groups)
    group = groups[found[1]]
    low = int(found[2] or 0)
    high = int(found[3] or low) if found[2] else len(group) - 1
    if not low <= high < len(group):
        raise must_be(where, "nodes", f"among {found[1]}.0-{len(group) - 1}", text)
    return group[low : high + 1]


def _shape(entry: Mapping[str, Any], sides: tuple[range, ...], where: str) -> tuple[tuple[int, ...], tuple[str, ...]]:
    """Return the dims of the nodes of an entry, and the wiring of each dim."""
    if len(sides) == 2:
        if "dims" in entry:
            raise InputError(f"{where}: dims go with among; leave them out, or write one entry for each part")
        return (), (read_word(entry.get("wiring", "each"), "wiring", BETWEEN, where),)
    size = len(sides[0])
    dims = read_dims(entry["dims"], where) if "dims" in entry else (size,)
    if np.prod(dims, dtype=np.float64) != size:
        raise must_be(where, "dims", f"sizes whose product is the {size} nodes", "x".join(map(str, dims)))
    given = entry.get("wiring", "complete")
    words = given if isinstance(given, list) else [given] * len(dims)
    if len(words) != len(dims):
        raise must_be(where, "wiring", f"one word, or one for each of the {len(dims)} dims", ", ".join(map(str, words)))
    return dims, tuple(read_word(word, "wiring", AMONG, where) for word in words)


def _wire_entries(lines: list[_Line]) -> tuple[CableRows, tuple[str, ...]]:
    """Return the rows of all entries, and the tiers they belong to."""
    tiers = tuple(dict.fromkeys(tier for line in lines for tier in line.tiers))
    pieces = [
        (a, b, line.bandwidth_Bps, line.latency_fs, tiers.index(tier), line.count * count, line.cost, number)
        for number, line in enumerate(lines)
        for tier, (a, b, count) in zip(line.tiers, line.wire(), strict=True)
    ]
    return CableRows.of(pieces), tiers
