"""A part of a schedule proves the whole: it is held against the proof of every row."""

import numpy as np
import pytest

from collectives import exchange, hyperx, relayed, ring, torus
from emu.collective.algorithm import algorithm
from emu.collective.integers import check_integers
from emu.collective.operation import Operation, operation
from emu.collective.proof import ProofError, prove
from emu.collective.schedule import RowsError, Schedule, Sends
from emu.collective.transform import adds_once_per_round, slot_representatives

STORED = [
    ("all_to_all", exchange.at_once(6)),
    ("all_to_all", exchange.pairwise(5)),
    ("all_to_all", relayed.multipath((3, 3))),
    ("all_to_all", relayed.ring(5)),
    ("all_gather", torus.all_gather((2, 3))),
    ("all_reduce", torus.all_reduce((2, 3))),
    ("reduce_scatter", ring.reduce_scatter_2d((3, 4))),
    ("all_reduce", hyperx.all_reduce((3, 2))),
    ("all_reduce", algorithm("all_reduce", "hierarchical-ring").build((2, 2, 2))),
]
EACH = pytest.mark.parametrize(("name", "stored"), STORED)


def right(schedule: Schedule, wanted: Operation) -> bool:
    try:
        prove(schedule, wanted)
        check_integers(schedule, wanted)
    except ProofError:
        return False
    return True


@EACH
def test_the_part_has_the_stored_rows_and_one_in_n_of_the_slots(name, stored):
    part, wanted = slot_representatives(stored, operation(name, stored.n_ranks))
    assert (part.n_rows, part.n_slots * stored.n_ranks) == (stored.n_rows, stored.n_slots)
    assert right(part, wanted)


@EACH
def test_the_part_is_what_the_whole_does_with_those_slots(name, stored):
    part, wanted = slot_representatives(stored, whole := operation(name, stored.n_ranks))
    full = stored.expand()
    rows = np.flatnonzero(full.slot < part.n_slots)
    for column in ("src", "dst", "slot", "reduce", "channel"):
        assert getattr(part, column).tolist() == getattr(full, column)[rows].tolist()
    assert part.round_column().tolist() == full.round_column()[rows].tolist()
    for few, many in ((wanted.have, whole.have), (wanted.want, whole.want)):
        assert few.tolist() == [pair for pair in many.tolist() if pair[1] < wanted.n_blocks]


@EACH
def test_the_part_is_refused_if_and_only_if_the_whole_is(name, stored):
    """A stored row is dropped, redirected or flipped at random."""
    wanted, random = operation(name, n := stored.n_ranks), np.random.default_rng(1)
    refused = 0
    for turn in range(24):
        row, keep = int(random.integers(stored.n_rows)), np.ones(stored.n_rows, np.bool_)
        dst, reduce = stored.dst.copy(), stored.reduce.copy()
        if turn % 3 == 0:
            keep[row] = False
        elif turn % 3 == 1:
            dst[row] = random.integers(1, n)
        else:
            reduce[row] ^= True
        rounds = [
            Sends(0, dst[at], stored.slot[at], reduce[at], stored.channel[at])
            for at in (np.arange(r.start, r.stop)[keep[r]] for r in stored.rounds())
        ]
        hurt = Schedule.build(
            n, stored.n_slots, rounds, translate=stored.translate, slot_digits=stored.slot_digits, shares=stored.shares
        )
        whole = right(hurt.expand(), wanted)
        assert right(*slot_representatives(hurt, wanted)) == whole
        refused += not whole
    assert refused > 8


def test_adds_that_fold_by_rank_are_told_from_those_that_come_one_a_round():
    assert adds_once_per_round(ring.all_reduce(5))
    assert not adds_once_per_round(exchange.all_reduce(3).expand())


def test_what_declares_nothing_has_no_part_that_stands_for_the_rest():
    with pytest.raises(RowsError, match="schedule: 18 rows and no translation that moves slots is declared"):
        slot_representatives(exchange.all_gather(3).expand(), operation("all_gather", 3))


def test_a_rooted_operation_is_not_mapped_on_itself():
    stored = Schedule.build(3, 3, [Sends(0, 1, 0)], translate=(3,))
    with pytest.raises(RowsError, match="3 rows, and its translations do not map broadcast on itself"):
        slot_representatives(stored, operation("broadcast", 3))


def test_blocks_that_a_translation_would_tear_apart_are_refused():
    """Two digits of four slots are ranks, and the operation has two blocks of two slots."""
    stored = Schedule.build(2, 4, [Sends(0, 1, 0)], translate=(2,), slot_digits=2)
    pairs = np.array([[0, 0], [1, 1]], np.int32)
    assert slot_representatives(stored, Operation("own", 2, 2, pairs, pairs))[0].n_slots == 2
    with pytest.raises(RowsError, match="do not map own on itself"):
        slot_representatives(
            Schedule.build(2, 12, [Sends(0, 1, 0)], translate=(2,), slot_digits=2), Operation("own", 2, 6, pairs, pairs)
        )
