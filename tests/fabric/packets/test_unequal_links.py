"""Packets on links of unequal rate: what is set in round trips, and rates, are those of the own link of a sender or a queue."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from emu.errors import InputError
from emu.fabric.engine.packets.packet_arrays import lay_out
from emu.fabric.engine.packets.packet_network import NETWORKS, PacketNetwork, network_of
from emu.fabric.engine.packets.packet_run import run_packets, ways_of
from emu.topology.catalogue import build_topology
from tests.fabric.packets.packet_cases import STAR, chain, messages

MIB, US = 2**20, 10**9
GO_BACK = network_of("roce", lossless="drop", recovery="go-back-n", queue_bytes=2**22)
SERVERS = build_topology("servers:nodes=4,gpus=2,nvlink=450GB/s,nic=50GB/s,network=switch")
INCAST = [(2, 0, MIB), (4, 0, MIB), (6, 0, MIB)]  # over NICs
BESIDE = (2, 3, 4096)  # over NVLink
WAYS = [(0, 2, 4096), (2, 0, 4096)]  # over a chain, and back


@pytest.mark.parametrize(
    "network",
    [network_of("ultra-ethernet", route="hash"), NETWORKS["tcp"], network_of("roce", congestion="dcqcn")],
    ids=lambda network: network.kind,
)
def test_a_message_on_faster_links_of_its_own_changes_nothing_on_slower_ones(network: PacketNetwork) -> None:
    alone, beside = (run_packets(messages(SERVERS, sent), SERVERS, network) for sent in (INCAST, [*INCAST, BESIDE]))
    assert beside.timeline.end_fs[:3].tolist() == alone.timeline.end_fs.tolist()
    assert beside.n_trimmed == alone.n_trimmed
    assert beside.queue_bytes.max() == alone.queue_bytes.max()


def test_windows_rooms_and_marks_are_round_trips_of_their_own_links() -> None:
    graph, network = messages(SERVERS, [*INCAST, BESIDE]), NETWORKS["ultra-ethernet"]
    engine = lay_out(graph, SERVERS, network, 0, ways_of(graph, SERVERS, network))
    assert engine.senders.flows["window"][3] == pytest.approx(9 * engine.senders.flows["window"][0])
    order = np.argsort(SERVERS.links.bandwidth_Bps, kind="stable")
    for name in ("room", "mark_from", "mark_to"):
        nic, nvlink = engine.queues[name][order[0]], engine.queues[name][order[-1]]
        assert 9 * (nic - 2 * 4160) < nvlink <= 9 * nic


def test_a_rate_falls_from_that_of_the_senders_own_link() -> None:
    graph, network = messages(SERVERS, [*INCAST, BESIDE]), network_of("roce", congestion="dcqcn")
    engine = lay_out(graph, SERVERS, network, 0, ways_of(graph, SERVERS, network))
    paces = engine.senders.pacing.paces
    assert paces["rate"].tolist() == pytest.approx([5e-5, 5e-5, 5e-5, 4.5e-4])
    assert paces["link"].tolist() == paces["rate"].tolist()


def test_a_timeout_is_no_shorter_than_a_round_trip_over_the_slowest_links(tmp_path: Path) -> None:
    topology = chain(tmp_path, "100GB/s", "1GB/s")
    graph = messages(topology, [(0, 2, 4096)])
    longest_us = 2 + (4160 + 64) * (1 / 1000 + 1 / 100_000)
    with pytest.raises(InputError, match=rf"at least the longest round trip without load, {longest_us:.4g} us, got '3 us'"):
        run_packets(graph, topology, replace(GO_BACK, timeout_fs=3 * US))
    run = run_packets(graph, topology, replace(GO_BACK, timeout_fs=int(longest_us * US) + 1))
    assert run.n_resent == 0


def test_a_timeout_is_no_shorter_than_the_round_trip_of_a_cell() -> None:
    graph, cells = messages(STAR, [(0, 1, MIB)]), replace(GO_BACK, cell_bytes=2**18)
    with pytest.raises(InputError, match="timeout must be at least the longest round trip without load"):
        run_packets(graph, STAR, replace(cells, timeout_fs=5 * US))
    assert run_packets(graph, STAR, replace(cells, timeout_fs=13 * US)).n_resent == 0


def test_a_timeout_is_no_shorter_than_what_switches_take_both_ways() -> None:
    graph = messages(STAR, [(0, 1, 4096)])
    with pytest.raises(InputError, match="timeout must be at least the longest round trip without load"):
        run_packets(graph, STAR, replace(GO_BACK, switch_fs=10 * US, timeout_fs=20 * US))


def test_cut_through_takes_as_long_from_a_slow_link_to_a_fast_one_as_back(tmp_path: Path) -> None:
    topology, network = chain(tmp_path, "100GB/s", "1GB/s"), network_of("infiniband", switch_fs=10 * US)
    there, back = (int(run_packets(messages(topology, [way]), topology, network).timeline.end_fs[0]) for way in WAYS)
    assert there == back
    assert there == 2 * 500 * 10**6 + 10 * US + 4122 * 10**6  # the latencies, the switch, and the bytes on the slow link
    store = replace(network, forwarding="store")
    stored = [int(run_packets(messages(topology, [way]), topology, store).timeline.end_fs[0]) for way in WAYS]
    assert stored == [there + 4122 * 10**4] * 2
