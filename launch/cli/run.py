"""`emu run`: a PyTorch script as torchrun starts it, on a cluster that is not there."""

import sys
from contextlib import redirect_stdout
from pathlib import Path

import click

from emu.cluster.script import run_script
from emu.errors import must_be
from emu.study.measure.choice import choice_on
from emu.study.training.step import time_trace, with_choice
from emu.topology.catalogue import build_topology
from emu.topology.placement import place
from emu.trace.read import save
from emu.trace.trace import Trace
from launch.cli.options import import_option, json_option, timing_options, topology_option
from launch.cli.steps import show_steps
from launch.data.devices import find_device


@click.command("run", context_settings={"ignore_unknown_options": True, "allow_interspersed_args": False})
@click.option("--ranks", type=int, required=True, help="How many: the script's WORLD_SIZE.")
@topology_option
@timing_options
@click.option("--trace", type=click.Path(path_type=Path), help="Save what ran here; `emu replay` times it elsewhere.")
@import_option
@json_option
@click.argument("script", type=click.Path(path_type=Path))
@click.argument("args", nargs=-1, type=click.UNPROCESSED)
def run_command(
    ranks: int,
    topologies: tuple[str, ...],
    device: str,
    dtype: str,
    algorithms: tuple[str, ...],
    timeline: Path | None,
    trace: Path | None,
    as_json: bool,
    script: Path,
    args: tuple[str, ...],
) -> int:
    """Run an unmodified PyTorch script on emulated NPUs, and time its training step on a fabric.

    Everything after SCRIPT belongs to the script; the exit code is the script's.

    \b
    emu run --ranks 8 --topology ub-mesh:board train.py
    emu run --ranks 8 --topology ub-mesh:board --trace ddp.trace --timeline ddp.json train.py
    """
    if ranks < 1:
        raise must_be("run", "--ranks", "1 or more", ranks)
    built, found = [build_topology(word) for word in topologies], find_device(device, dtype)
    choices = [choice_on(each, algorithms, dtype) for each in built]
    for each in built:
        place(each, ranks)
    with redirect_stdout(sys.stderr if as_json else sys.stdout):
        recorded, code = run_script(script, args, ranks, choices[0], hide=("launch",))
    recorded = with_choice(recorded, choices[0])
    if trace is not None:
        save(recorded, trace)
    if not _has_steps(recorded):
        click.echo("emu: no optimizer step was seen, so there is no step to time", err=True)
        return code
    timed = [time_trace(recorded, choice, each, found, dtype) for choice, each in zip(choices, built, strict=True)]
    show_steps(timed, timeline, as_json=as_json)
    return code


def _has_steps(trace: Trace) -> bool:
    return any(events.step.max(initial=0) > 0 for events in trace.events)
