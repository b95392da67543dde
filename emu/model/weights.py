"""The weights and gradients of a stage as its turns go by: whole, or gathered and scattered by FSDP2, and what of them lives.

Weights that are sharded come and go as `emu.model.generate.sharded` has it: a buffer lives from the request until a copy of
it is in the weights' place, in a forward until the next one has come.
"""

from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

from emu.model.piece import Piece
from emu.model.turn import DROP, GATHER, REDUCE

_ROOT = -1  # the embedding and the head of a stage: one group of FSDP2


class Bytes(NamedTuple):
    """By part, but for the optimizer's state, which always lives."""

    weights: int = 0
    gradients: int = 0
    activations: int = 0


_NOTHING = Bytes()


@dataclass
class Ledger:
    """What lives now, and what lived when it was most, from a beginning on."""

    now: Bytes = _NOTHING
    most: Bytes = _NOTHING

    def change(self, weights: int = 0, gradients: int = 0, activations: int = 0) -> None:
        """So many bytes more live, or fewer."""
        w, g, a = self.now
        self.now = Bytes(w + weights, g + gradients, a + activations)
        self._see(self.now)

    def rise(self, gradients: int = 0, activations: int = 0) -> None:
        """So many bytes live for a moment."""
        w, g, a = self.now
        self._see(Bytes(w, g + gradients, a + activations))

    def run(self, other: "Ledger") -> None:
        """What another has gone through from here."""
        (w, g, a), (mw, mg, ma) = self.now, other.most
        self._see(Bytes(w + mw, g + mg, a + ma))
        self.change(*other.now)

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

    shards: int = 1
    scatters: ClassVar[bool] = True
    whole: frozenset[int] = frozenset()  # groups whose weights are there: a layer's place, or the root
    coming: frozenset[int] = frozenset()  # ... or are in a buffer
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
            self._forward(place)

    def leave(self, place: int) -> None:
        """... and dropped as it ends."""
        if self.pieces[place].is_layer:
            self._drop(place)
        if place == len(self.pieces) - 1:
            self._free()

    def turn(self) -> None:
        """The last layer is asked for."""
        self._next(len(self.pieces) - 1)

    def enter_backward(self, place: int) -> None:
        """A layer is there, and the one before it is asked for."""
        group = self._group(place)
        if group not in self.whole | self.coming:
            self._ask(group)
        if group in self.coming:
            self._arrive(group)
        if group != _ROOT:
            self._next(place)

    def leave_backward(self, place: int, *, last: bool) -> None:
        """Without a pipeline it is dropped again."""
        if self.pieces[place].is_layer and self.pieces[0].plan.pp == 1:
            self._leave(place, last=last)

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
        groups = sorted({self._group(place) for place in range(len(self.pieces))})
        for group in groups:
            if what == GATHER:
                self._ask(group)
            elif what == DROP:
                self._drop(group)
            else:
                self._leave(group, last=True)
        if what == REDUCE:
            self._settle()

    def _group(self, place: int) -> int:
        return place if self.pieces[place].is_layer else _ROOT

    def _of(self, group: int) -> list[Piece]:
        return [self.pieces[group]] if group != _ROOT else [piece for piece in self.pieces if not piece.is_layer]

    def _weights(self, group: int) -> int:
        return sum(piece.weights for piece in self._of(group))

    def _buffer(self, group: int) -> int:
        """One rank alone copies its own to their place at once."""
        return self._weights(group) if self.shards > 1 else 0

    def _forward(self, group: int) -> None:
        if group in self.whole or not self._of(group):
            return
        self._ask(group)
        self._free()
        self.before = self._buffer(group)
        self._there(group)

    def _free(self) -> None:
        self.ledger.change(activations=-self.before)
        self.before = 0

    def _next(self, place: int) -> None:
        if place and self._group(place - 1) not in self.whole | self.coming:
            self._ask(self._group(place - 1))

    def _ask(self, group: int) -> None:
        self.ledger.change(activations=self._buffer(group))
        self.coming |= {group}

    def _there(self, group: int) -> None:
        self.ledger.change(weights=self._weights(group))
        self.whole |= {group}
        self.coming -= {group}

    def _arrive(self, group: int) -> None:
        self._there(group)
        self.ledger.change(activations=-self._buffer(group))

    def _drop(self, group: int) -> None:
        if group in self.whole:
            self.ledger.change(weights=-self._weights(group))
            self.whole -= {group}

    def _leave(self, group: int, *, last: bool) -> None:
        """The gradients of the last pass are copied to be scattered; the copy lives until the next one."""
        self._drop(group)
        if last:
            of = self._of(group)
            made, lived = sum(p.weights_gradients for p in of), sum(p.waits(o) for p in of for o in p.operators if o.parameters)
            self.ledger.change(activations=-self.copied)
            self.ledger.change(activations=made)
            self.ledger.change(gradients=made // self.shards, activations=-lived)
            self.copied = made

    def _settle(self) -> None:
        self.ledger.change(activations=-self.copied)
        self.copied = 0
