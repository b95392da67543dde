"""The command `emu`: find the command, run it, turn errors into one line and an exit code.

Commands are modules of `launch.cli`, imported when they are asked for: `emu --help` loads neither torch nor ray.
"""

import difflib
import importlib
import sys
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager

import click

from emu import __version__
from emu.errors import EmuError, InputError

COMMANDS = {
    "verify": "Prove that collectives do what they say, and hold their claims.",
    "bench": "Move real data by a collective and time it on topologies.",
    "train": "Train a model on emulated NPUs and report its virtual step time.",
    "run": "Run an unmodified PyTorch script on emulated NPUs.",
    "replay": "Time a recorded trace on other topologies.",
    "show": "Show a topology, a collective, a timeline.",
    "list": "List collectives, topologies, models, devices.",
}
BUG, INTERRUPTED = 70, 130


class Commands(click.Group):
    """The commands by name, each imported when it is needed."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """In the order a reader wants them."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command, or nothing."""
        if cmd_name not in COMMANDS:
            return None
        with _patience():
            command = getattr(importlib.import_module(f"launch.cli.{cmd_name}"), f"{cmd_name}_command")
        assert isinstance(command, click.Command)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """The help of each command in a line, without importing it."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        """As click's, with the nearest name where there is none."""
        if args[0] not in COMMANDS:
            near = difflib.get_close_matches(args[0], COMMANDS, n=1)
            hint = f"did you mean {near[0]}?" if near else f"known: {', '.join(COMMANDS)}"
            raise click.UsageError(f"no command is called {args[0]!r}; {hint}")
        return super().resolve_command(ctx, args)


@click.command(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, prog_name="emu")
def emu() -> None:
    """A training cluster that is not there.

    \b
    emu verify
    emu bench all_reduce --topology torus:dims=4x4,bandwidth=50GB/s,latency=500ns --size 64MiB
    emu train --model llama-tiny --plan dp=4,tp=4 --topology ub-mesh:rack
    emu run --ranks 8 --topology ub-mesh:board train.py
    """


@contextmanager
def _patience() -> Iterator[None]:
    """Say what takes so long where importing does: the engine is compiled once, then kept."""
    line = "emu: compiling the engine, once; about 20 s"
    said = threading.Timer(5.0, lambda: click.echo(line, err=True) if sys.stderr.isatty() else None)
    said.daemon = True
    said.start()
    try:
        yield
    finally:
        said.cancel()


def main(args: list[str] | None = None) -> None:
    """Run one command and leave with its exit code."""
    sys.exit(_run(args))


def _run(args: list[str] | None) -> int:
    try:
        result = emu.main(args, prog_name="emu", standalone_mode=False)
    except Exception as error:  # the one place where any error ends
        line, code = _verdict(error)
        click.echo(f"emu: {line}", err=True)
        return code
    except KeyboardInterrupt:
        click.echo("emu: interrupted", err=True)
        return INTERRUPTED
    return result if isinstance(result, int) else 0


def _verdict(error: Exception) -> tuple[str, int]:
    """The line and the exit code of an error; a bug's own lines go before."""
    if isinstance(error, EmuError):
        return str(error), error.exit_code
    if isinstance(error, click.Abort):
        return "interrupted", INTERRUPTED
    if isinstance(error, click.ClickException):
        return error.format_message().replace("\n", " "), InputError.exit_code
    traceback.print_exception(error)
    return "this is a bug in Emu; please report it with the lines above", BUG
