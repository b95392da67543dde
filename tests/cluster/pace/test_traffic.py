"""Requests under way on a fabric, in virtual time alone: no clock, nothing waits."""

import random
from dataclasses import replace

import numpy as np
import pytest

from emu.cluster.pace import traffic as traffic_module
from emu.cluster.pace.timeliness import Pace, Tempo
from emu.cluster.pace.traffic import Traffic, compile_solver
from emu.collective.choice import AlgorithmOnDims
from emu.fabric.engine.solver import state
from emu.fabric.lower import lower_placed
from emu.fabric.run import run_graph
from emu.topology.catalogue import build_topology
from emu.topology.fault_injection.fault import parse_fault
from emu.topology.fault_injection.machine_history import MachineHistory
from emu.topology.removal import remove_parts
from emu.topology.topology import Topology
from emu.trace.device.device import Device
from emu.trace.matching.call_batch import BatchKey
from emu.trace.matching.role_requests import MESSAGE
from emu.trace.replay.placed_request import place_request
from emu.trace.trace import Group

US = 10**9  # ticks
MB = 10**6
SWITCH = build_topology("switch:n=4,bandwidth=1GB/s,latency=500ns")
LATENCY = US  # over two links


def message(size: int) -> BatchKey:
    return BatchKey(0, None, MESSAGE, 2, 0, size, 0, b"")


def ring(n: int, size: int) -> BatchKey:
    return BatchKey(0, AlgorithmOnDims("ring"), "all_reduce", n, 0, size, size // 2, b"")


def traffic(*faults: str, topology: Topology = SWITCH, n: int = 4, launch: int = 0) -> Traffic:
    return Traffic(MachineHistory(topology, [parse_fault(text) for text in faults], n), launch)


def begun(of: Traffic, what: BatchKey, ranks: tuple[int, ...], now: int = 0, after: int | None = None) -> int:
    number = of.ask(what, ranks, now, after)
    for member in range(len(ranks)):
        of.enter(number, member, now)
    return number


def ended(of: Traffic) -> dict[tuple[int, int], int]:
    """When each member leaves each request, driven from event to event."""
    found: dict[tuple[int, int], int] = {}
    while of.next_fs < 10**18:
        found.update({each[:2]: each[2] for each in of.advance(of.next_fs)})
    return found


def test_a_message_takes_its_latency_and_its_bytes() -> None:
    of = traffic()
    begun(of, message(MB), (0, 1), now=7 * US)
    assert ended(of) == {(0, 0): 1007 * US, (0, 1): 1007 * US + LATENCY}  # the sender has sent it a latency before


def test_two_jobs_that_share_a_link_get_half_each() -> None:
    of = traffic()
    begun(of, message(MB), (0, 2))
    begun(of, message(MB), (1, 2))
    assert set(ended(of).values()) == {2000 * US, 2000 * US + LATENCY}


def test_who_comes_later_shares_from_then_on() -> None:
    of = traffic()
    begun(of, message(MB), (0, 2))
    begun(of, message(MB), (1, 2), now=500 * US)
    found = ended(of)
    assert (found[0, 0], found[1, 0]) == (1500 * US, 2000 * US)


def test_when_somebody_leaves_is_expected_as_soon_as_all_that_it_waits_for_flows_and_again_when_that_changes() -> None:
    of = traffic()
    begun(of, message(MB), (0, 2))
    assert of.expected() == []
    of.advance(US)
    assert of.expected() == [(0, 0, 1000 * US), (0, 1, 1000 * US + LATENCY)]
    begun(of, message(MB), (1, 2), now=500 * US)
    of.advance(501 * US)
    assert of.expected() == [(0, 0, 1500 * US), (0, 1, 1500 * US + LATENCY), (1, 0, 2500 * US), (1, 1, 2500 * US + LATENCY)]
    found = ended(of)
    assert (found[0, 1], found[1, 1]) == (1500 * US + LATENCY, 2000 * US + LATENCY)


def test_of_a_ring_only_the_end_of_the_last_round_is_expected() -> None:
    of, expected = traffic(), dict[tuple[int, int], set[int]]()
    begun(of, ring(4, 4 * MB), (0, 1, 2, 3))
    found: dict[tuple[int, int], int] = {}
    while of.next_fs < 10**18:
        found.update({each[:2]: each[2] for each in of.advance(of.next_fs)})
        for each in of.expected():
            expected.setdefault(each[:2], set()).add(each[2])
    assert expected == {member: {end} for member, end in found.items()}
    assert len(found) == 4


def test_a_link_that_is_halved_in_the_middle_takes_half_as_long_again() -> None:
    of = traffic("link 2-4 slow 0.5 at 0.5ms")
    begun(of, message(MB), (0, 2))
    assert ended(of)[0, 0] == 1500 * US
    assert [moment.events for moment in of.moments] == [("link 2-4 has 0.5 of its speed",)]


def test_a_link_that_is_lost_in_the_middle_is_led_round_once_the_system_has_mended_itself() -> None:
    board = build_topology("ub-mesh:board")
    between = np.isin(board.links.src, (0, 1)) & np.isin(board.links.dst, (0, 1))
    both = board, remove_parts(board, links=np.flatnonzero(between))
    laid = (lower_placed(place_request(message(10 * MB), each, np.array([[0, 1]]))) for each in both)
    alone, round_it = (int(run_graph(piece.graph).left_fs[0]) for piece in laid)
    of = traffic(f"link 0-1 at {alone / 2e9}us", topology=board, n=8)
    begun(of, message(10 * MB), (0, 1))
    lost_fs, mending_fs = alone // 2, 300 * US // 1000
    assert abs(ended(of)[0, 0] - (lost_fs + mending_fs + round_it // 2)) < US // 1000
    assert [moment.time_fs // 10 for moment in of.moments] == [lost_fs // 10, (lost_fs + mending_fs) // 10]


def test_a_ring_under_way_goes_on_round_a_lost_link_and_so_do_those_after_it() -> None:
    eight = build_topology("torus:dims=8,bandwidth=50GB/s,latency=500ns")
    whole, of = (traffic(*faults, topology=eight, n=8) for faults in ((), ("link 0-1 at 50us",)))
    for each in (whole, of):
        first = begun(each, ring(8, 80 * MB), range(8))
        begun(each, ring(8, 80 * MB), range(8), after=first)
    before, after = (ended(each) for each in (whole, of))
    lasts = {number: max(after[number, m] - before[number, m] for m in range(8)) for number in (0, 1)}
    assert 0 < lasts[0] < lasts[1]


def test_who_has_not_entered_yet_is_still_waited_for_when_routes_change() -> None:
    board = build_topology("ub-mesh:board")
    of = traffic("link 0-1 at 50us", topology=board, n=8)
    number = of.ask(ring(8, 80 * MB), range(8), 0)
    for member in range(7):
        of.enter(number, member, 0)
    assert of.advance(9_000 * US) == []
    assert len(of.moments) == 2
    of.enter(number, 7, 9_000 * US)
    assert min(ended(of).values()) > 9_000 * US


def test_a_ring_takes_its_rounds() -> None:
    of = traffic()
    begun(of, ring(4, 4 * MB), range(4))
    rounds = 6 * (1000 * US + LATENCY)
    assert set(ended(of).values()) == {rounds}


def test_members_that_come_one_after_another_leave_as_the_engine_has_it_that_knows_all_before() -> None:
    comes = [10_000 * US, 10_300 * US, 10_900 * US, 17_000 * US]
    of, what = traffic(), ring(4, 4 * MB)
    number = of.ask(what, range(4), comes[0])
    for member, now in enumerate(comes):
        of.enter(number, member, now)
    piece = lower_placed(place_request(what, SWITCH, np.arange(4)[None]))
    ready = piece.graph.ready_fs.copy()
    ready[piece.entry] = comes
    known = run_graph(replace(piece.graph, ready_fs=ready)).end_fs[piece.exit].tolist()
    assert ended(of) == {(number, member): end for member, end in enumerate(known)}
    assert min(known) - comes[3] < 6 * (1000 * US + LATENCY)  # the others have exchanged something before


def test_requests_of_one_queue_follow_one_another() -> None:
    of = traffic()
    first = begun(of, ring(4, 4 * MB), range(4))
    begun(of, ring(4, 4 * MB), range(4), after=first)
    rounds = 6 * (1000 * US + LATENCY)
    assert {end for (number, _), end in ended(of).items() if number} == {2 * rounds}


def test_each_member_of_a_queue_enters_its_next_request_once_it_has_left_the_one_before() -> None:
    """The root of a reduction leaves last, when the others have long been waiting for it to send."""
    up, down = (BatchKey(0, AlgorithmOnDims("binomial"), name, 4, 0, 4 * MB, 2 * MB, b"") for name in ("reduce", "broadcast"))
    alone = []
    for what in (up, down):
        of = traffic()
        begun(of, what, range(4))
        alone.append(ended(of))
    came_fs = alone[0][0, 0]
    assert came_fs > max(alone[0][0, member] for member in (1, 2, 3))
    of = traffic()
    first = begun(of, up, range(4))
    begun(of, down, range(4), after=first)
    behind = {(1, member): came_fs + alone[1][0, member] for member in range(4)}
    assert ended(of) == {**alone[0], **behind}
    of, sent = traffic(), {0: 1000 * US, 1: 3000 * US + LATENCY, 2: 4000 * US + 2 * LATENCY}
    second = begun(of, message(2 * MB), (0, 1), after=begun(of, message(MB), (0, 1)))
    begun(of, message(MB), (0, 1), after=second)  # it waits for its receiver, too
    assert ended(of) == {(n, member): sent[n] + member * LATENCY for n in sent for member in (0, 1)}


def test_who_has_left_already_waits_for_nothing() -> None:
    of = traffic()
    first = begun(of, message(MB), (0, 1))
    of.advance(1000 * US)
    begun(of, message(MB), (0, 1), now=5000 * US, after=first)
    assert {each: end for each, end in ended(of).items() if each[0]} == {(1, 0): 6000 * US, (1, 1): 6000 * US + LATENCY}


def test_who_leaves_is_known_a_latency_ahead() -> None:
    of = traffic()
    begun(of, message(MB), (0, 1))
    assert [each[2] for each in of.advance(1000 * US)] == [1000 * US, 1000 * US + LATENCY]


def test_a_long_run_takes_no_more_room_than_a_short_one() -> None:
    of = traffic()
    for i in range(120):
        begun(of, ring(4, 4 * MB), range(4), now=i * 10_000 * US)
        assert len(ended(of)) == 4
        assert i or of._state.has_left.sum() >= 4  # a few that have left stay: to take them out takes time
    assert len(of._state.has_left) < 2 * 4096


def asked_at_random(seed: int, *faults: str, topology: Topology = SWITCH, n: int = 4) -> dict[tuple[int, int], int]:
    """When each member leaves each of thirty requests of pairs and of all, some of them behind others, come one by one."""
    random_, found = random.Random(seed), dict[tuple[int, int], int]()
    of, now, latest = traffic(*faults, topology=topology, n=n), 0, dict[tuple[int, ...], int]()
    for _ in range(30):
        ranks = tuple(random_.sample(range(n), random_.choice((2, n))))
        what = ring(n, random_.randrange(4, 5000) * 1000) if len(ranks) == n else message(random_.randrange(1, 2000) * 1000)
        now = max(now + random_.randrange(2000) * US, of._state.now_fs)
        number = of.ask(what, ranks, now, latest.get(ranks) if random_.random() < 0.5 else None)
        latest[ranks] = number
        for member in random_.sample(range(len(ranks)), len(ranks)):
            of.enter(number, member, now + random_.randrange(300) * US)
        found.update({each[:2]: each[2] for each in of.advance(now)})
    return {**found, **ended(of)}


@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize(
    ("line", "n", "faults"),
    [
        ("switch:n=4,bandwidth=1GB/s,latency=500ns", 4, ("link 0-4 slow 0.5 at 3ms", "npu 3 slow 0.5 at 9ms")),
        ("torus:dims=5,bandwidth=1GB/s,latency=500ns", 5, ("link 0-1 at 9ms", "link 2-3 slow 0.25 at 12ms")),
    ],
)
def test_what_is_forgotten_changes_no_moment(
    seed: int, line: str, n: int, faults: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Neither of tasks that have left nor of how a request is laid; tasks move to other links in between."""
    topology = build_topology(line)
    plain, faulty = (asked_at_random(seed, *of, topology=topology, n=n) for of in ((), faults))
    assert len(plain) == len(faulty) >= 60
    assert plain != faulty
    monkeypatch.setattr(traffic_module, "_MOST_GONE", 1)
    monkeypatch.setattr(traffic_module, "_KEPT", 1)
    assert asked_at_random(seed, topology=topology, n=n) == plain
    assert asked_at_random(seed, *faults, topology=topology, n=n) == faulty


def test_groups_of_one_axis_that_share_no_rank_have_one_communicator() -> None:
    of = traffic()
    groups = [Group("tp", (0, 1)), Group("dp", (0, 2)), Group("tp", (2, 3)), Group("tp", (1, 2)), Group("tp", (0, 1))]
    assert [of.communicator(group) for group in groups] == [0, 1, 0, 2, 0]


def test_each_member_is_launched_once_and_nothing_is_sent_before() -> None:
    of = traffic(launch=30 * US)
    begun(of, message(MB), (0, 1))
    assert ended(of) == {(0, 0): 1030 * US, (0, 1): 1030 * US + LATENCY}
    of = traffic(launch=30 * US)
    first = begun(of, ring(4, 4 * MB), range(4))
    begun(of, ring(4, 4 * MB), range(4), after=first)
    once = 30 * US + 6 * (1000 * US + LATENCY)
    assert ended(of) == {(number, member): (number + 1) * once for number in (0, 1) for member in range(4)}


def test_the_launch_of_a_paced_run_is_that_of_its_device() -> None:
    device = Device("slow", {"float32": 1e12}, 1e12, launch_overhead_s=1e-3, request_overhead_s=30e-6)
    of = Pace(Tempo(1000, device, "float32"), SWITCH).traffic(4)
    begun(of, message(MB), (0, 1))
    assert ended(of)[0, 0] == 1030 * US


def test_who_enters_after_something_has_happened_is_later_than_it_came_by_what_has_passed() -> None:
    of = traffic()
    begun(of, message(MB), (0, 2))
    other = of.ask(message(MB), (1, 3), 0)
    of.advance(1000 * US)  # the first sender has left
    stands = of._state.now_fs
    assert stands >= 1000 * US
    assert of.enter(other, 0, 400 * US) == stands - 400 * US
    assert of.enter(other, 1, stands + 70 * US) == 0


def compiled() -> dict[str, list[object]]:
    """The argument types for which each function of the solver has machine code."""
    return {name: list(of.signatures) for name, of in vars(state).items() if hasattr(of, "signatures")}


def test_the_solver_is_compiled_for_what_ranks_ask_of_it() -> None:
    """Whichever comes first, the other compiles nothing more."""
    for _ in range(2):
        compile_solver()
        before = compiled()
        begun(of := traffic(), ring(4, MB), range(4))
        assert len(ended(of)) == 4
        assert compiled() == before
    assert sum(map(bool, before.values())) > 3


def test_members_that_leave_are_told_in_the_order_of_their_ticks() -> None:
    of = traffic()
    begun(of, message(2 * MB), (0, 1))
    begun(of, message(MB), (2, 3))
    left = [(request, member) for request, member, _ in of.advance(10_000 * US)]
    assert left == [(1, 0), (1, 1), (0, 0), (0, 1)]
