"""What lives on a rank as its turns go by: the passes of a stage, operator by operator.

What a forward keeps lives until its backward has come by. There, beside it, live the gradients of what an operator gave and
took, and of its parameters; a residual's waits until both of its ways are done. What recomputation drops lives again for one
layer. What lives of the weights themselves is in `emu.model.memory.weights`.
"""

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from emu.model.memory.piece import Piece
from emu.model.memory.weights import Ledger, Whole
from emu.model.model import EMBEDDING, HEAD
from emu.model.operator import LOOKUP, LOSS, NORM, PRODUCT, ModelOperator
from emu.model.pipeline.turn import DROP, FORWARD, GATHER, INPUT, REDUCE, WEIGHT, Turn

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
            weights.enter_experts(place)
            weights.ledger.change(activations=piece.kept)
            weights.ledger.rise(activations=2 * piece.between)
            weights.leave_experts(place)
            weights.leave(place)
        weights.ledger.change(activations=self.ends.gives)

    def _backward_input(self) -> None:
        """What the forward kept stays, and the gradients of what operators with parameters gave beside it."""
        ledger = self.weights.ledger
        for place, piece in reversed(list(enumerate(self.pieces))):
            self._again(place)
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
        return sum(piece.logits + piece.scored for piece in self.pieces if piece.name == HEAD)

    def _backward(self, of: _Pass) -> None:
        weights, ledger, late = self.weights, self.weights.ledger, 0
        for place, piece in reversed(list(enumerate(self.pieces))):
            weights.enter_backward(place)
            self._again(place)
            experts = [operator for operator in piece.operators if piece.travels(operator)]
            for operator, saved in zip(reversed(piece.operators), reversed(piece.saved), strict=True):
                if experts and operator is experts[-1]:
                    weights.enter_experts_backward(place)
                if piece.whole(operator):  # it is cut when all others have been added up
                    # ... but one of two of a tied table at once, and both and their sum live then.
                    both = 2 * piece.gradient(operator) if late and piece.tied(operator) else 0
                    ledger.rise(activations=piece.beside(operator) + both)
                    ledger.change(activations=-late)
                    late = 0
                late += self._operator(piece, operator, saved, of)
                if operator.kind == LOSS:
                    weights.turn()
                if experts and operator is experts[0]:
                    weights.leave_experts_backward(place, last=of.last)
            weights.leave_backward(place, last=of.last)
        left = sum(piece.kept + piece.again - sum(piece.saved) for piece in self.pieces)
        ledger.change(activations=-late - left - self.ends.gives)
        weights.end(last=of.last)

    def _again(self, place: int) -> None:
        """What recomputation drops lives again."""
        piece = self.pieces[place]
        self.weights.ledger.change(activations=piece.again)
        if piece.recomputed:
            self.weights.experts_again(place)
            self.weights.ledger.rise(activations=piece.between + piece.travelling)

    def _operator(self, piece: Piece, operator: ModelOperator, saved: int, of: _Pass) -> int:
        """One operator's backward: bytes of a gradient that is added to another only as the whole backward ends."""
        made, tied = piece.made(operator), piece.tied(operator)
        added = self.weights.adds or (tied and operator.kind == LOOKUP)  # to that of the head, which is there
        stays = 0 if added else self._stays(piece, operator, of)
        lives = piece.waits(operator) - stays if not added and (of.first or tied or self._adds_late(piece, operator)) else 0
        self.weights.ledger.rise(stays, self._beside(piece, operator) - stays)
        self.weights.ledger.change(gradients=stays, activations=lives - saved)
        if of.last and piece.routed is not None and operator.experts and not self.weights.scatters:
            self.weights.ledger.change(activations=made)  # in a bucket of the block, till the end of the step
        return 0 if of.first else lives

    def _beside(self, piece: Piece, operator: ModelOperator) -> int:
        """Bytes that live as its backward runs; the gradient of a whole table, as it is cut, if it is now."""
        made, whole = piece.made(operator), piece.whole(operator)
        if not whole:
            return piece.beside(operator) + made
        return whole + (made if piece.waits(operator) == made else 0)

    def _stays(self, piece: Piece, operator: ModelOperator, of: _Pass) -> int:
        """Bytes of a gradient that is its parameters' from now on."""
        return piece.made(operator) if of.first and not self.weights.scatters and not piece.partial(operator) else 0

    def _adds_late(self, piece: Piece, operator: ModelOperator) -> bool:
        """Whether autograd adds up its gradient at the end of the backward; that of no DTensor it does at once.

        So that of a table that is whole, and those of experts that tokens travel to.
        """
        if (operator.kind == LOOKUP and not operator.cut) or piece.travels(operator):
            return False
        plan = piece.plan
        return plan.tp > 1 and not self.weights.scatters and not plan.splits and piece.stack.software == "pytorch"
