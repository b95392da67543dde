"""The command `emu train`: real training steps on emulated NPUs, timed on a fabric."""

from pathlib import Path
from typing import Any

import click

from emu.model.pipeline_order import ORDERS
from emu.model.plan.plan import AXES, CHOICES, TITLES, Plan
from emu.trace.timed_dtype import AS_RAN
from launch.cli.options import common
from launch.cli.options.files import FOLDER
from launch.cli.options.output import check_fault, check_job_picture, keep_trace, show
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


_CHECKPOINT = "Save checkpoints (PyTorch's DCP) to this folder, and begin from the last one there; older ones are removed."


_CHECKPOINT_OPTIONS = common.options(
    click.option("--checkpoint", type=FOLDER, help=_CHECKPOINT),
    common.default_option("--checkpoint-every", type=int, default=1, metavar="STEPS", help="Steps between checkpoints."),
    click.option(
        "--elastic",
        is_flag=True,
        help="After a --fault that ends a rank, go on from the last --checkpoint on the NPUs that are left.",
    ),
)


@click.command("train")
@common.model_option
@click.option("--plan", required=True, metavar="dp=4,tp=4", help=_PLAN_HELP)
@common.topology_option
@common.default_option("--steps", default=5, help="The number of training steps.")
@click.option("--global-batch", type=int, help=f"Sequences in a step, over all ranks.  [default: {Plan().global_batch}]")
@click.option("--seq", type=int, help=f"Tokens in a sequence.  [default: {Plan().seq}]")
@click.option(
    "--data", type=click.Path(path_type=Path), help="Train on the bytes of this file. [default: a text that comes with Python]"
)
@common.default_option("--seed", default=0, help="The seed of weights and data.")
@common.device_option
@common.default_option("--dtype", default="bfloat16", help=f"The data type as which float32 is timed. {AS_RAN}: as it ran.")
@common.algorithm_option
@common.calls_option
@common.fault_option
@_CHECKPOINT_OPTIONS
@common.job_png_option
@common.timeline_options
@common.trace_option
@common.cluster_options
@common.pace_option
@common.pace_compute_option
@common.answer_options
def train_command(**options: Any) -> int:
    """Train a model on emulated NPUs, compare the loss with one process, and time the step on a fabric.

    \b
    emu train --model llama-tiny --plan dp=4,tp=4 --topology ub-mesh:rack
    emu train --model llama-tiny --plan dp=2,tp=2 --topology ub-mesh:board --cluster ray --json
    emu train --model llama-tiny --plan dp=2,tp=2 --topology ub-mesh:board --fault "link 0-1 at step 2"
    emu train --model llama-tiny --plan dp=2,tp=2 --topology ub-mesh:board --pace 1000
    emu train --model llama-tiny --plan dp=2 --topology ub-mesh:rack-full --fault "npu 1 at step 3" --elastic --checkpoint kept
    """
    check_fault(options, "timeline", *(("trace",) if options["checkpoint"] else ()))
    check_job_picture(options)
    return show(train, keep_trace(options))
