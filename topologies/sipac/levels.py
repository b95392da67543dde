"""SiPAC(r, L) as neighbours, and the comb lines of its links: N = r^L CUs with the digits u_0 .. u_(L-1), level 0 the fastest.

Source: Flex-SiPAC 3.A. The r CUs that differ in digit l only have a port each on one WSS of level l, and light leads from each
to every other. The paper writes SiPAC(r, l) with l = L - 1, and Flex-SiPAC(r, L). Letter: E links, one in each direction
between neighbours.

The wavelengths of a link are lines of its sender's comb, and no line is used twice at a sender or at a receiver. Flex-SiPAC 3.C
routes each WSS by colouring a graph of signals, with DSatur. Two signals conflict if they share a sender or a receiver, so that
the colours are those of the edges of a bipartite graph, and as many as its largest degree are always enough (König 1916), not
only for one WSS: a comb has each line once for all ports of its CU.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from emu.arrays import F64, I64, Bool, column
from emu.errors import must_be
from emu.topology.builders.grid import Dimension, grid
from emu.topology.topology import Topology, check_link_count

_MOST_LEVELS = 24  # largest number of levels: more have over 2**24 links, even with two CUs a WSS


@dataclass(frozen=True, slots=True)
class Levels:
    """The sizes of a SiPAC: r ports of a switch, L levels, and w wavelengths of a computing unit (CU)."""

    name: str  # name of the topology, for messages
    r: int  # ports of a WSS: CUs that one WSS joins
    L: int  # number of levels
    w: int  # wavelengths of a CU

    @property
    def npus(self) -> int:
        """The number of computing units (CUs), N."""
        return int(self.r**self.L)

    @property
    def degree(self) -> int:
        """The number of neighbours of a CU."""
        return self.L * (self.r - 1)

    @property
    def switches(self) -> int:
        """The number of wavelength-selective switches (WSS) of all levels, M."""
        return int(self.L * self.r ** (self.L - 1))

    def check(self) -> None:
        """Check that the sizes can be built and give every neighbour light.

        Raises:
            InputError: They cannot. The message names r, L or w, and a value that works.
        """
        if self.r < 2:
            raise must_be(self.name, "r", "2 or more ports of a WSS", self.r)
        if self.L > _MOST_LEVELS:
            raise must_be(self.name, "L", f"at most {_MOST_LEVELS} levels", self.L)
        check_link_count(self.name, self.npus * self.degree)
        if self.w < self.degree:
            what = f"at least {self.degree}, one for each neighbour (L (r - 1))"
            raise must_be(self.name, "w", what, self.w, "take more wavelengths, or a smaller r or L")

    def lattice(self, bandwidth_Bps: float, latency_fs: int) -> Topology:
        """Return the topology in which all neighbours have equal links; routes take level 0 first."""
        return grid(self.name, [Dimension(self.r, "complete", bandwidth_Bps, latency_fs)] * self.L)


@dataclass(frozen=True, eq=False, slots=True)
class Neighbours:
    """Links between neighbours of a SiPAC, in the order of all its links."""

    n: int  # number of CUs
    src: I64  # [E] CU that sends
    dst: I64  # [E] CU that receives
    turn: I64  # [E] turn in which a spare wavelength is given; a link and its reverse have the same

    def of(self, which: Bool) -> "Neighbours":
        """Return the links for which `which` is true."""
        return Neighbours(self.n, self.src[which], self.dst[which], self.turn[which])

    def sums(self, wavelengths: I64 | F64) -> tuple[F64, F64]:
        """Return [N] the number of wavelengths that each CU sends, and [N] the number that it receives."""
        return self._sums_at_end(self.src, wavelengths), self._sums_at_end(self.dst, wavelengths)

    def _sums_at_end(self, end: I64, wavelengths: I64 | F64) -> F64:
        """Return [N] the sums of wavelengths at one end of the links."""
        return column(np.bincount(end, wavelengths, self.n), np.float64)


def neighbours(levels: Levels) -> Neighbours:
    """Return all links between neighbours, which share a WSS, with the order in which links get spare wavelengths.

    The turns in which links get spare wavelengths go round the levels; on a level, the links of one turn join the CUs of a WSS
    in pairs, or for odd r in rings.
    """
    links = levels.lattice(1.0, 0).links
    level = levels.L - 1 - links.dimension.astype(np.int64)
    stride = levels.r**level
    a, b = (column(end // stride % levels.r, np.int64) for end in (links.src, links.dst))
    turn = _class(levels.r, a, b) * levels.L + level
    return Neighbours(levels.npus, column(links.src, np.int64), column(links.dst, np.int64), column(turn, np.int64))


def _class(r: int, a: I64, b: I64) -> I64:
    """Return the number of the matching of ports in which a switch joins ports a and b.

    The full mesh of r ports consists of r - 1 perfect matchings, or of (r - 1)/2 rings for odd r.
    """
    if r & (r - 1) == 0:
        return column((a ^ b) - 1, np.int64)  # matchings of aligned halves too
    if r % 2:
        return column(np.minimum((a - b) % r, (b - a) % r) - 1, np.int64)
    low, high = np.minimum(a, b), np.maximum(a, b)
    return column((low + np.where(high == r - 1, low, high)) % (r - 1), np.int64)


def uniform(levels: Levels, near: Neighbours) -> I64:
    """Return [E] the wavelengths of each link without jobs: w is spread over all neighbours, the remainder given in turns.

    With odd r and odd w one wavelength of each CU stays dark, because an odd number of CUs cannot be joined in pairs.
    """
    each, over = divmod(levels.w, levels.degree)
    return column(each + (near.turn < over // (1 + levels.r % 2)), np.int64)


class Lines(NamedTuple):
    """The comb lines of links, as S signals in the order of links."""

    link: I64  # [S] link of each signal
    line: I64  # [S] 0..w-1


def comb_lines(near: Neighbours, wavelengths: I64, w: int, before: Lines | None = None) -> Lines:
    """Return the comb lines of each link, so that no compute unit (CU) uses one line twice in a direction.

    Args:
        near: The links.
        wavelengths: [E] the number of lines that each link gets.
        w: The number of lines of a comb.
        before: The earlier lines of the same links. They stay if possible; two lines may be swapped along a chain of links to
            make room for new signals.

    Raises:
        InputError: A CU sends or receives more than w.
    """
    most = int(np.concatenate(near.sums(wavelengths)).max(initial=0))
    if most > w:
        raise must_be("comb lines", "wavelengths in and out of a CU", f"at most {w}", most)
    combs = _Combs(near, w)
    left = wavelengths.copy()
    for link, line in zip(*_kept_lines(before, wavelengths), strict=True) if before else ():
        combs.put(link, line)
        left[link] -= 1
    for link in np.repeat(np.arange(len(left)), left).tolist():
        combs.add(link)
    held = np.array(combs.sent)
    cu, at = np.nonzero(held >= 0)
    order = np.lexsort((at, held[cu, at]))
    return Lines(column(held[cu, at][order], np.int64), column(at[order], np.int64))


def _kept_lines(before: Lines, wavelengths: I64) -> tuple[list[int], list[int]]:
    """Return the comb lines (wavelengths) that links keep when their numbers of wavelengths change.

    Each link keeps its first lines, up to the number that it needs now.

    Args:
        before: The lines that links have, sorted by the link.
        wavelengths: [L] the number of wavelengths that each link needs now.

    Returns:
        Two lists of equal length: the link of each kept line, and the line.
    """
    place = np.arange(len(before.link)) - np.searchsorted(before.link, before.link)
    stays = place < wavelengths[before.link]
    return before.link[stays].tolist(), before.line[stays].tolist()


class _Combs:
    """The link that uses each comb line of each CU, as sender and as receiver; -1 for none."""

    def __init__(self, near: Neighbours, w: int) -> None:
        self.src, self.dst = near.src.tolist(), near.dst.tolist()
        self.sent = [[-1] * w for _ in range(near.n)]
        self.received = [[-1] * w for _ in range(near.n)]
        self.free_sent = [(1 << w) - 1] * near.n  # a bit a line
        self.free_received = [(1 << w) - 1] * near.n

    def put(self, link: int, line: int, *, lit: bool = True) -> None:
        """Assign a comb line to a link at both ends, or remove it (`lit` false)."""
        i, j = self.src[link], self.dst[link]
        self.sent[i][line] = self.received[j][line] = link if lit else -1
        self.free_sent[i] ^= 1 << line
        self.free_received[j] ^= 1 << line

    def add(self, link: int) -> None:
        """Assign a link a comb line that is free at both ends, if necessary after a chain of swaps."""
        free, wanted = self.free_sent[self.src[link]], self.free_received[self.dst[link]]
        line = _lowest(free & wanted or free)
        if not free & wanted:
            self._swap(self.dst[link], line, _lowest(wanted))
        self.put(link, line)

    def _swap(self, receiver: int, a: int, b: int) -> None:
        """Swap lines a and b along the chain of links from the one by which `receiver` gets a.

        No CU at the chain's end has a free.
        """
        chain, held, line = [], self.received[receiver][a], a
        while held >= 0:
            chain.append((held, line))
            line = a + b - line
            held = self.sent[self.src[held]][b] if line == b else self.received[self.dst[held]][a]
        for held, line in chain:
            self.put(held, line, lit=False)
        for held, line in chain:
            self.put(held, a + b - line)


def _lowest(bits: int) -> int:
    """Return the number of the lowest bit that is set."""
    return (bits & -bits).bit_length() - 1
