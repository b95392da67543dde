"""The command `emu repro`: published figures computed again, with a sub-command for each source."""

from functools import partial
from pathlib import Path
from typing import Any

import click

from emu.errors import InputError
from launch.cli.options.common import answer_options, cache_option, worker_options
from launch.cli.options.files import FOLDER, INPUT, OutputFile, write_output
from launch.cli.options.output import ask_and_print, ask_and_save
from launch.cli.options.question_options import QuestionOptions
from launch.front.publications import check_figure, repro
from launch.papers.catalogue import PAPERS
from launch.papers.paper import REGISTERED

options_of = QuestionOptions(repro)


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
    type=INPUT,
    help="A CSV of your own runs, with the columns of launch/data/measured/training.csv.",
)
@click.option(
    "--fit",
    type=OutputFile(),
    help="Fit the device's constants on these runs, write them to this file, and use them.",
)
@answer_options
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
@answer_options
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
@answer_options
def torchtitan_command(**options: Any) -> None:
    """Estimate torchtitan's FSDP2 on 8 and 128 H100, eager and compiled: speed with the clock set on one run, and memory.

    \b
    emu repro torchtitan
    emu repro torchtitan --json
    """
    _show("torchtitan", options)


@repro_command.command("kernels")
@click.option("--fit", type=OutputFile(), help="Fit the constants of products on the figures that are used, write them.")
@answer_options
def kernels_command(**options: Any) -> None:
    """Hold the model of kernels against figures that others published of them.

    \b
    emu repro kernels
    emu repro kernels --json
    """
    _show("kernels", options)


@repro_command.command("all")
@click.option("--docs", type=FOLDER, help="Write a page of each paper to this folder.")
@cache_option
@worker_options(options_of)
@answer_options
def all_command(**options: Any) -> int:
    """Compute each row of each paper, and report how many are met.

    Results are kept: a row that was computed before is read from the cache.

    \b
    emu repro all
    emu repro all --json
    """
    return ask_and_save(repro, options, source="all")


def _command(name: str) -> click.Command:
    """Return the command of one paper."""

    @click.command(name, help=_help(name))
    @options_of("table", "figure")
    @click.option("--png", type=OutputFile(".png"), help="Draw the --figure with the axes of the paper to this file.")
    @click.option("--docs", type=FOLDER, help="Write the page of the paper, with all its rows, to this folder.")
    @cache_option
    @worker_options(options_of)
    @answer_options
    def command(**options: Any) -> int:
        table, figure = options["table"], options["figure"]
        for flag, given in (("--table", table), ("--figure", figure)):
            if given is not None and options["docs"] is not None:
                raise InputError(f"repro: {flag} and --docs exclude each other; give one of them")
        if options["png"] is not None:
            check_figure(name, figure)
        return ask_and_save(repro, options, source=name)

    return command


def _help(name: str) -> str:
    """Return the help of the command of one paper."""
    return (
        f"Compute the rows of the {name} paper.\n\n"
        "Each row of its tables and figures is compared with the printed value. Results are kept. "
        " An interrupted command goes on where it stopped when it is started again.\n\n"
        f"\b\nemu repro {name}\nemu repro {name} {REGISTERED[name].example} --json"
    )


for _paper in PAPERS:
    repro_command.add_command(_command(_paper))
