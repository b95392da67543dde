"""The weights and gradients of a stage as its turns go by: whole, or gathered and scattered by FSDP2, and what of them lives.

Weights that are sharded come and go as `emu.model.generate.sharded` has it: a buffer lives from the request until a copy of
it is in the weights' place, in a forward until the next one has come.
"""

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, ClassVar, NamedTuple

from emu.model.memory.piece import Piece
from emu.model.operator import ModelOperator
from emu.model.pipeline.turn import DROP, GATHER, REDUCE


class _Group(NamedTuple):
    """What FSDP2 gathers at once: a layer, its experts whose tokens travel, or the root, which is embedding and head."""

    place: int
    experts: bool = False


_ROOT = _Group(-1)


class Bytes(NamedTuple):
    """By part, but for the optimizer's state, which always lives."""

    weights: int = 0
    gradients: int = 0
    activations: int = 0


class Pools(NamedTuple):
    """Bytes by the stream that they were allocated on: PyTorch's allocator gives those of one to no other."""

    default: int = 0
    gathers: int = 0  # weights as they come
    reduces: int = 0  # gradients that were added up over the ranks

    def rise(self, by: "Pools") -> "Pools":
        """Return the bytes of each after so many more."""
        return Pools(*(own + more for own, more in zip(self, by, strict=True)))

    def most(self, other: "Pools") -> "Pools":
        """Return the larger of each."""
        return Pools(*map(max, self, other))


_NOTHING = Bytes()
_EMPTY = Pools()
_GATHERS, _REDUCES = Pools._fields[1:]


@dataclass
class Ledger:
    """What lives now, and what lived when it was most, from a beginning on; and of each pool of memory the same."""

    now: Bytes = _NOTHING
    most: Bytes = _NOTHING
    pools: Pools = _EMPTY
    reserved: Pools = _EMPTY  # the most of each pool, whenever that was

    def change(self, weights: int = 0, gradients: int = 0, activations: int = 0, pool: str = "default") -> None:
        """So many bytes more live, or fewer."""
        w, g, a = self.now
        self.now = Bytes(w + weights, g + gradients, a + activations)
        self._see(self.now)
        self.pools = self.pools.rise(Pools(**{pool: weights + gradients + activations}))
        self.reserved = self.reserved.most(self.pools)

    def rise(self, gradients: int = 0, activations: int = 0) -> None:
        """So many bytes live for a moment."""
        w, g, a = self.now
        self._see(Bytes(w, g + gradients, a + activations))
        self.reserved = self.reserved.most(self.pools.rise(Pools(gradients + activations)))

    def run(self, other: "Ledger") -> None:
        """What another has gone through from here."""
        (w, g, a), (mw, mg, ma) = self.now, other.most
        self._see(Bytes(w + mw, g + mg, a + ma))
        self.now = Bytes(w + other.now.weights, g + other.now.gradients, a + other.now.activations)
        self._see(self.now)
        self.reserved = self.reserved.most(self.pools.rise(other.reserved))
        self.pools = self.pools.rise(other.pools)

    def _see(self, lives: Bytes) -> None:
        if sum(lives) > sum(self.most):
            self.most = lives


@dataclass
class Whole:
    """Weights that are always there, and gradients that stay where they are made."""

    pieces: tuple[Piece, ...]
    ledger: Ledger = field(default_factory=Ledger)
    scatters: ClassVar[bool] = False  # whether gradients live beside until they are scattered
    adds: ClassVar[bool] = False  # whether they are added to a buffer that always lives

    @property
    def state(self) -> tuple[Any, ...]:
        """On which what a turn changes depends."""
        return ()

    def restore(self, state: tuple[Any, ...]) -> None:
        """Go on from there."""

    def begin(self) -> None:
        """A forward begins."""

    def enter(self, place: int) -> None:
        """A part's forward begins."""

    def leave(self, place: int) -> None:
        """A part's forward has ended."""

    def turn(self) -> None:
        """The gradient of what the model gave is there."""

    def enter_backward(self, place: int) -> None:
        """A part's backward begins."""

    def leave_backward(self, place: int, *, last: bool) -> None:
        """A part's backward has ended, of the last pass or another."""

    def enter_experts(self, place: int) -> None:
        """The forward of experts that tokens travel to begins."""

    def leave_experts(self, place: int) -> None:
        """... and has ended."""

    def experts_again(self, place: int) -> None:
        """They are worked out again."""

    def enter_experts_backward(self, place: int) -> None:
        """Their backward begins."""

    def leave_experts_backward(self, place: int, *, last: bool) -> None:
        """... and has ended, of the last pass or another."""

    def end(self, *, last: bool) -> None:
        """A backward has ended."""

    def arrive(self) -> None:
        """What was asked for is waited for."""

    def take(self, what: str) -> None:
        """A turn with weights or gradients alone: `GATHER`, `DROP` or `REDUCE`."""


@dataclass
class Buffered(Whole):
    """The same, but that gradients are added to a buffer of their own, as Megatron-LM's."""

    adds: ClassVar[bool] = True


@dataclass
class Averaged(Whole):
    """The same, but that a stage adds gradients up, and puts them together in buckets to be averaged, when all have come."""

    bucket: int = 0  # bytes of the largest

    def end(self, *, last: bool) -> None:
        """A stage has had its last backward."""
        if last:
            summed = [(p.made(o), p.waits(o)) for p in self.pieces for o in p.operators if p.partial(o)]
            for made, waited in summed:
                self.ledger.change(gradients=made, activations=-waited)
            self.ledger.rise(activations=self.bucket)


@dataclass
class Sharded(Whole):
    """Weights of one stage that FSDP2 shards."""

    shards: tuple[int, int] = (1, 1)  # of what all tokens see, and of experts that tokens travel to
    scatters: ClassVar[bool] = True
    whole: frozenset[_Group] = frozenset()  # groups whose weights are there
    coming: frozenset[_Group] = frozenset()  # ... or are in a buffer
    before: int = 0  # bytes of the buffer of the weights gathered last in a forward
    copied: int = 0  # bytes of the gradients that were scattered last

    @property
    def state(self) -> tuple[Any, ...]:
        """What lives of them."""
        return self.whole, self.coming, self.before, self.copied

    def restore(self, state: tuple[Any, ...]) -> None:
        """Go on from there."""
        self.whole, self.coming, self.before, self.copied = state

    def begin(self) -> None:
        """The root is gathered first."""
        self._forward(_ROOT)

    def enter(self, place: int) -> None:
        """A layer is gathered as its forward begins."""
        if self.pieces[place].is_layer:
            self._forward(_Group(place))

    def leave(self, place: int) -> None:
        """... and dropped as it ends."""
        if self.pieces[place].is_layer:
            self._drop(_Group(place))
        if place == len(self.pieces) - 1:
            self._free()

    def turn(self) -> None:
        """The last layer is asked for."""
        self._next(_ROOT)

    def enter_backward(self, place: int) -> None:
        """A layer is there, and what ended before it is asked for."""
        self._backward(self._group(place))

    def leave_backward(self, place: int, *, last: bool) -> None:
        """Without a pipeline it is dropped again."""
        if self.pieces[place].is_layer and self.pieces[0].plan.pp == 1:
            self._leave(_Group(place), last=last)

    def enter_experts(self, place: int) -> None:
        """They are gathered inside their layer."""
        self._forward(_Group(place, experts=True))

    def leave_experts(self, place: int) -> None:
        """... and dropped before it."""
        self._drop(_Group(place, experts=True))

    def experts_again(self, place: int) -> None:
        """What is gathered now is there until their backward has ended."""
        self._forward(_Group(place, experts=True))
        self._free()

    def enter_experts_backward(self, place: int) -> None:
        """They are there, and the layer before is asked for."""
        self._backward(_Group(place, experts=True))

    def leave_experts_backward(self, place: int, *, last: bool) -> None:
        """As a layer."""
        if self.pieces[0].plan.pp == 1:
            self._leave(_Group(place, experts=True), last=last)

    def end(self, *, last: bool) -> None:
        """So is the root."""
        if self.pieces[0].plan.pp == 1:
            self._leave(_ROOT, last=last)
            self._settle()

    def arrive(self) -> None:
        """All that were asked for."""
        for group in sorted(self.coming):
            self._arrive(group)

    def take(self, what: str) -> None:
        """Gather or drop the weights of the stage, or scatter its gradients."""
        for group in sorted(self._ended):
            if what == GATHER:
                self._ask(group)
            elif what == DROP:
                self._drop(group)
            else:
                self._leave(group, last=True)
        if what == REDUCE:
            self._settle()

    def _group(self, place: int) -> _Group:
        return _Group(place) if self.pieces[place].is_layer else _ROOT

    @cached_property
    def _of(self) -> dict[_Group, list[tuple[Piece, ModelOperator]]]:
        """The operators with parameters of each group."""
        found: dict[_Group, list[tuple[Piece, ModelOperator]]] = {}
        for place, piece in enumerate(self.pieces):
            for operator in piece.operators:
                group = _Group(place, experts=True) if piece.travels(operator) else self._group(place)
                if operator.parameters:
                    found.setdefault(group, []).append((piece, operator))
        return found

    @cached_property
    def _ended(self) -> list[_Group]:
        """The groups in the order in which their forwards end."""
        return sorted(self._of, key=lambda each: (each == _ROOT, each.place, not each.experts))

    def _weights(self, group: _Group) -> int:
        return sum(piece.weight(operator) for piece, operator in self._of[group])

    def _buffer(self, group: _Group) -> int:
        """One rank alone copies its own to their place at once."""
        return self._weights(group) if self.shards[group.experts] > 1 else 0

    def _forward(self, group: _Group) -> None:
        if group in self.whole or group not in self._of:
            return
        self._ask(group)
        self._free()
        self.before = self._buffer(group)
        self._there(group)

    def _backward(self, group: _Group) -> None:
        if group in self._of:
            self._ask(group)
        if group in self.coming:
            self._arrive(group)
        if group != _ROOT:
            self._next(group)

    def _free(self) -> None:
        self.ledger.change(activations=-self.before, pool=_GATHERS)
        self.before = 0

    def _next(self, group: _Group) -> None:
        """Ask for what ended before it."""
        at = self._ended.index(group) if group in self._ended else len(self._ended)
        if at:
            self._ask(self._ended[at - 1])

    def _ask(self, group: _Group) -> None:
        """Unless its weights are there, or come."""
        if group not in self.whole | self.coming:
            self.ledger.change(activations=self._buffer(group), pool=_GATHERS)
            self.coming |= {group}

    def _there(self, group: _Group) -> None:
        self.ledger.change(weights=self._weights(group))
        self.whole |= {group}
        self.coming -= {group}

    def _arrive(self, group: _Group) -> None:
        self._there(group)
        self.ledger.change(activations=-self._buffer(group), pool=_GATHERS)

    def _drop(self, group: _Group) -> None:
        if group in self.whole:
            self.ledger.change(weights=-self._weights(group))
            self.whole -= {group}

    def _leave(self, group: _Group, *, last: bool) -> None:
        """The gradients of the last pass are copied to be scattered; the copy lives until the next one."""
        self._drop(group)
        if last:
            of = self._of.get(group, [])
            made, lived = sum(p.gradient(o) for p, o in of), sum(p.waits(o) for p, o in of)
            self.ledger.change(activations=-self.copied)
            self.ledger.change(activations=made)
            own = made // self.shards[group.experts]
            divided = own if group.experts else 0  # added up, they are divided into another tensor
            if own == made:  # nothing is sent: what was copied is there until the copy is divided
                self.ledger.rise(gradients=own, activations=divided)
            self.ledger.change(activations=-lived)
            self.ledger.change(gradients=own, pool=_REDUCES)
            self.ledger.rise(activations=divided)
            self.copied = made

    def _settle(self) -> None:
        self.ledger.change(activations=-self.copied)
        self.copied = 0
