"""The proof that a schedule does its operation: exact sums, and the same bits on every rank.

Every wanted value must be the sum of all holders' values, each exactly once. A cell (one slot at one participant) holds a set
of bits, one for each contribution, and a hash of the tree of additions that made it. Equal hashes mean equal bits in floating
point.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from emu.arrays import I64, Bool, slices
from emu.collective.operation import Operation
from emu.collective.proof_cells import SlotBatch, count_within, slot_batches
from emu.collective.schedule import Schedule
from emu.errors import RunError

U64 = NDArray[np.uint64]


@dataclass(frozen=True, slots=True)
class ScheduleFault:
    """The round, the participant and the slot at which a schedule goes wrong."""

    round: int  # for a value that is wrong at the end: the last that writes this slot there, else at any participant, else -1
    rank: int  # the participant; helpers are numbered after all ranks
    slot: int

    def said(self, n_ranks: int) -> str:
        """Return the fault as text, such as `round 2: rank 3, slot 7`; from the number `n_ranks` on, it is `helper 8`."""
        return f"round {self.round}: {_slot_text(self.rank, self.slot, n_ranks)}"


class ProofError(RunError):
    """The error of a schedule that does not do its operation; it names the round, rank and slot of the first fault.

    Its message names round, rank and slot, the value that is there and the value that must be there.
    """

    def __init__(self, message: str, fault: ScheduleFault | None = None) -> None:
        super().__init__(message)
        self.fault = fault


@dataclass(frozen=True, slots=True)
class Proof:
    """The result of a proof: the rows and rounds of the proved schedule.

    `uniform` says whether every rank that wants a block gets the same bits, in floating point, too.
    """

    n_rows: int
    n_rounds: int
    uniform: bool  # whether every rank that wants a block gets the same bits, in floating point too


def prove(
    schedule: Schedule, operation: Operation, *, same_bits: bool = True, check: Callable[[], object] | None = None
) -> Proof:
    """Prove that `schedule` does `operation`, and return the size of what was proved.

    The proof is conservative. It refuses a read of an empty slot, an add to an empty slot of a rank (the first write must be a
    copy; helpers begin at zero), and a value that is added twice, even where no wanted value depends on them.

    Args:
        schedule: Any schedule; its translations are expanded.
        operation: The blocks that every rank has and wants.
        same_bits: Whether sums that ranks add in different orders are refused. If not, `Proof.uniform` is false for them.
        check: It is called before each round of a batch of slots, and may raise an error to end the proof; None: none.

    Raises:
        ProofError: The schedule does not do the operation; the message names the first fault.
    """
    full = schedule.expand()
    check_shapes(full, operation)
    uniform = True
    for piece in slot_batches(full, operation):
        state = _State.start(full, piece)
        for rows in slices(piece.round_end):
            if check is not None:
                check()
            state.advance(rows)
        state.check_sums()
        uniform &= state.is_uniform(refuse=same_bits)
    return Proof(full.n_rows, full.n_rounds, uniform)


def empty_send_error(where: str, fault: ScheduleFault, dst: int, n_ranks: int) -> ProofError:
    """Return the error for a send from an empty slot to participant `dst`; `where` names the check that refuses it."""
    return ProofError(f"{where}: {fault.said(n_ranks)} holds nothing, it must hold what is sent to rank {dst}", fault)


def empty_add_error(where: str, fault: ScheduleFault, senders: ArrayLike) -> ProofError:
    """Return the error for an add to an empty slot of a rank; `where` names the check that refuses it."""
    came = np.asarray(senders, np.int64)
    sent, earlier = (f"ranks {_spans(came)} send", " of an earlier round") if len(came) > 1 else (f"rank {came[0]} sends", "")
    there = f"round {fault.round}: rank {fault.rank}, slot {fault.slot} holds nothing"
    mend = f"let the first write to it be a copy (reduce=False){earlier}"
    return ProofError(f"{where}: {there}, and what {sent} is added to it; {mend}", fault)


def final_fault(schedule: Schedule, rank: int, slot: int) -> ScheduleFault:
    """Return the fault of a wrong final value, with the last round that wrote the value or sent its slot."""
    carries = np.flatnonzero(schedule.written_slot == slot)
    writes = carries[schedule.dst[carries] == rank]
    row = next((int(rows[-1]) for rows in (writes, carries) if len(rows)), None)
    return ScheduleFault(-1 if row is None else schedule.round_of(row), rank, slot)


def check_shapes(schedule: Schedule, operation: Operation) -> None:
    """Check that a schedule and an operation have the same ranks, and that its slots are equal numbers of parts of all blocks.

    Raises:
        ProofError: The ranks differ, or the slots are no multiple of the blocks.
    """
    if schedule.n_ranks != operation.n_ranks:
        raise ProofError(f"proof: {schedule.n_ranks} ranks must be the {operation.n_ranks} of {operation.name}")
    if schedule.n_slots % operation.n_blocks or not schedule.n_slots:
        raise ProofError(
            f"proof: {schedule.n_slots} slots must be a multiple of the {operation.n_blocks} blocks of {operation.name}"
        )


@dataclass(frozen=True, eq=False, slots=True)
class _State:
    """The contents of each cell of a batch: bits of contributions, then the hash of how the value was summed (0: empty)."""

    schedule: Schedule
    piece: SlotBatch
    held: U64  # [cells, words + 1] bits of contributions, then the hash
    writer: I64  # [cells] scratch: the last row of a round that writes the cell

    @staticmethod
    def start(schedule: Schedule, piece: SlotBatch) -> "_State":
        """Return the state before the first round: contributions are in their cells, other cells are empty."""
        given, bit = piece.given, piece.bit
        held = np.zeros((piece.n_cells, 2 + int(bit.max(initial=0)) // 64), np.uint64)
        held[given.cell, bit // 64] = _one_bit(bit)
        name = piece.slots[given.slot] * schedule.n_participants + given.rank
        held[given.cell, -1] = _leaf(name.astype(np.uint64))
        return _State(schedule, piece, held, np.empty(piece.n_cells, np.int64))

    def advance(self, rows: slice) -> None:
        """Run one round: all its reads, then all its writes."""
        row, target = self.piece.rows[rows], self.piece.target[rows]
        value, adds = self.held[self.piece.source[rows]], self.schedule.reduce[row]
        if not value[:, -1].all():
            raise self._empty(int(row[np.argmin(value[:, -1])]))
        self.writer[target] = row
        several = bool((self.writer[target] != row).any())
        if several:
            self._refuse_second_write(row, target, adds)
        self._refuse_add_to_nothing(row, target, adds)
        if not adds.all():
            self.held[target[~adds]] = value[~adds]
            row, target, value = row[adds], target[adds], value[adds]
        if several:
            self._fold(row, target, value)
        elif len(row):
            self.held[target] = self._sum(self.held[target], value, row)

    def _fold(self, row: I64, target: I64, value: U64) -> None:
        """Add the values of rows to cells, in ascending rank of the senders.

        The value of a cell itself counts as sent by its own rank.

        Args:
            row: The rows that add.
            target: The cell that each row writes.
            value: The contents that each row brings: its contributions and its hash.
        """
        cell, first = np.unique(target, return_index=True)
        own = self.held[cell, -1] != 0
        cell, first = cell[own], row[first[own]]
        target = np.concatenate((cell, target))
        value = np.concatenate((self.held[cell], value))
        origin = np.concatenate((self.schedule.dst[first], self.schedule.src[row]))
        order = np.lexsort((origin, target))
        turn = count_within(target[order])
        order = order[np.argsort(turn, kind="stable")]
        row, target, value = np.concatenate((first, row))[order], target[order], value[order]
        for now in slices(np.cumsum(np.bincount(turn))):
            self.held[target[now]] = self._sum(self.held[target[now]], value[now], row[now]) if now.start else value[now]

    def _sum(self, a: U64, b: U64, row: I64) -> U64:
        """Return the contents of the sums a + b of some rows: the contributions of both, and the hash of the addition.

        Raises:
            ProofError: Both have the same contribution.
        """
        twice = (a[:, :-1] & b[:, :-1]).any(axis=1)
        if twice.any():
            at = int(np.argmax(twice))
            raise self._twice(int(row[at]), a[at], b[at])
        total = a | b
        total[:, -1] = np.where(a[:, -1] == 0, b[:, -1], _branch(a[:, -1], b[:, -1]))
        return total

    def check_sums(self) -> None:
        """Check that every wanted value is the sum of all holders' values.

        Raises:
            ProofError: A value is not; the message names the first.
        """
        given, wanted = self.piece.given, self.piece.wanted
        whole = np.zeros((len(self.piece.slots), self.held.shape[1] - 1), np.uint64)
        np.bitwise_or.at(whole, (given.slot, self.piece.bit // 64), _one_bit(self.piece.bit))
        wrong = (self.held[wanted.cell, :-1] != whole[wanted.slot]).any(axis=1)
        if wrong.any():
            at = int(np.argmax(wrong))
            slot, there = int(wanted.slot[at]), self.held[wanted.cell[at]]
            rank, name = int(wanted.rank[at]), int(self.piece.slots[slot])
            raise ProofError(
                f"proof: at the end: {_slot_text(rank, name, self.schedule.n_ranks)} holds "
                f"{self._contributions_text(slot, there)}, it must be "
                f"{self._contributions_text(slot, whole[slot])}",
                final_fault(self.schedule, rank, name),
            )

    def is_uniform(self, *, refuse: bool) -> bool:
        """Return whether all ranks that want a slot hold sums with the same order of additions.

        Raises:
            ProofError: They do not, and `refuse` is true.
        """
        wanted = self.piece.wanted
        made = self.held[wanted.cell, -1]
        first = np.searchsorted(wanted.slot, wanted.slot)
        other = np.flatnonzero(made != made[first])
        if len(other) and refuse:
            at = int(other[0])
            rank, name = int(wanted.rank[at]), int(self.piece.slots[wanted.slot[at]])
            raise ProofError(
                f"proof: at the end: {_slot_text(rank, name, self.schedule.n_ranks)} was summed in another order than on rank "
                f"{wanted.rank[first[at]]}; every rank must get the same bits in floating point",
                final_fault(self.schedule, rank, name),
            )
        return not len(other)

    def _refuse_second_write(self, row: I64, target: I64, adds: Bool) -> None:
        """Check that each cell is written at most once in a round, or only by rows that add."""
        written = np.zeros(self.piece.n_cells, np.int64)
        np.add.at(written, target, 1)
        clash = np.flatnonzero((written[target] > 1) & ~adds)
        if len(clash):
            cell = target[clash[0]]
            writers, fault = _spans(self.schedule.src[row[target == cell]]), self._written(int(row[clash[0]]))
            where = fault.said(self.schedule.n_ranks)
            raise ProofError(f"proof: {where} is written by {writers}; it must be by one, or all must add", fault)

    def _refuse_add_to_nothing(self, row: I64, target: I64, adds: Bool) -> None:
        """Check that no row adds to an empty cell of a rank, whose memory begins with noise.

        A helper's memory begins at zero.
        """
        on_nothing = adds & (self.held[target, -1] == 0)
        if self.schedule.helpers:
            on_nothing &= self.schedule.dst[row] < self.schedule.n_ranks
        if on_nothing.any():
            cell = target == target[np.argmax(on_nothing)]
            raise empty_add_error("proof", self._written(int(row[np.argmax(cell)])), self.schedule.src[row[cell]])

    def _empty(self, row: int) -> ProofError:
        """Return the error for a row that sends an empty slot."""
        s = self.schedule
        fault = ScheduleFault(s.round_of(row), int(s.src[row]), int(s.slot[row]))
        return empty_send_error("proof", fault, int(s.dst[row]), s.n_ranks)

    def _twice(self, row: int, there: U64, added: U64) -> ProofError:
        """Return the error for a row after which a cell has a contribution twice."""
        fault = self._written(row)
        within = int(np.flatnonzero(self.piece.slots == fault.slot)[0])
        both = f"{self._contributions_text(within, there)} and {self._contributions_text(within, added)}"
        return ProofError(f"proof: {fault.said(self.schedule.n_ranks)} sums {both}, it must have each once", fault)

    def _written(self, row: int) -> ScheduleFault:
        """Return the round, the receiver and the slot of a row, for an error."""
        return ScheduleFault(self.schedule.round_of(row), int(self.schedule.dst[row]), int(self.schedule.written_slot[row]))

    def _contributions_text(self, slot: int, held: U64) -> str:
        """Return a phrase on the contributions that a cell holds.

        Args:
            slot: The index of the cell's slot within the batch.
            held: The contents of the cell.
        """
        piece, given = self.piece, self.piece.given
        near = np.flatnonzero(piece.group[given.slot] == piece.group[slot])
        has = near[(held[piece.bit[near] // 64] & _one_bit(piece.bit[near])) != 0]
        if not len(has):
            return "nothing"
        own, other = has[given.slot[has] == slot], has[given.slot[has] != slot]
        words = [f"the value{'s' * (len(own) > 1)} of rank{'s' * (len(own) > 1)} {_spans(given.rank[own])}"] if len(own) else []
        words += [f"rank {given.rank[i]}'s slot {piece.slots[given.slot[i]]}" for i in other.tolist()]
        return " and ".join(words)


def _slot_text(rank: int, slot: int, n_ranks: int) -> str:
    """Return a phrase on a participant and a slot: `rank 3, slot 7`, or `helper 8, slot 7` if there are at most 8 ranks."""
    return f"{'rank' if rank < n_ranks else 'helper'} {rank}, slot {slot}"


def _spans(ranks: I64) -> str:
    """Return ranks as text: `0-3, 7` for 0, 1, 2, 3, 7."""
    ranks = np.sort(ranks)
    runs = np.split(ranks, np.flatnonzero(np.diff(ranks) != 1) + 1)
    return ", ".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else f"{run[0]}" for run in runs)


def _one_bit(bit: I64) -> U64:
    """Return a 64-bit word for each number in `bit`, with only that bit (modulo 64) set."""
    return np.uint64(1) << (bit % 64).astype(np.uint64)


def _leaf(name: U64) -> U64:
    """Return a hash of a contribution, never 0 (splitmix64: Steele, Lea and Flood 2014)."""
    mixed = (name + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    mixed = (mixed ^ (mixed >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return (mixed ^ (mixed >> np.uint64(31))) | np.uint64(1)


def _branch(a: U64, b: U64) -> U64:
    """Return the hash of the sums a + b from the hashes of a and b; it is never 0.

    It equals the hash of b + a, because addition in floating point is commutative. It differs for another bracketing of a
    longer sum, because addition is not associative.
    """
    mixed: U64 = (a * b) ^ (a + b)
    mixed = (mixed ^ (mixed >> np.uint64(29))) * np.uint64(0xBF58476D1CE4E5B9)
    return mixed | np.uint64(1)
