"""Every algorithm of one operation against the others; no data is moved for it."""

from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, replace

from emu.collective.schedule import RowsError
from emu.collective.shape import dims_of, named_shape
from emu.errors import InputError
from emu.fabric.lowering.circuits import TornError
from emu.study.choice.candidates import candidates, takers
from emu.study.measure.bench import measure
from emu.study.measure.request import Asked, Case
from emu.study.measure.row import BenchRow
from emu.study.timing.least import LIGHT, ROUNDING, least
from emu.units import TICKS_PER_S


@dataclass(frozen=True, slots=True, kw_only=True)
class PassedOver:
    """One size of an algorithm that was not timed: it takes long to time, and its bound says that another is faster."""

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


def compare(asked: Asked) -> Iterator[BenchRow | PassedOver]:
    """Time every candidate at every size, algorithm by algorithm; those that promise the least time at the largest size first.

    An algorithm of more than 2**15 messages that no symmetry makes equal is timed only where its bound is below the least time
    so far. Left out is what would tear an optical switch or need every row.

    Raises:
        InputError: as `measure`; or no algorithm fits.
    """
    best = dict.fromkeys(asked.request.sizes, float("inf"))
    for heavy, name in _by_bound(asked):
        with suppress(RowsError, TornError):
            for row in _bounded(asked, name, best) if heavy else measure(_named(asked, name, asked.request.sizes)):
                if isinstance(row, BenchRow):
                    best[row.size_bytes] = min(best[row.size_bytes], row.time_s)
                yield row


def _by_bound(asked: Asked) -> list[tuple[bool, str]]:
    """The candidates, and whether each takes long to time: those that do not first, and then by their bound."""
    size, found = asked.request.sizes[-1], []
    for each in candidates(asked.operation.name, asked.site):
        with suppress(RowsError, TornError):
            known = least(asked.case(each.name).job(size))
            found.append((known.messages > LIGHT, known.end_fs, each.name))
    if not found:
        where = f"{asked.operation.n_ranks} ranks of {asked.site.topology.name}"
        raise InputError(f"bench: no algorithm of {asked.operation.name} can be timed on {where}; name one to learn why")
    return [(heavy, name) for heavy, _, name in sorted(found)]


def names(asked: Asked) -> list[str]:
    """Of the algorithms that take the ranks, each with its grid."""
    site = asked.site
    found = takers(asked.operation.name, site)
    return [named_shape(each.name, dims_of(each.fit(len(site.npus), site.grid))) for each in found]


def _named(asked: Asked, name: str, sizes: tuple[int, ...]) -> Asked:
    return replace(asked, request=replace(asked.request, algorithm=name, sizes=sizes))


def _bounded(asked: Asked, name: str, best: dict[int, float]) -> Iterator[BenchRow | PassedOver]:
    case = asked.case(name)
    for size in asked.request.sizes:
        known = least(case.job(size))
        at_least_s = known.end_fs * (1 - ROUNDING) / TICKS_PER_S
        if known.messages > LIGHT and at_least_s > best[size]:
            yield _passed_over(case, size, at_least_s)
        else:
            yield from measure(_named(asked, name, (size,)))


def _passed_over(case: Case, size: int, at_least_s: float) -> PassedOver:
    asked = case.asked
    return PassedOver(
        topology=asked.site.topology.name,
        operation=asked.operation.name,
        algorithm=case.algorithm,
        shape=dims_of(case.shape),
        ranks=asked.operation.n_ranks,
        size_bytes=size,
        at_least_s=at_least_s,
    )


def best_rows(rows: Iterable[BenchRow | PassedOver]) -> dict[int, BenchRow]:
    """By size, the row that takes the least time; the first by name of those that take as little."""
    best: dict[int, BenchRow] = {}
    for row in sorted((row for row in rows if isinstance(row, BenchRow)), key=lambda row: row.algorithm):
        if row.size_bytes not in best or row.time_s < best[row.size_bytes].time_s:
            best[row.size_bytes] = row
    return best
