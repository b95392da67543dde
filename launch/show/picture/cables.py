"""The cables of a picture: which there are, and the course of each from end to end.

C cables (a link and the one back), of which only one link is drawn.
"""

from typing import NamedTuple

import numpy as np

from emu.arrays import F64, I64, Bool, column
from emu.topology.topology import Links

_ALONG = np.linspace(0, 1, 33)[:, None]  # of a cable, from end to end
_BULGE = 1 - (2 * _ALONG - 1) ** 4  # steep at the ends, so that it is clear of its neighbours along a line of NPUs
_NEAR = 0.06  # a node this near to a straight cable seems to be one of its ends, in gaps between NPUs
_CHUNK_WORK = 2**22  # cables times nodes looked at at a time


class Counts(NamedTuple):
    """Of the links of one dimension; a link and one that leads back are a cable."""

    cables: int
    one_way: int  # links that none leads back beside


class _Joined(NamedTuple):
    """The pairs of nodes that links of a dimension join, K of them."""

    dimension: I64  # [K]
    there: I64  # [K] links from the lower node to the higher
    back: I64  # [K]
    of: I64  # [L] which of them a link joins


def _joined(links: Links) -> _Joined:
    ends = _ends(links)
    key = links.dimension * (ends.max(initial=0) + 1) + ends
    _, first, of = np.unique(key, return_index=True, return_inverse=True)
    forward = links.src < links.dst
    there, back = (np.bincount(of[way], minlength=len(first)) for way in (forward, ~forward))
    return _Joined(links.dimension[first].astype(np.int64), there, back, of)


def _ends(links: Links) -> I64:
    """[L] a number for each pair of nodes, whichever way a link leads."""
    low, high = (end(links.src, links.dst).astype(np.int64) for end in (np.minimum, np.maximum))
    numbers: I64 = low * (high.max(initial=0) + 1) + high
    return numbers


def counts(links: Links) -> dict[int, Counts]:
    """By dimension, as many as a picture shows of them."""
    found = _joined(links)
    both, more = np.minimum(found.there, found.back), np.abs(found.there - found.back)
    of = {d: found.dimension == d for d in np.unique(found.dimension).tolist()}
    return {d: Counts(int(both[mine].sum()), int(more[mine].sum())) for d, mine in of.items()}


def cables(links: Links) -> tuple[I64, F64]:
    """[C] a link of each cable, and where it lies among those that join the same two nodes: -1..1, 0 the middle."""
    found = _joined(links)
    rows = np.flatnonzero((links.src < links.dst) == (found.there >= found.back)[found.of])
    rows = rows[np.argsort(found.of[rows], kind="stable")]
    _, pair, many = np.unique(_ends(links)[rows], return_inverse=True, return_counts=True)
    by_pair = np.argsort(pair, kind="stable")
    nth = np.empty(len(rows), np.int64)
    nth[by_pair] = np.arange(len(rows)) - np.repeat(np.cumsum(many) - many, many)
    return column(rows, np.int64), column((2 * nth + 1) / many[pair] - 1, np.float64)


def curves(links: Links, at: F64, gap: float = 1.0) -> F64:
    """[C, points, 2] the course of each cable, in the order of `cables`, between nodes drawn `at`.

    Straight, but for those that others would hide: parallel ones, and those that pass over a third node.

    Args:
        links: Whose cables.
        at: [nodes, 2].
        gap: Room to bend in; about that between NPUs.
    """
    rows, place = cables(links)
    low, high = (end(links.src[rows], links.dst[rows]) for end in (np.minimum, np.maximum))
    start, end = at[low], at[high]
    along = end - start
    length = np.maximum(np.hypot(*along.T), 1e-9)
    across = np.stack((along[:, 1], -along[:, 0]), axis=-1) / length[:, None]
    round_others = _hidden(at, low, high) * np.minimum(0.2 + 0.045 * length / gap, 0.7)
    aside = gap * (0.25 * place + round_others)
    course: F64 = start[:, None] + _ALONG * along[:, None] + _BULGE * (aside[:, None] * across)[:, None]
    return course


def _hidden(at: F64, low: I64, high: I64) -> Bool:
    """[C] whether a third node lies on the straight way."""
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
