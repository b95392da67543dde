"""The styles of tensor and expert parallelism: the computations and requests before and after each module of a part.

A style is the way in which the ranks of tp divide one module, such as `colwise`: `emu.model.parallel.tensor_parallel.STYLES`
has the styles that run, and `STYLES` here has their events. The exchange of token rows with the ranks of their experts
(`emu.model.parallel.expert_parallel`) is a style, too. The bytes of memory traffic were counted as those of
`emu.model.stack.passes`.

Each function of a style has two arguments: the part on one rank (`share`), and the path of the module in the part (`path`).
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from emu.model.generate.item import Action, Ask, Share
from emu.model.operator import BIAS, INPUT, Amount, ModelOperator, RowSum
from emu.model.routed_rows import RoutedRows

_FLAG, _INDEX = 1, 8  # bytes of an element of a mask, and of an index


class Style(NamedTuple):
    """The computations and requests that a style adds before and after the operators of one module, forward and backward.

    `cuts` are the axes along which each rank has another share of the module's parameters.
    """

    enter: tuple[Action, ...] = ()  # before the forward
    leave: tuple[Action, ...] = ()  # after the forward
    enter_backward: tuple[Action, ...] = ()  # after the gradient of the module's input
    leave_backward: tuple[Action, ...] = ()  # before the gradient of the module's output is used
    holds: bool = True  # whether parameters of the module are DTensors
    cuts: tuple[str, ...] = ()  # the axes along which each rank has another part of the parameters
    gradient: Callable[[ModelOperator], tuple[Action, ...]] = lambda _: ()  # what makes a gradient that of the rank's own part
    times: int = 1  # how many times as large the gradient is before
    inside: tuple[Action, ...] = ()  # the module's own actions before its first operator


NONE = Style(holds=False)
_TP = ("tp",)
_READ_WHOLE = ("shared", "inner shared", "own shared")  # styles of a module whose products read one input


def _shared(share: Share, path: str) -> Style:
    """Return the style of a block whose products read the tokens of all ranks of tp.

    With sequence parallelism the tokens are gathered before the forward. The gradient of the input is summed over tp.
    """
    return Style(share.gathered() if share.plan.sp else (), enter_backward=share.reduced(), holds=False)


def _colwise(share: Share, path: str) -> Style:
    """Return the style of a product cut by columns.

    The gradient of its input is summed over tp here, unless several products read that input: then the style of their block
    sums it once.
    """
    parent = path.rpartition(".")[0]
    if share.model.shards.get(parent, share.model.shards.get(f"layers.*.{parent}", "")) in _READ_WHOLE:
        return Style(cuts=_TP)
    sizes = [o.shape[0] * o.shape[2] for o in map(share.operators.__getitem__, share.within(path)) if o.shape]
    return Style(enter_backward=tuple(share.collective("all_reduce", size) for size in sizes), cuts=_TP)


def _rowwise(share: Share, path: str, summed: tuple[Action, ...], *, gathers: bool = False) -> Style:
    """Return the style of a product cut by rows.

    Args:
        share: The part on one rank.
        path: The path of the product's module.
        summed: The requests that sum the outputs over tp.
        gathers: Whether the gradient of the output is gathered, because each rank keeps its own tokens of the output.
    """
    return Style(leave=(*_divided(share, path), *summed), leave_backward=share.gathered() if gathers else (), cuts=_TP)


def _divided(share: Share, path: str) -> tuple[Action, ...]:
    """Return the computations that divide the biases of a module by tp.

    Each rank then adds its share of the bias, so that the sum over tp has the bias once.
    """
    biases = (o for o in map(share.operators.__getitem__, share.within(path)) if o.kind == BIAS)
    return tuple(share.work(path, Amount(parameters=2 * o.parameters), share.weight_dtype) for o in biases)


def _vocabulary(share: Share, path: str) -> Style:
    """Return the style of an embedding table of which each rank has some rows; its output is summed over tp."""
    words = _vocabulary_rows(share, path)
    return words._replace(leave=(*words.leave[:-1], *share.reduced()), leave_backward=share.gathered() if share.plan.sp else ())


def _vocabulary_rows(share: Share, path: str) -> Style:
    """Return the style of an embedding table cut by rows, each of which belongs to one word of the vocabulary.

    A rank looks up words of other ranks as row 0, and then sets these rows of its output to 0. The backward makes the gradient
    of the whole table, of which each rank then takes its rows.
    """
    n, tp = share.tokens.n, share.plan.tp
    masks = Amount(fixed_bytes=n * (2 * (_INDEX + _FLAG) + 3 * _FLAG))  # below, above, either
    shifted = Amount(fixed_bytes=n * (6 * _INDEX + _FLAG))  # cloned, moved, and 0 where masked
    zeroed = Amount(whole=2 * share.elements, fixed_bytes=n * _FLAG)
    gradient = share.gradient_dtype
    table = next(share.operators[i].parameters for i in share.within(path))
    taken = share.work(path, Amount(parameters=2 * table), gradient)
    return Style(
        enter=tuple(share.active(path, each) for each in (masks, shifted)),
        leave=(share.active(path, zeroed), share.collective("all_reduce", share.elements)),
        enter_backward=(share.work(path, Amount(parameters=table * (tp - 1)), gradient),),
        gradient=lambda _: (taken,),
        times=tp,
        cuts=_TP,
    )


def _gathered(share: Share, path: str) -> Style:
    """Return the style of a head whose product is cut by columns and whose logits are gathered over tp."""
    logits = share.tokens.n * share.model.vocab
    shared = _shared(share, path)
    return Style(
        shared.enter,
        (share.collective("all_gather", logits), share.copied("gathered", logits)),
        shared.enter_backward,
        (share.copied("to shards", logits // share.plan.tp),),
        cuts=_TP,
    )


def _summed_weights(share: Share) -> Style:
    """Return the style of weights that every rank holds in full, and whose gradients are summed over tp."""
    gradient = share.gradient_dtype
    return Style(gradient=lambda o: (Ask("tp", "all_reduce", o.parameters // o.tensors, gradient),))


def _summed(share: Share, path: str) -> Style:
    """Return the style of a module whose output all heads of attention read.

    Each rank of tp has the gradient of the output from its own heads alone, so that this gradient is summed over tp.
    """
    size = next(share.operators[i].outputs.elements for i in share.within(path))
    return Style(enter_backward=(share.collective("all_reduce", size),), holds=False)


def _experts(share: Share, path: str) -> Style:
    """Return the style of experts whose first products are cut by columns and whose last is cut by rows.

    All ranks of tp have all token rows; outputs and input gradients are summed over tp.
    """
    rows = next(o.shape[0] for o in map(share.operators.__getitem__, share.within(path)) if o.shape)
    summed = (share.collective("all_reduce", rows * share.model.hidden)._replace(prompt=True),)
    return Style(leave=summed, enter_backward=summed, cuts=_TP)


def _if_cut(share: Share, style: Style) -> Style:
    """Return the given style if the plan has sequence parallelism, else no style."""
    return style if share.plan.sp else NONE


STYLES: Mapping[str, Callable[[Share, str], Style]] = {
    "colwise": _colwise,
    "rowwise": lambda share, path: _rowwise(share, path, share.reduced(), gathers=share.plan.sp),
    "shared": _shared,
    "vocabulary": _vocabulary,
    "words": _vocabulary_rows,
    # A module that every rank computes whole, and of which it then keeps its tokens.
    "spread": lambda share, _: _if_cut(share, Style(leave=share.own(), leave_backward=share.gathered(), holds=False)),
    "gathered": _gathered,
    "tied": _gathered,
    # A module between blocks: with sp a rank has the gradient of its tokens alone.
    "between": lambda share, _: _if_cut(share, _summed_weights(share)),
    "between out": lambda share, _: _if_cut(share, _summed_weights(share)),
    # Weights of which a rank has the gradient of its heads alone.
    "heads": lambda share, _: _summed_weights(share),
    # A module that needs the tokens of all ranks.
    "whole": lambda share, _: _if_cut(share, Style(share.gathered(), enter_backward=share.own(), holds=False)),
    "summed": _summed,
    # A block of experts whose router and permutations are whole on every rank.
    "sparse": lambda share, _: _if_cut(share, Style(share.gathered(), share.own(), share.own(), share.gathered(), holds=False)),
    "experts": _experts,
    # Inside a block: an input whose gradient is added up over tp, and a product cut by rows whose output stays whole.
    "inner shared": lambda share, _: Style(enter_backward=(share.collective("all_reduce", share.elements),), holds=False),
    "inner rowwise": lambda share, path: _rowwise(share, path, (share.collective("all_reduce", share.elements),)),
    # A block of experts in which every rank has its own tokens, or rows of them.
    "own tokens": lambda share, _: (
        NONE if share.plan.sp else Style(share.own(), share.gathered(), share.gathered(), share.own(), holds=False)
    ),
    "own rows": lambda share, _: _summed_weights(share),
    "own shared": lambda share, _: Style(share.gathered(), enter_backward=share.scattered(), holds=False),
    "own rowwise": lambda share, path: _rowwise(share, path, share.scattered(), gathers=True),
}


EXCHANGE = "routed rows"
_COUNT = "int64"  # of rows
_NUMBER, _END = 8, 4  # bytes of a count, of an index; and of where an expert's rows end


def exchange(share: Share, path: str) -> Style:
    """Return the computations and requests that a trace has around a block of experts whose token rows are sent between ranks.

    Each rank has the weights of its own experts, as plain tensors and not as DTensors. A rank that has all experts exchanges no
    rows.

    Args:
        share: The layer on this rank.
        path: The name of the block in the model, which does not matter here.
    """
    assert share.routed is not None, "a block without routed rows exchanges none"
    sizes = (("ep", share.plan.ep), ("etp", share.plan.expert_tp))
    axes = tuple(axis for axis, size in sizes if size > 1)
    if not axes:
        return NONE
    there, back, turned = (
        _rows_there(share, share.routed),
        _rows_back(share, share.routed),
        _sorted_backward(share, share.routed),
    )
    here = share.model.experts // share.plan.ep
    return Style(
        enter=(*_counts(share), _order(share, share.routed.here), *there, _sorted(share, share.routed.here, first=True)),
        inside=(share.active(EXCHANGE, Amount(fixed_bytes=(3 * _NUMBER + _END) * here)),),  # where the rows of each expert end
        leave=(_sorted(share, share.routed.here, first=False), *back),
        enter_backward=(*turned, *back),
        leave_backward=(*there, *turned),
        holds=False,
        cuts=axes,
    )


def _counts(share: Share) -> tuple[Action, ...]:
    """Return the requests by which ranks learn the number of token rows of each expert.

    With a capacity there are none, because each expert gets as many rows.
    """
    etp, experts = share.plan.expert_tp, share.model.experts
    to_experts, to_shards = Ask("ep", "all_to_all", experts, _COUNT), Ask("etp", "all_gather", etp * experts, _COUNT)
    told = share.plan.capacity > 0
    return (*((to_experts,) if share.plan.ep > 1 and not told else ()), *((to_shards,) if etp > 1 and not told else ()))


def _order(share: Share, rows: int) -> Action:
    """Return the computation of the permutation that sorts the received rows by expert.

    Rows are received sorted by source rank, then by expert.
    """
    every, here = share.plan.expert_tp * share.model.experts, share.model.experts // share.plan.ep
    numbers = 2 * here + every if here > 1 else here  # of the experts, one for each count; of one expert no copy
    repeated = 3 * rows + every + min(rows, every if here > 1 else here)
    sums = 2 * (share.model.experts + share.plan.ep) + every + share.plan.expert_tp
    return share.active(EXCHANGE, Amount(fixed_bytes=_NUMBER * (numbers + repeated + 3 * rows + sums)))


def _sorted(share: Share, rows: int, *, first: bool) -> Action:
    """Return the copy that sorts token rows.

    Args:
        share: The part on one rank.
        rows: The number of rows on the rank.
        first: True to sort the received rows by expert, False to bring the experts' outputs back into the order of arrival.
    """
    here, every = share.model.experts // share.plan.ep, share.plan.expert_tp * share.model.experts
    numbers = rows + every + here if first else 4 * rows
    return share.active(EXCHANGE, Amount(whole=2 * rows * share.model.hidden, fixed_bytes=_NUMBER * numbers))


def _sorted_backward(share: Share, routed: RoutedRows) -> tuple[Action, ...]:
    """Return the backward of a sort of rows: zeros are written, and each row is added at its former position."""
    added = RowSum(INPUT, routed.here, routed.here, share.model.hidden)
    zeros = share.active(EXCHANGE, Amount(whole=routed.here * share.model.hidden))
    return zeros, share.active(EXCHANGE, added.amount, added.shape)


def _rows_there(share: Share, routed: RoutedRows) -> tuple[Action, ...]:
    """Return the requests that send token rows to the ranks of their experts (ep), and gather them over etp.

    The ranks of etp share the weights of an expert.
    """
    shared = _moved(share, "etp", "all_gather", routed.here, (sum(routed.taken),))
    return *_moved(share, "ep", "all_to_all", routed.most, routed.given), *shared


def _rows_back(share: Share, routed: RoutedRows) -> tuple[Action, ...]:
    """Return the requests that sum the experts' outputs over etp, and send them back over ep to the ranks of their tokens."""
    shared = _moved(share, "etp", "reduce_scatter", routed.here, routed.shares)
    return *shared, *_moved(share, "ep", "all_to_all", routed.most, routed.taken)


def _moved(share: Share, axis: str, operation: str, rows: int, given: tuple[int, ...]) -> tuple[Action, ...]:
    """Return the request that exchanges token rows over an axis, as a tuple; empty if the axis has one rank.

    Args:
        share: The part on one rank.
        axis: The axis.
        operation: The operation of the request.
        rows: The rows of the whole operation.
        given: The rows that the rank sends to each rank of the axis; if all are equal, the request has no splits.
    """
    ranks, hidden = share.plan.sizes[axis], share.model.hidden
    splits = () if all(each * ranks == rows for each in given) else tuple(each * hidden for each in given)
    return (share.collective(operation, rows * hidden, axis, splits)._replace(prompt=axis == "etp"),) if ranks > 1 else ()
