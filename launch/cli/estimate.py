"""The command `emu estimate`: a training step at full size, without running it."""

from typing import Any

import click

from launch.cli.options import common
from launch.cli.options.files import OutputFile
from launch.cli.options.output import check_fault, check_sweep, show
from launch.front.steps.estimates import estimate


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
@common.step_trace_option
@common.sweep_option
@common.fault_option
@common.stack_option
@common.worker_options
@common.timeline_options
@common.answer_options
def estimate_command(**options: Any) -> int:
    """Estimate how long a training step takes, where its time goes and how much memory it needs, without running it.

    \b
    emu estimate --model llama3-8b --plan tp=8,sp,dp=8,microbatch=1 --global-batch 64 --seq 8192 --topology ub-mesh:rack
    emu estimate --config scenario.toml --sweep topology.bandwidth=25GB/s..400GB/s:5 --png sweep.png
    emu estimate --config scenario.toml --fault "npu 5 at step 3" --png steps.png
    """
    check_sweep("estimate", options, "timeline", "trace", "fault")
    check_fault(options, "timeline", "trace")
    return show(estimate, options)
