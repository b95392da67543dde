"""Which symmetries of a topology are also those of what runs on it, and so which ranks stand for all.

N ranks of a job, L links.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np

from emu.arrays import I64, Bool, column
from emu.fabric.lowering.domain import Domain, Move
from emu.fabric.lowering.laid import Laid
from emu.fabric.lowering.ways import Asked, shared_ways
from emu.topology.topology import Links, Topology

_PRODUCTS = 2  # of random powers of the moves, for which routes are tried too
_PROVED = 2**21  # hops, up to which the routes of all copies are

Keeps = Callable[[I64], bool]  # of a permutation of nodes


def domain_of(topology: Topology, npus: I64, laid: Sequence[Laid], alike: Keeps | None = None) -> Domain | None:
    """The ranks of a job that stand for all; nothing where all are different.

    Used are the declared symmetries of the topology, or the least powers of them, that bring all that runs to what runs. That
    routes keep them is tried on the copies that would stand for all, by each move and some products of them; and on all
    copies, which proves it, where their routes have few enough hops.

    Args:
        topology: Where it runs.
        npus: [N] of each rank.
        laid: All that is sent.
        alike: Whether a permutation of nodes brings each rank to one that computes the same; unless given, nobody computes.
    """
    if topology.symmetry is None or topology.circuits or not len(npus):
        return None
    tests = [*([alike] if alike else []), *(each.keeps for each in laid)]
    moves = moves_of(topology, npus, lambda node: all(keeps(node) for keeps in tests))
    if not moves:
        return None
    domain, tried = Domain.of(moves), (*moves, *_products(moves, int(npus[0])))
    kept = all(_keeps_routes(each, domain, moves, tried) for each in laid)
    return domain if kept else None


def moves_of(topology: Topology, npus: I64, keeps: Keeps) -> tuple[Move, ...]:
    """The declared symmetries of a topology, or the least powers of them, that keep what they should."""
    if topology.symmetry is None:
        return ()
    images = _Images.of(topology, npus, keeps)
    found = (images.least_power(column(node, np.int64)) for node in topology.symmetry())
    return tuple(move for move in found if move is not None)


def _keeps_routes(laid: Laid, domain: Domain, moves: tuple[Move, ...], tried: tuple[Move, ...]) -> bool:
    topology, copies = laid.topology, laid.copies(domain)
    asked = laid.asked(copies.first)
    hops = _hops_kept(topology, asked, tried)
    ways = None if hops is None else shared_ways(topology, asked, copies, domain.links)
    if hops is None or ways is None:
        return False
    domain.ways[laid] = ways
    if hops * len(copies.number) > _PROVED * len(copies.first):
        return True
    return _hops_kept(topology, laid.asked(np.arange(len(copies.number))), moves) is not None


def _hops_kept(topology: Topology, asked: Asked, moves: tuple[Move, ...]) -> int | None:
    """How many hops the routes of pairs have, where each move brings them to those of the pairs' images."""
    src, dst, key = asked
    found = topology.router(*asked)
    for node, link in moves:
        image = topology.router(column(node[src], np.int64), column(node[dst], np.int64), key)
        if not (np.array_equal(image.start, found.start) and np.array_equal(image.link, link[found.link])):
            return None
    return len(found.link)


@dataclass(frozen=True, eq=False, slots=True)
class _Images:
    """Where permutations of nodes bring ranks and links."""

    links: Links
    npus: I64  # [N]
    keeps: Keeps
    order: I64  # [L] links by (src, dst)
    ends: I64  # [L] (src, dst) as one number, in that order
    parallel: I64  # [L] the place of each link among those of equal ends

    @staticmethod
    def of(topology: Topology, npus: I64, keeps: Keeps) -> "_Images":
        ends = topology.links.src.astype(np.int64) * topology.n_nodes + topology.links.dst
        order = np.argsort(ends, kind="stable")
        ends, parallel = ends[order], np.empty_like(order)
        parallel[order] = np.arange(len(ends)) - np.searchsorted(ends, ends)
        return _Images(topology.links, npus, keeps, order, ends, parallel)

    def least_power(self, node: I64) -> Move | None:
        """The least power of a permutation that moves the first rank, keeps what it should and is a symmetry of links."""
        length = _length(node, int(self.npus[0]))
        powers = (_power(node, k) for k in range(1, length) if length % k == 0)
        return next((move for move in map(self._move, powers) if move is not None), None)

    def _move(self, node: I64) -> Move | None:
        link = self._links(node) if self.keeps(node) else None
        return None if link is None else Move(node, link)

    def _links(self, node: I64) -> I64 | None:
        """The image of each link, as fast and as long: of parallel ones that in the same place."""
        ends = node[self.links.src] * len(node) + node[self.links.dst]
        at = np.minimum(np.searchsorted(self.ends, ends) + self.parallel, len(ends) - 1)
        if not np.array_equal(self.ends[at], ends):
            return None
        link = self.order[at]
        alike: Bool = np.array([np.array_equal(c[link], c) for c in (self.links.bandwidth_Bps, self.links.latency_fs)])
        return link if alike.all() else None


def _length(node: I64, first: int) -> int:
    """After how many steps a permutation of nodes is back where it began."""
    length, here = 1, node[first]
    while here != first:
        length, here = length + 1, node[here]
    return length


def _power(permutation: I64, k: int) -> I64:
    found, square = permutation if k % 2 else np.arange(len(permutation)), permutation
    while k := k // 2:
        square = square[square]
        found = square[found] if k % 2 else found
    return found


def _products(moves: tuple[Move, ...], first: int) -> list[Move]:
    """Of random powers that bring a node elsewhere, the same ones every time."""
    random, products = np.random.default_rng(0), []
    lengths = [_length(move.node, first) for move in moves]
    for _ in range(_PRODUCTS):
        powers = [[_power(c, k) for c in move] for move, k in zip(moves, random.integers(1, lengths), strict=True)]
        products.append(Move(*(reduce(lambda done, power: power[done], chain) for chain in zip(*powers, strict=True))))
    return products
