"""What all that ranks exchange costs at least, where links have prices.

At any prices, what goes from one rank to another pays at least their distance in prices, and all links together take in no
more than price times capacity a unit of time: Shahrokhi and Matula, The maximum concurrent flow problem, J. ACM 37 (1990).
A arcs, V nodes, N ranks, D dimensions.
"""

from collections.abc import Iterator

import numpy as np

from emu.arrays import F64, I64
from emu.bound.network import Network
from emu.bound.symmetry import Symmetry
from emu.topology.path.quickest import quickest

_DOWN = 1 - 2.0**-40  # so that sums of floats stay below what they stand for


def at_prices(net: Network, alike: Symmetry, price: F64) -> float:
    """The time, in blocks per unit of capacity, that an exchange of one block from each rank to each other takes at least.

    Args:
        net: Its arcs.
        alike: In it.
        price: [A] 0 or more, alike for arcs that are alike.
    """
    away = quickest((net.src, net.dst), price, net.n_nodes, alike.ranks[:, None])[:, net.ranks]
    return float(alike.ranks_alike @ away.sum(axis=1) / (price @ net.capacity)) * _DOWN


def crossed(net: Network, alike: Symmetry) -> float:
    """The most that simple prices say: the same share of every arc, or of those of one dimension."""
    return max(at_prices(net, alike, price) for price in _prices(net, alike))


def count(net: Network) -> int:
    """How many price lists `crossed` tries."""
    dimensions = len(np.unique(net.dimension))
    return 1 + (dimensions if dimensions > 1 else 0)


def _prices(net: Network, alike: Symmetry) -> Iterator[F64]:
    share = 1 / net.capacity
    yield share
    dimension = dimensions(net, alike)
    kinds = np.unique(dimension)
    for kind in kinds if len(kinds) > 1 else ():
        yield np.where(dimension == kind, share, 0.0)


def dimensions(net: Network, alike: Symmetry) -> I64:
    """[A] the dimension of each arc; of arcs that are alike the least, so that it is one."""
    least = np.full(alike.arc_kind.max() + 1, np.iinfo(np.int64).max)
    np.minimum.at(least, alike.arc_kind, net.dimension)
    return least[alike.arc_kind]
