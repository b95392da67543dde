"""The assignment of wavelengths to links in proportion to their traffic, and its change when jobs come or go (Flex-SiPAC 3.C).

It has the integer program of equation 1, min sum (lambda - t)^2 where no CU sends or receives more than w, and the paper's
heuristic. t is the traffic in wavelengths: equation 1 compares it with counts of them, so it is scaled until what a CU sends
and receives is w (the paper does not say how). When jobs come or go, wavelengths between CUs of different jobs move once to
links within jobs. CUs in no job keep the wavelengths among themselves. Letters: E links, N CUs.
"""

import importlib
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import ArrayLike

from emu.arrays import F64, I64, Bool, column
from emu.equivalence import components
from emu.errors import InputError, must_be
from topologies.sipac.levels import Levels, Neighbours, neighbours, uniform

_MOST_STEPS = 2**19  # largest number of variables of a program
_NEARLY = 1e-10  # two scaled sums that differ by less than this share of w are equal
_ROUNDS = 1000
_MOVE = 1e-4  # cost of a moved wavelength, which decides between assignments that are equally near


def scale_traffic(near: Neighbours, traffic: F64, w: int) -> F64:
    """Return [E] traffic scaled to wavelengths, so that every CU has w of them or as near as possible.

    Args:
        near: The links with traffic.
        traffic: [E] the traffic in any unit, above 0.
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
    """Return the sum of squared differences between traffic and wavelengths, which equation 1 minimises."""
    return float(((wavelengths - t) ** 2).sum())


def heuristic(near: Neighbours, t: F64, w: int, before: I64, least: int = 0) -> I64:
    """Return [E] the number of wavelengths of each link by the paper's heuristic.

    The traffic is rounded. Then wavelengths are taken from CUs with too many, from the links with the largest lambda - t, and
    given to CUs with too few, to the links with the smallest. Of equal links, those come first that move back to `before`, then
    links take turns. No wavelength stays dark that two CUs with too few could share, even if lambda moves away from t by it;
    the integer program leaves such a wavelength dark.

    Args:
        near: The links that get wavelengths.
        t: [E] the wavelengths to come near to.
        w: Wavelengths of a CU.
        before: [E] the wavelengths that are set up now.
        least: Wavelengths that every link keeps; w is enough for all of them.
    """
    found = np.maximum(np.rint(t).astype(np.int64), least)
    for sign in (-1, 1):
        while _deal(near, (t, before, least), w, found, sign):
            pass
    return column(found, np.int64)


def _deal(near: Neighbours, wanted: tuple[F64, I64, int], w: int, found: I64, sign: int) -> bool:
    """Take one wavelength from each link of a CU with too many, or add one to each link of CUs with too few.

    A CU that has the right number by then neither gives nor gets more.

    Args:
        near: The links.
        wanted: The arguments `t`, `before` and `least` of `heuristic`.
        w: Wavelengths of a CU.
        found: [E] the wavelengths of each link, which are changed.
        sign: -1 to take, 1 to give.

    Returns:
        Whether any wavelength was taken or given.
    """
    t, before, least = wanted
    out, into = (end.astype(np.int64) for end in near.sums(found))
    ends = np.stack((out[near.src], into[near.dst]))
    asked = np.asarray((ends > w).any(axis=0) & (found > least) if sign < 0 else (ends < w).all(axis=0))
    both = (ends > w).sum(axis=0)
    back = sign * (before - found) > 0
    low, high = np.minimum(near.src, near.dst), np.maximum(near.src, near.dst)
    order = np.lexsort((near.src, high, low, sign * near.turn, ~back, sign * (found - t), -both))
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
    """Return [E] the number of wavelengths of each link at the optimum of equation 1, found by HiGHS.

    Of several optima it is one with the fewest changes to `before`. The square is written exactly: the k-th wavelength of a
    link is a variable of 0 or 1 that adds (k - t)^2 - (k - 1 - t)^2, which grows with k. The arguments are those of
    `heuristic`, and `name`, with which errors begin.

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


@dataclass(frozen=True, eq=False, slots=True)
class Configuration:
    """The number of wavelengths of each link at one time, and the job of each CU."""

    levels: Levels
    near: Neighbours  # all links
    keep: int  # wavelengths that every link keeps whatever the jobs are; the others move
    job: I64  # [N] job of each CU; -1: none
    wavelengths: I64  # [E] wavelengths of each link
    by: str = "heuristic"  # how those that move were assigned: by the heuristic or by the integer program


def initial(levels: Levels, keep: int = 0) -> Configuration:
    """Return the configuration without jobs, in which wavelengths are spread evenly.

    Raises:
        InputError: See `Levels.check`; or w has fewer than `keep` for every neighbour.
    """
    levels.check()
    most = levels.w // levels.degree
    if not 0 <= keep <= most:
        raise must_be(levels.name, "keep", f"0..{most}, as {levels.degree} neighbours share {levels.w} wavelengths", keep)
    near = neighbours(levels)
    return Configuration(levels, near, keep, column(np.full(near.n, -1), np.int64), uniform(levels, near))


def sequential(sizes: Sequence[int]) -> list[I64]:
    """Return the CUs of jobs of the given sizes, placed one after another (6.A.1)."""
    return np.split(np.arange(sum(sizes)), np.cumsum(sizes)[:-1])


def reconfigure(
    now: Configuration,
    jobs: Sequence[ArrayLike],
    traffic: ArrayLike | None = None,
    by: str = "heuristic",
    dark: Bool | None = None,
) -> Configuration:
    """Return the configuration that serves the given jobs best, with as few changes as possible.

    Args:
        now: The present configuration.
        jobs: The CUs of each job.
        traffic: [N, N] the amount that each CU sends to each other in any unit; only amounts within a job and to a neighbour
            count. None: SiPCO's, which loads all links of a job equally.
        by: heuristic or program.
        dark: [E] whether each link has failed and can take no light; None: none has. Each other link of a job keeps a
            wavelength, because scaled traffic may leave none for the middle of the only path that is left.

    Raises:
        InputError: CUs do not exist or are given twice, no links within a job join it, or `traffic` or `by` is invalid.
    """
    near, gone = now.near, np.zeros(len(now.wavelengths), np.bool_) if dark is None else dark
    job = _jobs(now, jobs, gone)
    within = (job[near.src] == job[near.dst]) & (job[near.src] >= 0) & ~gone
    volume = within * (np.ones(len(within)) if traffic is None else _volume(now, traffic))
    idle = (job[near.src] < 0) & (job[near.dst] < 0)
    wavelengths = np.where(idle, now.wavelengths, now.keep) * ~gone
    used = volume > 0
    least = int(dark is not None and not now.keep)
    wavelengths[used] += _assign_wavelengths(now, near.of(used), volume[used], now.wavelengths[used] - now.keep, by, least)
    return replace(now, job=job, wavelengths=column(wavelengths, np.int64), by=by)


def _volume(now: Configuration, traffic: ArrayLike) -> F64:
    """Return [E] the traffic on each link."""
    n, table = now.near.n, np.asarray(traffic, np.float64)
    if table.shape != (n, n) or not (np.isfinite(table) & (table >= 0)).all():
        got = table.shape if table.shape != (n, n) else table.min()
        raise must_be(now.levels.name, "traffic", f"{n} x {n} finite numbers of 0 or more", got)
    return column(table[now.near.src, now.near.dst], np.float64)


def _assign_wavelengths(now: Configuration, near: Neighbours, volume: F64, before: I64, by: str, least: int) -> I64:
    """Return the wavelengths of each link for the traffic on it, by the heuristic or by the integer program."""
    w = now.levels.w - now.keep * now.levels.degree
    if not w or not len(volume):
        return column(np.zeros(len(volume)), np.int64)
    t = scale_traffic(near, volume, w)
    if by == "program":
        return program(now.levels.name, near, t, w, before, least)
    if by != "heuristic":
        raise must_be(now.levels.name, "by", "heuristic or program", by)
    return heuristic(near, t, w, before, least)


def moves(before: Configuration, after: Configuration) -> int:
    """Return the number of wavelengths that move from one link to another between two configurations."""
    return int(np.maximum(after.wavelengths - before.wavelengths, 0).sum())


def _jobs(now: Configuration, jobs: Sequence[ArrayLike], gone: Bool) -> I64:
    """Return [N] the job of each CU, after the check that working links within each job join it."""
    name, n = now.levels.name, now.near.n
    members = [column(cus, np.int64) for cus in jobs]
    asked = np.concatenate([*members, np.zeros(0, np.int64)])
    if len(asked) and not 0 <= asked.min() <= asked.max() < n:
        raise must_be(name, "CUs of jobs", f"0..{n - 1}", f"{asked.min()}..{asked.max()}")
    if len(np.unique(asked)) < len(asked):
        raise InputError(f"{name}: CU {np.argmax(np.bincount(asked) > 1)} is given twice; give each CU to one job once")
    job = np.full(n, -1)
    job[asked] = np.repeat(np.arange(len(members)), [len(cus) for cus in members])
    if not now.keep:
        _check_joined(name, now.near.of(~gone), job, len(members))
    return column(job, np.int64)


def _check_joined(name: str, near: Neighbours, job: I64, count: int) -> None:
    """Check that links within each job join its CUs."""
    same: Bool = job[near.src] == job[near.dst]
    parts = np.unique(np.stack((job, components(near.n, near.src[same], near.dst[same]))), axis=1)[0]
    apart = np.flatnonzero(np.bincount(parts[parts >= 0], minlength=count) > 1)
    if len(apart):
        cus = np.flatnonzero(job == apart[0])
        raise InputError(
            f"{name}: job {apart[0]} of CUs {cus[0]}..{cus[-1]} falls apart, as no link within it leads from some to the "
            "others; begin it at a multiple of its size, or let all links keep=1 wavelength"
        )
