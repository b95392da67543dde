import re
from contextlib import suppress

import numpy as np
import pytest

from collectives import exchange, ring
from emu.collective import proof_cells
from emu.collective.integers import check_integers
from emu.collective.operation import Operation, operation
from emu.collective.proof import ProofError, ScheduleFault, prove
from emu.collective.schedule import Schedule, Sends
from emu.errors import InputError, RunError


def refused(schedule, wanted, check=prove) -> bool:
    try:
        check(schedule, wanted)
    except ProofError:
        return True
    return False


def damaged(schedule, rows_by_round, random) -> Schedule:
    while True:
        with suppress(InputError):
            return damaged_once(schedule, rows_by_round, random)


def damaged_once(schedule, rows_by_round, random) -> Schedule:
    """Put one random fault into a schedule, which may be one that no schedule can have."""
    rounds = [list(rows) for rows in rows_by_round(schedule)]
    t = int(random.integers(len(rounds)))
    i = int(random.integers(len(rounds[t])))
    src, dst, slot, adds, channel, renamed = rounds[t][i]
    rank, other = (int(random.integers(schedule.n_participants)) for _ in range(2))
    kind = random.choice(["drop", "double", "twice", "sender", "receiver", "slot", "flip", "swap", "move"])
    if kind == "drop":
        del rounds[t][i]
    elif kind == "double":
        rounds[t].append((src, dst, slot, adds, channel + 1, renamed))
    elif kind == "twice":
        rounds[int(random.integers(len(rounds)))].append((src, dst, slot, adds, channel, renamed))
    elif kind == "sender":
        rounds[t][i] = (rank, dst, slot, adds, channel, renamed)
    elif kind == "receiver":
        rounds[t][i] = (src, rank, slot, adds, channel, renamed)
    elif kind == "slot":
        name = int(random.integers(schedule.n_slots))
        rounds[t][i] = (src, dst, name, adds, channel, name)
    elif kind == "flip":
        rounds[t][i] = (src, dst, slot, not adds, channel, renamed)
    elif kind == "swap":
        u = other % len(rounds)
        rounds[t], rounds[u] = rounds[u], rounds[t]
    else:
        rounds[other % len(rounds)].append(rounds[t].pop(i))
    return Schedule.build(
        schedule.n_ranks,
        schedule.n_slots,
        [[Sends(*row) for row in rows] for rows in rounds],
        helpers=schedule.helpers,
        temps=schedule.temps,
    )


@pytest.mark.parametrize("seed", range(60))
def test_random_right_schedules_are_proved(weave, runs_right, seed):
    schedule, wanted = weave(seed)
    assert runs_right(schedule, wanted)
    assert prove(schedule, wanted).uniform
    check_integers(schedule, wanted)


def test_random_schedules_have_all_that_a_schedule_may_have(weave):
    made = [weave(seed)[0] for seed in range(60)]
    assert all(any(has) for has in zip(*((s.helpers, s.temps, s.shares, s.channel.any()) for s in made), strict=True))


def test_no_damaged_schedule_that_runs_wrong_is_accepted(weave, runs_right, rows_by_round):
    """At least 500 damaged ones run wrong; harmless damage may be refused, but mostly is not."""
    random = np.random.default_rng(0)
    wrong = harmless = harmless_refused = 0
    for seed in range(200):
        schedule, wanted = weave(seed)
        for _ in range(8):
            mutant = damaged(schedule, rows_by_round, random)
            if runs_right(mutant, wanted):
                harmless += 1
                harmless_refused += refused(mutant, wanted)
                assert not refused(mutant, wanted, check_integers)
            else:
                wrong += 1
                assert refused(mutant, wanted)
                assert refused(mutant, wanted, check_integers)
    assert wrong > 500
    assert harmless > harmless_refused


def test_slots_taken_one_at_a_time_give_the_same_proofs(weave, rows_by_round, monkeypatch):
    random = np.random.default_rng(1)
    for seed in range(20):
        schedule, wanted = weave(seed)
        mutant = damaged(schedule, rows_by_round, random)
        whole = [refused(schedule, wanted), refused(mutant, wanted)]
        with monkeypatch.context() as patched:
            patched.setattr(proof_cells, "_STATE_BYTES", 1)
            assert len(list(proof_cells.slot_batches(schedule, wanted))) > 1 or schedule.n_slots == 1
            assert [refused(schedule, wanted), refused(mutant, wanted)] == whole


def test_cells_that_nothing_touches_are_given_no_room():
    schedule = exchange.pairwise(40)
    (piece,) = proof_cells.slot_batches(schedule, operation("all_to_all", 40))
    assert piece.n_cells <= 2 * 40 * 40
    prove(schedule, operation("all_to_all", 40))


def sends(*rounds: list[Sends], n=3, slots=1, **more) -> Schedule:
    return Schedule.build(n, slots, rounds, **more)


ALL_TO_0_AND_BACK = [[Sends([1, 2], 0, 0, reduce=True)], [Sends(0, [1, 2], 0)]]


def test_a_sum_at_one_rank_that_is_sent_back_is_an_all_reduce():
    assert prove(sends(*ALL_TO_0_AND_BACK), operation("all_reduce", 3)).n_rows == 4


@pytest.mark.parametrize(
    ("rounds", "says"),
    [
        (
            [[Sends(1, 0, 0, reduce=True)], [Sends([1, 2], 0, 0, reduce=True)]],
            "round 1: rank 0, slot 0 sums the values of ranks 0-1 and the value of rank 1, it must have each once",
        ),
        (
            [[Sends([1, 1, 2], 0, 0, reduce=True, channel=[0, 1, 0])]],
            "round 0: rank 0, slot 0 sums the values of ranks 0-1 and the value of rank 1, it must have each once",
        ),
        (
            [[Sends(1, 0, 0, reduce=True)], [Sends(0, [1, 2], 0)]],
            "at the end: rank 0, slot 0 holds the values of ranks 0-1, it must be the values of ranks 0-2",
        ),
        (
            [[Sends(1, 0, 0, reduce=True), Sends(2, 0, 0)]],
            "round 0: rank 0, slot 0 is written by 1-2; it must be by one, or all must add",
        ),
        (
            [[Sends(0, 3, 0)], [Sends([3, 4], 1, 0, reduce=True)]],
            "round 1: helper 4, slot 0 holds nothing, it must hold what is sent to rank 1",
        ),
    ],
)
def test_a_wrong_schedule_is_refused_with_what_is_there_and_what_must_be(rounds, says):
    schedule = sends(*rounds, helpers=2)
    with pytest.raises(ProofError, match=re.escape(f"proof: {says}")) as error:
        prove(schedule, operation("all_reduce", 3))
    assert "\n" not in str(error.value)
    assert isinstance(error.value, RunError)
    fault, moment = error.value.fault, re.match(r"round (\d+): \w+ (\d+), slot (\d+)|at the end", says)
    assert fault == (ScheduleFault(*map(int, moment.groups())) if moment[0] != "at the end" else ScheduleFault(0, 0, 0))


@pytest.mark.parametrize(
    ("rounds", "says", "fault"),
    [
        (
            [[Sends(0, 1, 0, reduce=True)], [Sends(0, 2, 0)]],
            "round 0: rank 1, slot 0 holds nothing, and what rank 0 sends is added to it; let the first write to it be a copy "
            "(reduce=False)",
            ScheduleFault(0, 1, 0),
        ),
        (
            [[Sends(0, 1, 0)], [Sends([0, 1], 2, 0, reduce=True)]],
            "round 1: rank 2, slot 0 holds nothing, and what ranks 0-1 send is added to it; let the first write to it be a "
            "copy (reduce=False) of an earlier round",
            ScheduleFault(1, 2, 0),
        ),
        (
            [[Sends(0, 1, 0, reduce=True, dst_slot=1)], [Sends(1, 1, 1, dst_slot=0), Sends(0, 2, 0)]],
            "round 0: rank 1, slot 1 holds nothing, and what rank 0 sends is added to it; let the first write",
            ScheduleFault(0, 1, 1),
        ),
        (
            [[Sends(0, 3, 0, reduce=True)], [Sends(3, [1, 2], 0, reduce=True)]],
            "round 1: rank 1, slot 0 holds nothing, and what rank 3 sends is added to it; let the first write",
            ScheduleFault(1, 1, 0),
        ),
    ],
)
def test_what_is_added_to_a_slot_of_a_rank_that_holds_nothing_is_refused(rounds, says, fault):
    """The operation is a broadcast: one rank adds, two do, one adds into a spare slot, and a helper adds."""
    schedule, wanted = sends(*rounds, helpers=1, temps=(0,)), operation("broadcast", 3)
    with pytest.raises(ProofError, match=re.escape(f"proof: {says}")) as error:
        prove(schedule, wanted)
    assert error.value.fault == fault
    assert refused(schedule, wanted, check_integers)


def test_a_helper_begins_at_zero_and_may_add_first():
    schedule = sends([Sends([0, 1, 2], 3, 0, reduce=True)], [Sends(3, [0, 1, 2], 0)], helpers=1)
    assert prove(schedule, operation("all_reduce", 3)).uniform
    check_integers(schedule, operation("all_reduce", 3))


def test_a_rank_adds_to_what_was_copied_to_it_before():
    """Ranks 1 and 2 have block 0, which rank 0 wants."""
    pairs = np.array([[1, 0], [2, 0]], np.int32), np.array([[0, 0]], np.int32)
    wanted = Operation("own", 3, 1, *pairs)
    copied = sends([Sends(1, 0, 0)], [Sends(2, 0, 0, reduce=True)])
    prove(copied, wanted)
    check_integers(copied, wanted)
    assert refused(sends([Sends(1, 0, 0, reduce=True)], [Sends(2, 0, 0, reduce=True)]), wanted)


def test_a_wanted_value_that_never_came_is_named_as_nothing():
    with pytest.raises(ProofError, match="rank 1, slot 0 holds nothing, it must be the value of rank 0") as error:
        prove(sends(), operation("broadcast", 3))
    assert error.value.fault == ScheduleFault(-1, 1, 0)


@pytest.mark.parametrize("check", [prove, check_integers])
def test_a_value_that_is_wrong_at_the_end_is_blamed_on_the_last_round_that_touched_it(check):
    """Rank 2 never gets what rank 1 gets in round 1; then the last to write it did so in round 0."""
    short = sends([Sends(0, 3, 0)], [Sends(3, 1, 0)], [Sends(0, 3, 0)], helpers=1)
    with pytest.raises(ProofError) as error:
        check(short, operation("broadcast", 3))
    assert error.value.fault == ScheduleFault(2, 2, 0)
    half = sends([Sends(1, 0, 0, reduce=True)], [Sends(0, 3, 0)], helpers=1)
    with pytest.raises(ProofError) as error:
        check(half, operation("reduce", 3))
    assert error.value.fault == ScheduleFault(0, 0, 0)


def test_a_value_that_came_under_another_name_is_named_by_its_own():
    schedule = sends([Sends(1, 0, 1, dst_slot=2)], [Sends(0, [1, 2], 0), Sends(1, [0, 2], 1)], slots=3)
    with pytest.raises(ProofError, match="rank 0, slot 2 holds rank 1's slot 1, it must be the value of rank 2"):
        prove(schedule, operation("all_gather", 3))


def test_a_spare_slot_starts_empty_on_every_rank():
    schedule = sends([Sends(1, 0, 1)], temps=(0,))
    with pytest.raises(ProofError, match="round 0: rank 1, slot 1 holds nothing"):
        prove(schedule, operation("all_reduce", 3))


def test_all_reads_of_a_round_see_what_was_before_its_writes():
    """Two ranks swap and add; with reads after writes the second would be sent the sum."""
    swap = sends([Sends([0, 1], [1, 0], 0, reduce=True)], n=2)
    prove(swap, operation("all_reduce", 2))
    check_integers(swap, operation("all_reduce", 2))


@pytest.mark.parametrize("check", [prove, check_integers])
def test_a_schedule_of_other_ranks_or_blocks_than_the_operation_is_refused(check):
    with pytest.raises(ProofError, match="4 ranks must be the 3 of all_reduce"):
        check(ring.all_reduce(4), operation("all_reduce", 3))
    with pytest.raises(ProofError, match="4 slots must be a multiple of the 16 blocks of all_to_all"):
        check(ring.all_reduce(4), operation("all_to_all", 4))


def test_integers_say_what_is_there_and_what_must_be():
    with pytest.raises(ProofError, match=r"proof: on integers: rank 0, slot 0 holds -?\d+, it must be the sum -?\d+"):
        check_integers(sends(), operation("all_reduce", 3))


def test_many_slots_are_checked_on_integers_some_at_a_time(monkeypatch):
    monkeypatch.setattr("emu.collective.integers._CELLS", 20)
    check_integers(exchange.pairwise(7), operation("all_to_all", 7))
    half = Schedule.build(7, 49, [Sends(0, 6, 6)])
    with pytest.raises(ProofError, match="rank 1, slot 1 holds"):
        check_integers(half, operation("all_to_all", 7))


def same_floats(schedule: Schedule, wanted, rows_by_round) -> bool:
    """Return whether all ranks get the same bits where adds fold as they should, in plain float32."""
    values = np.random.default_rng(0).standard_normal((wanted.n_ranks, 64), dtype=np.float32)
    state = {(rank, 0): values[rank] for rank in range(wanted.n_ranks)}
    for rows in rows_by_round(schedule):
        arrivals = {}
        for src, dst, slot, adds, _, renamed in rows:
            arrivals.setdefault((dst, renamed), []).append((src, adds, state[src, slot]))
        for (dst, slot), parts in arrivals.items():
            if parts[0][1] and (dst, slot) in state:
                parts.append((dst, True, state[dst, slot]))
            terms = [value for _, _, value in sorted(parts, key=lambda part: part[0])]
            state[dst, slot] = sum(terms[1:], start=terms[0])
    return all(np.array_equal(state[rank, 0], state[0, 0]) for rank in range(wanted.n_ranks))


def everyone_sums_in_any_order(random: np.random.Generator, n: int) -> Schedule:
    """Helpers keep the original values; each rank takes one of them, then adds the others some at a time."""
    rank = np.arange(n)
    rounds = [[Sends(rank, rank + n, 0)]] + [[] for _ in range(3)]
    for dst in range(n):
        first, *others = random.permutation(rank + n).tolist()
        rounds[1].append(Sends(first, dst, 0))
        for src in others:
            rounds[int(random.integers(2, 4))].append(Sends(src, dst, 0, reduce=True))
    return sends(*rounds, n=n, helpers=n)


def test_a_proof_says_uniform_exactly_where_floats_come_out_the_same(rows_by_round):
    random = np.random.default_rng(2)
    seen = set()
    for n in (2, 3, 3, 3) * 15:
        schedule, wanted = everyone_sums_in_any_order(random, n), operation("all_reduce", n)
        uniform = prove(schedule, wanted, same_bits=False).uniform
        assert uniform == same_floats(schedule, wanted, rows_by_round)
        assert refused(schedule, wanted) == (not uniform)
        seen.add((n, uniform))
    assert seen == {(2, True), (3, True), (3, False)}


def test_sums_that_some_ranks_fold_in_another_order_are_refused_by_name():
    """(a + b) + c on ranks 0 and 2, (b + c) + a on rank 1; helper 3 keeps a."""
    schedule = sends(
        [Sends(1, 0, 0, reduce=True), Sends(2, 1, 0, reduce=True), Sends(0, 3, 0)],
        [Sends(2, 0, 0, reduce=True), Sends(3, 1, 0, reduce=True)],
        [Sends(0, 2, 0)],
        helpers=1,
    )
    assert not prove(schedule, operation("all_reduce", 3), same_bits=False).uniform
    with pytest.raises(ProofError, match="rank 1, slot 0 was summed in another order than on rank 0") as error:
        prove(schedule, operation("all_reduce", 3))
    assert error.value.fault == ScheduleFault(1, 1, 0)


@pytest.mark.parametrize("n", [2, 3, 9])
def test_one_round_in_which_all_send_to_all_folds_in_rank_order_everywhere(n, rows_by_round):
    src, dst = np.nonzero(~np.eye(n, dtype=np.bool_))
    schedule = sends([Sends(src, dst, 0, reduce=True)], n=n)
    assert prove(schedule, operation("all_reduce", n)).uniform
    assert same_floats(schedule, operation("all_reduce", n), rows_by_round)


def test_a_ring_and_a_direct_all_reduce_of_many_ranks_are_proved():
    for build in (ring.all_reduce, exchange.all_reduce):
        prove(build(130), operation("all_reduce", 130))
