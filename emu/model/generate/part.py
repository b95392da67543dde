"""The forward and the backward of a part of a model as PyTorch's eager pieces run it, under tensor and sequence parallelism.

What DTensor's styles (`emu.model.parallel.tensor.STYLES`) ask for is said by a table here, style by style; what they move
beside was counted as `emu.model.passes` was.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from fnmatch import fnmatch
from functools import cached_property
from typing import NamedTuple

from emu.dtypes import item_bytes
from emu.errors import InputError
from emu.model.generate.item import Alone, Ask, Doing, Gradient, Item, OfWeight, Turn, Wait, Work
from emu.model.model import EMBEDDING, HEAD, Model
from emu.model.operator import LOOKUP, LOSS, NORM, RESIDUAL, SUM, Amount, Cut, ModelOperator, Tokens
from emu.model.plan import Plan
from emu.model.stack import Stack

_LAYER = "layers.*."  # what the paths of a layer's shards begin with
_FLAG, _INDEX = 1, 8  # bytes of an element of a mask, and of an index
_BY_WEIGHT, _SUMMED = 2, 4  # elements moved, for each of a norm: by the product with its weight; for the gradient of that


@dataclass(frozen=True)
class Part:
    """An embedding, a layer of one kind, or a head, on one rank."""

    model: Model
    plan: Plan
    stack: Stack
    name: str

    @cached_property
    def operators(self) -> tuple[ModelOperator, ...]:
        """What the rank has of each."""
        cut = Cut(self.plan.tp, self.plan.ep, self.plan.etp, sequence=self.plan.sp)
        return tuple(operator.on(cut) for operator in self.model.part(self.name, self.tokens))

    @property
    def tokens(self) -> Tokens:
        """Of one pass."""
        return Tokens(self.plan.rank_seq, sequences=self.plan.pass_batch)

    @cached_property
    def forward(self) -> tuple[Doing, ...]:
        """One pass."""
        return tuple(self._forward(self.operators))

    def _forward(self, operators: tuple[ModelOperator, ...]) -> Iterable[Doing]:
        for i, operator in enumerate(operators):
            yield from (item for style in self._begun_by(i) for item in style.enter)
            yield self.work(operator.name, _forward(operator), self.stack.precision.weight)
            yield from (item for style in self._ended_by(i) for item in style.leave)

    @cached_property
    def backward(self) -> tuple[Item, ...]:
        """One pass: gradients of what came in and of the parameters, in autograd's order."""
        return tuple(item for i in _backwards(self.operators) for item in self._backward(i))

    def _backward(self, i: int) -> Iterable[Item]:
        operator, precision = self.operators[i], self.stack.precision
        if self.name == HEAD and operator.kind == SUM:  # of the gradients of a tied weight, once the second is there
            return
        arrived = [item for style in self._ended_by(i) for item in style.leave_backward]
        yield from self._then_again(arrived) if i == self._again else arrived
        early, weight, late = _parted(operator)
        yield self.work(operator.name, early, precision.weight)
        yield OfWeight(*self.work(operator.name, weight, precision.gradient))
        if operator.kind == NORM and not late.elements:
            yield Alone(*self.work(operator.name, early + _outputs(operator).times(-1), precision.weight))
        if operator.kind == LOOKUP and operator.cut and self.model.tied:
            yield self.work("tied", Amount(parameters=3 * operator.parameters), precision.gradient)
        if operator.parameters:
            yield self._gradient(operator)
        yield self.work(operator.name, late, precision.weight)
        if operator.kind == LOSS:
            yield Turn()
        yield from (item for style in self._begun_by(i) for item in style.enter_backward)

    def _then_again(self, arrived: list[Doing]) -> Iterable[Doing]:
        """The forward up to an operator once more; DTensor waits for what came before only where it is read."""
        yield from (item._replace(held=item is arrived[-1]) if isinstance(item, Ask) else item for item in arrived)
        yield from self.again
        yield Wait()

    @cached_property
    def again(self) -> tuple[Doing, ...]:
        """What of the forward is worked out again before a backward."""
        return tuple(self._forward(self.operators[: max(0, self._again)]))

    @cached_property
    def _again(self) -> int:
        """Before whose backward the forward is worked out again: the last that saved anything; -1: before none's.

        That the operator itself runs again is more than is needed, as it saves what comes in: checkpoints stop before it.
        """
        if self.plan.recompute != "full" or self.name in (EMBEDDING, HEAD):
            return -1
        return max(i for i, operator in enumerate(self.operators) if operator.eager.saved.bytes())

    def _gradient(self, operator: ModelOperator) -> Gradient:
        """Under tensor parallelism each forward makes DTensors of local weights, which autograd comes back to at its end."""
        style = self.styles.get(operator.name) or self.styles.get(operator.name.removesuffix(".bias"))
        late = style is not None and style.holds and self.plan.sharding != "fsdp" and not self.plan.splits
        done = tuple(item for item in style.gradient(operator)) if style is not None else ()
        return Gradient(operator.name, operator.parameters, late, done, style.times if style is not None else 1)

    def _begun_by(self, i: int) -> list["Style"]:
        """The styles of modules whose first operator this is, the outermost first."""
        return [style for path, style in self.styles.items() if i == min(self._of(path), default=-1)]

    def _ended_by(self, i: int) -> list["Style"]:
        """The styles of modules whose last operator this is, the innermost first."""
        return [style for path, style in reversed(self.styles.items()) if i == max(self._of(path), default=-1)]

    def _of(self, path: str) -> list[int]:
        return [i for i, o in enumerate(self.operators) if o.name == path or o.name.startswith(f"{path}.")]

    @cached_property
    def styles(self) -> dict[str, "Style"]:
        """By module path in the part, the shorter path first."""
        if self.plan.tp == 1:
            return {}
        here = _LAYER if self.name not in (EMBEDDING, HEAD) else ""
        paths = {
            path.removeprefix(here): name for path, name in self.model.shards.items() if path.startswith(_LAYER) == bool(here)
        }
        known = {o.name for o in self.operators}
        there = {p: n for p, n in paths.items() if any(fnmatch(o, p) or fnmatch(o, f"{p}.*") for o in known)}
        return {path: self._style(name, path) for path, name in sorted(there.items(), key=lambda item: item[0].count("."))}

    def _style(self, name: str, path: str) -> "Style":
        if name not in _STYLES:
            raise InputError(f"generate: {self.model.name} shards {path} by the style {name!r}, which cannot be generated yet")
        return _STYLES[name](self, path)

    def work(self, name: str, amount: Amount, parameter: str) -> Work:
        """A computation, its parameters (or their gradients) of that dtype."""
        activation = self.stack.precision.activation
        same = amount.parameters if parameter == activation else 0
        size = amount.bytes(item_bytes(activation), item_bytes(parameter))
        return Work(name, amount.flops, size, amount.whole + amount.cut + same)

    def copied(self, name: str, elements: int) -> Work:
        """So many elements read and written."""
        return self.work(name, Amount(whole=2 * elements), self.stack.precision.activation)

    def asked(self, operation: str, elements: int) -> Ask:
        """Of activations, on the rank's group of tensor parallelism."""
        return Ask("tp", operation, elements, self.stack.precision.activation)

    def gathered(self) -> tuple[Doing, ...]:
        """What lies between the products, whole again; along tokens the parts are put together by a copy of more sequences."""
        n = self.tokens.n * self.model.hidden
        return (self.asked("all_gather", n), *((self.copied("gathered", n),) if self.tokens.sequences > 1 else ()))

    def reduced(self, elements: int) -> tuple[Doing, ...]:
        """Added up over the ranks: whole on each, or each its tokens."""
        if not self.plan.sp:
            return (self.asked("all_reduce", elements),)
        return self.copied("to scatter", elements), self.asked("reduce_scatter", elements)


def _forward(operator: ModelOperator) -> Amount:
    """A lookup reads no more than the table that the rank has."""
    beyond = max(0, operator.outputs.whole - operator.parameters) if operator.kind == LOOKUP else 0
    return operator.eager.forward + Amount(whole=-beyond)


def _parted(operator: ModelOperator) -> tuple[Amount, Amount, Amount]:
    """The gradients of what came in, as far as they are worked out before that of the weight; that; and the rest.

    A norm without a kernel of its own first multiplies the gradient by the weight, and by what was scaled.
    """
    passes = operator.eager
    of_each = _outputs(operator)
    before, summed = of_each.times(_BY_WEIGHT), of_each.times(_SUMMED)
    if operator.kind != NORM or (before + summed).elements >= passes.backward_input.elements:
        return passes.backward_input, passes.backward_weight, Amount()
    return before, summed + passes.backward_weight, passes.backward_input + (before + summed).times(-1)


def _outputs(operator: ModelOperator) -> Amount:
    """The elements that come out, as often as they are written."""
    return Amount(operator.outputs.flops, operator.outputs.whole, operator.outputs.cut)


def _backwards(operators: tuple[ModelOperator, ...]) -> list[int]:
    """Autograd's order: the reverse, but that the gradients of a residual are added when both are there.

    A sum of embeddings has no such two.
    """
    order: list[int] = []
    pending: list[int] = []
    begins = [0, *(i + 1 for i, o in enumerate(operators) if o.kind == RESIDUAL)]
    for i in reversed(range(len(operators))):
        if operators[i].kind == RESIDUAL and operators[0].kind != LOOKUP:
            pending.append(i)
        else:
            order.append(i)
            order += [pending.pop()] if i in begins and pending else []
    return order + pending


class Style(NamedTuple):
    """What a style of DTensor's does as its module begins and ends, forward and backward."""

    enter: tuple[Doing, ...] = ()
    leave: tuple[Doing, ...] = ()
    enter_backward: tuple[Doing, ...] = ()  # after the gradient of what came in
    leave_backward: tuple[Doing, ...] = ()  # before the gradient of what went out is used
    holds: bool = True  # whether parameters of the module are DTensors
    cuts: bool = False  # whether each rank has another part of them
    gradient: Callable[[ModelOperator], tuple[Doing, ...]] = lambda _: ()  # what makes it the rank's own part
    times: int = 1  # how many times as large it is before


def _shared(part: Part, path: str) -> Style:
    n = part.tokens.n * part.model.hidden
    return Style(part.gathered() if part.plan.sp else (), enter_backward=part.reduced(n), holds=False)


def _rowwise(part: Part, path: str) -> Style:
    n = part.tokens.n * part.model.hidden
    return Style(leave=part.reduced(n), leave_backward=part.gathered() if part.plan.sp else (), cuts=True)


def _vocabulary(part: Part, path: str) -> Style:
    """Tokens of others' rows are looked up as row 0, and then zeroed; the gradient is whole before a rank takes its rows."""
    n, rows = part.tokens.n, _rowwise(part, path)
    masks = Amount(fixed_bytes=n * (2 * (_INDEX + _FLAG) + 3 * _FLAG))  # below, above, either
    shifted = Amount(fixed_bytes=n * (6 * _INDEX + _FLAG))  # cloned, moved, and 0 where masked
    zeroed = Amount(whole=2 * n * part.model.hidden, fixed_bytes=n * _FLAG)
    weight = part.stack.precision.gradient
    table = part.operators[0].parameters
    whole = part.work("embedding", Amount(parameters=table * (part.plan.tp - 1)), weight)
    taken = part.work("embedding", Amount(parameters=2 * table), weight)
    return rows._replace(
        enter=tuple(part.work("embedding", each, weight) for each in (masks, shifted)),
        leave=(part.work("embedding", zeroed, weight), *rows.leave),
        enter_backward=(whole,),
        gradient=lambda _: (taken,),
        times=part.plan.tp,
    )


def _gathered(part: Part, path: str) -> Style:
    logits = part.tokens.n * part.model.vocab
    shared = _shared(part, path)
    return Style(
        shared.enter,
        (part.asked("all_gather", logits), part.copied("gathered", logits)),
        shared.enter_backward,
        (part.copied("to shards", logits // part.plan.tp),),
        cuts=True,
    )


def _between(part: Part, path: str) -> Style:
    """A rank has the gradient of its tokens alone."""
    if not part.plan.sp:
        return Style(holds=False)
    gradient = part.stack.precision.gradient
    return Style(gradient=lambda operator: (Ask("tp", "all_reduce", operator.parameters, gradient),))


_STYLES: Mapping[str, Callable[[Part, str], Style]] = {
    "colwise": lambda *_: Style(cuts=True),
    "rowwise": _rowwise,
    "shared": _shared,
    "vocabulary": _vocabulary,
    "gathered": _gathered,
    "between": _between,
}
