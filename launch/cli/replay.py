"""The command `emu replay`: a recorded run, timed on other fabrics."""

import click

from emu.trace.trace_file import load
from launch.cli.options.common import import_option, json_option, perturb_option
from launch.cli.options.job_options import JobOptions, fault_option, faulty_job, png_option
from launch.cli.options.view_options import ViewOptions, view_options
from launch.cli.trace_steps import RecordedTrace, recorded_options, show_steps
from launch.show.progress import progress_bar


@click.command("replay")
@recorded_options
@fault_option
@png_option
@view_options
@perturb_option
@import_option
@json_option
@faulty_job
def replay_command(recorded: RecordedTrace, job: JobOptions, looks: ViewOptions, perturb: int, as_json: bool) -> None:
    """Time a recorded trace on topologies, without running it again.

    With `--algorithm recorded`, operations that no other --algorithm names keep the algorithms of the recorded run.

    \b
    emu replay ddp.trace --topology ub-mesh:board --topology switch:n=8,bandwidth=450GB/s,latency=500ns
    emu replay ddp.trace --topology ub-mesh:board --algorithm recorded --algorithm broadcast=binomial
    emu replay ddp.trace --topology ub-mesh:board --fault "link 0-1 at step 2" --png steps.png
    """
    job.check({**looks.given, "--perturb": perturb})
    if job.faults:
        with progress_bar(f"timing {recorded.trace}"):
            results = recorded.time_with_faults(load(recorded.trace), job.faults, clock=True)
        job.show(results, None, as_json=as_json)
        return
    with progress_bar(f"timing {recorded.trace}"):
        timed = recorded.time(perturb)
    show_steps(f"Replay of {recorded.trace.name}", timed, looks, as_json=as_json)
