"""The option `--sweep NAME=VALUES`: a command at several values of an option, and at all combinations of several sweeps."""

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import TypeVar

import click

from emu.errors import InputError, must_be
from emu.model.plan.plan_text import WORDS
from emu.model.stack.stack_text import STACK_WORDS
from emu.registry import parse_call, unknown
from emu.topology.description.topology_file import is_file
from launch.data.stacks import STACKS

F = TypeVar("F", bound=Callable[..., object])
_PLAIN = ("model", "device", "seq", "global-batch")
_PARTS = (*(f"plan.{w}" for w in WORDS), *(f"stack.{w}" for w in STACK_WORDS), "topology.SETTING", "device.SETTING")
_RANGE = re.compile(r"(?P<low>[\d.]+)(?P<unit>[^\d.][^.]*)?\.\.(?P<high>[\d.]+)(?P<end>[^\d.:][^.:]*)?:(?P<count>\d+)")
_HELP = (
    "Repeat the command with NAME at each of these values; give several sweeps for all combinations. NAME is "
    f"{', '.join(_PLAIN)}, npus (of `emu plan`), plan.WORD, stack.WORD, topology.SETTING or device.SETTING. VALUES are a list "
    "such as 1,2,4, or 25GB/s..400GB/s:5 for five values with a constant ratio."
)
Words = Mapping[str, str]  # the value of each option, as text


@dataclass(frozen=True, slots=True)
class Sweep:
    """A quantity, and the text of each of its values."""

    name: str
    values: tuple[str, ...]


def sweep_option(command: F) -> F:
    """Add `--sweep` to a command; it may be repeated."""
    return click.option("--sweep", "sweeps", multiple=True, metavar="NAME=VALUES", help=_HELP)(command)


def parse_sweeps(texts: Sequence[str], *also: str) -> tuple[Sweep, ...]:
    """Return the sweeps in the order given.

    Args:
        texts: Sweeps as `NAME=VALUES`.
        also: Names of further quantities, for options that not every command has.

    Raises:
        InputError: a text is not `NAME=VALUES`, or a name is unknown or given twice, or there is no value or a bad range.
    """
    sweeps = tuple(_parse(text, (*_PLAIN, *also, *_PARTS)) for text in texts)
    names = [sweep.name for sweep in sweeps]
    for name in names:
        if names.count(name) > 1:
            raise InputError(f"--sweep: {name} is given twice; write all its values in one, separated by commas")
    return sweeps


def points(sweeps: Sequence[Sweep]) -> Iterator[dict[str, str]]:
    """Yield all combinations of values; the values of the last sweep change fastest."""
    for values in product(*(sweep.values for sweep in sweeps)):
        yield {sweep.name: value for sweep, value in zip(sweeps, values, strict=True)}


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


def _parse(text: str, known: Sequence[str]) -> Sweep:
    """Return the sweep that a text gives."""
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
    return Sweep(name, values)


def _range(name: str, said: str) -> list[str]:
    """Return values that grow by the same factor; they are whole numbers where both ends are."""
    found = _RANGE.fullmatch(said.strip())
    unit = found and (found["unit"] or "")
    if found is None or unit != (found["end"] or "") or not _is_range(found):
        what = "LOW..HIGH:COUNT of one unit, LOW above 0 and below HIGH, COUNT 2 or more"
        raise must_be("--sweep", f"the range of {name}", what, said, "e.g. 25GB/s..400GB/s:5")
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
