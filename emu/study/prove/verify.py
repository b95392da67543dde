"""The verification of algorithms: the data are right, all ranks have the same bits, and the time is that of the claim.

Each schedule is proved by exact multisets and again by random integers, and timed on the ideal fabric of its claim, where a
message takes 1 ms of latency and a block 1 ms of a port; in a claim of several link classes these differ from class to class.
Above 2**24 rows nothing is timed.
"""

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from itertools import islice
from typing import Literal

import numpy as np

from emu.collective.algorithm import Algorithm
from emu.collective.claim import Claim
from emu.collective.integers import check_integers
from emu.collective.operation import ROOTED, Operation, divide_blocks, operation
from emu.collective.proof import ProofError, ScheduleFault, prove
from emu.collective.schedule import MAX_ROWS, RowsError, Schedule
from emu.collective.shape import PartialGrid, Shape, dims_of, ranks_of, show_shape
from emu.collective.transform import adds_once_per_round, slot_representatives
from emu.errors import EmuError
from emu.fabric.ideal import ideal
from emu.fabric.lower import FabricJob, lower
from emu.fabric.run import run_named
from emu.study.job_pool import THIS_PROCESS, JobPool, results_of
from emu.units import TICKS_PER_S

How = Literal["exact", "by translation", "not run", ""]
RANKS = (*range(1, 18), 31, 32, 64)
PROCESSES = (2, 3, 4)  # where ranks are processes that execute it, see `emu.study.prove.execution`
_MOST = 1024  # ranks that an algorithm may be for, if it is for none of those
_TOLERANCE = Fraction(1, 10**9)
_MS = TICKS_PER_S // 1000
_SHARE_BYTES = 10**6  # of one unit of a block's shares, so that every slot is a whole number of bytes


@dataclass(frozen=True, slots=True)
class ProofResult:
    """The result of a proof: the size of what was proved, or why the schedule was refused."""

    said: str  # "ok", or why it was refused or not run
    how: How  # "" where it was refused
    roots: tuple[int, ...]  # that were tried; where it was refused, the last of them did it
    rows: int = 0  # of the schedule from one root
    uniform: bool = True  # every rank that wants a block gets the same bits
    fault: ScheduleFault | None = None
    schedule: Schedule | None = None  # from the first root, where every row was held


def roots_of(operation: str, n: int) -> list[int]:
    """Return the root ranks to verify: the first, the last and one in the middle."""
    return sorted({0, n // 2, n - 1}) if operation in ROOTED else [0]


def subject(found: Algorithm, shape: Shape, root: int = 0) -> tuple[Schedule, Operation, int]:
    """Return the schedule of an algorithm with its operation and its number of rows, stored in full if possible.

    Raises:
        RowsError: There are more than 2**24 rows, and no suitable translation is declared.
        InputError: As `Algorithm.schedule`.
    """
    stored, wanted = found.compact_schedule(shape, root), operation(found.operation, ranks_of(shape), root)
    rows = stored.n_rows_of_all
    if rows > MAX_ROWS:
        return *slot_representatives(stored, wanted), rows
    return stored.expand(), wanted, rows


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
        schedule, wanted, rows = subject(found, shape, root)
        prove(schedule, wanted)
        check_integers(schedule, wanted, seed=ranks_of(shape))
    except RowsError as error:
        return ProofResult(str(error), "not run", (root,))
    except EmuError as error:
        return ProofResult(str(error), "", (root,), fault=error.fault if isinstance(error, ProofError) else None)
    if rows > MAX_ROWS:
        return ProofResult("ok", "by translation", (root,), rows, adds_once_per_round(schedule))
    return ProofResult("ok", "exact", (root,), rows, schedule=schedule)


@dataclass(frozen=True, slots=True)
class VerificationRow:
    """The verdicts on one algorithm on one shape: its proof and its claim."""

    operation: str
    algorithm: str
    ranks: int
    shape: tuple[int, ...]
    members: tuple[int, ...] | None  # the places of that shape which take part; None: all
    proof: str  # "ok", or why it was refused or not run
    proved: How  # of every row, of those that its translations carry to the rest, or not run; "" where it was refused
    roots: tuple[int, ...]  # that were tried, of a rooted operation
    rows: int  # of the schedule from one root
    uniform: bool  # proved: every rank that wants a block gets the same bits
    fault: ScheduleFault | None  # where a proof that was refused went wrong, from the last root
    claim: str  # "equal", "bound", "none" where nothing is claimed, "not timed", "" without proof; or how it is not kept
    time_s: float  # virtual, on the ideal fabric
    claim_s: float  # what is claimed of it
    wall_s: float

    @property
    def ok(self) -> bool:
        """True if both the proof and the claim hold."""
        return self.proof == "ok" and self.claim in ("equal", "bound", "none", "not timed")

    @property
    def refused(self) -> bool:
        """True if the proof was refused, so that the results are wrong; False if at most the claim is not kept."""
        return self.proof != "ok" and self.proved != "not run"

    @property
    def failed(self) -> bool:
        """True if the proof was refused, or the claim is not kept."""
        return not self.ok and self.proved != "not run"


def shapes_of(
    algorithms: Iterable[Algorithm], ns: Iterable[int] = RANKS, *, each: bool = False
) -> list[tuple[Algorithm, Shape]]:
    """Return each algorithm with every shape for each number of ranks; above 64 ranks, the best shape of each number of dims.

    Args:
        algorithms: The algorithms to try.
        ns: The numbers of ranks.
        each: Whether to try an algorithm that takes none of these numbers on the least number that it takes, up to 1,024.
    """
    ranks, cases = tuple(ns), []
    for found in algorithms:
        own = [(found, shape) for n in ranks for shape in _tried(found, n)]
        if each and not own:
            shapes = (shape for n in range(1, _MOST + 1) for shape in _tried(found, n))
            own = [(found, shape) for shape in islice(shapes, 1)]
        cases += own
    return cases


def ranks_to(most: int) -> tuple[int, ...]:
    """Return the numbers of ranks to verify, up to `most`: `RANKS`, then 128, 256 and so on."""
    doubled = (2**i * max(RANKS) for i in range(1, most.bit_length()))
    return tuple(n for n in (*RANKS, *doubled) if n <= most)


def _tried(found: Algorithm, n: int) -> Iterable[Shape]:
    """Return the shapes that are tried of an algorithm on n ranks."""
    shapes = found.shapes(n)
    if n <= max(RANKS):
        return shapes
    best: dict[tuple[int, bool], Shape] = {}
    for shape in shapes:
        best.setdefault((len(dims_of(shape)), isinstance(shape, PartialGrid)), shape)
    return best.values()


def verify(cases: Iterable[tuple[Algorithm, Shape]], pool: JobPool = THIS_PROCESS) -> Iterator[VerificationRow]:
    """Prove and time each algorithm on its shape, by the processes of a pool; a refusal is a row, not an exception."""
    every = tuple(cases)
    with pool.open(partial(_verified, every), jobs=len(every)) as opened:
        yield from results_of(map(opened.submit, range(len(every))), 16 * opened.side_by_side)


def _verified(cases: Sequence[tuple[Algorithm, Shape]], number: int) -> VerificationRow:
    """Return the row of case number `number`; the processes of the pool have all cases."""
    started, (found, shape) = time.perf_counter(), cases[number]
    done = prove_algorithm(found, shape)
    claim, taken_fs, claimed_fs = _claim(found, shape, done)
    return VerificationRow(
        operation=found.operation,
        algorithm=found.name,
        ranks=ranks_of(shape),
        shape=dims_of(shape),
        members=shape.members if isinstance(shape, PartialGrid) else None,
        proof=done.said,
        proved=done.how,
        roots=done.roots if found.operation in ROOTED else (),
        rows=done.rows,
        uniform=done.how not in ("", "not run") and done.uniform,
        fault=done.fault,
        claim=claim,
        time_s=taken_fs / TICKS_PER_S,
        claim_s=float(claimed_fs / TICKS_PER_S),
        wall_s=time.perf_counter() - started,
    )


def _claim(found: Algorithm, shape: Shape, done: ProofResult) -> tuple[str, int, Fraction]:
    """Return the verdict on an algorithm's claim, the time taken in ticks, and the claimed ticks."""
    if done.said != "ok" or found.claim is None or done.schedule is None:
        return "" if done.said != "ok" else "none" if found.claim is None else "not timed", 0, Fraction(0)
    try:
        claimed_fs, taken_fs = _claimed_fs(found, found.claim, shape), _taken_fs(found, found.claim, shape, done.schedule)
    except Exception as error:  # whatever a user's claim does wrong
        return f"claim on {show_shape(shape)} ranks: {type(error).__name__}: {error}", 0, Fraction(0)
    verdict = _judge(found.claim, shape, taken_fs, claimed_fs)
    return verdict or _difference(found, found.claim, shape, done.schedule), taken_fs, claimed_fs


def _claimed_fs(found: Algorithm, claim: Claim, shape: Shape) -> Fraction:
    """Return the ticks that a claim promises on its ideal fabric."""
    size = operation(found.operation, ranks_of(shape)).blocks_in_size
    terms = enumerate(claim.terms(shape))
    return sum(((_latency(c) * alpha + _body(c) * beta * size) * _MS for c, (alpha, beta) in terms), Fraction(0))


def _taken_fs(found: Algorithm, claim: Claim, shape: Shape, built: Schedule, slower: int = 1) -> int:
    """Return the ticks that the schedule takes on the claim's ideal fabric, where all latencies are `slower` times as long."""
    blocks = operation(found.operation, ranks_of(shape)).n_blocks
    block_bytes = _SHARE_BYTES * (sum(built.shares) or built.n_slots // blocks)
    slots = divide_blocks(np.full(blocks, block_bytes), built.n_slots, built.shares)
    classes = range(len(claim.terms(shape)))
    fabric = ideal(
        built,
        claim.fabric,
        bandwidth_Bps=[block_bytes * 1000.0 / _body(c) for c in classes],
        latency_fs=[slower * _latency(c) * _MS for c in classes],
        link_class=partial(claim.link_class, shape) if claim.link_class else None,
    )
    piece = lower(FabricJob(built, slots.count, fabric, np.arange(built.n_participants, dtype=np.int32)))
    return int(run_named(piece.graph, built, found.key).end_fs.max(initial=0))


def _latency(link_class: int) -> int:
    """Return the latency of a link class in ms: 1 for the first and 2 more for each next one, so a mix-up breaks the claim."""
    return 1 + 2 * link_class


def _body(link_class: int) -> int:
    """Return the milliseconds that a block takes on a link class: a power of four, so that rates are exact."""
    return int(4**link_class)


def _judge(claim: Claim, shape: Shape, taken_fs: int, claimed_fs: Fraction) -> str:
    """Return the verdict on a claim: `equal`, `bound` (the time is not above it), or "" where it is broken."""
    exact = claim.exact(shape)
    if taken_fs > claimed_fs * (1 + _TOLERANCE) or (exact and taken_fs < claimed_fs * (1 - _TOLERANCE)):
        return ""
    return "equal" if exact else "bound"


def _difference(found: Algorithm, claim: Claim, shape: Shape, built: Schedule) -> str:
    """Return a phrase on a claim that is broken: what it says, and what the schedule takes."""
    terms, at_most = claim.terms(shape), "" if claim.exact(shape) else "at most "
    own = _formula_of(found, claim, shape, built)
    if own is None:
        said, taken = (float(fs / _MS) for fs in (_claimed_fs(found, claim, shape), _taken_fs(found, claim, shape, built)))
        where = "a = 1 ms and a block takes 1 ms" if len(terms) == 1 else "a is 1, 3, ... ms and a block takes 1, 4, ... ms"
        return f"the claim is {at_most}{said:.9g} ms, and the schedule takes {taken:.9g} ms, where {where}"
    over = {"alpha": Fraction(terms[0][0] - own[0]), "beta": terms[0][1] - own[1]}
    apart = [f"{name} is {abs(by)} too {'small' if by < 0 else 'large'}" for name, by in over.items() if by]
    return f"the claim is {at_most}{_show(*terms[0])}, and the schedule takes {_show(*own)}: its {' and its '.join(apart)}"


def _formula_of(found: Algorithm, claim: Claim, shape: Shape, built: Schedule) -> tuple[int, Fraction] | None:
    """Return alpha and beta of a schedule; None if there are several classes of links, or the time does not grow evenly."""
    if len(claim.terms(shape)) > 1:
        return None
    size, slower = operation(found.operation, ranks_of(shape)).blocks_in_size, (1, 2, 4)
    taken_ms = [Fraction(_taken_fs(found, claim, shape, built, times), _MS) for times in slower]
    alpha = round(taken_ms[1] - taken_ms[0])
    beta = ((taken_ms[0] - alpha) / size).limit_denominator(10**4)
    even = [times * alpha + beta * size for times in slower]
    return (alpha, beta) if all(abs(x - y) <= _TOLERANCE * x for x, y in zip(taken_ms, even, strict=True)) else None


def _show(alpha: int, beta: Fraction) -> str:
    """Return a time as a formula of the latency a, the bytes V and the rate B, such as `3 a + 3/2 V/B`."""
    return f"{alpha} a + {beta} V/B"
