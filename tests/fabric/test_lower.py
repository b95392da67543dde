import numpy as np
import pytest

from emu.collective.algorithm import ALGORITHMS
from emu.collective.schedule import Schedule, Sends
from emu.errors import InputError
from emu.fabric.ideal import ideal
from emu.fabric.lower import FabricJob, LoweredSchedule, lower
from emu.fabric.lowering.classes import Joins, _classes_of_rows, classes_of
from emu.fabric.run import run_graph
from emu.topology.builders.wiring import star
from emu.topology.topology import CHANNELS, Links, Routes, Topology

MS = 10**12
BLOCK = 10**6
RATE = BLOCK * 1000.0  # a block takes 1 ms


def timed(schedule, fabric="rank", slot_bytes=None, **options):
    """End of the whole in ms, where a block takes 1 ms and a message's head 1 ms."""
    topology = ideal(schedule, fabric, bandwidth_Bps=RATE, latency_fs=MS)
    sizes = np.full(schedule.n_slots, BLOCK) if slot_bytes is None else np.asarray(slot_bytes)
    piece = lower(FabricJob(schedule, sizes, topology, np.arange(schedule.n_participants), **options))
    return run_graph(piece.graph).end_fs.max() / MS


def ring(n):
    r = np.arange(n)
    adds = [Sends(r, (r + 1) % n, (r - t - 1) % n, True) for t in range(n - 1)]
    return Schedule.build(n, n, [*adds, *(Sends(r, (r + 1) % n, (r - t) % n) for t in range(n - 1))])


def direct(n):
    src, dst = (a.ravel() for a in np.meshgrid(np.arange(n), np.arange(n)))
    src, dst = src[src != dst], dst[src != dst]
    return Schedule.build(n, n, [Sends(src, dst, dst, True), Sends(src, dst, src)])


def chain(n, pieces):
    """Rank r passes piece p on in round r + p."""
    rounds = [[(r, r + 1, t - r) for r in range(n - 1) if 0 <= t - r < pieces] for t in range(n + pieces - 2)]
    return Schedule.build(n, pieces, [Sends(*zip(*rows, strict=True)) for rows in rounds])


@pytest.mark.parametrize("n", [2, 3, 5, 8])
def test_a_ring_takes_a_head_and_a_block_a_round(n):
    assert timed(ring(n)) == pytest.approx(2 * (n - 1) * 2, rel=1e-9)


@pytest.mark.parametrize("n", [2, 3, 5, 8])
def test_direct_sends_of_a_round_leave_together(n):
    assert timed(direct(n)) == pytest.approx(2 * (1 + n - 1), rel=1e-9)
    assert timed(direct(n), "pair") == pytest.approx(2 * (1 + 1), rel=1e-9)


@pytest.mark.parametrize(("n", "pieces"), [(2, 1), (2, 5), (4, 3), (6, 7)])
def test_a_chain_is_pipelined(n, pieces):
    # Each rank's bodies follow one another without a gap, though a head takes as long as a body.
    assert timed(chain(n, pieces)) == pytest.approx((n - 1) * 2 + pieces - 1, rel=1e-9)


def test_a_ring_of_eight_on_a_switch_takes_what_the_formula_says():
    piece = lower(FabricJob(ring(8), np.full(8, 8 * 2**20), star("star", 8, 50e9, 500_000_000), np.arange(8)))
    assert run_graph(piece.graph).end_s == pytest.approx(2.36281024e-3, rel=1e-9)


def test_rounds_of_a_channel_leave_in_order():
    in_order = Schedule.build(3, 2, [Sends(0, 1, 0), Sends(0, 2, 1)])
    assert timed(in_order, "pair") == pytest.approx(1 + 2, rel=1e-9)


def test_channels_are_independent_of_each_other():
    apart = Schedule.build(3, 2, [Sends(0, 1, 0, channel=0), Sends(0, 2, 1, channel=1)])
    assert timed(apart, "pair") == pytest.approx(1 + 1, rel=1e-9)


def test_messages_of_one_round_do_not_wait_for_one_another():
    together = Schedule.build(3, 2, [[Sends(0, 1, 0), Sends(0, 2, 1)]])
    assert timed(together, "pair") == pytest.approx(1 + 1, rel=1e-9)
    assert timed(together, "rank") == pytest.approx(1 + 2, rel=1e-9)


def test_rows_of_one_round_source_destination_and_channel_are_one_message():
    schedule = Schedule.build(2, 3, [Sends(0, 1, [0, 1, 2], channel=[0, 0, 1])])
    piece = lower(FabricJob(schedule, np.array([5, 7, 11]), star("star", 2, 1e9, 10), np.arange(2)))
    assert piece.graph.size_bytes[:2].tolist() == [12, 11]
    assert piece.graph.origin[:2].tolist() == [0, 2]
    assert piece.graph.owner[:2].tolist() == [0, 0]
    assert piece.graph.alpha_fs[:2].tolist() == [20, 20]
    assert piece.receiver.tolist() == [1, 1]


def test_slots_of_no_bytes_are_not_sent():
    schedule = Schedule.build(2, 2, [Sends(0, 1, [0, 1])])
    topology = star("star", 2, 1e9, 10)
    some = lower(FabricJob(schedule, np.array([0, 8]), topology, np.arange(2)))
    none = lower(FabricJob(schedule, np.array([0, 0]), topology, np.arange(2)))
    assert some.graph.size_bytes[0] == 8
    assert some.graph.origin[0] == 1
    assert len(none.receiver) == 0
    assert run_graph(none.graph).end_fs.max() == 0


@pytest.mark.parametrize("algorithm", [each for _, each in ALGORITHMS], ids=lambda each: f"{each.operation}-{each.name}")
def test_what_waits_for_what_hangs_on_no_size(algorithm):
    """Classes of sizes that are asked for later are those that are worked out for these sizes."""
    random = np.random.default_rng(3)
    shape = next(shape for n in (8, 9) for shape in algorithm.shapes(n))
    for own in (algorithm.compact_schedule(shape), algorithm.compact_schedule(shape).expand()):
        for _ in range(2):
            drawn = random.integers(1, 10**6, own.n_slots if not own.translate else 1)
            sizes = np.ascontiguousarray(np.broadcast_to(drawn, own.n_slots))
            told, worked_out = classes_of(own, sizes, joins=Joins.BOTH), _classes_of_rows(own, sizes, Joins.BOTH, False, None)
            for one, other in zip(flat(told), flat(worked_out), strict=True):
                np.testing.assert_array_equal(one, other)


def flat(columns):
    """All arrays of nested columns."""
    return [each for of in columns for each in (flat(of) if isinstance(of, tuple) else [of])]


def test_an_empty_slot_breaks_no_order_that_others_make():
    relay = Schedule.build(3, 2, [Sends(0, 1, [0, 1]), Sends(1, 2, [0, 1])])
    assert timed(relay, slot_bytes=[BLOCK, 0]) == pytest.approx(4, rel=1e-9)


def test_a_local_row_takes_no_time_and_carries_what_it_waits_for():
    # 0 sends slot 0 to 1, which copies it to slot 1 and sends that on.
    rounds = [Sends(0, 1, 0), Sends(1, 1, 0, dst_slot=1), Sends(1, 2, 1)]
    schedule = Schedule.build(3, 2, rounds)
    assert timed(schedule) == pytest.approx(4, rel=1e-9)


def test_a_spare_slot_has_the_size_of_its_original():
    schedule = Schedule.build(2, 1, [Sends(0, 1, 0, dst_slot=1), Sends(1, 0, 1)], temps=(0,))
    piece = lower(FabricJob(schedule, np.array([9]), star("star", 2, 1e9, 0), np.arange(2)))
    assert piece.graph.size_bytes[:2].tolist() == [9, 9]


def test_a_helper_is_placed_like_a_rank():
    schedule = Schedule.build(2, 1, [Sends([0, 1], 2, 0, True), Sends(2, [0, 1], 0)], helpers=1)
    assert timed(schedule) == pytest.approx((1 + 2) + (1 + 2), rel=1e-9)


def test_unequal_shares_are_sent_as_they_are_cut():
    schedule = Schedule.build(2, 2, [Sends(0, 1, 0, channel=0), Sends(0, 1, 1, channel=1)], shares=(1, 3))
    assert timed(schedule, "channel", slot_bytes=[BLOCK, 3 * BLOCK]) == pytest.approx(1 + 3, rel=1e-9)


def test_many_writers_and_many_readers_meet_in_a_join():
    n = 64
    piece = lower(FabricJob(direct(n), np.full(n, 100), star("star", n, 1e9, 0), np.arange(n)))
    messages = 2 * n * (n - 1)
    assert len(piece.receiver) == messages
    assert len(piece.graph.pred) < 5 * messages  # n**3 would be 32 times the messages


def test_a_route_is_asked_once_for_each_pair_and_channel_with_its_key():
    asked = []
    base = star("star", 3, 1e9, 0)

    def router(src, dst, key):
        asked.append(sorted(zip(src.tolist(), dst.tolist(), key.tolist(), strict=True)))
        return base.router(src, dst, key)

    topology = Topology("spy", 3, base.n_nodes, base.links, router)
    rounds = [Sends(0, 1, t, channel=t % 2) for t in range(4)]
    schedule = Schedule.build(2, 4, rounds)
    lower(FabricJob(schedule, np.full(4, 1), topology, np.array([2, 0]), key=5))
    assert asked == [[(2, 0, 5 * CHANNELS), (2, 0, 5 * CHANNELS + 1)]]


def test_alpha_is_the_latency_of_all_hops():
    links = Links(np.array([0, 1]), np.array([1, 2]), np.full(2, 1e9), np.array([3, 4]), np.zeros(2, np.int16))

    def router(src, dst, key):
        return Routes(np.array([0, 2]), np.array([0, 1], np.int32))

    line = Topology("line", 3, 3, links, router)
    piece = lower(FabricJob(Schedule.build(2, 1, [Sends(0, 1, 0)]), np.array([5]), line, np.array([0, 2])))
    assert piece.graph.alpha_fs[0] == 7
    assert piece.graph.hop_link.tolist() == [0, 1]


@pytest.mark.parametrize("n", [2, 3, 6])
def test_the_sends_of_a_queue_leave_one_overhead_apart(n):
    src, dst = np.zeros(n - 1, np.int64), np.arange(1, n)
    once = Schedule.build(n, n, [Sends(src, dst, dst)])
    taken = timed(once, "pair", send_overhead_fs=3 * MS)
    assert taken == pytest.approx(3 * (n - 1) + 1 + 1, rel=1e-9)
    assert timed(ring(n), send_overhead_fs=MS // 2) == pytest.approx(2 * (n - 1) * 2.5, rel=1e-9)


def test_a_sender_prepares_a_message_while_the_last_one_leaves():
    rounds = [Sends(0, 1, t) for t in range(4)]
    schedule = Schedule.build(2, 4, rounds)
    assert timed(schedule, send_overhead_fs=MS // 2) == pytest.approx(0.5 + 4 + 1, rel=1e-9)
    assert timed(schedule, send_overhead_fs=2 * MS) == pytest.approx(4 * 2 + 1 + 1, rel=1e-9)


def test_no_overhead_adds_no_task():
    schedule, topology = ring(4), star("star", 4, 1e9, 0)
    plain, charged = (lower(FabricJob(schedule, np.full(4, 8), topology, np.arange(4), send_overhead_fs=o)) for o in (0, 1))
    assert charged.graph.n_tasks - plain.graph.n_tasks == len(plain.receiver) == 24


def held(piece: LoweredSchedule, participant: int, until_fs: int) -> LoweredSchedule:
    """Hold one participant of a piece, so that it enters only at that time; return the piece."""
    piece.graph.ready_fs[piece.entry[participant]] = until_fs
    return piece


def test_a_message_waits_until_both_its_ends_have_entered():
    schedule = Schedule.build(4, 4, [Sends([0, 2], [1, 3], [0, 1])])
    for late in (0, 1):
        topology = ideal(schedule, "rank", bandwidth_Bps=RATE, latency_fs=MS)
        piece = held(lower(FabricJob(schedule, np.full(4, BLOCK), topology, np.arange(4)), joins=Joins.BOTH), late, 10 * MS)
        end = run_graph(piece.graph).end_fs
        assert (end[:2] / MS).tolist() == [12.0, 2.0]


def test_a_late_member_holds_up_only_what_it_takes_part_in():
    # 0 passes on to 1, and then to 2 on another channel; the late one is 2.
    schedule = Schedule.build(3, 2, [Sends(0, 1, 0), Sends(0, 2, 0, channel=1)])
    topology = ideal(schedule, "pair", bandwidth_Bps=RATE, latency_fs=MS)
    piece = held(lower(FabricJob(schedule, np.full(2, BLOCK), topology, np.arange(3)), joins=Joins.BOTH), 2, 9 * MS)
    end = run_graph(piece.graph).end_fs
    assert (end[piece.exit] / MS).tolist() == [10.0, 2.0, 11.0]


def test_a_participant_leaves_when_its_own_part_is_over():
    piece_of = chain(3, 1)
    topology = ideal(piece_of, "rank", bandwidth_Bps=RATE, latency_fs=MS)
    piece = lower(FabricJob(piece_of, np.array([BLOCK]), topology, np.arange(3)))
    # Rank 0 when its body has left, 1 when it has passed it on, 2 when it is delivered.
    assert (run_graph(piece.graph).end_fs[piece.exit] / MS).tolist() == [1.0, 3.0, 4.0]


def test_who_has_nothing_to_send_leaves_when_it_enters():
    schedule = Schedule.build(3, 1, [Sends(0, 1, 0)])
    topology = ideal(schedule, "rank", bandwidth_Bps=RATE, latency_fs=MS)
    piece = held(lower(FabricJob(schedule, np.array([BLOCK]), topology, np.arange(3)), joins=Joins.BOTH), 2, 5 * MS)
    assert run_graph(piece.graph).end_fs[piece.exit[2]] == 5 * MS


def test_unless_asked_for_there_are_no_entries():
    piece = lower(FabricJob(ring(3), np.full(3, 8), star("star", 3, 1e9, 0), np.arange(3)))
    assert len(piece.entry) == 0
    assert len(piece.exit) == 3


@pytest.mark.parametrize(
    ("sizes", "said"), [([1], "of 2 slots, got 1"), ([1, 2, 3], "of 2 slots, got 3"), ([1, -1], "0 or more, got -1")]
)
def test_sizes_that_are_not_the_schedules_are_refused(sizes, said):
    with pytest.raises(InputError, match=f"lower: slot_bytes must be {said}"):
        lower(FabricJob(Schedule.build(2, 2, [Sends(0, 1, 0)]), np.array(sizes), star("star", 2, 1e9, 0), np.arange(2)))


def test_a_placement_without_a_node_for_each_helper_is_refused():
    schedule = Schedule.build(2, 1, [Sends(0, 2, 0)], helpers=1)
    with pytest.raises(InputError, match="placement must be a node for each of 2 ranks and 1 helpers, got 2"):
        lower(FabricJob(schedule, np.array([1]), star("star", 2, 1e9, 0), np.arange(2)))


def test_two_ranks_that_talk_on_one_node_are_refused():
    with pytest.raises(InputError, match="no route from node 0 to node 0"):
        lower(FabricJob(Schedule.build(2, 1, [Sends(0, 1, 0)]), np.array([1]), star("star", 2, 1e9, 0), np.zeros(2, np.int32)))
