"""Training that saves checkpoints in a folder, and goes on from there after a loss, or in a later run."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from emu.arrays import digest
from emu.errors import RunError, must_be
from emu.files import check_folder, make_folder
from emu.model.model_file import find_model
from emu.model.stack.stack import Stack
from emu.study.choice.chooser import choice_on
from emu.study.live.elastic_job import run_elastic, time_elastic, traces_by_plan
from emu.study.live.faulty_job import FaultyJob
from emu.study.live.timed_faults import times_of_trace
from emu.study.training.composed.software_costs import device_under
from emu.study.training.learn.checkpoints import CheckpointFolder, job_of, last
from emu.study.training.learn.learn import RunOn, on_threads
from emu.study.training.train import TrainRequest, program_of
from emu.topology.fault_injection.fault_script import faults_of
from emu.topology.topology import Topology
from emu.trace.device.device import Device


@dataclass(frozen=True, slots=True)
class CheckpointPolicy:
    """The folder of a job's checkpoints, and the steps between them.

    Raises:
        InputError: The folder cannot be made or written, or there are no steps between checkpoints.
    """

    folder: Path
    every: int = 1  # steps
    goes_on: bool = False  # whether the job goes on after a loss
    dies: bool = False  # whether a lost rank takes its process with it

    def __post_init__(self) -> None:
        check_folder("--checkpoint", self.folder)
        if self.every < 1:
            raise must_be("--checkpoint-every", "steps", "1 or more", self.every)


def train_with_checkpoints(
    request: TrainRequest,
    keeping: CheckpointPolicy,
    topology: Topology,
    device: Device,
    faults: Sequence[str],
    stack: Stack,
    run_on: RunOn = on_threads,
) -> FaultyJob:
    """Train through faults, and return the figures of each step.

    Args:
        request: The training run.
        keeping: The folder of checkpoints, and how often they are saved.
        topology: The whole machine.
        device: The device that times computation.
        faults: Faults as `read_faults` returns them.
        stack: The software, with its time for messages and requests.
        run_on: The cluster on which the ranks really run.

    Raises:
        InputError: As `train`, `faults_of`, or `run_elastic`.
        RunError: As `run_elastic`.
    """
    known = faults_of(faults, topology, request.plan.world, request.steps)
    program, choice = program_of(request, [topology], device)
    model, rate = find_model(request.model), request.learning_rate
    job = job_of(model, request.plan, seed=request.seed, rate=rate, text=digest([request.text]))
    make_folder("--checkpoint", keeping.folder)
    kept = CheckpointFolder(str(keeping.folder.resolve()), keeping.every, job)
    program = replace(program, kept=kept, dies=keeping.dies)
    with _telling_what_is_kept(kept):
        done = run_elastic(program, choice, run_on, topology, known, goes_on=keeping.goes_on)
    asked = device_under(stack, device)
    times = {
        plan: times_of_trace(
            trace, lambda each: choice_on(each, request.algorithms, request.dtype), asked, request.dtype, stack
        )
        for plan, trace in traces_by_plan(done, choice, run_on).items()
    }
    return time_elastic(done, topology, known, times, device.name)


@contextmanager
def _telling_what_is_kept(kept: CheckpointFolder) -> Iterator[None]:
    """Add to an error that ends a job the last step whose checkpoint exists."""
    try:
        yield
    except RunError as error:
        found = last(Path(kept.folder), kept.job)
        if found is not None:
            error.args = (f"{error}; {found.step} steps are kept, the last with loss {found.loss[-1]:.6f}",)
        raise
