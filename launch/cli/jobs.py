"""The command `emu jobs`: jobs that share one fabric, and how far they slow one another down."""

from typing import Any

import click

from launch.cli.options import common
from launch.cli.options.files import INPUT, OutputFile
from launch.cli.options.output import ask_and_save
from launch.cli.options.question_options import QuestionOptions
from launch.front.sharing.shared_jobs import jobs

options_of = QuestionOptions(jobs)


@click.command("jobs")
@click.argument("jobs", type=INPUT)
@common.topology_option
@options_of("placement", "shift", "share", "routes", "steps", "fabric", "network")
@click.option(
    "--png", type=OutputFile(".png"), help="Draw a lane for each job, or the slow-downs in several settings, to this file."
)
@click.option(
    "--timeline", type=OutputFile(), help="Write a lane for each job, in the first setting, to this file for ui.perfetto.dev."
)
@common.answer_options
def jobs_command(**options: Any) -> int:
    """Run jobs side by side on one fabric: their steps alone and beside the others, and who slows whom over which links.

    \b
    emu jobs jobs.toml --topology servers:nodes=8
    emu jobs jobs.toml --topology hpn:segment --placement packed --placement random:seed=1 --png settings.png
    emu jobs jobs.toml --topology servers:nodes=8 --shift none --shift circle
    emu jobs jobs.toml --topology hpn:segment --share weights --share priority --share slices --share planes
    """
    return ask_and_save(jobs, options)
