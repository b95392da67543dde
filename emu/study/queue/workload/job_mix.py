"""A mix of jobs as a source publishes it: how many NPUs jobs ask for, how long they run, and how much NPU time they take.

Sources give a few figures, not distributions. Where sizes are not counted, half of the jobs take one NPU (the least that a
median of 1 says), and the others a power of two with geometric probabilities that give the published mean. Run times are
log-normal, with a median that grows by a power of the size; spread, median and power give the published median, mean and NPU
time, with no run longer than the longest. Letters: S sizes.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from math import log
from pathlib import Path
from typing import Any

import numpy as np
from scipy.optimize import brentq, root
from scipy.special import ndtr

from emu.arrays import F64, I64, column
from emu.errors import must_be
from emu.study.queue.workload.queued_job import DAY_US, US_PER_S, QueuedJob
from emu.topology.description.values import load_toml

_FIRST_GUESS = (log(2.0), 0.3)  # logarithm of the spread of run times, and the power of sizes in their medians
_ONE = 0.5  # share of jobs of one NPU, where a source says only that the median is 1


@dataclass(frozen=True, slots=True)
class MixFigures:
    """The published figures of a mix, and their source."""

    source: str
    stands_for: str  # the machine and the jobs, in a sentence
    mean_s: float  # of run times
    median_s: float
    longest_s: float
    npu_seconds: float  # mean of the product of NPUs and run time
    mean_npus: float
    most_npus: int
    shares: tuple[tuple[int, float], ...] = ()  # share of jobs by their NPUs; (): not published


@dataclass(frozen=True, eq=False, slots=True)
class JobMix:
    """A distribution of jobs that has the published figures of a mix."""

    name: str
    figures: MixFigures
    sizes: I64  # [S] NPUs of a job
    share: F64  # [S] of the jobs
    median_s: F64  # [S] median of the run times, before the longest cuts them
    sigma: float  # spread of the logarithm of run times

    @property
    def notes(self) -> tuple[str, ...]:
        """Sentences on what the mix stands for, its source, and what the source does not tell."""
        figures = self.figures
        counted = (
            "as the source counts them"
            if figures.shares
            else (
                f"half take 1 NPU (the median), the others powers of two up to {figures.most_npus} with a mean of "
                f"{figures.mean_npus:g} over all"
            )
        )
        return (
            f"the mix is {figures.stands_for}: {figures.source}",
            f"sizes of jobs: {counted}",
            f"run times are log-normal with the published median of {figures.median_s:g} s, mean of {figures.mean_s:g} s, "
            f"NPU time of {figures.npu_seconds:.4g} s a job and longest of {figures.longest_s:g} s; larger jobs run longer, as "
            "that NPU time says; the source has no shape of the distribution",
            "jobs are submitted at random, evenly over the time (a Poisson process of so many jobs), without times of day; all "
            "have equal priority",
        )

    @property
    def mean_npu_us(self) -> float:
        """The mean NPU time of a job in NPU-microseconds."""
        mean_s = _mean_below(self.median_s, self.sigma, self.figures.longest_s)
        return float(self.share @ (self.sizes * mean_s)) * US_PER_S

    def draw(
        self, jobs: int, days: float, seed: int, npu_us: float | None = None, most_npus: int | None = None
    ) -> tuple[QueuedJob, ...]:
        """Return jobs drawn at random, in the order of their submission.

        Args:
            jobs: The number of jobs.
            days: The time in which they are submitted.
            seed: The seed of the draw.
            npu_us: The NPU time that all jobs together ask for: one factor of all run times; None: as drawn.
            most_npus: The jobs that make up `npu_us` ask for no more NPUs than this, those of a machine; None: all do.

        Raises:
            InputError: No job asks for so few NPUs.
        """
        random = np.random.default_rng(seed)
        submit_us = np.sort(random.random(jobs)) * days * DAY_US
        size = random.choice(len(self.sizes), jobs, p=self.share)
        run_s = self.median_s[size] * np.exp(self.sigma * random.standard_normal(jobs))
        work_us = np.minimum(run_s, self.figures.longest_s) * US_PER_S
        held = self.sizes[size] * (self.sizes[size] <= (most_npus or self.figures.most_npus))
        if npu_us is not None and not held.any():
            raise must_be("--mix", "a job", f"of at most {most_npus} NPUs, those of the machine", f"{jobs} larger ones")
        stretch = 1.0 if npu_us is None else npu_us / float(work_us @ held)
        work_us = np.maximum(1, np.rint(work_us * stretch))
        columns = (submit_us.astype(np.int64), self.sizes[size], work_us.astype(np.int64))
        rows = zip(*(values.tolist() for values in columns), strict=True)
        return tuple(QueuedJob(number, *row) for number, row in enumerate(rows))


def read_mix(path: Path, name: str) -> JobMix:
    """Return the mix of a TOML file of published figures.

    Raises:
        InputError: The file has no such figures.
    """
    table = load_toml(path, "--mix", path.name)
    return job_mix(name, _figures(table, path.name))


def _figures(table: Mapping[str, Any], where: str) -> MixFigures:
    """Return the figures of a table."""
    shares = tuple((int(npus), float(share)) for npus, share in table.get("shares", {}).items())
    known = {name: table[name] for name in MixFigures.__slots__ if name in table}
    try:
        return MixFigures(**{**known, "shares": shares})
    except TypeError as error:
        raise must_be(where, "a mix", "given source, stands_for and the figures of run times and sizes", str(error)) from None


def job_mix(name: str, figures: MixFigures) -> JobMix:
    """Return a distribution of jobs with the figures of a mix."""
    sizes, share = _sizes(figures)
    sigma, power, median_s = _fitted(figures, sizes, share)
    return JobMix(name, figures, sizes, share, column(median_s * sizes**power, np.float64), sigma)


def _sizes(figures: MixFigures) -> tuple[I64, F64]:
    """Return the sizes of jobs, and the share of each."""
    if figures.shares:
        counted = np.array(figures.shares)
        return column(counted[:, 0], np.int64), column(counted[:, 1] / counted[:, 1].sum(), np.float64)
    sizes = 2 ** np.arange(int(np.log2(figures.most_npus)) + 1)

    def share(ratio: float) -> F64:
        rest = ratio ** np.arange(len(sizes) - 1)
        return column(np.concatenate(([_ONE], (1 - _ONE) * rest / rest.sum())), np.float64)

    ratio = _root(lambda ratio: float(share(ratio) @ sizes) - figures.mean_npus, 1e-6, 4.0)
    return column(sizes, np.int64), share(ratio)


def _fitted(figures: MixFigures, sizes: I64, share: F64) -> tuple[float, float, float]:
    """Return the spread of run times, the power of sizes in their medians, and the median of jobs of one NPU in seconds."""

    def medians_s(sigma: float, power: float) -> F64:
        """Return [S] the median of jobs of each size with which the median of all is as published."""
        shift = power * np.log(sizes)
        middle = log(figures.median_s)
        lowest = _root(lambda at: float(share @ ndtr((middle - at - shift) / sigma)) - 0.5, middle - 50, middle + 50)
        return column(np.exp(lowest + shift), np.float64)

    def off(given: F64) -> list[float]:
        sigma, power = float(np.exp(given[0])), float(given[1])
        mean_s = _mean_below(medians_s(sigma, power), sigma, figures.longest_s)
        return [
            log(float(share @ mean_s) / figures.mean_s),
            log(float(share @ (mean_s * sizes)) / figures.npu_seconds),
        ]

    found = root(off, _FIRST_GUESS, tol=1e-12)
    if not found.success:
        raise must_be("--mix", "the figures of a mix", "such that log-normal run times can have them", found.message)
    sigma, power = float(np.exp(found.x[0])), float(found.x[1])
    return sigma, power, float(medians_s(sigma, power)[0] / sizes[0] ** power)


def _root(of: Callable[[float], float], low: float, high: float) -> float:
    """Return where a function is 0 between two arguments at which its signs differ."""
    return float(brentq(of, low, high, xtol=1e-12, rtol=1e-12))


def _mean_below(median_s: F64, sigma: float, longest_s: float) -> F64:
    """Return the mean of log-normal times of which none is longer than the longest."""
    far = (np.log(longest_s) - np.log(median_s)) / sigma
    whole = median_s * np.exp(sigma**2 / 2)
    return column(whole * ndtr(far - sigma) + longest_s * ndtr(-far), np.float64)
