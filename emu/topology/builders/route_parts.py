"""Building blocks of routers: routes joined from stages, a hash that spreads keys, and two routers combined."""

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import ArrayLike

from emu.arrays import I64, Bool, column
from emu.topology.topology import CHANNELS, Router, Routes


def join(stages: Sequence[ArrayLike], virtual: Sequence[ArrayLike] | None = None) -> Routes:
    """Return routes from the links that pairs take in each stage.

    Args:
        stages: [P] or [P, H] the links of each stage, with -1 for a pair that takes no link.
        virtual: [P] or one number: the virtual channel of each stage, each of which is one link; by default none is named.
    """
    columns = [np.atleast_2d(np.asarray(stage, np.int64).T).T for stage in stages]
    table = np.concatenate(columns, axis=1)
    taken = table >= 0
    if virtual is None:
        return Routes.laid(taken.sum(axis=1), table[taken])
    channels = np.stack([np.broadcast_to(each, len(table)) for each in virtual], axis=1)
    return Routes.laid(taken.sum(axis=1), table[taken], channels[taken])


def gather(n_pairs: int, pieces: Iterable[tuple[I64, ...]]) -> Routes:
    """Return the routes of pairs, put together from stretches of their walks in order.

    Args:
        n_pairs: The number of pairs.
        pieces: For each stretch, the pair and the link of each hop, and possibly its virtual channel, as columns.
    """
    pair, *each = (np.concatenate(parts) for parts in zip(*pieces, strict=True))
    order = np.argsort(pair, kind="stable")
    return Routes.laid(np.bincount(pair, minlength=n_pairs), *(hops[order] for hops in each))


def link_if(taken: ArrayLike, link: ArrayLike) -> I64:
    """Return [P] the link of each pair for which `taken` is true, and -1 for the others."""
    return np.where(taken, link, -1)


def pairs(size: int) -> tuple[I64, I64]:
    """Return [size (size - 1) / 2] both ends of each link of a full mesh, the lower first, in the order of `pair`."""
    low, high = np.triu_indices(size, 1)
    return low.astype(np.int64), high.astype(np.int64)


def pair(size: int, here: I64, there: I64) -> I64:
    """Return [P] the number of the cable between each pair of nodes of a full mesh, in either direction."""
    low, high = np.minimum(here, there), np.maximum(here, there)
    found: I64 = low * (2 * size - low - 1) // 2 + high - low - 1
    return found


def offsets(dims: Sequence[int], src: I64, dst: I64) -> list[I64]:
    """Return, for each dimension, [P] how far the second node of each pair is above the first, modulo the dimension's size.

    Args:
        dims: The sizes of the dimensions over which nodes are numbered in C order.
        src: [P] the first node of each pair.
        dst: [P] the second node of each pair.
    """
    digits = zip(*(np.unravel_index(end, dims) for end in (src, dst)), dims, strict=True)
    return [(there - here) % size for here, there, size in digits]


def mix(*words: ArrayLike) -> I64:
    """Return a number of 0..2**62-1 for each row of `words`: equal for equal rows, pseudo-random otherwise.

    Source: Steele et al., Fast splittable pseudorandom number generators (2014), SplitMix64's finaliser.
    """
    state: np.ndarray = np.zeros(np.broadcast_shapes(*(np.shape(word) for word in words)), np.uint64)
    with np.errstate(over="ignore"):
        for word in words:
            state = (state ^ np.asarray(word).astype(np.uint64)) + np.uint64(0x9E3779B97F4A7C15)
            state = (state ^ (state >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
            state = (state ^ (state >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
            state ^= state >> np.uint64(31)
    return column(state >> np.uint64(2), np.int64)


def take_turns(key: I64, *words: ArrayLike) -> I64:
    """Return [P] a number for each pair; modulo the number of equal paths, it selects one of these paths.

    It is a hash of the words and the communicator, plus the channel, so that channels take the paths in turn. The words should
    depend only on the position of one end relative to the other, so that a symmetry of the ends is also one of the routes.
    """
    group, channel = np.divmod(key, CHANNELS)
    return column(mix(*words, group) + channel, np.int64)


def between_npus(own: Router, otherwise: Router, n_npus: int) -> Router:
    """Return a router that uses `own` for pairs of NPUs and `otherwise` for pairs with another node at an end."""

    def route(src: I64, dst: I64, key: I64) -> Routes:
        other = (src >= n_npus) | (dst >= n_npus)
        if not other.any():
            return own(src, dst, key)
        return interleave(other, otherwise(src[other], dst[other], key[other]), own(src[~other], dst[~other], key[~other]))

    return route


def interleave(which: Bool, those: Routes, others: Routes) -> Routes:
    """Return the routes of pairs: the next of `those` for each pair where `which` is true, else the next of `others`.

    If only one set has virtual channels, the hops of the other are on channel 0.
    """
    hops = np.zeros(len(which), np.int64)
    hops[which], hops[~which] = those.hops, others.hops
    inside = np.repeat(which, hops)
    link = np.empty(hops.sum(), np.int32)
    link[inside], link[~inside] = those.link, others.link
    virtual = None
    if those.virtual is not None or others.virtual is not None:
        virtual = np.zeros(len(link), np.int16)
        virtual[inside], virtual[~inside] = (0 if side.virtual is None else side.virtual for side in (those, others))
    return Routes.laid(hops, link, virtual)
