"""The option `--fault` of the commands that time steps: the job step by step, before, during and after a fault."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from emu.errors import InputError, RunError
from emu.study.live.faulty_job import FaultyJob, losses
from emu.topology.catalogue import build_topology
from emu.topology.fault_injection.fault import Fault
from emu.topology.fault_injection.fault_script import faults_of, read_faults
from emu.topology.fault_injection.repair_action import RankLoss
from launch.cli.options.common import print_json
from launch.cli.options.outputs import OutputFile, print_text, write_png
from launch.show.text.job_report import job_report

_HELP = (
    "Let a part fail or slow down while the job runs, such as `link 3-7 at step 2`, `npu 5 at step 3`, `nic 4 slow 0.5 from "
    "step 3 to 5` or `rank 2 kill at step 3`. A .toml file lists several faults; `random link=0.01 npu=0.001 seed=3` draws "
    "them. Repeat it for more."
)


def fault_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add `--fault` to a command, which takes the texts of all faults as `faults`; it may be repeated."""
    return click.option(
        "--fault",
        "faults",
        multiple=True,
        metavar='"PART at step S"|FILE|"random link=RATE ..."',
        callback=lambda _, __, words: read_faults(words),
        help=_HELP,
    )(command)


def png_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add `--png` to a command that draws nothing but steps with faults."""
    return click.option(
        "--png", type=OutputFile(".png"), help="Draw the time of each step to this file, with a mark at each --fault."
    )(command)


@dataclass(frozen=True, slots=True)
class JobFaults:
    """The faults of a job on the first of its topologies."""

    faults: tuple[Fault, ...]
    lost: tuple[RankLoss, ...]  # ranks that they end at the beginning of steps


def faults_of_job(texts: Sequence[str], topologies: Sequence[str], ranks: int, steps: int, *, clock: bool = False) -> JobFaults:
    """Return the faults that `--fault` gives, checked against the job and every topology.

    Args:
        texts: The faults as they were written.
        topologies: The topologies as they were written.
        ranks: The number of ranks.
        steps: The number of steps.
        clock: Whether a fault may be at a time instead of a step.

    Raises:
        InputError: a topology is unknown; or as `faults_of`.
    """
    if not texts:
        return JobFaults((), ())
    built = [build_topology(word) for word in topologies]
    found = [faults_of(texts, each, ranks, steps, clock=clock) for each in built]
    return JobFaults(found[0], losses(built[0], found[0], ranks, steps))


def check_fault_options(faults: Sequence[str], beside: Mapping[str, object], png: Path | None = None) -> None:
    """Refuse outputs that a job with faults does not have, and a picture of faults without a fault.

    Args:
        faults: The faults; empty: none.
        beside: The values of other options, by flag.
        png: The file of the picture.

    Raises:
        InputError: naming the option.
    """
    for flag, value in beside.items():
        if faults and value:
            raise InputError(
                f"{flag}: shows a single step, and --fault and --checkpoint report every step of a job; leave {flag} out"
            )
    if png is not None and not faults:
        raise InputError("--png: draws the steps of a job with faults, and no --fault is given; add a --fault")


def show_jobs(results: Sequence[FaultyJob], png: Path | None, *, as_json: bool) -> None:
    """Print each job, and draw them.

    Raises:
        RunError: a job stopped; it is raised after everything is printed.
    """
    if as_json:
        print_json(results)
    else:
        print_text("\n\n".join(map(job_report, results)))
    write_png(png, "chart.job_chart:picture", results)
    stopped = [result for result in results if result.stopped is not None]
    if stopped:
        raise RunError(f"{stopped[0].topology}: the job stopped in {stopped[0].stopped}")
