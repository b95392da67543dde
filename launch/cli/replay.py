"""The command `emu replay`: a recorded run, timed on other fabrics."""

from typing import Any

import click

from launch.cli.options import common
from launch.cli.options.files import INPUT
from launch.cli.options.output import ask_and_save, check_fault, check_job_picture
from launch.cli.options.question_options import QuestionOptions
from launch.front.steps.replays import replay

options_of = QuestionOptions(replay)


@click.command("replay")
@click.argument("trace", type=INPUT)
@common.replay_options
@options_of("ran_on", metavar="NAME[:VARIANT][:key=value,...]|FILE")
@options_of("host_time", "fill_ranks", "ranks")
@options_of("fabric", "network", "check_fabric")
@common.fault_option
@common.job_png_option
@common.timeline_options
@common.perturb_option
@common.answer_options
def replay_command(**options: Any) -> int:
    """Time a recorded trace on topologies, without running it again.

    TRACE is a file that --trace wrote, or a profile of PyTorch: a file (.json, .json.gz), or a folder with one of each rank.
    Execution traces of Chakra (.et) are taken in the same way; NAME.et stands for NAME.0.et, NAME.1.et and so on.
    Schedules in GOAL are taken, too.
    Kernels of a profile last as they were measured there; the answer says how far its step is from the measured one.

    With `--algorithm recorded`, operations that no other --algorithm names keep the algorithms of the recorded run.

    \b
    emu replay ddp.trace --topology ub-mesh:board --topology switch:n=8,bandwidth=450GB/s,latency=500ns
    emu replay ddp.trace --topology ub-mesh:board --algorithm recorded --algorithm broadcast=binomial
    emu replay prof/ --ran-on dgx-h100:superpod --topology ub-mesh:board --topology mine.toml --host-time
    emu replay ddp.trace --ranks 64 --topology ub-mesh:rack
    emu replay ddp.trace --topology fat-tree:radix=8 --fabric packets:cell=8KiB --network roce:route=in-turn
    emu replay ddp.trace --topology ub-mesh:board --fault "link 0-1 at step 2" --png steps.png
    """
    check_fault(options, "timeline", "perturb")
    check_job_picture(options)
    return ask_and_save(replay, options)
