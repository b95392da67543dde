"""Every algorithm of one operation against the others; no data is moved for it."""

from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace

from emu.collective.schedule import RowsError
from emu.fabric.lowering.circuits import TornError
from emu.study.choice.candidates import candidates
from emu.study.measure.bench import measure
from emu.study.measure.request import Asked
from emu.study.measure.row import BenchRow


def compare(asked: Asked) -> Iterator[BenchRow]:
    """Time every candidate at every size, algorithm by algorithm; but not what would tear an optical switch or need every row.

    Raises:
        InputError: as `measure`; or no algorithm fits.
    """
    for each in candidates(asked.operation.name, asked.site):
        with suppress(RowsError, TornError):
            yield from measure(replace(asked, request=replace(asked.request, algorithm=each.name)))


def best_rows(rows: list[BenchRow]) -> dict[int, BenchRow]:
    """By size, the row that takes the least time; the first by name of those that take as little."""
    best: dict[int, BenchRow] = {}
    for row in sorted(rows, key=lambda row: row.algorithm):
        if row.size_bytes not in best or row.time_s < best[row.size_bytes].time_s:
            best[row.size_bytes] = row
    return best
