"""`emu train`: real training steps on emulated NPUs, and what they would take on a fabric."""

from pathlib import Path

import click

from emu.model.plan import Plan
from emu.study.training.text import read_text
from emu.study.training.train import Trained, TrainRequest, run_steps, time_steps
from emu.topology.catalogue import build_topology
from emu.trace.read import save
from emu.units import format_time
from launch.cli.options import ALGORITHM_HELP, cluster_options, import_option, json_option, print_json, topology_option
from launch.clusters import run_on
from launch.data.devices import find_device
from launch.show.progress import bar
from launch.show.text.step import foot_lines, step_lines


@click.command("train")
@click.option("--model", required=True, help="See `emu list models`.")
@click.option("--plan", required=True, metavar="dp=4,tp=4", help="Sizes of the axes.")
@topology_option
@click.option("--steps", default=5, show_default=True)
@click.option("--global-batch", type=int, help="Sequences a step, over all ranks.")
@click.option("--seq", type=int, help="Tokens a sequence.")
@click.option("--data", type=click.Path(path_type=Path), help="Train on the bytes of this file. [default: a text of Python's]")
@click.option("--seed", default=0, show_default=True)
@click.option("--device", default="h100", show_default=True, help="Times the computation; see `emu list devices`.")
@click.option("--dtype", default="bfloat16", show_default=True, help="What float32 is timed as.")
@click.option("--algorithm", "algorithms", multiple=True, metavar="OPERATION=NAME", help=ALGORITHM_HELP)
@click.option("--trace", type=click.Path(path_type=Path), help="Save what ran here; `emu replay` times it elsewhere.")
@cluster_options
@import_option
@json_option
def train_command(
    model: str,
    plan: str,
    topologies: tuple[str, ...],
    steps: int,
    global_batch: int | None,
    seq: int | None,
    data: Path | None,
    seed: int,
    device: str,
    dtype: str,
    algorithms: tuple[str, ...],
    trace: Path | None,
    cluster: str,
    ray_address: str | None,
    as_json: bool,
) -> None:
    """Train for real on emulated NPUs, hold the loss against one process, and time the step on a fabric.

    \b
    emu train --model llama-tiny --plan dp=4,tp=4 --topology ub-mesh:rack
    emu train --model llama-tiny --plan dp=2,tp=2 --topology ub-mesh:board --cluster ray --json
    """
    request = TrainRequest(
        model=model,
        plan=Plan.parse(plan, **{k: v for k, v in (("global_batch", global_batch), ("seq", seq)) if v is not None}),
        text=read_text(data),
        steps=steps,
        seed=seed,
        dtype=dtype,
        algorithms=algorithms,
    )
    built, found = [build_topology(word) for word in topologies], find_device(device, dtype)
    with bar(f"{steps} steps on {request.plan.world} ranks"):
        learned = run_steps(request, built, found, run_on(cluster, ray_address))
    if trace is not None:
        save(learned.trace, trace)
    results = [time_steps(request, learned, each, found) for each in built]
    if as_json:
        print_json(results[0] if len(results) == 1 else results)
        return
    click.echo("\n\n".join(map(_report, results)))


def _report(r: Trained) -> str:
    rows = zip(r.loss, r.reference_loss, r.step_times_s, strict=True)
    lines = [
        f"{r.model} on {r.ranks} {r.device} of {r.topology}, {r.plan}",
        "",
        f"{'step':>6}  {'loss':>10}  {'one process':>11}  {'virtual time':>12}",
        *(f"{i:>6}  {loss:>10.6f}  {one:>11.6f}  {format_time(t):>12}" for i, (loss, one, t) in enumerate(rows, 1)),
        "",
        f"gradients       within {r.gradient_error:.1e} of one process's",
        *step_lines(r),
        f"tokens/s        {r.tokens_per_s:,.0f}",
        f"MFU             {r.mfu:.3g}",
        f"wall            {r.wall_run_s:.1f} s run, {r.wall_reference_s:.1f} s one process, {r.wall_fabric_s:.1f} s timing",
        *foot_lines(r),
    ]
    return "\n".join(lines)
