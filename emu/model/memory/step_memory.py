"""The bytes that live on one rank during a pass and during the whole step, and the memory of a host of all ranks.

The bytes that a forward keeps live until its backward. Beside them live the gradients of an operator's output, inputs and
parameters; the gradient of a residual lives until both of its branches are done. Bytes that recomputation drops live again for
one layer at a time. Sharded weights and scattered gradients are counted where they are requested
(`emu.model.generate.sharded_states`). Weights, the optimizer's state and buffers live during the whole step.
"""

from collections import deque
from collections.abc import Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from heapq import heapreplace

from emu.dtypes import item_bytes
from emu.model.memory.layer_memory import LayerMemory, Ledger, LiveBytes, Pools
from emu.model.model import HEAD, Model
from emu.model.operator import LOOKUP, LOSS, NORM, PRODUCT, Cut, ModelOperator, Tokens
from emu.model.plan.plan import Plan
from emu.model.stack.software import Software
from emu.model.stack.stack import Stack

Moment = str  # the name of a moment in the pass of one layer; requests that are held under it are awaited then
# A block of experts, whose weights are sharded apart from those of their layer, begins or ends: in a forward, in a forward that
# is recomputed before a backward, and in a backward.
ENTER, ENTER_AGAIN, ENTER_BACKWARD = "enter", "enter again", "enter backward"
LEAVE, LEAVE_AGAIN, LEAVE_BACKWARD = "leave", "leave again", "leave backward"
LOSS_GRADIENT = "loss gradient"  # the gradient of the loss is there, and the backward begins


@dataclass(frozen=True)
class StageMemory:
    """The memory of one pass through a stage: its layers, its input and output, and its parameter gradients.

    The gradients of the first pass stay where they are made; those of later passes are added to them.
    """

    layers: tuple[LayerMemory, ...]
    gives: int = 0  # bytes of its output, which it keeps, less those of its input, which lie in a buffer
    taken: int = 0  # of the gradient of its input, which stays where backwards are split, less the buffer that it is put into
    buffered: int = 0  # of the gradient of its output, which lies in a buffer of its own
    scatters: bool = False  # gradients of parameters live beside the sharded ones until they are scattered (FSDP2)
    adds: bool = False  # gradients of parameters are added to a buffer that always lives

    @property
    def key(self) -> Hashable:
        """A key that is equal for passes with equal memory."""
        return self.gives, self.taken, self.buffered, tuple((layer.name, layer.routed) for layer in self.layers)

    def forward(self, place: int, ledger: Ledger) -> Iterator[Moment]:
        """Count the forward of a layer in a ledger; yield the moments at which weights of experts come and go."""
        layer = self.layers[place]
        experts = self.has_sharded_experts(layer)
        if experts:
            yield ENTER
        ledger.change(activations=layer.kept)
        ledger.rise(activations=2 * layer.between)
        if experts:
            yield LEAVE

    def end_forward(self, ledger: Ledger) -> None:
        """Count the bytes of the output that the stage sends to the next stage."""
        ledger.change(activations=self.gives)

    def backward_input(self, ledger: Ledger) -> None:
        """Count the first half of a split backward in a ledger: the gradients of inputs.

        The bytes that the forward kept live on, and so does the gradient of the output of each operator with parameters.
        """
        for layer in reversed(self.layers):
            ledger.change(activations=layer.again)
            ledger.rise(activations=layer.between + layer.travelling if layer.recomputed else 0)
            for operator, saved in zip(reversed(layer.operators), reversed(layer.saved), strict=True):
                ledger.rise(activations=layer.beside(operator))
                ledger.change(activations=layer.given(operator) - (saved if layer.recomputed else 0))
            ledger.change(activations=layer.between if layer.recomputed else 0)
        ledger.change(activations=self.taken - self.buffered - self._scored)

    def backward_weight(self, ledger: Ledger, *, first: bool) -> None:
        """Count the second half of a split backward in a ledger: the gradients of parameters.

        Then free all that the pass has kept.
        """
        kept = sum(layer.kept + sum(map(layer.given, layer.operators)) for layer in self.layers)
        after = ledger.now.activations + self.buffered + self._scored - self.gives - kept
        for layer in self.layers:
            times, left = 0, layer.again
            for operator, saved in zip(layer.operators, layer.saved, strict=True):
                given, made = layer.given(operator), layer.made_bytes(operator)
                freed = {PRODUCT: saved, NORM: min(saved, given)}.get(operator.kind, 0)
                if layer.recomputed and given:
                    times += 1  # the layer is recomputed for each operator; what no backward has used yet lives on
                    ledger.change(activations=left)
                ledger.rise(activations=made + (given if operator.kind == NORM else 0))
                stays = self.stays(layer, operator, first=first)
                waits = layer.waits(operator) - stays if first else 0
                after += waits
                ledger.change(gradients=stays, activations=waits - given - (times or 1) * freed)
                left -= freed
        ledger.change(activations=after - ledger.now.activations)

    def stays(self, layer: LayerMemory, operator: ModelOperator, *, first: bool) -> int:
        """Return the bytes of a gradient that live with its parameter from now on.

        Args:
            layer: The layer.
            operator: The operator that has the parameter.
            first: Whether this is the first pass of the step.
        """
        return layer.made_bytes(operator) if first and not self.scatters and not layer.partial(operator) else 0

    def has_sharded_experts(self, layer: LayerMemory) -> bool:
        """Return whether FSDP2 gathers the weights of a layer's experts separately from the layer's other weights."""
        return self.scatters and any(map(layer.travels, layer.operators))

    @property
    def _scored(self) -> int:
        """The bytes of the logits and of values for the loss, until the gradient of the head's input exists."""
        return sum(layer.logits + layer.scored for layer in self.layers if layer.name == HEAD)


@dataclass
class BackwardMemory:
    """The memory of one backward through a stage while it runs, counted in a ledger.

    `first` and `last` say whether it is the first or the last backward of the step.
    """

    stage: StageMemory
    ledger: Ledger
    first: bool
    last: bool
    late: int = field(default=0)  # bytes of gradients that autograd adds to others only as the whole backward ends

    def layer(self, place: int) -> Iterator[Moment]:
        """Count the backward of a layer; yield the moments at which weights of experts, or the loss's gradient, come."""
        layer = self.stage.layers[place]
        if self.stage.has_sharded_experts(layer) or not layer.is_layer:  # it stops, or frees what others have left
            yield from self._operators(layer)
            return
        key = self.stage.scatters, self.stage.adds, self.first, self.last
        if key not in layer.backwards:  # equal layers of a stage go by once
            alone = BackwardMemory(self.stage, Ledger(), self.first, self.last)
            deque(alone._operators(layer), maxlen=0)
            layer.backwards[key] = alone.ledger, alone.late
        ledger, late = layer.backwards[key]
        self.ledger.append(ledger)
        self.late += late

    def end(self) -> None:
        """Free the bytes that still live at the end of the backward."""
        kept = (layer.kept + layer.again - sum(layer.saved) for layer in self.stage.layers)
        self.ledger.change(activations=-self.late - sum(kept) - self.stage.gives)

    def _operators(self, layer: LayerMemory) -> Iterator[Moment]:
        """Count the backward of each operator of a layer, and yield its moments."""
        ledger = self.ledger
        experts = [operator for operator in layer.operators if self.stage.scatters and layer.travels(operator)]
        ledger.change(activations=layer.again)
        if layer.recomputed:
            if experts:
                yield ENTER_AGAIN
            ledger.rise(activations=layer.between + layer.travelling)
        for operator, saved in zip(reversed(layer.operators), reversed(layer.saved), strict=True):
            if experts and operator is experts[-1]:
                yield ENTER_BACKWARD
            self._operator(layer, operator, saved)
            if operator.kind == LOSS:
                yield LOSS_GRADIENT
            if experts and operator is experts[0]:
                yield LEAVE_BACKWARD

    def _operator(self, layer: LayerMemory, operator: ModelOperator, saved: int) -> None:
        """Count the backward of one operator, whose forward has kept `saved` bytes."""
        if layer.whole(operator):  # the whole table's gradient is cut when all others have been added up
            # ... but one of the two of a tied table at once: then both and their sum live.
            both = 2 * layer.gradient(operator) if self.late and layer.sums_tied(operator) else 0
            self.ledger.rise(activations=layer.beside(operator) + both)
            self.ledger.change(activations=-self.late)
            self.late = 0
        stays, lives = self._gradient(layer, operator)
        self.ledger.rise(stays, self._live_during(layer, operator) - stays)
        self.ledger.change(gradients=stays, activations=lives - saved)
        if self.last and layer.routed is not None and operator.experts and not self.stage.scatters:
            self.ledger.change(activations=layer.made_bytes(operator))  # in a bucket of the block, until the end of the step
        self.late += 0 if self.first else lives

    def _gradient(self, layer: LayerMemory, operator: ModelOperator) -> tuple[int, int]:
        """Return the bytes of an operator's gradient that live on after its backward, and those that live only during it."""
        tied = layer.sums_tied(operator)
        if self.stage.adds or (tied and operator.kind == LOOKUP):  # it is added at once to one that lives already
            return 0, 0
        stays = self.stage.stays(layer, operator, first=self.first)
        lives = self.first or tied or self._adds_late(layer, operator)
        return stays, layer.waits(operator) - stays if lives else 0

    def _live_during(self, layer: LayerMemory, operator: ModelOperator) -> int:
        """Return the bytes that live while an operator's backward runs.

        A gradient of a whole table that is cut at once is among them.
        """
        made, whole = layer.made_bytes(operator), layer.whole(operator)
        if not whole:
            return layer.beside(operator) + made
        return whole + (made if layer.waits(operator) == made else 0)

    def _adds_late(self, layer: LayerMemory, operator: ModelOperator) -> bool:
        """Return whether autograd adds up a gradient only at the end of the backward.

        It does so with the gradients of DTensors, but not with that of a whole table, nor with those of experts to which token
        rows are sent.
        """
        if (operator.kind == LOOKUP and not operator.cut) or layer.travels(operator):
            return False
        return layer.has_dtensors and not self.stage.scatters and not layer.plan.splits


FLOAT32 = 4
# Weight, gradient, and the two moments of AdamW.
_STATES = 4
# Beside what is saved, as the backward pass begins: the logits, and two gradients of that size on the way through the loss.
_LOGITS = 3
# Emu, PyTorch and numba, imported, before any tensor is made.
PROCESS_BYTES = 500_000_000
RANK_BYTES = 4_000_000


def rank_bytes(model: Model, plan: Plan) -> int:
    """Return the peak bytes of one rank in float32 with AdamW, at the first gradient of a pass or in the optimizer."""
    states = _STATES + (1 if plan.copies > 1 and not plan.shards_weights else 0)
    # What is sharded is so over all ranks that hold it, of experts too. An end of a pipeline holds somewhat more.
    held = model.parameters(plan.tp) // plan.holders if plan.holders > 1 else model.parameters(plan.tp, plan.ep, plan.etp)
    weights = FLOAT32 * held // plan.pp
    tokens = Tokens(plan.rank_seq, plan.seq if plan.cp_comm == "all_gather" else 0, plan.pass_batch)
    cut = Cut(plan.tp, plan.ep, plan.etp)
    kept = model.saved(tokens, cut).bytes() + FLOAT32 * tokens.n * (_LOGITS * model.vocab + (model.hidden if cut.tp > 1 else 0))
    table = FLOAT32 * model.vocab * model.hidden if cut.tp > 1 else 0  # DTensor's gradient of an embedding is whole at first
    return max(states * weights + table, (states - 1) * weights + kept)


def host_bytes(model: Model, plan: Plan, kept: int = 0) -> int:
    """Return the peak bytes of one host that runs every rank of a plan, and then the reference on one device.

    Args:
        model: The model that is trained.
        plan: The plan.
        kept: The number of copies of the gradients or weights of all ranks, and of the reference, that are kept.
    """
    shard, whole = model.parameters(plan.tp), model.parameters()
    rank = rank_bytes(model, plan) + FLOAT32 * kept * shard + RANK_BYTES
    alone = rank_bytes(model, plan.alone()) + FLOAT32 * kept * whole
    return PROCESS_BYTES + plan.world * rank + alone


BUCKET = 25 << 20  # bytes of gradients that are averaged at once: torch.nn.parallel.DistributedDataParallel's
_INDEX, _COUNT = 8, 4  # bytes of a token's index, and of AdamW's count of steps


PeakBytes = tuple[int, int, int, int]  # bytes of a rank at its peak, by part: in the order of `emu.trace.trace.PARTS`


@dataclass(frozen=True)
class RankMemory:
    """The layers of a rank by stage of the pipeline, and the bytes that live during the whole step."""

    plan: Plan
    stack: Stack
    stages: Mapping[int, tuple[LayerMemory, ...]]  # in the first pass of the step

    def opened(self) -> Ledger:
        """Return a ledger with all bytes that live during the whole step, without the optimizer's state."""
        gradients = sum(layer.gradient(operator) for layer in self._layers() for operator in layer.operators)
        always = LiveBytes(self._weights, gradients if self.software.adds_gradients else 0, self._buffers)
        pools = Pools(sum(always))
        return Ledger(always, always, pools, pools)

    def peak(self, ledger: Ledger, places: tuple[int, int] = (0, 0)) -> PeakBytes:
        """Return the bytes of the rank at its peak.

        Args:
            ledger: The ledger of the step, which began as `opened` returned it.
            places: The rank's positions among the ranks that divide the optimizer's states: for experts to which token rows are
                sent (second), and for all other parameters (first).
        """
        weights, gradients, activations = ledger.peak
        return weights, gradients, self._optimizer_state(places), activations

    def reserved(self, ledger: Ledger) -> int:
        """Return the bytes that PyTorch's allocator requests from the device: the sum of the peaks of all streams' pools."""
        return sum(ledger.reserved) + self._optimizer_state((0, 0))

    def of_pass(self, stage: int, layers: tuple[LayerMemory, ...] = ()) -> StageMemory:
        """Return the memory of a pass through a stage.

        Args:
            stage: The number of the stage.
            layers: Its layers in the pass, if other token rows are sent than in the first pass; (): those of the first pass.
        """
        layers, last = layers or self.stages[stage], stage == self.plan.stages - 1
        gives, takes = not last and stage + 1 not in self.stages, stage > 0
        between = layers[0].between if self.software.keeps_messages else 0  # else it is freed as soon as it is sent
        beside = stage - 1 in self.stages  # what one stage of a rank gives another takes the place of a buffer
        # What sequence parallelism gathers is not the buffer.
        ends = between * (gives - takes), between * (takes - beside), between * (not last and not self.plan.sp)
        return StageMemory(layers, *ends, self.plan.shards_weights, self.software.adds_gradients)

    @property
    def software(self) -> Software:
        """The software that runs the step."""
        return self.stack.software

    @cached_property
    def _sizes(self) -> dict[bool, list[int]]:
        """The elements of each parameter, by whether it belongs to experts to which token rows are sent (True)."""
        found: dict[bool, list[int]] = {False: [], True: []}
        for operator in (operator for layer in self._layers() for operator in layer.operators):
            found[self.plan.exchanges and bool(operator.experts)].extend(operator.sizes)
        return found

    @property
    def _weights(self) -> int:
        """Bytes of the weights that always live, with the constants of their modules."""
        size = item_bytes(self.stack.precision.weight)
        own = 0
        for travels, sizes in self._sizes.items():
            own += size * sum(sizes) // (self.plan.sharers(travels=travels) if self.plan.shards_weights else 1)
        return own + sum(layer.table_bytes for layer in self._layers()) + self._masks

    @property
    def _masks(self) -> int:
        """The bytes of the float32 attention masks of all stages; 0 unless each rank gathers all keys."""
        plan = self.plan
        if plan.cp == 1 or plan.cp_comm != "all_gather" or not self.software.is_eager:
            return 0
        return 4 * plan.rank_seq * plan.seq * len(self.stages)

    @property
    def _buffers(self) -> int:
        """Bytes of tokens and targets, of DDP's buckets, and of the buffers for other stages' messages, in all microbatches."""
        plan, layer = self.plan, next(iter(self._layers()))
        found = 2 * _INDEX * plan.rank_batch * plan.rank_seq
        if self.software.keeps_messages:
            sides = sum((n > 0) + (n < plan.stages - 1) for n in self.stages)
            found += sides * plan.passes * layer.between
        if not self.software.adds_gradients and plan.copies > 1 and not plan.shards_weights and not plan.splits:
            found += sum(each.averaged for each in self._layers())
        return found

    def _optimizer_state(self, places: tuple[int, int]) -> int:
        """Return the bytes of the optimizer's state."""
        found, by_tensor = 0, self.software.updates_tensors
        for travels, sizes in self._sizes.items():
            sharers = self.plan.sharers(travels=travels)
            whole = self.plan.shards_only_optimizer and by_tensor
            own = owned_by(sizes, sharers)[places[travels]] if whole else sizes
            found += self.stack.precision.kept_bytes * -(-sum(own) // (1 if whole else sharers))
            found += _COUNT * len(own) if by_tensor else 0
        return found

    def _layers(self) -> Iterable[LayerMemory]:
        return (layer for of_stage in self.stages.values() for layer in of_stage)


def owned_by(sizes: Iterable[int], ranks: int) -> list[list[int]]:
    """Return, for each rank, the sizes of the parameters whose optimizer state it has.

    The parameters are dealt out from the largest on, each to the rank that has the fewest elements so far. Source: PyTorch,
    torch/distributed/optim/zero_redundancy_optimizer.py.
    """
    owned: list[list[int]] = [[] for _ in range(ranks)]
    least = [(0, rank) for rank in range(ranks)]
    for size in sorted(sizes, reverse=True):
        total, rank = least[0]
        owned[rank].append(size)
        heapreplace(least, (total + size, rank))
    return owned
