"""The requests of the styles in `emu.model.parallel.tensor_parallel.STYLES`, at the begin and end of their module.

The bytes that they move besides were counted in the same way as those of `emu.model.stack.passes`.

The exchange of token rows with the ranks of their experts (`emu.model.parallel.expert_parallel`), a style of their module.

The bytes that it moves besides were counted in the same way as those of `emu.model.stack.passes`. E experts, EP ranks of them,
ETP ranks of one.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from emu.model.generate.item import Action, Ask, Share
from emu.model.layer_on_rank import RoutedRows
from emu.model.operator import BIAS, INPUT, Amount, ModelOperator, RowSum

_FLAG, _INDEX = 1, 8  # bytes of an element of a mask, and of an index


class Style(NamedTuple):
    """The computations and requests at the begin and end of one module."""

    enter: tuple[Action, ...] = ()
    leave: tuple[Action, ...] = ()
    enter_backward: tuple[Action, ...] = ()  # after the gradient of what came in
    leave_backward: tuple[Action, ...] = ()  # before the gradient of what went out is used
    holds: bool = True  # whether parameters of the module are DTensors
    cuts: tuple[str, ...] = ()  # the axes along which each rank has another part of them
    gradient: Callable[[ModelOperator], tuple[Action, ...]] = lambda _: ()  # what makes it the rank's own part
    times: int = 1  # how many times as large it is before
    inside: tuple[Action, ...] = ()  # what the module itself does first


NONE = Style(holds=False)
_TP = ("tp",)
_READ_WHOLE = ("shared", "inner shared", "own shared")  # styles of a module whose products read one input


def _shared(share: Share, path: str) -> Style:
    """Return the style of a block that reads the tokens of all ranks."""
    return Style(share.gathered() if share.plan.sp else (), enter_backward=share.reduced(), holds=False)


def _colwise(share: Share, path: str) -> Style:
    """Return the style of products cut by columns; a product that alone reads its input sums that input's gradient alone."""
    parent = path.rpartition(".")[0]
    if share.model.shards.get(parent, share.model.shards.get(f"layers.*.{parent}", "")) in _READ_WHOLE:
        return Style(cuts=_TP)
    sizes = [o.shape[0] * o.shape[2] for o in map(share.operators.__getitem__, share.within(path)) if o.shape]
    return Style(enter_backward=tuple(share.asked("all_reduce", size) for size in sizes), cuts=_TP)


def _rowwise(share: Share, path: str, summed: tuple[Action, ...], *, gathers: bool = False) -> Style:
    """Return the style of a product cut by rows, whose outputs are added up; gradients are gathered where ranks keep tokens."""
    return Style(leave=(*_divided(share, path), *summed), leave_backward=share.gathered() if gathers else (), cuts=_TP)


def _divided(share: Share, path: str) -> tuple[Action, ...]:
    """Return the division of a bias: each rank adds its share, so that the sum has the bias once."""
    biases = (o for o in map(share.operators.__getitem__, share.within(path)) if o.kind == BIAS)
    return tuple(share.work(path, Amount(parameters=2 * o.parameters), share.weight_dtype) for o in biases)


def _vocabulary(share: Share, path: str) -> Style:
    """Return the style of a table of words whose output is added up like that of blocks."""
    words = _words(share, path)
    return words._replace(leave=(*words.leave[:-1], *share.reduced()), leave_backward=share.gathered() if share.plan.sp else ())


def _words(share: Share, path: str) -> Style:
    """Return the style of a table cut by rows.

    Words in rows of other ranks are looked up as row 0 and then zeroed. The gradient is whole before a rank takes its rows.
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
        leave=(share.active(path, zeroed), share.asked("all_reduce", share.elements)),
        enter_backward=(share.work(path, Amount(parameters=table * (tp - 1)), gradient),),
        gradient=lambda _: (taken,),
        times=tp,
        cuts=_TP,
    )


def _gathered(share: Share, path: str) -> Style:
    """Return the style of a head whose logits are gathered."""
    logits = share.tokens.n * share.model.vocab
    shared = _shared(share, path)
    return Style(
        shared.enter,
        (share.asked("all_gather", logits), share.copied("gathered", logits)),
        shared.enter_backward,
        (share.copied("to shards", logits // share.plan.tp),),
        cuts=_TP,
    )


def _summed_weights(share: Share) -> Style:
    """Return the style of weights whose gradients are added up over tp."""
    gradient = share.gradient_dtype
    return Style(gradient=lambda o: (Ask("tp", "all_reduce", o.parameters // o.tensors, gradient),))


def _summed(share: Share, path: str) -> Style:
    """Return the style of an output that all heads share; each rank has the gradient of its heads alone."""
    size = next(share.operators[i].outputs.elements for i in share.within(path))
    return Style(enter_backward=(share.asked("all_reduce", size),), holds=False)


def _experts(share: Share, path: str) -> Style:
    """Return the style of experts cut by columns, then rows; all ranks have all token rows."""
    rows = next(o.shape[0] for o in map(share.operators.__getitem__, share.within(path)) if o.shape)
    summed = (share.asked("all_reduce", rows * share.model.hidden)._replace(prompt=True),)
    return Style(leave=summed, enter_backward=summed, cuts=_TP)


def _if_cut(share: Share, style: Style) -> Style:
    """Return a style that sequence parallelism needs alone."""
    return style if share.plan.sp else NONE


STYLES: Mapping[str, Callable[[Share, str], Style]] = {
    "colwise": _colwise,
    "rowwise": lambda share, path: _rowwise(share, path, share.reduced(), gathers=share.plan.sp),
    "shared": _shared,
    "vocabulary": _vocabulary,
    "words": _words,
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
    "inner shared": lambda share, _: Style(enter_backward=(share.asked("all_reduce", share.elements),), holds=False),
    "inner rowwise": lambda share, path: _rowwise(share, path, (share.asked("all_reduce", share.elements),)),
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
    """Return the style of a block of experts whose token rows travel.

    The weights are local, and each rank has those of its experts. A rank that has all experts exchanges no rows.
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
    """Return the requests for the number of rows of each expert; with a capacity there are none."""
    etp, experts = share.plan.expert_tp, share.model.experts
    to_experts, to_shards = Ask("ep", "all_to_all", experts, _COUNT), Ask("etp", "all_gather", etp * experts, _COUNT)
    told = share.plan.capacity > 0
    return (*((to_experts,) if share.plan.ep > 1 and not told else ()), *((to_shards,) if etp > 1 and not told else ()))


def _order(share: Share, rows: int) -> Action:
    """Return the computation of each row's expert, and of the order of rows: arrived rows lie by rank, then by expert."""
    every, here = share.plan.expert_tp * share.model.experts, share.model.experts // share.plan.ep
    numbers = 2 * here + every if here > 1 else here  # of the experts, one for each count; of one expert no copy
    repeated = 3 * rows + every + min(rows, every if here > 1 else here)
    sums = 2 * (share.model.experts + share.plan.ep) + every + share.plan.expert_tp
    return share.active(EXCHANGE, Amount(fixed_bytes=_NUMBER * (numbers + repeated + 3 * rows + sums)))


def _sorted(share: Share, rows: int, *, first: bool) -> Action:
    """Return the copy of rows into the order of experts, with the counts (`first`), or back into the order of arrival."""
    here, every = share.model.experts // share.plan.ep, share.plan.expert_tp * share.model.experts
    numbers = rows + every + here if first else 4 * rows
    return share.active(EXCHANGE, Amount(whole=2 * rows * share.model.hidden, fixed_bytes=_NUMBER * numbers))


def _sorted_backward(share: Share, routed: RoutedRows) -> tuple[Action, ...]:
    """Return the backward of a sort: zeros, to which the rows are added in the other order."""
    added = RowSum(INPUT, routed.here, routed.here, share.model.hidden)
    zeros = share.active(EXCHANGE, Amount(whole=routed.here * share.model.hidden))
    return zeros, share.active(EXCHANGE, added.amount, added.shape)


def _rows_there(share: Share, routed: RoutedRows) -> tuple[Action, ...]:
    """Return the requests that bring rows to the ranks of their experts, and to all ranks that share these."""
    shared = _moved(share, "etp", "all_gather", routed.here, (sum(routed.taken),))
    return *_moved(share, "ep", "all_to_all", routed.most, routed.given), *shared


def _rows_back(share: Share, routed: RoutedRows) -> tuple[Action, ...]:
    """Return the requests that add up the experts' outputs and bring them back to the rows' own ranks."""
    shared = _moved(share, "etp", "reduce_scatter", routed.here, routed.shares)
    return *shared, *_moved(share, "ep", "all_to_all", routed.most, routed.taken)


def _moved(share: Share, axis: str, operation: str, rows: int, given: tuple[int, ...]) -> tuple[Action, ...]:
    """Return the request by which rows move over an axis, if it has ranks; `given` are the rows that a rank gives to each."""
    ranks, hidden = share.plan.sizes[axis], share.model.hidden
    splits = () if all(each * ranks == rows for each in given) else tuple(each * hidden for each in given)
    return (share.asked(operation, rows * hidden, axis, splits)._replace(prompt=axis == "etp"),) if ranks > 1 else ()
