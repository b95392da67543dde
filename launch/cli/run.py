"""The command `emu run`: a PyTorch script, started as torchrun starts it, on emulated NPUs."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from functools import wraps
from typing import Any

import click

from emu.errors import EmuError
from launch.cli.options import common
from launch.cli.options.files import INPUT
from launch.cli.options.output import ask_and_save, check_fault, check_job_picture, with_trace_output
from launch.cli.options.question_options import QuestionOptions
from launch.front.steps.runs import run
from launch.show.row_file import STDOUT

options_of = QuestionOptions(run)


@click.command("run", context_settings={"allow_interspersed_args": False})
@options_of("ranks")
@common.timing_options
@common.timeline_options
@common.trace_option
@options_of("no_cuda", "log_ranks")
@common.cluster_options(options_of)
@common.patience_option
@common.pace_option
@common.pace_compute_option
@common.pace_events_option
@common.fault_option
@common.job_png_option
@options_of("roles")
@options_of("fabric", "network")
@common.answer_options
@click.option("-m", "--module", is_flag=True, help="SCRIPT is the name of a module, as with `python -m`.")
@click.argument("script", type=INPUT)
@click.argument("args", nargs=-1, type=click.UNPROCESSED)
def run_command(as_json: bool, **options: Any) -> int:
    """Run an unmodified PyTorch script on emulated NPUs, and time its training step on a fabric.

    A script without an optimizer step is timed as a whole. SCRIPT may be - for standard input, or a module's name after -m.
    Everything after SCRIPT belongs to the script, and the exit code is the script's. With --cluster fake, tensors have shapes
    but no data, so that any number of ranks is possible. Only the few ranks that differ are traced, up to the first step whose
    requests equal those of the step before.

    \b
    emu run --ranks 8 --topology ub-mesh:board train.py
    emu run --ranks 8 --topology ub-mesh:board --trace ddp.trace --timeline ddp.json train.py
    emu run --ranks 8 --topology ub-mesh:board --cluster ray --ranks-per-actor 2 --log-ranks 0 train.py
    emu run --ranks 8 --topology ub-mesh:board -m mine.train --steps 3
    emu run --ranks 8 --topology ub-mesh:board --pace 1000 train.py
    emu run --ranks 8 --topology fat-tree:radix=4 --fabric packets --network roce train.py
    emu run --ranks 8 --topology ub-mesh:board --fault "link 0-1 at step 2" train.py
    emu run --ranks 8 --topology ub-mesh:board --pace 1000 --fault "link 0-1 slow 0.5 at 2ms" train.py
    emu run --ranks 1024 --topology hpn:segment:dims=128x8 --cluster fake train.py
    """
    check_fault(options, "timeline")
    check_job_picture(options)
    takes_stdout = as_json or options["out"] == STDOUT

    @wraps(run)
    def ask(**given: Any) -> Any:
        with redirect_stdout(sys.stderr if takes_stdout else sys.stdout), _with_script_lines():
            return run(**given)

    return ask_and_save(ask, {**with_trace_output(options), "as_json": as_json})


@contextmanager
def _with_script_lines() -> Iterator[None]:
    """Print, before the error in one line, the lines of the script at which a rank failed."""
    try:
        yield
    except EmuError as error:
        if error.lines:
            first = f"emu: rank {error.rank} failed here; lines of Emu and of torch are left out"
            click.echo("\n".join([first, *error.lines]), err=True)
        raise
