"""The questions of real runs: `emu train` trains a model of the catalogue, `emu run` runs a script, both on emulated NPUs."""

import importlib
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from emu.cluster.npu.npu import Npu
from emu.cluster.pace.timeliness import Pace
from emu.cluster.script_run import Script, run_loaded_script
from emu.cluster.script_source import read_source
from emu.collective.algorithm import Choice
from emu.errors import InputError, must_be
from emu.model.plan.plan_text import parse_plan
from emu.study.choice.chooser import choice_on
from emu.study.live.elastic_job import CheckpointPolicy, train_with_checkpoints
from emu.study.live.faulty_job import FaultyJob
from emu.study.training.learn.program import read_text
from emu.study.training.step.choices import check_words, with_choice, with_words
from emu.study.training.step.step import Step, time_trace
from emu.study.training.traced_step import time_step
from emu.study.training.train import TrainingResult, TrainRequest, run_steps, time_steps
from emu.topology.fault_injection.fault_script import at_times, job_steps
from emu.topology.placement import place
from emu.topology.topology import Topology
from emu.trace.device.device import Device
from emu.trace.device.dtypes import AS_RAN
from emu.trace.replay.replay import TraceLayout
from emu.trace.steps import count_steps, has_steps, with_steps
from emu.trace.trace import Trace
from emu.trace.trace_file import save
from launch.clusters import CLUSTERS, FAKE, ClusterOptions
from launch.front.inputs import DeviceLike, ModelLike, Words, check_float32, model_word, question
from launch.front.replays import step_told, steps_of
from launch.front.steps import FaultyJobs, TimedSteps
from launch.front.trace_timing import JobConditions, TraceTiming, pacing_of
from launch.show.progress import progress_bar, with_progress
from launch.show.text.step_report import train_report

if TYPE_CHECKING:
    from launch.front.inputs import Topologies

_log = logging.getLogger("emu")
KeepTrace = str | Path | Callable[[Trace], object]  # a file, or a function that takes the trace as soon as it is recorded


@dataclass(frozen=True, repr=False, eq=False)
class Trainings(TimedSteps[TrainingResult]):
    """A training run, with its step timed on each topology."""

    def text(self) -> str:
        """Return the report of the run on each topology."""
        return "\n\n".join(map(train_report, self.rows))

    def as_json(self) -> object:
        """Return the run, or the runs where there are several topologies."""
        return self.rows[0] if len(self.rows) == 1 else self.rows


@dataclass(frozen=True, repr=False, eq=False)
class ScriptRun(TimedSteps[Step]):
    """The run of a script, with its step timed on each topology; a script that failed has no step."""

    code: int  # that the script exited with

    @property
    def exit_code(self) -> int:
        """The exit code of the script."""
        return self.code

    @property
    def has_report(self) -> bool:
        """Whether the script has a step that was timed."""
        return bool(self.rows)

    def text(self) -> str:
        """Return the report of each step, or why there is none."""
        return super().text() if self.rows else self.title


@question
def train(
    *,
    model: ModelLike,
    plan: str,
    topology: "Topologies",
    steps: int = 5,
    global_batch: int | None = None,
    seq: int | None = None,
    data: str | Path | None = None,
    seed: int = 0,
    device: DeviceLike = "h100",
    dtype: str = "bfloat16",
    algorithm: Words = (),
    stack: str = "",
    fault: Words = (),
    checkpoint: str | Path | None = None,
    checkpoint_every: int = 1,
    elastic: bool = False,
    trace: KeepTrace | None = None,
    cluster: str = "local",
    ray_address: str | None = None,
    ranks_per_actor: int | None = None,
    ray_options: str | Path | None = None,
    pace: float | None = None,
    pace_compute: str | None = None,
) -> Trainings | FaultyJobs:
    """Train a model on emulated NPUs, compare the loss with one process, and time the step on a fabric.

    Args:
        model: The model: a name, a .toml file, or a dict of its `architecture` and sizes.
        plan: The sizes of the axes of parallelism and the settings of the step, such as `dp=4,tp=4`.
        topology: The network: a name, a file, a `Topology` or a networkx graph; or several of them.
        steps: The number of training steps.
        global_batch: Sequences in a step, over all ranks; None: the plan's default.
        seq: Tokens in a sequence; None: the plan's default.
        data: Train on the bytes of this file; None: on a text that comes with Python.
        seed: The seed of weights and data.
        device: The device: a name, a .toml file, or a `Device`.
        dtype: The data type as which float32 is timed; `as-ran`: as it ran.
        algorithm: Words that choose algorithms, such as `all_reduce=ring`; empty: `auto`.
        stack: The times that software adds to messages and requests, such as `launch=5us`.
        fault: Parts that fail while the job runs, such as `link 0-1 at step 2`, or files of such texts.
        checkpoint: Save checkpoints (PyTorch's DCP) to this folder, and begin from the last one there.
        checkpoint_every: Steps between checkpoints.
        elastic: After a fault that ends a rank, go on from the last checkpoint on the NPUs that are left.
        trace: Save the trace of the run to this file, or call this function with it, before the step is timed.
        cluster: Where ranks run: as threads (`local`), or in Ray actors (`ray`).
        ray_address: The address of a running Ray; None: one is started on this machine.
        ranks_per_actor: The ranks of each Ray actor, as threads; None: 1.
        ray_options: A .toml file with Ray's own settings.
        pace: Run virtual time by the clock of this host: a second of virtual time takes so many seconds.
        pace_compute: `on`: computation takes the device's time x `pace`; `off`: the time of this host; None: on.

    Returns:
        The run on each topology; with `fault` or `checkpoint` the steps of the job, one after another.

    Raises:
        InputError: an argument is impossible, or the plan does not fit; the line says which, and how to mend it.
        RunError: a rank failed, or the calls of the ranks do not agree.
    """
    where = ClusterOptions(cluster, ray_address, ranks_per_actor, ray_options)
    timing, job = TraceTiming.of(topology, device, dtype, algorithm, stack), JobConditions.of(fault, pace, pace_compute)
    sizes = {name: size for name, size in (("global_batch", global_batch), ("seq", seq)) if size is not None}
    laid, text = parse_plan(plan, **sizes), read_text(None if data is None else Path(data))
    request = TrainRequest(model_word(model), laid, text, steps, seed, dtype=dtype, algorithms=timing.algorithms)
    folder = _checkpoint_folder(checkpoint, checkpoint_every, job, timing, elastic=elastic)
    if folder is not None:
        keeping = CheckpointPolicy(folder, checkpoint_every, elastic, where.cluster == "ray")
        return _trained_with_checkpoints(request, keeping, timing, job, where)
    return _trained(request, timing, job, where, trace)


def _checkpoint_folder(
    folder: str | Path | None, every: int, job: JobConditions, timing: TraceTiming, *, elastic: bool
) -> Path | None:
    """Return the folder of checkpoints; None where none are kept.

    Raises:
        InputError: arguments do not fit together.
    """
    flag = "--elastic" if elastic else "--checkpoint-every"
    if folder is None:
        if elastic or every != 1:
            raise InputError(f"{flag}: needs a folder for checkpoints; add --checkpoint DIR")
        return None
    if len(timing.machines) > 1:
        raise InputError(f"--checkpoint: must have one --topology, got {len(timing.machines)}; leave the others out")
    if job.factor is not None and (job.faults or elastic):
        flag = "--elastic" if elastic else "--fault"
        raise InputError(f"--pace: must be given without {flag} where --checkpoint is given; leave --pace or {flag} out")
    return Path(folder)


def _trained_with_checkpoints(
    request: TrainRequest, keeping: CheckpointPolicy, timing: TraceTiming, job: JobConditions, where: ClusterOptions
) -> FaultyJobs:
    """Return the steps of a job that keeps checkpoints, on the first topology."""
    [machine] = timing.machines
    device = timing.build(request.dtype)[1]
    pace = job.pace(machine, device, request.dtype, timing.calls)
    with progress_bar(f"{request.steps} steps on {request.plan.world} ranks"), where.open_cluster(pace=pace) as cluster:
        kept = train_with_checkpoints(request, keeping, machine, device, job.faults, timing.calls, cluster.record)
    return _paced([kept], pace)


def _trained(
    request: TrainRequest, timing: TraceTiming, job: JobConditions, where: ClusterOptions, keep: KeepTrace | None
) -> Trainings | FaultyJobs:
    """Return the run on each topology; with faults, the steps of the job."""
    built, device = timing.build(request.dtype)
    known, lost = job.known_faults(timing.machines, request.plan.world, request.steps)
    pace = job.pace(timing.machines[0], device, request.dtype, timing.calls, known)
    with progress_bar(f"{request.steps} steps on {request.plan.world} ranks"):
        learned = run_steps(request, built, device, partial(where.record, pace=pace), lost)
    _keep(learned.trace, keep)
    if job.faults and not at_times(job.faults):
        with progress_bar("timing the steps"):
            told = timing.time_with_faults(learned.trace, job.faults)
        return _paced([replace(each, loss=learned.loss, reference_loss=learned.reference_loss) for each in told], pace)
    timed = (time_steps(request, learned, each, device) for each in built)
    shown = list(with_progress(timed, "timing the step", len(built), lambda of: step_told(of[1])))
    first = replace(shown[0][0], paced=pacing_of(pace))
    rows, subtitle = (first, *(trained for trained, _ in shown[1:])), f"{first.plan}, {request.steps} steps on {first.ranks}"
    title = f"Training of {first.model}"
    return Trainings(rows, title, f"{subtitle} {_name_of(timing.device)}", tuple(each for _, each in shown))


def _name_of(device: DeviceLike) -> str:
    """Return the name of a device as it is given."""
    return device.name if isinstance(device, Device) else str(device)


def _paced(jobs: Sequence[FaultyJob], pace: Pace | None) -> FaultyJobs:
    """Return jobs; the first tells how well this host kept up, as it was the pace of the run."""
    return FaultyJobs((replace(jobs[0], paced=pacing_of(pace)), *jobs[1:]))


def _keep(recorded: Trace, keep: KeepTrace | None) -> None:
    """Save a trace to a file, or call a function with it."""
    if callable(keep):
        keep(recorded)
    elif keep is not None:
        save(recorded, Path(keep))


@question
def run(
    script: str | Path,
    args: Sequence[str] = (),
    *,
    ranks: int,
    topology: "Topologies",
    device: DeviceLike = "h100",
    dtype: str | None = None,
    algorithm: Words = (),
    stack: str = "",
    module: bool = False,
    no_cuda: bool = False,
    log_ranks: str | Sequence[int] | None = None,
    roles: str | Sequence[int] | None = None,
    fault: Words = (),
    trace: KeepTrace | None = None,
    cluster: str = "local",
    ray_address: str | None = None,
    ranks_per_actor: int | None = None,
    ray_options: str | Path | None = None,
    patience: float = 60.0,
    pace: float | None = None,
    pace_compute: str | None = None,
) -> ScriptRun | FaultyJobs:
    """Run an unmodified PyTorch script on emulated NPUs, and time its training step on a fabric.

    Args:
        script: The script; `-`: standard input; or the name of a module.
        args: The arguments of the script.
        ranks: The number of ranks (the WORLD_SIZE of the script).
        topology: The network: a name, a file, a `Topology` or a networkx graph; or several of them.
        device: The device: a name, a .toml file, or a `Device`.
        dtype: The data type as which float32 is timed; None: each tensor in its own.
        algorithm: Words that choose algorithms, such as `all_reduce=ring`; empty: `auto`.
        stack: The times that software adds to messages and requests, such as `launch=5us`.
        module: Whether `script` is the name of a module, as with `python -m`.
        no_cuda: Refuse a script that uses a CUDA device; otherwise it is the rank's NPU.
        log_ranks: Show only the output of these ranks; None: of all.
        roles: Ranks to trace with `cluster="fake"`; None: 0, 1 and the last of each dim of the script's meshes, and all of pp.
        fault: Parts that fail while the job runs, such as `link 0-1 at step 2`, or files of such texts.
        trace: Save the trace of the run to this file, or call this function with it, before the step is timed.
        cluster: Where ranks run: as threads (`local`), in Ray actors (`ray`), or nowhere (`fake`; tensors have no data).
        ray_address: The address of a running Ray; None: one is started on this machine.
        ranks_per_actor: The ranks of each Ray actor, as threads; None: 1.
        ray_options: A .toml file with Ray's own settings.
        patience: Seconds after which the run ends if a rank waits for something else than communication while all others wait.
        pace: Run virtual time by the clock of this host: a second of virtual time takes so many seconds.
        pace_compute: `on`: computation takes the device's time x `pace`; `off`: the time of this host; None: on.

    Returns:
        The step on each topology; with `fault` the steps of the job, one after another.

    Raises:
        InputError: an argument is impossible, or the script cannot be read; the line says which, and how to mend it.
        RunError: a rank failed, or the calls of the ranks do not agree.
    """
    if ranks < 1:
        raise must_be("run", "--ranks", "1 or more", ranks)
    where = ClusterOptions(cluster, ray_address, ranks_per_actor, ray_options, (*CLUSTERS, FAKE), patience)
    timing, job = TraceTiming.of(topology, device, dtype, algorithm, stack), JobConditions.of(fault, pace, pace_compute)
    if where.cluster == FAKE:
        _check_fake(job)
    elif roles is not None:
        raise must_be("run", "--roles", "left out where all ranks run", roles, f"add --cluster {FAKE}")
    built, found = timing.build(dtype or AS_RAN)
    check_float32(found, dtype or AS_RAN)
    choices = [choice_on(each, timing.algorithms, dtype or AS_RAN) for each in built]
    for each in built:
        place(each, ranks)
    npu = None if no_cuda else Npu(found.name, found.memory_bytes, found.capability, found.cores)
    heard = None if log_ranks is None else _ranks("--log-ranks", log_ranks, ranks)
    read = Script.of(read_source(script, module=module), args, ("launch",), npu, heard)
    named = [] if roles is None else _ranks("--roles", roles, ranks)
    asked = _ScriptRequest(read, ranks, named, timing, job, built, found, choices)
    return asked.run(where, trace)


@dataclass(frozen=True)
class _ScriptRequest:
    """A script that was read and checked, with all that its run and its timing need."""

    script: Script
    ranks: int
    roles: list[int]  # ranks that are traced where no rank runs; empty: as the script's meshes say
    timing: TraceTiming
    job: JobConditions
    built: list[Topology]
    device: Device
    choices: list[Choice]

    @property
    def dtype(self) -> str:
        """The data type as which float32 is timed."""
        return self.timing.dtype or AS_RAN

    def run(self, where: ClusterOptions, keep: KeepTrace | None) -> ScriptRun | FaultyJobs:
        """Run the script, keep its trace, and time its step."""
        job, timing = self.job, self.timing
        known, lost = job.known_faults(timing.machines, self.ranks, job_steps(job.faults))
        pace = job.pace(timing.machines[0], self.device, self.dtype, timing.calls, known)
        fake = where.cluster == FAKE
        if fake:
            fake_run = importlib.import_module("emu.cluster.fake.fake_run")  # not above: it loads FSDP and dynamo
            recorded, code = fake_run.trace_loaded_script(self.script, self.ranks, self.roles, _log.info)
        else:
            with where.open_cluster(self.script.source.root, pace) as cluster:
                script = replace(self.script, lost=lost)
                recorded, code = run_loaded_script(script, self.ranks, self.choices[0], cluster)
        if code == 0:
            recorded = with_steps(recorded)
        recorded = recorded if fake else with_choice(recorded, self.choices[0])
        recorded = with_words(recorded, timing.algorithms, self.built, self.dtype)
        _keep(recorded, keep)
        if code or not has_steps(recorded):
            neither = "the script neither computed nor communicated, so there is nothing to time"
            told = "as the script has failed, nothing is timed" if code else neither
            _log.info(told)
            return ScriptRun((), told, "", (), code)
        return self._timed(recorded, pace, fake=fake)

    def _timed(self, recorded: Trace, pace: Pace | None, *, fake: bool) -> ScriptRun | FaultyJobs:
        """Return the step of a recorded run on each topology; with faults, the steps of the job."""
        job, timing = self.job, self.timing
        if job.faults and not at_times(job.faults):
            job.known_faults(timing.machines, self.ranks, count_steps(recorded))
            return _paced(timing.time_with_faults(recorded, job.faults), pace)
        check_words(recorded, timing.given, self.built)
        layouts = (
            TraceLayout(recorded, choice, each, self.device, self.dtype)
            for choice, each in zip(self.choices, self.built, strict=True)
        )
        timed = ((time_step if fake else time_trace)(each) for each in layouts)
        found = list(with_progress(timed, "timing the step", len(self.built), step_told))
        steps = steps_of(f"Run of {self.script.source.name}", found, pacing_of(pace))
        return ScriptRun(steps.rows, steps.title, steps.subtitle, steps.timed, 0)


def _check_fake(job: JobConditions) -> None:
    """Refuse a pace and faults where no rank runs.

    Raises:
        InputError: one of them was given.
    """
    if job.factor is not None:
        raise must_be("run", "--cluster", "local or ray where --pace is given", FAKE, "no rank runs there")
    if job.faults:
        raise must_be("run", "--cluster", "local or ray where --fault is given", FAKE, "save a --trace, and replay that")


def _ranks(flag: str, given: str | Sequence[int], ranks: int) -> list[int]:
    """Return the ranks that an argument lists.

    Raises:
        InputError: a rank does not exist.
    """
    words = given.split(",") if isinstance(given, str) else [str(rank) for rank in given]
    found = [int(word) if word.isdecimal() else -1 for word in words]
    if not all(0 <= rank < ranks for rank in found):
        raise must_be("run", flag, f"ranks of 0..{ranks - 1} with commas between them", ",".join(words), "such as 0,3")
    return found
