"""`emu repro`: what papers and vendors printed, worked out again; a sub-command for each."""

from contextlib import closing
from pathlib import Path

import click

from emu.study.planning.kept import Kept
from launch.cli.options import import_option, json_option, kept_in, print_json
from launch.data.fitted import read_fitted, write_fitted
from launch.papers.infinitehbd.report import TABLES, Paper
from launch.papers.infinitehbd.setting import Steps
from launch.papers.measured.constants import COMMAND, TRAINING
from launch.papers.measured.report import ask, fit, row_of, summaries
from launch.papers.measured.rows import read_runs
from launch.papers.nccl import report as nccl
from launch.papers.railx import report as railx
from launch.papers.targets import Printed
from launch.papers.ub_mesh import report as ub_mesh
from launch.show.progress import told, tracked
from launch.show.text.measured import measured_report, nccl_report
from launch.show.text.paper import paper_report

_NOTES = (
    "ours_s leaves the row's model out of the fit: its constants are fitted on the runs of the device's other models alone",
    "in_sample_s has the constants of the device, fitted on all its runs, each model counted as one; nothing is fitted a row "
    "or a model",
    f"the constants are least squares of log(ours / measured); `{COMMAND}` fits them anew",
    "software is a named setting of the row's source: launch/papers/measured/settings.py says which",
    "every step is composed (docs/training.md); memory is not asked for",
)


@click.group("repro")
def repro_command() -> None:
    """Work out again what papers and vendors printed."""


@repro_command.command("measured")
@click.option(
    "--data", type=click.Path(path_type=Path), help="Runs of your own, with the columns of launch/data/measured/training.csv."
)
@click.option("--fit", "fit_to", type=click.Path(path_type=Path), help="Fit the constants on these runs, write them, use them.")
@import_option
@json_option
def measured_command(data: Path | None, fit_to: Path | None, as_json: bool) -> None:
    """Estimate training steps that were measured on real clusters.

    \b
    emu repro measured
    emu repro measured --data runs.csv --json
    """
    path = data or TRAINING
    name = path.name if data is None else str(data)
    runs = read_runs(path, name)
    asked = [ask(run, f"{name}, line {run.line}") for run in runs]
    all_ready = tracked((each.ready() for each in asked), "estimating the runs", len(runs))
    if fit_to is None:
        fitted = read_fitted()
        rows = [row_of(of, fitted) for of in all_ready]
    else:
        kept = [*all_ready]
        with told("fitting the constants"):
            fitted = fit(kept)
        write_fitted(fitted, fit_to)
        rows = [row_of(of, fitted) for of in kept]
    sums = [*summaries(rows)]
    if as_json:
        constants = {device: {"fitted_on": of.models, "constants": of.constants} for device, of in fitted.items()}
        print_json({"rows": rows, "errors": sums, "constants": constants, "fitted_by": COMMAND, "assumptions": _NOTES})
    else:
        click.echo(measured_report(rows, sums, fitted, _NOTES))


@repro_command.command("nccl")
@click.option("--fit", "fits", is_flag=True, help="Fit the constants of `--stack nccl` on the measured sizes, and use them.")
@import_option
@json_option
def nccl_command(fits: bool, as_json: bool) -> None:
    """Time an all_reduce on a node of 8 H100 as `emu bench --stack nccl` does, beside nccl-tests.

    \b
    emu repro nccl
    emu repro nccl --fit
    """
    which = nccl.measured()
    with told("timing the sizes"):
        stack = nccl.fit(which) if fits else nccl.nccl()
        rows = nccl.rows(stack, which)
        unseen = nccl.halves(which) if fits else []
    found = nccl.Found(
        rows=tuple(rows),
        median_error=nccl.median_error(rows),
        median_error_of_unseen=nccl.median_error(unseen) if unseen else None,
        topology=nccl.NODE,
        stack=nccl.told(stack),
        fitted_by=nccl.COMMAND,
    )
    if as_json:
        print_json(found)
    else:
        click.echo(nccl_report(found))


@repro_command.command("infinitehbd")
@click.option("--table", type=click.Choice(TABLES), required=True, help="Of the paper.")
@click.option("--cache", type=click.Path(path_type=Path), help="Keep steps in this folder. [default: the user's cache]")
@import_option
@json_option
def infinitehbd_command(table: str, cache: Path | None, as_json: bool) -> None:
    """Work out a table of the InfiniteHBD paper again, each step as `emu estimate` does.

    Interrupt it as you like: started again, it goes on where it stopped.

    \b
    emu repro infinitehbd --table 2
    emu repro infinitehbd --table 5 --json
    """
    with closing(Kept(kept_in(cache))) as kept:
        _show("infinitehbd", Paper(steps=Steps(kept)), table, as_json=as_json)


@repro_command.command("ub-mesh")
@click.option("--table", type=click.Choice(ub_mesh.TABLES), required=True, help="Of the paper; 6.4 is a section.")
@import_option
@json_option
def ub_mesh_command(table: str, as_json: bool) -> None:
    """Count again what a table of the UB-Mesh paper counts, on the topologies as they are built.

    \b
    emu repro ub-mesh --table 3
    """
    _show("ub-mesh", ub_mesh.Paper(), table, as_json=as_json)


@repro_command.command("railx")
@click.option("--table", type=click.Choice(railx.TABLES), required=True, help="Of the paper.")
@import_option
@json_option
def railx_command(table: str, as_json: bool) -> None:
    """Work out a cost table of the RailX paper again, as `emu cost` does.

    \b
    emu repro railx --table 6
    """
    _show("railx", railx.Paper(), table, as_json=as_json)


def _show(name: str, paper: Printed, table: str, *, as_json: bool) -> None:
    """The rows of a table, each when it is worked out, then all that they assume."""
    rows = [*tracked(paper.rows(table), f"working out table {table}", len(paper.of(table)))]
    if as_json:
        told_rows = [row.told() for row in rows]
        print_json({"paper": name, "table": table, "rows": told_rows, "assumptions": paper.assumptions()})
    else:
        click.echo(paper_report(rows, paper.assumptions()))
