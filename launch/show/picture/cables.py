"""The cables of a picture, and the course of each from end to end.

C cables. A cable is a link and the link that leads back; only one of them is drawn. L links.

Frames around nodes of a picture (racks, segments, planes), and their labels.

Colours and sizes that all pictures of topologies share.
"""

from collections.abc import Sequence
from functools import partial

import numpy as np
from scipy.spatial import KDTree

from emu.arrays import F64, I64, Bool, column
from emu.topology.topology import Box, Drawing, Links, Topology
from launch.show.picture.groups import switch_names
from launch.show.picture.layout import Label, free_place, label_around, size_of_words

NPU, FRAME = "#22313f", "#dde3ea"
_TIERS = (  # Okabe and Ito's, safe for colour-blind readers; then Tol's muted ones
    *("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9"),
    *("#882255", "#999933", "#44AA99", "#332288"),
)
_SWITCHES = ("#7a1f3d", "#1f5c4f", "#4b3a8e", "#8a5a0b", "#2f6690", "#5b5b5b")
_SMALLEST_PT, _LARGEST_PT = 3.0, 28.0


def tier_colours(topology: Topology) -> dict[int, str]:
    """Return a colour for each dimension that has links."""
    return {int(dimension): _TIERS[i % len(_TIERS)] for i, dimension in enumerate(np.unique(topology.links.dimension))}


def switch_colours(topology: Topology) -> dict[str, str]:
    """Return a colour for each kind of switch, in order of appearance."""
    return {name: _SWITCHES[i % len(_SWITCHES)] for i, name in enumerate(dict.fromkeys(switch_names(topology)))}


def node_size_pt(at: F64, points: float) -> float:
    """Return the width of nodes in points, so that the nearest two nodes do not overlap.

    Args:
        at: [nodes, 2] places of nodes.
        points: Points in a unit of the drawing.
    """
    if len(at) < 2:
        return _LARGEST_PT
    gaps = KDTree(at).query(at, k=2)[0][:, 1]
    return float(np.clip(points * min(0.55 * np.quantile(gaps, 0.2), 0.95 * gaps.min()), _SMALLEST_PT, _LARGEST_PT))


def least_gap(at: F64, first: int) -> float:
    """Return the least distance between a node numbered `first` or higher and any other node; 10.0 if none."""
    if len(at) < 2 or first >= len(at):
        return 10.0
    return float(KDTree(at).query(at[first:], k=2)[0][:, 1].min())


_PAD = 0.42  # from the outermost node to its frame, in gaps between NPUs
_NEST = 0.22  # additional distance for each frame inside
SMALLEST_PT = 3.8  # size of letters below which nothing is written


def frames(boxes: Sequence[Box], at: F64) -> list[F64]:
    """Return [4, 2] the corners of each box's frame, the upper left first.

    A frame is turned where that makes it smaller by a fifth or more.
    """
    return [_frame(at[slice(*box.nodes)], _PAD + _NEST * deep) for box, deep in zip(boxes, _nesting_depth(boxes), strict=True)]


def _nesting_depth(boxes: Sequence[Box]) -> I64:
    """Return [boxes] the nesting depth of the frames within each box."""
    ends = np.array([box.nodes for box in boxes]).reshape(-1, 2)
    deep = np.zeros(len(boxes), np.int64)
    for i in np.argsort(ends[:, 1] - ends[:, 0], kind="stable"):
        inner = (ends[:, 0] >= ends[i, 0]) & (ends[:, 1] <= ends[i, 1]) & (ends[:, 1] - ends[:, 0] < ends[i, 1] - ends[i, 0])
        deep[i] = deep[inner].max(initial=-1) + 1
    return deep


def _frame(at: F64, pad: float) -> F64:
    """Return [4, 2] the corners of the frame around nodes at these positions."""
    centred = at - at.mean(axis=0)
    turned = np.linalg.svd(centred, full_matrices=False)[2] if len(at) > 1 else np.eye(2)
    upright, along = (_bounds(at, axes, pad) for axes in (np.eye(2), turned))
    return along[0] if along[1] < 0.8 * upright[1] else upright[0]


def _bounds(at: F64, axes: F64, pad: float) -> tuple[F64, float]:
    """Return [4, 2] the corners of the box along these axes, and its area.

    Args:
        at: [nodes, 2] places of nodes.
        axes: [2, 2] directions of the edges.
        pad: The distance between the outermost nodes and the box.
    """
    seen = at @ axes.T
    low, high = seen.min(axis=0) - pad, seen.max(axis=0) + pad
    corners = np.array(((low[0], high[1]), high, (high[0], low[1]), low))
    return corners @ axes, float(np.prod(high - low))


def frame_labels(drawing: Drawing, courses: F64, points: float) -> list[tuple[str, tuple[float, float], float]]:
    """Return the text, centre and size (points) of each frame label, where it lies on no other and on the fewest cables.

    Args:
        drawing: The places of nodes, and the boxes.
        courses: [C, points, 2] the course of each cable.
        points: Points in a unit of the drawing.
    """
    taken: list[Label] = []
    written = []
    for box, frame in reversed(list(zip(drawing.boxes, frames(drawing.boxes, drawing.at), strict=True))):  # inner ones first
        width = float(np.ptp(frame[:, 0])) * points
        size_pt = min(9.0, 0.32 * points, 1.7 * width / max(len(box.label), 1))
        if box.label and size_pt >= SMALLEST_PT:
            places = _label_rectangles(box.label, frame, drawing.at.mean(axis=0), size_pt, points)
            chosen = free_place(sorted(places, key=partial(_crossings, courses)), taken)
            written.append((box.label, chosen.middle, size_pt))
            taken.append(chosen)
    return written


def _crossings(courses: F64, place: Label) -> int:
    """Return the number of cables that pass through the rectangle of a label."""
    inside = np.all((courses >= place.low) & (courses <= place.low + place.size), axis=2)
    return int(np.any(inside, axis=1).sum())


def _label_rectangles(text: str, frame: F64, middle: F64, size_pt: float, points: float) -> list[Label]:
    """Return the rectangles in which the label of a frame may be written, the best first."""
    size = size_of_words([text], size_pt, points)
    if np.isclose(frame[0, 1], frame[1, 1]) or np.isclose(frame[0, 0], frame[1, 0]):
        (left, bottom), (right, top) = frame.min(axis=0), frame.max(axis=0)
        return [Label(np.array((x, y)), size) for y in (top, bottom - size[1]) for x in (left, right - size[0])]
    sides = (frame + np.roll(frame, 1, axis=0)) / 2
    out = sides[np.argmax(np.hypot(*(sides - middle).T))]
    away = (out - middle) / max(float(np.hypot(*(out - middle))), 1e-9)
    return [label_around(out + 0.5 * away * (1 + 0.3 * len(text) * abs(away[0]) * size_pt / 9), size)]


_ALONG = np.linspace(0, 1, 33)[:, None]  # points of a course, from end to end
_BULGE = 1 - (2 * _ALONG - 1) ** 4  # steep at the ends, to be clear of neighbours in a line of NPUs
_NEAR = 0.06  # distance, in gaps between NPUs, at which a node seems to be an end of a cable
_CHUNK_WORK = 2**22  # cables times nodes of one chunk


def _node_pairs(links: Links) -> tuple[I64, I64, I64, I64]:
    """Return the K pairs of nodes that links of one dimension join.

    Returns:
        [K] the dimension of the links; [K] how many lead from the lower node to the higher, and [K] how many back; [L] the pair
        that each link joins.
    """
    ends = _ends(links)
    key = links.dimension * (ends.max(initial=0) + 1) + ends
    _, first, of = np.unique(key, return_index=True, return_inverse=True)
    forward = links.src < links.dst
    there, back = (np.bincount(of[way], minlength=len(first)) for way in (forward, ~forward))
    return links.dimension[first].astype(np.int64), there, back, of


def _ends(links: Links) -> I64:
    """Return [L] a number for each link that is equal for all links between the same two nodes, in either direction."""
    low, high = (end(links.src, links.dst).astype(np.int64) for end in (np.minimum, np.maximum))
    numbers: I64 = low * (high.max(initial=0) + 1) + high
    return numbers


def cable_counts(links: Links) -> dict[int, tuple[int, int]]:
    """Return the number of cables of each dimension, and that of links without a link that leads back."""
    dimension, there, back, _ = _node_pairs(links)
    both, more = np.minimum(there, back), np.abs(there - back)
    of = {d: dimension == d for d in np.unique(dimension).tolist()}
    return {d: (int(both[mine].sum()), int(more[mine].sum())) for d, mine in of.items()}


def cables(links: Links) -> tuple[I64, F64]:
    """Return [C] one link of each cable, and [C] its offset (-1 to 1) among parallel cables."""
    _, there, back, of = _node_pairs(links)
    rows = np.flatnonzero((links.src < links.dst) == (there >= back)[of])
    rows = rows[np.argsort(of[rows], kind="stable")]
    _, pair, many = np.unique(_ends(links)[rows], return_inverse=True, return_counts=True)
    by_pair = np.argsort(pair, kind="stable")
    nth = np.empty(len(rows), np.int64)
    nth[by_pair] = np.arange(len(rows)) - np.repeat(np.cumsum(many) - many, many)
    return column(rows, np.int64), column((2 * nth + 1) / many[pair] - 1, np.float64)


def cable_of_links(links: Links) -> I64:
    """Return [L] the cable of each link, by its number in `cables`; the k-th links of both directions share the k-th cable."""
    _, there, back, of = _node_pairs(links)
    first = np.concatenate(([0], np.cumsum(np.maximum(there, back))))
    way = 2 * of + (links.src < links.dst)
    order = np.argsort(way, kind="stable")
    begins = np.searchsorted(way[order], way[order])
    nth = np.empty(len(order), np.int64)
    nth[order] = np.arange(len(order)) - begins
    return np.asarray(first[of] + nth)


def curves(links: Links, at: F64, gap: float = 1.0) -> F64:
    """Return [C, points, 2] the course of each cable, in the order of `cables`.

    A course is straight unless it would hide another one: parallel cables bend, and cables that would cross a third node.

    Args:
        links: The links whose cables are drawn.
        at: [nodes, 2] places of nodes.
        gap: The distance between neighbouring nodes, in units of the drawing.
    """
    rows, place = cables(links)
    low, high = (end(links.src[rows], links.dst[rows]) for end in (np.minimum, np.maximum))
    start, end = at[low], at[high]
    along = end - start
    length = np.maximum(np.hypot(*along.T), 1e-9)
    across = np.stack((along[:, 1], -along[:, 0]), axis=-1) / length[:, None]
    round_others = _is_hidden(at, low, high) * np.minimum(0.2 + 0.045 * length / gap, 0.7)
    aside = gap * (0.25 * place + round_others)
    course: F64 = start[:, None] + _ALONG * along[:, None] + _BULGE * (aside[:, None] * across)[:, None]
    return course


def _is_hidden(at: F64, low: I64, high: I64) -> Bool:
    """Return [C] whether a third node lies on the straight line of each cable.

    Args:
        at: [nodes, 2] places of nodes.
        low: [C] the lower end of each cable.
        high: [C] the higher end of each cable.
    """
    found = np.zeros(len(low), np.bool_)
    size = max(1, _CHUNK_WORK // max(1, len(at)))
    for some in (slice(i, i + size) for i in range(0, len(low), size)):
        start, along = at[low[some]], at[high[some]] - at[low[some]]
        length = np.maximum(np.hypot(*along.T), 1e-9)
        unit = along / length[:, None]
        to = at - start[:, None]
        on = (to * unit[:, None]).sum(axis=-1)
        off = np.abs(to[..., 0] * unit[:, None, 1] - to[..., 1] * unit[:, None, 0])
        found[some] = ((off < _NEAR) & (on > _NEAR) & (on < length[:, None] - _NEAR)).any(axis=1)
    return found
