"""`emu replay`: what ran once, timed on as many fabrics as one likes."""

from pathlib import Path

import click

from launch.cli.options.common import import_option, json_option, perturb_option
from launch.cli.options.faulted import check_beside, fault_option, png_option, show_disturbed
from launch.cli.options.looks import Looks, looks_options
from launch.cli.steps import Recorded, recorded_options, show_steps
from launch.show.progress import progress_bar


@click.command("replay")
@recorded_options
@fault_option
@png_option
@looks_options
@perturb_option
@import_option
@json_option
def replay_command(
    recorded: Recorded, faults: tuple[str, ...], png: Path | None, looks: Looks, perturb: int, as_json: bool
) -> None:
    """Time a recorded trace on topologies, without running it again.

    `--algorithm recorded` serves the operations that no other --algorithm names as the recorded run was served.

    \b
    emu replay ddp.trace --topology ub-mesh:board --topology switch:n=8,bandwidth=450GB/s,latency=500ns
    emu replay ddp.trace --topology ub-mesh:board --algorithm recorded --algorithm broadcast=binomial
    emu replay ddp.trace --topology ub-mesh:board --fault "link 0-1 at step 2" --png steps.png
    """
    check_beside(faults, {**looks.given, "--perturb": perturb}, png)
    if faults:
        with progress_bar(f"timing {recorded.trace}"):
            results = recorded.disturbed(faults)
        show_disturbed(results, png, as_json=as_json)
        return
    with progress_bar(f"timing {recorded.trace}"):
        timed = recorded.timed(perturb)
    show_steps(f"Replay of {recorded.trace.name}", timed, looks, as_json=as_json)
