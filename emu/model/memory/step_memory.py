"""The bytes that live on one rank during the whole step (weights, buffers, the optimizer's state), and the rank's peak."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from heapq import heapreplace

import numpy as np

from emu.arrays import I64
from emu.dtypes import item_bytes
from emu.model.memory.layer_memory import LayerMemory, Ledger, LiveBytes, Pools
from emu.model.memory.pass_memory import StageMemory
from emu.model.plan.plan import Plan
from emu.model.stack.software import Software
from emu.model.stack.stack import Stack

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

    def peak(self, ledger: Ledger, places: tuple[int | I64, int | I64] = (0, 0)) -> PeakBytes:
        """Return the bytes of the rank at its peak.

        Args:
            ledger: The ledger of the step, which began as `opened` returned it.
            places: The rank's positions among the ranks that divide the optimizer's states: for experts to which token rows are
                sent (second), and for all other parameters (first). Of arrays, the rank counts that has most.
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

    def _optimizer_state(self, places: tuple[int | I64, int | I64]) -> int:
        """Return the bytes of the optimizer's state, on the rank that has most at any of some pairs of places."""
        return int(np.max(self._states[False][places[False]] + self._states[True][places[True]]))

    @cached_property
    def _states(self) -> dict[bool, I64]:
        """The bytes of the optimizer's state at each place of the ranks that divide it, by kind of parameters as `_sizes`."""
        found, by_tensor = {}, self.software.updates_tensors
        whole = self.plan.shards_only_optimizer and by_tensor
        for travels, sizes in self._sizes.items():
            sharers = self.plan.sharers(travels=travels)
            owned = owned_by(sizes, sharers) if whole else [sizes]  # else all places have as much
            elements = np.array([-(-sum(own) // (1 if whole else sharers)) for own in owned], np.int64)
            counts = np.array([len(own) * by_tensor for own in owned], np.int64)
            found[travels] = np.broadcast_to(self.stack.precision.kept_bytes * elements + _COUNT * counts, sharers)
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
