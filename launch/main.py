"""The command `emu`: find the command, run it, and turn an error into one line and an exit code.

Commands are modules of `launch.cli` that are imported when they are needed: `emu --help` loads neither torch nor Ray.
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
from launch.cli.options.files import with_files
from launch.cli.options.repetition import without_repetition
from launch.shell import in_shell
from launch.show.progress import late_notice, show_on_stderr
from launch.supervisor import STOPPED, TerminationSignal, install_signal_handlers, run_in_child

COMMANDS = {
    "verify": "Prove that collectives are correct, and check the times that papers claim.",
    "bench": "Move real data with a collective, and time it on topologies.",
    "synthesize": "Make the fastest schedule of a collective that is found for a topology.",
    "train": "Train a model on emulated NPUs, and report how long a step takes.",
    "run": "Run your own PyTorch script, unmodified, on emulated NPUs.",
    "replay": "Time a recorded run on other topologies.",
    "estimate": "Estimate how long a training step takes at full size, without running it.",
    "repro": "Compute figures that papers and vendors published, and compare them with the printed values.",
    "plan": "Find the plan that trains a model fastest, and say why the next plans are slower.",
    "design": "Find the machines for a training job that no other beats in speed, price, power and availability.",
    "jobs": "Run jobs side by side on one fabric: how far do they slow one another down?",
    "outage": "Compute a job's throughput over time while parts of the machine fail and come back.",
    "faults": "Compute what faults leave of a machine: waste, the largest job, goodput.",
    "queue": "Simulate a queue of jobs on a machine over weeks: waiting, use, goodput, lost time.",
    "cost": "Compute the price and the power of a network, by the price book of a paper or your own.",
    "compare": "Compare a step of two traces.",
    "calibrate": "Measure the device of this machine, and write a file for --device.",
    "show": "Show a topology, a collective or a timeline, as text or as a picture.",
    "list": "List the collectives, topologies, models and devices.",
}
BUG, INTERRUPTED, TERMINATED = 70, 130, 143
_UNPRINTED = 120


class Commands(click.Group):
    """The group of all commands, each imported when it is needed and given `--config`."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Return the names of commands in the order of the help page."""
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Return the command with the given name; None if there is none."""
        if cmd_name not in COMMANDS:
            return None
        with late_notice(f"loading what `emu {cmd_name}` needs"), _without_collector():
            command = getattr(importlib.import_module(f"launch.cli.{cmd_name}"), f"{cmd_name}_command")
        assert isinstance(command, click.Command)
        return without_repetition(with_files(command))

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write one line of help for each command, without importing it."""
        with formatter.section("Commands"):
            formatter.write_dl(list(COMMANDS.items()))

    def resolve_command(self, ctx: click.Context, args: list[str]) -> tuple[str | None, click.Command | None, list[str]]:
        """Return the command as click does; an unknown name raises an error with the nearest name."""
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


class NoticeHandler(logging.Handler):
    """A log handler that prints each notice of Emu as a line on stderr."""

    def emit(self, record: logging.LogRecord) -> None:
        """Print one log record as a notice on stderr."""
        click.echo(f"emu: {record.getMessage()}", err=True)


NOTICES = NoticeHandler(logging.INFO)


def main(args: list[str] | None = None) -> None:
    """Run one command and leave with its exit code."""
    # Torch reads this when it is loaded. A thread that spins while it waits holds a core that other threads may need: beside
    # other work, moving 1,024 x 1 MiB took 6 s and more, and takes 0.5 s if threads sleep.
    os.environ.setdefault("OMP_WAIT_POLICY", "PASSIVE")
    log = logging.getLogger("emu")
    log.addHandler(NOTICES)
    log.setLevel(logging.INFO)
    atexit.register(gc.freeze)  # the last collection of cycles would take longer than some commands
    show_on_stderr()
    if args is None and os.name == "posix":
        if _is_command(sys.argv[1:]):
            run_in_child()
        install_signal_handlers()
    code = _run(args)
    if args is None and any(thread.daemon for thread in threading.enumerate()):
        _leave(code)
    sys.exit(code)


def _leave(code: int) -> None:
    """Run what is registered with `atexit`, write out stdout and stderr, and end the process with an exit code.

    Python's further shutdown is left out, because it may abort while threads are in native code.
    """
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except OSError:  # Python's own exit code for this
            code = code or _UNPRINTED
    os._exit(code)


def _is_command(args: list[str]) -> bool:
    """Return whether the arguments run a command, instead of asking for help."""
    return bool(args) and args[0] in COMMANDS and not {"-h", "--help"} & {*args}


@contextmanager
def _without_collector() -> Iterator[None]:
    """Load modules without garbage collection; later collections skip what was loaded."""
    gc.disable()
    try:
        yield
    finally:
        _freeze()
        gc.enable()


@cache
def _freeze() -> None:
    """Exclude all present objects from garbage collection; later calls do nothing."""
    gc.freeze()


def _run(args: list[str] | None) -> int:
    """Run a command, print its error if it fails, and return the exit code."""
    try:
        with in_shell():
            result = emu.main(args, prog_name="emu", standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as none_given:
        click.echo(none_given.ctx.get_help())
        return 0
    except (Exception, KeyboardInterrupt) as error:  # every error ends here
        line, code = _interruption(error) if isinstance(error, KeyboardInterrupt) else _verdict(error)
        click.echo(f"emu: {line}", err=True)
        if hasattr(error, LEAVES_THREADS):  # threads in native code must not see Python end
            sys.stdout.flush()
            os._exit(code)
        return code
    return result if isinstance(result, int) else 0


def _interruption(stopped: BaseException | None) -> tuple[str, int]:
    """Return the line and the exit code of a command that a signal has ended."""
    what, code = ("terminated", TERMINATED) if isinstance(stopped, TerminationSignal) else ("interrupted", INTERRUPTED)
    return ": ".join((what, *getattr(stopped, "__notes__", ()))), code


def _verdict(error: Exception) -> tuple[str, int]:
    """Return the line and the exit code for an error; the traceback of a bug (an error of no known kind) is printed before."""
    if isinstance(error, EmuError):
        return str(error), error.exit_code
    if isinstance(error, click.Abort):
        return _interruption(error.__cause__)
    if isinstance(error, click.ClickException):
        line = error.format_message().replace("\n", " ")
        if isinstance(error, click.MissingParameter) and error.ctx is not None:
            line += f" `{error.ctx.command_path} --help` has examples."
        return line, InputError.exit_code
    if STOPPED:  # a library that was interrupted while loading may raise any error
        return _interruption(STOPPED[0])
    traceback.print_exception(error)
    return "this is a bug in Emu; please report it with the lines above", BUG


if __name__ == "__main__":
    main()
