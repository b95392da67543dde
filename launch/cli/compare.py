"""The command `emu compare`: whether a step of two traces is equal."""

from dataclasses import asdict
from pathlib import Path

import click

from emu.trace.comparison.comparison import Comparison, compare
from emu.trace.trace_file import load
from launch.cli.options.common import json_option, print_result
from launch.show.text.table import table


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
    print_result({"equal": compared.equal, **asdict(compared)}, lambda: _report(compared), as_json=as_json)
    return 0 if compared.equal else 1


def _report(compared: Comparison) -> str:
    """Return whether the traces are equal, the first difference, and a table of both by axis."""
    which = f"step {compared.steps[0]} of the first trace and step {compared.steps[1]} of the second"
    first = compared.first
    if first is None:
        lines = [f"equal: {which}, on each of {compared.ranks} ranks"]
    else:
        where = f"event {first.event}" if first.event >= 0 else "beyond the first trace's events"
        lines = [
            f"not equal: {which}, on {compared.differing_ranks} of {compared.ranks} ranks",
            f"first on rank {first.rank}, {where}: {first.what}",
        ]
    rows = [
        (axis or "other", *(str(n) for n in (*of.events, *of.bytes)), *(f"{f:.6g}" for f in of.flops))
        for axis, of in compared.by_axis.items()
    ]
    head = ("axis", "events", "second", "bytes", "second", "FLOPs", "second")
    return "\n".join([*lines, "", table(head, rows)])
