"""The command `emu run`: a PyTorch script, started as torchrun starts it, on emulated NPUs."""

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stdout
from dataclasses import replace
from functools import partial
from pathlib import Path

import click

from emu.cluster.npu.npu import Npu
from emu.cluster.script_run import Script, run_loaded_script
from emu.cluster.script_source import read_source
from emu.errors import EmuError, must_be
from emu.study.choice.chooser import choice_on
from emu.study.training.step.choices import check_words, with_choice, with_words
from emu.study.training.step.step import time_trace
from emu.study.training.traced_step import time_step
from emu.topology.fault_injection.fault_script import at_times, job_steps
from emu.topology.placement import place
from emu.trace.device.dtypes import AS_RAN
from emu.trace.replay.replay import TraceLayout
from emu.trace.steps import count_steps, has_steps, with_steps
from emu.trace.trace import Trace
from emu.trace.trace_file import save
from launch.cli.options import job_options
from launch.cli.options.common import check_float32, import_option, json_option, trace_option
from launch.cli.options.files import write_output
from launch.cli.options.view_options import ViewOptions, view_options
from launch.cli.trace_steps import TimingOptions, show_steps, timing_options
from launch.clusters import FAKE, ClusterOptions, script_cluster_options
from launch.show.progress import progress_bar


@click.command("run", context_settings={"allow_interspersed_args": False})
@click.option("--ranks", type=int, required=True, help="The number of ranks (the WORLD_SIZE of the script).")
@timing_options
@view_options
@trace_option
@click.option(
    "--no-cuda", is_flag=True, help="Refuse a script that uses a CUDA device. [default: a CUDA device is the rank's NPU]"
)
@click.option("--log-ranks", metavar="0,3", help="Show only the output of these ranks. [default: all]")
@script_cluster_options
@job_options.pace_option
@job_options.pace_compute_option
@job_options.pace_events_option
@job_options.fault_option
@job_options.png_option
@click.option(
    "--roles",
    metavar="0,1,1023",
    help="Ranks to trace with --cluster fake. [default: 0, 1 and the last of each dim of the script's meshes, and all of pp]",
)
@import_option
@json_option
@click.option("-m", "--module", is_flag=True, help="SCRIPT is the name of a module, as with `python -m`.")
@click.argument("script", type=click.Path(path_type=Path))
@click.argument("args", nargs=-1, type=click.UNPROCESSED)
@job_options.faulty_job
def run_command(
    ranks: int,
    timing: TimingOptions,
    looks: ViewOptions,
    trace: Path | None,
    no_cuda: bool,
    log_ranks: str | None,
    where: ClusterOptions,
    job: job_options.JobOptions,
    roles: str | None,
    as_json: bool,
    module: bool,
    script: Path,
    args: tuple[str, ...],
) -> int:
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
    emu run --ranks 8 --topology ub-mesh:board --fault "link 0-1 at step 2" train.py
    emu run --ranks 8 --topology ub-mesh:board --pace 1000 --fault "link 0-1 slow 0.5 at 2ms" train.py
    emu run --ranks 1024 --topology hpn:segment:dims=128x8 --cluster fake train.py
    """
    if ranks < 1:
        raise must_be("run", "--ranks", "1 or more", ranks)
    dtype = timing.dtype or AS_RAN
    built, found = timing.build(dtype)
    check_float32(found, dtype)
    choices = [choice_on(each, timing.words, dtype) for each in built]
    for each in built:
        place(each, ranks)
    heard = None if log_ranks is None else _ranks("--log-ranks", log_ranks, ranks)
    npu = None if no_cuda else Npu(found.name, found.memory_bytes, found.capability, found.cores)
    read = Script.of(read_source(script, module=module), args, ("launch",), npu, heard)
    named, fake = _roles(roles, where.cluster, ranks), where.cluster == FAKE
    job.check(looks.given)
    if fake:
        _check_fake(job)
    known, lost = job.known_faults(timing.topologies, ranks, job_steps(job.faults))
    recorded: Trace
    code: int
    pace = job.pace(timing.topologies[0], found, dtype, timing.calls, known)
    with redirect_stdout(sys.stderr if as_json else sys.stdout), _with_script_lines():
        if fake:
            fake_run = importlib.import_module("emu.cluster.fake.fake_run")  # not above: it loads FSDP and dynamo
            recorded, code = fake_run.trace_loaded_script(read, ranks, named, _echo)
        else:
            with where.open_cluster(read.source.root, pace) as cluster:
                recorded, code = run_loaded_script(replace(read, lost=lost), ranks, choices[0], cluster)
    if code == 0:
        recorded = with_steps(recorded)
    recorded = with_words(recorded if fake else with_choice(recorded, choices[0]), timing.words, built, dtype)
    write_output(trace, partial(save, recorded))
    if code or not has_steps(recorded):
        neither = "the script neither computed nor communicated, so there is nothing to time"
        click.echo(f"emu: {'as the script has failed, nothing is timed' if code else neither}", err=True)
        return code
    if job.faults and not at_times(job.faults):
        job.known_faults(timing.topologies, ranks, count_steps(recorded))
        job.show(timing.time_with_faults(recorded, job.faults), pace, as_json=as_json)
        return code
    check_words(recorded, timing.algorithms, built)
    with progress_bar("timing the step"):
        layouts = [TraceLayout(recorded, choice, each, found, dtype) for choice, each in zip(choices, built, strict=True)]
        timed = [(time_step if fake else time_trace)(laying) for laying in layouts]
    show_steps(f"Run of {read.source.name}", timed, looks, as_json=as_json, paced=job_options.pacing_of(pace))
    return code


def _check_fake(job: job_options.JobOptions) -> None:
    """Refuse a pace and faults where no rank runs.

    Raises:
        InputError: one of them was given.
    """
    if job.factor is not None:
        raise must_be("run", "--cluster", "local or ray where --pace is given", FAKE, "no rank runs there")
    if job.faults:
        raise must_be("run", "--cluster", "local or ray where --fault is given", FAKE, "save a --trace, and replay that")


def _roles(words: str | None, cluster: str, ranks: int) -> list[int]:
    """Return the ranks that `--roles` gives; none where it was not given.

    Raises:
        InputError: all ranks run, or a rank does not exist.
    """
    if words is not None and cluster != FAKE:
        raise must_be("run", "--roles", "left out where all ranks run", words, f"add --cluster {FAKE}")
    return [] if words is None else _ranks("--roles", words, ranks)


def _ranks(flag: str, words: str, ranks: int) -> list[int]:
    """Return the ranks that an option lists.

    Raises:
        InputError: a rank does not exist.
    """
    found = [int(word) if word.isdecimal() else -1 for word in words.split(",")]
    if not all(0 <= rank < ranks for rank in found):
        raise must_be("run", flag, f"ranks of 0..{ranks - 1} with commas between them", words, "such as 0,3")
    return found


def _echo(words: str) -> None:
    """Print a line of Emu on stderr."""
    click.echo(f"emu: {words}", err=True)


@contextmanager
def _with_script_lines() -> Iterator[None]:
    """Print the lines of the script at which a rank failed, before the error in one line."""
    try:
        yield
    except EmuError as error:
        if error.lines:
            first = f"emu: rank {error.rank} failed here; lines of Emu and of torch are left out"
            click.echo("\n".join([first, *error.lines]), err=True)
        raise
