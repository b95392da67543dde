"""The command `emu repro`: published figures computed again, with a sub-command for each source."""

from functools import partial
from pathlib import Path
from typing import Any

import click

from launch.cli.options.common import import_option, row_options
from launch.cli.options.files import OutputFile, write_output
from launch.cli.options.output import ask_and_print
from launch.cli.papers import add_papers
from launch.front.publications import repro


@click.group("repro")
def repro_command() -> None:
    """Compute figures that papers and vendors published, and compare them with the printed values."""


def _show(source: str, options: dict[str, Any], **more: Any) -> None:
    """Print the rows of a publication, and write its page and the constants that were fitted.

    Args:
        source: The publication.
        options: The options of the command: `fit` is a file, or whether constants are fitted.
        more: Further arguments of the question.
    """
    fit = options["fit"]
    ask = partial(repro, source, fit=bool(fit), **more)
    answer = ask_and_print(ask, options["out"], as_json=options["as_json"])
    write_output(options["html"], answer.save_html)
    write_output(fit if isinstance(fit, Path) else None, answer.save_fit)


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
@row_options
def measured_command(data: Path | None, **options: Any) -> None:
    """Estimate steps measured on real clusters.

    The estimates are compared with the measured times.

    \b
    emu repro measured
    emu repro measured --data runs.csv --json
    """
    _show("measured", options, data=data)


@repro_command.command("nccl")
@click.option("--fit", is_flag=True, help="Fit the constants of `--stack nccl` on the measured sizes, and use them.")
@import_option
@row_options
def nccl_command(**options: Any) -> None:
    """Compare an all_reduce with nccl-tests.

    The all_reduce is timed on a node of 8 H100 as `emu bench --stack nccl` does it.

    \b
    emu repro nccl
    emu repro nccl --fit
    """
    _show("nccl", options)


@repro_command.command("torchtitan")
@click.option("--fit", type=OutputFile(), help="Write the clock that these runs set, as launch/data/measured has it.")
@import_option
@row_options
def torchtitan_command(**options: Any) -> None:
    """Estimate torchtitan's FSDP2 on 8 and 128 H100, eager and compiled: speed with the clock set on one run, and memory.

    \b
    emu repro torchtitan
    emu repro torchtitan --json
    """
    _show("torchtitan", options)


@repro_command.command("kernels")
@click.option("--fit", type=OutputFile(), help="Fit the constants of products on the figures that are used, write them.")
@import_option
@row_options
def kernels_command(**options: Any) -> None:
    """Hold the model of kernels against figures that others published of them.

    \b
    emu repro kernels
    emu repro kernels --json
    """
    _show("kernels", options)


add_papers(repro_command)
