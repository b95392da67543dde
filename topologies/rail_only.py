"""Rail-only networks as a grid: every row of chips is under switches of one tier, every column under others.

Sources: Wang et al., Rail-Only (arXiv:2307.12169), without cross-rail switches: a column is a rail. Sizes are those of RailX
(arXiv:2507.18889), 6.2, A.8 and Table 6: V x V chips, V the ports of a switch.
"""

from functools import partial

import numpy as np

from emu.arrays import I64
from emu.equivalence import shift
from emu.errors import must_be
from emu.topology.builders.route_parts import join, link_if, mix
from emu.topology.builders.wiring import Cables, fabric
from emu.topology.catalogue import (
    HOP_LATENCY,
    PORT_RATE,
    Bandwidth,
    Count,
    Dims,
    EqualWays,
    Invariants,
    Latency,
    check_sizes,
    topology,
)
from emu.topology.paths.spray import routed
from emu.topology.topology import Box, Drawing, Routes, Topology, check_link_count
from emu.units import format_bandwidth, format_time, seconds

_SOURCE = "Wang et al., Rail-Only (arXiv:2307.12169); RailX (arXiv:2507.18889), A.8 and Table 6"


def _check(dims: tuple[int, ...], radix: int) -> None:
    """Check that `dims` has two sizes, and that a switch has enough ports for them."""
    check_sizes("rail-only", "dims", dims, 2, "two sizes, rows and columns, such as 64x64")
    if max(dims) > radix:
        raise must_be("rail-only", "dims", f"at most {radix} each, the ports of a switch", "x".join(map(str, dims)))


def _invariants(dims: tuple[int, ...], planes: int, row: float, column: float, **_: object) -> Invariants:
    """Return the invariants of the topology by closed forms."""
    rows, columns = dims
    n, both = rows * columns, min(dims) > 1
    cuts = [rate for size, rate in ((rows, column), (columns, row)) if size % 2 == 0]
    halved = planes * n // 2 * min(cuts) if both and cuts else None
    return Invariants(
        4 * n,
        2,
        4 if both else 2,
        halved,
        npus=n,
        switches=rows + columns,
        injection_Bps=planes * (row + column),
        paths=2 if both else None,
    )


@topology(
    "rail-only",
    source=_SOURCE,
    examples=(
        "dims=8x8",
        "dims=2x3",
        "dims=4x2,planes=18,row=450GB/s",
        "dims=3x5",
        "dims=4x4,route=spray",
        "dims=4x4,route=least-loaded",
    ),
    full=("dims=64x64,planes=18",),
    invariants=_invariants,
)
def rail_only(
    dims: Dims,
    radix: Count = 64,
    planes: Count = 1,
    row: Bandwidth = PORT_RATE,
    column: Bandwidth = PORT_RATE,
    latency: Latency = HOP_LATENCY,
    route: EqualWays = "hash",
) -> Topology:
    """Join a grid of chips by a switch for each row and each column; a message off both is relayed by a chip where they cross.

    Args:
        dims: Rows and columns of the grid.
        radix: Ports of a switch.
        planes: Switches of each row and column, over which a chip spreads each message evenly (RailX takes 18).
        row: Bandwidth of a port to the switches of the row, in RailX the scale-up network.
        column: Bandwidth of a port to the switches of the column, a rail.
        latency: Latency of a hop.
        route: Which of its two ways a message off row and column takes: by a hash, the channels of a pair in turn, or both.
    """
    _check(dims, radix)
    (rows, columns), kind = dims, f"link x{planes}" if planes > 1 else "cable"
    n = rows * columns
    check_link_count("rail-only", 4 * n)
    npu = np.arange(n)
    kinds = [
        Cables(kind, npu, n + npu // columns, planes * row, latency, 0),
        Cables(kind, npu, n + rows + npu % columns, planes * column, latency, 1),
    ]
    return fabric(
        "rail-only",
        n,
        kinds,
        bill={"switch": planes * (rows + columns), "optical transceiver": 4 * planes * n},
        dims=dims,
        assumptions=_assumptions(planes, row, column, latency, route),
        tiers=("NPU to row switch", "NPU to column switch"),
        draw=partial(_draw, rows, columns),
        relays=True,
        symmetry=partial(_shifts, rows, columns) if route == "spray" else None,
        **routed(
            route, partial(_route, columns, n), partial(_count_paths, columns), partial(_route_by_number, columns, n), 2, 2
        ),
    )


def _shifts(rows: int, columns: int) -> list[I64]:
    """Return two symmetries, each [nodes] the node to which a node goes: one moves every row to the next, one every column.

    The last row goes to the first, and so does the last column. Switches go with their row or column.
    """
    grid = (rows, columns)
    return [shift((grid, 0), ((rows,), 0), ((columns,), None)), shift((grid, 1), ((rows,), None), ((columns,), 0))]


_WAYS = {
    "hash": "a message goes either first, by a hash",
    "disjoint": "the channels of a pair go either first in turn",
    "spray": "half of each message goes either first",
    "least-loaded": "a message goes first where there is less to send when it starts",
}


def _assumptions(planes: int, row: float, column: float, latency: int, route: str) -> tuple[str, ...]:
    """Return the sentences that say what the topology assumes."""
    bundled = f"{planes} equal planes side by side, over which a chip spreads each message evenly"
    return (
        f"a port carries {format_bandwidth(row)} one way in a row and {format_bandwidth(column)} in a column",
        f"a hop takes {format_time(seconds(latency))}",
        f"off row and column {_WAYS[route]}, and is relayed by the chip where they cross",
        *([bundled] if planes > 1 else []),
    )


def _route(columns: int, n: int, src: I64, dst: I64, key: I64) -> Routes:
    """Return routes through the row's switch (cable c is that of NPU c) and the column's (cable n + c), either first."""
    return _route_by_number(columns, n, src, dst, mix(src, dst, key))


def _count_paths(columns: int, src: I64, dst: I64) -> I64:
    """Return [P] the number of equal paths of each pair: two if its chips differ in row and column, else one."""
    return np.where((src // columns != dst // columns) & (src % columns != dst % columns), 2, 1)


def _route_by_number(columns: int, n: int, src: I64, dst: I64, way: I64) -> Routes:
    """Return the routes of pairs along path number `way`: an even one goes along the row first, an odd one along the column."""
    down_first = way % 2 == 1
    here, there = src // columns, dst // columns
    corner = np.where(down_first, there * columns + src % columns, here * columns + dst % columns)
    stages = []
    for a, b, first in ((src, corner, ~down_first), (corner, dst, down_first)):
        cable = np.where(first, 0, n)
        stages += [link_if(a != b, 2 * (cable + a)), link_if(a != b, 2 * (cable + b) + 1)]
    return join(stages)


def _draw(rows: int, columns: int) -> Drawing:
    """Return a drawing of the grid, with a row's switch to its right and a column's switch above it."""
    row, column = np.divmod(np.arange(rows * columns), columns)
    at = [
        np.stack((column, -row), axis=-1),
        np.stack((np.full(rows, columns + 0.6), -np.arange(rows) - 0.35), axis=-1),
        np.stack((np.arange(columns) + 0.35, np.full(columns, 1.6)), axis=-1),
    ]
    boxes = (
        Box("row switches", (rows * columns, rows * columns + rows)),
        Box("column switches", (rows * columns + rows, rows * columns + rows + columns)),
    )
    return Drawing(np.concatenate(at), boxes)
