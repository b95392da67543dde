"""What slows kernels down beside FLOPs and bytes: waves of tiles that do not fill the cores, and communication beside them.

E events of a role.
"""

import numpy as np

from emu.arrays import F64, Bool
from emu.trace.kernel import Kernel
from emu.trace.trace import Events, Kind


def waves(events: Events, cores: int, tile: tuple[int, int], last_wave: float = 1.0) -> F64:
    """[E] how many times as long a product takes as one whose tiles fill all cores to the end; 1 where that is not known.

    A product is worked out in w = ceil(M / tile) ceil(N / tile) BATCH / cores waves of tiles, of which the last takes as long
    as any other: ceil(w) / w. A kernel that splits the work of the last wave on (stream-K), or begins tiles of other sizes
    there, loses a share of that only. Sources: NVIDIA, Matrix Multiplication Background User's Guide, sections on tile and
    wave quantization; Osama et al., Stream-K (2023).

    Args:
        events: As they ran.
        cores: That work on a tile each at one time; 0: not known.
        tile: Rows and columns of a tile.
        last_wave: Share of the cores that the last wave leaves idle, that is lost.
    """
    rows, columns = (-(-size.astype(np.int64) // side) for size, side in ((events.m, tile[0]), (events.n, tile[1])))
    w = rows * columns * events.batch / max(cores, 1)
    counted = (events.kernel == Kernel.PRODUCT) & (w > 0) & (cores > 0)
    return np.where(counted, 1 + last_wave * (np.ceil(w) / np.where(counted, w, 1.0) - 1), 1.0)


def main_loop(events: Events, prologue: float) -> F64:
    """[E] how many times as long a product takes as its main loops over K alone: a tile is loaded before, and written after.

    Args:
        events: As they ran.
        prologue: What that takes, in elements of K.
    """
    counted = (events.kernel == Kernel.PRODUCT) & (events.k > 0)
    return np.where(counted, 1 + prologue / np.where(counted, events.k, 1), 1.0)


def beside(events: Events) -> Bool:
    """[E] whether a collective of the same rank is under way: asked for before the event, and waited for only after it."""
    n = len(events)
    asked = np.flatnonzero(events.kind == Kind.COLLECTIVE)
    until = np.full(n + 1, n, np.int64)
    np.minimum.at(until, events.wait, np.repeat(np.arange(n), np.diff(events.wait_start)))
    begun, ended = np.bincount(asked + 1, minlength=n + 1), np.bincount(until[asked], minlength=n + 1)
    return np.asarray(np.cumsum(begun - ended)[:n] > 0)
