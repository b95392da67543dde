"""`emu replay`: what ran once, timed on as many fabrics as one likes."""

from pathlib import Path

import click

from emu.study.training.step import choice_for, time_trace
from emu.topology.catalogue import build_topology
from emu.trace.read import load
from launch.cli.options import import_option, json_option, perturb_option, timing_options, topology_option
from launch.cli.steps import show_steps
from launch.data.devices import find_device


@click.command("replay")
@click.argument("trace", type=click.Path(path_type=Path))
@topology_option
@timing_options
@perturb_option
@import_option
@json_option
def replay_command(
    trace: Path,
    topologies: tuple[str, ...],
    device: str,
    dtype: str,
    algorithms: tuple[str, ...],
    timeline: Path | None,
    perturb: int,
    as_json: bool,
) -> None:
    """Time a recorded trace on topologies, without running it again.

    \b
    emu replay ddp.trace --topology ub-mesh:board --topology switch:n=8,bandwidth=450GB/s,latency=500ns
    """
    recorded = load(trace)
    built = [build_topology(word) for word in topologies]
    choices, found = [choice_for(recorded, algorithms, each, dtype) for each in built], find_device(device, dtype)
    pairs = zip(choices, built, strict=True)
    timed = [time_trace(recorded, choice, each, found, dtype, perturb=perturb) for choice, each in pairs]
    show_steps(timed, timeline, as_json=as_json)
