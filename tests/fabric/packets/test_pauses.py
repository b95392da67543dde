"""Pauses of the packet engine: which queue is said to have caused each, where several are on their way at once."""

from dataclasses import replace

import numpy as np
import pytest

from emu.errors import RunError
from emu.fabric.engine.packets.packet_arrays import lay_out
from emu.fabric.engine.packets.packet_layout import N_PAUSES
from emu.fabric.engine.packets.packet_loop import DONE, advance_packets
from emu.fabric.engine.packets.packet_network import NETWORKS
from emu.fabric.engine.packets.packet_ports import give_back, hold
from emu.fabric.engine.packets.packet_run import run_packets, ways_of
from tests.fabric.packets.packet_cases import STAR, TORUS, messages


def test_a_pause_has_the_cause_for_which_it_was_asked_where_the_next_is_asked_before_it_ends() -> None:
    graph, network = messages(STAR, [(0, 1, 1), (0, 2, 1)]), NETWORKS["roce"]
    ingress, first, second = (int(graph.hop_link[hop]) for hop in (0, 1, 3))
    assert first != second
    engine = lay_out(graph, STAR, network, 0, ways_of(graph, STAR, network))
    over, latency_fs = network.pause_above_bytes + 1, 500 * 10**6
    for at_fs, cause in ((0, first), (20, second)):  # the second is asked while the first is still on its way back
        hold(engine, ingress, cause, over, at_fs)
        give_back(engine, ingress, over, at_fs + 10)
    assert advance_packets(engine, 100) == DONE
    assert engine.scalars[N_PAUSES] == 2
    began = latency_fs + np.array([0, 20])
    logged = [[ingress, since, since + 10, cause] for since, cause in zip(began, (first, second), strict=True)]
    assert engine.pause_log[:8].reshape(2, 4).tolist() == logged


@pytest.mark.parametrize("kind", ["roce", "infiniband"])
def test_on_a_torus_packets_that_choose_their_path_deadlock_and_those_on_its_lanes_do_not(kind: str) -> None:
    graph = messages(TORUS, [(i, j, 2**18) for i in range(16) for j in range(16) if i != j])
    with pytest.raises(RunError, match=r"wait for one another in a circle: .*; packets that choose .*: take route=hash, whose"):
        run_packets(graph, TORUS, replace(NETWORKS[kind], route="adaptive"))
    assert run_packets(graph, TORUS, NETWORKS[kind]).n_lost == 0
