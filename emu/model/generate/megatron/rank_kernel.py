"""The kernels of Megatron-LM for a part of a model: products that read one input are one, and element-wise work is fused.

Each kernel knows whether the region that tensor parallelism cuts begins or ends with it. Source: Megatron-LM,
megatron/core/tensor_parallel/layers.py; Narayanan et al. (SC21), section 2.3; Korthikanti et al. (2022), section 4.2.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from typing import NamedTuple

from emu.model.operator import PERMUTATION, PRODUCT, Amount, ModelOperator, Passes
from emu.model.stack.stack import Stack
from emu.model.stack.stack_kernels import passes_of


class RankKernel(NamedTuple):
    """One computation of a rank."""

    operator: ModelOperator
    passes: Passes
    enters: bool = False  # reads what lies outside the region that tensor parallelism cuts
    leaves: bool = False  # gives a share of what its ranks add up
    receives: bool = False  # reads the rows that came to a rank's experts
    returns: bool = False  # gives what goes back from them


def kernels(operators: Sequence[ModelOperator], stack: Stack, *, alike: bool = False) -> tuple[RankKernel, ...]:
    """Return the kernels of a part, in the order of the forward.

    Args:
        operators: The operators of the part.
        stack: The software whose kernels run.
        alike: Whether the ranks of tensor parallelism have the same tokens, so that a block of experts is also a region that
            tensor parallelism cuts.
    """
    found, inside, fused = [], False, tuple(_fused(operators))
    experts = [operator for operator in fused if operator.experts]
    routed = [operator for operator in fused if operator.routed] if alike else []
    combined = [operator for operator in routed if operator.kind == PERMUTATION][-1:]
    for operator in fused:
        product = operator.kind == PRODUCT and not operator.sequence and not operator.experts
        enters, leaves = product and not inside, operator.cut == "in" and not operator.experts
        inside = (inside or enters) and not leaves
        enters, leaves = enters or operator in routed[:1], leaves or operator in combined
        ends = (operator is experts[0], operator is experts[-1]) if operator.experts else ()
        found.append(RankKernel(operator, passes_of(operator, stack), enters, leaves, *ends))
    return tuple(found)


def _fused(operators: Iterable[ModelOperator]) -> Iterator[ModelOperator]:
    """Yield the operators, with products that read the same input as one, at the position of the first."""
    every = list(operators)
    for operator in every:
        together = [o for o in every if o.reads_with == operator.reads_with] if operator.reads_with else [operator]
        if together[0] is operator:
            yield _product(together) if together[1:] else operator


def _product(of: Sequence[ModelOperator]) -> ModelOperator:
    """Return one product instead of several: its input is read once, and the input's gradient written once."""
    m, _, k = of[0].shape or (0, 0, 0)
    read = Amount(whole=-m * k).times(len(of) - 1)

    def summed(name: str) -> Amount:
        return sum((getattr(o.fused, name) for o in of), Amount())

    passes = Passes(
        summed("forward") + read, summed("backward_input") + read, summed("backward_weight") + read, summed("saved")
    )
    return replace(
        of[0],
        parameters=sum(o.parameters for o in of),
        fused=passes,
        outputs=sum((o.outputs for o in of), Amount()),
        shape=(m, sum(o.shape[1] for o in of if o.shape), k),
    )
