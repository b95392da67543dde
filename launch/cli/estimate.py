"""The command `emu estimate`: a training step at full size, without running it."""

from dataclasses import replace
from functools import partial
from pathlib import Path

import click

from emu.model.generate.generate import generate
from emu.model.model_file import find_model
from emu.model.plan.plan_text import parse_plan
from emu.study.live.faulty_job import FaultyJob, time_faulty_job, times_of_estimate
from emu.study.training.estimate import EstimateRequest, StepEstimate, estimate_moments
from emu.study.training.step.step import with_means
from emu.topology.catalogue import build_topology
from emu.topology.fault_injection.fault_script import faults_of, job_steps
from emu.topology.topology import Topology
from emu.trace.device.device import Device
from emu.trace.trace_file import save
from launch.cli.options import common
from launch.cli.options.files import OutputFile, write_output, write_png
from launch.cli.options.job_options import check_fault_options, fault_option, show_jobs
from launch.cli.options.sweep import SweepOptions, SweepPoint, sweep_option, swept
from launch.cli.options.view_options import ViewOptions, view_options
from launch.data.devices import find_device
from launch.show.progress import progress_bar
from launch.show.text.estimate_table import estimate_report, estimates_report


@click.command("estimate")
@common.model_option
@click.option("--plan", required=True, metavar="tp=8,sp,dp=8", help="The plan, in the words of `emu train --plan`.")
@common.topology_option
@click.option("--global-batch", required=True, type=int, help="Sequences in a step, over all ranks.")
@click.option("--seq", required=True, type=int, help="Tokens in a sequence.")
@common.device_option
@common.algorithm_option
@click.option(
    "--axes",
    default="",
    metavar="tp,dp,pp",
    help="The placement: axes, with neighbouring NPUs on the first. [default: tp,cp,dp,pp]",
)
@click.option(
    "--scale-dp", is_flag=True, help="Where a topology has fewer NPUs than the plan, reduce dp and the global batch with it."
)
@click.option("--png", type=OutputFile(".png"), help="Draw the parts of the step on each topology to this file.")
@click.option(
    "--trace", type=OutputFile(), help="Save the step to this file, to compare it with a recorded one by `emu compare`."
)
@sweep_option
@click.option("--csv", type=OutputFile(), help="Write the steps of a --sweep to this file. [default: print them]")
@fault_option
@common.stack_option
@view_options
@common.import_option
@common.json_option
@swept
def estimate_command(
    model: str,
    plan: str,
    topologies: tuple[str, ...],
    global_batch: int,
    seq: int,
    device: str,
    algorithms: tuple[str, ...],
    axes: str,
    scale_dp: bool,
    sweep: SweepOptions,
    trace: Path | None,
    faults: tuple[str, ...],
    stack: str,
    looks: ViewOptions,
    as_json: bool,
) -> None:
    """Estimate how long a training step takes, where its time goes and how much memory it needs, without running it.

    \b
    emu estimate --model llama3-8b --plan tp=8,sp,dp=8,microbatch=1 --global-batch 64 --seq 8192 --topology ub-mesh:rack
    emu estimate --config scenario.toml --sweep topology.bandwidth=25GB/s..400GB/s:5 --png sweep.png
    emu estimate --config scenario.toml --fault "npu 5 at step 3" --png steps.png
    """
    laid = parse_plan(plan, global_batch=global_batch, seq=seq)
    under = common.stack_of(stack)
    order = tuple(axes.split(",")) if axes else ()
    request = EstimateRequest(model, laid, under, common.algorithm_choice(algorithms, under), order, scale_dp)
    sweep.check("estimate", {**looks.given, "--trace": trace, "--fault": faults})
    if sweep.sweeps:
        words = {"model": model, "plan": plan, "stack": stack, "device": device}
        words |= {"seq": str(seq), "global-batch": str(global_batch)}
        rows = sweep.steps(words, topologies, partial(_step_at, request), label="estimating the steps")
        sweep.show(rows, f"A step of {model}", as_json=as_json)
        return
    built, found = [build_topology(word) for word in topologies], find_device(device, under.precision.activation)
    check_fault_options(faults, {**looks.given, "--trace": trace})
    if faults:
        with progress_bar(f"estimating a step of {model}"):
            told = [_job_with_faults(request, each, found, faults) for each in built]
        show_jobs(told, sweep.png, as_json=as_json)
        return
    with progress_bar(f"estimating a step of {model}"):
        shown = [estimate_moments(request, each, found) for each in built]
        shown = with_means(shown) if as_json or len(shown) > 1 else shown
    results = [estimated for estimated, _ in shown]
    first = results[0]
    subtitle = f"{first.plan}, global batch {first.global_batch}, sequences of {seq}, on {first.ranks} {first.device}"
    printed = first if len(results) == 1 else results
    common.print_result(
        printed, lambda: estimate_report(first) if len(results) == 1 else estimates_report(results), as_json=as_json
    )
    looks.write(f"A training step of {first.model}", subtitle, shown)
    write_output(trace, lambda path: save(generate(find_model(model), laid, under), path))
    write_png(sweep.png, "chart.step_chart:parts_figure", results)


def _job_with_faults(request: EstimateRequest, topology: Topology, device: Device, words: tuple[str, ...]) -> FaultyJob:
    """Return the steps of a job on a topology whose parts fail."""
    on, steps = request.on(topology), job_steps(words)
    faults = faults_of(words, topology, on.plan.world, steps)
    return time_faulty_job(topology, faults, on.plan.world, steps, times_of_estimate(on, device), device.name)


def _step_at(request: EstimateRequest, point: SweepPoint) -> StepEstimate:
    """Return the step at a point of a sweep; algorithms, axes and scale_dp come from the request."""
    plan = parse_plan(point.said["plan"], global_batch=point.whole("global-batch"), seq=point.whole("seq"))
    request = replace(request, model=point.said["model"], plan=plan, stack=point.stack)
    [(step, _)] = with_means([estimate_moments(request, point.topology, point.device)])
    return step
