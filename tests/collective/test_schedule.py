import itertools
import tracemalloc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from collectives import exchange, ring
from emu.collective.algorithm import Build, algorithm
from emu.collective.schedule import MAX_ROWS, RowsError, Schedule, Sends
from emu.collective.shape import PartialGrid
from emu.collective.transform import concatenate
from emu.errors import InputError


def rows_of(schedule: Schedule) -> list[tuple[int, ...]]:
    columns = (
        schedule.round_column(),
        schedule.src,
        schedule.dst,
        schedule.channel,
        schedule.slot,
        schedule.written_slot,
        schedule.reduce,
    )
    return list(zip(*(c.tolist() for c in columns), strict=True))


@given(
    st.lists(st.tuples(*[st.integers(0, 4)] * 2, st.integers(0, 6), st.booleans(), st.integers(0, 2)), max_size=20), st.data()
)
def test_rows_are_ordered_by_round_pair_channel_and_slot_in_whatever_order_they_are_given(rows, data):
    rows = [r for r in rows if r[0] != r[1]]
    rounds = [[Sends(*row) for row in data.draw(st.permutations(rows))] for _ in range(2)]
    schedule = Schedule.build(5, 7, rounds)
    expected = sorted((t, s, d, c, k, k, a) for t in range(2) for s, d, k, a, c in rows)
    assert [r[:6] for r in rows_of(schedule)] == [r[:6] for r in expected]
    assert sorted(rows_of(schedule)) == expected


def test_columns_of_sends_are_broadcast_against_one_another():
    schedule = Schedule.build(4, 3, [Sends(np.arange(3)[:, None], 3, np.arange(3), reduce=True, channel=2)])
    assert rows_of(schedule) == [(0, s, 3, 2, k, k, True) for s in range(3) for k in range(3)]


def test_a_round_without_rows_does_not_exist():
    schedule = Schedule.build(2, 1, [[], Sends([], [], []), Sends(0, 1, 0), []])
    assert schedule.n_rounds == 1
    assert schedule.rounds() == [slice(0, 1)]


def test_a_schedule_without_rows_is_one():
    schedule = Schedule.build(1, 1, [])
    assert (schedule.n_rows, schedule.n_rounds, schedule.rounds()) == (0, 0, [])


def test_a_receiver_that_renames_nothing_has_no_column_for_it():
    assert Schedule.build(2, 2, [Sends(0, 1, 1, dst_slot=1)]).dst_slot is None
    assert Schedule.build(2, 2, [Sends(0, 1, 1, dst_slot=0)]).written_slot.tolist() == [0]


def test_a_row_within_a_rank_is_a_copy_between_its_slots():
    assert rows_of(Schedule.build(2, 2, [Sends(1, 1, 0, dst_slot=1)])) == [(0, 1, 1, 0, 0, 1, False)]


def test_fractions_of_a_rank_are_refused_not_rounded():
    with pytest.raises(InputError, match=r"rows must name whole numbers, got float64 0\.5"):
        Schedule.build(2, 1, [Sends(np.array([0.5]), 1, 0)])


def test_columns_cannot_be_written_to():
    schedule = ring.all_reduce(4)
    for name in ("src", "dst", "slot", "reduce", "channel", "round_end"):
        with pytest.raises(ValueError, match="read-only"):
            getattr(schedule, name)[0] = 1


@pytest.mark.parametrize(
    ("sends", "says"),
    [
        (Sends(0, 3, 0), "round 0, 0>3 of slot 0: dst is 3, it must be 0..2 with 3 ranks"),
        (Sends(3, 0, 0), "round 0, 3>0 of slot 0: src is 3, it must be 0..2 with 3 ranks"),
        (Sends(0, 1, 2), "round 0, 0>1 of slot 2: slot is 2, it must be 0..1$"),
        (Sends(0, 1, 0, dst_slot=2), "round 0, 0>1 of slot 0: dst_slot is 2, it must be 0..1$"),
        (Sends([0, 1], 2, [0, -1]), "rows name numbers -1..2"),
        (Sends(0, 1, 2**32 + 1), "participants and slots must be 0..2[*][*]31 - 1"),
        (Sends(0, 1, 0, channel=2**15), "channels to 32768; .* channels 0..2[*][*]15 - 1"),
        (Sends(1, 1, 0), "round 0: rank 1 sends slot 0 to itself; leave it out"),
    ],
)
def test_a_row_that_names_what_is_not_there_is_refused(sends, says):
    with pytest.raises(InputError, match=says):
        Schedule.build(3, 2, [sends])


@pytest.mark.parametrize("shares", [(1, 1, 1), (0, 0), (-1, 2)])
def test_shares_that_do_not_cut_the_slots_are_refused(shares):
    with pytest.raises(InputError, match="do not cut 4 slots"):
        Schedule.build(2, 4, [], shares=shares)


def test_a_spare_copy_of_no_slot_is_refused():
    with pytest.raises(InputError, match=r"must be 0\.\.1"):
        Schedule.build(2, 2, [], temps=(2,))


def test_more_rows_than_memory_should_hold_are_refused_before_they_are_held(monkeypatch):
    monkeypatch.setattr("emu.collective.schedule.MAX_ROWS", 100)
    endless = (Sends(0, 1, np.arange(30)) for _ in itertools.count())
    with pytest.raises(InputError, match=r"120 rows or more, at most 2\*\*24; declare translations"):
        Schedule.build(2, 30, endless)
    assert MAX_ROWS == 2**24


def test_more_slots_than_a_column_can_name_are_refused():
    with pytest.raises(InputError, match="2147483648 slots and 1 spare ones"):
        Schedule.build(2, 2**31, [], temps=(0,))


@pytest.mark.parametrize(
    ("build", "says"),
    [
        (lambda: Schedule.build(4, 4, [], translate=(3,)), "do not map 4 ranks"),
        (lambda: Schedule.build(4, 6, [], translate=(2, 2)), "do not map 4 ranks"),
        (lambda: Schedule.build(4, 4, [], translate=(4,), slot_digits=2), "do not map 4 ranks"),
        (lambda: Schedule.build(4, 4, [Sends(1, 2, 0)], translate=(4,)), "only the rows of rank 0"),
        (lambda: Schedule.build(4, 4, [], translate=(4,), helpers=1), "neither helpers nor renamed"),
        (lambda: Schedule.build(4, 4, [], translate=(4,), temps=(0,)), "neither helpers nor renamed"),
        (lambda: Schedule.build(4, 4, [Sends(0, 1, 0, dst_slot=1)], translate=(4,)), "neither helpers nor renamed"),
    ],
)
def test_translations_that_cannot_be_are_refused(build, says):
    with pytest.raises(InputError, match=says):
        build()


def rank_0_only(full: Schedule, dims: tuple[int, ...], slot_digits: int) -> Schedule:
    rounds = []
    for rows in full.rounds():
        own = np.arange(rows.start, rows.stop)[full.src[rows] == 0]
        rounds.append(Sends(0, full.dst[own], full.slot[own], full.reduce[own], full.channel[own]))
    return Schedule.build(full.n_ranks, full.n_slots, rounds, translate=dims, slot_digits=slot_digits)


def pairwise_in_full(n: int) -> Schedule:
    src = np.arange(n)
    return Schedule.build(n, n * n, (Sends(src, d, src * n + d) for d in ((src + t) % n for t in range(1, n))))


def at_once_in_full(n: int) -> Schedule:
    src, dst = np.nonzero(~np.eye(n, dtype=np.bool_))
    return Schedule.build(n, n * n, [Sends(src, dst, src * n + dst)])


@pytest.mark.parametrize("n", [1, 2, 5, 8])
def test_the_catalogue_stores_rank_0_of_exchanges_whose_other_ranks_do_the_same(n: int):
    assert exchange.pairwise(n).expand().digest() == pairwise_in_full(n).digest()
    assert exchange.at_once(n).expand().digest() == at_once_in_full(n).digest()
    assert exchange.at_once(n).n_rows == n - 1


@pytest.mark.parametrize("n", [1, 2, 5, 8])
@pytest.mark.parametrize(
    ("build", "slot_digits"),
    [(ring.all_reduce, 1), (ring.all_gather, 1), (exchange.all_reduce, 1), (pairwise_in_full, 2), (at_once_in_full, 2)],
)
def test_what_translations_give_is_what_is_built_in_full(n: int, build: Build, slot_digits: int):
    full = build(n).expand()
    stored = rank_0_only(full, (n,), slot_digits)
    assert stored.n_rows * n == full.n_rows
    assert stored.expand().digest() == full.digest()


def test_translations_of_several_dimensions_move_rank_and_slot_digit_by_digit():
    """On a 2 x 3 grid, a neighbour along the row: the direct exchange within rows."""
    rank = np.arange(6)
    x, y = rank // 3, rank % 3
    full = Schedule.build(6, 12, [Sends(rank, x * 3 + (y + 1) % 3, rank * 2 + 1, channel=1)])
    stored = Schedule.build(6, 12, [Sends(0, 1, 1, channel=1)], translate=(2, 3))
    assert stored.expand().digest() == full.digest()


def test_a_schedule_that_declares_nothing_expands_to_itself():
    schedule = exchange.all_reduce(3).expand()
    assert schedule.expand() is schedule


def test_equal_schedules_have_equal_digests_and_others_have_not():
    assert ring.all_reduce(5).digest() == ring.all_reduce(5).digest()
    others = [ring.all_reduce(5), ring.all_reduce(6), ring.all_gather(5), exchange.all_reduce(5)]
    assert len({s.digest() for s in others}) == len(others)


def test_a_large_schedule_is_held_in_16_bytes_a_row():
    tracemalloc.start()
    try:
        rank = np.arange(256)
        schedule = concatenate(
            *(Schedule.build(256, 256, (Sends(rank, (rank + 1) % 256, (rank - t) % 256) for t in range(255))) for _ in range(2))
        )
        held, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held < 16.5 * schedule.n_rows + 2**16
    assert peak < 40 * schedule.n_rows + 2**20


def test_a_translation_of_too_many_rows_is_refused_before_it_is_expanded():
    one = Schedule.build(8192, 8192, [Sends(0, np.arange(1, 8192), 0)], translate=(8192,))
    with pytest.raises(InputError, match=r"67100672 rows of all 8192 ranks, at most 2\*\*24 can be stored; take fewer ranks"):
        one.expand()


@pytest.mark.parametrize(
    ("operation", "name", "shape"),
    [
        ("all_gather", "swing", 2**17),
        ("reduce_scatter", "in-switch", 2**17),
        ("all_to_all", "binary-exchange", 2**17),
        ("all_reduce", "railx-ring", (64, 64, 7, 7)),
        ("all_reduce", "sipco", (448, 448)),
        ("all_reduce", "flex-sipco", PartialGrid((256, 256), tuple(range(2**16)))),
        ("all_reduce", "halving-doubling", 2**16),
        ("all_gather", "recursive-doubling", 2**16),
    ],
)
def test_rows_that_no_memory_holds_are_refused_before_they_are_made(operation, name, shape):
    tracemalloc.start()
    with pytest.raises(RowsError, match=r"rows or more, at most 2\*\*24"):
        algorithm(operation, name).compact_schedule(shape)
    assert tracemalloc.get_traced_memory()[1] < 2**30
    tracemalloc.stop()
