"""Options that several commands share, and the printing of results."""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import fields, is_dataclass
from functools import partial, reduce, wraps
from pathlib import Path
from typing import Any, TypeVar, cast

import click

from emu.collective.algorithm import AUTO, Algorithm
from emu.collective.msccl.program_file import file_program
from emu.collective.shape import Shape, parse_grid
from emu.errors import must_be
from emu.model.stack.software import Software
from emu.model.stack.stack import ROLES, SOFTWARE, Stack, beside, parse_stack
from emu.registry import import_file
from emu.store import user_folder
from emu.study.choice import algorithm_cache
from emu.trace.device.device import Device
from emu.trace.device.dtypes import AS_RAN
from emu.units import parse_size, parse_time
from launch.cli.options.files import OutputFile, OutputFolder, print_text, remember_input
from launch.data.stacks import STACKS

F = TypeVar("F", bound=Callable[..., Any])
T = TypeVar("T")
_IMPORTED = "emu.imported"
_ALGORITHM_HELP = (
    "The algorithm of an operation, or of an operation on one axis (dp.all_gather=ring); repeat it for others. `auto` takes "
    "the fastest for each request, by its group and size, on each --topology. `nccl` takes what NCCL would take. An operation "
    "that is not named is served by `auto`, or by the library of --stack. Data of a run are moved by the choice on the first "
    "--topology."
)
_CALLS = (
    "launch=TIME is added to each collective and message, alpha=TIME to each message, adding=TIME to each message to or from a "
    "switch that adds; bandwidth=0.8/0.9 is the share of a link's bandwidth that data reach, tier by tier; library=nccl lets "
    "NCCL's rules choose algorithms where --algorithm names none; `nccl` sets all of these to NCCL's values"
)


def _settings_told(software: Software) -> str:
    """Return a sentence with all settings of a software."""
    words = ", ".join(f"{name}={'|'.join(known)}" for name, known in software.settings.items())
    return f"With {software.name}: {words} (the first is the default)."


_OF_SOFTWARE = " ".join(_settings_told(each) for each in SOFTWARE.values() if each != Stack().software)
_STACK_HELP = (
    f"The software and its settings; they change times and never results: software={'|'.join(SOFTWARE)}. "
    f"{_OF_SOFTWARE} With any of them: a dtype for {', '.join(ROLES)}. {_CALLS}."
)


_DTYPE_HELP = (
    f"The data type as which float32 is timed. {AS_RAN}: operators and messages are timed in the dtype that they ran in; "
    "products of float32 reach the peak of TF32 if the program allows TF32.  "
    f"[default: {AS_RAN}; bfloat16 for a trace of `emu train` or of an unknown command]"
)


class TextType(click.ParamType[T]):
    """The type of an option whose text a function reads.

    Args:
        name: What the help page calls a value, such as SIZE.
        read: The function; it takes the text and the name of the option.
    """

    def __init__(self, name: str, read: Callable[[str, str], T]) -> None:
        self.name, self._read = name, read

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> T:
        """Return what the text says."""
        return self._read(str(value), max(param.opts, key=len) if param else "value")


SIZE = TextType("SIZE", parse_size)  # such as 64MiB; in bytes
TIME = TextType("TIME", parse_time)  # such as 500ns; in ticks
# 4x4:0-7 takes ranks 0 to 7; empty: no grid
GRID: TextType[Shape] = TextType("4x4", lambda text, name: parse_grid(text, name) if text else ())

default_option = partial(click.option, show_default=True)  # an option whose help names its default
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON instead of a table.")
topology_option = click.option(
    "--topology",
    "topologies",
    multiple=True,
    required=True,
    metavar="NAME[:VARIANT][:key=value,...]|FILE",
    help="The network: a name from `emu list topologies`, or a .toml, .csv or .graphml file. Repeat it to compare several.",
)
model_option = click.option(
    "--model",
    required=True,
    metavar="NAME|FILE",
    help="The model: a name from `emu list models`, or a .toml file with sizes of your own.",
)
device_option = click.option(
    "--device",
    default="h100",
    show_default=True,
    help="The device: a name from `emu list devices`, or a FILE.toml such as `emu calibrate` writes.",
)
algorithm_option = click.option(
    "--algorithm", "algorithms", multiple=True, metavar="auto|nccl|[AXIS.]OPERATION=NAME", help=_ALGORITHM_HELP
)
stack_option = click.option("--stack", default="", metavar="software=megatron,...", help=_STACK_HELP)  # of a generated step
calls_option = click.option(  # of a step that ran
    "--stack", default="", metavar="launch=TIME,...", help=f"The times of the software: {_CALLS}."
)
dtype_option = click.option("--dtype", help=_DTYPE_HELP)
cache_option = click.option("--cache", type=OutputFolder(), help="Keep results in this folder. [default: the user's cache]")
trace_option = click.option(
    "--trace", type=OutputFile(), help="Save the trace of the run to this file; `emu replay` times it on other topologies."
)
perturb_option = click.option(
    "--perturb",
    type=int,
    default=0,
    metavar="N",
    help="Compute the time N more times (2 or more), with random starts one tick later, and print how far it spreads.",
)


def options_as_one(name: str, make: type[Any], *options: Callable[..., Any]) -> Callable[[F], F]:
    """Return a decorator that adds options to a command, which takes their values as one object.

    Args:
        name: The parameter of the command that takes the object.
        make: The class of the object, whose fields are called as the options.
        options: Options, in the order of the help page; others stand above the decorator.
    """

    def add(command: F) -> F:
        @wraps(command)
        def called(*given: Any, **values: Any) -> Any:
            own = {field.name: values.pop(field.name) for field in fields(make) if field.name in values}
            return command(*given, **{name: make(**own)}, **values)

        return reduce(lambda made, option: option(made), reversed(options), cast("F", called))

    return add


def stack_of(words: str) -> Stack:
    """Return the stack that `--stack` gives.

    Raises:
        InputError: as `parse_stack`.
    """
    return parse_stack(words, STACKS) if words else Stack()


def calls_of(words: str) -> Stack:
    """Return the stack that `--stack` gives for a step that ran: only the times of messages and requests.

    Raises:
        InputError: as `parse_stack`, or there is a setting that only a generated step can have.
    """
    return beside(stack_of(words))


def check_float32(device: Device, dtype: str) -> None:
    """Refuse a device without a peak for float32 where a script is timed as it ran.

    The dtypes of a script are not known before it runs, but most scripts compute in float32, too.

    Raises:
        InputError: the device has no peak for float32.
    """
    if dtype == AS_RAN and "float32" not in device.peak_flops:
        mend = "add float32 = 67e12 to it, or give --dtype bfloat16, which times float32 as bfloat16"
        what = "given for float32 too, because most scripts compute in it"
        raise must_be(device.name, "peak_flops", what, ", ".join(device.peak_flops), mend)


def import_option(command: F) -> F:
    """Add `--import` to a command; it may be repeated, and its files are loaded before other options are read."""

    def load(ctx: click.Context, param: click.Parameter, paths: tuple[Path, ...]) -> None:
        for path in paths:
            remember_input("--import", path)
        filed = [thing for path in paths for thing in ([file_program(path)] if path.suffix == ".xml" else import_file(path))]
        ctx.meta[_IMPORTED] = tuple(filed) if paths else None
        # A file of the user may read others, whose changes no digest sees.
        algorithm_cache.keep_in(None if paths else algorithm_cache.user_table())

    return click.option(
        "--import",
        type=click.Path(path_type=Path),
        multiple=True,
        callback=load,
        is_eager=True,
        expose_value=False,
        help="A file of your own: collectives, topologies or models in Python, or an MSCCL program (.xml).",
    )(command)


def imported_algorithms() -> list[Algorithm] | None:
    """Return the algorithms of the files that `--import` gave; None where no file was given."""
    found: tuple[object, ...] | None = click.get_current_context().meta.get(_IMPORTED)
    return None if found is None else [thing for thing in found if isinstance(thing, Algorithm)]


def cache_folder(cache: Path | None) -> Path | None:
    """Return the folder in which results are kept between commands; None where results must not be kept.

    Nothing is kept in the user's cache where files were imported: they may read other files, which may change unnoticed.

    Args:
        cache: The folder that `--cache` gives; None: the user's cache.
    """
    return cache or (user_folder() / "plans" if imported_algorithms() is None else None)


def algorithm_choice(words: tuple[str, ...], stack: Stack) -> tuple[str, ...]:
    """Return the words that choose algorithms for a step.

    Operations that no word names are served by the library of the stack, else by `auto`.
    """
    return (stack.library or AUTO, *words)


def print_result(result: object, text: Callable[[], str], *, as_json: bool) -> None:
    """Print a result as JSON, or the text of its report."""
    if as_json:
        print_json(result)
    else:
        print_text(text())


def print_json(value: object) -> None:
    """Print a result as JSON on stdout."""
    print_text(json.dumps(_plain(value), indent=2, allow_nan=False))


def _plain(value: object) -> object:
    """Return a value in terms of dicts, lists, strings and numbers."""
    if is_dataclass(value) and not isinstance(value, type):
        kept = ((f.name, getattr(value, f.name), "left out" in f.metadata) for f in fields(value))
        return _plain({name: each for name, each, optional in kept if each is not None or not optional})
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, Iterable) and not isinstance(value, str):
        return [_plain(v) for v in value]
    return value.item() if hasattr(value, "item") else value
