"""Rows that print a formula: it is worked out for some instances, and what is built there takes or has as much."""

from collections.abc import Iterable
from typing import NamedTuple

from launch.papers.targets import Answer


class Case(NamedTuple):
    """An instance."""

    of: str
    found: float
    formula: float


def follows(cases: Iterable[Case], most: float = 1e-6, *notes: str) -> Answer:
    """Whether all are what the formula says, at most a share `most` off; ours is the first."""
    every = [*cases]
    off = max(abs(case.found - case.formula) / abs(case.formula) for case in every)
    words = [f"{case.of}: {case.found:.6g}, by the formula {case.formula:.6g}" for case in every]
    return Answer(every[0].found, (*words, *notes), off, holds=off <= most)
