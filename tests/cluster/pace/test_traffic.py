"""Requests under way on a fabric, in virtual time alone: no clock, nothing waits."""

from dataclasses import replace

import numpy as np
import pytest

from emu.cluster.pace.traffic import Traffic
from emu.collective.algorithm import Served
from emu.errors import InputError
from emu.fabric.lower import lowered
from emu.fabric.run import CapacityEvent, run
from emu.topology.catalogue import build_topology
from emu.trace.batch import What
from emu.trace.replay import lay_request
from emu.trace.requests import MESSAGE
from emu.trace.trace import Group

US = 10**9  # ticks
MB = 10**6
SWITCH = build_topology("switch:n=4,bandwidth=1GB/s,latency=500ns")
LATENCY = US  # over two links


def message(size: int) -> What:
    return What(0, None, MESSAGE, 2, 0, size, 0, b"")


def ring(n: int, size: int) -> What:
    return What(0, Served("ring"), "all_reduce", n, 0, size, size // 2, b"")


def traffic(n: int = 4, changes: tuple[CapacityEvent, ...] = ()) -> Traffic:
    return Traffic(SWITCH, np.arange(n), changes=changes)


def begun(of: Traffic, what: What, ranks: tuple[int, ...], now: int = 0, after: int | None = None) -> int:
    number = of.ask(what, ranks, now, after)
    for member in range(len(ranks)):
        of.enter(number, member, now)
    return number


def ended(of: Traffic) -> dict[tuple[int, int], int]:
    """When each member leaves each request, driven from event to event."""
    found: dict[tuple[int, int], int] = {}
    while of.next_fs < 10**18:
        found.update({each[:2]: each.end_fs for each in of.advance(of.next_fs)})
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


def test_a_link_that_is_halved_in_the_middle_takes_half_as_long_again() -> None:
    into_2 = int(np.flatnonzero(SWITCH.links.dst == 2)[0])
    of = traffic(changes=(CapacityEvent(into_2, 500 * US, 0.5e9),))
    begun(of, message(MB), (0, 2))
    assert ended(of)[0, 0] == 1500 * US


def test_a_change_of_a_link_that_is_not_there_is_refused() -> None:
    with pytest.raises(InputError, match="capacity event: link must be 0 to 7, got 8"):
        traffic(changes=(CapacityEvent(8, 0, 1.0),))


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
    piece = lowered(lay_request(what, SWITCH, np.arange(4)[None]))
    ready = piece.graph.ready_fs.copy()
    ready[piece.entry] = comes
    known = run(replace(piece.graph, ready_fs=ready)).end_fs[piece.exit].tolist()
    assert ended(of) == {(number, member): end for member, end in enumerate(known)}
    assert min(known) - comes[3] < 6 * (1000 * US + LATENCY)  # the others have exchanged something before


def test_requests_of_one_queue_follow_one_another() -> None:
    of = traffic()
    first = begun(of, ring(4, 4 * MB), range(4))
    begun(of, ring(4, 4 * MB), range(4), after=first)
    rounds = 6 * (1000 * US + LATENCY)
    assert {end for (number, _), end in ended(of).items() if number} == {2 * rounds}


def test_who_leaves_is_known_a_latency_ahead() -> None:
    of = traffic()
    begun(of, message(MB), (0, 1))
    assert [each.end_fs for each in of.advance(1000 * US)] == [1000 * US, 1000 * US + LATENCY]


def test_a_long_run_takes_no_more_room_than_a_short_one() -> None:
    of = traffic()
    for i in range(120):
        begun(of, ring(4, 4 * MB), range(4), now=i * 10_000 * US)
        assert len(ended(of)) == 4
    assert len(of._state.has_left) < 2 * 4096


def test_groups_of_one_axis_that_share_no_rank_have_one_communicator() -> None:
    of = traffic()
    groups = [Group("tp", (0, 1)), Group("dp", (0, 2)), Group("tp", (2, 3)), Group("tp", (1, 2)), Group("tp", (0, 1))]
    assert [of.communicator(group) for group in groups] == [0, 1, 0, 2, 0]
