"""What does a training step cost on a machine that is not there, and does it learn what one process learns?

Real steps run on emulated NPUs and are held against one process; what they did is then timed on each topology.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import psutil

from emu.collective.algorithm import Choice
from emu.errors import InputError, must_be
from emu.model.memory.memory import host_bytes
from emu.model.model import Model
from emu.model.plan.plan import Plan
from emu.model.plan.plan_checks import check_executed, check_fits, check_world
from emu.model.plan.plan_text import spell
from emu.model.read import anywhere, find_model
from emu.study.choice.chooser import choice_on
from emu.study.training.estimate import EstimateRequest, check_words
from emu.study.training.learn.learn import Learned, RunOn, learn, on_threads
from emu.study.training.learn.program import Program
from emu.study.training.learn.text import check_text, read_text
from emu.study.training.step.choices import with_choice, with_words
from emu.study.training.step.rate import with_work
from emu.study.training.step.step import Step, TimedTrace, time_trace
from emu.topology.fault_injection.repair_action import RankLoss as Loss
from emu.topology.placement import place
from emu.topology.topology import Topology
from emu.trace.device.device import Device
from emu.trace.device.dtypes import AS_RAN
from emu.trace.trace import COMMAND
from emu.units import format_size


@dataclass(frozen=True, slots=True)
class TrainRequest:
    """What to train, and for how long."""

    model: str
    plan: Plan
    text: bytes = field(default_factory=read_text, repr=False)
    steps: int = 5
    seed: int = 0
    learning_rate: float = 1e-3
    dtype: str = "bfloat16"  # what float32 is timed as, or `AS_RAN`
    algorithms: tuple[str, ...] = ()  # OPERATION=NAME, or `auto`: on the first topology when it runs, on each when it is timed


@dataclass(frozen=True, slots=True, kw_only=True)
class Trained(Step):
    """A run on one topology: its step, and what it learned."""

    model: str
    plan: str
    loss: tuple[float, ...]  # by step
    reference_loss: tuple[float, ...]
    gradient_error: float  # max |g - g_ref| / max |g_ref| over parameters, at the first and the last step, from equal weights
    wall_run_s: float
    wall_reference_s: float
    wall_step_s: float  # as the next, of `Learned`
    wall_step_cpu_s: float


def train(
    request: TrainRequest, topologies: Sequence[Topology], device: Device, run_on: RunOn = on_threads
) -> Iterator[Trained]:
    """Train once, and time what ran on each topology.

    Args:
        request: What to train.
        topologies: Where it is timed; ranks sit on the first NPUs.
        device: What times computation.
        run_on: Where the ranks really run.

    Raises:
        InputError: a plan that fits neither model, text nor topology, or a run that the host cannot hold.
        RunError: the run failed, or the first step differs from the reference.
    """
    learned = run_steps(request, topologies, device, run_on)
    for topology in topologies:
        yield time_steps(request, learned, topology, device)[0]


def run_steps(
    request: TrainRequest,
    topologies: Sequence[Topology],
    device: Device,
    run_on: RunOn = on_threads,
    lost: Sequence[Loss] = (),
) -> Learned:
    """The steps themselves, before any fabric; arguments and errors as of `train`.

    Args:
        request: What to train.
        topologies: Where it is timed.
        device: What times computation.
        run_on: Where the ranks really run.
        lost: Ranks that are lost on the way.

    Raises:
        LostError: one was.
    """
    program, choice = program_of(request, topologies, device)
    learned = learn(replace(program, lost=tuple(lost)), choice, run_on)
    ran = replace(learned.trace, meta=((COMMAND, "train"), *learned.trace.meta))
    noted = with_words(with_choice(ran, choice), request.algorithms, topologies, request.dtype)
    return replace(learned, trace=with_work(noted, find_model(request.model), request.plan))


def program_of(request: TrainRequest, topologies: Sequence[Topology], device: Device) -> tuple[Program, Choice]:
    """What the ranks do, and what serves their requests; errors as of `train`, before anything runs."""
    model = find_model(request.model)
    for topology in topologies:
        check_world(request.plan, model, topology.n_npus, topology.name)
        place(topology, request.plan.world)
    _check(request, model, device)
    choice = choice_on(topologies[0], request.algorithms, request.dtype)
    for topology in topologies:
        check_words(EstimateRequest(model, request.plan, algorithms=request.algorithms), model, topology)
    spoken = anywhere(request.model), request.plan, request.text, request.steps, request.seed, request.learning_rate
    return Program(*spoken), choice


def _check(request: TrainRequest, model: Model, device: Device) -> None:
    check_fits(request.plan, model)
    check_executed(request.plan, model)
    device.peak("float32" if request.dtype == AS_RAN else request.dtype)
    check_text(request.text, request.plan, model.vocab)
    if request.steps < 1:
        raise must_be("train", "steps", "1 or more", request.steps)
    # Gradients of the first and of the last step, and the weights before the last.
    kept = 3 if request.steps > 1 else 1
    needed, free = host_bytes(model, request.plan, kept), psutil.virtual_memory().available
    if needed > free:
        where = f"{request.plan.world} ranks ({spell(request.plan)})"
        raise InputError(
            f"train: {model.name} on {where} takes about {format_size(needed)} of memory, "
            f"and this host has {format_size(free)} free; take a smaller model, batch, sequence or plan"
        )


def time_steps(request: TrainRequest, learned: Learned, topology: Topology, device: Device) -> tuple[Trained, TimedTrace]:
    """The steps of a run, timed on one topology: the figures, and the moments that they are of."""
    model, plan = find_model(request.model), request.plan
    choice = choice_on(topology, request.algorithms, request.dtype)
    timed = time_trace(learned.trace, choice, topology, device, request.dtype)
    step = timed.step()
    of_step: dict[str, Any] = {f.name: getattr(step, f.name) for f in fields(Step)}
    trained = Trained(
        **of_step,
        model=model.name,
        plan=spell(plan),
        loss=learned.loss,
        reference_loss=learned.reference_loss,
        gradient_error=learned.gradient_error,
        wall_run_s=learned.wall_run_s,
        wall_reference_s=learned.wall_reference_s,
        wall_step_s=learned.wall_step_s,
        wall_step_cpu_s=learned.wall_step_cpu_s,
    )
    return trained, timed
