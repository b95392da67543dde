"""The commands `emu repro PAPER` and `emu repro all`."""

from typing import Any

import click

from emu.errors import InputError
from launch.cli.options.common import cache_option, import_option, row_options
from launch.cli.options.files import OutputFile, OutputFolder
from launch.cli.options.output import show
from launch.front.publications import check_figure, repro
from launch.papers.catalogue import PAPERS
from launch.papers.paper import REGISTERED


def add_papers(group: click.Group) -> None:
    """Add a command for each paper, and one for all, to a group of commands."""
    for name in PAPERS:
        group.add_command(_command(name))
    group.add_command(all_command)


@click.command("all")
@click.option("--docs", type=OutputFolder(), help="Write a page of each paper to this folder.")
@cache_option
@import_option
@row_options
def all_command(**options: Any) -> int:
    """Compute each row of each paper, and report how many are met.

    Results are kept: a row that was computed before is read from the cache.

    \b
    emu repro all
    emu repro all --json
    """
    return show(repro, options, source="all")


def _command(name: str) -> click.Command:
    """Return the command of one paper."""

    @click.command(name, help=_help(name))
    @click.option("--table", help="One table of the paper, such as 6, or one section, such as 6.4.")
    @click.option("--figure", help="One figure of the paper, such as 17.")
    @click.option("--png", type=OutputFile(".png"), help="Draw the --figure with the axes of the paper to this file.")
    @click.option("--docs", type=OutputFolder(), help="Write the page of the paper, with all its rows, to this folder.")
    @cache_option
    @import_option
    @row_options
    def command(**options: Any) -> int:
        table, figure = options["table"], options["figure"]
        for flag, given in (("--table", table), ("--figure", figure)):
            if given is not None and options["docs"] is not None:
                raise InputError(f"repro: {flag} and --docs exclude each other; give one of them")
        if options["png"] is not None:
            check_figure(name, figure)
        return show(repro, options, source=name)

    return command


def _help(name: str) -> str:
    """Return the help of the command of one paper."""
    return (
        f"Compute the rows of the {name} paper.\n\n"
        "Each row of its tables and figures is compared with the printed value. Results are kept. "
        " An interrupted command goes on where it stopped when it is started again.\n\n"
        f"\b\nemu repro {name}\nemu repro {name} {REGISTERED[name].example} --json"
    )
