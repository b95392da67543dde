"""Options that several commands take, and how results are printed."""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any, TypeVar

import click

from emu.collective.algorithm import AUTO, Algorithm
from emu.collective.msccl.filed import file_program
from emu.errors import must_be
from emu.model.stack.spell import ROLES, beside, parse_stack
from emu.model.stack.stack import SETTINGS, SOFTWARE, Stack
from emu.registry import import_file
from emu.store import user_folder
from emu.study.choice import algorithm_cache
from emu.study.training.composed.calls import device_under, topology_under
from emu.topology.catalogue import build_topology
from emu.topology.topology import Topology
from emu.trace.device.device import Device
from emu.trace.device.dtypes import AS_RAN
from emu.units import parse_size, parse_time
from launch.cli.options.outputs import print_text, read_too
from launch.data.devices import find_device
from launch.data.stacks import STACKS

F = TypeVar("F", bound=Callable[..., Any])
_IMPORTED = "emu.imported"
RECORDED = "recorded"
ALGORITHM_WORDS = "auto|nccl|[AXIS.]OPERATION=NAME"
ALGORITHM_HELP = (
    "What serves an operation, or an operation on one axis (dp.all_gather=ring); give several. Unless one is named, `auto` "
    "serves: the fastest for each request by its group and size, chosen for each --topology by itself; or `nccl`: what NCCL "
    "itself would take. Where a run moves data, it is served by what is chosen on the first."
)


DEVICE_HELP = "The device that computes: see `emu list devices`, or a FILE.toml of your own, as `emu calibrate` writes one."
_CALLS = (
    "launch=TIME that a rank takes for each collective and message, alpha=TIME for each message, adding=TIME more for each to "
    "or from a switch that adds, bandwidth=0.8/0.9: shares that data reach of the links' bandwidth, tier by tier, library=nccl "
    "for whose choice of algorithms serves where --algorithm names none; `nccl` for all of these as NCCL has them"
)
_OF_SOFTWARE = ", ".join(f"{name}={'|'.join(known)}" for name, known in SETTINGS["megatron"].items())
_STACK_HELP = (
    f"Settings that change time and not results: software={'|'.join(SOFTWARE)}. With megatron: {_OF_SOFTWARE} (the first "
    f"is the default). With either: a dtype for {', '.join(ROLES)}; {_CALLS}."
)


_DTYPE_HELP = (
    f"Data type as which float32 is timed; {AS_RAN}: each operator and message in the dtype that it ran in, products of "
    "float32 at the peak of TF32 where the program lets CUDA use it.  "
    f"[default: {AS_RAN}; of a trace, what its command has: bfloat16 if that is `emu train`, or not known]"
)


class Size(click.ParamType[int]):
    """A size such as 64MiB."""

    name = "SIZE"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Bytes."""
        return parse_size(value, _flag(param))


class Time(click.ParamType[int]):
    """A time such as 500ns."""

    name = "TIME"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        """Ticks."""
        return parse_time(value if isinstance(value, str) else float(value), _flag(param))


def _flag(param: click.Parameter | None) -> str:
    return max(param.opts, key=len) if param else "value"


def json_option(command: F) -> F:
    """`--json`."""
    return click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")(command)


def topology_option(command: F) -> F:
    """`--topology`, as often as one likes."""
    return click.option(
        "--topology",
        "topologies",
        multiple=True,
        required=True,
        metavar="NAME[:VARIANT][:key=value,...]|FILE",
        help="The network; repeat it to compare several. See `emu list topologies`; a FILE is .toml, .csv or .graphml.",
    )(command)


def stack_option(command: F) -> F:
    """`--stack`, of a step that is generated."""
    return click.option("--stack", default="", metavar="software=megatron,...", help=_STACK_HELP)(command)


def calls_option(command: F) -> F:
    """`--stack`, of a step that ran."""
    return click.option("--stack", default="", metavar="launch=TIME,...", help=f"What the software takes: {_CALLS}.")(command)


def stack_of(words: str) -> Stack:
    """What `--stack` says.

    Raises:
        InputError: as `parse_stack`.
    """
    return parse_stack(words, STACKS) if words else Stack()


def calls_of(words: str) -> Stack:
    """What `--stack` says where a step is timed that ran.

    Raises:
        InputError: as `parse_stack`, or it says more than what messages and requests take.
    """
    return beside(stack_of(words))


def built_under(stack: Stack, topologies: Sequence[str], device: str, dtype: str) -> tuple[list[Topology], Device]:
    """The topologies, and the device, each with what the software takes for messages and requests.

    Raises:
        InputError: a topology, a device or a dtype is none.
    """
    built = [topology_under(stack, build_topology(word)) for word in topologies]
    return built, device_under(stack, find_device(device, dtype))


def check_float32(device: Device, dtype: str) -> None:
    """Refuse a device that cannot time a script as it will run: in what is not known yet, but most compute in float32, too.

    Raises:
        InputError: the device has no peak for float32.
    """
    if dtype == AS_RAN and "float32" not in device.peak_flops:
        mend = "add float32 = 67e12 to it, or give --dtype bfloat16, which times float32 as that"
        what = "given for float32, too, as a script is timed as it ran"
        raise must_be(device.name, "peak_flops", what, ", ".join(device.peak_flops), mend)


def perturb_option(command: F) -> F:
    """`--perturb`."""
    text = "Compute the time N times more, with each start delayed by a tick or not, and print how far chaotic times spread."
    return click.option("--perturb", type=int, default=0, metavar="N", help=text)(command)


def import_option(command: F) -> F:
    """`--import`, as often as one likes."""

    def load(ctx: click.Context, param: click.Parameter, paths: tuple[Path, ...]) -> None:
        for path in paths:
            read_too("--import", path)
        filed = [thing for path in paths for thing in ([file_program(path)] if path.suffix == ".xml" else import_file(path))]
        ctx.meta[_IMPORTED] = tuple(filed) if paths else None
        algorithm_cache.keep_in(
            None if paths else algorithm_cache.users()
        )  # a file of one's own may read others, which no digest sees

    return click.option(
        "--import",
        type=click.Path(path_type=Path),
        multiple=True,
        callback=load,
        is_eager=True,
        expose_value=False,
        help="A file of your own: collectives, topologies or models in Python, or an MSCCL program (.xml).",
    )(command)


def imported() -> list[Algorithm] | None:
    """The algorithms of the files that the command in progress was given; None: no file was given."""
    found: tuple[object, ...] | None = click.get_current_context().meta.get(_IMPORTED)
    return None if found is None else [thing for thing in found if isinstance(thing, Algorithm)]


def kept_in(cache: Path | None) -> Path | None:
    """The folder in which results are kept between commands; None: nowhere, as a file of one's own may read others."""
    return cache or (user_folder() / "plans" if imported() is None else None)


def with_options(command: F, *options: Callable[[F], F]) -> F:
    """The command with options of click, which its help lists in this order."""
    for option in reversed(options):
        command = option(command)
    return command


def timing_options(command: F) -> F:
    """How a trace is timed."""
    taken = with_options(
        command,
        click.option("--device", default="h100", show_default=True, help=DEVICE_HELP),
        click.option("--dtype", help=_DTYPE_HELP),
        click.option("--algorithm", "algorithms", multiple=True, metavar=ALGORITHM_WORDS, help=ALGORITHM_HELP),
    )
    return calls_option(taken)


def served_by(words: tuple[str, ...], stack: Stack) -> tuple[str, ...]:
    """What serves a recorded run: as `chosen_by`, or as it ran where one of the words says so."""
    return tuple(word for word in words if word != RECORDED) if RECORDED in words else chosen_by(words, stack)


def chosen_by(words: tuple[str, ...], stack: Stack) -> tuple[str, ...]:
    """What serves a step: what none of the words names is served by `auto`, or as the stack's library would serve it."""
    return (stack.library or AUTO, *words)


def print_json(value: object) -> None:
    """A result as JSON on stdout."""
    print_text(json.dumps(_plain(value), indent=2, allow_nan=False))


def _plain(value: object) -> object:
    if is_dataclass(value) and not isinstance(value, type):
        kept = {f.name: getattr(value, f.name) for f in fields(value)}
        return _plain({name: each for name, each in kept.items() if each is not None or name not in _left_out(value)})
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, Iterable) and not isinstance(value, str):
        return [_plain(v) for v in value]
    return value.item() if hasattr(value, "item") else value


def _left_out(value: Any) -> set[str]:
    """The fields of a result that have no meaning where they are None."""
    return {f.name for f in fields(value) if "left out" in f.metadata}
