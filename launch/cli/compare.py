"""The command `emu compare`: whether a step of two traces is equal."""

from dataclasses import asdict
from pathlib import Path

import click

from emu.trace.comparison.comparison import compare
from emu.trace.trace_file import load
from launch.cli.options.common import json_option, print_json
from launch.cli.options.outputs import print_text
from launch.show.text.trace_difference import trace_difference_report


@click.command("compare")
@click.argument("first", metavar="A.trace", type=click.Path(path_type=Path))
@click.argument("second", metavar="B.trace", type=click.Path(path_type=Path))
@json_option
def compare_command(first: Path, second: Path, as_json: bool) -> int:
    """Compare a step of two traces: requests, their order, bytes, dependencies, FLOPs and memory.

    The first difference is printed, then the requests of each axis in both traces. The exit code is 0 if the steps are equal,
    and 1 if they are not.

    \b
    emu compare one.trace other.trace
    """
    compared = compare(load(first), load(second))
    if as_json:
        print_json({"equal": compared.equal, **asdict(compared)})
    else:
        print_text(trace_difference_report(compared))
    return 0 if compared.equal else 1
