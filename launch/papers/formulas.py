"""Rows that print a formula: the formula is compared with what Emu computes on several instances."""

from collections.abc import Iterable
from typing import NamedTuple

from launch.papers.targets import Answer


class FormulaCase(NamedTuple):
    """One instance of a formula: what Emu finds, and what the formula gives."""

    of: str
    found: float
    formula: float


def check_formula(cases: Iterable[FormulaCase], most: float = 1e-6, *notes: str) -> Answer:
    """Answer whether the formula holds in all cases; the answer's value is that of the first case.

    Args:
        cases: The instances.
        most: The largest relative difference that is allowed.
        *notes: Notes of the answer.
    """
    every = [*cases]
    off = max(abs(case.found - case.formula) / abs(case.formula) for case in every)
    words = [f"{case.of}: {case.found:.6g}, by the formula {case.formula:.6g}" for case in every]
    return Answer(every[0].found, (*words, *notes), off, holds=off <= most)
