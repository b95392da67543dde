"""The registry of topologies, and how a line such as `NAME:VARIANT:key=value,...` becomes one.

A builder's arguments are its settings; their annotations say how each is read and shown. What several builders take alike,
they may take as one argument, a dataclass of such fields: these are settings as well.
"""

import inspect
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, is_dataclass, replace
from typing import Annotated, Any, TypeVar, get_type_hints

from emu.errors import InputError, must_be
from emu.registry import Registry, check_settings, parse_call
from emu.topology.read.file import is_file, read_file
from emu.topology.topology import Topology
from emu.units import format_bandwidth, format_time, parse_bandwidth, parse_time, seconds


@dataclass(frozen=True, slots=True)
class Kind:
    """What a setting is on the command line."""

    read: Callable[[str, str], object]  # (text, name of the setting) -> value
    show: Callable[[Any], str]


def _read_count(text: str, name: str) -> int:
    if not re.fullmatch(r"[0-9]{1,18}", text) or int(text) < 1:
        raise must_be("topology", name, "a whole number of 1 or more", text)
    return int(text)


def _read_dims(text: str, name: str) -> tuple[int, ...]:
    sizes = text.split("x")
    if not all(re.fullmatch(r"[0-9]{1,18}", s) and int(s) > 0 for s in sizes):
        raise must_be("topology", name, "whole numbers of 1 or more joined by x, such as 8x8x4", text)
    return tuple(map(int, sizes))


def _read_latency(text: str, name: str) -> int:
    if re.fullmatch(r"[\d.eE+-]+", text):  # seconds to `parse_time`, but a link of 500 s is a unit forgotten
        raise must_be("topology", name, "a time with its unit, such as 500ns", text)
    return parse_time(text, name)


def one_of(*words: str) -> Kind:
    """The kind of a setting that is one of some words."""

    def read(text: str, name: str) -> str:
        if text not in words:
            raise must_be("topology", name, " or ".join(words), text)
        return text

    return Kind(read, str)


def _show_dims(dims: tuple[int, ...]) -> str:
    return "x".join(map(str, dims))


def _show_latency(ticks: int) -> str:
    return format_time(seconds(ticks)).replace(" ", "")


def _show_bandwidth(bandwidth_Bps: float) -> str:
    return format_bandwidth(bandwidth_Bps).replace(" ", "")


Count = Annotated[int, Kind(_read_count, str)]
Dims = Annotated[tuple[int, ...], Kind(_read_dims, _show_dims)]
Bandwidth = Annotated[float, Kind(parse_bandwidth, _show_bandwidth)]  # bytes per second, one direction
Latency = Annotated[int, Kind(_read_latency, _show_latency)]  # ticks of one link

Build = Callable[..., Topology]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Invariants:
    """What a source or a closed form says of one instance; the battery of tests holds the topology to it."""

    links: int  # directed
    degree: int | tuple[int, int]  # links out of each NPU; fewest and most where they differ
    diameter: int | None  # links between the two NPUs farthest apart; None: not known
    bisection_Bps: float | None = None  # one way, between the halves that are worst joined; None: not known
    shortest: bool = True  # no route is a detour
    npus: int | None = None  # these four where a source or a closed form gives them
    switches: int | None = None
    injection_Bps: float | None = None  # out of every NPU
    paths: int | None = None  # shortest paths between the two NPUs farthest apart that have fewest


@dataclass(frozen=True, slots=True)
class Blueprint:
    """A topology of the catalogue: its builder, and what one should know of it."""

    name: str  # NAME or NAME:VARIANT
    build: Build  # takes the settings
    summary: str  # the first line of the builder's docstring
    source: str
    examples: tuple[str, ...]  # settings of small instances; the first is shown to people
    full: tuple[str, ...]  # settings of the sizes that its source speaks of
    invariants: Callable[..., Invariants]  # takes the settings
    kinds: tuple[tuple[str, Kind], ...]  # of each setting

    @property
    def settings(self) -> tuple[tuple[str, str], ...]:
        """Each setting and its default, "" where it has none."""
        parameters = inspect.signature(self.build).parameters
        return tuple(
            (name, "" if parameters[name].default is inspect.Parameter.empty else kind.show(parameters[name].default))
            for name, kind in self.kinds
        )

    @property
    def example(self) -> str:
        """A line that builds one."""
        return ":".join(filter(None, (self.name, self.examples[0])))

    def arguments(self, given: dict[str, str]) -> dict[str, Any]:
        """The builder's arguments from the settings as written.

        Raises:
            InputError: an unknown or missing setting, or a value that does not parse; the message names it.
        """
        check_settings(self.name, self.build, given)
        kinds = dict(self.kinds)
        try:
            return {name: kinds[name].read(text, name) for name, text in given.items()}
        except InputError as error:
            raise InputError(f"{self.name}: {str(error).partition(': ')[2]}") from None


TOPOLOGIES: Registry[Blueprint] = Registry("topology", "topologies")


def topology(
    name: str, *, source: str, examples: tuple[str, ...], invariants: Callable[..., Invariants], full: tuple[str, ...] = ()
) -> Callable[[Build], Build]:
    """File a builder under NAME or NAME:VARIANT.

    Args:
        name: As it is written on the command line.
        source: Paper, section.
        examples: Settings of small instances, on which the tests of every topology run.
        invariants: What is known of the instance, from all arguments of the builder, those left at their defaults too. They
            come by name, so that it names those which it needs and takes the others as `**_`.
        full: Settings of the sizes that the source speaks of; the tests build them and count.

    Raises:
        InputError: the name is taken, or an argument is annotated with no kind of setting.
    """

    def file(build: Build) -> Build:
        kinds = tuple(_kinds(name, build))
        settings = inspect.Signature([parameter for parameter, _ in kinds])
        known = Blueprint(
            name,
            _from_settings(settings, build, build),
            (build.__doc__ or "").strip().partition("\n")[0],
            source,
            examples,
            full,
            _from_settings(settings, build, invariants),
            tuple((parameter.name, kind) for parameter, kind in kinds),
        )
        TOPOLOGIES.file(name, known)
        return build

    return file


def _kinds(name: str, takes: Callable[..., object]) -> Iterator[tuple[inspect.Parameter, Kind]]:
    """Each setting and its kind; those of a dataclass stand where the argument does."""
    hints = get_type_hints(takes, include_extras=True)
    for parameter in inspect.signature(takes).parameters.values():
        hint = hints.get(parameter.name)
        if isinstance(hint, type) and is_dataclass(hint):
            yield from _kinds(name, hint)
            continue
        kind = next((k for k in getattr(hint, "__metadata__", ()) if isinstance(k, Kind)), None)
        if kind is None:
            raise must_be(name, f"the annotation of {parameter.name}", "Count, Dims, Bandwidth or Latency", hint)
        yield parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY), kind


def _from_settings(settings: inspect.Signature, build: Build, call: Callable[..., T]) -> Callable[..., T]:
    """A function of the settings that calls one of all arguments of the builder."""
    hints = get_type_hints(build)
    groups = {name: hints[name] for name in inspect.signature(build).parameters if is_dataclass(hints[name])}

    def called(**given: Any) -> T:
        bound = settings.bind(**given)
        bound.apply_defaults()
        whole = bound.arguments
        for name, group in groups.items():
            whole[name] = group(**{field.name: whole.pop(field.name) for field in fields(group)})
        return call(**whole)

    vars(called)["__signature__"] = settings  # what `inspect` reads, as `check_settings` does
    return called


def read_topology(text: str) -> tuple[Blueprint, dict[str, Any]]:
    """The blueprint and the builder's arguments of `NAME[:VARIANT][:key=value,...]`.

    Raises:
        InputError: an unknown name or variant (with the nearest), or a bad setting.
    """
    name, variant, settings = parse_call(text, "topology")
    blueprint = TOPOLOGIES.find(f"{name}:{variant}" if variant else name)
    return blueprint, blueprint.arguments(settings)


def build_topology(text: str) -> Topology:
    """The topology of `NAME[:VARIANT][:key=value,...]` or of a file of one's own, named by that text.

    Raises:
        InputError: as `read_topology`, or the builder refuses its arguments; as `read_file`.
    """
    if is_file(text):
        return read_file(text)
    blueprint, arguments = read_topology(text)
    return replace(blueprint.build(**arguments), name=text)
