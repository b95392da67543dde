"""What lives on a rank when most does: its turns one after another, each backward operator by operator."""

from collections.abc import Hashable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from heapq import heapreplace
from itertools import chain, count
from typing import NamedTuple

from emu.dtypes import item_bytes
from emu.model.memory.life import Ends, Known, Stage
from emu.model.memory.piece import Piece
from emu.model.memory.weights import Averaged, Buffered, Bytes, Ledger, Sharded, Whole
from emu.model.model import EMBEDDING, HEAD, Model
from emu.model.pipeline.turn import BACKWARD, FORWARD, REDUCE, Turn
from emu.model.pipeline.turns import turns, with_weights
from emu.model.plan.plan import Plan
from emu.model.plan.plan_checks import part_names, stage_layers
from emu.model.routed import Routed, RoutedOf, about_even
from emu.model.stack.stack import Stack

BUCKET = 25 << 20  # bytes of gradients that are averaged at once: torch.nn.parallel.DistributedDataParallel's
_INDEX, _COUNT = 8, 4  # bytes of a token, and of what counts an AdamW's steps


class Live(NamedTuple):
    """Bytes of a rank by part, as `emu.trace.trace.PARTS` has them."""

    weights: int
    gradients: int
    optimizer_state: int
    activations: int


@dataclass(frozen=True)
class Place:
    """The ranks at one place of their pipelines."""

    model: Model
    plan: Plan
    stack: Stack
    place: int
    made: dict[Hashable, Piece] = field(default_factory=dict)  # pieces, which places may share
    known: dict[Hashable, Known] = field(default_factory=dict)  # what turns of equal stages do, as they may, too
    routed: RoutedOf | None = None  # rows that travel to experts; None: spread about evenly

    @cached_property
    def pieces(self) -> dict[int, tuple[Piece, ...]]:
        """Of each stage, by its number, in the first pass."""
        return {n: self._pieces(n, 0) for n in self.plan.stages_of(self.place * self.plan.stage_ranks)}

    def _pieces(self, stage: int, pass_: int) -> tuple[Piece, ...]:
        names, first = part_names(self.plan, self.model, stage), sum(stage_layers(self.plan, self.model)[:stage])
        layers = count(first - (names[0] == EMBEDDING))
        return tuple(self._piece(name, self._rows(name, layer, pass_)) for name, layer in zip(names, layers, strict=False))

    def _rows(self, name: str, layer: int, pass_: int) -> Routed | None:
        if not self.plan.exchanges or self.stack.software != "pytorch" or name in (EMBEDDING, HEAD):
            return None
        return self.routed(layer, pass_) if self.routed is not None else self._even[name]

    @cached_property
    def _even(self) -> dict[str, Routed | None]:
        """By kind of layer."""
        return {kind: about_even(self.plan, self.model, kind) for kind in set(self.model.kinds)}

    def _piece(self, name: str, rows: Routed | None) -> Piece:
        if (name, rows) not in self.made:
            self.made[name, rows] = Piece(self.model, self.plan, self.stack, name, rows)
        return self.made[name, rows]

    def most(self, held: tuple[int, int] = (0, 0)) -> Live:
        """When most lives; under ZeRO-1 on the rank with those shares of the optimizer's states, of experts the second."""
        found = self._most
        return Live(found.weights, found.gradients, self._state(held), found.activations)

    def _all(self) -> Iterable[Piece]:
        return (piece for of_stage in self.pieces.values() for piece in of_stage)

    @cached_property
    def _sizes(self) -> tuple[list[int], list[int]]:
        """Elements of each parameter: of what all tokens see, and of experts that tokens travel to."""
        found: tuple[list[int], list[int]] = ([], [])
        for operator in (operator for piece in self._all() for operator in piece.operators):
            found[self.plan.exchanges and bool(operator.experts)].extend(operator.sizes)
        return found

    @property
    def _weights(self) -> int:
        """Bytes of those that always live, with constants beside them."""
        size = item_bytes(self.stack.precision.weight)
        own = sum(size * sum(of) // (n if self._scatters else 1) for of, n in zip(self._sizes, self._holders, strict=True))
        return own + sum(piece.table_bytes for piece in self._all()) + self._masks

    @property
    def _masks(self) -> int:
        """Where each rank gathers all keys: which of them a query sees, in float32, for each stage."""
        plan = self.plan
        if plan.cp == 1 or plan.cp_comm != "all_gather" or self.stack.software != "pytorch":
            return 0
        return 4 * plan.rank_seq * plan.seq * len(self.pieces)

    @property
    def _holders(self) -> tuple[int, int]:
        """Ranks over which states are sharded: of what all tokens see, and of experts that tokens travel to."""
        return self.plan.holders, self.plan.sizes["edp"] if self.plan.sharding != "ddp" else 1

    @property
    def _scatters(self) -> bool:
        return self.plan.sharding == "fsdp" and self.stack.software == "pytorch"

    def _state(self, held: tuple[int, int]) -> int:
        """An optimizer counts its steps for each parameter."""
        kept, pytorch, found = self.stack.precision.kept_bytes, self.stack.software == "pytorch", 0
        for sizes, holders, share in zip(self._sizes, self._holders, held, strict=True):
            whole = self.plan.sharding == "zero1" and pytorch  # whole parameters are shared out
            own = owned_by(sizes, holders)[share] if whole else sizes
            found += kept * -(-sum(own) // (1 if whole else holders)) + (_COUNT * len(own) if pytorch else 0)
        return found

    @cached_property
    def _most(self) -> Bytes:
        buffer = 0 if self.stack.software == "pytorch" else self._gradients
        always = Bytes(self._weights, buffer, self._always())
        ledger, stages = Ledger(always, always), {n: self._stage(n) for n in self.pieces}
        for turn in self._turns():
            stages[turn.stage].take(turn, ledger)
        return ledger.most

    def _stage(self, number: int) -> Stage:
        """What a stage gave lives with what it keeps; what it took, in a buffer of its own."""
        pieces, pytorch = self.pieces[number], self.stack.software == "pytorch"
        given, taken = number < self.plan.stages - 1 and number + 1 not in self.pieces, number > 0
        between = pieces[0].between if pytorch else 0  # Megatron-LM frees it as soon as it is sent
        beside = number - 1 in self.pieces  # what one stage of a place gives another takes the place of a buffer
        last = number == self.plan.stages - 1
        # What sequence parallelism gathers is not the buffer.
        ends = Ends(between * (given - taken), between * (taken - beside), between * (not last and not self.plan.sp))
        weights = self._weights_of(pieces)
        if self.routed is None:
            return Stage(pieces, ends, weights, [self._known_of(ends, pieces)] * self.plan.passes, [pieces] * self.plan.passes)
        of_passes = [self._pieces(number, n) for n in range(self.plan.passes)]
        return Stage(pieces, ends, weights, [self._known_of(ends, own) for own in of_passes], of_passes)

    def _known_of(self, ends: Ends, pieces: tuple[Piece, ...]) -> Known:
        return self.known.setdefault((ends, *((piece.name, piece.routed) for piece in pieces)), {})

    def _weights_of(self, pieces: tuple[Piece, ...]) -> Whole:
        if self._scatters:
            return Sharded(pieces, shards=self._holders)
        if self.stack.software != "pytorch":
            return Buffered(pieces)
        if self.plan.splits:
            others = self.plan.dp * self.plan.cp > 1
            return Averaged(pieces, bucket=min(sum(piece.averaged for piece in pieces), BUCKET) if others else 0)
        return Whole(pieces)

    def _turns(self) -> Iterable[Turn]:
        plan = self.plan
        if plan.pp == 1:
            return (Turn(0, what, number) for number in range(plan.passes) for what in (FORWARD, BACKWARD))
        own = turns(plan.pipeline, self.place, plan.pp, plan.vp, plan.passes)
        if not self._scatters:
            return chain(*own)
        if plan.vp == 1:
            return (*chain(*own), Turn(self.place, REDUCE))
        return chain(*with_weights(list(own), plan.passes))

    def _always(self) -> int:
        """Tokens and targets; buffers of DDP, and of what comes from other stages: PyTorch has them for all microbatches."""
        plan, piece = self.plan, next(iter(self._all()))
        found = 2 * _INDEX * plan.rank_batch * plan.rank_seq
        if self.stack.software == "pytorch":
            sides = sum((n > 0) + (n < plan.stages - 1) for n in self.pieces)
            found += sides * plan.passes * piece.between
            if plan.dp * plan.cp > 1 and plan.sharding != "fsdp" and not plan.splits:
                found += sum(piece.averaged for piece in self._all())
        return found

    @property
    def _gradients(self) -> int:
        """Bytes of those of all its parameters."""
        return sum(piece.weights_gradients for piece in self._all())


def memory_by_part(model: Model, plan: Plan, stack: Stack) -> dict[str, int]:
    """Bytes of the rank that holds most, by part, when most lives on it."""
    return max(_of_places(model, plan, stack, range(plan.pp)), key=sum)._asdict()


def holds(model: Model, plan: Plan, stack: Stack, memory: int, places: Iterable[int]) -> bool:
    """Whether so many bytes hold a rank at each of these places of a pipeline."""
    return all(sum(live) <= memory for live in _of_places(model, plan, stack, places))


def _of_places(model: Model, plan: Plan, stack: Stack, places: Iterable[int]) -> Iterator[Live]:
    made: dict[Hashable, Piece] = {}
    known: dict[Hashable, Known] = {}
    return (Place(model, plan, stack, place, made, known).most() for place in places)


def certain(model: Model, plan: Plan, stack: Stack) -> bool:
    """Whether that is held equal to what real ranks hold, by a test; else it is an estimate."""
    alone = plan.sharding == "fsdp" and plan.holders == 1 and plan.dp > 1  # each has a copy of all that is sharded
    return stack.software == "pytorch" and not alone


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
