"""The parts of routers: stages joined to routes, a hash that spreads keys, and two routers made one.

Letter: P pairs.
"""

from collections.abc import Sequence
from functools import partial

import numpy as np
from numpy.typing import ArrayLike

from emu.arrays import I64, Bool, column
from emu.topology.topology import CHANNELS, Router, Routes


def join(stages: Sequence[ArrayLike]) -> Routes:
    """Return routes from the link that each stage takes; a stage is [P] or [P, H], with -1 where a pair takes no link."""
    columns = [np.atleast_2d(np.asarray(stage, np.int64).T).T for stage in stages]
    table = np.concatenate(columns, axis=1)
    taken = table >= 0
    return Routes(column(np.concatenate(([0], np.cumsum(taken.sum(axis=1)))), np.int64), column(table[taken], np.int32))


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
    """Return [P] a number that picks one of the equal paths of a pair, modulo their number.

    It is a hash of words and communicator, plus the channel, so that channels take the paths in turn. The words should say only
    how the two ends lie to each other, so that a symmetry of the ends is also one of the routes.
    """
    group, channel = np.divmod(key, CHANNELS)
    return column(mix(*words, group) + channel, np.int64)


def between_npus(own: Router, otherwise: Router, n_npus: int) -> Router:
    """Return a router that uses `own` for pairs of NPUs and `otherwise` for pairs with another node at an end."""
    return partial(_between_npus, own, otherwise, n_npus)


def _between_npus(own: Router, otherwise: Router, n_npus: int, src: I64, dst: I64, key: I64) -> Routes:
    """Return the routes of pairs: by `own` between NPUs, by `otherwise` where an end is another node."""
    other = (src >= n_npus) | (dst >= n_npus)
    if not other.any():
        return own(src, dst, key)
    return interleave(other, otherwise(src[other], dst[other], key[other]), own(src[~other], dst[~other], key[~other]))


def interleave(which: Bool, those: Routes, others: Routes) -> Routes:
    """Return the routes of pairs in order: the next of `those` where `which` is true, else the next of `others`.

    Where only one side has virtual channels, the hops of the other are on channel 0.
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
    return Routes(column(np.concatenate(([0], np.cumsum(hops))), np.int64), column(link, np.int32), virtual)
