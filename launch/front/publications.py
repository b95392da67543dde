"""The question of `emu repro`: what does Emu compute for the figures that papers and vendors published?"""

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from emu.errors import InputError
from emu.files import make_folder, write_file
from emu.registry import unknown
from emu.study.job_pool import JobPool, LocalPool
from emu.study.planning.search.results import ResultCache
from launch.data.fitted import read_fitted, write_fit, write_fitted
from launch.front.inputs import cache_folder
from launch.front.question import question
from launch.front.result import PICTURES, Result, late
from launch.papers.catalogue import PAPERS
from launch.papers.kernels import report as kernels
from launch.papers.kernels.fit import COMMAND as KERNELS_FIT
from launch.papers.kernels.fit import HBM
from launch.papers.kernels.fit import fit as fit_products
from launch.papers.measured.report import COMMAND, PREDICTED, TRAINING, PreparedRun, ask, row_of, summaries, with_unseen
from launch.papers.measured.report import fit as fit_runs
from launch.papers.measured.rows import read_runs
from launch.papers.nccl import report as nccl
from launch.papers.paper import Paper
from launch.papers.row_answers import RowRequest, answers
from launch.papers.targets import PaperRow, Target
from launch.papers.torchtitan import report as torchtitan
from launch.papers.torchtitan.rows import read_rows
from launch.show.progress import late_notice, with_progress
from launch.show.row_file import row_known
from launch.show.text.measured_report import (
    kernels_report,
    measured_report,
    nccl_report,
    paper_page,
    paper_report,
    score,
    scores,
    torchtitan_report,
    unmet_rows,
)
from launch.workers import WorkerOptions

if TYPE_CHECKING:  # it takes long to load
    from matplotlib.figure import Figure

_PROCESSES = 4  # most processes that compute rows
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


@dataclass(frozen=True, repr=False, eq=False)
class Reproduction(Result[Any]):
    """The rows of a publication: what it prints, and what Emu computes for it."""

    report: Callable[[], str]  # the text of the command
    told: object  # what the command prints as JSON
    draw: "Callable[[], Figure] | None" = None  # the picture of a figure of a paper; None: there is none
    write_fit: Callable[[Path], object] | None = None  # writes the constants that were fitted; None: none were
    pages: Mapping[str, str] | None = None  # the page of each paper, as docs/papers has it; None: not of a whole paper
    told_rows: Sequence[object] = ()  # the fields of each row for JSON; empty: the rows have them

    FILES = (*Result.FILES, *PICTURES)

    def text(self) -> str:
        """Return the table of the rows."""
        return self.report()

    def as_json(self) -> object:
        """Return the rows, with what they rest on."""
        return self.told

    def records(self) -> Sequence[object]:
        """Return the rows, those of papers with the name of the paper."""
        return self.told_rows or self.rows

    def figure(self) -> "Figure":
        """Return the figure of the paper, with the paper's axes.

        Raises:
            InputError: no figure was asked for that Emu draws.
        """
        return super().figure() if self.draw is None else self.draw()

    def save_docs(self, folder: Path) -> None:
        """Write the page of each paper to a folder."""
        make_folder("--docs", folder)
        for name, page in (self.pages or {}).items():
            write_file("--docs", folder / f"{name}.md", page.encode())

    def save_fit(self, path: Path) -> None:
        """Write the constants that were fitted."""
        if self.write_fit is not None:
            self.write_fit(path)


@question
def repro(
    source: str,
    *,
    table: str | None = None,
    figure: str | None = None,
    data: str | Path | None = None,
    fit: bool = False,
    cache: str | Path | None = None,
    workers: str = "local",
    ray_address: str | None = None,
) -> Reproduction:
    """Compute figures that papers and vendors published, and compare them with the printed values.

    Args:
        source: A paper; `all`: all papers; `measured`, `nccl`, `torchtitan` or `kernels`: what was measured on real machines.
        table: One table of the paper, such as `6`, or one section, such as `6.4`.
        figure: One figure of the paper, such as `17`.
        data: For `measured`: a CSV of your own runs, with the columns of launch/data/measured/training.csv.
        fit: For what was measured: fit Emu's constants on it anew, and use them.
        cache: Keep results of papers in this folder; None: in the user's cache.
        workers: The processes that compute rows of papers: of this machine (`local`), or of a Ray (`ray`).
        ray_address: The address of a running Ray; None: one is started on this machine.

    Raises:
        InputError: the source is unknown, or an argument is not for it.
    """
    for_runs: dict[str, Any] = {"data": data, "fit": fit}
    for_all: dict[str, Any] = {"cache": cache, "workers": workers, "ray_address": ray_address}
    for_papers: dict[str, Any] = {"table": table, "figure": figure, **for_all}
    taken = {
        "measured": for_runs,
        "nccl": {"fit": fit},
        "kernels": {"fit": fit},
        "torchtitan": {"fit": fit},
        "all": for_all,
    }
    known = taken | dict.fromkeys(PAPERS, for_papers)
    if source not in known:
        raise unknown("publication", source, known)
    for name, value in {**for_papers, **for_runs}.items():
        if value and value != "local" and name not in known[source]:
            raise InputError(f"repro: {name} is not for {source}; leave it out")
    given = dict(known[source])
    if "workers" in given:
        label = f"emu repro {source}"
        given["pool"] = WorkerOptions(given.pop("workers"), given.pop("ray_address")).pool(label, _local())
    return paper_rows(source, **given) if source in PAPERS else _ASKED[source](**given)


def _local() -> JobPool:
    """Return the processes of this machine that compute rows."""
    return LocalPool(min(_PROCESSES, os.cpu_count() or 1))


def all_papers(pool: JobPool, cache: str | Path | None = None) -> Reproduction:
    """Return each row of each paper, and how many are met."""
    with closing(ResultCache(cache_folder(cache))) as kept:
        papers = {name: make(kept) for name, make in PAPERS.items()}
        rows = _rows(papers, [(name, target) for name, paper in papers.items() for target in paper.targets], kept, pool)
        pages = {name: paper_page(paper, rows[name]) for name, paper in papers.items()}
    every = [row for each in rows.values() for row in each]
    told = [_record(name, row) for name, each in rows.items() for row in each]

    def report() -> str:
        return "\n\n".join((scores(rows), unmet_rows(every), score(every)))

    return Reproduction(tuple(every), report, {"score": score(every), "rows": told}, pages=pages, told_rows=told)


def _record(paper: str, row: PaperRow) -> dict[str, object]:
    """Return the fields of a row of a paper for JSON."""
    return {"paper": paper, **row.as_json()}


def paper_rows(
    source: str, pool: JobPool, table: str | None = None, figure: str | None = None, cache: str | Path | None = None
) -> Reproduction:
    """Return the rows of one paper, or of one of its tables or figures.

    Raises:
        InputError: a table and a figure are given.
    """
    if table is not None and figure is not None:
        raise InputError("repro: --table and --figure exclude each other; give one of them")
    place = table if figure is None else f"fig {figure}"
    with closing(ResultCache(cache_folder(cache))) as kept:
        paper = PAPERS[source](kept)
        draw = None if figure is None or figure not in paper.figures else partial(_drawn, paper, figure)
        rows = _rows({source: paper}, [(source, target) for target in paper.of(place)], kept, pool)[source]
    told = {"paper": source, "place": place, "rows": [row.as_json() for row in rows], "assumptions": paper.assumptions()}
    pages, records = {source: paper_page(paper, rows)} if place is None else None, [_record(source, row) for row in rows]
    return Reproduction(
        tuple(rows), lambda: paper_report(rows, paper.assumptions()), told, draw, pages=pages, told_rows=records
    )


def check_figure(source: str, figure: str | None) -> None:
    """Refuse a figure that Emu does not draw.

    Raises:
        InputError: naming those that it draws.
    """
    with closing(ResultCache(None)) as nowhere:
        figures = PAPERS[source](nowhere).figures
    if figure is None or figure not in figures:
        raise InputError(
            f"repro: --png needs a --figure that Emu draws, got {figure or 'none'}; known: {', '.join(figures) or 'none'}"
        )


def _drawn(paper: Paper, figure: str) -> "Figure":
    """Return a figure of a paper."""
    drawn: Figure = late("chart.paper_chart:picture")(paper.figures[figure](paper))
    return drawn


def _rows(
    papers: Mapping[str, Paper], wanted: Sequence[tuple[str, Target]], kept: ResultCache, pool: JobPool
) -> dict[str, list[PaperRow]]:
    """Return the rows of each paper, computed in several processes."""
    asked = [RowRequest(name, target.table, papers[name].targets.index(target)) for name, target in wanted]
    found = answers({name: PAPERS[name] for name in papers}, asked, kept, pool)
    rows: dict[str, list[PaperRow]] = {name: [] for name in papers}
    for (name, target), answer in zip(wanted, with_progress(found, f"working out {len(asked)} rows", len(asked)), strict=True):
        rows[name].append(papers[name].judge(target, answer))
        row_known(_record(name, rows[name][-1]))
    return rows


def measured_runs(data: str | Path | None = None, *, fit: bool = False) -> Reproduction:
    """Return the estimates of steps measured on real clusters, beside the measured times."""
    path = Path(data or TRAINING)
    name = path.name if data is None else str(data)
    runs = read_runs(path, name)
    asked = [ask(run, f"{name}, line {run.line}") for run in runs]
    all_ready = with_progress((each.ready() for each in asked), "estimating the runs", len(runs))
    if fit:
        kept, others = [*all_ready], [*(_predicted() if data is None else ())]
        with late_notice("fitting the constants"):
            fitted = fit_runs(kept, others)
        rows = [row_of(of, fitted) for of in kept]
        fitted = with_unseen(fitted, [*rows, *(row_of(of, fitted) for of in others)])
    else:
        fitted = read_fitted()
        rows = [row_of(of, fitted) for of in all_ready]
    sums = [*summaries(rows)]
    constants = {device: {"fitted_on": of.models, "constants": of.constants} for device, of in fitted.items()}
    told = {"rows": rows, "errors": sums, "constants": constants, "fitted_by": COMMAND, "assumptions": _NOTES}
    report = partial(measured_report, rows, sums, fitted, _NOTES)
    return Reproduction(tuple(rows), report, told, write_fit=partial(write_fitted, fitted) if fit else None)


def _predicted() -> Iterator[PreparedRun]:
    """Yield the published runs whose times no constant but the spread of speeds is fitted on, prepared."""
    runs = read_runs(PREDICTED, PREDICTED.name)
    all_ready = (ask(run, f"{PREDICTED.name}, line {run.line}").ready() for run in runs)
    return with_progress(all_ready, "estimating runs that are in no fit", len(runs))


def nccl_times(*, fit: bool = False) -> Reproduction:
    """Return the times of an all_reduce on a node of 8 H100, beside those of nccl-tests."""
    which = nccl.measured_times()
    with late_notice("timing the sizes"):
        stack = nccl.fit(which) if fit else nccl.nccl_stack()
        rows = nccl.rows(stack, which)
        unseen = nccl.cross_validated_rows(which) if fit else []
    found = nccl.NcclComparison(
        rows=tuple(rows),
        median_error=nccl.median_error(rows),
        median_error_of_unseen=nccl.median_error(unseen) if unseen else None,
        topology=nccl.NODE,
        stack=nccl.stack_words(stack),
        fitted_by=nccl.COMMAND,
    )
    return Reproduction(found.rows, partial(nccl_report, found), found)


def torchtitan_runs(*, fit: bool = False) -> Reproduction:
    """Return the estimates of torchtitan's FSDP2 on 8 and 128 H100, beside the published speed and memory."""
    runs = read_rows()
    every = [*with_progress((torchtitan.ready(run) for run in runs), "estimating the runs", len(runs))]
    clock = torchtitan.clock_of(every)
    rows = [torchtitan.row_of(*of, clock) for of in every]
    compared = [*torchtitan.pairs(rows)]
    told_by = {"clock": clock, "set_by": torchtitan.SET_BY, "fitted_by": torchtitan.COMMAND}
    told = {"rows": rows, "pairs": compared, **told_by, "assumptions": torchtitan.NOTES}
    report, write = partial(torchtitan_report, rows, compared, clock), partial(torchtitan.write_clock, clock)
    return Reproduction(tuple(rows), report, told, write_fit=write if fit else None)


def kernel_figures(*, fit: bool = False) -> Reproduction:
    """Return the times of kernels by Emu's model, beside figures that others published of them."""
    write = None
    if fit:
        with late_notice("fitting the constants of products"):
            write = partial(write_fit, fit_products())
    rows = kernels.rows()
    sums = [*kernels.summaries(rows)]
    told = {"rows": rows, "errors": sums, "fitted_by": KERNELS_FIT, "assumptions": _KERNEL_NOTES}
    return Reproduction(tuple(rows), partial(kernels_report, rows, sums, _KERNEL_NOTES), told, write_fit=write)


_ASKED: Mapping[str, Callable[..., Reproduction]] = {
    "all": all_papers,
    "measured": measured_runs,
    "nccl": nccl_times,
    "torchtitan": torchtitan_runs,
    "kernels": kernel_figures,
}
