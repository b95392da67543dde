"""Merging of nodes into groups, for a topology that is too large to draw: NPUs by dimensions, switches by NPUs below.

Nothing is left out: what is too much to show is one group, so that nodes and cables still add up. Where a network is tiers of
equal nodes, each tier is such a group; else the middle of many groups is one with an ellipsis. The kind of a switch is its
distance from the NPUs, and its name. G groups.
"""

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

import numpy as np
from scipy.sparse import csr_array
from scipy.sparse.csgraph import dijkstra

from emu.arrays import I64, column
from emu.topology.builders.route_parts import mix
from emu.topology.paths.shortest_paths import shortest
from emu.topology.topology import Box, Links, Topology

_WHOLE = 8  # longest dimension that is shown in full
_FIRST = 3  # groups of a longer dimension before the ellipsis; the last follows it
_MOST = (25, 10)  # most groups of NPUs: on a grid, in a row under switches
_RUNS = 16  # runs of NPUs where no two are linked to the same nodes
_MOST_ALIKE = 10  # most groups of switches of one kind
TIMES = "\N{MULTIPLICATION SIGN}"


def layers(topology: Topology) -> I64:
    """Return [nodes] the links between each node and the nearest NPU, in either direction.

    A node that no link joins is one layer above all others.
    """
    links, n, npus = topology.links, topology.n_nodes, np.arange(topology.n_npus)
    graph = csr_array((np.ones(len(links)), (links.src, links.dst)), shape=(n, n))
    found = dijkstra(graph, directed=False, indices=npus, unweighted=True, min_only=True)
    joined = np.isfinite(found)
    return column(np.where(joined, found, found[joined].max() + 1), np.int64)


def switch_names(topology: Topology) -> list[str]:
    """Return the name of the kind of each switch.

    The name is `ToR` where the tier that joins the switch to the NPUs' side is called `NIC to ToR`. Without tiers it is
    `switch`.
    """
    links, layer, n = topology.links, layers(topology), topology.n_npus
    tier = np.full(topology.n_nodes, len(topology.tiers))
    up = layer[links.src] < layer[links.dst]
    np.minimum.at(tier, links.dst[up], links.dimension[up])
    named = [_upper_end(name) for name in topology.tiers]
    return [named[t] if t < len(named) else "switch" for t in tier[n:]]


def _upper_end(tier: str) -> str:
    """Return the upper end of a tier's name: `tier 2` of `tier 1 to 2`, `LRS` of `NPU to LRS x4`."""
    lower, to, upper = re.sub(r" x\d+$", "", tier).partition(" to ")
    if not to:
        return "switch"
    return re.sub(r"\d+$", "", lower) + upper if upper.isdigit() else upper


@dataclass(frozen=True, eq=False, slots=True)
class GroupedTopology:
    """A topology for a drawing, whose nodes are merged into groups and whose links are merged into bundles.

    `graph` is the smaller topology; `group` and `bundle` lead from the whole topology to it.
    """

    graph: Topology  # a node for each group, NPUs first; a link for each bundle, with its bandwidth
    group: I64  # [nodes of the whole topology] group of each node
    names: tuple[str, ...]  # [G] names
    parts: tuple[Mapping[str, int], ...]  # [G] numbers of nodes of each kind
    bundled: I64  # [links of graph] number of links in each bundle
    bundle: I64  # [links of the whole topology] link of graph; -1: within a group
    each: tuple[tuple[str, ...], ...] = ()  # [G] cables of each node of a group in words, where groups are tiers


@dataclass(frozen=True, eq=False, slots=True)
class _NpuGroups:
    """The groups into which the NPUs of a topology are put in a picture of a large topology."""

    group: I64  # [NPUs] group of each NPU
    shape: tuple[int, ...]  # dimensions of the groups
    whole: int  # NPUs of a group that is not an ellipsis

    @staticmethod
    def of_all(layer: I64) -> "_NpuGroups":
        """Return all NPUs as one group, for a network of tiers of equal nodes."""
        npus, switches = np.bincount(layer)[:2].tolist()
        return _NpuGroups(np.zeros(npus, np.int64), (1,), npus // switches if npus % switches == 0 else npus)

    @property
    def count(self) -> int:
        """The number of groups of NPUs."""
        return prod(self.shape)

    @property
    def is_shortened(self) -> bool:
        """True if some group stands for several groups that are not drawn."""
        return bool(np.bincount(self.group).max() >= 2 * self.whole)


def group_nodes(topology: Topology) -> GroupedTopology:
    """Return the topology with its nodes merged into few enough groups to draw, and links into bundles."""
    boxes = topology.draw().boxes if topology.draw else ()
    kind = np.array(["NPU"] * topology.n_npus + switch_names(topology))
    layer = layers(topology)
    for most in _MOST:
        npus = _npu_groups(topology, boxes, most)
        group = _node_groups(topology, npus, layer, boxes, kind)
        if group.max() < npus.count:
            break
    if npus.is_shortened and (each := _each_of_tiers(topology, layer, kind)):
        return _merged(topology, kind, layer, _NpuGroups.of_all(layer), boxes, each)
    return _merged(topology, kind, group, npus, boxes)


def _merged(
    topology: Topology,
    kind: np.ndarray,
    group: I64,
    npus: _NpuGroups,
    boxes: tuple[Box, ...],
    each: tuple[tuple[str, ...], ...] = (),
) -> GroupedTopology:
    """Return the topology with its nodes merged into the given groups.

    Args:
        topology: The whole topology.
        kind: The kind of each node.
        group: [nodes] the group of each node.
        npus: The groups of NPUs.
        boxes: The boxes of the drawing, which name groups.
        each: [G] the cables of each node of a group in words.
    """
    count = int(group.max()) + 1
    parts = [Counter[str]() for _ in range(count)]
    for (of, name), number in Counter(zip(group.tolist(), kind.tolist(), strict=True)).items():
        parts[of][name] = number
    names = (*_npu_names(npus, boxes), *(next(iter(part)) for part in parts[npus.count :]))
    links, bundle = _bundles(topology.links, group)
    bundled = column(np.bincount(bundle[bundle >= 0], minlength=len(links)), np.int64)
    graph = Topology(topology.name, npus.count, count, links, shortest(links, count), npus.shape, tiers=topology.tiers)
    return GroupedTopology(graph, group, names, tuple(parts), bundled, bundle, each)


def _each_of_tiers(topology: Topology, layer: I64, kind: np.ndarray) -> tuple[tuple[str, ...], ...]:
    """Return a text on the cables of each node of every layer; nothing unless the network is tiers of equal nodes.

    In such a network cables join neighbouring layers, and the nodes of a layer are of one kind with equally many cables.
    """
    links, kinds = topology.links, np.unique(np.stack((layer, np.unique(kind, return_inverse=True)[1])), axis=1)
    up = layer[links.dst] - layer[links.src]
    if kinds.shape[1] > layer.max() + 1 or (np.abs(up) != 1).any():
        return ()
    cables = np.zeros((topology.n_nodes, 2), np.int64)
    np.add.at(cables, (links.src, (up > 0).astype(np.int64)), 1)
    first = np.unique(layer, return_index=True)[1]
    if not np.array_equal(cables, cables[first][layer]):
        return ()
    ways = (zip(one.tolist(), ("down", "up"), strict=True) for one in cables[first])
    return tuple(tuple(f"{number:,} cable{'s' * (number > 1)} {way} each" for number, way in both if number) for both in ways)


def _npu_groups(topology: Topology, boxes: tuple[Box, ...], most: int) -> _NpuGroups:
    """Return groups of NPUs by their leading dimensions, in sizes that fit the drawing's boxes if possible.

    Args:
        topology: The topology.
        boxes: The boxes of its own drawing.
        most: The largest number of groups.
    """
    dims = tuple(size for size in topology.dims if size > 1)
    if len(dims) < 2:
        return _groups_by_neighbours(topology, most)
    shown = [size if size <= _WHOLE else _FIRST + 2 for size in dims]
    framed = {last - first for first, last in (box.nodes for box in boxes) if last <= topology.n_npus}
    depths = [k for k in range(1, len(dims)) if prod(shown[:k]) <= most]
    depth = max([k for k in depths if prod(dims[k:]) in framed] or depths)
    digits = np.unravel_index(np.arange(topology.n_npus), dims)[:depth]
    kept = [_shorten(digit, size) for digit, size in zip(digits, dims, strict=False)]
    shape = tuple(shown[:depth])
    return _NpuGroups(column(np.ravel_multi_index(kept, shape), np.int64), shape, prod(dims[depth:]))


def _groups_by_neighbours(topology: Topology, most: int) -> _NpuGroups:
    """Return groups of NPUs that are linked to the same nodes; else 16 equal runs of NPUs.

    Where hardly any two NPUs are linked to the same nodes, the groups are 16 runs of NPUs, equally long.

    Args:
        topology: The topology.
        most: The most groups to draw; of more groups, all but the first three and the last are merged into one.
    """
    n, links = topology.n_npus, topology.links
    near = np.zeros(n, np.int64)
    leaves = links.src < n
    np.add.at(near, links.src[leaves], mix(links.dst[leaves]) >> 20)  # so that a sum of many stays below 2**63
    _, first, group = np.unique(near, return_index=True, return_inverse=True)
    group = np.argsort(np.argsort(first))[group]
    if len(first) > n // 2:
        group = np.arange(n) * min(n, _RUNS) // n
    count, whole = int(group.max()) + 1, int((group == 0).sum())
    if count > most:
        group, count = _shorten(group, count), _FIRST + 2
    return _NpuGroups(column(group, np.int64), (count,), whole)


def _shorten(digit: I64, size: int) -> I64:
    """Return the digits of a dimension with the middle values of a long one merged into one."""
    if size <= _WHOLE:
        return digit
    return np.where(digit < _FIRST, digit, np.where(digit == size - 1, _FIRST + 1, _FIRST))


def _npu_names(npus: _NpuGroups, boxes: tuple[Box, ...]) -> list[str]:
    """Return a name for each group of NPUs: the label of its box, else its first and last NPU.

    A group that stands for equal ones says for how many.
    """
    labels = {box.nodes: box.label for box in boxes}
    ends = np.cumsum(np.bincount(npus.group, minlength=npus.count))[:-1]
    names = []
    for nodes in np.split(np.argsort(npus.group, kind="stable"), ends):
        first, last, size = int(nodes[0]), int(nodes[-1]), len(nodes)
        name = labels.get((first, last + 1), "") or f"NPU {first}" + f"..{last}" * (size > 1)
        folded = f"{size // npus.whole:,} {TIMES} {npus.whole:,} NPUs" if npus.count == 1 else f"… {size // npus.whole} more"
        names.append(folded if size >= 2 * npus.whole else name)
    return names


def _node_groups(topology: Topology, npus: _NpuGroups, layer: I64, boxes: tuple[Box, ...], kind: np.ndarray) -> I64:
    """Return [nodes] the group of each node.

    A switch above one group of NPUs belongs to that group. Other switches are grouped by kind and by the NPUs below them.
    """
    n = topology.n_npus
    over = _groups_below(topology, npus, layer)[n:]
    alone = (over & (over - 1) == 0) & (over > 0) & (npus.count > 1)
    others = np.flatnonzero(~alone)
    _, kinds = np.unique(kind[n:], return_inverse=True)
    alike = np.stack((layer[n:], kinds, _frame_of(topology, boxes)[n:], over), axis=-1)[others]
    group = np.concatenate((npus.group, np.log2(np.where(alone, over, 1)).astype(np.int64)))
    if len(others):
        distinct, which = np.unique(alike, axis=0, return_inverse=True)
        group[n + others] = npus.count + _limit_groups(distinct[:, :2])[which]
    return group


def _groups_below(topology: Topology, npus: _NpuGroups, layer: I64) -> I64:
    """Return [nodes] a bit set for each node: the groups of NPUs that can be reached going down only."""
    links, over = topology.links, np.zeros(topology.n_nodes, np.int64)
    over[: topology.n_npus] = np.int64(1) << npus.group
    for height in range(1, int(layer.max()) + 1):
        up = (layer[links.dst] == height) & (layer[links.src] == height - 1)
        np.bitwise_or.at(over, links.dst[up], over[links.src[up]])
    return over


def _frame_of(topology: Topology, boxes: tuple[Box, ...]) -> I64:
    """Return [nodes] the number of the outermost box of switches around each node; 0 if none."""
    found = np.zeros(topology.n_nodes, np.int64)
    of_switches = [box for box in boxes if box.nodes[0] >= topology.n_npus]
    for number, box in enumerate(reversed(of_switches if len(of_switches) <= _MOST_ALIKE else ()), 1):
        found[slice(*box.nodes)] = number
    return found


def _limit_groups(kinds: I64) -> I64:
    """Return [groups] a new number for each group; beyond three of a kind, the others are merged.

    Args:
        kinds: [groups, 2] layer and kind of each group.
    """
    _, kind, many = np.unique(kinds, axis=0, return_inverse=True, return_counts=True)
    order = np.argsort(kind, kind="stable")
    place = np.empty(len(kind), np.int64)
    place[order] = np.arange(len(kind)) - np.repeat(np.cumsum(many) - many, many)
    rest = (many[kind] > _MOST_ALIKE) & (place >= _FIRST)
    return column(np.unique(np.where(rest, len(kind) + kind, np.arange(len(kind))), return_inverse=True)[1], np.int64)


def _bundles(links: Links, group: I64) -> tuple[Links, I64]:
    """Return the bundles as links between groups, and [L] the bundle of each link.

    A bundle holds all links of one tier from one group to another; a link within a group has bundle -1.
    """
    src, dst = group[links.src], group[links.dst]
    within = src == dst
    apart = np.stack((links.dimension, src, dst))[:, ~within]
    ends, bundle = np.unique(apart, axis=1, return_inverse=True)
    rate = np.bincount(bundle, links.bandwidth_Bps[~within], len(ends[0]))
    latency, every = np.zeros(len(ends[0]), np.int64), np.full(len(links), -1)
    every[~within] = bundle
    np.maximum.at(latency, bundle, links.latency_fs[~within])
    merged = Links.of(ends[1], ends[2], rate, latency, ends[0])
    return merged, column(every, np.int64)
