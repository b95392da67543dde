"""The forward and backward of a part of a model in PyTorch's eager mode, one operator after another, with its requests.

Between the operators stand the requests of their modules, at the begin and end of each: tensor and sequence parallelism, and
the rows of experts.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace
from fnmatch import fnmatch
from functools import cached_property

from emu.errors import InputError
from emu.model.generate.context_attention import ContextAttention
from emu.model.generate.item import (
    ENTERS,
    GRADIENT,
    PARAMETER,
    REPEATED,
    Action,
    Computation,
    Gradient,
    Item,
    ProductPlace,
    Share,
    held_last,
    is_later,
)
from emu.model.generate.styles import EXCHANGE, NONE, STYLES, Style, exchange
from emu.model.memory.layer_memory import LayerMemory
from emu.model.memory.pass_memory import ENTER, ENTER_AGAIN, ENTER_BACKWARD, LEAVE, LEAVE_AGAIN, LEAVE_BACKWARD, LOSS_GRADIENT
from emu.model.model import EXPERTS, HEAD, own_tokens
from emu.model.operator import ATTENTION, BIAS, FORWARD, INPUT, LOOKUP, LOSS, NORM, RESIDUAL, SUM, WEIGHT, Amount, ModelOperator
from emu.model.stack.software import LAYERS
from emu.model.stack.stack import split_sum

_LAYER = "layers.*."  # what the paths of a layer's shards begin with
_BY_WEIGHT, _SUMMED = 2, 4  # elements moved, for each of a norm: by the product with its weight; for the gradient of that
_STYLES = {**STYLES, EXCHANGE: exchange}


@dataclass(frozen=True)
class Part(Share):
    """A part of a model (an embedding, a layer of one kind, or a head) on one rank, run by PyTorch's eager kernels."""

    @cached_property
    def memory(self) -> LayerMemory:
        """The memory of the part on this rank."""
        return LayerMemory(self.model, self.plan, self.stack, self.name, self.routed)

    @cached_property
    def forward(self) -> tuple[Action, ...]:
        """The actions of the forward of one pass; a held request is awaited where its result is first read."""
        lead = () if self.operators[0].ahead.elements else (ENTERS,)
        return (*lead, *self._forward(self.operators, ENTER, LEAVE))

    def _forward(
        self, operators: tuple[ModelOperator, ...], enter: str, leave: str, kept: frozenset[int] = frozenset()
    ) -> list[Action]:
        """Return the actions of the forward of some operators.

        Args:
            operators: The operators.
            enter: The moment that comes before experts whose weights are sharded separately.
            leave: The moment that comes after them.
            kept: The operators whose outputs were kept; they are left out.
        """
        items: list[Action] = []
        for i, operator in enumerate(operators):
            items += [item for style in self._begun_by(i) for item in style.enter]
            items += [enter] if i == self._inner[0] else []
            items += [item for style in self._begun_by(i) for item in style.inside]
            if operator.kind == ATTENTION and self.plan.cp > 1:
                items += ContextAttention(self, operator).forward()
            elif i not in kept:
                items = self._then(items, operator, self._forward_of(operator))
            items += [leave] if i == self._inner[1] else []
            items += [item for style in self._ended_by(i) for item in style.leave]
        return items

    @cached_property
    def _inner(self) -> tuple[int, int]:
        """The indices of the first and last expert operator whose weights are sharded separately; (-1, -1) if there is none."""
        apart = [i for i, o in enumerate(self.operators) if self.plan.shards_weights and self.travels(o)]
        return min(apart, default=-1), max(apart, default=-1)

    def _then(self, items: list[Action], operator: ModelOperator, amount: Amount) -> list[Action]:
        """Return actions followed by an operator.

        The last request among them is awaited where the operator reads its result.
        """
        weight, ahead = self.weight_dtype, operator.ahead
        rest = self._works(operator, FORWARD, amount + ahead.times(-1))
        if not ahead.elements:
            return [*items, *self._cast(operator, FORWARD, rest)]
        return [*held_last(items), self.work(operator.name, ahead, weight), ENTERS, *rest]

    def _works(self, operator: ModelOperator, what: str, amount: Amount) -> list[Computation]:
        """Return the computations of a pass of an operator, for a given amount of its work."""
        return [self.work(operator.name, part, self.weight_dtype, shape) for part, shape in split_sum(operator, what, amount)]

    def _cast(self, operator: ModelOperator, what: str, works: list[Computation]) -> list[Computation]:
        """Return the computations of a pass with the casts to FP8 before them.

        A compiler casts an input only once if several products read it.
        """
        with_it = [o for o in self.operators if o.reads_with == operator.reads_with] if operator.reads_with else [operator]
        known = self.stack.compile == LAYERS and with_it[0] is not operator
        return self.with_casts(operator, what, works, ProductPlace(known=known))

    def _forward_of(self, operator: ModelOperator) -> Amount:
        """Return the amount of an operator's forward; a lookup reads no more than the whole table of the rank."""
        beyond = max(0, operator.outputs.whole - operator.parameters) if operator.kind == LOOKUP else 0
        return self.passes(operator).forward + Amount(whole=-beyond)

    @cached_property
    def backward(self) -> tuple[Item, ...]:
        """The computations, requests and gradients of one backward pass of this part, in autograd's order.

        Recomputation is not among them.
        """
        return tuple(item for item in self._split_backward if not isinstance(item, Computation) or item.later != REPEATED)

    @cached_property
    def backward_input(self) -> tuple[Action, ...]:
        """The actions of the first half of a split backward: the gradients of inputs."""
        return tuple(item for item in self._split_backward if not isinstance(item, Gradient) and not is_later(item))

    @cached_property
    def backward_weights(self) -> list[list[Computation | Gradient]]:
        """The items of the second half of a split backward: one list for each weight and its bias."""
        found: dict[str, list[Computation | Gradient]] = {}
        works: list[Computation] = []
        for item in self._split_backward:
            if isinstance(item, Computation) and item.later:
                works.append(item)
            elif isinstance(item, Gradient):
                found.setdefault(item.name.removesuffix(".bias"), []).extend([*works, item])
                works = []
        return list(found.values())

    @cached_property
    def _split_backward(self) -> tuple[Item, ...]:
        """The actions and gradients of a backward in autograd's order, with those that only a split backward has."""
        items: list[Item] = []
        for i in _backwards(self.operators):
            found = [item for item in self._backward(i) if not isinstance(item, Computation) or item.bytes]
            # What one kernel gives is added where it came in before the gradients of its weights are taken.
            ended = next((n for n, item in enumerate(reversed(items)) if not isinstance(item, Gradient)), len(items))
            at = len(items) - (ended if self.operators[i].kind == RESIDUAL else 0)
            items[at:at] = found
        return tuple(items)

    def _backward(self, i: int) -> Iterable[Item]:
        """Yield the actions and gradients of the backward of operator number `i`."""
        operator = self.operators[i]
        arrived = [item for style in self._ended_by(i) for item in style.leave_backward]
        yield from self._then_again(arrived) if i == self._recompute_before else arrived
        if i == self._inner[1]:
            yield ENTER_BACKWARD
        if self.name == HEAD and operator.kind == SUM:  # of the gradients of a tied weight, once the second is there
            return
        if operator.kind == ATTENTION:
            yield from self._attention(operator)
            return
        early, weight, late = self._backward_stretches(operator)
        yield from self._cast(operator, INPUT, self._works(operator, INPUT, early))
        made = self.work(operator.name, weight, self.gradient_dtype, operator.shape_of(WEIGHT))
        yield from (work._replace(later=PARAMETER) for work in self._cast(operator, WEIGHT, [made]))
        if operator.kind == NORM and not late.elements:
            repeated = self.work(operator.name, early + _outputs(operator).times(-1), self.weight_dtype)
            yield repeated._replace(later=REPEATED)
        yield from self._gradients(operator)
        yield self.work(operator.name, late, self.weight_dtype)
        if operator.kind == LOSS:
            yield LOSS_GRADIENT
        if i == self._inner[0]:
            yield LEAVE_BACKWARD
        yield from (item for style in self._begun_by(i) for item in style.enter_backward)

    def _backward_stretches(self, operator: ModelOperator) -> tuple[Amount, Amount, Amount]:
        """Return the amounts of three stretches of an operator's backward, in their order.

        These are input gradients that come before the weight gradient, the weight gradient, and the remaining input gradients.
        A norm without a kernel of its own first multiplies the gradient by the weight, and by the scaled input.
        """
        passes, of_each = self.passes(operator), _outputs(operator)
        before, summed = of_each.times(_BY_WEIGHT), of_each.times(_SUMMED)
        if operator.kind != NORM or (before + summed).elements >= passes.backward_input.elements:
            return passes.backward_input, passes.backward_weight, Amount()
        return before, summed + passes.backward_weight, passes.backward_input + (before + summed).times(-1)

    def _attention(self, operator: ModelOperator) -> Iterable[Action]:
        """Yield the actions of the backward of attention; selective recomputation first runs its forward again."""
        shared, weight, shape = ContextAttention(self, operator), self.weight_dtype, operator.shape_of(FORWARD)
        passes = self.passes(operator)
        if self.plan.recompute == "selective":
            yield from shared.core() if self.plan.cp > 1 else (self.work(operator.name, passes.forward, weight, shape),)
        if self.plan.cp > 1:
            yield from shared.backward()
        else:
            yield self.work(operator.name, passes.backward_input, weight, shape.backward())

    def _then_again(self, arrived: list[Action]) -> Iterable[Action]:
        """Yield the recomputed forward up to an operator.

        With DTensor, an earlier request is awaited where its result is read.
        """
        yield from held_last(arrived, GRADIENT)
        yield from self.again
        yield GRADIENT

    @cached_property
    def again(self) -> tuple[Action, ...]:
        """The actions of the forward that recomputation repeats before a backward."""
        if self.recompute_end < 0:
            return ()
        operator = self.operators[self.recompute_end]
        items = self._forward(self.operators[: self.recompute_end], ENTER_AGAIN, LEAVE_AGAIN, self.outputs_kept)
        last = replace(operator, sum_of_rows=None)  # the sum comes after all that is kept
        return tuple(self._then(items, last, operator.until_saved) if operator.until_saved.elements else items)

    @property
    def _recompute_before(self) -> int:
        """The index of the operator before whose backward recomputation begins.

        A product counts together with its bias.
        """
        bias = (
            self.recompute_end >= 0
            and self.recompute_end + 1 < len(self.operators)
            and self.operators[self.recompute_end + 1].kind == BIAS
        )
        return self.recompute_end + bias

    def _gradients(self, operator: ModelOperator) -> Iterable[Item]:
        """Yield the gradients of an operator's parameters.

        Under tensor parallelism each forward makes DTensors of local weights, whose gradients autograd adds up at the end.
        """
        style, gradient = self.style_of(operator.name), self.gradient_dtype
        late = style.holds and not self.plan.shards_weights and not self.plan.splits
        before, times, apart = style.gradient(operator), style.times, self.plan.pp > 1
        if operator.kind == LOOKUP and operator.cut and self.tied:
            yield from before
            yield self.work("tied", Amount(parameters=3 * operator.parameters), gradient)
            before, times = (), 0 if apart else 1  # in a pipeline the head's has been added up by itself
        size = (operator.untied() if apart else operator).parameters // operator.tensors
        by_itself = self.travels(operator) and not self.plan.shards_weights
        for _ in range(operator.tensors if size else 0):
            yield Gradient(operator.name, size, late, before, times, by_itself, shared=not operator.parameters)

    def _begun_by(self, i: int) -> list[Style]:
        """Return the styles of the modules that begin with an operator, the outermost module first."""
        return [style for path, style in self.styles.items() if i == self._ends_of[path][0]]

    def _ended_by(self, i: int) -> list[Style]:
        """Return the styles of the modules that end with an operator, the innermost module first."""
        return [style for path, style in reversed(self.styles.items()) if i == self._ends_of[path][1]]

    @cached_property
    def _ends_of(self) -> dict[str, tuple[int, int]]:
        """The indices of the first and last operator of each module with a style; -1 if the module has no operators."""
        within = {path: [*self.within(path)] for path in self.styles}
        return {path: (min(own, default=-1), max(own, default=-1)) for path, own in within.items()}

    def style_of(self, name: str) -> Style:
        """Return the parallel style of an operator's module, or of the innermost enclosing module that has one."""
        while name and name not in self.styles:
            name = name.rpartition(".")[0]
        return self.styles.get(name, NONE)

    @cached_property
    def styles(self) -> dict[str, Style]:
        """The styles of modules, by the paths of the modules in this part of the model, shorter paths first."""
        here = _LAYER if self.is_layer else ""
        paths = {path.removeprefix(here): name for path, name in self._shards.items() if path.startswith(_LAYER) == bool(here)}
        known = {o.name for o in self.operators}
        there = {p: n for p, n in paths.items() if any(fnmatch(o, p) or fnmatch(o, f"{p}.*") for o in known)}
        return {path: self._style(name, path) for path, name in sorted(there.items(), key=lambda item: item[0].count("."))}

    @property
    def _shards(self) -> dict[str, str]:
        """The name of the style of each module that the ranks of tp divide, by the path of the module."""
        shards = dict(self.model.shards) if self.plan.tp > 1 else {}
        if self.routed is None:
            return shards
        return own_tokens(shards) | {path: EXCHANGE for path, style in self.model.shards.items() if style == EXPERTS}

    def _style(self, name: str, path: str) -> Style:
        """Return the style of a module."""
        if name not in _STYLES:
            raise InputError(f"generate: {self.model.name} shards {path} by the style {name!r}, which cannot be generated yet")
        return _STYLES[name](self, path)


def _outputs(operator: ModelOperator) -> Amount:
    """Return the number of elements that an operator writes as outputs."""
    return Amount(operator.outputs.flops, operator.outputs.whole, operator.outputs.cut)


def _backwards(operators: tuple[ModelOperator, ...]) -> list[int]:
    """Return the numbers of operators in autograd's order.

    This is the reverse order, but the gradients of a residual are added when both are computed. A sum of embeddings has no two
    such gradients.
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
