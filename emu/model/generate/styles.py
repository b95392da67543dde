"""The requests of the styles in `emu.model.parallel.tensor_parallel.STYLES`, at the begin and end of their module.

What they move beside was counted as `emu.model.stack.passes` was.
"""

from collections.abc import Callable, Mapping
from typing import NamedTuple

from emu.model.generate.item import Ask, Doing
from emu.model.generate.share import Share
from emu.model.operator import BIAS, Amount, ModelOperator

_FLAG, _INDEX = 1, 8  # bytes of an element of a mask, and of an index


class Style(NamedTuple):
    """Of one module."""

    enter: tuple[Doing, ...] = ()
    leave: tuple[Doing, ...] = ()
    enter_backward: tuple[Doing, ...] = ()  # after the gradient of what came in
    leave_backward: tuple[Doing, ...] = ()  # before the gradient of what went out is used
    holds: bool = True  # whether parameters of the module are DTensors
    cuts: tuple[str, ...] = ()  # the axes along which each rank has another part of them
    gradient: Callable[[ModelOperator], tuple[Doing, ...]] = lambda _: ()  # what makes it the rank's own part
    times: int = 1  # how many times as large it is before
    inside: tuple[Doing, ...] = ()  # what the module itself does first


NONE = Style(holds=False)
_TP = ("tp",)
_READ_WHOLE = ("shared", "inner shared", "own shared")  # styles of a module whose products read one input


def _shared(share: Share, path: str) -> Style:
    return Style(share.gathered() if share.plan.sp else (), enter_backward=share.reduced(), holds=False)


def _inner_shared(share: Share, path: str) -> Style:
    return Style(enter_backward=(share.asked("all_reduce", share.elements),), holds=False)


def _own_shared(share: Share, path: str) -> Style:
    return Style(share.gathered(), enter_backward=share.scattered(), holds=False)


def _colwise(share: Share, path: str) -> Style:
    """What a product reads by itself has its gradient added up by itself."""
    parent = path.rpartition(".")[0]
    if share.model.shards.get(parent, share.model.shards.get(f"layers.*.{parent}", "")) in _READ_WHOLE:
        return Style(cuts=_TP)
    sizes = [o.shape[0] * o.shape[2] for o in map(share.operators.__getitem__, share.within(path)) if o.shape]
    return Style(enter_backward=tuple(share.asked("all_reduce", size) for size in sizes), cuts=_TP)


def _rowwise(share: Share, path: str) -> Style:
    back = share.gathered() if share.plan.sp else ()
    return Style(leave=(*_divided(share, path), *share.reduced()), leave_backward=back, cuts=_TP)


def _inner_rowwise(share: Share, path: str) -> Style:
    return Style(leave=(*_divided(share, path), share.asked("all_reduce", share.elements)), cuts=_TP)


def _own_rowwise(share: Share, path: str) -> Style:
    return Style(leave=(*_divided(share, path), *share.scattered()), leave_backward=share.gathered(), cuts=_TP)


def _divided(share: Share, path: str) -> tuple[Doing, ...]:
    """Each rank adds its share of a bias, so that their sum has it once."""
    biases = (o for o in map(share.operators.__getitem__, share.within(path)) if o.kind == BIAS)
    return tuple(share.work(path, Amount(parameters=2 * o.parameters), share.weight) for o in biases)


def _vocabulary(share: Share, path: str) -> Style:
    """As `words`; what comes out is added up as that of other blocks."""
    rows = _rowwise(share, path)
    words = _words(share, path)
    return words._replace(leave=(*words.leave[:-1], *rows.leave), leave_backward=rows.leave_backward)


def _words(share: Share, path: str) -> Style:
    """Tokens of others' rows are looked up as row 0, and then zeroed; the gradient is whole before a rank takes its rows."""
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
    """What every rank has whole, and then each its tokens."""
    if not share.plan.sp:
        return NONE
    return Style(leave=share.own(), leave_backward=share.gathered(), holds=False)


def _gathered(share: Share, path: str) -> Style:
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
    gradient = share.made
    return Style(gradient=lambda o: (Ask("tp", "all_reduce", o.parameters // o.tensors, gradient),))


def _between(share: Share, path: str) -> Style:
    """A rank has the gradient of its tokens alone."""
    return _summed_weights(share) if share.plan.sp else NONE


def _of_own(share: Share, path: str) -> Style:
    """A rank has the gradient of its heads, or of its rows, alone."""
    return _summed_weights(share)


def _whole(share: Share, path: str) -> Style:
    return Style(share.gathered(), enter_backward=share.own(), holds=False) if share.plan.sp else NONE


def _summed(share: Share, path: str) -> Style:
    """Of what all heads share, each rank has the gradient of its heads alone."""
    size = next(share.operators[i].outputs.elements for i in share.within(path))
    return Style(enter_backward=(share.asked("all_reduce", size),), holds=False)


def _sparse(share: Share, path: str) -> Style:
    """Router and permutations are whole on every rank."""
    if not share.plan.sp:
        return NONE
    return Style(share.gathered(), share.own(), share.own(), share.gathered(), holds=False)


def _experts(share: Share, path: str) -> Style:
    """Columns, then rows, of every expert: all ranks have all rows."""
    rows = next(o.shape[0] for o in map(share.operators.__getitem__, share.within(path)) if o.shape)
    summed = (share.asked("all_reduce", rows * share.model.hidden)._replace(prompt=True),)
    return Style(leave=summed, enter_backward=summed, cuts=_TP)


def _own_tokens(share: Share, path: str) -> Style:
    """As `sparse`, where inside every rank has its own tokens."""
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
