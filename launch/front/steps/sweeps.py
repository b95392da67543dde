"""Sweeps: a question at several values of an argument, and at all combinations of several sweeps.

`emu.estimate` and `emu.plan` take them as `NAME=VALUES`.
"""

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from emu.errors import InputError, RunError, must_be
from emu.model.model import Model, find_model
from emu.model.plan.plan_text import WORDS, read_words
from emu.model.stack.stack import STACK_WORDS, Stack
from emu.registry import parse_call, unknown
from emu.store import ValueTable
from emu.study.job_pool import JobPool, known_result, results_of
from emu.topology.catalogue import parse_topology
from emu.topology.description.topology_file import is_file
from emu.topology.topology import Topology
from emu.trace.device.device import Device
from emu.units import is_whole
from launch.data.devices import find_device
from launch.data.presets import STACKS
from launch.front.inputs import PLAIN_SWEPT, DeviceLike, build_topology, stack_of
from launch.front.result import Result, lazy
from launch.show.blocks import Page
from launch.show.progress import finished_items, with_progress
from launch.show.row_file import csv_text, row_known
from launch.show.text.estimate_table import SweepRow, SweepStep, sweep_record, sweep_report, sweep_text

_WHOLE = ("seq", "global-batch", "npus")  # options that take whole numbers
_PARTS = (*(f"plan.{w}" for w in WORDS), *(f"stack.{w}" for w in STACK_WORDS), "topology.SETTING", "device.SETTING")
_RANGE = re.compile(
    r"(?P<low>[\d.]+)(?P<unit>[^\d.][^.]*)?\.\.(?P<high>[\d.]+)(?P<end>[^\d.:][^.:]*)?:(?P<count>\d+)", re.ASCII
)
_MOST_VALUES = 10_000  # of a range
OptionTexts = Mapping[str, str]  # the value of each option, as text
Sweeps = Mapping[str, tuple[str, ...]]  # the text of each value of each quantity that is swept


def parse_sweeps(texts: Sequence[str], *also: str) -> Sweeps:
    """Return the sweeps in the order given: the text of each value of each quantity.

    Args:
        texts: Sweeps as `NAME=VALUES`.
        also: Names of further quantities, for options that not every command has.

    Raises:
        InputError: a text is not `NAME=VALUES`, or a name is unknown or given twice, or there is no value or a bad range.
    """
    sweeps: dict[str, tuple[str, ...]] = {}
    for name, values in (_parse(text, (*PLAIN_SWEPT, *also, *_PARTS)) for text in texts):
        if name in sweeps:
            raise InputError(f"--sweep: {name} is given twice; write all its values in one, separated by commas")
        sweeps[name] = values
    return sweeps


def points(sweeps: Sweeps) -> list[dict[str, str]]:
    """Return all combinations of values; the values of the last sweep change fastest."""
    return [dict(zip(sweeps, values, strict=True)) for values in product(*sweeps.values())]


def words_at(words: OptionTexts, point: OptionTexts) -> OptionTexts:
    """Return the options of the command at a point of the sweep; a setting of a swept device or topology is that of its value.

    Raises:
        InputError: a setting is swept of a topology that is a file.
    """
    changed = dict(words)
    for name, value in sorted(point.items(), key=lambda each: "." in each[0]):
        part, dot, key = name.partition(".")
        changed[part] = _SET[part](changed[part], key, value) if dot else value
    return changed


def _parse(text: str, known: Sequence[str]) -> tuple[str, tuple[str, ...]]:
    """Return the name of the swept option and its values, from a text such as `seq=2048,4096`."""
    name, equals, said = text.partition("=")
    name = name.strip().replace("_", "-") if "." not in name else name.strip()
    part, _, key = name.partition(".")
    if name not in known and not (part in ("topology", "device") and key):
        raise unknown("quantity to sweep", name, known)
    if not equals or not said.strip():
        raise must_be("--sweep", f"values of {name}", "one or more", said, f"e.g. {name}=1,2,4")
    return name, values_of(name, said, "--sweep")


def values_of(name: str, said: str, where: str) -> tuple[str, ...]:
    """Return the values that a text such as `1,2,4` or `25GB/s..400GB/s:5` lists.

    Args:
        name: The quantity.
        said: The text.
        where: The option that has it, for error messages.

    Raises:
        InputError: a value is empty or there twice, or the range is none.
    """
    values = tuple(_range(name, said, where)) if ".." in said else tuple(value.strip() for value in said.split(","))
    if not all(values) or len(set(values)) < len(values):
        raise must_be(where, f"values of {name}", "different and none of them empty", said)
    return values


def _range(name: str, said: str, where: str) -> list[str]:
    """Return the values of a range `LOW..HIGH:COUNT`, each a constant factor above the last; whole numbers if both ends are."""
    found = _RANGE.fullmatch(said.strip())
    unit = found and (found["unit"] or "")
    if found is None or unit != (found["end"] or "") or not _is_range(found):
        what = f"LOW..HIGH:COUNT of one unit, LOW above 0 and below HIGH, COUNT 2 to {_MOST_VALUES}"
        like = "25GB/s..400GB/s:5" if "." in name else f"{name}=1024..65536:7"
        raise must_be(where, f"the range of {name}", what, said, f"e.g. {like}")
    low, high, count = float(found["low"]), float(found["high"]), int(found["count"])
    between = [low * (high / low) ** (i / (count - 1)) for i in range(count)]
    whole = not unit and low.is_integer() and high.is_integer()
    values = [str(round(value)) if whole else f"{value:.6g}{unit}" for value in between]
    if len(set(values)) < count:
        what = f"{count} different {'whole numbers' if whole else 'values'}"
        raise must_be(where, f"the range of {name}", what, said, "take a smaller COUNT or a wider range")
    return values


def _is_range(found: re.Match[str]) -> bool:
    """Return whether the ends and the count of a range are valid."""
    numbers = [re.fullmatch(r"[0-9]{1,300}(\.[0-9]+)?", found[end]) for end in ("low", "high")]
    counted = is_whole(found["count"]) and 1 < int(found["count"]) <= _MOST_VALUES
    return counted and all(numbers) and 0 < float(found["low"]) < float(found["high"])


def _with_setting(words: str, key: str, value: str) -> str:
    """Return a text of settings such as `tp=8,sp,layers=7,8x14` with a new value for one of them."""
    kept, dropped = [], False
    for word in filter(None, words.split(",")):
        name, equals, _ = word.strip().partition("=")
        dropped = name == key or (
            dropped and not equals and name[:1].isdigit()
        )  # words that begin with a digit belong to `layers=`
        kept += [] if dropped else [word]
    return ",".join([*kept, f"{key}={value}"])


def _with_stack_setting(words: str, key: str, value: str) -> str:
    """Return the text of a stack with a new value for one setting; the name of a stack is replaced by its settings first."""
    return _with_setting(",".join(STACKS.get(word.strip(), word) for word in words.split(",")), key, value)


def _in_call(words: str, key: str, value: str) -> str:
    """Return `NAME:VARIANT:key=value,...`, in which the setting with this key has another value."""
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
    name, settings = parse_topology(words)
    return f"{name}:{','.join(f'{k}={v}' for k, v in {**settings, key: value}.items())}"


_SET = {"plan": _with_setting, "stack": _with_stack_setting, "topology": _in_topology, "device": _in_call}


class SweepPoint(NamedTuple):
    """A point of a sweep: the values of its options as text, and the model, topology, device and stack that they name.

    Files are read before there is a point, so that the processes that time it read none.
    """

    said: OptionTexts
    model: Model
    topology: Topology
    device: Device
    stack: Stack

    def whole(self, name: str) -> int:
        """Return the value of an option that takes a whole number."""
        return int(self.said[name])


@dataclass(frozen=True)
class PointTimer:
    """A function that times a point of a sweep, with the processes that call it."""

    timed: Callable[[SweepPoint], SweepStep]
    pool: JobPool
    kept: ValueTable | None = None  # to which the function writes what it keeps
    label: str = ""  # of the progress of points; "": each reports its own
    recall: Callable[[SweepPoint], SweepStep | None] = lambda _: None  # returns a step that is known


def _row(points: Sequence[tuple[OptionTexts, SweepPoint]], timed: Callable[[SweepPoint], SweepStep], number: int) -> SweepRow:
    """Return the row of point number `number`: its step, or the reason why there is none.

    All points are sent to other processes once, as they may share large things.

    Args:
        points: The values that are swept, and the point, of each row.
        timed: The function that times a point.
        number: The number of the point.
    """
    swept, point = points[number]
    try:
        return SweepRow(point.topology.name, swept, "", timed(point))
    except (InputError, RunError) as error:  # packets may wait in a circle, or be too many: the other rows hold
        return SweepRow(point.said["topology"], swept, str(error), None)


@dataclass(frozen=True, repr=False, eq=False)
class Sweep(Result[SweepRow], drawn_by="chart.step_chart:sweep_figure"):
    """The step at every point of a sweep on every topology, or the reason why there is none.

    The picture has the step time at each value, with a line for each topology and each combination of other sweeps.
    """

    title: str  # of the picture and the page

    @property
    def fastest(self) -> SweepRow:
        """The point and the topology with the shortest step."""
        return min((row for row in self.rows if row.step is not None), key=lambda row: row.step.step_time_s)  # type: ignore[union-attr]

    def records(self) -> Sequence[object]:
        """Return a flat row for each point and topology."""
        return [*map(sweep_record, self.rows)]

    def text(self) -> str:
        """Return a line of CSV for each point and topology, under a head."""
        return csv_text(self.records()).rstrip("\n")

    def __repr__(self) -> str:
        return sweep_report(self.rows)

    def page(self) -> Page:
        """Return the page: the picture and the table, under a title that names what is swept."""
        title = f"{self.title}: a sweep of {' and '.join(self.rows[0].point)}"
        made: Page = lazy("html.page:answer_page")(title, sweep_report(self.rows), self._drawn())
        return made

    def _shown(self) -> tuple[Any, ...]:
        return self.rows, self.title


def sweep_steps(
    sweeps: Sequence[str], words: OptionTexts, topologies: Sequence[object], timer: PointTimer, title: str
) -> Sweep:
    """Return the sweep: the step at every point on every topology, or the reason why there is none.

    Args:
        sweeps: Sweeps as `NAME=VALUES`.
        words: The arguments that are not swept: model, plan, stack, device, seq, global-batch, npus where there is one.
        topologies: The topologies as they were written.
        timer: The function that returns the step of a point, and the processes that call it.
        title: The title of the picture.

    Raises:
        InputError: a value is invalid at any point, or no point has a step.
    """
    parsed = parse_sweeps(sweeps, *words.keys() & {"npus"})
    where = [
        (point, words_at({**words, "topology": _topology_text(each)}, point)) for point in points(parsed) for each in topologies
    ]
    built = {said["topology"]: build_topology(said["topology"]) for _, said in where}
    found = [(swept, _resolved(said, built)) for swept, said in where]
    steps = [(swept, point, timer.recall(point)) for swept, point in found]
    known = [None if step is None else SweepRow(of.topology.name, swept, "", step) for swept, of, step in steps]
    with timer.pool.open(partial(_row, found, timer.timed), timer.kept, known.count(None)) as opened:
        pending = (opened.submit(number) if row is None else known_result(row) for number, row in enumerate(known))
        done = finished_items(results_of(pending, len(where)), lambda rows: Sweep(rows, title).text(), len(where))
        told = with_progress(done, timer.label, len(where), sweep_text, sweep_record) if timer.label else _rows_as_known(done)
        rows = tuple(told)
    if all(row.step is None for row in rows):
        raise InputError(f"--sweep: no point has a step; the first: {rows[0].refused}")
    return Sweep(rows, title)


def _rows_as_known(rows: Iterable[SweepRow]) -> Iterator[SweepRow]:
    """Yield rows, and report each row as soon as it is known."""
    for row in rows:
        row_known(sweep_record(row))
        yield row


def _topology_text(topology: object) -> str:
    """Return the text that names a topology, whose settings a sweep may change.

    Raises:
        InputError: it is an object.
    """
    if isinstance(topology, str | Path):
        return str(topology)
    raise _must_be_text("topology", topology)


def device_text(device: DeviceLike) -> str:
    """Return the text that names a device, whose settings a sweep may change.

    Raises:
        InputError: it is an object or a dict.
    """
    if isinstance(device, str | Path):
        return str(device)
    raise _must_be_text("device", device)


def _must_be_text(what: str, given: object) -> InputError:
    """Return the error of an object where a sweep takes a text, whose settings it may change."""
    got = getattr(given, "name", "") or type(given).__name__
    mend = f"register it by @emu.register.{what}, and give its name"
    return must_be("--sweep", what, "a name or a file, as a sweep may change its settings", got, mend)


def _resolved(said: OptionTexts, built: Mapping[str, Topology]) -> SweepPoint:
    """Return the point of a sweep whose options have these values.

    Args:
        said: The value of each option, as text.
        built: The topologies by the words that give them.

    Raises:
        InputError: the model or the device is unknown, a word of the plan is invalid, or a number is not whole.
    """
    stack = stack_of(said["stack"])
    model, device = find_model(said["model"]), find_device(said["device"], stack.precision.activation)
    if said["plan"]:  # a word that is none is refused before any point is timed; a plan that fits nothing is a row
        read_words(said["plan"])
    for name in said.keys() & set(_WHOLE):
        if not is_whole(said[name]) or not int(said[name]):
            raise must_be("--sweep", name, "whole numbers of 1 or more", said[name])
    return SweepPoint(said, model, built[said["topology"]], device, stack)
