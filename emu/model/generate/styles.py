"""The requests of the styles in `emu.model.parallel.tensor_parallel.STYLES`, at the begin and end of their module.

The bytes that they move besides were counted in the same way as those of `emu.model.stack.passes`.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from emu.model.generate.item import Action, Ask, Share
from emu.model.operator import BIAS, Amount, ModelOperator

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


def _inner_shared(share: Share, path: str) -> Style:
    """Return the style of a module inside a block whose input gradient is added up over tp."""
    return Style(enter_backward=(share.asked("all_reduce", share.elements),), holds=False)


def _own_shared(share: Share, path: str) -> Style:
    """Return the style of a block whose ranks have tokens of their own."""
    return Style(share.gathered(), enter_backward=share.scattered(), holds=False)


def _colwise(share: Share, path: str) -> Style:
    """Return the style of products cut by columns; a product that alone reads its input sums that input's gradient alone."""
    parent = path.rpartition(".")[0]
    if share.model.shards.get(parent, share.model.shards.get(f"layers.*.{parent}", "")) in _READ_WHOLE:
        return Style(cuts=_TP)
    sizes = [o.shape[0] * o.shape[2] for o in map(share.operators.__getitem__, share.within(path)) if o.shape]
    return Style(enter_backward=tuple(share.asked("all_reduce", size) for size in sizes), cuts=_TP)


def _rowwise(share: Share, path: str) -> Style:
    """Return the style of a product cut by rows, whose outputs are added up."""
    back = share.gathered() if share.plan.sp else ()
    return Style(leave=(*_divided(share, path), *share.reduced()), leave_backward=back, cuts=_TP)


def _inner_rowwise(share: Share, path: str) -> Style:
    """Return the style of a product cut by rows whose output stays whole."""
    return Style(leave=(*_divided(share, path), share.asked("all_reduce", share.elements)), cuts=_TP)


def _own_rowwise(share: Share, path: str) -> Style:
    """Return the style of a product cut by rows whose ranks keep tokens of their own."""
    return Style(leave=(*_divided(share, path), *share.scattered()), leave_backward=share.gathered(), cuts=_TP)


def _divided(share: Share, path: str) -> tuple[Action, ...]:
    """Return the division of a bias: each rank adds its share, so that the sum has the bias once."""
    biases = (o for o in map(share.operators.__getitem__, share.within(path)) if o.kind == BIAS)
    return tuple(share.work(path, Amount(parameters=2 * o.parameters), share.weight) for o in biases)


def _vocabulary(share: Share, path: str) -> Style:
    """Return the style of a table of words whose output is added up like that of blocks."""
    rows = _rowwise(share, path)
    words = _words(share, path)
    return words._replace(leave=(*words.leave[:-1], *rows.leave), leave_backward=rows.leave_backward)


def _words(share: Share, path: str) -> Style:
    """Return the style of a table cut by rows.

    Words in rows of other ranks are looked up as row 0 and then zeroed. The gradient is whole before a rank takes its rows.
    """
    n, tp = share.tokens.n, share.plan.tp
    masks = Amount(fixed_bytes=n * (2 * (_INDEX + _FLAG) + 3 * _FLAG))  # below, above, either
    shifted = Amount(fixed_bytes=n * (6 * _INDEX + _FLAG))  # cloned, moved, and 0 where masked
    zeroed = Amount(whole=2 * share.elements, fixed_bytes=n * _FLAG)
    gradient = share.made
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


def _spread(share: Share, path: str) -> Style:
    """Return the style of a module that every rank computes whole, and of which it then keeps its tokens."""
    if not share.plan.sp:
        return NONE
    return Style(leave=share.own(), leave_backward=share.gathered(), holds=False)


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
    gradient = share.made
    return Style(gradient=lambda o: (Ask("tp", "all_reduce", o.parameters // o.tensors, gradient),))


def _between(share: Share, path: str) -> Style:
    """Return the style of a module between blocks: with sp a rank has the gradient of its tokens alone."""
    return _summed_weights(share) if share.plan.sp else NONE


def _of_own(share: Share, path: str) -> Style:
    """Return the style of weights of which a rank has the gradient of its heads, or of its rows, alone."""
    return _summed_weights(share)


def _whole(share: Share, path: str) -> Style:
    """Return the style of a module that needs the tokens of all ranks."""
    return Style(share.gathered(), enter_backward=share.own(), holds=False) if share.plan.sp else NONE


def _summed(share: Share, path: str) -> Style:
    """Return the style of an output that all heads share; each rank has the gradient of its heads alone."""
    size = next(share.operators[i].outputs.elements for i in share.within(path))
    return Style(enter_backward=(share.asked("all_reduce", size),), holds=False)


def _sparse(share: Share, path: str) -> Style:
    """Return the style of a block of experts whose router and permutations are whole on every rank."""
    if not share.plan.sp:
        return NONE
    return Style(share.gathered(), share.own(), share.own(), share.gathered(), holds=False)


def _experts(share: Share, path: str) -> Style:
    """Return the style of experts cut by columns, then rows; all ranks have all token rows."""
    rows = next(o.shape[0] for o in map(share.operators.__getitem__, share.within(path)) if o.shape)
    summed = (share.asked("all_reduce", rows * share.model.hidden)._replace(prompt=True),)
    return Style(leave=summed, enter_backward=summed, cuts=_TP)


def _own_tokens(share: Share, path: str) -> Style:
    """Return the style of a block of experts in which every rank has its own tokens."""
    if share.plan.sp:
        return NONE
    return Style(share.own(), share.gathered(), share.gathered(), share.own(), holds=False)


STYLES: Mapping[str, Callable[[Share, str], Style]] = {
    "colwise": _colwise,
    "rowwise": _rowwise,
    "shared": _shared,
    "vocabulary": _vocabulary,
    "words": _words,
    "spread": _spread,
    "gathered": _gathered,
    "tied": _gathered,
    "between": _between,
    "between out": _between,
    "heads": _of_own,
    "whole": _whole,
    "summed": _summed,
    "sparse": _sparse,
    "experts": _experts,
    "inner shared": _inner_shared,
    "inner rowwise": _inner_rowwise,
    "own tokens": _own_tokens,
    "own rows": _of_own,
    "own shared": _own_shared,
    "own rowwise": _own_rowwise,
}
