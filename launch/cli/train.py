"""The command `emu train`: real training steps on emulated NPUs, timed on a fabric."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import click

from emu.errors import InputError
from emu.model.pipeline.pipeline_order import ORDERS
from emu.model.plan.plan import CHOICES, Plan
from emu.model.plan.plan_text import parse_plan
from emu.model.plan.rank_axes import AXES, TITLES
from emu.study.live.elastic_job import CheckpointPolicy, train_with_checkpoints
from emu.study.training.learn.program import read_text
from emu.study.training.step.step import with_means
from emu.study.training.train import TrainRequest, run_steps, time_steps
from emu.topology.catalogue import build_topology
from emu.topology.fault_injection.fault_script import at_times
from emu.trace.device.dtypes import AS_RAN
from emu.trace.trace_file import save
from launch.cli.options import common, job_options
from launch.cli.options.files import OutputFolder, write_output
from launch.cli.options.view_options import ViewOptions, view_options
from launch.cli.trace_steps import TimingOptions
from launch.clusters import ClusterOptions, cluster_options
from launch.data.devices import find_device
from launch.show.progress import progress_bar
from launch.show.text.step_report import train_report

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


@dataclass(frozen=True, slots=True)
class CheckpointOptions:
    """The values of the options for checkpoints."""

    folder: Path | None
    every: int
    elastic: bool

    @property
    def given(self) -> tuple[str, ...]:
        """The flag `--checkpoint`, if it was given."""
        return () if self.folder is None else ("--checkpoint",)

    def check(self, topologies: Sequence[str], job: job_options.JobOptions) -> None:
        """Refuse options that do not fit together.

        Args:
            topologies: The topologies of the job.
            job: The faults of the job, and whether virtual time runs by the clock of this host.

        Raises:
            InputError: naming the option.
        """
        if self.folder is None and (self.elastic or self.every != 1):
            flag = "--elastic" if self.elastic else "--checkpoint-every"
            raise InputError(f"{flag}: needs a folder for checkpoints; add --checkpoint DIR")
        if self.folder is not None and len(topologies) > 1:
            raise InputError(f"--checkpoint: must have one --topology, got {len(topologies)}; leave the others out")
        if self.folder is not None and job.factor is not None and (job.faults or self.elastic):
            flag = "--elastic" if self.elastic else "--fault"
            raise InputError(f"--pace: must be given without {flag} where --checkpoint is given; leave --pace or {flag} out")

    def run_job(
        self, request: TrainRequest, timing: TimingOptions, job: job_options.JobOptions, where: ClusterOptions, *, as_json: bool
    ) -> None:
        """Run the job on the first topology, and print its steps.

        Raises:
            InputError: as `train_with_checkpoints`.
            RunError: as `train_with_checkpoints`.
        """
        assert self.folder is not None
        keeping = CheckpointPolicy(self.folder, self.every, self.elastic, where.cluster == "ray")
        device, under = find_device(timing.device, request.dtype), timing.calls
        built = build_topology(timing.topologies[0])
        pace = job.pace(timing.topologies[0], device, request.dtype, under)
        with progress_bar(f"{request.steps} steps on {request.plan.world} ranks"), where.open_cluster(pace=pace) as cluster:
            kept = train_with_checkpoints(request, keeping, built, device, job.faults, under, cluster.record)
        job.show([kept], pace, as_json=as_json)


checkpoint_options = common.options_as_one(
    "keeping",
    CheckpointOptions,
    click.option("--checkpoint", "folder", type=OutputFolder(), help=_CHECKPOINT),
    common.default_option(
        "--checkpoint-every", "every", type=int, default=1, metavar="STEPS", help="Steps between checkpoints."
    ),
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
@job_options.fault_option
@checkpoint_options
@job_options.png_option
@view_options
@common.trace_option
@cluster_options
@job_options.pace_option
@job_options.pace_compute_option
@common.import_option
@common.json_option
@job_options.faulty_job
@common.options_as_one("timing", TimingOptions)
def train_command(
    model: str,
    plan: str,
    timing: TimingOptions,
    steps: int,
    global_batch: int | None,
    seq: int | None,
    data: Path | None,
    seed: int,
    job: job_options.JobOptions,
    keeping: CheckpointOptions,
    looks: ViewOptions,
    trace: Path | None,
    where: ClusterOptions,
    as_json: bool,
) -> None:
    """Train a model on emulated NPUs, compare the loss with one process, and time the step on a fabric.

    \b
    emu train --model llama-tiny --plan dp=4,tp=4 --topology ub-mesh:rack
    emu train --model llama-tiny --plan dp=2,tp=2 --topology ub-mesh:board --cluster ray --json
    emu train --model llama-tiny --plan dp=2,tp=2 --topology ub-mesh:board --fault "link 0-1 at step 2"
    emu train --model llama-tiny --plan dp=2,tp=2 --topology ub-mesh:board --pace 1000
    emu train --model llama-tiny --plan dp=2 --topology ub-mesh:rack-full --fault "npu 1 at step 3" --elastic --checkpoint kept
    """
    request = TrainRequest(
        model=model,
        plan=parse_plan(plan, **{k: v for k, v in (("global_batch", global_batch), ("seq", seq)) if v is not None}),
        text=read_text(data),
        steps=steps,
        seed=seed,
        dtype=timing.dtype or AS_RAN,
        algorithms=timing.words,
    )
    keeping.check(timing.topologies, job)
    job.check({**looks.given, **({"--trace": trace} if keeping.given else {})}, checkpoints=keeping.given)
    if keeping.given:
        keeping.run_job(request, timing, job, where, as_json=as_json)
        return
    built, found = timing.build(request.dtype)
    known, lost = job.known_faults(timing.topologies, request.plan.world, steps)
    pace = job.pace(timing.topologies[0], found, request.dtype, timing.calls, known)
    with progress_bar(f"{steps} steps on {request.plan.world} ranks"):
        learned = run_steps(request, built, found, partial(where.record, pace=pace), lost)
    write_output(trace, partial(save, learned.trace))
    if job.faults and not at_times(job.faults):
        with progress_bar("timing the steps"):
            told = timing.time_with_faults(learned.trace, job.faults)
        trained = [replace(each, loss=learned.loss, reference_loss=learned.reference_loss) for each in told]
        job.show(trained, pace, as_json=as_json)
        return
    with progress_bar("timing the step"):
        shown = [time_steps(request, learned, each, found) for each in built]
        shown = with_means(shown) if as_json or len(shown) > 1 else shown
    results = [trained for trained, _ in shown]
    results[0] = replace(results[0], paced=job_options.pacing_of(pace))
    printed = results[0] if len(results) == 1 else results
    common.print_result(printed, lambda: "\n\n".join(map(train_report, results)), as_json=as_json)
    looks.write(
        f"Training of {results[0].model}", f"{results[0].plan}, {steps} steps on {results[0].ranks} {timing.device}", shown
    )
