"""Does every algorithm do its operation, on every rank with the same bits, and as fast as its paper says?

Each schedule is proved by exact multisets and again by random integers, and timed on the ideal fabric of its claim, where a
message takes 1 ms of latency and a block 1 ms of a port.
"""

import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from emu.collective.algorithm import Algorithm
from emu.collective.integers import check_integers
from emu.collective.operation import ROOTED, cut, operation
from emu.collective.proof import prove
from emu.collective.shape import Part, Shape, dims_of, ranks_of, show_shape
from emu.errors import EmuError
from emu.fabric.ideal import ideal
from emu.fabric.lower import lower
from emu.fabric.run import run
from emu.units import TICKS_PER_S

RANKS = (*range(1, 18), 31, 32, 64)
_TOLERANCE = Fraction(1, 10**9)
_MS = TICKS_PER_S // 1000
_SHARE_BYTES = 10**6  # of one unit of a block's shares, so that every slot is a whole number of bytes


@dataclass(frozen=True, slots=True)
class Verified:
    """What came of one algorithm on one shape."""

    operation: str
    algorithm: str
    ranks: int
    shape: tuple[int, ...]
    members: tuple[int, ...] | None  # the places of that shape which take part; None: all
    proof: str  # "ok", or why it was refused
    claim: str  # "equal", "bound" where the claim is only that, "" where there is no proof; or how it is not kept
    time_s: float  # virtual, on the ideal fabric
    claim_s: float  # what is claimed of it
    wall_s: float

    @property
    def ok(self) -> bool:
        """Whether both the proof and the claim hold."""
        return self.proof == "ok" and self.claim in ("equal", "bound")


def shapes_of(algorithms: Iterable[Algorithm], ns: Iterable[int] = RANKS) -> list[tuple[Algorithm, Shape]]:
    """Each algorithm with every shape that it takes of each number of ranks."""
    ranks = tuple(ns)
    return [(found, shape) for found in algorithms for n in ranks for shape in found.shapes(n)]


def verify(cases: Iterable[tuple[Algorithm, Shape]]) -> Iterator[Verified]:
    """Prove and time each algorithm on its shape; a refusal is a row, not an exception."""
    return (_verified(found, shape) for found, shape in cases)


def roots_of(operation: str, n: int) -> list[int]:
    """The roots that are tried: the first, the last and one between."""
    return sorted({0, n // 2, n - 1}) if operation in ROOTED else [0]


def _verified(found: Algorithm, shape: Shape) -> Verified:
    started = time.perf_counter()
    proof, claim, taken_fs, claimed_fs = _proof(found, shape), "", 0, Fraction(0)
    if proof == "ok":
        claimed_fs = _claimed_fs(found, shape)
        taken_fs = _taken_fs(found, shape)
        claim = _judge(found, shape, taken_fs, claimed_fs)
    return Verified(
        operation=found.operation,
        algorithm=found.name,
        ranks=ranks_of(shape),
        shape=dims_of(shape),
        members=shape.members if isinstance(shape, Part) else None,
        proof=proof,
        claim=claim,
        time_s=taken_fs / TICKS_PER_S,
        claim_s=float(claimed_fs / TICKS_PER_S),
        wall_s=time.perf_counter() - started,
    )


def _proof(found: Algorithm, shape: Shape) -> str:
    n = ranks_of(shape)
    try:
        for root in roots_of(found.operation, n):
            built, wanted = found.schedule(shape, root), operation(found.operation, n, root)
            prove(built, wanted)
            check_integers(built, wanted, seed=n)
    except EmuError as error:
        return str(error)
    return "ok"


def _claimed_fs(found: Algorithm, shape: Shape) -> Fraction:
    size = operation(found.operation, ranks_of(shape)).blocks_in_size
    return (found.claim.alpha(shape) + found.claim.beta(shape) * size) * _MS


def _taken_fs(found: Algorithm, shape: Shape) -> int:
    built, blocks = found.schedule(shape), operation(found.operation, ranks_of(shape)).n_blocks
    block_bytes = _SHARE_BYTES * (sum(built.shares) or built.n_slots // blocks)
    slots = cut(np.full(blocks, block_bytes), built.n_slots, built.shares)
    fabric = ideal(built, found.claim.fabric, bandwidth_Bps=block_bytes * 1000.0, latency_fs=_MS)
    piece = lower(built, slots.count, fabric, np.arange(built.n_participants, dtype=np.int32))
    return int(run(piece.graph).end_fs.max(initial=0))


def _judge(found: Algorithm, shape: Shape, taken_fs: int, claimed_fs: Fraction) -> str:
    exact = found.claim.exact(shape)
    if taken_fs > claimed_fs * (1 + _TOLERANCE) or (exact and taken_fs < claimed_fs * (1 - _TOLERANCE)):
        bound = "" if exact else "at most "
        return f"takes {taken_fs / _MS:.9g} ms on {show_shape(shape)} ranks, it must be {bound}{float(claimed_fs / _MS):.9g}"
    return "equal" if exact else "bound"
