"""SiPAC(r, L) as neighbours: N = r^L CUs whose digits u_0 .. u_(L-1) name them, level 0 the fastest.

Flex-SiPAC 3.A: the r CUs that differ in digit l only have a port each on one WSS of level l, and light leads from each to
every other. The paper writes SiPAC(r, l) with l = L - 1, and Flex-SiPAC(r, L). E links, a neighbour one way each.
"""

from dataclasses import dataclass

import numpy as np

from emu.arrays import F64, I64, Bool, column
from emu.errors import must_be
from emu.topology.parts.grid import Dimension, grid
from emu.topology.topology import Topology, check_link_count

_MOST_LEVELS = 24  # of two CUs a WSS; more have over 2**24 links


@dataclass(frozen=True, slots=True)
class Levels:
    """How many there are of what; and a transmitter's w wavelengths of `rate_Bps` each."""

    name: str
    r: int
    L: int
    w: int

    @property
    def npus(self) -> int:
        """N."""
        return int(self.r**self.L)

    @property
    def degree(self) -> int:
        """Neighbours of a CU."""
        return self.L * (self.r - 1)

    @property
    def switches(self) -> int:
        """M, the WSS of all levels."""
        return int(self.L * self.r ** (self.L - 1))

    def check(self) -> None:
        """Refuse what cannot be built, or leaves neighbours without light.

        Raises:
            InputError: naming r, L or w, and what works.
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
        """All neighbours joined alike; a message goes level 0 first."""
        return grid(self.name, [Dimension(self.r, "complete", bandwidth_Bps, latency_fs)] * self.L)


@dataclass(frozen=True, eq=False, slots=True)
class Neighbours:
    """Some of the links of a lattice, in its order."""

    n: int  # CUs
    src: I64  # [E]
    dst: I64  # [E]
    turn: I64  # [E] when spare wavelengths are dealt out, whose turn it is: a link and its way back have the same

    def of(self, which: Bool) -> "Neighbours":
        """Those where `which` is set."""
        return Neighbours(self.n, self.src[which], self.dst[which], self.turn[which])

    def sums(self, wavelengths: I64 | F64) -> tuple[F64, F64]:
        """[N] and [N] what each CU sends and what it receives."""
        return self._sum(self.src, wavelengths), self._sum(self.dst, wavelengths)

    def _sum(self, end: I64, wavelengths: I64 | F64) -> F64:
        return column(np.bincount(end, wavelengths, self.n), np.float64)


def neighbours(levels: Levels) -> Neighbours:
    """All links; turns go round the levels, and on each they join the CUs of a WSS two by two, or for odd r in rings."""
    links = levels.lattice(1.0, 0).links
    level = levels.L - 1 - links.dimension.astype(np.int64)
    stride = levels.r**level
    a, b = (column(end // stride % levels.r, np.int64) for end in (links.src, links.dst))
    turn = _class(levels.r, a, b) * levels.L + level
    return Neighbours(levels.npus, column(links.src, np.int64), column(links.dst, np.int64), column(turn, np.int64))


def _class(r: int, a: I64, b: I64) -> I64:
    """To which of the parts of a WSS's full mesh two ports belong: r - 1 perfect matchings, or (r - 1)/2 rings for odd r."""
    if r & (r - 1) == 0:
        return column((a ^ b) - 1, np.int64)  # matchings of aligned halves too
    if r % 2:
        return column(np.minimum((a - b) % r, (b - a) % r) - 1, np.int64)
    low, high = np.minimum(a, b), np.maximum(a, b)
    return column((low + np.where(high == r - 1, low, high)) % (r - 1), np.int64)


def uniform(levels: Levels, near: Neighbours) -> I64:
    """[E] wavelengths of each link before there are jobs: w spread over all neighbours, what is over by turns.

    With odd r and odd w a wavelength of each CU stays dark: an odd number of CUs cannot be joined two by two.
    """
    each, over = divmod(levels.w, levels.degree)
    return column(each + (near.turn < over // (1 + levels.r % 2)), np.int64)
