"""The program of every rank of a training run on the bytes of a text, and the same steps on one process."""

import os
import signal
import time
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from pydoc_data.topics import topics
from types import MappingProxyType, ModuleType

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional
from torch.optim import Optimizer

from emu.arrays import I64
from emu.backend.rank.operator_counter import pause_counting, track
from emu.backend.rank.record import declare_equal_work, without_recording
from emu.errors import InputError, LostError, must_be
from emu.files import read_input
from emu.model.model import find_model
from emu.model.parallel.data_parallel import accumulate, clip_gradients, optimizer_of
from emu.model.parallel.mesh import Meshes, ParameterPart, build_meshes
from emu.model.parallel.parallel_model import ParallelModel, build_module, parallelize, single_rank_model
from emu.model.plan.plan import Plan
from emu.study.training.learn.checkpoints import CheckpointFolder
from emu.topology.fault_injection.machine_state import RankLoss


def read_text(path: Path | None = None) -> bytes:
    """Return the bytes of a file; without a path, the English text of the standard library's help topics.

    Raises:
        InputError: The file cannot be read.
    """
    if path is None:
        return "".join(topics.values()).encode()
    return read_input("--data", path, most=None)


def check_text(text: bytes, plan: Plan, vocab: int) -> None:
    """Check that a text has at least one sequence, and that the vocabulary covers all byte values.

    Raises:
        InputError: the message says how many bytes are needed.
    """
    if len(text) <= plan.seq:
        raise must_be("train", "--data", f"at least {plan.seq + 1} bytes, one sequence", len(text))
    if vocab < 256:
        raise InputError(f"train: the data are bytes, and the model's vocabulary has {vocab} tokens of the 256 needed")


def batch(text: bytes, plan: Plan, step: int) -> I64:
    """Return [global_batch, seq + 1] the tokens of a step, one sequence after another; at the end the text begins again."""
    tokens = np.frombuffer(text, np.uint8)
    first = (step * plan.global_batch + np.arange(plan.global_batch)) * plan.seq % (len(tokens) - plan.seq)
    return np.asarray(tokens[first[:, None] + np.arange(plan.seq + 1)], np.int64)


@dataclass(frozen=True, slots=True)
class RankOutcome:
    """The result of one rank: its losses, and the gradients and weights that are compared."""

    loss: tuple[float, ...]  # by step, the mean over the rank's own tokens
    gradients: Mapping[int, Mapping[str, Tensor]]  # by step (the first and the last) and parameter: this rank's shards
    held: Mapping[str, ParameterPart]  # which part of each parameter the rank has
    weights: Mapping[str, Tensor]  # before the last step, unless it is the first: this rank's shards
    norms: tuple[float, ...]  # by step, the norm of all gradients of the run before they are cut; none where they are not cut
    took_s: tuple[tuple[float, float], ...]  # by step, seconds of this host, and those of them that the thread computed


_Passes = Callable[
    [Tensor, Tensor], list[Tensor]
]  # takes tokens and targets of a step forward and backward, and returns the losses
_NO_SHAPES: Mapping[str, torch.Size] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class Program:
    """Real training steps as a callable: called with a rank, it trains as that rank of the default process group."""

    model: str
    plan: Plan
    text: bytes
    steps: int
    seed: int
    learning_rate: float
    lost: tuple[RankLoss, ...] = ()  # ranks that do not come to the end
    dies: bool = False  # whether the process of a lost rank ends with it
    kept: CheckpointFolder | None = None  # where what is trained is kept; None: nowhere
    first: int = 0  # steps that were done before, as the checkpoint has them

    def __call__(self, rank: int) -> RankOutcome:
        """Train as one rank of the plan, and return its outcome."""
        model = find_model(self.model)
        with pause_counting():  # the whole weights are the host's: an NPU holds its parts only
            whole = build_module(model, self.plan, self.seed)
        shapes = {name: parameter.shape for name, parameter in whole.named_parameters()}
        meshes = build_meshes(self.plan)
        return self._train(parallelize(whole, model, meshes, self.plan, rank), meshes, rank, shapes)

    def reference(self) -> RankOutcome:
        """Train on one process with the same initial weights and the whole batch, and return the outcome."""
        with one_thread():
            return self._single_rank_program()._train(self._single_rank_model(), None, 0)

    def reference_gradients(self, weights: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Return the gradients of the last step on the whole batch, computed by one process from the given weights."""
        parallel, single = self._single_rank_model(), self._single_rank_program()
        with one_thread():
            with torch.no_grad():
                for name, parameter in parallel.parameters.items():
                    parameter.copy_(weights[name])
            single._runner(parallel, None)(*single._tokens(0, self.steps - 1))
            return parallel.gradients()

    def _single_rank_program(self) -> "Program":
        """Return this program for a single rank with the whole batch."""
        return replace(self, plan=self.plan.alone(), lost=(), kept=None, first=0)

    def _single_rank_model(self) -> ParallelModel:
        """Return the model that a single rank with the whole batch trains."""
        return single_rank_model(build_module(find_model(self.model), self.plan, self.seed), self.plan)

    def _train(
        self, parallel: ParallelModel, meshes: Meshes | None, rank: int, shapes: Mapping[str, torch.Size] = _NO_SHAPES
    ) -> RankOutcome:
        """Run all steps on a parallelized model, and return the result of this rank."""
        track([*parallel.parameters.values(), *(b for stage in parallel.stages.values() for b in stage.buffers())])
        optimizer = optimizer_of(parallel.parameters, parallel.travelling, self.plan, meshes, self.learning_rate)
        run = self._runner(parallel, meshes)
        self._resume(parallel, optimizer, run, rank, shapes)
        if not find_model(self.model).experts:  # tokens choose theirs, so that each rank may have others
            declare_equal_work(self._work(parallel, rank))
        losses, norms, gradients, weights, took = [], [], {}, {}, []
        for step in range(self.first, self.steps):
            self._lose(rank, step)
            if 0 < step == self.steps - 1:
                weights = parallel.weights()
            began = time.perf_counter(), time.thread_time()
            losses.append(run(*self._tokens(rank, step)))
            parallel.settle()
            if step in (0, self.steps - 1):
                gradients[step] = parallel.gradients()
            norms += self._clipped(parallel, meshes)
            optimizer.step()
            optimizer.zero_grad()
            self._save_if_due(step + 1, rank, losses, (parallel, optimizer, shapes))
            took.append((time.perf_counter() - began[0], time.thread_time() - began[1]))
        return RankOutcome(_step_losses(losses), gradients, parallel.held, weights, tuple(norms), tuple(took))

    def _resume(
        self, parallel: ParallelModel, optimizer: Optimizer, run: _Passes, rank: int, shapes: Mapping[str, torch.Size]
    ) -> None:
        """Load the weights and states that were kept before the first step, if any were.

        One pass runs before, and its result is dropped: DDP reorders its buckets after its first pass, and sums would have
        other bits.
        """
        if self.kept is None or not self.first:
            return
        with without_recording():
            if not self.plan.shards_weights:
                run(*self._tokens(rank, self.first))
                parallel.settle()
                optimizer.zero_grad()
        checkpoint = _checkpoint()
        checkpoint.empty_states(optimizer)
        with without_recording():
            checkpoint.load_parts(self.kept.of_step(self.first), parallel, optimizer, shapes)

    def _save_if_due(
        self,
        step: int,
        rank: int,
        losses: Sequence[Sequence[Tensor]],
        states: tuple[ParallelModel, Optimizer, Mapping[str, torch.Size]],
    ) -> None:
        """Save a checkpoint if this step is due for one, and remove older ones."""
        if self.kept is not None and self.kept.after(step):
            with without_recording():
                self.kept.write(step, rank, self.plan.world, _step_losses(losses))
                _checkpoint().save_parts(self.kept.of_step(step), *states)
                self.kept.drop_before(step, rank)

    def _clipped(self, parallel: ParallelModel, meshes: Meshes | None) -> list[float]:
        """Clip the gradients, and return their norm before clipping as a list; empty if the plan does not clip."""
        if not self.plan.clip:
            return []
        norm = clip_gradients(parallel.parameters, parallel.held, meshes, self.plan.clip)
        with pause_counting():  # which only the comparison reads
            return [norm.item()]

    def _lose(self, rank: int, step: int) -> None:
        """End this rank if it is to be lost at this step, by raising an error."""
        for loss in self.lost:
            if loss.step == step + 1 and loss.rank in (rank, None):
                if self.dies and loss.rank is not None:
                    os.kill(os.getpid(), signal.SIGKILL)
                raise LostError(f"{loss}; --elastic --checkpoint DIR goes on")

    def _work(self, parallel: ParallelModel, rank: int) -> Hashable:
        """Return a key that is equal for ranks with equal work: their coordinates and the shapes of their parameters."""
        at = self.plan.coordinates(rank)
        states = at["dp"] if self.plan.shards_only_optimizer else 0  # whole parameters are shared out
        return at["pp"], at["cp"], states, tuple((name, held.shape, held.again) for name, held in parallel.held.items())

    def _runner(self, parallel: ParallelModel, meshes: Meshes | None) -> _Passes:
        """Return a function that runs the forward and backward passes of a step on tokens and targets, and returns losses."""
        if meshes is None or self.plan.pp == 1:
            return partial(accumulate, parallel.module, self.plan.passes, loss)
        with pause_counting():  # it loads slowly, and operators run while it loads
            from emu.model.parallel.pipeline_parallel import Pipeline
        return Pipeline(parallel.stages, find_model(self.model), self.plan, meshes.dense, loss).step

    def _tokens(self, rank: int, step: int) -> tuple[Tensor, Tensor]:
        """Return tokens and targets [sequences, tokens] of this rank's share of the batch."""
        share, first = self.plan.rank_batch, self.plan.coordinates(rank)["dp"] * self.plan.rank_batch
        at = self.plan.positions(rank)
        with pause_counting():
            sequences = batch(self.text, self.plan, step)[first : first + share]
            return torch.from_numpy(sequences[:, at]), torch.from_numpy(sequences[:, at + 1])


def _checkpoint() -> ModuleType:
    """Import the module of checkpoints and return it; it loads DCP, which takes long."""
    with pause_counting():
        from emu.model.parallel import checkpoint
    return checkpoint


def _step_losses(losses: Sequence[Sequence[Tensor]]) -> tuple[float, ...]:
    """Return the loss of each step, if this rank has the last stage."""
    return tuple(sum(t.item() for t in step) for step in losses if step)


@contextmanager
def one_thread() -> Iterator[None]:
    """Limit torch to one thread within the context, because a sum over two threads has other bits."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


def loss(logits: Tensor, targets: Tensor) -> Tensor:
    """Return the mean cross-entropy of logits [B, T, vocab] against tokens [B, T]."""
    return functional.cross_entropy(logits.flatten(0, 1), targets.flatten())
