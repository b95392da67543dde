"""The test whether a topology spreads messages over paths of equal length by their key."""

import numpy as np

from emu.arrays import I64
from emu.errors import InputError
from emu.topology.topology import CHANNELS, Routes, Topology
from emu.topology.topology_cache import cached_by_topology

_NPUS, _KEYS = 64, 4  # how many NPUs and keys are tried


@cached_by_topology(1)
def routes_spread(topology: Topology) -> bool:
    """Return whether pairs of one communicator may take other paths than pairs of another (ECMP), from a sample of pairs.

    The answer is yes where some pairs have no route, or optical switches turn.
    """
    src, dst = some_pairs(topology)
    if topology.circuits or not len(src):
        return bool(topology.circuits)
    try:
        first, *others = (_routes(topology, src, dst, key) for key in range(_KEYS))
    except InputError:
        return True
    return not all(np.array_equal(first.start, other.start) and np.array_equal(first.link, other.link) for other in others)


def some_pairs(topology: Topology) -> tuple[I64, I64]:
    """Return the sources and destinations of a sample of pairs of NPUs.

    From each NPU of a sample, a pair goes to the next NPU, to one a third of all NPUs away, and to one half of all away.
    """
    n = topology.n_npus
    src = np.unique(np.linspace(0, n - 1, min(n, _NPUS)).astype(np.int64))
    far = np.unique(np.array([1, n // 3, n // 2]))
    away = far[far % n > 0]
    return np.tile(src, len(away)), np.add.outer(away, src).ravel() % n


def _routes(topology: Topology, src: I64, dst: I64, communicator: int) -> Routes:
    """Return the routes of pairs on the first channel of a communicator."""
    return topology.routes(src, dst, np.full(len(src), communicator * CHANNELS))
