"""Messages leave when their last byte has left the host, though packets of theirs are lost and sent again."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from emu.fabric.engine.packets.packet_arrays import lay_out
from emu.fabric.engine.packets.packet_layout import READY
from emu.fabric.engine.packets.packet_network import PacketNetwork, network_of
from emu.fabric.engine.packets.packet_run import run_packets, ways_of
from emu.fabric.engine.packets.packet_tasks import arrive
from tests.fabric.packets.packet_cases import chain, messages

MIB, US = 2**20, 10**9
TRIMS = network_of("roce", lossless="trim", queue_bytes=2**16)
DROPS = network_of("roce", lossless="drop", queue_bytes=2**16, timeout_fs=1000 * US)
OWN_QUEUE = {"congestion": "window", "window_bytes": MIB, "host_queue": "fifo"}  # which loses packets, too
NETWORKS = {
    "trims": TRIMS,
    "goes back": replace(DROPS, recovery="go-back-n"),
    "trims in its own queue": replace(TRIMS, **OWN_QUEUE),
    "goes back from its own queue": replace(DROPS, **OWN_QUEUE, recovery="go-back-n"),
}


@pytest.mark.parametrize("network", NETWORKS.values(), ids=NETWORKS)
def test_a_message_leaves_with_what_it_sends_again_and_the_next_one_starts_then(network: PacketNetwork, tmp_path: Path) -> None:
    topology = chain(tmp_path, "100GB/s", "50GB/s")
    graph = messages(topology, [(0, 2, 4 * MIB), (0, 1, 4096)], [[], [0]])
    run = run_packets(replace(graph, pred_left=np.ones(1, np.bool_)), topology, network)
    assert run.n_trimmed > 0
    assert run.timeline.start_fs[1] == run.timeline.left_fs[0]
    assert 0.7 < run.timeline.left_fs[0] / run.timeline.end_fs[0] < 1  # what it learns later to be lost counts no more


def test_a_message_whose_losses_are_found_after_it_left_has_left(tmp_path: Path) -> None:
    """Packets that are dropped without a pause are found missing only when a later one comes."""
    topology = chain(tmp_path, "100GB/s", "50GB/s")
    run = run_packets(messages(topology, [(0, 2, 4 * MIB)]), topology, DROPS)
    assert run.n_trimmed > 0
    assert run.timeline.left_fs[0] == 1024 * 4160 * 10**15 // (100 * 10**9)


def test_a_message_has_left_when_all_of_it_is_there_though_its_sender_was_to_send_some_again(tmp_path: Path) -> None:
    topology, network = chain(tmp_path, "100GB/s", "50GB/s"), NETWORKS["goes back"]
    graph = messages(topology, [(0, 2, 8192), (0, 1, 4096)], [[], [0]])
    graph = replace(graph, pred_left=np.ones(1, np.bool_))
    engine = lay_out(graph, topology, network, 0, ways_of(graph, topology, network))
    arrive(engine, 0, 8192, 5 * US)
    assert (engine.tasks["left"][0], engine.tasks["to_send"][0]) == (5 * US, 0)
    assert (engine.tasks["start"][1], engine.tasks["how_far"][1]) == (5 * US, READY)
