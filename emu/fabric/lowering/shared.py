"""The translations of a schedule that are also a topology's: which ranks stand for all, and which links for all of an orbit.

N ranks, D of them that stand for all by G = N / D translations, L links, O orbits of links, P asked pairs, H hops.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from emu.arrays import F64, I32, I64, column
from emu.collective.translation import Translations
from emu.fabric.lowering.heads import heads
from emu.topology.orbits import orbits
from emu.topology.topology import Links, Topology

_PRODUCTS = 2  # of random powers of the moves, for which routes are tried too
_PROVED = 2**21  # hops, up to which the routes of all ranks are

Asked = tuple[I64, I64, I64]  # [P] source, destination, key
Asking = Callable[[I64], Asked]  # ranks -> their pairs


class Move(NamedTuple):
    """Where one symmetry brings everything."""

    node: I64  # [n_nodes]
    rank: I64  # [N]
    link: I64  # [L]


class Hops(NamedTuple):
    """The ways of asked pairs, over links or over orbits of links."""

    capacity_Bps: F64  # [L or O]
    alpha_fs: I64  # [P]
    start: I64  # [P + 1]
    link: I32  # [H]
    weight: I32  # [H] how many of a way's translations cross one link of the orbit


class Domain(NamedTuple):
    """Ranks that stand for all."""

    ranks: I64  # [D]
    number: I32  # [N] which of them stands for each

    @staticmethod
    def of(moves: tuple[Move, ...], n_ranks: int) -> "Domain":
        """The least rank of each orbit; of no moves every rank."""
        number = orbits(n_ranks, [move.rank for move in moves])
        return Domain(column(np.unique(number, return_index=True)[1], np.int64), column(number, np.int32))


def ways(topology: Topology, asked: Asked) -> Hops:
    """The ways of pairs over links."""
    found, links = topology.routes(*asked), topology.links
    once = np.ones(len(found.link), np.int32)
    return Hops(links.bandwidth_Bps, heads(topology, asked, found), found.start, column(found.link, np.int32), once)


def shared_ways(topology: Topology, asking: Asking, moves: tuple[Move, ...], domain: Domain) -> Hops | None:
    """The ways of pairs over orbits of links; nothing where the routes do not keep the moves.

    That they do is tried on the ranks of the domain, by each move and some products; and on all ranks, which proves it, where
    their routes have few enough hops.

    Args:
        topology: Whose moves they are.
        asking: The pairs.
        moves: One or more.
        domain: Theirs.
    """
    asked, links, images = asking(domain.ranks), topology.links, len(domain.number) // len(domain.ranks)
    found = topology.routes(*asked)
    if not _keep(topology, asked, (*moves, *_products(moves))):
        return None
    if len(found.link) * images <= _PROVED and not _keep(topology, asking(np.arange(len(domain.number))), moves):
        return None
    orbit = orbits(len(links), [move.link for move in moves])
    first, size = np.unique(orbit, return_index=True, return_counts=True)[1:]
    crossing = np.repeat(np.arange(len(found.start) - 1), found.hops) * len(first) + orbit[found.link]
    crossed, times = np.unique(crossing, return_counts=True)
    pair, link = np.divmod(crossed, len(first))
    weight, odd = np.divmod(times * images, size[link])
    if odd.any():
        return None
    start = column(np.searchsorted(pair, np.arange(len(found.start))), np.int64)
    rate = column(links.bandwidth_Bps[first], np.float64)
    return Hops(rate, heads(topology, asked, found), start, column(link, np.int32), column(weight, np.int32))


def _keep(topology: Topology, asked: Asked, moves: tuple[Move, ...]) -> bool:
    """Whether each move brings the route of each pair to that of the pair's image."""
    src, dst, key = asked
    found = topology.router(*asked)
    for node, _, link in moves:
        image = topology.router(column(node[src], np.int64), column(node[dst], np.int64), key)
        if not (np.array_equal(image.start, found.start) and np.array_equal(image.link, link[found.link])):
            return False
    return True


def moves_of(topology: Topology, placement: I32, translations: Translations) -> tuple[Move, ...]:
    """The declared symmetries of a topology, or the least powers of them, that translate the ranks placed there."""
    if topology.symmetry is None:
        return ()
    images = _Images.of(topology, placement, translations)
    found = (images.least_power(column(node, np.int64)) for node in topology.symmetry())
    return tuple(move for move in found if move is not None)


@dataclass(frozen=True, eq=False, slots=True)
class _Images:
    """Where permutations of nodes bring ranks and links."""

    links: Links
    placement: I64  # [N]
    rank_at: I64  # [n_nodes] -1: none
    translations: Translations
    order: I64  # [L] links by (src, dst)
    ends: I64  # [L] (src, dst) as one number, in that order
    parallel: I64  # [L] the place of each link among those of equal ends

    @staticmethod
    def of(topology: Topology, placement: I32, translations: Translations) -> "_Images":
        ends = topology.links.src.astype(np.int64) * topology.n_nodes + topology.links.dst
        order = np.argsort(ends, kind="stable")
        ends, parallel, rank_at = ends[order], np.empty_like(order), np.full(topology.n_nodes, -1)
        parallel[order] = np.arange(len(ends)) - np.searchsorted(ends, ends)
        rank_at[placement] = np.arange(len(placement))
        return _Images(topology.links, column(placement, np.int64), rank_at, translations, order, ends, parallel)

    def least_power(self, node: I64) -> Move | None:
        """The least power of a permutation of nodes that is a symmetry and translates the ranks, but leaves none in place."""
        length, here = 1, node[self.placement[0]]
        while here != self.placement[0]:
            length, here = length + 1, node[here]
        powers = (_power(node, k) for k in range(1, length) if length % k == 0)
        return next((move for move in map(self._move, powers) if move is not None), None)

    def _move(self, node: I64) -> Move | None:
        rank = self.rank_at[node[self.placement]]
        if rank.min() < 0 or not np.array_equal(rank, self.translations.rank(np.arange(len(rank)), rank[0])):
            return None
        link = self._links(node)
        return None if link is None else Move(node, rank, link)

    def _links(self, node: I64) -> I64 | None:
        """The image of each link, as fast and as long: of parallel ones that in the same place."""
        ends = node[self.links.src] * len(node) + node[self.links.dst]
        at = np.minimum(np.searchsorted(self.ends, ends) + self.parallel, len(ends) - 1)
        if not np.array_equal(self.ends[at], ends):
            return None
        link = self.order[at]
        alike = all(np.array_equal(c[link], c) for c in (self.links.bandwidth_Bps, self.links.latency_fs))
        return link if alike else None


def _power(permutation: I64, k: int) -> I64:
    found, square = np.arange(len(permutation)), permutation
    while k:
        found = square[found] if k % 2 else found
        square, k = square[square], k // 2
    return found


def _products(moves: tuple[Move, ...]) -> list[Move]:
    """Of random powers, the same ones every time."""
    random, products = np.random.default_rng(0), []
    for _ in range(_PRODUCTS):
        found = tuple(np.arange(len(c)) for c in moves[0])
        for move in moves:
            k = int(random.integers(1, len(move.rank) + 1))
            found = tuple(_power(c, k)[done] for c, done in zip(move, found, strict=True))
        products.append(Move(*found))
    return products
