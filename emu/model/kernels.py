"""By which kernels a stack runs an operator, and what these keep for the backward."""

from dataclasses import replace

from emu.model.operator import ATTENTION, PRODUCT, Amount, ModelOperator, Passes
from emu.model.plan import Plan
from emu.model.stack import UNFUSED, Stack


def passes_of(operator: ModelOperator, stack: Stack) -> Passes:
    """As PyTorch runs it without a compiler, or as one kernel; attention by that which the stack has."""
    if stack.software == "pytorch":
        return operator.eager
    return operator.unfused if operator.kind == ATTENTION and stack.attention == UNFUSED else operator.fused


def kept_by(operator: ModelOperator, stack: Stack, plan: Plan) -> Amount:
    """What one rank keeps from its forward to its backward, of an operator cut as the plan has it.

    Megatron-LM keeps what products read as sequence parallelism cuts it, and gathers it once more; attention that is worked
    out again keeps what it reads. Source: Korthikanti et al. (2022), sections 4.2 and 5.
    """
    saved = passes_of(operator, stack).saved
    if stack.software == "pytorch":
        return saved
    if operator.kind == ATTENTION and plan.recompute == "selective":
        return replace(operator.fused.saved, fixed_bytes=0)
    if operator.kind == PRODUCT and plan.sp and not operator.experts:
        return replace(saved, whole=saved.whole // (1 if operator.sequence else plan.tp))
    return saved
