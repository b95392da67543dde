"""The work (FLOPs, bytes, shape) of each kernel of a profile: its own, or that of the operator that launched it.

If one operator launched several kernels, the longest gets the operator's work, and the others none. K kernels.
"""

from array import array
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from emu.arrays import F64, I64
from emu.trace.formats.kineto.rank_profile import RankProfile

UNKNOWN, PART = -1, -2  # in place of a work: the profile does not tell it; another kernel of its operator has it


class WorkOfKernels(NamedTuple):
    """The work of each kernel of a profile, and the time that it took."""

    number: I64  # [K] the number of the work in the profile; `UNKNOWN` or `PART`
    lasts_us: F64  # [K] microseconds, with the other kernels of its operator


def kernel_works(profile: RankProfile) -> WorkOfKernels:
    """Return the FLOPs, bytes and shape of each kernel of a profile."""
    found, kernels = profile.own_work.copy(), profile.kernels
    rows, asked = np.concatenate([np.zeros((2, 0), np.int64), *_launched_by(profile)], axis=1)
    told = (found[rows] == UNKNOWN) & (asked >= 0)
    rows, asked = rows[told], asked[told]
    known = profile.operators.link[asked] >= 0
    rows, asked = rows[known], asked[known]
    order = np.lexsort((kernels.lasts[rows], asked))
    last = np.flatnonzero(np.diff(asked[order], append=-1))  # of each operator, the longest kernel
    longest, operator = rows[order[last]], asked[order[last]]
    found[rows], found[longest] = PART, profile.operators.link[operator]
    lasts = kernels.lasts.copy()
    lasts[longest] = np.bincount(asked, kernels.lasts[rows], minlength=1)[operator] if len(asked) else 0.0
    return WorkOfKernels(found, lasts)


def _launched_by(profile: RankProfile) -> Iterator[I64]:
    """Yield, for each thread, the kernels it launched, and the innermost operator around each launch (-1: none)."""
    launch, operators = profile.launch, profile.operators
    known = np.flatnonzero(launch >= 0)
    moment, thread = profile.calls.start[launch[known]], profile.calls.place[launch[known]]
    for place in np.unique(thread).tolist():
        own = np.flatnonzero(operators.place == place)
        own = own[np.lexsort((-operators.lasts[own], operators.start[own]))]
        here = np.flatnonzero(thread == place)
        here = here[np.argsort(moment[here], kind="stable")]
        inner = np.array(_innermost(operators.start[own], operators.end[own], moment[here]), np.int64)
        yield np.stack((known[here], np.append(own, -1)[inner]))


def _innermost(start: F64, end: F64, moment: F64) -> "array[int]":
    """Return, for each moment, the number of the innermost span that contains it; -1 if none does.

    Args:
        start: When each span begins, ascending.
        end: When each span ends.
        moment: The moments, ascending.
    """
    starts, ends = (np.ascontiguousarray(of).data for of in (start, end))  # numbers without an object for each
    around, found = list[int](), array("q")
    following = 0
    for now in np.ascontiguousarray(moment).data:
        while following < len(starts) and starts[following] <= now:
            while around and ends[around[-1]] < starts[following]:
                around.pop()
            around.append(following)
            following += 1
        while around and ends[around[-1]] < now:
            around.pop()
        found.append(around[-1] if around else -1)
    return found
