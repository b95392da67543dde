"""What lives on a rank when most does: its turns one after another, each backward operator by operator.

What a forward keeps lives until its backward has come by. There, beside it, live the gradients of what an operator gave and
took, and of its parameters; a residual's waits until both of its ways are done. What recomputation drops lives again for one
layer.
Counted as `emu.model.passes` was, from what real ranks hold.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from heapq import heapreplace
from typing import NamedTuple

from emu.dtypes import item_bytes
from emu.model.fits import part_names
from emu.model.kernels import kept_by
from emu.model.model import EMBEDDING, HEAD, Model
from emu.model.operator import ATTENTION, GATE, LOOKUP, LOSS, NORM, PRODUCT, ROTATION, SUM, ModelOperator, Tokens
from emu.model.plan import Plan
from emu.model.stack import Stack
from emu.model.turn import BACKWARD, FORWARD, INPUT, Turn
from emu.model.turns import turns

_TAKES = {
    GATE: 2,
    NORM: 3,
    SUM: 2,
}  # gradients of what an operator took, as many as it gave elements; with what a norm works with
BUCKET = 25 << 20  # bytes of gradients that are averaged at once: torch.nn.parallel.DistributedDataParallel's
_INDEX, _TABLE, _COUNT = 8, 4, 4  # bytes of a token, of an element of a table of angles, and of what counts an AdamW's steps


class Live(NamedTuple):
    """Bytes of a rank by part, as `emu.trace.trace.PARTS` has them."""

    weights: int
    gradients: int
    optimizer_state: int
    activations: int


class _Above(NamedTuple):
    """The most that a backward goes above what lived as it began."""

    gradients: int
    activations: int


@dataclass(frozen=True)
class Piece:
    """An embedding, a layer of one kind, or a head on one rank."""

    model: Model
    plan: Plan
    stack: Stack
    name: str

    @cached_property
    def operators(self) -> tuple[ModelOperator, ...]:
        """What the rank has of each."""
        return tuple(operator.on(self.plan.cut) for operator in self.model.part(self.name, self.tokens))

    @property
    def tokens(self) -> Tokens:
        """Of one pass."""
        plan = self.plan
        context = plan.seq if plan.cp > 1 and plan.cp_comm == "all_gather" else 0
        return Tokens(plan.rank_seq, context, plan.pass_batch, plan.capacity)

    @property
    def item(self) -> int:
        """Bytes of an element of activations."""
        return item_bytes(self.stack.precision.activation)

    @property
    def between(self) -> int:
        """Bytes of what lies between two layers."""
        return self.item * self.tokens.n * self.model.hidden // (self.plan.tp if self.plan.sp else 1)

    @property
    def logits(self) -> int:
        """Bytes; whole on each rank where the loss is not worked out on parts of them."""
        return self.item * self.tokens.n * self.model.vocab // (1 if self.stack.software == "pytorch" else self.plan.tp)

    @cached_property
    def saved(self) -> tuple[int, ...]:
        """By operator, bytes that its forward keeps; tokens and targets are there anyway."""
        kept = (kept_by(operator, self.stack, self.plan).bytes(self.item) for operator in self.operators)
        anyway = {LOSS: self.logits, LOOKUP: 0}
        return tuple(anyway.get(o.kind, size) for o, size in zip(self.operators, kept, strict=True))

    @property
    def recomputed(self) -> bool:
        """Whether its forward keeps no more than what came in."""
        return self.plan.recompute == "full" and self.name not in (EMBEDDING, HEAD)

    @cached_property
    def kept(self) -> int:
        """Bytes that a forward leaves for the backward; a head's logits live as long."""
        own = self.between if self.recomputed else sum(self.saved)
        whole = self.between if self.name == HEAD and self.plan.tp > 1 and self.stack.software == "pytorch" else 0
        return own + whole + (self.logits if self.name == HEAD else 0)

    @property
    def parameters(self) -> int:
        """Of the rank."""
        return sum(operator.parameters for operator in self.operators)

    @property
    def buffer(self) -> int:
        """Bytes into which FSDP2 gathers a layer; the ends are one group, which is whole anyway."""
        return 0 if self.name in (EMBEDDING, HEAD) else self.parameters * item_bytes(self.stack.precision.weight)

    @property
    def weights_gradients(self) -> int:
        """Bytes of those of all its parameters."""
        return sum(map(self.gradient, self.operators))

    def gradient(self, operator: ModelOperator) -> int:
        """Bytes of that of its parameters."""
        return operator.parameters * item_bytes(self.stack.precision.gradient)

    def beside(self, operator: ModelOperator) -> int:
        """Bytes of activations' gradients that live as its backward runs."""
        if operator.kind == LOSS:
            return 2 * self.logits
        if operator.kind == LOOKUP:  # under tensor parallelism DTensor makes the gradient of the whole table first
            whole = self.plan.tp if operator.cut and self.plan.tp > 1 and self.stack.software == "pytorch" else 0
            return self.between + whole * self.gradient(operator)
        given = operator.outputs.whole + operator.outputs.cut
        if operator.kind == PRODUCT and operator.shape and not operator.experts:
            rows, columns, inner = operator.shape
            taken, given = rows * inner, rows * columns
        elif operator.kind == ATTENTION:
            saved = kept_by(operator, self.stack, self.plan)
            taken = max(given, saved.whole + saved.cut - given)
        else:
            taken = _TAKES.get(operator.kind, 1) * given
        return self.item * (given + taken) + (self.between if self.name not in (EMBEDDING, HEAD) else 0)


class _Pass(NamedTuple):
    """Which of a stage's passes it is."""

    first: bool  # its gradients stay; those of others are added to what is there
    last: bool


def above(pieces: Sequence[Piece], of: _Pass) -> _Above:
    """How high one backward of a stage goes."""
    plan, pytorch = pieces[0].plan, pieces[0].stack.software == "pytorch"
    shards = plan.sharding == "fsdp" and pytorch
    late = plan.tp > 1 and not shards and not plan.splits and pytorch  # autograd adds them up at the end of the backward
    most, gradients, activations, copied = _Above(0, 0), 0, 0, 0
    for number, piece in reversed(list(enumerate(pieces))):
        own = piece.weights_gradients
        ahead = pieces[number - 1].buffer if number and shards else 0  # gathered meanwhile
        if piece.recomputed:
            activations += sum(piece.saved) - piece.between
        for operator, saved in zip(reversed(piece.operators), reversed(piece.saved), strict=True):
            made = piece.gradient(operator)
            stays = made if of.first and not shards else 0
            lives = made - stays if (of.first or late) else 0
            here = _Above(gradients + stays, activations + ahead + piece.beside(operator) + made - stays)
            most = max(most, here, key=sum)
            gradients, activations = gradients + stays, activations + lives - saved
        if shards and of.last and piece.buffer and plan.pp == 1:  # what is scattered is copied, until the next one is
            gradients, activations, copied = gradients + own // plan.sharded, activations - copied, own
    return most


@dataclass(frozen=True)
class Place:
    """The ranks at one place of their pipelines."""

    model: Model
    plan: Plan
    stack: Stack
    place: int
    made: dict[str, Piece] = field(default_factory=dict)  # pieces by name, which places may share
    tops: dict[tuple[_Pass, tuple[str, ...]], _Above] = field(default_factory=dict)  # of backwards, as they may, too

    @cached_property
    def stages(self) -> dict[int, tuple[Piece, ...]]:
        """By number."""
        numbers = self.plan.stages_of(self.place * self.plan.stage_ranks)
        return {n: tuple(map(self._piece, part_names(self.plan, self.model, n))) for n in numbers}

    def _piece(self, name: str) -> Piece:
        if name not in self.made:
            self.made[name] = Piece(self.model, self.plan, self.stack, name)
        return self.made[name]

    def _above(self, pieces: tuple[Piece, ...], of: _Pass) -> _Above:
        """Stages of equal pieces go equally high."""
        key = (of, tuple(piece.name for piece in pieces))
        if key not in self.tops:
            self.tops[key] = above(pieces, of)
        return self.tops[key]

    def most(self, share: int = 0) -> Live:
        """When most lives; under ZeRO-1 on the rank with that share of the optimizer's states."""
        found = max(self._moments, key=sum)
        return Live(self._weights, found.gradients, self._state(share), found.activations)

    def _pieces(self) -> Iterable[Piece]:
        return (piece for of_stage in self.stages.values() for piece in of_stage)

    @cached_property
    def _sizes(self) -> list[int]:
        """Elements of each parameter."""
        return [size for piece in self._pieces() for operator in piece.operators for size in operator.sizes]

    @cached_property
    def _weights(self) -> int:
        size = item_bytes(self.stack.precision.weight)
        tables = sum(self._table(piece) for piece in self._pieces())
        if self.plan.sharding != "fsdp":
            return size * sum(self._sizes) + tables
        ends = sum(piece.parameters for piece in self._pieces() if piece.name in (EMBEDDING, HEAD))
        layers = [piece.parameters for piece in self._pieces() if piece.name not in (EMBEDDING, HEAD)]
        layer = sum(layers) if self.plan.pp > 1 else max(layers)  # in a pipeline they stay whole until the next forward
        return size * (sum(self._sizes) // self._shards + ends + layer) + tables

    def _table(self, piece: Piece) -> int:
        """Sines and cosines of each position, in every layer that turns what it attends to."""
        if self.stack.software != "pytorch":
            return 0
        turned = next((o for o in self.model.part(piece.name, piece.tokens) if o.kind == ROTATION), None)
        if turned is None:
            return 0
        return _TABLE * self.plan.rank_seq * (turned.outputs.whole + turned.outputs.cut) // (piece.tokens.n * self.model.heads)

    @property
    def _shards(self) -> int:
        return self.plan.holders

    def _state(self, share: int) -> int:
        """An optimizer counts its steps for each parameter."""
        own = owned_by(self._sizes, self._shards)[share] if self.plan.sharding == "zero1" else self._sizes
        shards = self._shards if self.plan.sharding == "fsdp" else 1
        counts = _COUNT if self.stack.software == "pytorch" else 0
        return self.stack.precision.kept_bytes * sum(own) // shards + counts * len(own)

    @property
    def _moments(self) -> Iterable[_Above]:
        """Gradients and activations at the top of each backward, and as the optimizer begins."""
        always, gradients, whole = self._always(), 0, 0
        live, last = always, self.plan.passes - 1
        kept = {n: sum(piece.kept for piece in pieces) + self._ends(n) for n, pieces in self.stages.items()}
        size = {n: sum(piece.weights_gradients for piece in pieces) for n, pieces in self.stages.items()}
        shards = self.plan.sharding == "fsdp" and self.stack.software == "pytorch"
        for turn in self._turns():
            number = turn.stage
            if turn.what == FORWARD:
                live += kept[number]
                continue
            of = _Pass(turn.microbatch == 0, turn.microbatch == last)
            top = self._above(self.stages[number], of)
            yield _Above(gradients + top.gradients, live + whole + top.activations)
            if turn.what != INPUT:
                live -= kept[number]
                gradients, whole = (
                    gradients + size[number] * (of.first and not shards),
                    whole + size[number] * (of.first and shards),
                )
        yield _Above(sum(size.values()) // (self._shards if self.plan.sharding == "fsdp" else 1), always)

    def _turns(self) -> Iterable[Turn]:
        plan = self.plan
        if plan.pp == 1:
            return (Turn(0, what, number) for number in range(plan.passes) for what in (FORWARD, BACKWARD))
        return (t for together in turns(plan.pipeline, self.place, plan.pp, plan.vp, plan.passes) for t in together)

    def _ends(self, number: int) -> int:
        """What a stage gave lives with what it keeps; what it took, in a buffer of its own."""
        given, taken = number < self.plan.stages - 1, number > 0 and self.stack.software == "pytorch"
        between = next(iter(self._pieces())).between
        return between * (given - taken)

    def _always(self) -> int:
        """Tokens and targets; buffers of DDP, and of what comes from other stages: PyTorch has them for all microbatches."""
        plan, piece = self.plan, next(iter(self._pieces()))
        found = 2 * _INDEX * plan.rank_batch * plan.rank_seq
        if self.stack.software == "pytorch":
            sides = sum((n > 0) + (n < plan.stages - 1) for n in self.stages)
            found += sides * plan.passes * piece.between
        gradients = sum(piece.gradient(o) for piece in self._pieces() for o in piece.operators)
        if plan.dp * plan.cp > 1 and plan.sharding != "fsdp":
            found += min(gradients, BUCKET) if plan.splits else gradients
        return found


def memory_by_part(model: Model, plan: Plan, stack: Stack) -> dict[str, int]:
    """Bytes of the rank that holds most, by part, when most lives on it."""
    made: dict[str, Piece] = {}
    tops: dict[tuple[_Pass, tuple[str, ...]], _Above] = {}
    places = (Place(model, plan, stack, place, made, tops).most() for place in range(plan.pp))
    return max(places, key=sum)._asdict()


def certain(model: Model, plan: Plan, stack: Stack) -> bool:
    """Whether that is held equal to what real ranks hold, by a test; else it is an estimate."""
    shards = plan.sharding == "fsdp" and (plan.tp * plan.pp > 1 or plan.holders == 1)
    own = plan.splits or plan.cp > 1 or shards or plan.recompute == "selective"
    return stack.software == "pytorch" and not own and not model.experts and not model.tied


def owned_by(sizes: Iterable[int], ranks: int) -> list[list[int]]:
    """Which parameters each rank has the states of: the largest first, each to the rank with the least.

    Source: PyTorch, torch/distributed/optim/zero_redundancy_optimizer.py.
    """
    owned: list[list[int]] = [[] for _ in range(ranks)]
    least = [(0, rank) for rank in range(ranks)]
    for size in sorted(sizes, reverse=True):
        total, rank = least[0]
        owned[rank].append(size)
        heapreplace(least, (total + size, rank))
    return owned
