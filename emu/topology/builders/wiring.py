"""Cables as arrays, and the links and the bill that follow: link 2c is cable c from a to b, link 2c + 1 the other direction.

So a router needs no table: arithmetic gives it the number of a cable, and the end it comes from gives the direction.
"""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike

from emu.arrays import I64, column
from emu.topology.topology import Links, check_link_count


@dataclass(frozen=True, eq=False, slots=True)
class Cables:
    """Full-duplex cables of one kind, C of them; `a` and `b` broadcast against each other."""

    kind: str  # name of the part in the bill
    a: ArrayLike  # [C] node
    b: ArrayLike  # [C] node
    bandwidth_Bps: float  # one direction
    latency_fs: int
    dimension: int = 0  # the dimension, tier or plane that the cables belong to

    @property
    def ends(self) -> tuple[I64, I64]:
        """The nodes at both ends, [C] and [C], flat, in C order."""
        a, b = np.broadcast_arrays(np.asarray(self.a, np.int64), np.asarray(self.b, np.int64))
        return a.ravel(), b.ravel()


def wire(name: str, cables: Iterable[Cables]) -> tuple[Links, dict[str, int]]:
    """Return the links of all cables, kind after kind, and the number of cables of each kind.

    Raises:
        InputError: There are more than 2**24 links.
    """
    kinds = list(cables)
    ends = [kind.ends for kind in kinds]
    counts = [len(a) for a, _ in ends]
    check_link_count(name, 2 * sum(counts))
    bill: Counter[str] = Counter()
    for kind, count in zip(kinds, counts, strict=True):
        bill[kind.kind] += count
    pairs = np.concatenate([np.stack(end, axis=-1) for end in ends] or [np.zeros((0, 2), np.int64)])
    twice = [2 * count for count in counts]
    links = Links(
        column(pairs.ravel(), np.int32),
        column(pairs[:, ::-1].ravel(), np.int32),
        column(np.repeat([kind.bandwidth_Bps for kind in kinds], twice), np.float64),
        column(np.repeat([kind.latency_fs for kind in kinds], twice), np.int64),
        column(np.repeat([kind.dimension for kind in kinds], twice), np.int16),
    )
    return links, dict(bill)
