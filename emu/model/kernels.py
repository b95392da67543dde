"""By which kernels a stack runs an operator, and what these keep for the backward."""

from dataclasses import replace

from emu.model.operator import ATTENTION, FORWARD, PRODUCT, Amount, ModelOperator, Passes
from emu.model.plan import Plan
from emu.model.stack import UNFUSED, Stack
from emu.trace.kernel import MOVES, Kernel, Shape


def passes_of(operator: ModelOperator, stack: Stack) -> Passes:
    """As PyTorch runs it without a compiler, or as one kernel; attention by that which the stack has."""
    if stack.software == "pytorch":
        return operator.eager
    return operator.unfused if operator.kind == ATTENTION and stack.attention == UNFUSED else operator.fused


def pieces_of(operator: ModelOperator, stack: Stack, what: str) -> tuple[tuple[Amount, Shape], ...]:
    """Of the forward, or of the gradients of what came in: the kernels that run one after another, and the shape of each."""
    passes = passes_of(operator, stack)
    amount = passes.forward if what == FORWARD else passes.backward_input
    if operator.attended is None or stack.attention != UNFUSED:
        return ((amount, operator.shape_of(what)),)
    return _unfused(operator.attended, amount, what)


def _unfused(attended: tuple[int, int, int, int], amount: Amount, what: str) -> tuple[tuple[Amount, Shape], ...]:
    """Scores, their softmax, and values; backward the gradients of values, softmax, scores, queries and keys.

    Each product has an even share of what is moved beside the softmax.
    """
    heads, queries, keys, width = attended
    scored = Shape(Kernel.PRODUCT, heads, queries, keys, width)
    out, of_keys = scored._replace(n=width, k=keys), scored._replace(m=keys, n=width, k=queries)
    products = (scored, out) if what == FORWARD else (of_keys, scored, out, of_keys)
    softmax = Amount(cut=(2 if what == FORWARD else 3) * heads * queries * keys)
    rest, n = amount + softmax.times(-1), len(products)
    each = Amount(rest.flops // n, rest.whole // n, rest.cut // n)
    shared = [(each, shape) for shape in products[:-1]]
    last = rest + each.times(1 - n), products[-1]
    return (*shared[: n // 2], (softmax, MOVES), *shared[n // 2 :], last)


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
