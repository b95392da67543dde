"""The registry of topologies, and the parser of texts such as `NAME:VARIANT:key=value,...` and `NAME:VARIANT:4x4`.

The arguments of a builder are its settings; their annotations say how each is read and shown. Arguments that several builders
share may be one dataclass: its fields are settings as well.
"""

import difflib
import inspect
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, fields, is_dataclass, replace
from functools import wraps
from itertools import takewhile
from typing import Annotated, Any, TypeVar, get_type_hints

from emu.errors import InputError, at_place, either, must_be
from emu.registry import Registry, check_settings, parse_call
from emu.topology.description.topology_file import is_file, read_file
from emu.topology.topology import LEAST_LOADED, Topology
from emu.units import format_bandwidth, format_time, parse_bandwidth, parse_time, seconds

PORT_RATE = 50e9  # bytes per second, one direction, unless a source has its own: a port of 400 Gb/s (RailX 6.2)
HOP_LATENCY = 300_000_000  # ticks, unless a source has its own: 300 ns, RailX 6.4's for a hop between nodes


@dataclass(frozen=True, slots=True)
class SettingKind:
    """The type of a setting of a topology: a function that parses its text and one that prints its value.

    `words` are all its texts if there are only a few.
    """

    read: Callable[[str, str], object]  # (text, name of the setting) -> value
    show: Callable[[Any], str]
    words: tuple[str, ...] = ()  # all its texts where they are a few words


def whole_number(least: int, zero: str = "") -> SettingKind:
    """Return the type of a setting that is a whole number of at least `least`; the word `zero`, if given, means 0."""

    def read(text: str, name: str) -> int:
        if zero and text == zero:
            return 0
        if not re.fullmatch(r"[0-9]{1,18}", text) or int(text) < least:
            raise must_be("topology", name, f"a whole number of {least} or more" + f", or {zero}" * bool(zero), text)
        return int(text)

    return SettingKind(read, lambda count: str(count or zero or 0))


def _read_dims(text: str, name: str) -> tuple[int, ...]:
    """Parse dimension sizes such as `8x8x4`, and return them."""
    sizes = text.split("x")
    if not all(re.fullmatch(r"[0-9]{1,18}", s) and int(s) > 0 for s in sizes):
        raise must_be("topology", name, "whole numbers of 1 or more joined by x, such as 8x8x4", text)
    return tuple(map(int, sizes))


def _read_latency(text: str, name: str) -> int:
    """Parse a latency such as `500ns`, and return it in ticks."""
    if re.fullmatch(r"[\d.eE+-]+", text):  # seconds to `parse_time`, but a link of 500 s is a unit forgotten
        raise must_be("topology", name, "a time with its unit, such as 500ns", text)
    return parse_time(text, name)


def one_of(*words: str) -> SettingKind:
    """Return the type of a setting whose value is one of the given words."""

    def read(text: str, name: str) -> str:
        if text not in words:
            near = "".join(difflib.get_close_matches(text, words, n=1))
            raise must_be("topology", name, " or ".join(words), text, near and f"did you mean {near}?")
        return text

    return SettingKind(read, str, words)


def show_dims(dims: Sequence[int]) -> str:
    """Return dimension sizes as text, such as `8x8x4`."""
    return "x".join(map(str, dims))


def check_sizes(name: str, setting: str, sizes: Sequence[int], count: int, what: str) -> None:
    """Check that a setting has the right number of sizes.

    Raises:
        InputError: The number of sizes is not `count`; the message says `what` the sizes are.
    """
    if len(sizes) != count:
        raise must_be(name, setting, what, show_dims(sizes))


Count = Annotated[int, whole_number(1)]
Dims = Annotated[tuple[int, ...], SettingKind(_read_dims, show_dims)]
# Bytes per second, one direction; and ticks of one link.
Bandwidth = Annotated[float, SettingKind(parse_bandwidth, lambda rate: format_bandwidth(rate).replace(" ", ""))]
Latency = Annotated[int, SettingKind(_read_latency, lambda ticks: format_time(seconds(ticks)).replace(" ", ""))]

# by a hash; the channels of a pair in turn; each message all of them; the one with the least on it when a message starts
EQUAL_WAYS = ("hash", "disjoint", "spray", LEAST_LOADED)
EqualWays = Annotated[str, one_of(*EQUAL_WAYS)]

Build = Callable[..., Topology]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Invariants:
    """The numbers that a topology must have by its source or a closed form; tests compare the built topology with them."""

    links: int  # directed links
    degree: int | tuple[int, int]  # links out of each NPU; the fewest and the most where NPUs differ
    diameter: int | None  # links between the two NPUs farthest apart; None: unknown
    bisection_Bps: float | None = None  # one way, between the halves with the least bandwidth; None: unknown
    shortest: bool = True  # whether every route is a shortest path
    npus: int | None = None  # this field and the next three: None where no source or closed form gives them
    switches: int | None = None
    injection_Bps: float | None = None  # bandwidth out of every NPU
    paths: int | None = None  # shortest paths between the farthest pair of NPUs that has the fewest


@dataclass(frozen=True, slots=True)
class Blueprint:
    """A topology of the catalogue: its builder, its settings, its source, and examples for tests and users."""

    name: str  # NAME or NAME:VARIANT
    build: Build  # takes the settings
    summary: str  # the first line of the builder's docstring
    source: str  # paper and section
    examples: tuple[str, ...]  # settings of small instances; the first is shown in help
    full: tuple[str, ...]  # settings of the sizes in its source
    invariants: Callable[..., Invariants]  # takes the settings
    kinds: tuple[tuple[str, SettingKind], ...]  # name and kind of each setting

    @property
    def settings(self) -> tuple[tuple[str, str], ...]:
        """The name and the default of each setting; the default is "" where there is none."""
        parameters = inspect.signature(self.build).parameters
        return tuple(
            (name, "" if parameters[name].default is inspect.Parameter.empty else kind.show(parameters[name].default))
            for name, kind in self.kinds
        )

    @property
    def example(self) -> str:
        """The name of the topology with settings of a small instance, as `--topology` takes it."""
        return ":".join(filter(None, (self.name, *self.examples[:1])))

    def arguments(self, given: dict[str, str]) -> dict[str, Any]:
        """Return the arguments of the builder, parsed from the texts of settings.

        Raises:
            InputError: A setting is unknown or missing, or its value does not parse; the message names the setting.
        """
        kinds = dict(self.kinds)
        if "route" in kinds:
            _refuse_former(self.name, given, dict(self.settings)["route"], kinds["route"].words)
        check_settings(self.name, self.build, given)
        try:
            return {name: kinds[name].read(text, name) for name, text in given.items()}
        except InputError as error:
            raise at_place(self.name, error) from None


def _refuse_former(name: str, given: dict[str, str], usual: str, words: Sequence[str]) -> None:
    """Refuse a setting with a word that an older version took, and that a word of `route` has replaced.

    Args:
        name: The name of the topology.
        given: The settings as they are written.
        usual: The default of `route`.
        words: What `route` can be.

    Raises:
        InputError: One has; the message names the new word, or all words where this topology does not have it.
    """
    former = next((word for word in ("routing", "paths", "hash") if word in given), None)
    if former is None:
        return
    paths = {"hashed": "hash"}.get(given.get("paths", usual), given.get("paths", usual))
    new = given.get("routing", paths + "-independent" * (given.get("hash") == "independent"))
    told = f"write route={new}" if new in words else f"write route={either(words)}"
    raise InputError(f"{name}: the setting {former!r} has become route; {told}")


TOPOLOGIES: Registry[Blueprint] = Registry("topology", "topologies")


def topology(
    name: str, *, source: str, examples: tuple[str, ...], invariants: Callable[..., Invariants], full: tuple[str, ...] = ()
) -> Callable[[Build], Build]:
    """Return a decorator that files a builder under NAME or NAME:VARIANT.

    Args:
        name: The name on the command line.
        source: Paper and section.
        examples: Settings of small instances, on which the tests of every topology run.
        invariants: Returns what is known of an instance. It gets all arguments of the builder by name, defaults included, so
            that it names those that it needs and takes the others as `**_`.
        full: Settings of the sizes in the source; the tests build them and count.

    Raises:
        InputError: The name is taken, or an argument's annotation is no kind of setting.
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
        TOPOLOGIES.file(name, known, build)
        return build

    return file


def planned(
    name: str,
    build: Callable[[T], Topology],
    invariants: Callable[[T], Invariants],
    *,
    source: str,
    examples: tuple[str, ...],
    full: tuple[str, ...] = (),
) -> Callable[[Callable[..., T]], Build]:
    """Return a decorator that registers a topology in two steps: the function makes a plan, and `build` a topology of it.

    Args:
        name: The name on the command line.
        build: The function that returns the topology of a plan.
        invariants: The function that returns the numbers that the topology of a plan must have.
        source: See `topology`, also for the other arguments.
        examples: Settings of small instances.
        full: Settings of the sizes in the source.

    Raises:
        InputError: See `topology`.
    """

    def file(plan: Callable[..., T]) -> Build:
        @wraps(plan)
        def built(*given: Any, **settings: Any) -> Topology:
            return build(plan(*given, **settings))

        def known(**settings: Any) -> Invariants:
            return invariants(plan(**settings))

        return topology(name, source=source, examples=examples, invariants=known, full=full)(built)

    return file


def _kinds(name: str, takes: Callable[..., object]) -> Iterator[tuple[inspect.Parameter, SettingKind]]:
    """Yield each setting of a builder with its type; a dataclass argument yields its fields."""
    hints = get_type_hints(takes, include_extras=True)
    for parameter in inspect.signature(takes).parameters.values():
        hint = hints.get(parameter.name)
        if isinstance(hint, type) and is_dataclass(hint):
            yield from _kinds(name, hint)
            continue
        kind = next((k for k in getattr(hint, "__metadata__", ()) if isinstance(k, SettingKind)), None)
        if kind is None:
            raise must_be(name, f"the annotation of {parameter.name}", "Count, Dims, Bandwidth or Latency", hint)
        yield parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY), kind


def _from_settings(settings: inspect.Signature, build: Build, call: Callable[..., T]) -> Callable[..., T]:
    """Return a function of the settings that calls `call` with all arguments of the builder."""
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


def parse_topology(text: str) -> tuple[str, dict[str, str]]:
    """Return the name, NAME or NAME:VARIANT, and the texts of settings of `NAME[:VARIANT][:value,...][:key=value,...]`.

    Values without a key are those of the first settings, in the order of `emu list topologies NAME`: `torus:4x4` is
    `torus:dims=4x4`. Such a value begins with a digit.

    Raises:
        InputError: As `parse_call`.
    """
    head, _, tail = text.rpartition(":")
    if tail[:1].isdigit() and TOPOLOGIES.has(head) and not TOPOLOGIES.has(text):
        text = f"{head}:{_with_keys(tail, [key for key, _ in TOPOLOGIES.find(head).kinds])}"
    name, variant, settings = parse_call(text, "topology")
    return f"{name}:{variant}" if variant else name, settings


def _with_keys(values: str, keys: Sequence[str]) -> str:
    """Return settings such as `4x4,latency=1us` with the key of each value that has none, up to the first that has one."""
    words = values.split(",")
    bare = len(list(takewhile(lambda word: "=" not in word, words)))
    named = [f"{key}={word}" for key, word in zip(keys, words[:bare], strict=False)]
    return ",".join((*named, *words[len(named) :]))


def read_topology(text: str) -> tuple[Blueprint, dict[str, Any]]:
    """Return the blueprint and the builder's arguments of a text that `parse_topology` takes.

    Raises:
        InputError: The name or the variant is unknown (the message names the nearest), or a setting is bad.
    """
    name, settings = parse_topology(text)
    blueprint = TOPOLOGIES.find(name)
    return blueprint, blueprint.arguments(settings)


def build_topology(text: str) -> Topology:
    """Return the topology of a text `NAME[:VARIANT][:key=value,...]` or of a user's file; the text becomes its name.

    Raises:
        InputError: See `read_topology` and `read_file`; or the builder refuses its arguments.
    """
    if is_file(text):
        return read_file(text)
    blueprint, arguments = read_topology(text)
    return replace(blueprint.build(**arguments), name=text)
