"""The question of `emu estimate`: how long does a training step take, where does its time go, how much memory does it need?"""

from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from emu.errors import InputError, must_be
from emu.fabric.packet_fabric import engine_choice
from emu.files import named_path
from emu.model.generate.generate import generate
from emu.model.model import find_model
from emu.model.plan.plan_text import parse_plan
from emu.study.live.faulty_job import FaultyJob, time_faulty_job, times_of_estimate
from emu.study.training.estimate import EstimateRequest, StepEstimate, estimate_and_times
from emu.study.training.step.step import with_means
from emu.topology.fault_injection.fault_script import faults_of, job_steps, read_faults
from emu.topology.topology import Topology
from emu.trace.device.device import Device
from emu.trace.formats.trace_formats import output_path, write_trace
from emu.trace.replay.replay import TraceLayout
from launch.clusters import job_pool
from launch.front import inputs
from launch.front.inputs import DeviceLike, ModelLike, Topologies, Words, question
from launch.front.profile_calibration import calibration_of_profile
from launch.front.steps.sweeps import PointTimer, Sweep, SweepPoint, device_text, sweep_steps
from launch.front.steps.timed_steps import FaultyJobs, TimedSteps, steps_on_each, usual_device
from launch.show.progress import finished_items, itself, with_progress
from launch.show.text.estimate_table import estimate_report, estimates_report


@dataclass(frozen=True, repr=False, eq=False)
class StepEstimates(TimedSteps[StepEstimate], drawn_by="chart.step_chart:parts_figure", files=(".trace",)):
    """An estimated training step on each topology; with one topology, the answer has its fields.

    The picture has the parts of the step, with a bar for each topology.
    """

    request: EstimateRequest

    def text(self) -> str:
        """Return the report of one step, or the table of several."""
        return _report(self.rows)

    def as_json(self) -> object:
        """Return the step, or the steps where there are several topologies."""
        steps = self.with_means()
        return steps[0] if len(steps) == 1 else steps

    def save_trace(self, path: str | Path) -> None:
        """Write the generated step, for `emu.replay`, `emu.compare` and other programs, timed as on the first topology.

        Args:
            path: The file; its ending gives the format. A folder gets an execution trace of each rank.

        Raises:
            InputError: the format cannot hold the step.
            WriteError: a file cannot be written.
        """
        timed = self.timed[0]
        request = self.request.scaled_to(timed.topology)
        step = generate(find_model(request.model), request.plan, request.stack)
        write_trace(TraceLayout(step, timed.choice, timed.topology, timed.device, timed.dtype), output_path(path))


def _report(rows: tuple[StepEstimate, ...]) -> str:
    """Return the report of one step, or the table of several."""
    return estimate_report(rows[0]) if len(rows) == 1 else estimates_report(rows)


@question
def estimate(
    *,
    model: ModelLike,
    plan: str,
    topology: Topologies,
    global_batch: int,
    seq: int,
    device: DeviceLike | None = None,
    like: str | Path | None = None,
    algorithm: Words = (),
    axes: Words = "",
    scale_dp: bool = False,
    sweep: Words = (),
    fault: Words = (),
    stack: str = "",
    workers: str = "local",
    ray_address: str | None = None,
    fabric: str = "fluid",
    network: str = "",
    check_fabric: bool = False,
) -> StepEstimates | Sweep | FaultyJobs:
    """Estimate how long a training step takes, where its time goes and how much memory it needs, without running it.

    Args:
        model: The model: a name, a .toml file, or a dict of its `architecture` and sizes.
        plan: The sizes of the axes of parallelism and the settings of the step, such as `tp=8,sp,dp=8,microbatch=1`.
        topology: The network: a name, a file, a `Topology` or a networkx graph; or several of them.
        global_batch: Sequences in a step, over all ranks.
        seq: Tokens in a sequence.
        device: The device: a name, a .toml file, or a `Device`; None: h100, or with `like` the one that its profile names.
        like: Time kernels as this profile of PyTorch saw them, by shape or by operator and bytes, and others by the `device`.
            It is a file, or a folder with a file of each rank, taken with `record_shapes=True`.
        algorithm: Words that choose algorithms, such as `all_reduce=ring` or `dp.all_gather=ring`; empty: `auto`.
        axes: The placement: axes, with neighbouring NPUs on the first, such as `tp,dp,pp`; empty: tp,cp,dp,pp.
        scale_dp: Where a topology has fewer NPUs than the plan, reduce dp and the global batch with it.
        sweep: Quantities and their values, such as `topology.bandwidth=25GB/s..400GB/s:5`; several: all combinations.
        fault: Parts that fail while the job runs, such as `npu 5 at step 3`, or files of such texts.
        stack: The software and its settings, such as `software=megatron`.
        workers: The processes that estimate the points of a `sweep`: this one (`local`), or those of a Ray (`ray`).
        ray_address: The address of a running Ray; None: start one on this machine.
        fabric: The engine of the times: `fluid`, or packets, such as `packets:cell=8KiB`; the settings are cell, seed, events.
        network: The network of packets, such as `roce:route=in-turn`: roce, ultra-ethernet, infiniband, nvlink, ub or tcp, with
            settings; empty: that of the topology's file, else roce.
        check_fabric: Check the fluid time: run the window in which the fabric has most to do by packets of `network`, 8 times
            with other starts.

    Returns:
        The step on each topology; the step at each point of a `sweep`; or with `fault` the steps of a job, one after another.

    Raises:
        InputError: an argument is impossible, or the plan does not fit; the line says which, and how to mend it.
    """
    the_plan, software = parse_plan(plan, global_batch=global_batch, seq=seq), inputs.stack_of(stack)
    algorithms, order = inputs.algorithm_words(algorithm, software), inputs.placement_order(axes)
    engine = engine_choice(fabric, network, check_fabric=check_fabric)
    request = EstimateRequest(inputs.model_word(model), the_plan, software, algorithms, order, scale_dp, engine)
    pool = job_pool("emu estimate", workers, ray_address)
    if workers != "local" and not inputs.several(sweep):
        raise must_be("estimate", "--workers", "left out where there is no --sweep", workers, "a single step is not divided")
    if inputs.several(sweep) and inputs.several(fault):
        raise InputError("estimate: --sweep and --fault exclude each other; leave one of them out")
    if inputs.several(sweep) and engine.check is not None:
        what, why = "left out where there is a --sweep", "it checks a single step"
        raise must_be("estimate", "--check-fabric", what, engine.check.network.kind, why)
    if inputs.several(sweep) and like is not None:
        mend = "write the device by `emu calibrate --from`, and name its file by --device"
        raise must_be("estimate", "--like", "left out where there is a --sweep", str(like), mend)
    if inputs.several(sweep):
        words = {"model": inputs.model_word(model), "plan": plan, "stack": stack, "device": device_text(usual_device(device))}
        words |= {"seq": str(seq), "global-batch": str(global_batch)}
        timer = PointTimer(partial(_step_at, request), pool, label="estimating the steps")
        return sweep_steps(inputs.several(sweep), words, inputs.several(topology), timer, f"A step of {request.model}, {plan}")
    built, found = inputs.topologies_of(topology), _device_of(device, like, software.precision.activation)
    engine.check_on(built)
    label = f"estimating a step of {request.model}"
    if inputs.several(fault):
        engine.check_whole("estimate")
        texts = read_faults(inputs.several(fault))
        jobs = (_job_with_faults(request, each, found, texts) for each in built)
        done = finished_items(jobs, lambda finished: FaultyJobs(finished).text(), len(built))
        return FaultyJobs(tuple(with_progress(done, label, len(built), row=itself)))
    results = (estimate_and_times(request, each, found) for each in built)
    rows, steps = steps_on_each(results, label, len(built), _report)
    first = rows[0]
    subtitle = f"{first.plan}, global batch {first.global_batch}, sequences of {seq}, on {first.ranks} {first.device}"
    return StepEstimates(rows, f"A training step of {first.model}", subtitle, steps, request)


def _device_of(device: DeviceLike | None, like: str | Path | None, dtype: str) -> Device:
    """Return the device of an estimate: with `like` the one that `emu calibrate --from` makes of the profile.

    Raises:
        InputError: as `calibrate` and `device_of`.
    """
    if like is None:
        return inputs.device_of(usual_device(device), dtype)
    base = None if device is None else inputs.device_of(device)
    return inputs.device_of(
        calibration_of_profile(named_path("estimate", "--like", like), base, "estimate", "--like").device, dtype
    )


def _job_with_faults(request: EstimateRequest, topology: Topology, device: Device, words: tuple[str, ...]) -> FaultyJob:
    """Return the steps of a job on a topology whose parts fail."""
    on, steps = request.scaled_to(topology), job_steps(words)
    faults = faults_of(words, topology, on.plan.world, steps)
    return time_faulty_job(topology, faults, on.plan.world, steps, times_of_estimate(on, device), device.name)


def _step_at(request: EstimateRequest, point: SweepPoint) -> StepEstimate:
    """Return the step at a point of a sweep; words of algorithms, axes and scale_dp come from the request."""
    plan = parse_plan(point.said["plan"], global_batch=point.whole("global-batch"), seq=point.whole("seq"))
    algorithms = inputs.algorithms_with(point.stack, request.algorithms)
    asked = replace(request, model=point.model, plan=plan, stack=point.stack, algorithms=algorithms)
    return with_means(*estimate_and_times(asked, point.topology, point.device))
