"""The assignment of wavelengths to links, in proportion to what each link carries (Flex-SiPAC 3.C).

It has the integer program of equation 1, min sum (lambda - t)^2 where no CU sends or receives more than w, and the paper's
heuristic. t is the traffic in wavelengths: equation 1 compares it with counts of them, so it is scaled until what a CU sends
and receives is w (the paper does not say how). Letters: E links, N CUs.
"""

import importlib
from typing import NamedTuple

import numpy as np

from emu.arrays import F64, I64, column
from emu.errors import must_be
from topologies.sipac.levels import Neighbours

_MOST_STEPS = 2**19  # largest number of variables of a program
_NEARLY = 1e-10  # two scaled sums that differ by less than this share of w are equal
_ROUNDS = 1000
_MOVE = 1e-4  # cost of a moved wavelength, which decides between assignments that are equally near


def scale_traffic(near: Neighbours, traffic: F64, w: int) -> F64:
    """Return [E] traffic as wavelengths: every CU's sums are w where that is possible, else as near as its neighbours allow.

    Args:
        near: Links that carry something.
        traffic: [E] in any unit, above 0.
        w: Wavelengths of a CU.
    """
    t = traffic / traffic.max(initial=1.0)
    for _ in range(_ROUNDS):
        out, into = near.sums(t)
        t = t * w / np.sqrt(out[near.src] * into[near.dst])
        if np.abs(np.concatenate(near.sums(t)) / w - 1).max(initial=0.0, where=np.concatenate((out, into)) > 0) < _NEARLY:
            break
    for _ in range(_ROUNDS):
        out, into = near.sums(t)
        grown = t * np.minimum(w / out[near.src], w / into[near.dst])
        t, before = grown, t
        if np.allclose(t, before, rtol=_NEARLY, atol=0):
            break
    return column(t.round(9), np.float64)  # so that what is equal but for the order of sums is equal


def distance(t: F64, wavelengths: I64) -> float:
    """Return the value that equation 1 minimises."""
    return float(((wavelengths - t) ** 2).sum())


class _HeuristicTarget(NamedTuple):
    """The target of the heuristic."""

    t: F64  # [E] wavelengths to come near to
    before: I64  # [E] wavelengths that are set up now
    least: int  # wavelengths that every link keeps


def heuristic(near: Neighbours, t: F64, w: int, before: I64, least: int = 0) -> I64:
    """Return [E] wavelengths: rounded, taken from CUs with too many where lambda - t is largest, then given where it is least.

    Of equal links those come first that move back to `before`, then they take turns. No wavelength is left dark that two CUs
    with room could share, even where lambda moves away from t by it; the program leaves such a wavelength dark.

    Args:
        near: Links that get wavelengths.
        t: [E] wavelengths to come near to.
        w: Wavelengths of a CU.
        before: [E] wavelengths that are set up now.
        least: Wavelengths that every link keeps; w is enough for all of them.
    """
    found = np.maximum(np.rint(t).astype(np.int64), least)
    for sign in (-1, 1):
        while _deal(near, _HeuristicTarget(t, before, least), w, found, sign):
            pass
    return column(found, np.int64)


def _deal(near: Neighbours, wanted: _HeuristicTarget, w: int, found: I64, sign: int) -> bool:
    """Take (-1) a wavelength from each link of a CU with too many, or give (1) one to each link with room at both ends.

    Return whether any wavelength was taken or given.
    """
    out, into = (end.astype(np.int64) for end in near.sums(found))
    ends = np.stack((out[near.src], into[near.dst]))
    asked = np.asarray((ends > w).any(axis=0) & (found > wanted.least) if sign < 0 else (ends < w).all(axis=0))
    both = (ends > w).sum(axis=0)
    back = sign * (wanted.before - found) > 0
    low, high = np.minimum(near.src, near.dst), np.maximum(near.src, near.dst)
    order = np.lexsort((near.src, high, low, sign * near.turn, ~back, sign * (found - wanted.t), -both))
    sent, received = out.tolist(), into.tolist()
    src, dst = near.src.tolist(), near.dst.tolist()
    dealt = False
    for link in order[asked[order]].tolist():
        i, j = src[link], dst[link]
        if (sent[i] > w or received[j] > w) if sign < 0 else (sent[i] < w and received[j] < w):
            sent[i], received[j], dealt = sent[i] + sign, received[j] + sign, True
            found[link] += sign
    return dealt


def program(name: str, near: Neighbours, t: F64, w: int, before: I64, least: int = 0) -> I64:
    """Return [E] the optimum of equation 1 by HiGHS; of equal optima, one with the fewest changes to `before`.

    The square is written exactly: the k-th wavelength of a link is a variable of 0 or 1 that adds (k - t)^2 - (k - 1 - t)^2,
    which grows with k. The arguments are those of `heuristic`, and `name`, which errors begin with.

    Raises:
        InputError: There are more than 2**19 variables.
    """
    count = len(t)
    if count * w > _MOST_STEPS:
        mend = "take by=heuristic"
        raise must_be(name, "links times wavelengths", f"at most {_MOST_STEPS} for the integer program", count * w, mend)
    step = np.arange(1, w + 1)
    cost = 2 * step - 1 - 2 * t[:, None] + _MOVE * np.where(step > before[:, None], 1, -1)
    link = np.repeat(np.arange(count), w)
    ones, each = np.ones(count * w), np.arange(count * w)
    optimize, sparse = (importlib.import_module(f"scipy.{part}") for part in ("optimize", "sparse"))  # not above: they are slow
    each_end = [sparse.csr_array((ones, (end[link], each)), shape=(near.n, count * w)) for end in (near.src, near.dst)]
    ports = sparse.vstack(each_end)
    solved = optimize.milp(
        cost.ravel(),
        integrality=ones,
        bounds=optimize.Bounds(np.tile(step <= least, count), 1),
        constraints=optimize.LinearConstraint(ports, -np.inf, w),
        options={"mip_rel_gap": 0.0},
    )
    return column(np.rint(solved.x).reshape(count, w).sum(axis=1), np.int64)
