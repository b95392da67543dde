"""The question of `emu train`: does a model of the catalogue learn on emulated NPUs, and how long does its step take?"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from emu.errors import InputError
from emu.fabric.packet_fabric import engine_choice
from emu.model.plan.plan_text import parse_plan
from emu.study.choice.chooser import choice_on
from emu.study.live.elastic_job import CheckpointPolicy, train_with_checkpoints
from emu.study.training.learn.program import read_text
from emu.study.training.train import TrainingResult, TrainRequest, run_steps, time_steps
from emu.topology.fault_injection.fault_script import at_times
from emu.trace.device.device import Device
from emu.trace.replay.replay import TraceLayout
from launch.clusters import ClusterOptions
from launch.front.argument_rules import excludes, needs
from launch.front.inputs import DeviceLike, ModelLike, Topologies, Words, model_word, question
from launch.front.steps import timed_steps
from launch.front.steps.timed_steps import FaultyJobs, JobConditions, TimedSteps, TraceTarget, TraceTiming
from launch.show.progress import progress_bar
from launch.show.text.step_report import train_report


def _report(runs: Sequence[TrainingResult]) -> str:
    """Return the report of the run on each topology."""
    return "\n\n".join(map(train_report, runs))


@dataclass(frozen=True, repr=False, eq=False)
class Trainings(TimedSteps[TrainingResult]):
    """A training run, with its step timed on each topology."""

    def text(self) -> str:
        """Return the report of the run on each topology."""
        return _report(self.rows)

    def as_json(self) -> object:
        """Return the run, or the runs where there are several topologies."""
        steps = self.with_means()
        return steps[0] if len(steps) == 1 else steps


@question
@excludes(trace="checkpoint")
@needs(pace_compute="pace", checkpoint_every="checkpoint", elastic="checkpoint")
def train(
    *,
    model: ModelLike,
    plan: str,
    topology: Topologies,
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
    trace: TraceTarget | None = None,
    cluster: str = "local",
    ray_address: str | None = None,
    ranks_per_actor: int | None = None,
    ray_options: str | Path | None = None,
    pace: float | None = None,
    pace_compute: str | None = None,
    fabric: str = "fluid",
    network: str = "",
) -> Trainings | FaultyJobs:
    """Train a model on emulated NPUs, compare the loss with one process, and time the step on a fabric.

    Args:
        model: The model: a name, a .toml file, or a dict of its `architecture` and sizes.
        plan: The sizes of the axes of parallelism and the settings of the step, such as `dp=4,tp=4`.
        topology: The network: a name, a file, a `Topology` or a networkx graph; or several of them.
        steps: The number of training steps.
        global_batch: Sequences in a step, over all ranks; None: the plan's default.
        seq: Tokens in a sequence; None: the plan's default.
        data: Train on the bytes of this file; None: a text that comes with Python.
        seed: The seed of weights and data.
        device: The device: a name, a .toml file, or a `Device`.
        dtype: The data type as which float32 is timed. as-ran: as it ran.
        algorithm: Words that choose algorithms, such as `all_reduce=ring`; empty: `auto`.
        stack: The times that software adds to messages and requests, such as `launch=5us`.
        fault: Parts that fail while the job runs, such as `link 0-1 at step 2`, or files of such texts.
        checkpoint: Save checkpoints (PyTorch's DCP) to this folder, and begin from the last one there; older ones are removed.
        checkpoint_every: Steps between checkpoints.
        elastic: After a `fault` that ends a rank, go on from the last `checkpoint` on the NPUs that are left.
        trace: Save the trace of the run to this file, or call this function with it, before the step is timed.
        cluster: Where ranks run: as threads (local), or in Ray actors (ray).
        ray_address: The address of a running Ray; None: start one on this machine.
        ranks_per_actor: The ranks of each Ray actor, as threads; None: 1.
        ray_options: A .toml file with Ray's own settings: strategy, resources, wait_s, runtime_env.
        pace: Run virtual time by the clock of this host: a second of virtual time takes so many seconds.
        pace_compute: `on`: computation takes the device's time x `pace`; `off`: the time of this host; None: on.
        fabric: The engine of the times: `fluid`, or packets, such as `packets:cell=8KiB`; the settings are cell, seed, events.
        network: The network of packets, such as `roce:route=in-turn`: roce, ultra-ethernet, infiniband, nvlink, ub or tcp, with
            settings; empty: that of the topology's file, else roce.

    Returns:
        The run on each topology; with `fault` or `checkpoint` the steps of the job, one after another.

    Raises:
        InputError: an argument is impossible, or the plan does not fit; the line says which, and how to mend it.
        RunError: a rank failed, or the calls of the ranks do not agree.
    """
    where = ClusterOptions(cluster, ray_address, ranks_per_actor, ray_options)
    engine, job = engine_choice(fabric, network), JobConditions.of(fault, pace, pace_compute)
    if job.faults or checkpoint is not None:
        engine.check_whole("train")
    engine.check_clock("train", paced=job.factor is not None)
    timing = TraceTiming.of(topology, device, dtype, algorithm, stack)
    where.check_algorithms(timing.algorithms)
    engine.check_on(timing.machines)
    sizes = {name: size for name, size in (("global_batch", global_batch), ("seq", seq)) if size is not None}
    laid, text = parse_plan(plan, **sizes), read_text(None if data is None else Path(data))
    request = TrainRequest(
        model_word(model), laid, text, steps, seed, dtype=dtype, algorithms=timing.algorithms, packets=engine.packets
    )
    folder = _checkpoint_folder(checkpoint, job, timing, elastic=elastic)
    if folder is not None:
        keeping = CheckpointPolicy(folder, checkpoint_every, elastic, where.cluster == "ray")
        return _trained_with_checkpoints(request, keeping, timing, job, where)
    return _trained(request, timing, job, where, trace)


def _checkpoint_folder(folder: str | Path | None, job: JobConditions, timing: TraceTiming, *, elastic: bool) -> Path | None:
    """Return the folder of checkpoints; None if none are kept.

    Raises:
        InputError: arguments do not fit together.
    """
    if folder is None:
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
    pace = job.pace(machine, device, request.dtype, timing.overheads)
    with progress_bar(f"{request.steps} steps on {request.plan.world} ranks"), where.open_cluster(pace=pace) as cluster:
        kept = train_with_checkpoints(request, keeping, machine, device, job.faults, timing.overheads, cluster.run_traced)
    return timed_steps.paced_jobs([kept], pace)


def _trained(
    request: TrainRequest, timing: TraceTiming, job: JobConditions, where: ClusterOptions, keep: TraceTarget | None
) -> Trainings | FaultyJobs:
    """Return the run on each topology; with faults, the steps of the job."""
    built, device = timing.build(request.dtype)
    known, lost = job.known_faults(timing.machines, request.plan.world, request.steps)
    pace = job.pace(timing.machines[0], device, request.dtype, timing.overheads, known)
    with progress_bar(f"{request.steps} steps on {request.plan.world} ranks"):
        learned = run_steps(request, built, device, partial(where.run_traced, pace=pace), lost)
    choice = choice_on(built[0], request.algorithms, request.dtype)
    timed_steps.save_trace(TraceLayout(learned.trace, choice, built[0], device, request.dtype), keep)
    if job.faults and not at_times(job.faults):
        with progress_bar("timing the steps"):
            told = timing.time_with_faults(learned.trace, job.faults)
        return timed_steps.paced_jobs(
            [replace(each, loss=learned.loss, reference_loss=learned.reference_loss) for each in told], pace
        )
    timed = (time_steps(request, learned, each, device) for each in built)
    rows, steps = timed_steps.steps_on_each(
        timed_steps.with_pacing(timed, timed_steps.pacing_of(pace)), "timing the step", len(built), _report
    )
    first = rows[0]
    subtitle = f"{first.plan}, {request.steps} steps on {first.ranks} {_name_of(timing.device)}"
    return Trainings(rows, f"Training of {first.model}", subtitle, steps)


def _name_of(device: DeviceLike | None) -> str:
    """Return the name of a device: the text that names it, or the name that the `Device` object has."""
    return device.name if isinstance(device, Device) else str(device)
