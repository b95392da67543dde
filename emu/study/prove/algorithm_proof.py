"""The proof of one algorithm on one shape, from every tried root: of every row, or of rows that stand for the rest."""

from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

from emu.collective.algorithm import Algorithm
from emu.collective.integers import check_integers
from emu.collective.operation import ROOTED, Operation, operation
from emu.collective.orbit import adds_once_per_round, slot_representatives
from emu.collective.proof import ProofError, ScheduleFault, prove
from emu.collective.schedule import MAX_ROWS, RowsError, Schedule
from emu.collective.shape import Shape, ranks_of
from emu.errors import EmuError

How = Literal["exact", "by translation", "not run", ""]


class ProofSubject(NamedTuple):
    """The schedule and the operation that a proof is about."""

    schedule: Schedule
    operation: Operation
    how: How
    rows: int  # of the whole schedule


@dataclass(frozen=True, slots=True)
class ProofResult:
    """The result of a proof."""

    said: str  # "ok", or why it was refused or not run
    how: How  # "" where it was refused
    roots: tuple[int, ...]  # that were tried; where it was refused, the last of them did it
    rows: int = 0  # of the schedule from one root
    uniform: bool = True  # every rank that wants a block gets the same bits
    fault: ScheduleFault | None = None
    schedule: Schedule | None = None  # from the first root, where every row was held


def roots_of(operation: str, n: int) -> list[int]:
    """Return the roots that are tried: the first, the last and one between."""
    return sorted({0, n // 2, n - 1}) if operation in ROOTED else [0]


def subject(found: Algorithm, shape: Shape, root: int = 0) -> ProofSubject:
    """Return the whole schedule; above 2**24 rows, the part of it that its translations carry to the rest.

    Raises:
        RowsError: There are more than 2**24 rows, and no suitable translation is declared.
        InputError: As `Algorithm.schedule`.
    """
    stored, wanted = found.stored(shape, root), operation(found.operation, ranks_of(shape), root)
    rows = stored.n_rows_of_all
    if rows > MAX_ROWS:
        return ProofSubject(*slot_representatives(stored, wanted), "by translation", rows)
    return ProofSubject(stored.expand(), wanted, "exact", rows)


def prove_algorithm(found: Algorithm, shape: Shape) -> ProofResult:
    """Prove an algorithm by exact multisets and by random integers; a refusal is a result, not an exception."""
    roots = roots_of(found.operation, ranks_of(shape))
    done: list[ProofResult] = []
    for end, root in enumerate(roots, 1):
        done.append(replace(_from_root(found, shape, root), roots=tuple(roots[:end])))
        if done[-1].said != "ok":
            return done[-1]
    return replace(done[-1], uniform=all(each.uniform for each in done), schedule=done[0].schedule)


def _from_root(found: Algorithm, shape: Shape, root: int) -> ProofResult:
    """Return the result of the proof from one root."""
    try:
        of = subject(found, shape, root)
        prove(of.schedule, of.operation)
        check_integers(of.schedule, of.operation, seed=ranks_of(shape))
    except RowsError as error:
        return ProofResult(str(error), "not run", (root,))
    except EmuError as error:
        return ProofResult(str(error), "", (root,), fault=error.fault if isinstance(error, ProofError) else None)
    if of.how == "exact":
        return ProofResult("ok", of.how, (root,), of.rows, schedule=of.schedule)
    return ProofResult("ok", of.how, (root,), of.rows, adds_once_per_round(of.schedule))
