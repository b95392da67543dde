"""Shifts of the steps of jobs in time, so that jobs that share links send in turn.

The steps of all jobs are laid round one circle, whose length each job's step divides nearly. Each job is turned until the links
that jobs share are asked for as little as possible beyond their bandwidth. Source: Rajasekaran et al., CASSINI (NSDI 2024,
arXiv:2308.00852), sections 3 and 4. J jobs, L links, B bins of the circle.
"""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from emu.arrays import F64, I64, ramps
from emu.fabric.graph import Graph, Timeline

BINS = 720  # of the circle: half a degree each
_MOST_TURNS = 16  # steps of the longest job round the circle at most
_NEAR = 0.01  # share of a step by which it may fail to divide the circle
_MOST_LINKS = 64  # links whose demand is looked at, those that are busiest
_ROUNDS = 4  # in which each job is turned once more


class StepProfile(NamedTuple):
    """One step of a job that has the fabric to itself: its ticks, and when it sends how fast over which links."""

    step_fs: int
    graph: Graph
    timeline: Timeline


class Circle(NamedTuple):
    """A circle with the steps of all jobs: its ticks, the steps of each job on it, and how far the worst fails to divide it."""

    length_fs: float
    turns: tuple[int, ...]
    off: float  # the largest share of a job's step by which its steps do not fill the circle


def common_circle(step_fs: Sequence[int]) -> Circle:
    """Return the shortest circle that the step of every job divides nearly, else the one that they divide best.

    It has at most 16 steps of the longest job.
    """
    longest, found = max(step_fs), list[Circle]()
    for times in range(1, _MOST_TURNS + 1):
        turns = tuple(max(1, round(times * longest / each)) for each in step_fs)
        off = max(abs(times * longest / each / turn - 1) for each, turn in zip(step_fs, turns, strict=True))
        found.append(Circle(float(times * longest), turns, off))
        if off <= _NEAR:
            return found[-1]
    return min(found, key=lambda each: each.off)


def shifts_of(profiles: Sequence[StepProfile], links: I64) -> list[int]:
    """Return the ticks by which each job starts later, so that jobs ask for the least beyond the bandwidth of shared links.

    Jobs are turned one after another, each to the best place beside the others, in a few rounds. The first one stays.
    Without shared links all of them stay.

    Args:
        profiles: One step of each job.
        links: The links that jobs share, the busiest first.
    """
    if not len(links):
        return [0] * len(profiles)
    circle, links = common_circle([each.step_fs for each in profiles]), links[:_MOST_LINKS]
    every = np.stack([demand_on_circle(each, turns, links) for each, turns in zip(profiles, circle.turns, strict=True)])
    _, kept = np.unique(every.transpose(1, 0, 2).reshape(len(links), -1).round(9), axis=0, return_index=True)
    demand = list(every[:, np.sort(kept)])  # equal links count once
    at, bins = [0] * len(profiles), [max(1, BINS // turns) for turns in circle.turns]
    for turn in range(_ROUNDS):
        before = list(at)
        for job in range(1, len(profiles)):
            others = [np.roll(demand[i], at[i], axis=1) for i in range(job if turn == 0 else len(profiles)) if i != job]
            at[job] = best_turn(demand[job], np.sum(others, axis=0), bins[job])
        if turn > 0 and at == before:  # the first turn looks at earlier jobs alone
            break
    return [round(circle.length_fs * turn / BINS) for turn in at]


def best_turn(own: F64, others: F64, bins: int) -> int:
    """Return the number of bins by which a job is turned, so that links are asked for least beyond their bandwidth.

    Of equally good turns it is the smallest. `own` and `others` are [L, B] shares of the links' bandwidth.
    """
    excess = [float(np.maximum(np.roll(own, turn, axis=1) + others - 1, 0).sum()) for turn in range(bins)]
    return int(np.argmin(np.array(excess).round(6)))


def demand_on_circle(profile: StepProfile, turns: int, links: I64) -> F64:
    """Return [L, B] the share of each link's bandwidth that a job asks for in each bin of the circle.

    Args:
        profile: One step of the job.
        turns: The steps of the job round the circle.
        links: [L] the links.
    """
    graph, timeline = profile.graph, profile.timeline
    place = np.full(graph.n_links, -1)
    place[links] = np.arange(len(links))
    hops = np.flatnonzero(place[graph.hop_link] >= 0)
    task, link = graph.hop_task[hops], graph.hop_link[hops]
    took = np.maximum(timeline.left_fs[task] - timeline.start_fs[task], 1)
    share = graph.size_bytes[task] * graph.hop_weight[hops] / graph.capacity_Bps[link] * 1e15 / took
    found = np.zeros((len(links), BINS))
    for first in range(turns):
        begin, end = ((first + t[task] / profile.step_fs) * BINS / turns for t in (timeline.start_fs, timeline.left_fs))
        _fill(found, place[link], begin, end, share)
    return found


def _fill(found: F64, row: I64, begin: F64, end: F64, share: F64) -> None:
    """Add shares to the bins between begins and ends, a bin at an edge by the part of it that is covered."""
    low, high = (
        np.floor(begin).astype(np.int64),
        np.maximum(np.ceil(end).astype(np.int64), np.floor(begin).astype(np.int64) + 1),
    )
    width = high - low
    bin_of, of = ramps(low, width), np.repeat(np.arange(len(low)), width)
    part = np.minimum(end[of], bin_of + 1) - np.maximum(begin[of], bin_of)
    np.add.at(found, (row[of], bin_of % found.shape[1]), share[of] * np.maximum(part, 0))
