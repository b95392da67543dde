"""The cables of a description as columns.

Letter: C rows of cables.
"""

from dataclasses import dataclass

from emu.arrays import F64, I64


@dataclass(frozen=True, eq=False, slots=True)
class CableRows:
    """The cables, or one-way links, of a description: a row for parallel ones between the same two nodes."""

    a: I64  # [C] node
    b: I64  # [C] node
    bandwidth_Bps: F64  # [C] one direction
    latency_fs: I64  # [C] ticks
    tier: I64  # [C] index of its tier
    count: I64  # [C] number of parallel cables
    cost: I64  # [C] cost of a link; 0: none is given
    entry: I64  # [C] number of the entry in which it is written
