"""The steps of a sweep by `emu estimate` or `emu plan`."""

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
from launch.cli.options.outputs import may_fail, print_text, write_png
from launch.cli.options.sweep import Sweep, Words, points, words_at
from launch.data.devices import find_device
from launch.show.progress import with_progress
from launch.show.text.sweep_table import SweepRow, SweepStep, sweep_csv

_WHOLE = ("seq", "global-batch", "npus")  # options that take whole numbers


class SweepPoint(NamedTuple):
    """A point of a sweep: the options of the command, with the topology, the device and the stack that they give."""

    said: Words
    topology: Topology
    device: Device
    stack: Stack

    def whole(self, name: str) -> int:
        """Return the value of an option that takes a whole number."""
        return int(self.said[name])


def sweep_steps(
    words: Words,
    topologies: Sequence[str],
    sweeps: Sequence[Sweep],
    timed: Callable[[SweepPoint], SweepStep],
    *,
    label: str = "",
) -> list[SweepRow]:
    """Return the step at every point on every topology, or the reason why there is none.

    Args:
        words: The options that are not swept: model, plan, stack, device, seq, global-batch.
        topologies: The topologies as they were written.
        sweeps: The sweeps.
        timed: The function that returns the step of a point.
        label: The label of a progress bar of points; "": `timed` shows its own.

    Raises:
        InputError: a value is invalid at any point, or no point has a step.
    """
    where = [(point, words_at({**words, "topology": word}, point)) for point in points(sweeps) for word in topologies]
    built = {said["topology"]: build_topology(said["topology"]) for _, said in where}
    for _, said in where:
        _check(said)
    rows = []
    for point, said in with_progress(where, label, len(where)) if label else where:
        try:
            stack = stack_of(said["stack"])
            asked = SweepPoint(said, built[said["topology"]], find_device(said["device"], stack.precision.activation), stack)
            rows.append(SweepRow(said["topology"], point, "", timed(asked)))
        except InputError as error:
            rows.append(SweepRow(said["topology"], point, str(error), None))
    if all(row.step is None for row in rows):
        raise InputError(f"--sweep: no point has a step; the first: {rows[0].refused}")
    return rows


def _check(said: Words) -> None:
    """Refuse values that are invalid whatever the topology is.

    Raises:
        InputError: the device is unknown, or a number is not whole.
    """
    find_device(said["device"], stack_of(said["stack"]).precision.activation)
    for name in said.keys() & set(_WHOLE):
        if not said[name].isdecimal() or not int(said[name]):
            raise must_be("--sweep", name, "whole numbers of 1 or more", said[name])


@dataclass(frozen=True, slots=True)
class SweepFiles:
    """The files of the table and the picture of a sweep."""

    csv: Path | None
    png: Path | None


def show_sweep(rows: Sequence[SweepRow], title: str, files: SweepFiles, *, as_json: bool) -> None:
    """Write the table to its file, or print it where it has none; draw the picture if it was asked for."""
    table = sweep_csv(rows)
    if as_json:
        print_json(rows)
    elif files.csv is None:
        print_text(table, nl=False)
    if files.csv is not None:
        _write_table(table, files.csv, as_json=as_json)
    write_png(files.png, "chart.sweep_chart:sweep_figure", rows, title)


def _write_table(table: str, path: Path, *, as_json: bool) -> None:
    """Write the table to a file; print it where that fails and JSON was not asked for."""
    with may_fail():
        try:
            write_file("--csv", path, table.encode())
        except WriteError:
            if not as_json:
                print_text(table, nl=False)
            raise


def check_sweep_options(where: str, of_one: Mapping[str, object]) -> None:
    """Refuse options that show one step where there is a sweep.

    Args:
        where: The name of the command.
        of_one: The values of these options, by flag.

    Raises:
        InputError: one of them was given.
    """
    for name, given in of_one.items():
        if given:
            raise must_be(where, name, "left out where there is a --sweep", _value_text(given), "it shows a single step")


def check_no_csv(where: str, csv: Path | None) -> None:
    """Refuse `--csv` where there is no sweep.

    Raises:
        InputError: it was given.
    """
    if csv is not None:
        raise must_be(where, "--csv", "left out where there is no --sweep", str(csv))


def _value_text(given: object) -> str:
    """Return the value of an option as text."""
    return ", ".join(given) if isinstance(given, tuple) else str(given)
