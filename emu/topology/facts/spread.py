"""Whether a topology spreads messages over ways of equal length by their key."""

import numpy as np

from emu.arrays import I64
from emu.errors import InputError
from emu.topology.kept import kept
from emu.topology.topology import CHANNELS, Routes, Topology

_NPUS, _KEYS = 64, 4  # that are looked at


@kept(1)
def spreads(topology: Topology) -> bool:
    """Whether pairs of one communicator may take other ways than those of another (ECMP), as far as some pairs tell.

    Where some have no way, or optical switches turn for them, it may.
    """
    src, dst = some_pairs(topology)
    if topology.circuits or not len(src):
        return bool(topology.circuits)
    try:
        first, *others = (_ways(topology, src, dst, key) for key in range(_KEYS))
    except InputError:
        return True
    return not all(np.array_equal(first.start, other.start) and np.array_equal(first.link, other.link) for other in others)


def some_pairs(topology: Topology) -> tuple[I64, I64]:
    """Sources and destinations among some of the NPUs: the next of each, one at a third of all, and one at half."""
    n = topology.n_npus
    src = np.unique(np.linspace(0, n - 1, min(n, _NPUS)).astype(np.int64))
    far = np.unique(np.array([1, n // 3, n // 2]))
    away = far[far % n > 0]
    return np.tile(src, len(away)), np.add.outer(away, src).ravel() % n


def _ways(topology: Topology, src: I64, dst: I64, communicator: int) -> Routes:
    return topology.routes(src, dst, np.full(len(src), communicator * CHANNELS))
