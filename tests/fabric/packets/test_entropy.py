"""Entropy values of packets: how senders go through them, how switches spread them, and which values are skipped."""

from dataclasses import replace

import numpy as np
import pytest

from emu.arrays import F64
from emu.errors import InputError
from emu.fabric.engine.packets.event_wheel import take_packet
from emu.fabric.engine.packets.packet_arrays import lay_out
from emu.fabric.engine.packets.packet_delivery import be_told
from emu.fabric.engine.packets.packet_layout import AGAIN, AT_END, DATA, MARKED, NACK, NONE, VALUE
from emu.fabric.engine.packets.packet_network import PacketNetwork, network_of
from emu.fabric.engine.packets.packet_ports import enqueue, make_packet
from emu.fabric.engine.packets.packet_routing import MOST_PENALTY, begin_spread, judge_value, next_value
from emu.fabric.engine.packets.packet_run import run_packets, ways_of
from emu.fabric.graph import Graph
from tests.fabric.packets.packet_cases import TREE, messages

MIB = 2**20
ACROSS = messages(TREE, [(0, 15, 4 * MIB)])
UPLINKS = np.flatnonzero((TREE.links.src == 16) & (TREE.links.dst >= 20))  # from the first leaf to the two spines


def walk(route: str, n: int, judged: dict[int, list[tuple[int, bool]]] | None = None, values: int = 8) -> list[int]:
    """The first n entropy values of a message; before the i-th, acknowledgements with the flags of `judged` come."""
    network = network_of("ultra-ethernet", route=route, entropies=values)
    engine = lay_out(ACROSS, TREE, network, 3, ways_of(ACROSS, TREE, network))
    begin_spread(engine, 0)
    found = []
    for i in range(n):
        for flags, is_trimmed in (judged or {}).get(i, []):
            judge_value(engine, 0, flags, is_trimmed)
        found.append(int(next_value(engine, 0)))
    return found


def carried(graph: Graph, network: PacketNetwork, seed: int = 0) -> F64:
    """The bytes that each uplink of the first leaf carried."""
    run = run_packets(graph, TREE, network, seed)
    return np.asarray(run.timeline.carried_bytes[UPLINKS])


@pytest.mark.parametrize("route", ["entropy", "entropy-avoid"])
def test_each_round_has_all_values_once_in_an_order_of_its_own(route: str) -> None:
    found = walk(route, 80)
    rounds = [tuple(found[i : i + 8]) for i in range(0, 80, 8)]
    assert all(sorted(one) == list(range(8)) for one in rounds)
    assert len(set(rounds)) > 1


def test_a_value_is_skipped_as_often_as_it_has_penalties() -> None:
    usual = walk("entropy-avoid", 8)
    bad = usual[0]
    for flags, is_trimmed, times in (
        (MARKED, False, 1),
        (0, True, 4),
        (MARKED | AT_END, True, 1),
        (AT_END, True, 0),
        (0, False, 0),
    ):
        found = walk("entropy-avoid", 70, {8: [(flags + VALUE * bad, is_trimmed)]})
        assert found[:8] == usual
        before = found[8 : 8 + 7 * times]
        assert bad not in before
        assert bad in found[8 + 7 * times : 16 + 7 * times]
    assert walk("entropy", 70, {8: [(MARKED + VALUE * bad, False)]}) == walk("entropy", 70)


def test_penalties_have_a_limit_and_do_not_stop_a_message() -> None:
    every = [(VALUE * value, True) for value in range(8) for _ in range(20)]
    found = walk("entropy-avoid", 400, {0: every})
    assert len(found) == 400
    assert sorted(set(found)) == list(range(8))
    one = walk("entropy-avoid", 400, {0: [(VALUE * 3, True)] * 20})
    assert one.index(3) in range(7 * MOST_PENALTY, 7 * (MOST_PENALTY + 2))  # twice in one step, it loses one penalty only


def test_switches_send_one_value_one_way_and_many_values_all_ways() -> None:
    quiet = {"congestion": "none", "lossless": "none", "queue_bytes": 2**31}
    one = carried(ACROSS, network_of("ultra-ethernet", route="entropy", entropies=1, **quiet))
    many = [carried(ACROSS, network_of("ultra-ethernet", route="entropy", **quiet), seed) for seed in range(8)]
    assert sorted(one > 0) == [False, True]
    shares = np.array([both.max() / both.sum() for both in many])
    assert (shares < 0.5 + 4 * 0.5 / 16).all()  # 256 values: a standard deviation is 1/32 of them
    assert len(set(shares.tolist())) > 1


def test_senders_leave_a_slow_way_to_others_if_they_heed_marks() -> None:
    slow = TREE.links.bandwidth_Bps.copy()
    slow[UPLINKS[0]] /= 8
    graph = replace(ACROSS, capacity_Bps=slow)
    shares, ends = [], []
    for route in ("entropy", "entropy-avoid"):
        run = run_packets(graph, TREE, network_of("ultra-ethernet", route=route), 1)
        both = run.timeline.carried_bytes[UPLINKS]
        shares.append(both[0] / both.sum())
        ends.append(run.timeline.end_fs[0])
    assert shares[1] < 0.85 * shares[0]
    assert ends[1] < 0.9 * ends[0]


@pytest.mark.parametrize("entropies", [3, 0, 2**17])
def test_the_number_of_values_is_a_power_of_two(entropies: int) -> None:
    with pytest.raises(InputError, match="network: entropies must be"):
        network_of("ultra-ethernet", entropies=entropies)


def test_of_a_packet_that_finds_a_queue_full_and_the_last_one_in_it_either_is_trimmed() -> None:
    network = network_of("ultra-ethernet", queue_bytes=2 * 4160)
    trimmed, kept = [], []
    for seed in range(20):
        engine = lay_out(ACROSS, TREE, network, seed, ways_of(ACROSS, TREE, network))
        for number in range(3):
            p = take_packet(engine)
            for name, value in (("kind", DATA), ("bytes", 4160), ("number", number), ("flags", 0), ("state", NONE)):
                engine.packets[name][p] = value
            enqueue(engine, 0, p)
        queue, numbers = engine.queues[0], engine.packets["number"]
        trimmed.append(int(numbers[queue["own_first"]]))
        kept.append([int(numbers[queue["first"]]), int(numbers[queue["last"]])])
        assert queue["bytes"] == 2 * 4160 + 64
        assert engine.packets["flags"][queue["own_first"]] & AT_END
    assert set(trimmed) == {1, 2}
    assert all(sorted([one, *two]) == [0, 1, 2] for one, two in zip(trimmed, kept, strict=True))


def test_a_packet_that_is_sent_again_asks_for_an_acknowledgement() -> None:
    network = network_of("ultra-ethernet")
    engine = lay_out(ACROSS, TREE, network, 3, ways_of(ACROSS, TREE, network))
    engine.tasks["n_sent"][0] = 5
    be_told(engine, 0, NACK, 4096, 0, 0)
    sent = [make_packet(engine, int(engine.entry_start[0]), 0, 0) for _ in range(2)]
    assert [bool(engine.packets["flags"][p] & AGAIN) for p in sent] == [True, False]
