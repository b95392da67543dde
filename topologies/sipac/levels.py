"""SiPAC(r, L) as neighbours: N = r^L CUs with the digits u_0 .. u_(L-1), level 0 the fastest.

Source: Flex-SiPAC 3.A. The r CUs that differ in digit l only have a port each on one WSS of level l, and light leads from each
to every other. The paper writes SiPAC(r, l) with l = L - 1, and Flex-SiPAC(r, L). Letter: E links, one in each direction
between neighbours.
"""

from dataclasses import dataclass

import numpy as np

from emu.arrays import F64, I64, Bool, column
from emu.errors import must_be
from emu.topology.builders.grid import Dimension, grid
from emu.topology.topology import Topology, check_link_count

_MOST_LEVELS = 24  # largest number of levels: more have over 2**24 links, even with two CUs a WSS


@dataclass(frozen=True, slots=True)
class Levels:
    """The sizes of a SiPAC: ports, levels and wavelengths."""

    name: str  # name of the topology, for messages
    r: int  # ports of a WSS: CUs that one WSS joins
    L: int  # number of levels
    w: int  # wavelengths of a CU

    @property
    def npus(self) -> int:
        """The number of CUs, N."""
        return int(self.r**self.L)

    @property
    def degree(self) -> int:
        """The number of neighbours of a CU."""
        return self.L * (self.r - 1)

    @property
    def switches(self) -> int:
        """The number of WSS of all levels, M."""
        return int(self.L * self.r ** (self.L - 1))

    def check(self) -> None:
        """Check that the sizes can be built and leave every neighbour light.

        Raises:
            InputError: They cannot. The message names r, L or w, and what works.
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
        """Return the topology in which all neighbours have equal links; a message goes along level 0 first."""
        return grid(self.name, [Dimension(self.r, "complete", bandwidth_Bps, latency_fs)] * self.L)


@dataclass(frozen=True, eq=False, slots=True)
class Neighbours:
    """Some of the links of a lattice, in its order."""

    n: int  # number of CUs
    src: I64  # [E] CU that sends
    dst: I64  # [E] CU that receives
    turn: I64  # [E] turn in which a spare wavelength is given; a link and its reverse have the same

    def of(self, which: Bool) -> "Neighbours":
        """Return the links where `which` is true."""
        return Neighbours(self.n, self.src[which], self.dst[which], self.turn[which])

    def sums(self, wavelengths: I64 | F64) -> tuple[F64, F64]:
        """Return the sums of what each CU sends and of what it receives, [N] and [N]."""
        return self._sum(self.src, wavelengths), self._sum(self.dst, wavelengths)

    def _sum(self, end: I64, wavelengths: I64 | F64) -> F64:
        """Return [N] the sums of wavelengths at one end of the links."""
        return column(np.bincount(end, wavelengths, self.n), np.float64)


def neighbours(levels: Levels) -> Neighbours:
    """Return all links; turns go round the levels, and on each join the CUs of a WSS in pairs, or for odd r in rings."""
    links = levels.lattice(1.0, 0).links
    level = levels.L - 1 - links.dimension.astype(np.int64)
    stride = levels.r**level
    a, b = (column(end // stride % levels.r, np.int64) for end in (links.src, links.dst))
    turn = _class(levels.r, a, b) * levels.L + level
    return Neighbours(levels.npus, column(links.src, np.int64), column(links.dst, np.int64), column(turn, np.int64))


def _class(r: int, a: I64, b: I64) -> I64:
    """Return the part of a WSS's full mesh that joins two ports.

    The parts are r - 1 perfect matchings, or (r - 1)/2 rings for odd r.
    """
    if r & (r - 1) == 0:
        return column((a ^ b) - 1, np.int64)  # matchings of aligned halves too
    if r % 2:
        return column(np.minimum((a - b) % r, (b - a) % r) - 1, np.int64)
    low, high = np.minimum(a, b), np.maximum(a, b)
    return column((low + np.where(high == r - 1, low, high)) % (r - 1), np.int64)


def uniform(levels: Levels, near: Neighbours) -> I64:
    """Return [E] the wavelengths of each link without jobs: w is spread over all neighbours, and the remainder goes by turns.

    With odd r and odd w a wavelength of each CU stays dark: an odd number of CUs cannot be joined in pairs.
    """
    each, over = divmod(levels.w, levels.degree)
    return column(each + (near.turn < over // (1 + levels.r % 2)), np.int64)
