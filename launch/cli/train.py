"""The command `emu train`: real training steps on emulated NPUs, timed on a fabric."""

from typing import Any

import click

from emu.model.pipeline_order import ORDERS
from emu.model.plan.plan import AXES, CHOICES, TITLES, Plan
from launch.cli.options import common
from launch.cli.options.files import FOLDER
from launch.cli.options.output import ask_and_save, check_fault, check_job_picture, with_trace_output
from launch.cli.options.question_options import QuestionOptions
from launch.front.steps.trainings import train

_SETTINGS = (
    "sp (tp also splits the activations between matrix products)",
    "microbatch=SEQUENCES",
    f"order={'|'.join(ORDERS)}",
    "vp=VIRTUAL STAGES of a rank",
    "layers=7,8x14,7 (the layers of each stage: 7, then 14 stages of 8, then 7)",
    *(f"{name}={'|'.join(known)}" for name, known in CHOICES.items()),
    "shard=RANKS over which fsdp or zero1 shards (all of dp unless given)",
    "capacity=FACTOR (the tokens of an expert, as a multiple of an equal share)",
    "imbalance=SHARE by which other experts get fewer tokens than the fullest, and dropout=RATE (both only with `emu estimate "
    "--stack software=megatron`)",
    f"clip=NORM to which gradients are clipped ({Plan().clip:g} unless given; 0 does not clip)",
)
_PLAN_HELP = (
    f"The sizes of the axes of parallelism. {' x '.join(AXES)} is the number of ranks; ep and etp group these ranks anew for "
    f"the experts of a model. Axes: {', '.join(f'{axis} ({kind} parallel)' for axis, kind in TITLES.items())}. "
    f"An axis that is not named is 1; etp is then tp. Settings: {', '.join(_SETTINGS)}."
)


options_of = QuestionOptions(train)


@click.command("train")
@common.model_option
@options_of("plan", help=_PLAN_HELP)
@common.topology_option
@options_of("steps")
@options_of("global_batch", help=f"Sequences in a step, over all ranks.  [default: {Plan().global_batch}]")
@options_of("seq", help=f"Tokens in a sequence.  [default: {Plan().seq}]")
@options_of("data", "seed")
@common.device_option
@options_of("dtype")
@common.algorithm_option
@common.overheads_option
@common.fault_option
@options_of("checkpoint", type=FOLDER)
@options_of("checkpoint_every", metavar="STEPS")
@options_of("elastic")
@options_of("fabric", "network")
@common.job_png_option
@common.timeline_options
@common.trace_option
@common.cluster_options(options_of)
@common.pace_option
@common.pace_compute_option
@common.answer_options
def train_command(**options: Any) -> int:
    """Train a model on emulated NPUs, compare the loss with one process, and time the step on a fabric.

    \b
    emu train --model llama-tiny --plan dp=4,tp=4 --topology ub-mesh:rack
    emu train --model llama-tiny --plan dp=2,tp=2 --topology ub-mesh:board --cluster ray --json
    emu train --model llama-tiny --plan dp=2,tp=2 --topology fat-tree:radix=4 --fabric packets --network infiniband
    emu train --model llama-tiny --plan dp=2,tp=2 --topology ub-mesh:board --fault "link 0-1 at step 2"
    emu train --model llama-tiny --plan dp=2,tp=2 --topology ub-mesh:board --pace 1000
    emu train --model llama-tiny --plan dp=2 --topology ub-mesh:rack-full --fault "npu 1 at step 3" --elastic --checkpoint kept
    """
    check_fault(options, "timeline", *(("trace",) if options["checkpoint"] else ()))
    check_job_picture(options)
    return ask_and_save(train, with_trace_output(options))
