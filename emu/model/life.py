"""What lives on a rank as its turns go by: the passes of a stage, operator by operator, and the weights that FSDP2 gathers.

What a forward keeps lives until its backward has come by. There, beside it, live the gradients of what an operator gave and
took, and of its parameters; a residual's waits until both of its ways are done. What recomputation drops lives again for one
layer.
Weights that are sharded come and go as `emu.model.generate.sharded` has it: a buffer lives from the request until a copy of
it is in the weights' place, in a forward until the next one has come.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, NamedTuple

from emu.model.model import EMBEDDING, HEAD
from emu.model.operator import LOOKUP, LOSS, NORM, PRODUCT, ModelOperator
from emu.model.piece import Piece
from emu.model.turn import DROP, FORWARD, GATHER, INPUT, REDUCE, WEIGHT, Turn

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


Known = dict[Hashable, tuple[Ledger, tuple[Any, ...]]]  # by turn and state, what it changes and the state after it


class _Pass(NamedTuple):
    """Which of a stage's passes it is."""

    first: bool  # its gradients stay; those of others are added to what is there
    last: bool


class Ends(NamedTuple):
    """What lives of what a stage takes and gives, in bytes."""

    gives: int = 0  # of what it keeps of what it gives, less what it takes from a buffer
    taken: int = 0  # of the gradient of what it took that stays when its backward is in two, less a buffer whose place it takes
    buffered: int = 0  # of the gradient of what it gave, which is in a buffer of its own


@dataclass
class Stage:
    """One stage of a rank: what its turns change of what lives."""

    pieces: tuple[Piece, ...]  # of the pass that it is in
    ends: Ends
    weights: Whole
    known: Sequence[Known]  # by pass
    of_passes: Sequence[tuple[Piece, ...]]

    def take(self, turn: Turn, ledger: Ledger) -> None:
        """Let one turn go by; what was gone through before from as many weights is not again."""
        of = _Pass(turn.microbatch == 0, turn.microbatch == self.pieces[0].plan.passes - 1)
        before, known = (turn.what, of, self.weights.state), self.known[turn.microbatch]
        self.pieces = self.of_passes[turn.microbatch]
        if before not in known:
            self.weights.ledger = Ledger()
            self._go(turn.what, of)
            known[before] = self.weights.ledger, self.weights.state
        gone, after = known[before]
        self.weights.restore(after)
        ledger.run(gone)

    def _go(self, what: str, of: _Pass) -> None:
        if what in (GATHER, DROP, REDUCE):
            self.weights.take(what)
            return
        self.weights.arrive()
        first = self.pieces[0].name == EMBEDDING  # of tokens there is no gradient: theirs is one backward
        if what == FORWARD:
            self._forward()
        elif what == INPUT:
            if not first:
                self._backward_input()
        elif what == WEIGHT and not first:
            self._backward_weight(of)
        else:
            self._backward(of)

    def _forward(self) -> None:
        weights = self.weights
        weights.begin()
        for place, piece in enumerate(self.pieces):
            weights.enter(place)
            weights.ledger.change(activations=piece.kept)
            weights.ledger.rise(activations=2 * piece.between)
            weights.leave(place)
        weights.ledger.change(activations=self.ends.gives)

    def _backward_input(self) -> None:
        """What the forward kept stays, and the gradients of what operators with parameters gave beside it."""
        ledger = self.weights.ledger
        for piece in reversed(self.pieces):
            ledger.change(activations=piece.again)
            for operator, saved in zip(reversed(piece.operators), reversed(piece.saved), strict=True):
                ledger.rise(activations=piece.beside(operator))
                ledger.change(activations=piece.given(operator) - (saved if piece.recomputed else 0))
            ledger.change(activations=piece.between if piece.recomputed else 0)
        ledger.change(activations=self.ends.taken - self.ends.buffered - self._scored)

    def _backward_weight(self, of: _Pass) -> None:
        """Of one operator with parameters after another; the last frees what is left."""
        ledger = self.weights.ledger
        kept = sum(piece.kept + sum(map(piece.given, piece.operators)) for piece in self.pieces)
        after = ledger.now.activations + self.ends.buffered + self._scored - self.ends.gives - kept
        for piece in self.pieces:
            times, left = 0, piece.again
            for operator, saved in zip(piece.operators, piece.saved, strict=True):
                given, made = piece.given(operator), piece.made(operator)
                freed = {PRODUCT: saved, NORM: min(saved, given)}.get(operator.kind, 0)
                if piece.recomputed and given:
                    times += 1  # all of it for each, of which lives on what no backward has taken
                    ledger.change(activations=left)
                ledger.rise(activations=made + (given if operator.kind == NORM else 0))
                stays = self._stays(piece, operator, of)
                waits = piece.waits(operator) - stays if of.first else 0
                after += waits
                ledger.change(gradients=stays, activations=waits - given - (times or 1) * freed)
                left -= freed
        ledger.change(activations=after - ledger.now.activations)
        self.weights.end(last=of.last)

    @property
    def _scored(self) -> int:
        """Bytes of logits and of what the loss keeps, which live no longer than the gradient of what came in is wanted."""
        return sum(2 * piece.logits for piece in self.pieces if piece.name == HEAD)

    def _backward(self, of: _Pass) -> None:
        weights, ledger, late = self.weights, self.weights.ledger, 0
        for place, piece in reversed(list(enumerate(self.pieces))):
            weights.enter_backward(place)
            ledger.change(activations=piece.again)
            for operator, saved in zip(reversed(piece.operators), reversed(piece.saved), strict=True):
                late += self._operator(piece, operator, saved, of)
                if operator.kind == LOSS:
                    weights.turn()
            weights.leave_backward(place, last=of.last)
        left = sum(piece.kept - (piece.between if piece.recomputed else sum(piece.saved)) for piece in self.pieces)
        ledger.change(activations=-late - left - self.ends.gives)
        weights.end(last=of.last)

    def _operator(self, piece: Piece, operator: ModelOperator, saved: int, of: _Pass) -> int:
        """One operator's backward: bytes of a gradient that is added to another only as the whole backward ends."""
        made, tied = piece.made(operator), piece.tied(operator)
        added = self.weights.adds or (tied and operator.kind == LOOKUP)  # to that of the head, which is there
        stays = 0 if added else self._stays(piece, operator, of)
        lives = piece.waits(operator) - stays if not added and (of.first or tied or self._adds_late(piece, operator)) else 0
        self.weights.ledger.rise(stays, piece.beside(operator) + made - stays)
        self.weights.ledger.change(gradients=stays, activations=lives - saved)
        if of.last and piece.routed is not None and operator.experts and not self.weights.scatters:
            self.weights.ledger.change(activations=made)  # in a bucket of the block, till the end of the step
        return 0 if of.first else lives

    def _stays(self, piece: Piece, operator: ModelOperator, of: _Pass) -> int:
        """Bytes of a gradient that is its parameters' from now on."""
        return piece.made(operator) if of.first and not self.weights.scatters and not piece.partial(operator) else 0

    def _adds_late(self, piece: Piece, operator: ModelOperator) -> bool:
        """Whether autograd adds up its gradient at the end of the backward; that of a table that is whole it does at once."""
        if operator.kind == LOOKUP and not operator.cut:
            return False
        plan = piece.plan
        return plan.tp > 1 and not self.weights.scatters and not plan.splits and piece.stack.software == "pytorch"
