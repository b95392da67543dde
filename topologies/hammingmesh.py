"""HammingMesh: boards of a x a chips in a mesh; the edges of a row of boards are on switches, those of a column on others.

Sources: Hoefler et al., HammingMesh (SC 2022): HxaMesh; sizes are those of RailX (arXiv:2507.18889), 6.2 and Table 6. A line is
a row of chips through all the boards of a row (or a column): each board has both ends of it on the line's switch. A line with
more ends than a switch has ports is on a fat tree of two tiers. Every chip has a port in each of the four directions, in each
plane.
"""

from functools import partial
from typing import NamedTuple

import numpy as np

from emu.arrays import I64
from emu.errors import must_be
from emu.topology.builders.route_parts import join, link_if, mix
from emu.topology.builders.wiring import Cables, fabric
from emu.topology.catalogue import HOP_LATENCY, PORT_RATE, Bandwidth, Count, Dims, Invariants, Latency, check_sizes, topology
from emu.topology.topology import Drawing, Routes, Topology, check_link_count, frames
from emu.units import format_bandwidth, format_time, seconds

_SOURCE = "Hoefler et al., HammingMesh (SC 2022); RailX (arXiv:2507.18889), 6.2 and Table 6"
_NEAR = 10_000_000  # ticks: 10 ns on a board or package, RailX 6.4


class _LineDirection(NamedTuple):
    """The lines of one direction: X along rows of chips, Y along columns."""

    boards: int  # boards on a line, each with two ends
    lines: int
    leaves: int  # switches of a line that have ends on them
    spines: int  # switches of a line above the leaves; 0 where there is one leaf
    parallel: int  # cables between a leaf and a spine
    mesh: int = 0  # number of the first cable on boards
    end: int = 0  # number of the first cable from an end to a leaf
    rise: int = 0  # number of the first cable from a leaf to a spine
    switch: int = 0  # number of the first switch's node

    @property
    def switches(self) -> int:
        """The number of switches of all lines."""
        return self.lines * (self.leaves + self.spines)

    @property
    def rises(self) -> int:
        """The number of cables between leaves and spines of all lines."""
        return self.lines * self.leaves * self.spines * self.parallel


class _Mesh(NamedTuple):
    """The sizes of a HammingMesh; a chip is (row of boards, column of boards, row, column) in C order.

    Cables are numbered by direction, those on boards first.
    """

    side: int  # a
    rows: int  # rows of boards
    columns: int
    x: _LineDirection
    y: _LineDirection

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """The sizes of the dimensions over which chips are numbered: rows and columns of boards, and of chips on a board."""
        return self.rows, self.columns, self.side, self.side

    @property
    def npus(self) -> int:
        """The number of chips."""
        return self.rows * self.columns * self.side**2

    @property
    def lanes(self) -> int:
        """The number of rows of chips of all boards together."""
        return self.rows * self.columns * self.side


def _mesh(side: int, boards: tuple[int, ...], radix: int) -> _Mesh:
    """Return the sizes of a HammingMesh and the numbers of its first links and switches."""
    check_sizes("hammingmesh", "boards", boards, 2, "two sizes, rows and columns, such as 4x4")
    rows, columns = boards
    lanes = rows * columns * side
    x, y = _lines_of_direction(columns, rows * side, radix), _lines_of_direction(rows, columns * side, radix)
    meshes, ends = lanes * (side - 1), 2 * lanes
    last = 2 * (meshes + ends)
    switch = lanes * side
    x = x._replace(mesh=0, end=2 * meshes, rise=last, switch=switch)
    y = y._replace(mesh=meshes, end=2 * meshes + ends, rise=last + x.rises, switch=switch + x.switches)
    return _Mesh(side, rows, columns, x, y)


def _lines_of_direction(boards: int, lines: int, radix: int) -> _LineDirection:
    """Return the lines of switches in one direction: each line is one switch, or a full fat tree of two tiers.

    Half of a leaf's ports lead down; the spines have as many ports as there are ends.
    """
    ends = 2 * boards
    if ends <= radix:
        return _LineDirection(boards, lines, 1, 0, 0)
    leaves, spines = 2 * ends // radix, ends // radix
    if radix % 4 or ends % radix or (radix // 2) % spines:
        half = radix // 2
        what = f"at most {half} (a switch a line)" + f", or {half} times a divisor of it (two tiers)" * (radix % 4 == 0)
        raise must_be("hammingmesh", "boards on a line", what, boards)
    return _LineDirection(boards, lines, leaves, spines, radix // 2 // spines)


def _reach(side: int, way: _LineDirection) -> int:
    """Return the number of links between the two chips of a line that are farthest apart."""
    edge = [min(i, side - 1 - i) for i in range(side)]
    if way.boards > 1:
        return 2 * max(edge) + 2 + 2 * (way.leaves > 1)
    return max(min(abs(i - j), edge[i] + 2 + edge[j]) for i in range(side) for j in range(side))


def _invariants(boards: tuple[int, ...], side: int, radix: int, planes: int, bandwidth: float, **_: object) -> Invariants:
    """Return the invariants of the topology by closed forms."""
    mesh = _mesh(side, boards, radix)
    cut = mesh.npus / side * planes * bandwidth
    even = [cut] * (mesh.rows % 2 == 0 or mesh.columns % 2 == 0) + [2 * cut] * (side % 2 == 0)
    return Invariants(
        2 * (2 * mesh.lanes * (side + 1) + mesh.x.rises + mesh.y.rises),
        4,
        _reach(side, mesh.x) + _reach(side, mesh.y),
        even[0] if even else None,
        npus=mesh.npus,
        switches=mesh.x.switches + mesh.y.switches,
        injection_Bps=4 * planes * bandwidth,
    )


@topology(
    "hammingmesh",
    source=_SOURCE,
    examples=(
        "boards=4x4,side=2",
        "boards=2x3,side=3",
        "boards=2x1",
        "boards=8x2,side=2,radix=8",
        "boards=3x3,side=1,planes=9",
        "boards=1x2,side=5",
    ),
    full=("boards=32x32,planes=9", "boards=32x32,side=7,planes=9", "boards=64x64,side=7,planes=9"),
    invariants=_invariants,
)
def hammingmesh(
    boards: Dims,
    side: Count = 4,
    radix: Count = 64,
    planes: Count = 1,
    bandwidth: Bandwidth = PORT_RATE,
    latency: Latency = HOP_LATENCY,
    board_latency: Latency = _NEAR,
) -> Topology:
    """Join boards of a x a chips by switches at the edges of each row and each column of boards: HxaMesh.

    Args:
        boards: Rows and columns of boards.
        side: a: chips along an edge of a board.
        radix: Ports of a switch; a line with more ends than that is on a fat tree of two tiers.
        planes: Ports of a chip in each direction, each in a network of its own (RailX takes 9).
        bandwidth: Bandwidth of a port.
        latency: Latency of a hop to or from a switch.
        board_latency: Latency of a hop on a board.
    """
    mesh = _mesh(side, boards, radix)
    check_link_count("hammingmesh", 4 * mesh.lanes * (side + 1) + 2 * (mesh.x.rises + mesh.y.rises))
    away = 4 * mesh.lanes + mesh.x.rises + mesh.y.rises
    return fabric(
        "hammingmesh",
        mesh.npus,
        _cables(mesh, planes, bandwidth, (latency, board_latency)),
        partial(_route, mesh),
        bill={"switch": planes * (mesh.x.switches + mesh.y.switches), "optical transceiver": 2 * planes * away},
        dims=mesh.shape,
        assumptions=_assumptions(planes, bandwidth, latency, board_latency),
        tiers=("board X", "board Y", "board to X switch", "board to Y switch", "X leaf to spine", "Y leaf to spine"),
        draw=partial(_draw, mesh),
        relays=True,
    )


def _assumptions(planes: int, bandwidth: float, latency: int, board_latency: int) -> tuple[str, ...]:
    """Return sentences on the assumptions of the topology."""
    near, far = (format_time(seconds(ticks)) for ticks in (board_latency, latency))
    bundled = f"{planes} equal planes side by side, over which a chip spreads each message evenly"
    return (
        f"a port carries {format_bandwidth(bandwidth)} one way, on a board too",
        f"a hop takes {near} on a board and {far} to or from a switch",
        "a message goes X, then Y, each by the nearer edges; of two equally near ones a hash takes one",
        *([bundled] if planes > 1 else []),
    )


def _cables(mesh: _Mesh, planes: int, bandwidth: float, latencies: tuple[int, int]) -> list[Cables]:
    """Return the cables on boards, from boards to switches, and between switches."""
    chip = np.arange(mesh.npus).reshape(mesh.shape)
    turned = chip.swapaxes(2, 3)  # [rows, columns, column, row]
    row = np.arange(mesh.rows)[:, None, None] * mesh.side + np.arange(mesh.side)
    column = np.arange(mesh.columns)[:, None] * mesh.side + np.arange(mesh.side)
    big_row, big_column = np.arange(mesh.rows)[:, None, None], np.arange(mesh.columns)[:, None]
    ends = (
        (chip[..., [0, -1]], _leaf(mesh.x, row, big_column)),
        (turned[..., [0, -1]], _leaf(mesh.y, column, big_row)),
    )
    rate, (far, near) = planes * bandwidth, latencies
    kind = f"link x{planes}" if planes > 1 else "cable"
    boards = [
        Cables("link on a board", along[..., :-1], along[..., 1:], rate, near, i) for i, along in enumerate((chip, turned))
    ]
    edges = [Cables(kind, chips, leaf[..., None], rate, far, 2 + i) for i, (chips, leaf) in enumerate(ends)]
    rises = [Cables(kind, *_rises(way), rate, far, 4 + i) for i, way in enumerate((mesh.x, mesh.y))]
    return [*boards, *edges, *rises]


def _leaf(way: _LineDirection, line: I64, board: I64) -> I64:
    """Return the leaf switch to which both ends of a board are linked, for lines of NPUs along X, or along Y."""
    found: I64 = way.switch + line * way.leaves + board * way.leaves // way.boards
    return found


def _rises(way: _LineDirection) -> tuple[I64, I64]:
    """Return leaves and spines of cables; a cable is ((line * leaves + leaf) * spines + spine) * parallel + which."""
    shape = (way.lines, way.leaves, way.spines, way.parallel)
    line, leaf, spine, _ = np.indices(shape).reshape(4, -1)
    return way.switch + line * way.leaves + leaf, way.switch + way.lines * way.leaves + line * way.spines + spine


_End = tuple[I64, I64, I64, I64]  # of chips on one direction's lines: lane of the board, line, board on it, place on the lane


def _ends(mesh: _Mesh, chip: I64) -> tuple[_End, _End]:
    """Return the position of chips along X and along Y: the line, the board and the place on the board."""
    big_row, big_column, row, column = np.unravel_index(chip, mesh.shape)
    board = big_row * mesh.columns + big_column
    x = board * mesh.side + row, big_row * mesh.side + row, big_column, column
    y = board * mesh.side + column, big_column * mesh.side + column, big_row, row
    return x, y


def _route(mesh: _Mesh, src: I64, dst: I64, key: I64) -> Routes:
    """Return routes along X to the chip below or above the destination, then along Y."""
    here, there = np.unravel_index(src, mesh.shape), np.unravel_index(dst, mesh.shape)
    corner = np.ravel_multi_index((here[0], there[1], here[2], there[3]), mesh.shape)
    flow = mix(src, dst, key)
    ends = [_ends(mesh, chip) for chip in (src, corner, dst)]
    along_x = _line_links(mesh.x, mesh.side, ends[0][0], ends[1][0], mix(flow, 0))
    return join([*along_x, *_line_links(mesh.y, mesh.side, ends[1][1], ends[2][1], mix(flow, 1))])


def _line_links(way: _LineDirection, side: int, a: _End, b: _End, chance: I64) -> list[I64]:
    """Return the links along a line: over the board if that is shortest, else over the switches at the board's edges."""
    (lane, line, board, place), (far_lane, _, far_board, far_place) = a, b
    (out, exit_steps), (back, entry_steps) = _edge(side, place, chance % 2), _edge(side, far_place, chance // 2 % 2)
    stays = (board == far_board) & (abs(place - far_place) <= exit_steps + 2 + entry_steps)
    leaf, far_leaf = (at * way.leaves // way.boards for at in (board, far_board))
    rises = ~stays & (leaf != far_leaf)
    spine = mix(chance, 2) % max(way.spines, 1)
    up, down = (
        way.rise + ((line * way.leaves + at) * way.spines + spine) * way.parallel + mix(chance, turn) % max(way.parallel, 1)
        for turn, at in enumerate((leaf, far_leaf))
    )
    return [
        _walk(way, side, lane, place, np.where(stays, far_place, out * (side - 1))),
        link_if(~stays, 2 * (way.end + 2 * lane + out)),
        link_if(rises, 2 * up),
        link_if(rises, 2 * down + 1),
        link_if(~stays, 2 * (way.end + 2 * far_lane + back) + 1),
        _walk(way, side, far_lane, np.where(stays, far_place, back * (side - 1)), far_place),
    ]


def _edge(side: int, place: I64, coin: I64) -> tuple[I64, I64]:
    """Return the nearer end (0 or 1) of a row of chips on a board, and the distance to it; if equal, `coin` is the end."""
    far = side - 1 - place
    return np.where(place == far, coin, place > far).astype(np.int64), np.minimum(place, far)


def _walk(way: _LineDirection, side: int, lane: I64, here: I64, there: I64) -> I64:
    """Return [P, a - 1] the links by which messages walk along a board; -1 for no link.

    Args:
        way: The direction.
        side: The side of a board, a.
        lane: [P] the row (or column) of chips of all boards.
        here: [P] the position on the board where the walk begins.
        there: [P] the position where it ends.
    """
    step = np.arange(side - 1)
    up = (there > here)[:, None]
    cable = way.mesh + lane[:, None] * (side - 1) + here[:, None] + np.where(up, step, -1 - step)
    return link_if(step < abs(there - here)[:, None], 2 * cable + ~up)


def _draw(mesh: _Mesh) -> Drawing:
    """Return a drawing of boards with gaps, X switches to their right and Y switches above."""
    pitch = mesh.side + 0.8
    big_row, big_column, row, column = np.unravel_index(np.arange(mesh.npus), mesh.shape)
    at = [np.stack((big_column * pitch + column, -big_row * pitch - row), axis=-1)]
    edge = mesh.columns * pitch
    for way, turned in ((mesh.x, False), (mesh.y, True)):
        along = np.arange(way.lines) // mesh.side * pitch + np.arange(way.lines) % mesh.side
        columns = [(way.leaves, 0.5), (way.spines, way.leaves + 1.0)]
        for switches, off in columns:
            depth = np.tile(np.arange(switches) + off, way.lines)
            place = np.repeat(along, switches) + 0.25 * (depth - off) / max(switches, 1) + 0.3
            at.append(np.stack((place, depth + 0.8) if turned else (edge + depth, -place), axis=-1))
    return Drawing(np.concatenate(at), frames("", mesh.side**2, mesh.rows * mesh.columns))
