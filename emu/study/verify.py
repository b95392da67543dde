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
from emu.errors import EmuError
from emu.fabric.ideal import ideal
from emu.fabric.lower import lower
from emu.fabric.run import run
from emu.units import TICKS_PER_S

RANKS = (*range(1, 18), 32, 64)
_TOLERANCE = Fraction(1, 10**9)
_MS = TICKS_PER_S // 1000
_SHARE_BYTES = 10**6  # of one unit of a block's shares, so that every slot is a whole number of bytes


@dataclass(frozen=True, slots=True)
class Verified:
    """What came of one algorithm on one number of ranks."""

    operation: str
    algorithm: str
    ranks: int
    shape: tuple[int, ...]
    proof: str  # "ok", or why it was refused
    claim: str  # "equal", "bound" where the claim is only that, "" where there is no proof; or how it is not kept
    time_s: float  # virtual, on the ideal fabric
    claim_s: float  # what is claimed of it
    wall_s: float

    @property
    def ok(self) -> bool:
        """Whether both the proof and the claim hold."""
        return self.proof == "ok" and self.claim in ("equal", "bound")


def verify(algorithms: Iterable[Algorithm], ns: Iterable[int] = RANKS) -> Iterator[Verified]:
    """Prove and time each algorithm among each number of ranks; a refusal is a row, not an exception."""
    ranks = tuple(ns)
    return (_verified(found, n) for found in algorithms for n in ranks)


def roots_of(operation: str, n: int) -> list[int]:
    """The roots that are tried: the first, the last and one between."""
    return sorted({0, n // 2, n - 1}) if operation in ROOTED else [0]


def _verified(found: Algorithm, n: int) -> Verified:
    started = time.perf_counter()
    proof, claim, taken_fs, claimed_fs = _proof(found, n), "", 0, Fraction(0)
    if proof == "ok":
        claimed_fs = _claimed_fs(found, n)
        taken_fs = _taken_fs(found, n)
        claim = _judge(found, n, taken_fs, claimed_fs)
    times = taken_fs / TICKS_PER_S, float(claimed_fs / TICKS_PER_S)
    return Verified(found.operation, found.name, n, (n,), proof, claim, *times, time.perf_counter() - started)


def _proof(found: Algorithm, n: int) -> str:
    try:
        for root in roots_of(found.operation, n):
            built, wanted = found.schedule(n, root), operation(found.operation, n, root)
            prove(built, wanted)
            check_integers(built, wanted, seed=n)
    except EmuError as error:
        return str(error)
    return "ok"


def _claimed_fs(found: Algorithm, n: int) -> Fraction:
    size = operation(found.operation, n).blocks_in_size
    return (found.claim.alpha(n) + found.claim.beta(n) * size) * _MS


def _taken_fs(found: Algorithm, n: int) -> int:
    built, blocks = found.schedule(n), operation(found.operation, n).n_blocks
    block_bytes = _SHARE_BYTES * (sum(built.shares) or built.n_slots // blocks)
    slots = cut(np.full(blocks, block_bytes), built.n_slots, built.shares)
    fabric = ideal(built, found.claim.fabric, bandwidth_Bps=block_bytes * 1000.0, latency_fs=_MS)
    piece = lower(built, slots.count, fabric, np.arange(built.n_participants, dtype=np.int32))
    return int(run(piece.graph).end_fs.max(initial=0))


def _judge(found: Algorithm, n: int, taken_fs: int, claimed_fs: Fraction) -> str:
    exact = found.claim.exact(n)
    if taken_fs > claimed_fs * (1 + _TOLERANCE) or (exact and taken_fs < claimed_fs * (1 - _TOLERANCE)):
        return (
            f"takes {taken_fs / _MS:.9g} ms on {n} ranks, it must be {'' if exact else 'at most '}{float(claimed_fs / _MS):.9g}"
        )
    return "equal" if exact else "bound"
