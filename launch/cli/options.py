"""Options that several commands take, and how results are printed."""

import json
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, is_dataclass
from pathlib import Path
from typing import Any, TypeVar

import click

from emu.collective.algorithm import ALGORITHMS, Algorithm
from emu.collective.msccl.filed import file_program
from emu.registry import import_file
from emu.units import parse_size, parse_time

F = TypeVar("F", bound=Callable[..., Any])
_IMPORTED = "emu.imported"
ALGORITHM_HELP = "Other than the default; `auto`: the fastest for each request, on the (first) topology."


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
        help="Where it runs; give several to compare. See `emu list topologies`; a FILE is .toml, .csv or .graphml.",
    )(command)


def perturb_option(command: F) -> F:
    """`--perturb`."""
    text = "Time it N times more, each start moved by a tick or not, and print the spread if the time is chaotic."
    return click.option("--perturb", type=int, default=0, metavar="N", help=text)(command)


def import_option(command: F) -> F:
    """`--import`, as often as one likes."""

    def load(ctx: click.Context, param: click.Parameter, paths: tuple[Path, ...]) -> None:
        before = {key for key, _ in ALGORITHMS} if paths else set()
        for path in paths:
            if path.suffix == ".xml":
                file_program(path)
            else:
                import_file(path)
        ctx.meta[_IMPORTED] = tuple(a for key, a in ALGORITHMS if key not in before) if paths else ()

    return click.option(
        "--import",
        type=click.Path(path_type=Path),
        multiple=True,
        callback=load,
        is_eager=True,
        expose_value=False,
        help="A file of your own: collectives, topologies or models in Python, or an MSCCL program (.xml).",
    )(command)


def imported() -> tuple[Algorithm, ...]:
    """The algorithms of the files that the command in progress was given."""
    found: tuple[Algorithm, ...] = click.get_current_context().meta.get(_IMPORTED, ())
    return found


def cluster_options(command: F) -> F:
    """Where the ranks really run."""
    where = click.option("--cluster", default="local", show_default=True, help="local (threads) or ray (a process a rank).")
    address = click.option("--ray-address", help="Of a running Ray; a local one is started unless given.")
    return where(address(command))


def timing_options(command: F) -> F:
    """How a trace is timed, and where its timeline goes."""
    options = (
        click.option("--device", default="h100", show_default=True, help="Times computation; see `emu list devices`."),
        click.option("--dtype", default="bfloat16", show_default=True, help="What float32 is timed as."),
        click.option("--algorithm", "algorithms", multiple=True, metavar="OPERATION=NAME", help=ALGORITHM_HELP),
        click.option("--timeline", type=click.Path(path_type=Path), help="Write it here, for ui.perfetto.dev."),
    )
    for option in reversed(options):
        command = option(command)
    return command


def print_json(value: object) -> None:
    """A result as JSON on stdout."""
    click.echo(json.dumps(_plain(value), indent=2, allow_nan=False))


def _plain(value: object) -> object:
    if is_dataclass(value) and not isinstance(value, type):
        return _plain(asdict(value))
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, Iterable) and not isinstance(value, str):
        return [_plain(v) for v in value]
    return value.item() if hasattr(value, "item") else value
