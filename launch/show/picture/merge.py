"""The structure of a topology too large to draw: NPUs merged by leading dims, switches with the NPUs that they alone are over.

Nothing is left out: what is too much to show is one group, an ellipsis, so nodes and cables still add up. G groups.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from math import prod

import numpy as np

from emu.arrays import I64, column
from emu.topology.builders.route_parts import mix
from emu.topology.paths.shortest_paths import shortest
from emu.topology.topology import Box, Links, Topology
from launch.show.picture.kinds import layers, switch_names

_WHOLE = 8  # a dim of at most so many is shown whole
_FIRST = 3  # of a longer one: so many, an ellipsis, the last
_MOST = (25, 10)  # groups of NPUs on a grid, and in a row under switches
_RUNS = 16  # of NPUs of which no two are joined to the same nodes
_MOST_ALIKE = 10  # groups of switches of one kind


@dataclass(frozen=True, eq=False, slots=True)
class Merged:
    """Groups of nodes and bundles of links."""

    graph: Topology  # a node a group, those with NPUs first; a link a bundle, with the bandwidth of all
    group: I64  # [nodes] of the topology that was merged
    names: tuple[str, ...]  # [G]
    parts: tuple[Mapping[str, int], ...]  # [G] nodes of each kind
    bundled: I64  # [links of graph] links in each
    bundle: I64  # [links of that topology] the link of graph that each is in; -1: it is within a group
    inside: I64  # [G] links between nodes of the group


@dataclass(frozen=True, eq=False, slots=True)
class _Npus:
    """How the NPUs are grouped."""

    group: I64  # [NPUs]
    shape: tuple[int, ...]  # in which the groups are numbered
    whole: int  # NPUs of a group that is no ellipsis

    @property
    def count(self) -> int:
        return prod(self.shape)


def merge(topology: Topology) -> Merged:
    """Merge nodes into groups few enough to draw, and links into bundles."""
    boxes = topology.draw().boxes if topology.draw else ()
    kind = np.array(["NPU"] * topology.n_npus + switch_names(topology))
    layer = layers(topology)
    for most in _MOST:
        npus = _npus(topology, boxes, most)
        group = _grouped(topology, npus, layer, boxes, kind)
        if group.max() < npus.count:
            break
    count = int(group.max()) + 1
    parts = [Counter[str]() for _ in range(count)]
    for (of, name), number in Counter(zip(group.tolist(), kind.tolist(), strict=True)).items():
        parts[of][name] = number
    names = (*_npu_names(npus, boxes), *(next(iter(part)) for part in parts[npus.count :]))
    links, bundle, inside = _bundles(topology.links, group, count)
    bundled = column(np.bincount(bundle[bundle >= 0], minlength=len(links)), np.int64)
    graph = Topology(topology.name, npus.count, count, links, shortest(links, count), npus.shape, tiers=topology.tiers)
    return Merged(graph, group, names, tuple(parts), bundled, bundle, inside)


def _npus(topology: Topology, boxes: tuple[Box, ...], most: int) -> _Npus:
    """By the first few dims; down to a box of the drawing where there are such."""
    dims = tuple(size for size in topology.dims if size > 1)
    if len(dims) < 2:
        return _alike(topology, most)
    shown = [size if size <= _WHOLE else _FIRST + 2 for size in dims]
    framed = {last - first for first, last in (box.nodes for box in boxes) if last <= topology.n_npus}
    depths = [k for k in range(1, len(dims)) if prod(shown[:k]) <= most]
    depth = max([k for k in depths if prod(dims[k:]) in framed] or depths)
    digits = np.unravel_index(np.arange(topology.n_npus), dims)[:depth]
    kept = [_shortened(digit, size) for digit, size in zip(digits, dims, strict=False)]
    shape = tuple(shown[:depth])
    return _Npus(column(np.ravel_multi_index(kept, shape), np.int64), shape, prod(dims[depth:]))


def _alike(topology: Topology, most: int) -> _Npus:
    """NPUs joined to the same nodes; where hardly any two are, equal runs of the numbering."""
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
        group, count = _shortened(group, count), _FIRST + 2
    return _Npus(column(group, np.int64), (count,), whole)


def _shortened(digit: I64, size: int) -> I64:
    """A digit of a long dim, its middle values merged into one."""
    if size <= _WHOLE:
        return digit
    return np.where(digit < _FIRST, digit, np.where(digit == size - 1, _FIRST + 1, _FIRST))


def _npu_names(npus: _Npus, boxes: tuple[Box, ...]) -> list[str]:
    """A group's own name where a box of the drawing is round just its NPUs; else their numbers."""
    labels = {box.nodes: box.label for box in boxes}
    ends = np.cumsum(np.bincount(npus.group, minlength=npus.count))[:-1]
    names = []
    for nodes in np.split(np.argsort(npus.group, kind="stable"), ends):
        first, last, size = int(nodes[0]), int(nodes[-1]), len(nodes)
        name = labels.get((first, last + 1), "") or f"NPU {first}" + f"..{last}" * (size > 1)
        names.append(f"… {size // npus.whole} more" if size >= 2 * npus.whole else name)
    return names


def _grouped(topology: Topology, npus: _Npus, layer: I64, boxes: tuple[Box, ...], kind: np.ndarray) -> I64:
    """[nodes] the group of each: switches over one group of NPUs go with it, others by kind and by what they are over."""
    n = topology.n_npus
    over = _over(topology, npus, layer)[n:]
    alone = (over & (over - 1) == 0) & (over > 0) & (npus.count > 1)
    others = np.flatnonzero(~alone)
    _, kinds = np.unique(kind[n:], return_inverse=True)
    alike = np.stack((layer[n:], kinds, _frame_of(topology, boxes)[n:], over), axis=-1)[others]
    group = np.concatenate((npus.group, np.log2(np.where(alone, over, 1)).astype(np.int64)))
    if len(others):
        distinct, which = np.unique(alike, axis=0, return_inverse=True)
        group[n + others] = npus.count + _fewer(distinct[:, :2])[which]
    return group


def _over(topology: Topology, npus: _Npus, layer: I64) -> I64:
    """[nodes] a bit for each group of NPUs that a node is over, going down from it."""
    links, over = topology.links, np.zeros(topology.n_nodes, np.int64)
    over[: topology.n_npus] = np.int64(1) << npus.group
    for height in range(1, int(layer.max()) + 1):
        up = (layer[links.dst] == height) & (layer[links.src] == height - 1)
        np.bitwise_or.at(over, links.dst[up], over[links.src[up]])
    return over


def _frame_of(topology: Topology, boxes: tuple[Box, ...]) -> I64:
    """[nodes] the outermost box of switches alone that each is in, where there are few of them; 0 for none."""
    found = np.zeros(topology.n_nodes, np.int64)
    of_switches = [box for box in boxes if box.nodes[0] >= topology.n_npus]
    for number, box in enumerate(reversed(of_switches if len(of_switches) <= _MOST_ALIKE else ()), 1):
        found[slice(*box.nodes)] = number
    return found


def _fewer(kinds: I64) -> I64:
    """[groups] where each goes: of a kind ([groups, 2]: layer, kind) that has too many, all but the first ones into one."""
    _, kind, many = np.unique(kinds, axis=0, return_inverse=True, return_counts=True)
    order = np.argsort(kind, kind="stable")
    place = np.empty(len(kind), np.int64)
    place[order] = np.arange(len(kind)) - np.repeat(np.cumsum(many) - many, many)
    rest = (many[kind] > _MOST_ALIKE) & (place >= _FIRST)
    return column(np.unique(np.where(rest, len(kind) + kind, np.arange(len(kind))), return_inverse=True)[1], np.int64)


def _bundles(links: Links, group: I64, groups: int) -> tuple[Links, I64, I64]:
    """The links between groups, merged by their ends and tier; [L] which each is in; [G] how many are within a group."""
    src, dst = group[links.src], group[links.dst]
    within = src == dst
    inside = np.bincount(src[within], minlength=groups)
    apart = np.stack((links.dimension, src, dst))[:, ~within]
    ends, bundle = np.unique(apart, axis=1, return_inverse=True)
    rate = np.bincount(bundle, links.bandwidth_Bps[~within], len(ends[0]))
    latency, every = np.zeros(len(ends[0]), np.int64), np.full(len(links), -1)
    every[~within] = bundle
    np.maximum.at(latency, bundle, links.latency_fs[~within])
    merged = Links(
        column(ends[1], np.int32),
        column(ends[2], np.int32),
        column(rate, np.float64),
        column(latency, np.int64),
        column(ends[0], np.int16),
    )
    return merged, column(every, np.int64), column(inside, np.int64)
