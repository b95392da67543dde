"""The options of `--timeline`, a file for Perfetto."""

import click

from launch.cli.options.common import F, with_all
from launch.cli.options.files import OutputFile
from launch.show.lanes import MOST_RANKS

_TIMELINE = f"Write a timeline for ui.perfetto.dev to this file. Above {MOST_RANKS} ranks it shows one rank a role and stage."

_TIMELINE_OPTIONS = (
    click.option("--timeline", type=OutputFile(), help=_TIMELINE),
    click.option("--every-rank", is_flag=True, help="Write every rank and every link to the --timeline."),
)


def timeline_options(command: F) -> F:
    """Add `--timeline` and `--every-rank` to a command."""
    return with_all(command, *_TIMELINE_OPTIONS)
