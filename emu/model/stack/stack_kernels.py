"""The kernels by which a stack runs an operator, which of them are in FP8, and the bytes that they keep for the backward."""

from dataclasses import replace

from emu.model.operator import ATTENTION, FORWARD, PRODUCT, RESIDUAL, Amount, ModelOperator, Passes
from emu.model.plan.plan import Plan
from emu.model.stack.software import LAYERS, NOTHING, UNFUSED, YES, Casts
from emu.model.stack.stack import Stack
from emu.trace.trace import MOVES, Kernel, Shape


def passes_of(operator: ModelOperator, stack: Stack, *, layer: bool = True) -> Passes:
    """Return the passes of an operator with a stack: eager, compiled in a layer, or fused; attention has the stack's kernel."""
    if stack.software.is_eager:
        eager = operator.narrow if stack.is_narrow and operator.narrow else operator.eager
        return operator.compiled if layer and stack.compile == LAYERS and operator.compiled else eager
    unfused = stack.attention == UNFUSED if operator.kind == ATTENTION else operator.kind in stack.unfused
    return operator.unfused if unfused else operator.fused


def pieces_of(operator: ModelOperator, stack: Stack, what: str, *, drops: bool = False) -> tuple[tuple[Amount, Shape], ...]:
    """Return the kernels that run one after another, with the amount and the shape of each.

    Args:
        operator: The operator.
        stack: The software whose kernels run.
        what: `FORWARD`, or `INPUT` for the gradients of the input.
        drops: Whether dropout is on: scores are read and written once more, with a mask of a byte for each; the kernel that
            adds a block's output has such a mask too. Source: Korthikanti et al. (2022), section 4.1.
    """
    passes = passes_of(operator, stack)
    amount = passes.forward if what == FORWARD else passes.backward_input
    if operator.attended is None or stack.attention != UNFUSED:
        masks = operator.outputs.whole + operator.outputs.cut if drops and operator.kind == RESIDUAL else 0
        return split_sum(operator, what, amount + Amount(fixed_bytes=masks), fused=passes is operator.fused)
    return _unfused(operator.attended, amount, what, drops=drops)


def split_sum(operator: ModelOperator, what: str, amount: Amount, *, fused: bool = False) -> tuple[tuple[Amount, Shape], ...]:
    """Return a pass of an operator as one kernel, or as two where a kernel of its own adds rows: then that is the last."""
    added = operator.sum_of_rows
    if added is None or added.what != what or fused:
        return ((amount, operator.shape_of(what)),)
    return (amount + added.amount.times(-1), MOVES), (added.amount, added.shape)


def _unfused(
    attended: tuple[int, int, int, int], amount: Amount, what: str, *, drops: bool
) -> tuple[tuple[Amount, Shape], ...]:
    """Return the kernels of unfused attention.

    Forward they are scores, their softmax, and values; backward the gradients of values, softmax, scores, queries and keys.
    Each product has an even share of the bytes that are moved beside the softmax.
    """
    heads, queries, keys, width = attended
    scored = Shape(Kernel.PRODUCT, heads, queries, keys, width)
    out, of_keys = scored._replace(n=width, k=keys), scored._replace(m=keys, n=width, k=queries)
    products = (scored, out) if what == FORWARD else (of_keys, scored, out, of_keys)
    scores = heads * queries * keys
    softmax, dropped = Amount(cut=(2 if what == FORWARD else 3) * scores), Amount(cut=2 * scores, fixed_bytes=scores)
    rest, n = amount + softmax.times(-1), len(products)
    each = Amount(rest.flops // n, rest.whole // n, rest.cut // n)
    shared = [(each, shape) for shape in products[:-1]]
    last = rest + each.times(1 - n), products[-1]
    return (*shared[: n // 2], (softmax, MOVES), *([(dropped, MOVES)] if drops else []), *shared[n // 2 :], last)


def saved_amount(operator: ModelOperator, stack: Stack, plan: Plan, *, layer: bool = True) -> Amount:
    """Return the amount that one rank keeps from the forward of an operator to its backward; the operator is cut by the plan.

    Eager kernels keep what autograd saves. Fused ones keep the inputs of products as sequence parallelism cuts them, which are
    gathered once more; attention that is recomputed keeps its inputs. Source: Korthikanti et al. (2022), sections 4.2 and 5.
    """
    saved = passes_of(operator, stack, layer=layer).saved
    if stack.software.is_eager:
        return saved
    if operator.kind == ATTENTION and plan.recompute == "selective":
        return replace(operator.fused.saved, fixed_bytes=0)
    if plan.dropout and operator.kind == RESIDUAL:
        return saved + Amount(fixed_bytes=operator.outputs.whole + operator.outputs.cut)
    if plan.dropout and operator.kind == ATTENTION and stack.attention == UNFUSED and operator.attended:
        heads, queries, keys, _ = operator.attended
        return saved + Amount(cut=heads * queries * keys, fixed_bytes=heads * queries * keys)
    if operator.kind == PRODUCT and plan.sp and not operator.experts:
        return replace(saved, whole=saved.whole // (1 if operator.sequence else plan.tp))
    return saved


def in_fp8(operator: ModelOperator, stack: Stack, *, layer: bool) -> bool:
    """Return whether a stack runs an operator as a product in FP8: one of a layer; neither the head's nor a router's."""
    if stack.fp8 == NOTHING or operator.kind != PRODUCT or not layer or operator.routed:
        return False
    return not (operator.experts and stack.software.groups_experts)


def casts_of(stack: Stack) -> Casts:
    """Return what the casts of a stack move; weights that are gathered in FP8 come cast."""
    found = stack.software.casts[stack.fp8]
    return found._replace(weight=0) if stack.fp8_gather == YES else found
