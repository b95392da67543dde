"""The bytes of one rank that live during the whole step: weights, the optimizer's state, and buffers.

The bytes of a training run that really runs: of one rank, and of the host that holds all ranks.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from heapq import heapreplace

from emu.dtypes import item_bytes
from emu.model.memory.layer_memory import LayerMemory, Ledger, LiveBytes, Pools
from emu.model.memory.stage_memory import StageMemory
from emu.model.model import Model
from emu.model.operator import Cut, Tokens
from emu.model.plan.plan import Plan
from emu.model.stack.software import Software
from emu.model.stack.stack import Stack

FLOAT32 = 4
# Weight, gradient, and the two moments of AdamW.
_STATES = 4
# Beside what is saved, as the backward pass begins: the logits, and two gradients of that size on the way through the loss.
_LOGITS = 3
# Emu, PyTorch and numba, imported, before any tensor is made.
PROCESS_BYTES = 500_000_000
RANK_BYTES = 4_000_000


def rank_bytes(model: Model, plan: Plan) -> int:
    """Return the peak bytes of one rank in float32 with AdamW: at the first gradient of a pass, or as the optimizer steps."""
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
    """Return the bytes of one host that holds every rank of the plan, and then the reference, which is smaller than all ranks.

    Args:
        model: The model that is trained.
        plan: The plan.
        kept: The copies of gradients or weights of all ranks, and of the reference, that are kept.
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
    """The layers of a rank, by stage of the pipeline, and the bytes of them that live during the whole step."""

    plan: Plan
    stack: Stack
    stages: Mapping[int, tuple[LayerMemory, ...]]  # in the first pass of the step

    def opened(self) -> Ledger:
        """Return a ledger with all bytes that live during the whole step, without the optimizer's state."""
        always = LiveBytes(self._weights, self._gradients if self.software.adds_gradients else 0, self._buffers)
        pools = Pools(sum(always))
        return Ledger(always, always, pools, pools)

    def peak(self, ledger: Ledger, places: tuple[int, int] = (0, 0)) -> PeakBytes:
        """Return the bytes of the rank at its peak.

        Args:
            ledger: The step, on the ledger that `opened` gave.
            places: The rank's places among those that share the optimizer's states: of what all tokens see, and of experts.
        """
        weights, gradients, activations = ledger.peak
        return weights, gradients, self._optimizer_state(places), activations

    def reserved(self, ledger: Ledger) -> int:
        """Return the bytes that PyTorch's allocator asks the device for: the peak of each stream's memory, in all."""
        return sum(ledger.reserved) + self._optimizer_state((0, 0))

    def of_pass(self, stage: int, layers: tuple[LayerMemory, ...] = ()) -> StageMemory:
        """Return the memory of a pass through a stage; its output lives with what it keeps, its input in a buffer of its own.

        Args:
            stage: The number of the stage.
            layers: Its layers in the pass, if other rows travel than in the first.
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
        """Elements of each parameter, by whether it is of experts that tokens travel to."""
        found: dict[bool, list[int]] = {False: [], True: []}
        for operator in (operator for layer in self._layers() for operator in layer.operators):
            found[self.plan.exchanges and bool(operator.experts)].extend(operator.sizes)
        return found

    @property
    def _weights(self) -> int:
        """Bytes of the weights that always live, with constants beside them."""
        size = item_bytes(self.stack.precision.weight)
        own = 0
        for travels, sizes in self._sizes.items():
            own += size * sum(sizes) // (self.plan.sharers(travels=travels) if self.plan.shards_weights else 1)
        return own + sum(layer.table_bytes for layer in self._layers()) + self._masks

    @property
    def _masks(self) -> int:
        """Bytes of a float32 mask for each stage, where each rank gathers all keys: which of them each query sees."""
        plan = self.plan
        if plan.cp == 1 or plan.cp_comm != "all_gather" or not self.software.is_eager:
            return 0
        return 4 * plan.rank_seq * plan.seq * len(self.stages)

    @property
    def _gradients(self) -> int:
        """Bytes of the gradients of all parameters."""
        return sum(layer.weights_gradients for layer in self._layers())

    @property
    def _buffers(self) -> int:
        """Bytes of tokens and targets, of DDP's buckets, and of the buffers for what other stages send, in all microbatches."""
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
    """Return the parameters whose optimizer state each rank has: the largest first, each to the rank with the least.

    Source: PyTorch, torch/distributed/optim/zero_redundancy_optimizer.py.
    """
    owned: list[list[int]] = [[] for _ in range(ranks)]
    least = [(0, rank) for rank in range(ranks)]
    for size in sorted(sizes, reverse=True):
        total, rank = least[0]
        owned[rank].append(size)
        heapreplace(least, (total + size, rank))
    return owned
