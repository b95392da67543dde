"""The command `emu estimate`: a training step at full size, without running it."""

from typing import Any

import click

from launch.cli.options import common
from launch.cli.options.files import OutputFile
from launch.cli.options.output import ask_and_save, check_fault, check_sweep
from launch.cli.options.question_options import QuestionOptions
from launch.front.steps.estimates import estimate

_DEVICE_HELP = (
    "The device: a name from `emu list devices`, or a FILE.toml such as `emu calibrate` writes. "
    "[default: h100; with --like the one that its profile names]"
)
options_of = QuestionOptions(estimate)


@click.command("estimate")
@common.step_options(options_of, options_of("like"), device=options_of("device", help=_DEVICE_HELP))
@click.option("--png", type=OutputFile(".png"), help="Draw the parts of the step on each topology to this file.")
@common.step_trace_option
@common.sweep_option
@common.fault_option
@options_of("fabric", "network", "check_fabric")
@common.worker_options(options_of)
@common.timeline_options
@common.answer_options
def estimate_command(**options: Any) -> int:
    """Estimate how long a training step takes, where its time goes and how much memory it needs, without running it.

    \b
    emu estimate --model llama3-8b --plan tp=8,sp,dp=8,microbatch=1 --global-batch 64 --seq 8192 --topology ub-mesh:rack
    emu estimate --config scenario.toml --sweep topology.bandwidth=25GB/s..400GB/s:5 --png sweep.png
    emu estimate --config scenario.toml --fabric packets:cell=16KiB --network ultra-ethernet
    emu estimate --config scenario.toml --fault "npu 5 at step 3" --png steps.png
    emu estimate --like prof/ --model llama3-8b --plan dp=64,microbatch=1 --global-batch 64 --seq 8192 --topology ub-mesh:rack
    """
    check_sweep("estimate", options, "timeline", "trace", "fault")
    check_fault(options, "timeline", "trace")
    return ask_and_save(estimate, options)
