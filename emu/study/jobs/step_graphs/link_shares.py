"""The share of links that each job gets in a setting: by weights, by priorities, by its intensity, or apart from the others.

L links.
"""

from collections.abc import Sequence
from math import inf

from emu.arrays import F64
from emu.errors import must_be
from emu.study.jobs.jobs_request import INTENSITY, LANES, PRIORITY, SLICES, WEIGHTS
from emu.study.jobs.step_graphs.placed_job import PlacedJob
from emu.study.jobs.step_graphs.shared_graph import LinkShare

MOST_POWER = 6  # of 2, the largest weight by intensity
MOST_LEVELS = 6  # different priorities of jobs that are fluid
_BITS, _MOST_BITS = 30, 20  # of the weights of all levels together; between neighbouring levels


def link_shares(share: str, jobs: Sequence[PlacedJob], link_s: Sequence[F64], *, has_packets: bool) -> list[LinkShare]:
    """Return the share of links that each job gets.

    Args:
        share: The word of the setting.
        jobs: The jobs.
        link_s: Of each job [L] the seconds for which one step keeps each link busy.
        has_packets: Whether packets give the times, so that jobs have lanes; fluid jobs have weights.

    Raises:
        InputError: Fluid jobs have too many different priorities.
    """
    weights = [each.job.weight for each in jobs]
    if share == INTENSITY:
        return [LinkShare(weight) for weight in intensity_weights(jobs, link_s)]
    if share == SLICES:
        return [LinkShare(weight, is_sliced=True) for weight in weights]
    if share == LANES:
        return [LinkShare(lane=number) for number in range(len(jobs))]
    if share == PRIORITY:
        priorities = [each.job.priority for each in jobs]
        levels = sorted(set(priorities))
        if has_packets:
            return [LinkShare(lane=len(levels) - 1 - levels.index(own), is_strict=True) for own in priorities]
        return [LinkShare(weight, is_strict=True) for weight in priority_weights(priorities)]
    return [LinkShare(weight if share == WEIGHTS else 1) for weight in weights]


def intensities(jobs: Sequence[PlacedJob], link_s: Sequence[F64]) -> list[float]:
    """Return the seconds of computation of all ranks of each job for each second for which a step keeps its busiest link busy.

    Source: Cao et al., Crux (SIGCOMM 2024), definition 2, with seconds in place of FLOPs.

    Args:
        jobs: The jobs.
        link_s: Of each job [L] the seconds for which one step keeps each link busy.
    """
    busiest_s = [float(own.max(initial=0.0)) for own in link_s]
    return [job.compute_s * len(job.npus) / s if s else inf for job, s in zip(jobs, busiest_s, strict=True)]


def by_intensity(jobs: Sequence[PlacedJob], link_s: Sequence[F64]) -> list[int]:
    """Return the numbers of jobs, the most intense first; arguments as in `intensities`."""
    found = intensities(jobs, link_s)
    return sorted(range(len(jobs)), key=lambda i: (-found[i], i))


def intensity_weights(jobs: Sequence[PlacedJob], link_s: Sequence[F64]) -> list[int]:
    """Return the weight of each job by its intensity: 64 for the most intense, 1 for the least, powers of 2 between."""
    order = by_intensity(jobs, link_s)
    return [2 ** round(MOST_POWER * (1 - order.index(i) / max(1, len(jobs) - 1))) for i in range(len(jobs))]


def priority_weights(priorities: Sequence[int]) -> list[int]:
    """Return weights that stand for priorities: a message has `level_ratio` times the weight of one of the next lower level.

    Raises:
        InputError: There are too many different priorities.
    """
    levels = sorted(set(priorities))
    ratio = level_ratio(len(levels))
    return [ratio ** levels.index(own) for own in priorities]


def level_ratio(levels: int) -> int:
    """Return how many times the weight of a level is that of the next lower one, given the number of levels.

    Raises:
        InputError: There are too many levels.
    """
    if levels > MOST_LEVELS:
        what = f"at most {MOST_LEVELS} different ones where --fabric is fluid"
        raise must_be("jobs", "priorities", what, levels, "give several jobs one priority")
    return 1 << min(_MOST_BITS, _BITS // max(1, levels - 1))
