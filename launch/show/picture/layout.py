"""The positions of nodes and labels in a picture: from the topology's own drawing, else computed from its links.

A label has a place, too, which no other label takes.
"""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike
from scipy.sparse import csr_array
from scipy.sparse.csgraph import shortest_path

from emu.arrays import F64, I64, Bool
from emu.topology.topology import Drawing, Links, Topology
from launch.show.canvas import spread_apart, text_width_pt
from launch.show.picture.groups import layers, switch_names
from launch.show.text.topology_facts import link_classes

_LAYER = np.array((0.68, 0.5))  # step from one layer to the next behind it
_APART = 1.6  # least distance of switches, in gaps between NPUs
_SWEEPS = 4  # sweeps of ordering; further ones change little
_STEPS = 100  # steps of majorisation; further ones change little
_LINE = 1.3  # height of a line of text, in the size of its letters


def layout(topology: Topology) -> Drawing:
    """Return the topology's own drawing, or a drawing computed from its links."""
    if topology.draw is not None:
        return topology.draw()
    if topology.n_nodes == topology.n_npus:
        return Drawing(grid_positions(topology) if _is_grid(topology) else distance_positions(topology.links, topology.n_nodes))
    if topology.n_nodes == topology.n_npus + 1:
        npus = grid_positions(topology)
        centre = (npus.min(axis=0) + npus.max(axis=0)) / 2 if len(npus) > 1 else npus[0] - (0, 1)
        return Drawing(np.concatenate((npus, centre[None])))
    layer = layers(topology)
    switches = (topology.links.src >= topology.n_npus) & (topology.links.dst >= topology.n_npus)
    level = layer[topology.links.src] == layer[topology.links.dst]
    if (switches & level).sum() > (switches & ~level).sum():
        return Drawing(distance_positions(topology.links, topology.n_nodes))
    return Drawing(tier_positions(topology, layer))


def _is_grid(topology: Topology) -> bool:
    """Return whether NPUs without switches are drawn as a grid, ring or full mesh."""
    n, links = topology.n_npus, topology.links
    if sum(size > 1 for size in topology.dims) > 1 or not len(links):
        return True
    reach = (links.dst.astype(np.int64) - links.src) % n
    return bool(np.isin(reach, (1, n - 1)).all()) or link_classes(topology)[0].wiring == "full mesh"


def grid_positions(topology: Topology) -> F64:
    """Return [NPUs, 2] the positions of NPUs in a drawing by the dimensions of the grid.

    A dimension is a circle where it is a full mesh or the only one, else a line. They nest, with the last innermost.
    """
    dims = topology.dims or (topology.n_npus,)
    wirings = {c.dimension: c.wiring for c in link_classes(topology)}
    digits = np.unravel_index(np.arange(topology.n_npus), dims)
    at = np.zeros((topology.n_npus, 2))
    long = [axis for axis in reversed(range(len(dims))) if dims[axis] > 1]
    lines = [axis for axis in long if len(long) > 1 and (dims[axis] == 2 or wirings.get(axis) != "full mesh")]
    for axis in long:
        extent = np.ptp(at, axis=0)
        if axis in lines:
            sizes = [dims[a] for a in lines] if lines == long else []
            at = at + digits[axis][:, None] * _line_step(lines.index(axis), sizes, extent)
        else:
            at = at + _circle(dims[axis], float(np.hypot(*extent)))[digits[axis]]
    return at


def _circle(size: int, extent: float = 0.0) -> F64:
    """Return [size, 2] positions on a circle, clockwise from the top.

    Args:
        size: The number of positions.
        extent: The width of the drawing that each position has: one NPU, or the circles and lines inside.
    """
    turn = 2 * np.pi * np.arange(size) / max(size, 1)
    radius = (1 + 1.15 * extent) / (2 * np.sin(np.pi / size)) if size > 1 else 0.0
    return radius * np.stack((np.sin(turn), np.cos(turn)), axis=-1)


def _line_step(place: int, sizes: list[int], extent: F64) -> F64:
    """Return [2] the step from one position to the next along a line of positions.

    Lines lead right and down in turn. With three lines or more the third leads behind the others, like layers.

    Args:
        place: The number of the line; 0 is innermost.
        sizes: The numbers of positions of all lines; empty where circles are drawn too.
        extent: [2] width and height of the drawing that each position has: one NPU, or the lines and circles inside.
    """
    behind = 0.2 + _LAYER * (sizes[2] - 1) if len(sizes) > 2 and place < 2 else np.zeros(2)
    if len(sizes) > 2 and place == 2:
        return _LAYER
    step = 1.0 + 1.25 * extent + behind
    right = place % 2 == (1 if len(sizes) > 2 and place > 2 else 0)
    return np.array((step[0], 0.0) if right else (0.0, -step[1]))


def tier_positions(topology: Topology, layer: I64) -> F64:
    """Return [nodes, 2] the positions of nodes in tiers: NPUs in a row, and above it a row for each kind of switch.

    Each switch is near the middle of the nodes that it is linked to.

    Source: Sugiyama et al., Methods for visual understanding of hierarchical system structures (1981): barycentres.
    """
    row = _rows(topology, layer)
    across = np.zeros(topology.n_nodes)
    across[: topology.n_npus] = _npu_row(topology)
    across[topology.n_npus :] = across[: topology.n_npus].mean()
    for sweep in range(_SWEEPS):
        below_only = sweep == 0
        for height in range(1, int(row.max()) + 1):
            of = np.flatnonzero(row == height)
            middle = _mean_position(topology.links, row, across, below_only=below_only)[of]
            order = np.lexsort((of, middle))
            across[of[order]] = spread_apart(middle[order], _APART)
    rise = max(1.8, float(np.ptp(across)) / (2 + 2 * row.max()))
    return np.stack((across, row * rise), axis=-1)


def _rows(topology: Topology, layer: I64) -> I64:
    """Return [nodes] the row of each node in the picture: NPUs in row 0, switches above by layer and kind.

    Switches of a layer that no link joins to the next layer are below the others of that layer.
    """
    links, n = topology.links, topology.n_npus
    leads = np.zeros(topology.n_nodes, np.int64)
    leads[links.src[layer[links.dst] > layer[links.src]]] = 1
    kind = np.unique(switch_names(topology), return_inverse=True)[1]
    row = np.unique(np.stack((layer[n:], leads[n:], kind), axis=-1), axis=0, return_inverse=True)[1]
    return np.concatenate((np.zeros(n, np.int64), row + 1))


def _npu_row(topology: Topology) -> F64:
    """Return [NPUs] positions in a row, with gaps between groups of NPUs."""
    dims = topology.dims or (topology.n_npus,)
    digits = np.stack(np.unravel_index(np.arange(topology.n_npus), dims))[:-1]
    changes = (np.diff(digits, axis=1) != 0).sum(axis=0)
    return np.concatenate(([0.0], np.cumsum(1 + 0.5 * changes)))


def _mean_position(links: Links, row: I64, across: F64, *, below_only: bool) -> F64:
    """Return [nodes] the mean horizontal position of each node's neighbours in other rows; its own if it has none.

    Args:
        links: The links.
        row: [nodes] the row of each node.
        across: [nodes] the horizontal position of each node in its row.
        below_only: Whether only lower rows count.
    """
    counted: Bool = row[links.dst] < row[links.src] if below_only else row[links.dst] != row[links.src]
    count = np.bincount(links.src[counted], minlength=len(row))
    total = np.bincount(links.src[counted], across[links.dst[counted]], len(row))
    return np.where(count > 0, total / np.maximum(count, 1), across)


def distance_positions(links: Links, n_nodes: int) -> F64:
    """Return [nodes, 2] positions whose distances match the hop distances as well as a plane allows.

    Source: Gansner, Koren and North, Graph drawing by stress majorization (2004), from classical scaling (Torgerson).
    """
    graph = csr_array((np.ones(len(links)), (links.src, links.dst)), shape=(n_nodes, n_nodes))
    far = np.asarray(shortest_path(graph, directed=False, unweighted=True))
    far = np.where(np.isfinite(far), far, far[np.isfinite(far)].max() + 2)
    at = _plane_of_distances(far) + 1e-3 * _circle(n_nodes)
    weight = np.divide(1.0, far**2, out=np.zeros_like(far), where=far > 0)
    inverse = np.linalg.pinv(np.diag(weight.sum(axis=1)) - weight)
    for _ in range(_STEPS):
        now = np.hypot(*(at[:, None] - at).T)
        pull = np.divide(weight * far, now, out=np.zeros_like(far), where=now > 1e-9)
        at = inverse @ (np.diag(pull.sum(axis=1)) - pull) @ at
    gap = np.where(far > 0, np.hypot(*(at[:, None] - at).T), np.inf).min(initial=np.inf)
    return at * np.clip(0.8 / gap, 1.5, 6.0) if n_nodes > 1 else at


def _plane_of_distances(far: F64) -> F64:
    """Return [nodes, 2] positions whose squared distances are nearest to the squares of `far` (classical scaling)."""
    n = len(far)
    centring = np.eye(n) - 1 / n
    values, vectors = np.linalg.eigh(-0.5 * centring @ far**2 @ centring)
    axes = vectors[:, ::-1][:, :2] * np.sqrt(np.maximum(values[::-1][:2], 0))
    if axes.shape[1] < 2:
        return np.zeros((n, 2))
    largest = axes[np.argmax(np.abs(axes), axis=0), [0, 1]]
    return np.asarray(axes * np.where(largest < 0, -1.0, 1.0))


class Label(NamedTuple):
    """The rectangle of a label, in units of the drawing."""

    low: F64  # [2] lower left corner
    size: F64  # [2] width and height

    @property
    def middle(self) -> tuple[float, float]:
        """The middle of the rectangle."""
        x, y = (self.low + self.size / 2).tolist()
        return x, y

    def lies_on(self, other: "Label") -> bool:
        """Return whether two labels overlap."""
        return bool((self.low < other.low + other.size).all() and (other.low < self.low + self.size).all())


def label_around(middle: ArrayLike, size: F64) -> Label:
    """Return the label of this size around a point."""
    return Label(np.asarray(middle) - size / 2, size)


def size_of_words(lines: Sequence[str], size_pt: float, points: float) -> F64:
    """Return [2] width and height of lines of text, with a little room around them.

    Args:
        lines: The lines.
        size_pt: The size of the letters.
        points: Points in a unit of the drawing.
    """
    return np.array((1.05 * max(text_width_pt(line, size_pt) for line in lines), _LINE * size_pt * len(lines))) / points


def free_place(places: Iterable[Label], taken: Iterable[Label]) -> Label:
    """Return the first place that overlaps no label; the first place if all overlap."""
    found, others = list(places), list(taken)
    return next((place for place in found if not any(place.lies_on(other) for other in others)), found[0])
