"""The step of those ranks that do the same, and the functions that write the steps of one software."""

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from emu.arrays import I64
from emu.model.generate.states import StateShare
from emu.model.generate.tape import Tape
from emu.model.memory.step_memory import PeakBytes
from emu.model.model import Model
from emu.model.plan.plan import Plan
from emu.model.routed_rows import RoutedOf, Splits
from emu.model.stack.stack import Stack


class Role(NamedTuple):
    """The step of some ranks at one place of their pipelines."""

    tape: Tape
    ranks: I64  # of the run
    held: StateShare  # of the states, where each rank has a part of its own
    peak: PeakBytes
    routed: RoutedOf | None = None  # rows that travel in each pass of each layer; None: the software spreads them evenly
    at: int = 0  # their place in a ring of cp
    even: bool = True  # whether all ranks for which the same rows travel have as much of the states


class StepWriter(NamedTuple):
    """The functions that write the steps of one software.

    Args of both: the model, the plan, the stack; and the place in the pipeline with the token rows of experts, or the places.
    """

    roles: Callable[[Model, Plan, Stack, int, Splits | None], Iterator[Role]]
    peaks: Callable[[Model, Plan, Stack, Iterable[int]], Iterator[PeakBytes]]  # of a rank at each place


def ring_ranks(plan: Plan, ranks: I64, at: int) -> I64:
    """Return the ranks, of some, at a place in their ring of cp."""
    there: I64 = ranks[ranks // plan.tp % plan.ring == at]
    return there
