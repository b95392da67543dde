"""Forests: spanning trees of hops for all ranks, in whose shares every block is cut, found by flows.

A network is reduced to whole capacities, its switches are split off, trees are packed, and ranks exchange parents so that ways
are short. Each arc of a tree becomes a hop whose way the arc's capacity passes. A forest whose trees lead to the roots is
packed in the network turned round. Letters: U trees, N ranks, H hops, L links.
"""

from collections import defaultdict
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from itertools import product

import numpy as np

from emu.arrays import F64, I64, Bool
from emu.synthesis.capacities import CapacityNetwork, capacity_network, whole_capacities
from emu.synthesis.hops import HopNetwork
from emu.synthesis.packing import pack
from emu.synthesis.relief import busiest, relieve
from emu.synthesis.shortening import lengths, parents_of, shorten
from emu.synthesis.splitting import SplitNetwork, Tick, UnpairedError, Via, remove_switches

_PARTS = 16  # capacities are raised by such a part at a time, from each power of 2 on, until a switch can be split off
_CLOSE = 1.02  # from this load over what was packed on, ways differ from those that were packed
_SWEEPS = 4  # sweeps in which parents are exchanged


@dataclass(frozen=True, eq=False, slots=True)
class Forest:
    """Spanning trees of hops, each of which carries an equal part of the block of its root, or of the one block of all."""

    root: I64  # [U] ascending
    parent: I64  # [U, N] the rank before each rank on the way from the root; of the root itself, the root
    hop: I64  # [U, N] the hop between a rank and its parent; -1 at the root
    inward: bool  # whether hops lead to the roots, and add

    @property
    def n_ranks(self) -> int:
        """The number of ranks, N."""
        return int(self.parent.shape[1])

    @property
    def depth(self) -> int:
        """The largest number of hops from a root to a rank."""
        return int(lengths(self.parent, np.ones((self.n_ranks, self.n_ranks))).max(initial=0.0))

    def scaled(self, factor: int) -> "Forest":
        """Return the forest with each tree repeated `factor` times."""
        root, parent, hop = (np.repeat(each, factor, axis=0) for each in (self.root, self.parent, self.hop))
        return Forest(root, parent, hop, self.inward)


def grow_forest(hops: HopNetwork, shares: I64, most: int, tick: Tick, *, inward: bool) -> Forest:
    """Return a forest in which each root spreads, or gets, its share as fast as is possible.

    Args:
        hops: The hops between ranks.
        shares: [N] the blocks of each rank: 1 or 0.
        most: The largest number of units of a block.
        tick: It is called before each step; it raises an error when the time is over.
        inward: Whether trees lead to their roots.
    """
    net = capacity_network(hops)
    net = net.back() if inward else net
    whole = whole_capacities(net, shares, most)
    return forest_in(hops, net, (whole.capacity, shares * whole.trees), tick, inward=inward)


def forest_in(hops: HopNetwork, net: CapacityNetwork, packed: tuple[I64, I64], tick: Tick, *, inward: bool) -> Forest:
    """Return a forest in given whole capacities.

    Args:
        hops: The hops between ranks.
        net: Their network, turned round for an inward forest.
        packed: [V, V] whole capacities, of the network's arcs, and [N] the number of trees of each root.
        tick: It is called before each step; it raises an error when the time is over.
        inward: Whether trees lead to their roots.
    """
    found = _grown(hops, net, packed, tick, inward=inward, upright=True)
    if (net.n_nodes > net.n_ranks) and _excess(hops, net, packed[0], found) > _CLOSE:  # a router takes other ways
        other = _grown(hops, net, packed, tick, inward=inward, upright=False)
        found = min(found, other, key=lambda each: busiest(hops, each.hop))
        if _excess(hops, net, packed[0], found) > _CLOSE:
            parent, hop = relieve(hops, found.parent, found.hop, tick, inward=inward)
            found = Forest(found.root, parent, hop, inward)
    return found


def _excess(hops: HopNetwork, net: CapacityNetwork, capacity: I64, forest: Forest) -> float:
    """Return how busy the busiest link is, over what the whole capacities allow it."""
    allowed = float((capacity / np.maximum(net.capacity, 1)).max())
    return busiest(hops, forest.hop) / allowed


def _grown(
    hops: HopNetwork, net: CapacityNetwork, packed: tuple[I64, I64], tick: Tick, *, inward: bool, upright: bool
) -> Forest:
    """Return a forest in given whole capacities; see `remove_switches` for `upright`, and `forest_in` for the others."""
    capacity, given = packed
    n = len(given)
    split = _split(capacity, given, _joined(hops, inward=inward), tick, upright=upright)
    trees = pack(np.ascontiguousarray(split.capacity[:n, :n]), given, tick)
    root, parent = parents_of(trees, n)
    parent = shorten(parent, _hop_times(hops, inward=inward), _SWEEPS, tick)
    order = np.argsort(root, kind="stable")
    root, parent = root[order], parent[order]
    return Forest(root, parent, _HopChoice(hops, net, split, inward=inward).chosen(parent), inward)


def _hop_times(hops: HopNetwork, *, inward: bool) -> F64:
    """Return [N, N] how long a hop takes between a parent and its child in a tree; the fastest hop of all takes 1.

    In an inward tree the child sends to its parent. A pair without a hop has the time of the slowest hop.
    """
    found = np.full((hops.n_ranks, hops.n_ranks), np.inf)
    ends = (hops.dst, hops.src) if inward else (hops.src, hops.dst)
    np.minimum.at(found, ends, 1 / hops.rate_Bps)
    found[np.isinf(found)] = found[np.isfinite(found)].max(initial=1.0)
    return np.asarray(found / found.min())


def _joined(hops: HopNetwork, *, inward: bool) -> Bool:
    """Return [N, N] whether a hop leads from a rank to another; for an inward forest, from the other to the rank."""
    found = np.zeros((hops.n_ranks, hops.n_ranks), np.bool_)
    found[hops.src, hops.dst] = True
    return np.asarray(found.T if inward else found)


def _split(capacity: I64, given: I64, joined: Bool, tick: Tick, *, upright: bool) -> SplitNetwork:
    """Return whole capacities without switches; they are raised where a switch lets out more than it lets in.

    Raises:
        UnpairedError: A switch cannot be split off even if capacities are raised by the number of nodes.
    """
    for parts, shares in product(_raises(len(capacity)), (1, 4, 16)):
        tick()
        with suppress(UnpairedError):
            return remove_switches(capacity * parts // _PARTS, given, joined, tick, shares=shares, upright=upright)
    raise UnpairedError


def _raises(most: int) -> Iterator[int]:
    """Yield factors from 1 to `most`, in parts: 16 from 1 to 2, as many from 2 to 4, and so on."""
    parts = _PARTS
    while parts <= most * _PARTS:
        yield parts
        parts += 1 << (parts // _PARTS).bit_length() - 1


class _HopChoice:
    """The choice of hops for arcs between ranks: by the switches that an arc's capacity passes, the least loaded first.

    Args:
        hops: The hops.
        net: The network with its switches.
        split: The arcs between ranks with the switches that they pass.
        inward: Whether arcs are hops turned round.
    """

    def __init__(self, hops: HopNetwork, net: CapacityNetwork, split: SplitNetwork, *, inward: bool) -> None:
        self.hops, self.inward = hops, inward
        names = net.node.tolist()
        self.ways = {arc: {self._named(via, names): n for via, n in parts.items()} for arc, parts in split.ways.items()}
        self.by_pair: dict[tuple[int, int], list[int]] = defaultdict(list)
        for hop, pair in enumerate(zip(hops.src.tolist(), hops.dst.tolist(), strict=True)):
            self.by_pair[pair[::-1] if inward else pair].append(hop)
        self.load = np.zeros(len(hops.capacity_Bps))
        self.links = [hops.links_of(hop) for hop in range(len(hops.src))]

    def _named(self, via: Via, names: list[int]) -> Via:
        """Return the switches of a way by their nodes, in the direction of messages."""
        nodes = tuple(names[switch] for switch in via)
        return nodes[::-1] if self.inward else nodes

    def chosen(self, parent: I64) -> I64:
        """Return [U, N] the hop between each rank and its parent; -1 at the root.

        Args:
            parent: [U, N] the parent of each rank in each tree.
        """
        found = np.full(parent.shape, -1)
        for tree, row in enumerate(parent.tolist()):
            for rank, above in enumerate(row):
                if above != rank:
                    found[tree, rank] = self._take((above, rank))
        return found

    def _take(self, arc: tuple[int, int]) -> int:
        """Take one unit of an arc, of the switches that have most left, and return the hop with the least load after that."""
        parts = self.ways[arc]
        via = max(parts, key=lambda each: (parts[each], each))
        parts[via] -= 1
        same = [hop for hop in self.by_pair[arc] if self.hops.way(hop) == via] or self.by_pair[arc]
        best = same[0] if len(same) == 1 else min(same, key=lambda hop: (self._loaded(hop), hop))
        self.load[self.links[best]] += 1
        return best

    def _loaded(self, hop: int) -> float:
        """Return the time of the busiest link of a hop if it carried a unit more."""
        links = self.links[hop]
        return float(((self.load[links] + 1) / self.hops.capacity_Bps[links]).max())
