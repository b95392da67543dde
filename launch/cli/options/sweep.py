"""The option `--sweep NAME=VALUES`: a command at several values of an option, and at all combinations of several sweeps.

Also here: the steps of a sweep by `emu estimate` or `emu plan`.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import NamedTuple

import click

from emu.errors import InputError, WriteError, must_be
from emu.files import write_file
from emu.model.model_file import find_model
from emu.model.plan.plan_text import WORDS
from emu.model.stack.stack import STACK_WORDS, Stack
from emu.registry import parse_call, unknown
from emu.topology.catalogue import build_topology
from emu.topology.description.topology_file import is_file
from emu.topology.topology import Topology
from emu.trace.device.device import Device
from launch.cli.options.common import options_as_one, print_json, stack_of
from launch.cli.options.files import may_fail, print_text, write_png
from launch.data.devices import find_device
from launch.data.stacks import STACKS
from launch.show.progress import with_progress
from launch.show.text.estimate_table import SweepRow, SweepStep, sweep_csv

_WHOLE = ("seq", "global-batch", "npus")  # options that take whole numbers
_PLAIN = ("model", "device", "seq", "global-batch")
_PARTS = (*(f"plan.{w}" for w in WORDS), *(f"stack.{w}" for w in STACK_WORDS), "topology.SETTING", "device.SETTING")
_RANGE = re.compile(r"(?P<low>[\d.]+)(?P<unit>[^\d.][^.]*)?\.\.(?P<high>[\d.]+)(?P<end>[^\d.:][^.:]*)?:(?P<count>\d+)")
_HELP = (
    "Repeat the command with NAME at each of these values; give several sweeps for all combinations. NAME is "
    f"{', '.join(_PLAIN)}, npus (of `emu plan`), plan.WORD, stack.WORD, topology.SETTING or device.SETTING. VALUES are a list "
    "such as 1,2,4, or 25GB/s..400GB/s:5 for five values with a constant ratio."
)
Words = Mapping[str, str]  # the value of each option, as text
Sweeps = Mapping[str, tuple[str, ...]]  # the text of each value of each quantity that is swept


sweep_option = click.option("--sweep", "sweeps", multiple=True, metavar="NAME=VALUES", help=_HELP)


def parse_sweeps(texts: Sequence[str], *also: str) -> Sweeps:
    """Return the sweeps in the order given: the text of each value of each quantity.

    Args:
        texts: Sweeps as `NAME=VALUES`.
        also: Names of further quantities, for options that not every command has.

    Raises:
        InputError: a text is not `NAME=VALUES`, or a name is unknown or given twice, or there is no value or a bad range.
    """
    sweeps: dict[str, tuple[str, ...]] = {}
    for name, values in (_parse(text, (*_PLAIN, *also, *_PARTS)) for text in texts):
        if name in sweeps:
            raise InputError(f"--sweep: {name} is given twice; write all its values in one, separated by commas")
        sweeps[name] = values
    return sweeps


def points(sweeps: Sweeps) -> list[dict[str, str]]:
    """Return all combinations of values; the values of the last sweep change fastest."""
    return [dict(zip(sweeps, values, strict=True)) for values in product(*sweeps.values())]


def words_at(words: Words, point: Words) -> Words:
    """Return the options of the command at a point of the sweep.

    Raises:
        InputError: a setting is swept of a topology that is a file.
    """
    changed = dict(words)
    for name, value in point.items():
        part, dot, key = name.partition(".")
        changed[part] = _SET[part](changed[part], key, value) if dot else value
    return changed


def _parse(text: str, known: Sequence[str]) -> tuple[str, tuple[str, ...]]:
    """Return the quantity and the values that a text gives."""
    name, equals, said = text.partition("=")
    name = name.strip().replace("_", "-") if "." not in name else name.strip()
    part, _, key = name.partition(".")
    if name not in known and not (part in ("topology", "device") and key):
        raise unknown("quantity to sweep", name, known)
    if not equals or not said.strip():
        raise must_be("--sweep", f"values of {name}", "one or more", said, f"e.g. {name}=1,2,4")
    values = tuple(_range(name, said)) if ".." in said else tuple(value.strip() for value in said.split(","))
    if not all(values) or len(set(values)) < len(values):
        raise must_be("--sweep", f"values of {name}", "different and none of them empty", said)
    return name, values


def _range(name: str, said: str) -> list[str]:
    """Return values that grow by the same factor; they are whole numbers where both ends are."""
    found = _RANGE.fullmatch(said.strip())
    unit = found and (found["unit"] or "")
    if found is None or unit != (found["end"] or "") or not _is_range(found):
        what = "LOW..HIGH:COUNT of one unit, LOW above 0 and below HIGH, COUNT 2 or more"
        like = "25GB/s..400GB/s:5" if "." in name else f"{name}=1024..65536:7"
        raise must_be("--sweep", f"the range of {name}", what, said, f"e.g. {like}")
    low, high, count = float(found["low"]), float(found["high"]), int(found["count"])
    between = [low * (high / low) ** (i / (count - 1)) for i in range(count)]
    whole = not unit and low.is_integer() and high.is_integer()
    return [str(round(value)) if whole else f"{value:.6g}{unit}" for value in between]


def _is_range(found: re.Match[str]) -> bool:
    """Return whether the ends and the count of a range are valid."""
    numbers = [re.fullmatch(r"\d+(\.\d+)?", found[end]) for end in ("low", "high")]
    return all(numbers) and 0 < float(found["low"]) < float(found["high"]) and int(found["count"]) > 1


def _in_words(words: str, key: str, value: str) -> str:
    """Return a list of words such as `tp=8,sp,layers=7,8x14` with another value of one of them."""
    kept, dropped = [], False
    for word in filter(None, words.split(",")):
        name, equals, _ = word.strip().partition("=")
        dropped = name == key or (
            dropped and not equals and name[:1].isdigit()
        )  # words that begin with a digit belong to `layers=`
        kept += [] if dropped else [word]
    return ",".join([*kept, f"{key}={value}"])


def _in_stack(words: str, key: str, value: str) -> str:
    """Return the words of a stack with another value of one of them; a named stack is written out first."""
    return _in_words(",".join(STACKS.get(word.strip(), word) for word in words.split(",")), key, value)


def _in_call(words: str, key: str, value: str) -> str:
    """Return `NAME:VARIANT:key=value,...` with another value of one setting."""
    name, variant, settings = parse_call(words, "--sweep")
    said = ",".join(f"{k}={v}" for k, v in {**settings, key: value}.items())
    return ":".join(filter(None, (name, variant, said)))


def _in_topology(words: str, key: str, value: str) -> str:
    """Return a topology with another value of one setting.

    Raises:
        InputError: the topology is a file.
    """
    if is_file(words):
        raise must_be(
            "--sweep", f"topology.{key}", "a setting of a topology of the catalogue", words, "write a file for each value"
        )
    return _in_call(words, key, value)


_SET = {"plan": _in_words, "stack": _in_stack, "topology": _in_topology, "device": _in_call}


class SweepPoint(NamedTuple):
    """A point of a sweep: the options of the command, with the topology, the device and the stack that they give."""

    said: Words
    topology: Topology
    device: Device
    stack: Stack

    def whole(self, name: str) -> int:
        """Return the value of an option that takes a whole number."""
        return int(self.said[name])


@dataclass(frozen=True, slots=True)
class SweepOptions:
    """The values of `--sweep` and `--csv`, and of `--png`, which draws the steps of a sweep where there is one."""

    sweeps: tuple[str, ...]
    csv: Path | None
    png: Path | None

    def check(self, where: str, of_one: Mapping[str, object]) -> None:
        """Refuse options that show one step where there is a sweep, and `--csv` where there is none.

        Args:
            where: The name of the command.
            of_one: The values of the options that show one step, by flag.

        Raises:
            InputError: one of them was given.
        """
        for name, given in of_one.items():
            if self.sweeps and given:
                told = ", ".join(given) if isinstance(given, tuple) else str(given)
                raise must_be(where, name, "left out where there is a --sweep", told, "it shows a single step")
        if self.csv is not None and not self.sweeps:
            raise must_be(where, "--csv", "left out where there is no --sweep", str(self.csv))

    def steps(
        self, words: Words, topologies: Sequence[str], timed: Callable[[SweepPoint], SweepStep], *, label: str = ""
    ) -> list[SweepRow]:
        """Return the step at every point on every topology, or the reason why there is none.

        Args:
            words: The options that are not swept: model, plan, stack, device, seq, global-batch, npus where there is one.
            topologies: The topologies as they were written.
            timed: The function that returns the step of a point.
            label: The label of a progress bar of points; "": `timed` shows its own.

        Raises:
            InputError: a value is invalid at any point, or no point has a step.
        """
        sweeps = parse_sweeps(self.sweeps, *words.keys() & {"npus"})
        where = [(point, words_at({**words, "topology": word}, point)) for point in points(sweeps) for word in topologies]
        built = {said["topology"]: build_topology(said["topology"]) for _, said in where}
        for _, said in where:
            _check(said)
        rows = []
        for point, said in with_progress(where, label, len(where)) if label else where:
            try:
                stack = stack_of(said["stack"])
                device, topology = find_device(said["device"], stack.precision.activation), built[said["topology"]]
                rows.append(SweepRow(topology.name, point, "", timed(SweepPoint(said, topology, device, stack))))
            except InputError as error:
                rows.append(SweepRow(said["topology"], point, str(error), None))
        if all(row.step is None for row in rows):
            raise InputError(f"--sweep: no point has a step; the first: {rows[0].refused}")
        return rows

    def show(self, rows: Sequence[SweepRow], title: str, *, as_json: bool) -> None:
        """Write the table to its file, or print it where it has none; draw the picture if it was asked for."""
        table = sweep_csv(rows)
        if as_json:
            print_json(rows)
        elif self.csv is None:
            print_text(table, nl=False)
        if self.csv is not None:
            _write_table(table, self.csv, as_json=as_json)
        write_png(self.png, "chart.step_chart:sweep_figure", rows, title)


swept = options_as_one("sweep", SweepOptions)  # of a command with `--sweep`, `--csv` and `--png`: it takes their values as one


def _check(said: Words) -> None:
    """Refuse values that are invalid whatever the topology is.

    Raises:
        InputError: the model or the device is unknown, or a number is not whole.
    """
    find_model(said["model"])
    find_device(said["device"], stack_of(said["stack"]).precision.activation)
    for name in said.keys() & set(_WHOLE):
        if not said[name].isdecimal() or not int(said[name]):
            raise must_be("--sweep", name, "whole numbers of 1 or more", said[name])


def _write_table(table: str, path: Path, *, as_json: bool) -> None:
    """Write the table to a file; print it where that fails and JSON was not asked for."""
    with may_fail():
        try:
            write_file("--csv", path, table.encode())
        except WriteError:
            if not as_json:
                print_text(table, nl=False)
            raise
