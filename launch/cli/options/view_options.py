"""The options `--html`, a report, and `--timeline`, a file for Perfetto."""

import click

from launch.cli.options.common import F, with_all
from launch.cli.options.files import OutputFile
from launch.show.lanes import MOST_RANKS

_HTML = "Write a report with charts and tables to this HTML file. It needs no network to be read."
_TIMELINE = f"Write a timeline for ui.perfetto.dev to this file. Above {MOST_RANKS} ranks it shows one rank a role and stage."

html_option = click.option("--html", type=OutputFile(), help=_HTML)
_TIMELINE_OPTIONS = (
    click.option("--timeline", type=OutputFile(), help=_TIMELINE),
    click.option("--every-rank", is_flag=True, help="Write every rank and every link to the --timeline."),
)


def timeline_options(command: F) -> F:
    """Add `--timeline` and `--every-rank` to a command."""
    return with_all(command, *_TIMELINE_OPTIONS)


def view_options(command: F) -> F:
    """Add `--html`, `--timeline` and `--every-rank` to a command."""
    return with_all(command, html_option, *_TIMELINE_OPTIONS)
