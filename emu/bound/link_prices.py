"""The least time of an exchange among all ranks, from prices on links.

At any prices, data from one rank to another pays at least the distance in prices between them. All links together take in at
most price times capacity in a unit of time. Source: Shahrokhi and Matula, The maximum concurrent flow problem, J. ACM 37
(1990). Letters: A arcs, V nodes, N ranks, D dimensions.
"""

from collections.abc import Iterator

import numpy as np

from emu.arrays import F64, I64
from emu.bound.network import Network
from emu.bound.symmetry import Symmetry
from emu.topology.paths.shortest_paths import least_weights

_DOWN = 1 - 2.0**-40  # factor that keeps a sum of floats below the exact sum


def price_bound(net: Network, alike: Symmetry, price: F64) -> float:
    """Return a lower bound of the time of an exchange of one block from each rank to each other.

    The time is in blocks per unit of capacity.

    Args:
        net: The network.
        alike: Its symmetry.
        price: [A] 0 or more, equal for arcs of one kind.
    """
    away = least_weights((net.src, net.dst), price, net.n_nodes, alike.ranks[:, None])[:, net.ranks]
    return float(alike.ranks_alike @ away.sum(axis=1) / (price @ net.capacity)) * _DOWN


def best_simple_price(net: Network, alike: Symmetry) -> float:
    """Return the largest bound of some simple prices: equal shares of every arc, or of the arcs of one dimension."""
    return max(price_bound(net, alike, price) for price in _prices(net, alike))


def count_price_lists(net: Network) -> int:
    """Return the number of price lists that `best_simple_price` tries."""
    dimensions = len(np.unique(net.dimension))
    return 1 + (dimensions if dimensions > 1 else 0)


def _prices(net: Network, alike: Symmetry) -> Iterator[F64]:
    """Yield lists of prices of arcs: the time of a block on each arc, and then the same for the arcs of one dimension alone."""
    share = 1 / net.capacity
    yield share
    dimension = dimensions(net, alike)
    kinds = np.unique(dimension)
    for kind in kinds if len(kinds) > 1 else ():
        yield np.where(dimension == kind, share, 0.0)


def dimensions(net: Network, alike: Symmetry) -> I64:
    """Return [A] the dimension of each arc; arcs of one kind get the least of their dimensions."""
    least = np.full(alike.arc_kind.max() + 1, np.iinfo(np.int64).max)
    np.minimum.at(least, alike.arc_kind, net.dimension)
    return least[alike.arc_kind]
