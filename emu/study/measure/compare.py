"""The comparison of all algorithms of one operation; no data are moved for it."""

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace

from emu.collective.schedule import RowsError
from emu.collective.shape import dims_of, named_shape
from emu.errors import InputError
from emu.fabric.lowering.circuits import TornError
from emu.study.choice.candidates import candidates, fitting_algorithms
from emu.study.measure.bench import BenchRow, measure
from emu.study.measure.request import Case, PlacedBench
from emu.study.timing.time_bound import LIGHT, ROUNDING, time_bound
from emu.units import TICKS_PER_S


@dataclass(frozen=True, slots=True, kw_only=True)
class UntimedRow:
    """One size of an algorithm that was not timed: timing takes long, and its bound says that another algorithm is faster."""

    topology: str
    operation: str
    algorithm: str
    shape: tuple[int, ...]  # that the algorithm was built for
    ranks: int
    size_bytes: int
    at_least_s: float  # by its busiest link, or its messages that wait for one another

    @property
    def built(self) -> str:
        """The algorithm, and its grid if it was built for one: `NAME 8x8`."""
        return named_shape(self.algorithm, self.shape)


def compare(asked: PlacedBench) -> Iterator[BenchRow | UntimedRow]:
    """Yield a row of every candidate at every size, algorithm by algorithm; the smallest bound at the largest size comes first.

    An algorithm of more than 2**15 messages that no symmetry makes equal is timed only where its bound is below the least time
    so far. An algorithm that would tear an optical switch or need every row is left out.

    Raises:
        InputError: As `measure`; or no algorithm fits.
    """
    best = dict.fromkeys(asked.request.sizes, float("inf"))
    for heavy, name in _by_bound(asked):
        with suppress(RowsError, TornError):
            for row in _bounded(asked, name, best) if heavy else measure(_named(asked, name, asked.request.sizes)):
                if isinstance(row, BenchRow):
                    best[row.size_bytes] = min(best[row.size_bytes], row.time_s)
                yield row


def _by_bound(asked: PlacedBench) -> list[tuple[bool, str]]:
    """Return the candidates, and whether each takes long to time: the quick ones first, then by bound."""
    size, found = asked.request.sizes[-1], []
    for each in candidates(asked.operation.name, asked.site):
        with suppress(RowsError, TornError):
            known = time_bound(asked.case(each.name).job(size))
            found.append((known.messages > LIGHT, known.end_fs, each.name))
    if not found:
        where = f"{asked.operation.n_ranks} ranks of {asked.site.topology.name}"
        raise InputError(f"bench: no algorithm of {asked.operation.name} can be timed on {where}; name one to learn why")
    return [(heavy, name) for heavy, _, name in sorted(found)]


def algorithm_names(asked: PlacedBench) -> list[str]:
    """Return the names of the algorithms that take the ranks, each with its grid."""
    site = asked.site
    found = fitting_algorithms(asked.operation.name, site)
    return [named_shape(each.name, dims_of(each.fit(len(site.npus), site.grid))) for each in found]


def _named(asked: PlacedBench, name: str, sizes: tuple[int, ...]) -> PlacedBench:
    """Return the bench of one algorithm and some sizes."""
    return replace(asked, request=replace(asked.request, algorithm=name, sizes=sizes))


def _bounded(asked: PlacedBench, name: str, best: dict[int, float]) -> Iterator[BenchRow | UntimedRow]:
    """Yield a row for each size of an algorithm; a size whose bound is above the best time is not timed."""
    case = asked.case(name)
    for size in asked.request.sizes:
        known = time_bound(case.job(size))
        at_least_s = known.end_fs * (1 - ROUNDING) / TICKS_PER_S
        if known.messages > LIGHT and at_least_s > best[size]:
            yield _passed_over(case, size, at_least_s)
        else:
            yield from measure(_named(asked, name, (size,)))


def _passed_over(case: Case, size: int, at_least_s: float) -> UntimedRow:
    """Return the row of a size that is not timed."""
    asked = case.asked
    return UntimedRow(
        topology=asked.site.topology.name,
        operation=asked.operation.name,
        algorithm=case.algorithm,
        shape=dims_of(case.shape),
        ranks=asked.operation.n_ranks,
        size_bytes=size,
        at_least_s=at_least_s,
    )


def best_rows(rows: Iterable[BenchRow | UntimedRow]) -> dict[int, BenchRow]:
    """Return, by size, the row with the least time; of equal rows, the first by name."""
    best: dict[int, BenchRow] = {}
    for row in sorted((row for row in rows if isinstance(row, BenchRow)), key=lambda row: row.algorithm):
        if row.size_bytes not in best or row.time_s < best[row.size_bytes].time_s:
            best[row.size_bytes] = row
    return best
