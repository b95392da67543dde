"""Published and measured times of runs, collectives and kernels beside Emu's, as text.

The rows of papers beside Emu's values: as text, how many are met, and the page of each paper in `docs/papers`.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import product

from emu.units import format_size, format_time
from launch.data.fitted import Fitted
from launch.papers.kernels.report import MOVE, SUM, KernelComparison, KernelSummary
from launch.papers.measured.report import RunComparison, RunSummary
from launch.papers.nccl.report import NcclComparison
from launch.papers.paper import Paper, place_text
from launch.papers.targets import BASES, KINDS, LISTED, MET, MISSED, OPEN, OWN_FIT, PaperRow
from launch.papers.torchtitan import COMMAND as FITTED_BY
from launch.papers.torchtitan import NOTES, Pair, TorchtitanComparison
from launch.show.text.table import table

_COLUMNS_TOLD = (
    "The class of a row says what is compared: *exact* numbers, numbers of a *model* with a tolerance, an *ordering* of "
    "several numbers, or *hardware* that was measured. The basis says what Emu's value follows from. *built*: topologies that "
    "are built, schedules that are timed, states that are drawn. *fitted*: Emu's models with an input that was fitted, or "
    "assumed so that other rows agree; the row's note names it. *printed*: arithmetic on numbers that the paper prints. The "
    "verdict is *met*, *missed*, *open* (Emu computes no value; it counts as not met), *listed* (a row of hardware), or "
    "*own fit* (it agrees because an input was fitted on it)."
)
VERDICTS = (MET, OWN_FIT, MISSED, OPEN, LISTED)
_ESCAPED = str.maketrans({mark: f"\\{mark}" for mark in "*_|<"})
_TABLE_HEAD = ("id", "value", "ours", "unit", "difference", "tolerance", "class", "basis", "verdict")
_HEAD = "| id | where | what | printed | ours | | class | basis | verdict |\n|---|---|---|---|---|---|---|---|---|"


def score(rows: Iterable[PaperRow]) -> str:
    """Return a line that counts the rows that are met, by what their answers are based on."""
    met, of, own = Counter[str](), Counter[str](), 0
    for row in rows:
        basis = "listed" if row.target.kind == "H" else row.basis
        of[basis] += 1
        met[basis] += row.verdict == MET
        own += row.verdict == OWN_FIT
    parts = [f"{met[basis]} of {of[basis]} rows that are {name}" for basis, name in BASES.items() if of[basis]]
    fits = f"; {own} agree as inputs are fitted on them" if own else ""
    return f"met: {', '.join(parts)}{fits}; {of['listed']} rows of hardware are listed"


def scores(by: Mapping[str, Sequence[PaperRow]]) -> str:
    """Return a table with a line for each paper, class and basis."""
    lines = []
    for name, rows in by.items():
        for (kind, word), basis in product(KINDS.items(), BASES):
            of = Counter(row.verdict for row in rows if (row.target.kind, row.basis) == (kind, basis))
            if of:
                lines.append((name, word, basis, str(of.total()), *(str(of[verdict]) for verdict in VERDICTS)))
    return table(("paper", "class", "basis", "rows", *VERDICTS), lines)


def unmet_rows(rows: Iterable[PaperRow]) -> str:
    """Return a line for each missed or open row, with its reason."""
    return "\n".join(
        f"- {row.target.id}: {row.verdict}, printed {row.target.value} {row.target.unit}".rstrip()
        + (f", ours {six_digits(row.ours)}" if row.ours is not None else "")
        + (f": {row.target.reading}" if row.target.reading else "")
        for row in rows
        if row.verdict in (MISSED, OPEN)
    )


def paper_page(paper: Paper, rows: Sequence[PaperRow]) -> str:
    """Return the Markdown page of a paper with all its rows."""
    told = [f"- {row.target.id}: {'; '.join(map(_escaped, row.assumptions))}" for row in rows if row.assumptions]
    return "\n".join(
        (
            f"# {paper.title}: what the paper prints and what Emu works out",
            "",
            f"{paper.source} This page is written by `emu repro all --docs docs/papers`.",
            "",
            f"{score(rows)}.\n\n{_COLUMNS_TOLD}",
            "",
            _HEAD,
            *map(table_line, rows),
            "",
            "## What all rows rest on",
            "",
            *(f"- {_escaped(each)}" for each in paper.assumptions()),
            "",
            "## What single rows rest on",
            "",
            *told,
            "",
            paper.page_notes().strip(),
            "",
        )
    )


def table_line(row: PaperRow) -> str:
    """Return a row as a line of the page's table."""
    of = row.target
    known = of.id, place_text(of.table), of.what, of.value, six_digits(row.ours), of.unit
    return f"| {' | '.join(map(_escaped, (*known, KINDS[of.kind], row.basis, row.verdict)))} |"


def six_digits(ours: float | str | None) -> str:
    """Return a value with six digits; "" for None."""
    return f"{ours:.6g}" if isinstance(ours, int | float) else ours or ""


def _escaped(text: str) -> str:
    """Return the text with Markdown's special characters escaped."""
    return text.translate(_ESCAPED)


def paper_report(rows: Sequence[PaperRow], assumptions: Sequence[str]) -> str:
    """Return the table of rows, the assumptions of single rows, and the assumptions of all rows."""
    own = [f"- {row.target.id}: {'; '.join(row.assumptions)}" for row in rows if row.assumptions]
    return "\n\n".join(
        [table(_TABLE_HEAD, [_page_row(row) for row in rows]), "\n".join(own), "\n".join(f"- {a}" for a in assumptions)]
    )


def _page_row(row: PaperRow) -> tuple[str, ...]:
    """Return the cells of one row."""
    of, off = row.target, "" if row.difference is None else f"{row.difference:+.4f}"
    ours = f"{row.ours:.{of.digits}f}" if isinstance(row.ours, float) else row.ours or ""
    return of.id, of.value, ours, of.unit, off, of.tolerance.text, of.kind, row.basis, row.verdict


_ROWS = ("id", "device", "kind", "software", "measured_s", "ours_s", "ratio", "in_sample_s", "ratio", "fitted_on")
_KERNELS = ("kind", "device", "kernel", "what", "published", "ours", "ratio", "use")
_KERNEL_SUMS = ("kind", "use", "rows", "mean", "worst", "of")
_SUMS = ("device", "kind", "rows", "mean", "worst", "of", "in-sample mean", "worst", "of")


def measured_report(
    rows: Sequence[RunComparison], sums: Iterable[RunSummary], fitted: Mapping[str, Fitted], notes: Sequence[str]
) -> str:
    """Return the table of runs, the table of errors, the fitted constants and the notes."""
    parts = [table(_ROWS, [_row(row) for row in rows]), table(_SUMS, [_summary_cells(each) for each in sums])]
    return "\n\n".join([*parts, "\n".join(_constants(fitted)), "\n".join(f"- {note}" for note in notes)])


def _row(row: RunComparison) -> tuple[str, ...]:
    """Return the cells of one run."""
    ours, inside = (f"{row.ours_s:.3f}", f"{row.ratio:.3f}"), (f"{row.in_sample_s:.3f}", f"{row.in_sample_ratio:.3f}")
    fitted_on = f"{len(row.fitted_on)} other models" if row.fitted_on else "unfitted"
    return row.id, row.device, row.kind, row.software, f"{row.measured_s:.3f}", *ours, *inside, fitted_on


def _summary_cells(each: RunSummary) -> tuple[str, ...]:
    """Return the cells of the errors of one device and kind of run."""
    own = (_percent(each.mean_error), _percent(each.worst_error), each.worst)
    inside = (_percent(each.in_sample_mean_error), _percent(each.in_sample_worst_error), each.in_sample_worst)
    return each.device, each.kind, str(each.rows), *own, *inside


def _percent(share: float) -> str:
    """Return a share in percent."""
    return f"{100 * share:.1f} %"


def _constants(fitted: Mapping[str, Fitted]) -> Iterable[str]:
    """Yield a line of fitted constants for each device."""
    for device, of in fitted.items():
        values = ", ".join(f"{name} {value:g}" for name, value in of.constants.items())
        yield f"{device}: {values}; fitted on {', '.join(of.models)}"


def torchtitan_report(rows: Sequence[TorchtitanComparison], pairs: Iterable[Pair], clock: float) -> str:
    """Return the table of torchtitan runs and the ratios of pairs of runs, as text."""
    cells = [
        (
            row.id + " (sets the clock)" * row.sets_the_clock,
            *(f"{speed:.0f}" for speed in (row.measured_tokens_per_s, row.ours_tokens_per_s)),
            f"{row.ratio:.3f}",
            *(f"{size / 2**30:.1f}" for size in (row.measured_memory_bytes, row.ours_memory_bytes)),
            f"{row.memory_ratio:.3f}",
        )
        for row in rows
    ]
    compared = [(each.what, f"{each.measured:.4f}", f"{each.ours:.4f}", f"{each.ratio:.4f}") for each in pairs]
    parts = [
        table(("id", "tokens/s a GPU", "ours", "ratio", "memory (GiB)", "ours", "ratio"), cells),
        table(("speed of", "measured", "ours", "ratio"), compared),
        f"clock {clock:.4f} of that of the device h100; `{FITTED_BY}` writes it anew",
        "\n".join(f"- {note}" for note in NOTES),
    ]
    return "\n\n".join(parts)


def nccl_report(found: NcclComparison) -> str:
    """Return the table of times by size beside measured ones, and the median errors."""
    cells = [
        (format_size(row.size_bytes), format_time(row.measured_s), format_time(row.ours_s), f"{row.ratio:.3f}", row.algorithm)
        for row in found.rows
    ]
    unseen = found.median_error_of_unseen
    lines = [
        f"median error {_percent(found.median_error)} on {found.topology} with --stack {found.stack}",
        *([] if unseen is None else [f"median error {_percent(unseen)} of sizes that a fit on the other half has not seen"]),
        f"`{found.fitted_by}` fits the constants anew",
    ]
    return "\n".join([table(("size", "measured", "ours", "ratio", "algorithm"), cells), "", *lines])


def kernels_report(rows: Sequence[KernelComparison], sums: Iterable[KernelSummary], notes: Sequence[str]) -> str:
    """Return the table of figures, that of errors, and the notes."""
    parts = [table(_KERNELS, [_kernel(row) for row in rows]), table(_KERNEL_SUMS, [_kernel_sum(each) for each in sums])]
    return "\n\n".join([*parts, "\n".join(f"- {note}" for note in notes)])


def _kernel(row: KernelComparison) -> tuple[str, ...]:
    """Return the cells of one published figure of a kernel."""
    unit, scale = {MOVE: ("GB/s", 1e9), SUM: ("G/s", 1e9)}.get(row.kind, ("TFLOP/s", 1e12))
    rates = (f"{rate / scale:.0f} {unit}" for rate in (row.published, row.ours))
    return row.kind, row.device, row.kernel, row.what, *rates, f"{row.ratio:.3f}", row.use


def _kernel_sum(each: KernelSummary) -> tuple[str, ...]:
    """Return the cells of the errors of one kind of kernel."""
    return each.kind, each.use, str(each.rows), f"{each.mean_error:.1%}", f"{each.worst_error:.1%}", each.worst
