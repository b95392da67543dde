"""What every rank of a training run does; and the same steps on one process, without any group, to hold it against."""

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace

import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.parallel import DistributedDataParallel

from emu.backend.rank.count import paused, track
from emu.model.model import MODELS
from emu.model.parallel import Parallel, build_mesh, build_module, parallelize
from emu.model.plan import Plan
from emu.study.training.text import batch


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one rank has to show at the end."""

    loss: tuple[float, ...]  # by step, the mean over the rank's own tokens
    gradients: Mapping[int, Mapping[str, Tensor]]  # by step (the first and the last) and parameter: this rank's shards
    shard_dim: Mapping[str, int]  # of the parameters that are cut


@dataclass(frozen=True, slots=True)
class Program:
    """Real training steps: forward, backward, AdamW; call it with a rank where PyTorch's default group is made."""

    model: str
    plan: Plan
    text: bytes
    steps: int
    seed: int
    learning_rate: float

    def __call__(self, rank: int) -> Outcome:
        """Train as one rank of the plan."""
        model = MODELS.find(self.model)
        with paused():  # the whole weights are the host's: an NPU holds its shards only
            module = build_module(model, self.plan, self.seed)
        return self._train(parallelize(module, build_mesh(self.plan), self.plan, model.shards), rank)

    def reference(self) -> Outcome:
        """Train alone, with the same initial weights, on the whole batch."""
        alone = replace(self, plan=self.plan.alone())
        module = build_module(MODELS.find(self.model), alone.plan, self.seed)
        threads = torch.get_num_threads()
        torch.set_num_threads(1)  # as every rank: a sum over two threads has other bits
        try:
            return alone._train(Parallel(module, dict(module.named_parameters()), {}), 0)
        finally:
            torch.set_num_threads(threads)

    def _train(self, parallel: Parallel, rank: int) -> Outcome:
        track([*parallel.parameters.values(), *parallel.module.buffers()])
        optimizer = torch.optim.AdamW(parallel.parameters.values(), lr=self.learning_rate, fused=True)
        losses, gradients = [], {}
        for step in range(self.steps):
            losses.append(self._accumulate(parallel, self._tokens(rank, step)))
            if step in (0, self.steps - 1):
                gradients[step] = parallel.gradients()
            optimizer.step()
            optimizer.zero_grad()
        return Outcome(tuple(sum(t.item() for t in step) for step in losses), gradients, parallel.shard_dim)

    def _tokens(self, rank: int, step: int) -> Tensor:
        """[passes, sequences at once, seq + 1] of this rank's share of the batch."""
        share, first = self.plan.rank_batch, self.plan.coordinates(rank)["dp"] * self.plan.rank_batch
        with paused():
            mine = torch.from_numpy(batch(self.text, self.plan, step)[first : first + share])
            return mine.view(self.plan.passes, -1, self.plan.seq + 1)

    def _accumulate(self, parallel: Parallel, passes: Tensor) -> list[Tensor]:
        """Losses of the passes of one step, each its share of the rank's mean; only the last backward reduces gradients."""
        losses = []
        for index, tokens in enumerate(passes):
            with _local_only(parallel.module, index < len(passes) - 1)():
                logits = parallel.module(tokens[:, :-1])
                loss = functional.cross_entropy(logits.flatten(0, 1), tokens[:, 1:].flatten()) / len(passes)
                torch.autograd.backward(loss)
            losses.append(loss.detach())
        return losses


def _local_only(module: torch.nn.Module, wanted: bool) -> Callable[[], AbstractContextManager[None]]:
    return module.no_sync if wanted and isinstance(module, DistributedDataParallel) else nullcontext
