"""The work of each kernel of a profile: its own, or that of the operator that launched it.

Of several kernels of one operator the longest has the operator's work, and the others none.

K kernels.
"""

from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from emu.arrays import F64, I64
from emu.trace.formats.kineto.rank_profile import RankProfile

UNKNOWN, PART = -1, -2  # in place of a work: the profile does not tell it; another kernel of its operator has it


class WorkOfKernels(NamedTuple):
    """The work of each kernel of a profile, and the time that it took."""

    number: I64  # [K] of the work in the profile; `UNKNOWN` or `PART`
    lasts_us: F64  # [K] with the other kernels of its operator


def kernel_works(profile: RankProfile) -> WorkOfKernels:
    """Return the work of each kernel of a profile."""
    found, kernels = profile.own_work.copy(), profile.kernels
    rows, asked = np.array([*_launched_by(profile)], np.int64).reshape(-1, 2).T
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


def _launched_by(profile: RankProfile) -> Iterator[tuple[int, int]]:
    """Yield each kernel that was launched, with the innermost operator around its launch; -1: there is none."""
    launch, operators = profile.launch, profile.operators
    known = np.flatnonzero(launch >= 0)
    moment, thread = profile.calls.start[launch[known]], profile.calls.place[launch[known]]
    for place in np.unique(thread).tolist():
        own = np.flatnonzero(operators.place == place)
        own = own[np.lexsort((-operators.lasts[own], operators.start[own]))]
        here = np.flatnonzero(thread == place)
        here = here[np.argsort(moment[here], kind="stable")]
        inner = _innermost(operators.start[own].tolist(), operators.end[own].tolist(), moment[here].tolist())
        yield from zip(known[here].tolist(), (int(own[n]) if n >= 0 else -1 for n in inner), strict=True)


def _innermost(starts: list[float], ends: list[float], moments: list[float]) -> Iterator[int]:
    """Yield, for each moment, the number of the innermost span around it; -1: there is none. All are in order of time."""
    around: list[int] = []
    following = 0
    for moment in moments:
        while following < len(starts) and starts[following] <= moment:
            around.append(following)
            following += 1
            while len(around) > 1 and ends[around[-2]] < starts[around[-1]]:
                del around[-2]
        while around and ends[around[-1]] < moment:
            around.pop()
        yield around[-1] if around else -1
