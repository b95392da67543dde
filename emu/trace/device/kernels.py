"""The slowdown of kernels beside FLOPs and bytes: waves of tiles that do not fill the cores, and communication beside them.

E events of a role.
"""

from typing import NamedTuple

import numpy as np

from emu.arrays import F64, Bool
from emu.trace.kernel import Kernel
from emu.trace.trace import Events, Kind

_ADD = ("all_reduce", "reduce_scatter", "reduce")  # collectives whose ranks add


class Tiling(NamedTuple):
    """How a device works out products: a tile of the result on each core at one time."""

    cores: int  # 0: not known, so that every product fills the device
    tile: tuple[int, int]  # rows and columns of the largest
    last_wave: float = 1.0  # share of the cores that the last wave leaves idle, that is lost
    narrow: float = 0.0  # how much slower the main loop of a smaller tile is; 0: all products have the largest
    prologue_s: float = 0.0  # what a core takes for one largest tile before and after the main loop over K

    @property
    def tiles(self) -> tuple[tuple[int, int], ...]:
        """The largest, the same turned, and those with half of its rows or columns, or less."""
        rows, columns = sorted(self.tile)
        smaller = ((rows, columns // 2), (rows, columns // 4), (rows // 2, columns // 2), (rows // 2, columns // 4))
        return (self.tile, self.tile[::-1], *(smaller if min(smaller[-1]) >= 1 else ())) if self.narrow else (self.tile,)

    def product_s(self, events: Events, flops_s: F64) -> F64:
        """[E] seconds of a product with the tile that suits it best, from seconds at full rate.

        A result takes t = ceil(M / rows) ceil(N / columns) BATCH / cores waves of tiles, with what lies beyond its edges. The
        last wave takes as long as any other; a kernel that splits its work on (stream-K) loses only a share of that. A smaller
        tile multiplies fewer elements for each that it loads: its main loop is slower, by a power of that ratio. Sources:
        NVIDIA, Matrix Multiplication Background User's Guide, sections on tile and wave quantization; Osama et al., Stream-K
        (2023).
        """
        counted = (events.kernel == Kernel.PRODUCT) & (events.m > 0) & (events.n > 0) & (self.cores > 0)
        found = flops_s.copy()
        if counted.any():
            m, n, batch = (np.asarray(column[counted], float) for column in (events.m, events.n, events.batch))
            of_result = flops_s[counted] / (m * n * batch) * self.cores  # of one element, on one core
            found[counted] = np.min([self._in_tiles(tile, m, n, batch, of_result) for tile in self.tiles], axis=0)
        return found

    def _in_tiles(self, tile: tuple[int, int], m: F64, n: F64, batch: F64, element_s: F64) -> F64:
        rows, columns = tile
        waves = np.ceil(m / rows) * np.ceil(n / columns) * batch / self.cores
        waves += self.last_wave * (np.ceil(waves) - waves)
        area, largest = rows * columns, self.tile[0] * self.tile[1]
        reuse = (area / (rows + columns)) / (largest / sum(self.tile))  # elements multiplied for each that is loaded
        return np.asarray(waves * area * (element_s / min(1.0, reuse) ** self.narrow + self.prologue_s / largest))


def beside(events: Events) -> Bool:
    """[E] whether a collective of the same rank that adds is under way: asked for before the event, and waited for after it.

    What only copies is left to few cores, or to none.
    """
    n = len(events)
    asked = np.flatnonzero(events.kind == Kind.COLLECTIVE)
    asked = asked[[events.name[row] in _ADD for row in asked.tolist()]] if len(asked) else asked
    until = np.full(n + 1, n, np.int64)
    np.minimum.at(until, events.wait, np.repeat(np.arange(n), np.diff(events.wait_start)))
    begun, ended = np.bincount(asked + 1, minlength=n + 1), np.bincount(until[asked], minlength=n + 1)
    return np.asarray(np.cumsum(begun - ended)[:n] > 0)
