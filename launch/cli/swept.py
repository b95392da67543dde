"""`--sweep` of `emu estimate` and `emu plan`: the step at each point."""

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from emu.errors import InputError, WriteError, must_be
from emu.files import write_file
from emu.model.stack.stack import Stack
from emu.topology.catalogue import build_topology
from emu.topology.topology import Topology
from emu.trace.device.device import Device
from launch.cli.options.common import print_json, stack_of
from launch.cli.options.outputs import may_fail, print_text
from launch.cli.options.sweep import Sweep, Words, at, points
from launch.data.devices import find_device
from launch.show.progress import with_progress
from launch.show.text.sweep_table import SweepRow, SweepStep, sweep_csv

_WHOLE = ("seq", "global-batch", "npus")  # numbers of tokens, sequences and NPUs


class Point(NamedTuple):
    """What a command would have been given at one point."""

    said: Words
    topology: Topology
    device: Device
    stack: Stack

    def whole(self, name: str) -> int:
        """One of the numbers that are whole."""
        return int(self.said[name])


def sweep_steps(
    words: Words, topologies: Sequence[str], sweeps: Sequence[Sweep], timed: Callable[[Point], SweepStep], *, label: str = ""
) -> list[SweepRow]:
    """The step at every point on every topology; what fits neither model nor topology leaves its reason.

    Args:
        words: What is given beside: model, plan, stack, device, seq, global-batch.
        topologies: Where.
        sweeps: What is changed.
        timed: The step of a point.
        label: Of a bar that each point advances; "": `timed` tells what it does itself.

    Raises:
        InputError: a value that is none, wherever; or no point has a step.
    """
    where = [(point, at({**words, "topology": word}, point)) for point in points(sweeps) for word in topologies]
    built = {said["topology"]: build_topology(said["topology"]) for _, said in where}
    for _, said in where:
        _check(said)
    rows = []
    for point, said in with_progress(where, label, len(where)) if label else where:
        try:
            stack = stack_of(said["stack"])
            asked = Point(said, built[said["topology"]], find_device(said["device"], stack.precision.activation), stack)
            rows.append(SweepRow(said["topology"], point, "", timed(asked)))
        except InputError as error:
            rows.append(SweepRow(said["topology"], point, str(error), None))
    if all(row.step is None for row in rows):
        raise InputError(f"--sweep: no point has a step; the first: {rows[0].refused}")
    return rows


def _check(said: Words) -> None:
    find_device(said["device"], stack_of(said["stack"]).precision.activation)
    for name in said.keys() & set(_WHOLE):
        if not said[name].isdecimal() or not int(said[name]):
            raise must_be("--sweep", name, "whole numbers of 1 or more", said[name])


@dataclass(frozen=True, slots=True)
class Files:
    """Where the table and the picture of a sweep go."""

    csv: Path | None
    png: Path | None


def show_swept(rows: Sequence[SweepRow], title: str, files: Files, *, as_json: bool) -> None:
    """Show the table in its file, or on stdout where it has none or cannot be written there; and the picture."""
    table = sweep_csv(rows)
    if as_json:
        print_json(rows)
    elif files.csv is None:
        print_text(table, nl=False)
    if files.csv is not None:
        _write_table(table, files.csv, as_json=as_json)
    if files.png is not None:
        draw = importlib.import_module("launch.show.chart.sweep_chart")  # not above: it loads matplotlib
        with may_fail():
            draw.draw_swept(rows, title, files.png)


def _write_table(table: str, path: Path, *, as_json: bool) -> None:
    """Write the table, or print it where the file cannot be written and no JSON has it."""
    with may_fail():
        try:
            write_file("--csv", path, table.encode())
        except WriteError:
            if not as_json:
                print_text(table, nl=False)
            raise


def check_swept(where: str, of_one: Mapping[str, object]) -> None:
    """Refuse options that are of one step, and not of many.

    Args:
        where: The command.
        of_one: What they were given; None or nothing: not given.

    Raises:
        InputError: one was given.
    """
    for name, given in of_one.items():
        if given:
            raise must_be(where, name, "left out where there is a --sweep", _told(given), "it is of one step")


def check_not_swept(where: str, csv: Path | None) -> None:
    """Refuse the file of a table that there is none of.

    Raises:
        InputError: it was given.
    """
    if csv is not None:
        raise must_be(where, "--csv", "left out where there is no --sweep", str(csv))


def _told(given: object) -> str:
    return ", ".join(given) if isinstance(given, tuple) else str(given)
