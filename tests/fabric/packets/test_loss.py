"""Ports that drop packets, what is sent again, and senders with rates or windows that heed losses."""

import re
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from emu.errors import InputError, RunError
from emu.fabric.engine.packets.congestion import FLOW, Senders, acked_bytes, lost_bytes, restart_window
from emu.fabric.engine.packets.packet_arrays import lay_out
from emu.fabric.engine.packets.packet_network import NETWORKS, network_of
from emu.fabric.engine.packets.packet_run import run_packets, ways_of
from emu.fabric.engine.packets.rate_control import PACE, Pacing
from emu.fabric.engine.packets.sender_arrays import control_of
from emu.fabric.engine.packets.ways import path_ways
from emu.fabric.packet_fabric import PacketFabric, packet_fabric
from emu.topology.catalogue import build_topology
from tests.fabric.packets.packet_cases import PACKET_FS, RING, STAR, TREE, Sent, messages, rounds_of_ring

MIB = 2**20
US = 10**9
LOSSY = network_of("roce", lossless="drop", queue_bytes=16 * 4160, timeout_fs=200 * US)
INCAST = [(src, 0, MIB) for src in range(1, 8)]
sizes = st.integers(1, 60_000)
sent_to_one = st.lists(st.tuples(st.integers(0, 4), st.just(5), sizes), min_size=1, max_size=16)


@settings(max_examples=1000, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    sent=sent_to_one,
    room=st.integers(3, 8),
    recovery=st.sampled_from(["selective", "go-back-n"]),
    control=st.sampled_from(["none", "window", "cubic", "dcqcn"]),
    fabric=st.sampled_from([STAR, TREE]),
    route=st.sampled_from(["hash", "random", "in-turn"]),
    queues=st.booleans(),
)
def test_what_is_dropped_is_sent_again_until_every_byte_is_there(
    sent: list[Sent], room, recovery, control, fabric, route, queues
) -> None:
    if control == "cubic":
        recovery = "selective"
    network = replace(
        LOSSY,
        queue_bytes=room * 4160,
        recovery=recovery,
        congestion=control,
        route=route,
        window_bytes=2**15,
        reorder_packets=4,
        host_queue="fifo" if queues and control in ("window", "cubic") and route == "hash" else "turns",
    )
    run = run_packets(messages(fabric, sent), fabric, network, len(sent), most_events=2_000_000)
    assert run.n_lost == 0
    assert (run.timeline.start_fs < run.timeline.left_fs).all()
    assert (run.timeline.left_fs < run.timeline.end_fs).all()
    came = run.timeline.carried_bytes[fabric.links.dst == 5].sum()
    whole = sum(size + 64 * -(-size // 4096) for _, _, size in sent)
    assert came >= whole
    if recovery == "selective":
        assert came == whole  # what is lost never gets there, and nothing else is sent again


@pytest.mark.parametrize(("recovery", "again"), [("selective", "it is"), ("go-back-n", "all from there on is")])
def test_the_report_says_what_is_sent_again(recovery: str, again: str) -> None:
    [said] = [line for line in PacketFabric(replace(LOSSY, recovery=recovery)).assumptions if "queue full" in line]
    assert said == f"what finds a queue full is lost; {again} sent again, after 200 us at the latest; no congestion control"


def unsourced(**settings) -> str:
    """The line of the report that names the settings of RoCE without a source."""
    return next(line for line in PacketFabric(network_of("roce", **settings)).assumptions if "no public source" in line)


def test_the_report_names_settings_without_a_source_that_are_used_and_not_given() -> None:
    assert "timeout" not in unsourced()
    assert "mark" not in unsourced()
    assert "timeout_fs" in unsourced(lossless="drop")
    assert "pause" not in unsourced(lossless="drop")
    assert "timeout" not in unsourced(lossless="drop", timeout_fs=10 * US)
    assert "mark_from_bytes, mark_to_bytes" in unsourced(congestion="dcqcn")


def test_without_losses_all_that_is_sent_again_is_nothing() -> None:
    graph = messages(STAR, [(0, 1, MIB), (2, 3, MIB)])
    plain = run_packets(graph, STAR, NETWORKS["roce"])
    for recovery in ("selective", "go-back-n"):
        run = run_packets(graph, STAR, replace(LOSSY, recovery=recovery))
        assert (run.n_trimmed, run.n_resent) == (0, 0)
        assert run.timeline.end_fs.tolist() == plain.timeline.end_fs.tolist()


def test_a_lost_last_packet_is_sent_again_when_the_time_is_out() -> None:
    network = replace(LOSSY, queue_bytes=4160)
    run = run_packets(messages(STAR, [(src, 0, 4096) for src in range(1, 4)]), STAR, network)
    assert run.n_trimmed > 0
    first, *others = sorted(run.timeline.end_fs.tolist())
    assert first < 3 * US
    assert min(others) > 200 * US


def test_who_goes_back_sends_more_again_than_what_was_lost() -> None:
    network = replace(LOSSY, recovery="go-back-n", congestion="window", window_bytes=2**17)
    run = run_packets(messages(STAR, INCAST), STAR, network)
    assert run.n_resent > 1.2 * run.n_trimmed > 0
    again = run.n_packet_hops / (2 * 7 * 256)
    assert again > 1
    assert run.timeline.end_fs.max() > run_packets(messages(STAR, INCAST), STAR, NETWORKS["roce"]).timeline.end_fs.max()


def test_what_is_there_already_is_acknowledged_to_a_sender_that_went_back() -> None:
    """Where packets have several paths, most of what is sent again is there, and would be in flight forever."""
    network = replace(LOSSY, recovery="go-back-n", route="in-turn", reorder_packets=8, congestion="window", window_bytes=2**15)
    fabric = build_topology("fat-tree:radix=4")
    graph = messages(fabric, [(r, (r + (4 if r % 2 else 5)) % 8, MIB) for r in range(8)])
    ends = []
    for room in (25_000, 2**25):
        run = run_packets(graph, fabric, replace(network, queue_bytes=room, timeout_fs=10_000 * US), 1)
        ends.append(run.timeline.end_fs.max())
        assert (run.n_resent > 0) == (room == 25_000)
    assert ends[0] < 1.2 * ends[1]


def test_an_acknowledgement_of_what_a_sender_has_forgotten_makes_its_window_no_larger() -> None:
    flows, control = np.zeros(1, FLOW), control_of(messages(STAR, INCAST), STAR, replace(LOSSY, congestion="window"))
    flows["window"], flows["in_flight"] = 8 * 4096, 4096
    senders = Senders(flows, control, Pacing(np.zeros(1, PACE), 1))
    for _ in range(2):
        acked_bytes(senders, 0, 4096, 0, False, 0)
    assert flows["in_flight"][0] == 0


def test_a_message_that_sends_the_same_packets_again_and_again_is_named_with_the_port_that_loses_them() -> None:
    network = replace(LOSSY, queue_bytes=4160, recovery="go-back-n", route="in-turn", reorder_packets=4)
    graph = messages(TREE, [(src, 5, 60_000) for src in range(5)])
    with pytest.raises(RunError) as given_up:
        run_packets(graph, TREE, network, seed=1, most_events=5_000_000)
    line = str(given_up.value)
    assert "the message of 58.59 KiB from NPU 2 to NPU 5 has sent the same packets 1000 times, and none of them came" in line
    assert re.search(r"it lost the last one at switch \d+ to (NPU 5|switch \d+); take larger queues", line)


@pytest.mark.parametrize("lossless", ["drop", "trim"])
def test_a_queue_without_room_for_one_packet_is_refused_where_it_would_lose_all(lossless: str) -> None:
    network = replace(LOSSY, lossless=lossless, queue_bytes=4159)
    with pytest.raises(InputError, match="the room of a queue must be at least a packet or cell with its headers, 4160 B"):
        run_packets(messages(STAR, INCAST), STAR, network)


@pytest.mark.parametrize("control", ["cubic", "window"])
def test_a_packet_that_is_lost_twice_is_sent_a_third_time_after_a_timeout_alone(control: str) -> None:
    """Where seven windows overrun a queue, all senders but the luckiest lose what they send again, too."""
    network = replace(LOSSY, queue_bytes=64 * 4160, congestion=control, window_bytes=32 * 4096)
    for timeout_fs in (200 * US, 20_000 * US):
        first, *others = sorted(
            run_packets(messages(STAR, INCAST), STAR, replace(network, timeout_fs=timeout_fs)).timeline.end_fs
        )
        assert first < 50 * US
        assert min(others) > timeout_fs


def test_a_window_begins_again_with_one_packet_after_a_timeout_and_doubles_to_its_threshold() -> None:
    flows, control = np.zeros(1, FLOW), control_of(messages(STAR, INCAST), STAR, replace(LOSSY, congestion="cubic"))
    flows["window"], flows["largest"], flows["in_flight"] = 100 * 4096, 200 * 4096, 4096
    senders = Senders(flows, control, Pacing(np.zeros(1, PACE), 1))
    restart_window(senders, 0)
    lost_bytes(senders, 0, 4096, 0, 0)
    assert flows["window"][0] == 4096
    for before in (1, 2, 4, 8, 16, 32, 64):
        flows["in_flight"] = before * 4096
        acked_bytes(senders, 0, before * 4096, 0, False, 0)
        assert flows["window"][0] == 2 * before * 4096
    acked_bytes(senders, 0, 4096, 0, False, 0)
    assert flows["window"][0] == pytest.approx(128 * 4096 + 9 / 17 * 4096 / 128)


def test_a_deadlock_is_found_although_senders_have_timers() -> None:
    network = network_of("roce", pause_above_bytes=4096, resume_below_bytes=4096, recovery="go-back-n", timeout_fs=20 * US)
    graph = messages(RING, [(i, (i + 2) % 6, 4 * MIB) for i in range(6)])
    with pytest.raises(RunError, match="wait for one another in a circle"):
        run_packets(graph, RING, network, ways=path_ways(graph, RING.links))


def test_windows_that_heed_losses_lose_fewer_packets() -> None:
    graph = messages(STAR, INCAST)
    network = replace(LOSSY, congestion="window", window_bytes=2**17, host_queue="fifo")
    fixed, cubic = (run_packets(graph, STAR, replace(network, congestion=control)) for control in ("window", "cubic"))
    assert 0 < cubic.n_trimmed < fixed.n_trimmed / 2


def test_acknowledgements_wait_behind_data_where_a_host_has_one_queue() -> None:
    graph = rounds_of_ring(STAR, 4, MIB)
    network = network_of("roce", congestion="window", window_bytes=2**18, packets_per_ack=8)
    turns, fifo = (run_packets(graph, STAR, replace(network, host_queue=queue)).timeline.end_s for queue in ("turns", "fifo"))
    assert 1.01 < fifo / turns < 1.3


def test_a_rate_is_the_links_without_marks_and_half_of_it_after_one() -> None:
    graph = messages(STAR, [(0, 1, MIB)])
    paced = network_of("roce", congestion="dcqcn")
    assert run_packets(graph, STAR, paced).timeline.end_fs[0] == run_packets(graph, STAR, NETWORKS["roce"]).timeline.end_fs[0]
    both = messages(STAR, [(1, 0, 2 * MIB), (2, 0, 2 * MIB)])
    run = run_packets(both, STAR, replace(paced, mark_from_bytes=4160, mark_to_bytes=4160))
    fair_fs = 4 * 256 * 2 * PACKET_FS * 4160 / 4096
    assert run.timeline.end_fs.max() > 1.3 * fair_fs / 2  # both are cut at one time, so that the port is not full
    assert np.diff(run.timeline.end_fs) == pytest.approx(0, abs=US)


REFUSED = {
    "acks must be in-order or any": {"lossless": "drop", "acks": "none"},
    "recovery must be selective with congestion=nscc": {"recovery": "go-back-n", "congestion": "nscc"},
    "recovery must be selective where packets are trimmed": {"recovery": "go-back-n", "lossless": "trim", "queue_bytes": 2**16},
    "route must be another one where packets are dropped": {"lossless": "drop", "route": "least-loaded"},
    "host_queue must be turns, or fifo with congestion=window": {"host_queue": "fifo"},
    "mark_from_bytes must be at most mark_to_bytes, 4160": {"mark_to_bytes": 4160},
    "timeout_fs must be 1 or more": {"timeout_fs": 0},
    "recovery must be one of selective, go-back-n": {"recovery": "none"},
}


@pytest.mark.parametrize("line", REFUSED)
def test_settings_of_losses_that_do_not_fit_are_refused(line: str) -> None:
    with pytest.raises(InputError, match=line):
        network_of("roce", **REFUSED[line])


UNUSED = {
    "roce:mark_from=1KiB": "mark_from_bytes must be left out with congestion=none, got 1024; only congestion=nscc, dctcp or",
    "roce:congestion=window,window=16KiB,window_round_trips=9": "window_round_trips must be left out with congestion",
    "roce:round_trip=20us": "round_trip_fs must be left out with congestion=none",
    "ultra-ethernet:congestion=none,route=entropy,mark_to_round_trips=2": "mark_to_round_trips must be left out",
    "roce:window=64KiB": "window_bytes must be left out with congestion=none",
    "roce:credit=64KiB": "credit_bytes must be left out with lossless=pause",
    "infiniband:pause_above=64KiB": "pause_above_bytes must be left out with lossless=credits",
    "infiniband:queue=64KiB": "queue_bytes must be left out with lossless=credits",
    "roce:timeout=1ms": "timeout_fs must be left out with lossless=pause, got 1000000000000; only lossless=drop",
    "roce:raise=1MB,congestion=window": "raise_bytes must be left out with congestion=window",
    "roce:reorder_packets=8": "reorder_packets must be left out with route=hash",
    "nvlink:packets_per_ack=2": "packets_per_ack must be left out with acks=none",
    "roce:congestion=dctcp,mark_to_round_trips=2": "mark_to_round_trips must be left out with congestion=dctcp",
}


@pytest.mark.parametrize("network", UNUSED)
def test_a_setting_that_its_network_does_not_use_is_refused(network: str) -> None:
    with pytest.raises(InputError, match=re.escape(UNUSED[network])):
        packet_fabric("packets", network)


@pytest.mark.parametrize(
    "network",
    [
        "ultra-ethernet:window=64KiB,window_round_trips=9",
        "roce:congestion=window,window_round_trips=9",
        "roce:lossless=trim,queue_round_trips=1,round_trip=20us",
        "ultra-ethernet:congestion=none,mark_from_round_trips=0.1",
        "ultra-ethernet:congestion=none,mark_to_round_trips=0.9,round_trip=20us",
        "roce:route=entropy-avoid,mark_from=4160B",
    ],
)
def test_a_setting_that_its_network_uses_is_taken(network: str) -> None:
    assert packet_fabric("packets", network) is not None


def marked(topology, **settings):
    """Return how many queues of the engine mark packets."""
    graph, network = messages(topology, [(0, 1, MIB)]), network_of("roce", **settings)
    queues = lay_out(graph, topology, network, 0, ways_of(graph, topology, network)).queues
    return int((queues["mark_to"] < 2**40).sum())


def test_queues_mark_packets_where_a_sender_heeds_marks() -> None:
    assert marked(TREE) == marked(TREE, congestion="window") == marked(TREE, route="entropy") == 0
    assert marked(TREE, congestion="dcqcn") == marked(TREE, route="entropy-avoid") == len(TREE.links)
    assert marked(TREE, route="entropy-avoid", mark_from_bytes=0, mark_to_bytes=0, mark_to_round_trips=0.5) == len(TREE.links)


def test_a_timeout_shorter_than_a_round_trip_is_refused() -> None:
    network = replace(LOSSY, timeout_fs=1)
    with pytest.raises(
        InputError, match=r"network: timeout must be at least the longest round trip without load, 2\.\d+ us, got"
    ):
        run_packets(messages(STAR, INCAST), STAR, network)
