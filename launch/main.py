"""The command `emu`: find the command, run it, turn errors into one line and an exit code.

Commands are modules of `launch.cli`, imported when they are asked for: `emu --help` loads neither torch nor ray.
"""

import atexit
import difflib
import gc
import importlib
import logging
import os
import sys
import threading
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import click

from emu import __version__
from emu.errors import LEAVES_THREADS, EmuError, InputError
from launch.cli.options.config import with_config
from launch.cli.options.outputs import with_outputs
from launch.keeper import keep
from launch.show.progress import late_notice
from launch.signals import STOPPED, Terminated, listen

COMMANDS = {
    "verify": "Prove that collectives are correct, and check the times that papers claim.",
    "bench": "Move real data with a collective, and time it on topologies.",
    "train": "Train a model on emulated NPUs, and report how long a step takes.",
    "run": "Run your own PyTorch script, unmodified, on emulated NPUs.",
    "replay": "Time a recorded run on other topologies.",
    "estimate": "Tell how long a training step takes at full size, without running it.",
    "repro": "Work out again what papers and vendors printed, and tell how far it is off.",
    "plan": "Find the plan that trains a model fastest, and tell why the next ones lose.",
    "faults": "Tell what faults leave of a machine: waste, the largest job, goodput.",
    "cost": "Tell what a network costs and draws, by the price book of one paper or your own.",
    "compare": "Tell whether a step of two traces does the same.",
    "calibrate": "Measure the device that is here, and write a file for --device.",
    "show": "Show a topology, a collective or a timeline, as text or as a picture.",
    "list": "List the collectives, topologies, models and devices.",
}
BUG, INTERRUPTED, TERMINATED = 70, 130, 143
_UNPRINTED = 120


class Commands(click.Group):
    """The commands by name, each imported when it is needed, and each with `--config`."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """In the order a reader wants them."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """The command, or nothing."""
        if cmd_name not in COMMANDS:
            return None
        with late_notice(f"loading what `emu {cmd_name}` needs"), _uncollected():
            command = getattr(importlib.import_module(f"launch.cli.{cmd_name}"), f"{cmd_name}_command")
        assert isinstance(command, click.Command)
        return with_config(with_outputs(command))

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
    """Emulate a training cluster that you do not have.

    \b
    emu verify
    emu bench all_reduce --topology torus:dims=4x4,bandwidth=50GB/s,latency=500ns --size 64MiB
    emu train --model llama-tiny --plan dp=4,tp=4 --topology ub-mesh:rack
    emu run --ranks 8 --topology ub-mesh:board train.py
    """


class Notices(logging.Handler):
    """Shows what Emu logs: a line each, on stderr."""

    def emit(self, record: logging.LogRecord) -> None:
        """Show one."""
        click.echo(f"emu: {record.getMessage()}", err=True)


NOTICES = Notices(logging.INFO)


def main(args: list[str] | None = None) -> None:
    """Run one command and leave with its exit code."""
    # Torch reads it when it is loaded. A thread that spins while it waits holds a core that the awaited thread may need: beside
    # other work, moving 1,024 x 1 MiB took 6 s and more, and takes 0.5 s if threads sleep.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    log = logging.getLogger("emu")
    log.addHandler(NOTICES)
    log.setLevel(logging.INFO)
    atexit.register(gc.freeze)  # else Python looks through all objects for cycles once more, longer than some commands take
    if args is None and os.name == "posix":
        if _is_command(sys.argv[1:]):
            keep()
        listen()
    code = _run(args)
    if args is None and any(thread.daemon for thread in threading.enumerate()):
        _leave(code)
    sys.exit(code)


def _leave(code: int) -> None:
    """Leave with threads behind, such as ranks in the midst of native code: as Python takes them down, C++ may abort."""
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:  # as Python says it
            code = code or _UNPRINTED
    os._exit(code)


def _is_command(args: list[str]) -> bool:
    """Whether it is more than a question for help."""
    return bool(args) and args[0] in COMMANDS and not {"-h", "--help"} & {*args}


@contextmanager
def _uncollected() -> Iterator[None]:
    """What is loaded first stays to the end: the collector looks for no cycles in it, neither now nor later."""
    gc.disable()
    try:
        yield
    finally:
        _freeze()
        gc.enable()


@cache
def _freeze() -> None:
    """Once: what a command leaves behind may be collected when the next one is loaded."""
    gc.freeze()


def _run(args: list[str] | None) -> int:
    try:
        result = emu.main(args, prog_name="emu", standalone_mode=False)
    except (Exception, KeyboardInterrupt) as error:  # the one place where any error ends
        line, code = _interrupted(error) if isinstance(error, KeyboardInterrupt) else _verdict(error)
        click.echo(f"emu: {line}", err=True)
        if hasattr(error, LEAVES_THREADS):  # in native code, which must not see Python end
            sys.stdout.flush()
            os._exit(code)
        return code
    return result if isinstance(result, int) else 0


def _interrupted(stopped: BaseException | None) -> tuple[str, int]:
    """The line, with what the command tells of it, and the exit code."""
    what, code = ("terminated", TERMINATED) if isinstance(stopped, Terminated) else ("interrupted", INTERRUPTED)
    return ": ".join((what, *getattr(stopped, "__notes__", ()))), code


def _verdict(error: Exception) -> tuple[str, int]:
    """The line and the exit code of an error; a bug's own lines go before."""
    if isinstance(error, EmuError):
        return str(error), error.exit_code
    if isinstance(error, click.Abort):
        return _interrupted(error.__cause__)
    if isinstance(error, click.ClickException):
        return error.format_message().replace("\n", " "), InputError.exit_code
    if STOPPED:  # a library that is interrupted as it is loaded fails in ways of its own
        return _interrupted(STOPPED[0])
    traceback.print_exception(error)
    return "this is a bug in Emu; please report it with the lines above", BUG
