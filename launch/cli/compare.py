"""`emu compare`: do two traces say that a step does the same?"""

from dataclasses import asdict
from pathlib import Path

import click

from emu.trace.compare.compare import compare
from emu.trace.read import load
from launch.cli.options.common import json_option, print_json
from launch.cli.options.outputs import print_text
from launch.show.text.trace_difference import trace_difference_report


@click.command("compare")
@click.argument("first", metavar="A.trace", type=click.Path(path_type=Path))
@click.argument("second", metavar="B.trace", type=click.Path(path_type=Path))
@json_option
def compare_command(first: Path, second: Path, as_json: bool) -> int:
    """Whether a step of two traces does the same: requests, their order, bytes, dependencies, FLOPs, memory.

    Prints the first difference, then what each axis asks for in either trace. Exit code 0: they are equal; 1: they are not.

    \b
    emu compare one.trace other.trace
    """
    compared = compare(load(first), load(second))
    if as_json:
        print_json({"equal": compared.equal, **asdict(compared)})
    else:
        print_text(trace_difference_report(compared))
    return 0 if compared.equal else 1
