"""The training of a plan on emulated NPUs: the ranks learn what one process learns, and their step is timed.

Real steps run on emulated NPUs and are compared with one process. Their trace is then timed on each topology.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from emu.collective.choice import Choice
from emu.errors import must_be
from emu.fabric.packet_fabric import PacketFabric
from emu.host_memory import check_free
from emu.model.memory.executed_memory import host_bytes, rank_bytes
from emu.model.model import Model, anywhere, find_model
from emu.model.plan.plan import Plan
from emu.model.plan.plan_checks import check_fits_model, check_runs, check_world
from emu.model.plan.plan_text import spell
from emu.model.stack.stack import Stack
from emu.study.choice.chooser import choice_on
from emu.study.training.axes import npus_of
from emu.study.training.learn.learn import LearningResult, RunOn, learn, on_threads
from emu.study.training.learn.program import Program, check_text, read_text
from emu.study.training.step.choices import with_choice, with_words
from emu.study.training.step.packet_step import by_packets
from emu.study.training.step.rate import with_work
from emu.study.training.step.step import Step, TimedTrace, shared_fields, time_trace
from emu.study.training.timed_step import GeneratedStep
from emu.topology.fault_injection.machine_state import RankLoss
from emu.topology.placement import place
from emu.topology.topology import Topology
from emu.trace.device.device import Device
from emu.trace.replay.replay import TraceLayout
from emu.trace.timed_dtype import AS_RAN
from emu.trace.trace import COMMAND
from emu.units import format_size


@dataclass(frozen=True, slots=True)
class TrainRequest:
    """A training run: the model, the plan and the number of steps."""

    model: str
    plan: Plan
    text: bytes = field(default_factory=read_text, repr=False)
    steps: int = 5
    seed: int = 0
    learning_rate: float = 1e-3
    dtype: str = "bfloat16"  # the dtype that float32 is timed as, or `AS_RAN`
    algorithms: tuple[str, ...] = ()  # OPERATION=NAME, or `auto`: on the first topology when it runs, on each when it is timed
    packets: PacketFabric | None = None  # the packets by which its step is timed; None: the fluid fabric


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class TrainingResult(Step):
    """The result of a training run on one topology: the figures of its step, and its losses."""

    model: str
    plan: str
    loss: tuple[float, ...]  # by step
    reference_loss: tuple[float, ...]
    gradient_error: float  # max |g - g_ref| / max |g_ref| over parameters, at the first and the last step, from equal weights
    wall_run_s: float
    wall_reference_s: float
    wall_step_s: float  # this and the next as in `LearningResult`
    wall_step_cpu_s: float


def train(
    request: TrainRequest, topologies: Sequence[Topology], device: Device, run_on: RunOn = on_threads
) -> Iterator[TrainingResult]:
    """Train once, and yield the result on each topology.

    Args:
        request: The training run.
        topologies: The topologies on which it is timed; ranks are on the first NPUs.
        device: The device that times computation.
        run_on: The cluster on which the ranks really run.

    Raises:
        InputError: The plan does not fit the model, the text or a topology, or the host lacks memory for the run.
        RunError: The run failed, or its first step differs from that of one process.
    """
    learned = run_steps(request, topologies, device, run_on)
    for topology in topologies:
        yield time_steps(request, learned, topology, device)[0]


def run_steps(
    request: TrainRequest,
    topologies: Sequence[Topology],
    device: Device,
    run_on: RunOn = on_threads,
    lost: Sequence[RankLoss] = (),
) -> LearningResult:
    """Run the steps, and return their result before any timing; arguments and errors as in `train`.

    Args:
        request: The training run.
        topologies: The topologies on which it is timed.
        device: The device that times computation.
        run_on: The cluster on which the ranks really run.
        lost: The ranks that are lost on the way.

    Raises:
        LostError: A rank was lost.
    """
    program, choice = program_of(request, topologies, device)
    learned = learn(replace(program, lost=tuple(lost)), choice, run_on)
    ran = replace(learned.trace, meta=((COMMAND, "train"), *learned.trace.meta))
    noted = with_words(with_choice(ran, choice), request.algorithms, topologies, request.dtype)
    return replace(learned, trace=with_work(noted, find_model(request.model), request.plan, Stack()))


def program_of(request: TrainRequest, topologies: Sequence[Topology], device: Device) -> tuple[Program, Choice]:
    """Return the program of the ranks and the algorithms of their requests, before anything runs."""
    model = find_model(request.model)
    for topology in topologies:
        check_world(request.plan, model, topology.n_npus, topology.name)
        place(topology, request.plan.world)
        if request.packets is not None:
            _check_cell(request.packets.on(topology).network.cell_bytes, rank_bytes(model, request.plan))
    _check(request, model, device)
    choice = choice_on(topologies[0], request.algorithms, request.dtype)
    generated = GeneratedStep(model, request.plan, Stack())
    for topology in topologies:
        generated.check_words(request.algorithms, npus_of(topology, request.plan, ()), topology)
    spoken = anywhere(request.model), request.plan, request.text, request.steps, request.seed, request.learning_rate
    return Program(*spoken), choice


def _check(request: TrainRequest, model: Model, device: Device) -> None:
    """Check that a plan, a text and a number of steps can run, and that this host has enough memory."""
    check_fits_model(request.plan, model)
    check_runs(request.plan, model)
    device.peak("float32" if request.dtype == AS_RAN else request.dtype)
    check_text(request.text, request.plan, model.vocab)
    if request.steps < 1:
        raise must_be("train", "--steps", "1 or more", request.steps)
    # Gradients of the first and of the last step, and the weights before the last.
    kept = 3 if request.steps > 1 else 1
    what = f"{model.name} on {request.plan.world} ranks ({spell(request.plan)}) takes about"
    check_free("train", what, host_bytes(model, request.plan, kept), "take a smaller model, batch, sequence or plan")


def _check_cell(cell_bytes: int, held_bytes: int) -> None:
    """Check that a cell is no larger than all that a rank holds; messages, which are parts of that, are known after the run."""
    if cell_bytes > held_bytes:
        what = f"at most the largest message, which is a part of the {format_size(held_bytes)} that a rank holds"
        raise must_be("network", "cell", what, format_size(cell_bytes), "take a smaller cell")


def time_steps(
    request: TrainRequest, learned: LearningResult, topology: Topology, device: Device
) -> tuple[TrainingResult, TimedTrace]:
    """Return the steps of a run timed on one topology: the figures, and the times of all tasks."""
    model, plan = find_model(request.model), request.plan
    choice = choice_on(topology, request.algorithms, request.dtype)
    timed = time_trace(TraceLayout(learned.trace, choice, topology, device, request.dtype))
    timed = timed if request.packets is None else by_packets(timed, request.packets)
    figures = {**shared_fields(timed.step(), Step), **shared_fields(learned, TrainingResult)}
    return TrainingResult(**figures, model=model.name, plan=spell(plan)), timed
