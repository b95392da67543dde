"""The check that the ranks of a plan learn the same as one process: real steps on both, then losses and gradients compared.

Losses are those of two runs, each by itself. Gradients are compared where both have equal weights: at the first step, and at
the last, for which one process takes the weights that the ranks had before it. In between, weights differ: AdamW makes whole
steps from gradients that are 0 but for rounding, and with other weights a router may choose another expert.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import Tensor

from emu.cluster.threads.threads import LocalCluster
from emu.collective.choice import Choice
from emu.errors import RunError
from emu.study.training.learn.checkpoints import mean_loss
from emu.study.training.learn.program import Program, RankOutcome
from emu.trace.trace import Trace

# Of the first step, where the weights are equal: beyond this the run computes something else than the reference.
LOSS_TOLERANCE = 1e-5
GRADIENT_TOLERANCE = 1e-4
_ROUNDING = float(np.finfo(np.float32).eps)

RunOn = Callable[[int, Choice, Callable[[int], RankOutcome]], tuple[list[RankOutcome], Trace]]  # as `Cluster.run_traced`
on_threads: RunOn = LocalCluster().run_traced


@dataclass(frozen=True, slots=True)
class LearningResult:
    """The result of steps that really ran, on the ranks and on one process: the trace and the losses."""

    trace: Trace
    loss: tuple[float, ...]  # by step, the mean over the ranks, taken outside the trace
    reference_loss: tuple[float, ...]
    gradient_error: float  # as `gradient_error` has it, at the first and the last step, from equal weights
    wall_run_s: float
    wall_reference_s: float
    wall_step_s: float  # the median of one process's own steps, of which nothing is recorded
    wall_step_cpu_s: float  # the same, but only the seconds in which its thread computed


def learn(program: Program, choice: Choice, run_on: RunOn = on_threads, reference: RankOutcome | None = None) -> LearningResult:
    """Run the program on one process and on the ranks of its plan; return the losses and the largest difference of gradients.

    Args:
        program: The program. If it begins at a checkpoint, it has the losses of the steps before.
        choice: The algorithms of its requests.
        run_on: The cluster on which the ranks run.
        reference: The result of one process, if it has run already.

    Raises:
        RunError: The run failed, or its first step differs from the reference by more than the tolerance.
    """
    began = time.perf_counter()
    reference = program.reference() if reference is None else reference
    ran = time.perf_counter()
    outcomes, trace = run_on(program.plan.world, choice, program)
    wall_run_s = time.perf_counter() - ran
    if program.steps > 1:
        last = program.reference_gradients(_wholes(outcomes, reference.gradients[0]))
        reference = replace(reference, gradients={**reference.gradients, program.steps - 1: last})
    wall_reference_s = time.perf_counter() - began - wall_run_s
    before = () if program.kept is None else program.kept.before
    loss = (*before, *mean_loss([o.loss for o in outcomes]))
    known = [step for step in sorted(reference.gradients) if step >= program.first]
    errors = [gradient_error(reference, outcomes, step) for step in known]
    if not program.first:
        check_first_step(loss[0], reference.loss[0], errors[0])
        check_norms(outcomes, reference)
    own = np.median(reference.took_s, axis=0).tolist()
    walls = wall_run_s, wall_reference_s, *own
    return LearningResult(trace, loss, reference.loss, float(np.max(errors)), *walls)


def check_first_step(loss: float, reference: float, error: float) -> None:
    """Check that the first step agrees with that of one process.

    Args:
        loss: The loss.
        reference: The loss on one process.
        error: The difference of the gradients, as `gradient_error` returns it.

    Raises:
        RunError: The loss or a gradient differs by more than the tolerance, or is not a number.
    """
    if not abs(loss - reference) <= LOSS_TOLERANCE * abs(reference):  # so written, it refuses a NaN too
        raise RunError(f"train: the first loss is {loss:.7g}, but {reference:.7g} on one process; 1e-5 relative is allowed")
    if not error <= GRADIENT_TOLERANCE:
        raise RunError(f"train: the first gradients differ by {error:.3g} from those of one process; 1e-4 is allowed")


def check_norms(outcomes: Sequence[RankOutcome], reference: RankOutcome) -> None:
    """Check that each rank has the same norm of the first gradients as a single process.

    AdamW's steps would hardly show the difference.

    Raises:
        RunError: a norm beyond the tolerance of gradients, or not a number.
    """
    for rank, outcome in enumerate(outcomes if reference.norms else ()):
        found, wanted = outcome.norms[0], reference.norms[0]
        if not abs(found - wanted) <= GRADIENT_TOLERANCE * wanted:
            raise RunError(
                f"train: the norm of the first gradients is {found:.7g} on rank {rank}, but {wanted:.7g} on one process; "
                "1e-4 relative is allowed"
            )


def _wholes(outcomes: Sequence[RankOutcome], like: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return whole weights by name, put together from the blocks that the ranks have; NaN where no rank has a block.

    Args:
        outcomes: The results of the ranks.
        like: A tensor by name with the shape of each whole weight.
    """
    wholes = {name: torch.full_like(each, torch.nan) for name, each in like.items()}
    for outcome in outcomes:
        for name, part in outcome.weights.items():
            outcome.held[name].cut(wholes[name]).copy_(part)
    return wholes


def gradient_error(reference: RankOutcome, outcomes: Sequence[RankOutcome], step: int) -> float:
    """Return the largest max |g - g_ref| / max |g_ref| over the parameters.

    Each rank's part is compared with that part of the whole. A gradient that is 0 but for rounding is divided by the largest
    gradient of any parameter, because rounding alone differs from run to run. The gradients of queries and keys are such where
    a sequence is one token.

    Raises:
        RunError: A rank has the gradients of other parameters than it holds, no rank has the gradient of one, or a part has
            another shape.
    """
    wholes = reference.gradients[step]
    for rank, outcome in enumerate(outcomes):
        got, wanted = outcome.gradients[step].keys(), wholes.keys() & outcome.held.keys()
        if got != wanted:
            raise RunError(f"train: rank {rank} has gradients of {len(got)} parameters, not of the {len(wanted)} that it holds")
    missing = sorted(wholes.keys() - {name for outcome in outcomes for name in outcome.gradients[step]})
    if missing:
        raise RunError(f"train: no rank has the gradient of {missing[0]}, nor of {len(missing) - 1} others")
    largest = {name: float(whole.abs().max()) for name, whole in wholes.items()}
    most = float(np.max(list(largest.values())))  # np.max, as max() may skip a NaN
    scale = {name: most if of_one <= most * _ROUNDING else of_one for name, of_one in largest.items()}
    worst = {name: _difference(name, whole, outcomes, step) for name, whole in wholes.items()}
    return float(np.max([worst[name] / (scale[name] or 1.0) for name in wholes]))


def _difference(name: str, whole: Tensor, outcomes: Sequence[RankOutcome], step: int) -> float:
    """Return the largest absolute difference between a rank's gradient of one parameter and that of one process."""
    differences = [0.0]
    for rank, outcome in enumerate(outcomes):
        if name not in outcome.held:
            continue
        part, expected = outcome.gradients[step][name], outcome.held[name].cut(whole)
        if part.shape != expected.shape:
            raise RunError(f"train: rank {rank} has {list(part.shape)} of the gradient of {name}, not {list(expected.shape)}")
        if part.numel():  # a rank may have nothing of what is cut into more parts than it has rows
            differences.append(float((part - expected).abs().max()))
    return float(np.max(differences))
