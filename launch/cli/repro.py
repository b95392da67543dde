"""The command `emu repro`: published figures computed again, with a sub-command for each source."""

from collections.abc import Iterator
from functools import partial
from pathlib import Path

import click

from launch.cli.options.common import import_option, json_option, print_result
from launch.cli.options.files import OutputFile, write_output
from launch.cli.papers import add_papers
from launch.data.fitted import read_fitted, write_fit, write_fitted
from launch.papers.kernels import report as kernels
from launch.papers.kernels.fit import COMMAND as KERNELS_FIT
from launch.papers.kernels.fit import HBM
from launch.papers.kernels.fit import fit as fit_products
from launch.papers.measured.report import COMMAND, PREDICTED, TRAINING, PreparedRun, ask, fit, row_of, summaries, with_unseen
from launch.papers.measured.rows import read_runs
from launch.papers.nccl import report as nccl
from launch.papers.torchtitan import report as torchtitan
from launch.papers.torchtitan.rows import read_rows
from launch.show.progress import late_notice, with_progress
from launch.show.text.measured_report import kernels_report, measured_report, nccl_report, torchtitan_report

_NOTES = (
    "ours_s does not use the row's own model: its constants are fitted on the runs of the device's other models",
    "in_sample_s uses the constants of the device, which are fitted on all its runs, with equal weight for each model; no "
    "constant belongs to a single row or model",
    f"the fit minimizes the squares of log(ours / measured); `{COMMAND}` repeats it",
    "software names the settings of the row's source, which launch/papers/measured/settings.py lists",
    "every step is a composed step (docs/training.md); memory is not checked",
)
_KERNEL_NOTES = (
    "used figures gave what devices have; predicted ones are only compared with it. A used figure of attention is predicted "
    "from the others of its table",
    "each kernel on each machine has a clock, which no source prints: the used products of the machine give it",
    f"what all products have in common is fitted on those that are used: `{KERNELS_FIT}` fits it anew",
    f"copies and norms are held against {HBM:g} of the memory's bandwidth, the share that a fit on runs begins from",
)


@click.group("repro")
def repro_command() -> None:
    """Compute figures that papers and vendors published, and compare them with the printed values."""


@repro_command.command("measured")
@click.option(
    "--data",
    type=click.Path(path_type=Path),
    help="A CSV of your own runs, with the columns of launch/data/measured/training.csv.",
)
@click.option(
    "--fit",
    "fit_to",
    type=OutputFile(),
    help="Fit the device's constants on these runs, write them to this file, and use them.",
)
@import_option
@json_option
def measured_command(data: Path | None, fit_to: Path | None, as_json: bool) -> None:
    """Estimate steps measured on real clusters.

    The estimates are compared with the measured times.

    \b
    emu repro measured
    emu repro measured --data runs.csv --json
    """
    path = data or TRAINING
    name = path.name if data is None else str(data)
    runs = read_runs(path, name)
    asked = [ask(run, f"{name}, line {run.line}") for run in runs]
    all_ready = with_progress((each.ready() for each in asked), "estimating the runs", len(runs))
    if fit_to is None:
        fitted = read_fitted()
        rows = [row_of(of, fitted) for of in all_ready]
    else:
        kept, others = [*all_ready], [*(_predicted() if data is None else ())]
        with late_notice("fitting the constants"):
            fitted = fit(kept, others)
        rows = [row_of(of, fitted) for of in kept]
        fitted = with_unseen(fitted, [*rows, *(row_of(of, fitted) for of in others)])
    sums = [*summaries(rows)]
    constants = {device: {"fitted_on": of.models, "constants": of.constants} for device, of in fitted.items()}
    told = {"rows": rows, "errors": sums, "constants": constants, "fitted_by": COMMAND, "assumptions": _NOTES}
    print_result(told, lambda: measured_report(rows, sums, fitted, _NOTES), as_json=as_json)
    write_output(fit_to, partial(write_fitted, fitted))


def _predicted() -> Iterator[PreparedRun]:
    """Yield the published runs whose times no constant but the spread of speeds is fitted on, prepared below a progress bar."""
    runs = read_runs(PREDICTED, PREDICTED.name)
    all_ready = (ask(run, f"{PREDICTED.name}, line {run.line}").ready() for run in runs)
    return with_progress(all_ready, "estimating runs that are in no fit", len(runs))


@repro_command.command("nccl")
@click.option("--fit", "fits", is_flag=True, help="Fit the constants of `--stack nccl` on the measured sizes, and use them.")
@import_option
@json_option
def nccl_command(fits: bool, as_json: bool) -> None:
    """Compare an all_reduce with nccl-tests.

    The all_reduce is timed on a node of 8 H100 as `emu bench --stack nccl` does it.

    \b
    emu repro nccl
    emu repro nccl --fit
    """
    which = nccl.measured_times()
    with late_notice("timing the sizes"):
        stack = nccl.fit(which) if fits else nccl.nccl_stack()
        rows = nccl.rows(stack, which)
        unseen = nccl.cross_validated_rows(which) if fits else []
    found = nccl.NcclComparison(
        rows=tuple(rows),
        median_error=nccl.median_error(rows),
        median_error_of_unseen=nccl.median_error(unseen) if unseen else None,
        topology=nccl.NODE,
        stack=nccl.stack_words(stack),
        fitted_by=nccl.COMMAND,
    )
    print_result(found, lambda: nccl_report(found), as_json=as_json)


@repro_command.command("torchtitan")
@click.option("--fit", "fit_to", type=OutputFile(), help="Write the clock that these runs set, as launch/data/measured has it.")
@import_option
@json_option
def torchtitan_command(fit_to: Path | None, as_json: bool) -> None:
    """Estimate torchtitan's FSDP2 on 8 and 128 H100, eager and compiled: speed with the clock set on one run, and memory.

    \b
    emu repro torchtitan
    emu repro torchtitan --json
    """
    runs = read_rows()
    every = [*with_progress((torchtitan.ready(run) for run in runs), "estimating the runs", len(runs))]
    clock = torchtitan.clock_of(every)
    rows = [torchtitan.row_of(*of, clock) for of in every]
    compared = [*torchtitan.pairs(rows)]
    told_by = {"clock": clock, "set_by": torchtitan.SET_BY, "fitted_by": torchtitan.COMMAND}
    told = {"rows": rows, "pairs": compared, **told_by, "assumptions": torchtitan.NOTES}
    print_result(told, lambda: torchtitan_report(rows, compared, clock), as_json=as_json)
    write_output(fit_to, partial(torchtitan.write_clock, clock))


@repro_command.command("kernels")
@click.option(
    "--fit", "fit_to", type=OutputFile(), help="Fit the constants of products on the figures that are used, write them."
)
@import_option
@json_option
def kernels_command(fit_to: Path | None, as_json: bool) -> None:
    """Hold the model of kernels against figures that others published of them.

    \b
    emu repro kernels
    emu repro kernels --json
    """
    if fit_to is not None:
        with late_notice("fitting the constants of products"):
            found = fit_products()
        write_output(fit_to, partial(write_fit, found))
    rows = kernels.rows()
    sums = [*kernels.summaries(rows)]
    told = {"rows": rows, "errors": sums, "fitted_by": KERNELS_FIT, "assumptions": _KERNEL_NOTES}
    print_result(told, lambda: kernels_report(rows, sums, _KERNEL_NOTES), as_json=as_json)


add_papers(repro_command)
