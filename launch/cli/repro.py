"""The command `emu repro`: published figures computed again, with a sub-command for each source."""

from pathlib import Path

import click

from launch.cli.options.common import import_option, json_option
from launch.cli.options.files import OutputFile, write_output
from launch.cli.options.output import print_answer
from launch.cli.papers import add_papers
from launch.front.publications import Reproduction, repro


@click.group("repro")
def repro_command() -> None:
    """Compute figures that papers and vendors published, and compare them with the printed values."""


def _show(answer: Reproduction, fit: Path | None, *, as_json: bool) -> None:
    """Print the rows of a publication, and write the constants that were fitted."""
    print_answer(answer, as_json=as_json)
    write_output(fit, answer.save_fit)


@repro_command.command("measured")
@click.option(
    "--data",
    type=click.Path(path_type=Path),
    help="A CSV of your own runs, with the columns of launch/data/measured/training.csv.",
)
@click.option(
    "--fit",
    type=OutputFile(),
    help="Fit the device's constants on these runs, write them to this file, and use them.",
)
@import_option
@json_option
def measured_command(data: Path | None, fit: Path | None, as_json: bool) -> None:
    """Estimate steps measured on real clusters.

    The estimates are compared with the measured times.

    \b
    emu repro measured
    emu repro measured --data runs.csv --json
    """
    _show(repro("measured", data=data, fit=fit is not None), fit, as_json=as_json)


@repro_command.command("nccl")
@click.option("--fit", is_flag=True, help="Fit the constants of `--stack nccl` on the measured sizes, and use them.")
@import_option
@json_option
def nccl_command(fit: bool, as_json: bool) -> None:
    """Compare an all_reduce with nccl-tests.

    The all_reduce is timed on a node of 8 H100 as `emu bench --stack nccl` does it.

    \b
    emu repro nccl
    emu repro nccl --fit
    """
    _show(repro("nccl", fit=fit), None, as_json=as_json)


@repro_command.command("torchtitan")
@click.option("--fit", type=OutputFile(), help="Write the clock that these runs set, as launch/data/measured has it.")
@import_option
@json_option
def torchtitan_command(fit: Path | None, as_json: bool) -> None:
    """Estimate torchtitan's FSDP2 on 8 and 128 H100, eager and compiled: speed with the clock set on one run, and memory.

    \b
    emu repro torchtitan
    emu repro torchtitan --json
    """
    _show(repro("torchtitan", fit=fit is not None), fit, as_json=as_json)


@repro_command.command("kernels")
@click.option("--fit", type=OutputFile(), help="Fit the constants of products on the figures that are used, write them.")
@import_option
@json_option
def kernels_command(fit: Path | None, as_json: bool) -> None:
    """Hold the model of kernels against figures that others published of them.

    \b
    emu repro kernels
    emu repro kernels --json
    """
    _show(repro("kernels", fit=fit is not None), fit, as_json=as_json)


add_papers(repro_command)
