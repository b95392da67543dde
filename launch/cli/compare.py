"""The command `emu compare`: whether a step of two traces is equal."""

from typing import Any

import click

from launch.cli.options.common import row_options
from launch.cli.options.files import INPUT
from launch.cli.options.output import ask_and_save
from launch.front.steps.replays import compare


@click.command("compare")
@click.argument("first", metavar="A.trace", type=INPUT)
@click.argument("second", metavar="B.trace", type=INPUT)
@row_options
def compare_command(**options: Any) -> int:
    """Compare a step of two traces: requests, their order, bytes, dependencies, FLOPs and memory.

    The first difference is printed, then the requests of each axis in both traces. The exit code is 0 if the steps are equal,
    and 1 if they are not.

    \b
    emu compare one.trace other.trace
    """
    return ask_and_save(compare, options)
