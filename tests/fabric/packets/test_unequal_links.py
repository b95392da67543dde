"""Packets on links of unequal rate: what is set in round trips, and rates, are those of the own link of a sender or a queue."""

import numpy as np
import pytest

from emu.fabric.engine.packets.packet_arrays import lay_out
from emu.fabric.engine.packets.packet_network import NETWORKS, PacketNetwork, network_of
from emu.fabric.engine.packets.packet_run import run_packets, ways_of
from emu.topology.catalogue import build_topology
from tests.fabric.packets.packet_cases import messages

MIB = 2**20
SERVERS = build_topology("servers:nodes=4,gpus=2,nvlink=450GB/s,nic=50GB/s,network=switch")
INCAST = [(2, 0, MIB), (4, 0, MIB), (6, 0, MIB)]  # over NICs
BESIDE = (2, 3, 4096)  # over NVLink


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
