from collections import defaultdict

import numpy as np
import pytest

from collectives import binomial, bruck, exchange, hyperx, in_switch, recursive, ring, torus
from emu.collective.integers import check_integers
from emu.collective.operation import Operation, operation
from emu.collective.proof import ProofError, prove
from emu.collective.schedule import Schedule, Sends
from emu.collective.transform import concatenate, copy_first_values, dual, on_channels, on_grid, rotate, rows_of_participants
from emu.errors import InputError


def copies(schedule: Schedule) -> Schedule:
    """Return the same sends, all of them as overwrites."""
    rounds = [Sends(schedule.src[r], schedule.dst[r], schedule.slot[r]) for r in schedule.rounds()]
    return Schedule.build(schedule.n_ranks, schedule.n_slots, rounds)


@pytest.mark.parametrize("n", [1, 2, 3, 6, 8])
def test_the_dual_of_an_all_gather_is_a_reduce_scatter(n):
    for gather in (ring.all_gather(n), exchange.all_gather(n)):
        prove(dual(gather), operation("reduce_scatter", n))
    assert dual(exchange.all_gather(n)).digest() == exchange.reduce_scatter(n).digest()


@pytest.mark.parametrize("build", [ring.all_gather, exchange.all_gather, binomial.broadcast, binomial.scatter])
def test_the_dual_of_the_dual_is_the_schedule(build):
    full = build(6).expand()
    assert dual(copies(dual(full)), reduce=False).digest() == full.digest()


def test_a_dual_that_adds_nothing_only_copies():
    assert not binomial.gather(8).reduce.any()
    assert binomial.reduce(8).reduce.all()


def test_a_dual_keeps_helpers_channels_parts_and_renamed_slots():
    there = Schedule.build(
        2, 2, [Sends(0, 2, 0, channel=3, dst_slot=2), Sends(2, 1, 2, dst_slot=0)], helpers=1, temps=(0,), shares=(1, 2)
    )
    back = dual(there)
    assert (back.helpers, back.temps, back.shares) == (1, (0,), (1, 2))
    assert list(zip(*(c.tolist() for c in (back.src, back.dst, back.slot, back.written_slot, back.channel)), strict=True)) == [
        (1, 2, 0, 2, 0),
        (2, 0, 2, 0, 3),
    ]


def relayed_dispatch() -> Schedule:
    """Token 0 of rank 0 goes to rank 1, which hands it on to ranks 2 and 3; token 1 to rank 3 alone."""
    return Schedule.build(4, 2, [Sends(0, [1, 3], [0, 1]), Sends(1, [2, 3], 0)])


def combine() -> Operation:
    """Return the operation that brings tokens back to rank 0 from ranks 2 and 3."""
    return Operation("combine", 4, 2, np.array([[2, 0], [3, 0], [3, 1]], np.int32), np.array([[0, 0], [0, 1]], np.int32))


def test_a_dual_adds_nothing_where_a_rank_has_nothing_if_it_is_told_what_it_is_for():
    with pytest.raises(ProofError, match="round 0: rank 1, slot 0 holds nothing, and what ranks 2-3 send is added to it"):
        prove(dual(relayed_dispatch()), combine())
    back = dual(relayed_dispatch(), wanted=combine())
    prove(back, combine())
    check_integers(back, combine())
    assert back.temps == (0,)
    columns = (back.round_column(), back.src, back.dst, back.slot, back.written_slot, back.reduce)
    assert list(zip(*(c.tolist() for c in columns), strict=True)) == [
        (0, 2, 1, 0, 0, False),
        (0, 3, 1, 0, 2, False),
        (1, 1, 1, 2, 0, True),
        (2, 1, 0, 0, 0, False),
        (2, 3, 0, 1, 1, False),
    ]


def test_what_has_no_sum_that_begins_with_nothing_lands_as_it_is():
    built = exchange.reduce_scatter(5)
    assert copy_first_values(built, operation("reduce_scatter", 5)) is built
    switch = in_switch.all_reduce(4)
    assert copy_first_values(switch, operation("all_reduce", 4)) is switch


def random_trees(random: np.random.Generator, n: int, n_slots: int) -> tuple[Schedule, Operation]:
    """Return a schedule of each slot down a tree of its own, and who sends it back: its leaves, and some of those between."""
    rounds, have, want = defaultdict(list), [], []
    for slot in range(n_slots):
        order, depth = random.permutation(n).tolist(), {}
        parents = {rank: int(random.choice(order[:i])) for i, rank in enumerate(order) if i}
        for rank in order:
            depth[rank] = depth[parents[rank]] + 1 if rank in parents else 0
            if rank in parents:
                rounds[depth[rank]].append(Sends(parents[rank], rank, slot, channel=int(random.integers(2))))
            if rank in parents and (rank not in parents.values() or random.random() < 0.5):
                have.append((rank, slot))
        want.append((order[0], slot))
    op = Operation("own", n, n_slots, *(np.array(sorted(pairs), np.int32) for pairs in (have, want)))
    return Schedule.build(n, n_slots, [rounds[t] for t in sorted(rounds)]), op


def crossing(schedule: Schedule) -> list[list[int]]:
    """The rows of its messages, but for the rounds that these are in."""
    rows = schedule.src != schedule.dst
    return [c[rows].tolist() for c in (schedule.src, schedule.dst, schedule.slot, schedule.channel)]


@pytest.mark.parametrize("seed", range(40))
def test_sums_up_random_trees_are_right_and_the_same_messages(seed: int):
    random = np.random.default_rng(seed)
    down, wanted = random_trees(random, int(random.integers(2, 9)), 3)
    plain, back = dual(down), dual(down, wanted=wanted)
    prove(back, wanted)
    check_integers(back, wanted)
    assert crossing(back) == crossing(plain)


def test_what_adds_has_no_dual():
    with pytest.raises(InputError, match="one that adds has no dual"):
        dual(ring.reduce_scatter(3))


def test_then_has_the_rounds_of_both_in_order():
    first, second = ring.reduce_scatter(4).expand(), exchange.all_gather(4).expand()
    both = concatenate(first, second)
    assert both.n_rounds == first.n_rounds + second.n_rounds
    for name in ("src", "dst", "slot", "reduce", "channel"):
        assert getattr(both, name).tolist() == [*getattr(first, name).tolist(), *getattr(second, name).tolist()]
    prove(both, operation("all_reduce", 4))


def test_then_is_associative():
    a, b, c = ring.reduce_scatter(4), ring.all_gather(4), exchange.all_gather(4)
    assert concatenate(concatenate(a, b), c).digest() == concatenate(a, concatenate(b, c)).digest()


def test_then_keeps_renamed_slots_of_either():
    plain = Schedule.build(2, 1, [Sends(0, 1, 0)], temps=(0,))
    renamed = Schedule.build(2, 1, [Sends(0, 1, 0, dst_slot=1)], temps=(0,))
    assert concatenate(plain, renamed).written_slot.tolist() == [0, 1]
    assert concatenate(renamed, plain).written_slot.tolist() == [1, 0]
    assert concatenate(plain, plain).dst_slot is None


def test_what_has_other_slots_cannot_follow():
    with pytest.raises(InputError, match=r"\(4, 4, 0, \(\), \(\)\) cannot be followed by \(4, 1, 0, \(\), \(\)\)"):
        concatenate(ring.all_gather(4), binomial.broadcast(4))


@pytest.mark.parametrize("n", [2, 3, 7, 8])
@pytest.mark.parametrize("name", ["broadcast", "reduce", "scatter", "gather"])
def test_a_rotated_schedule_serves_every_root(n, name):
    built = getattr(binomial, name)(n)
    for root in range(n):
        turned = rotate(built, root, slots_are_ranks=name in ("scatter", "gather"))
        prove(turned, operation(name, n, root))
        check_integers(turned, operation(name, n, root))


def test_rotating_moves_parts_with_their_slot_and_leaves_helpers():
    schedule = Schedule.build(3, 6, [Sends(0, 3, [2, 3]), Sends(3, 1, [2, 3])], helpers=1)
    turned = rotate(schedule, 2, slots_are_ranks=True)
    assert turned.src.tolist() == [2, 2, 3, 3]
    assert turned.dst.tolist() == [3, 3, 0, 0]
    assert turned.slot.tolist() == [0, 1, 0, 1]


def test_rotating_all_the_way_round_is_the_schedule():
    schedule = binomial.scatter(5)
    turned = rotate(rotate(schedule, 2, slots_are_ranks=True), 3, slots_are_ranks=True)
    assert turned.digest() == schedule.digest()


def test_rotating_keeps_what_the_receiver_renames():
    schedule = Schedule.build(3, 1, [Sends(0, 1, 0, dst_slot=1), Sends(1, 2, 1, dst_slot=0)], temps=(0,))
    turned = rotate(schedule, 1, slots_are_ranks=False)
    assert np.stack((turned.src, turned.slot, turned.written_slot)).tolist() == [[1, 2], [0, 1], [1, 0]]


def test_slots_named_by_rank_that_are_renamed_cannot_be_rotated():
    schedule = Schedule.build(2, 2, [Sends(0, 1, 0, dst_slot=1)])
    with pytest.raises(InputError, match="write it for that root"):
        rotate(schedule, 1, slots_are_ranks=True)


GRIDS = [(hyperx, (2, 3)), (hyperx, (4,)), (torus, (3, 2)), (torus, (2, 2, 2))]


@pytest.mark.parametrize(("family", "dims"), GRIDS)
def test_declared_translations_are_kept_and_change_nothing(family, dims):
    """The dual, the other root and what follows are the same of the rows of rank 0 as of all rows."""
    gather = family.all_gather(dims)
    assert gather.translate == dims
    scatter = dual(gather)
    assert (scatter.translate, scatter.n_rows) == (dims, gather.n_rows)
    assert scatter.expand().digest() == dual(gather.expand()).digest()
    both = concatenate(scatter, gather)
    assert (both.translate, both.n_rows) == (dims, 2 * gather.n_rows)
    assert both.expand().digest() == concatenate(scatter.expand(), gather.expand()).digest()


def test_the_dual_of_what_moves_two_digits_is_that_of_all_rows():
    stored = exchange.pairwise(5)
    back = dual(stored, reduce=False)
    assert (back.translate, back.slot_digits) == ((5,), 2)
    assert back.expand().digest() == dual(stored.expand(), reduce=False).digest()


def test_what_declares_translations_before_what_declares_none_is_expanded():
    stored, plain = hyperx.all_gather((6,)), exchange.all_gather(6).expand()
    assert concatenate(dual(stored), plain).translate == ()
    assert concatenate(dual(stored), plain).digest() == concatenate(dual(stored).expand(), plain).digest()


@pytest.mark.parametrize("root", [0, 1, 3])
def test_a_schedule_that_turning_maps_on_itself_is_kept(root):
    stored = hyperx.all_gather((4,))
    assert rotate(stored, root, slots_are_ranks=True) is stored
    assert rotate(stored.expand(), root, slots_are_ranks=True).digest() == stored.expand().digest()


def test_a_schedule_of_a_grid_is_expanded_to_be_turned():
    stored = hyperx.all_gather((2, 3))
    assert rotate(stored, 1, slots_are_ranks=True).digest() == rotate(stored.expand(), 1, slots_are_ranks=True).digest()
    assert rotate(stored, 1, slots_are_ranks=True).translate == ()


def _next_but_0(n):
    """Rank 0 sends each other rank the item of the one after it, so that a cycle keeps its rows and a swap does not."""
    others = np.arange(1, n)
    return Schedule.build(n, n * n, [Sends(0, others, np.roll(others, -1))], translate=(n,), slot_digits=2)


def _hyperx_line(n):
    return hyperx.all_reduce((n,))


@pytest.mark.parametrize(("build", "dims"), [(exchange.at_once, (2, 3)), (exchange.at_once, (2, 2, 2)), (_hyperx_line, (3, 2))])
def test_what_treats_all_ranks_alike_is_translated_on_any_grid(build, dims):
    stored = build(int(np.prod(dims)))
    found = on_grid(stored, dims)
    assert found.translate == dims
    assert found.expand().digest() == stored.expand().digest()


@pytest.mark.parametrize(
    "build",
    [exchange.pairwise, ring.all_reduce, ring.all_gather_each_way, bruck.all_to_all, recursive.swing_all_reduce, _next_but_0],
)
def test_what_tells_ranks_apart_or_declares_nothing_stays_as_it_is(build):
    stored = build(6)
    assert on_grid(stored, (2, 3)) is stored


@pytest.mark.parametrize("dims", [(5,), (2, 2), (2, 4), ()])
def test_a_grid_of_other_ranks_or_the_same_changes_nothing(dims):
    stored = exchange.at_once(5)
    assert on_grid(stored, dims) is stored


@pytest.mark.parametrize("k", [1, 2, 5])
@pytest.mark.parametrize(
    ("name", "build"),
    [("all_reduce", ring.all_reduce), ("all_to_all", exchange.at_once), ("broadcast", binomial.broadcast)],
)
def test_on_more_channels_a_schedule_does_the_same(name, build, k):
    parted = on_channels(build(6), k)
    prove(parted, operation(name, 6))
    assert check_integers(parted, operation(name, 6)) is None
    assert parted.n_rows == build(6).n_rows * k
    assert len(set(parted.channel.tolist())) == k * len(set(build(6).channel.tolist()))


def test_the_rows_of_rank_0_on_more_channels_are_those_of_all_rows():
    for build in (ring.all_reduce, exchange.all_gather):
        assert on_channels(build(5), 3).expand().digest() == on_channels(build(5).expand(), 3).digest()


def test_one_channel_for_each_is_the_schedule_itself():
    assert on_channels(torus.all_reduce((3, 2)), 1).digest() == torus.all_reduce((3, 2)).digest()


def test_rows_are_in_order_and_shares_spare_and_renamed_slots_are_parted_too():
    plain = Schedule.build(
        2,
        2,
        [Sends(0, 2, [0, 1], channel=[0, 1], dst_slot=[2, 1]), Sends(2, 1, 2, dst_slot=0)],
        helpers=1,
        temps=(0,),
        shares=(1, 2),
    )
    parted = on_channels(plain, 2)
    assert (parted.shares, parted.temps, parted.helpers) == ((1, 1, 2, 2), (0, 1), 1)
    columns = parted.src, parted.dst, parted.channel, parted.slot, parted.written_slot
    rows = list(zip(*(c.tolist() for c in columns), strict=True))
    assert rows == [(0, 2, 0, 0, 4), (0, 2, 1, 1, 5), (0, 2, 2, 2, 2), (0, 2, 3, 3, 3), (2, 1, 0, 4, 0), (2, 1, 1, 5, 1)]


@pytest.mark.parametrize("k", [2**22, 2**15 + 1])
def test_more_rows_or_channels_than_a_schedule_has_are_refused(k):
    with pytest.raises(InputError, match="take fewer"):
        on_channels(binomial.broadcast(6), k)


@pytest.mark.parametrize(
    "build",
    [
        lambda: ring.all_reduce_each_way(5),
        lambda: exchange.all_reduce(4),
        lambda: hyperx.all_gather((2, 3)),
        lambda: torus.all_reduce((3, 2)),
        lambda: exchange.at_once(4),
        lambda: exchange.pairwise(5).expand(),
        lambda: in_switch.all_reduce(3),
    ],
)
def test_the_rows_of_some_are_those_of_all_that_have_an_end_there(build) -> None:
    stored, random = build(), np.random.default_rng(0)
    full = stored.expand()
    for _ in range(6):
        here = random.random(stored.n_participants) < random.random()
        if not here.any():
            continue
        some, kept = rows_of_participants(stored, here), here[full.src] | here[full.dst]
        for name in ("src", "dst", "slot", "written_slot", "reduce", "channel"):
            assert getattr(some, name).tolist() == getattr(full, name)[kept].tolist()
        assert some.round_column().tolist() == full.round_column()[kept].tolist()
        assert (some.n_ranks, some.n_slots, some.helpers, some.translate) == (full.n_ranks, full.n_slots, full.helpers, ())
