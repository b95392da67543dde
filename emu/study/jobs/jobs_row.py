"""The figures of jobs side by side, as a report has them. J jobs."""

from dataclasses import dataclass

from emu.study.jobs.step_graphs.contention import SharedLink


@dataclass(frozen=True, slots=True, kw_only=True)
class JobBeside:
    """A job beside others: its step alone and with them, how far it is slowed down, and by whom."""

    name: str
    work: str
    ranks: int
    npus: str  # ranges of the NPUs of its ranks, in their order
    weight: int  # with which its messages share full links
    priority: int  # larger goes first, where jobs share links by priority
    planes: str  # of the topology to which its messages keep; "": all
    begin_s: float  # at which its first step begins, with its shift
    compute_s: float  # of a step, for which a rank computes in the mean
    alone_s: float  # of a step
    step_s: float  # the mean of its steady steps beside the others
    least_s: float
    most_s: float
    steps: int  # steady ones
    slow_down: float  # step_s over alone_s
    waits_for: str | None  # the job that by itself slows it down most; None: none does
    between_s: tuple[float, float] | None = None  # what every message would give, where bodies stand for requests that meet
    links: tuple[SharedLink, ...]  # that it shares, by the other job; the longest together first


@dataclass(frozen=True, slots=True, kw_only=True)
class JobsRow:
    """Jobs side by side on one topology in one setting."""

    topology: str
    placement: str
    shift: str
    share: str
    routes: str
    engine: str  # the method of the engine, `composed` or `packets`
    jobs: tuple[JobBeside, ...]
    slow_down: float  # the mean of all jobs
    worst: float  # the largest slow-down
    computing: float  # share of the time for which the NPUs of all jobs compute
    fairness: float  # Jain's index of the shares of their own speed that jobs reach
    pairs: tuple[tuple[float, ...], ...]  # [J][J] how far the job of the row is slowed down by that of the column alone
    busiest_link: str
    busiest: float  # share of the time for which that link is busy at its full rate
    tasks: int
    wall_s: float
    assumptions: tuple[str, ...]
