"""`--fault` of the commands that time steps: the job step by step, before, while and after parts fail."""

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import click

from emu.errors import InputError, RunError
from emu.study.live.disturbed import Disturbed
from emu.study.live.lost import losses
from emu.topology.catalogue import build_topology
from emu.topology.live.change import Loss
from emu.topology.live.fault import Fault
from emu.topology.live.script import faults_of, read_faults
from launch.cli.options.common import print_json
from launch.cli.options.outputs import OutputFile, may_fail, print_text
from launch.show.text.job_report import job_report

_HELP = (
    "Let a part fail or slow down while the job runs, such as `link 3-7 at step 2`, `npu 5 at step 3`, `nic 4 slow 0.5 from "
    "step 3 to 5`, `rank 2 kill at step 3`; or a .toml of such; or `random link=0.01 npu=0.001 seed=3`. Give several."
)


def fault_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """`--fault`, as often as one likes; the command takes what they say as `faults`."""
    return click.option(
        "--fault",
        "faults",
        multiple=True,
        metavar='"PART at step S"|FILE|"random link=RATE ..."',
        callback=lambda _, __, words: read_faults(words),
        help=_HELP,
    )(command)


def png_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """`--png` of a command that draws nothing else."""
    return click.option(
        "--png", type=OutputFile(".png"), help="Draw the time of each step, with every --fault marked, to this file."
    )(command)


@dataclass(frozen=True, slots=True)
class Known:
    """The faults of a job on the first of its topologies."""

    faults: tuple[Fault, ...]
    lost: tuple[Loss, ...]  # ranks that they take as steps begin


def known_faults(texts: Sequence[str], topologies: Sequence[str], ranks: int, steps: int, *, clock: bool = False) -> Known:
    """What `--fault` says, held against the job and every topology.

    Raises:
        InputError: a topology is none; or as `faults_of`.
    """
    if not texts:
        return Known((), ())
    built = [build_topology(word) for word in topologies]
    found = [faults_of(texts, each, ranks, steps, clock=clock) for each in built]
    return Known(found[0], losses(built[0], found[0], ranks, steps))


def check_beside(faults: Sequence[str], beside: Mapping[str, object], png: Path | None = None) -> None:
    """Refuse what says nothing of a job with faults, and a picture of faults without any.

    Raises:
        InputError: naming the flag.
    """
    for flag, value in beside.items():
        if faults and value:
            raise InputError(
                f"--fault: tells of step after step, as --checkpoint does, which {flag} does not; leave {flag} out"
            )
    if png is not None and not faults:
        raise InputError("--png: draws steps with faults, and no --fault is given; add one")


def show_disturbed(results: Sequence[Disturbed], png: Path | None, *, as_json: bool) -> None:
    """Print each, and draw them.

    Raises:
        RunError: a job stopped, once all is printed.
    """
    if as_json:
        print_json(results)
    else:
        print_text("\n\n".join(map(job_report, results)))
    if png is not None:
        draw = importlib.import_module("launch.show.chart.job_chart")  # not above: it loads matplotlib
        with may_fail():
            draw.draw_live(results, png)
    stopped = [result for result in results if result.stopped is not None]
    if stopped:
        raise RunError(f"{stopped[0].topology}: the job stopped in {stopped[0].stopped}")
