"""The figures of a run by packets: the fullest ports, pauses and whom they held up, on three NPUs behind a switch, by hand."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from emu.fabric.engine.packets.packet_run import PacketRun
from emu.fabric.graph import Timeline
from emu.study.fabric_run import FabricRun
from emu.study.packet_figures import PacketFigures, blocked_fs, figures_of, port_name
from emu.topology.catalogue import build_topology

TOPOLOGY = build_topology("switch:n=3,bandwidth=50GB/s,latency=500ns")
MS = 10**12  # ticks
LANES = 2
MOST = {0: 70, 2: 900, 5: 300, 7: 900, 11: 40}  # bytes in queues; two are as full as one another


def made(**fields: Any) -> PacketRun:
    """A run of two samples on two lanes of six links."""
    queue_bytes = np.zeros((2, 12), np.int32)
    for queue, most in MOST.items():
        queue_bytes[:, queue] = (most, most - 30) if queue % 2 else (most - 30, most)
    paused_fs = np.zeros(12, np.int64)
    paused_fs[[2, 5, 6]] = 3 * MS, 11 * MS, 2 * MS
    # (queue, since, until, cause): -1 is a pause whose cause is not known.
    pauses = [(2, 1, 3, 5), (5, 2, 9, 7), (5, 10, 14, -1), (6, 4, 6, 5), (2, 6, 7, 5)]
    counts = {"n_pauses": 9, "n_events": 5000, "n_packet_hops": 321, "n_over": 6, "n_trimmed": 17, "n_disordered": 4}
    none = {"n_resent": 101, "n_beyond": 102, "n_lost": 103}
    timeline = Timeline(*[np.array([0, 5 * MS])] * 3, np.zeros(6), "packets")
    table = np.array(pauses) * [1, MS, MS, 1]
    found = PacketRun(timeline, LANES, MS, queue_bytes, paused_fs, table, **counts, **none)
    return replace(found, **fields)


def told(run: PacketRun, lossless: str = "pause", fluid_s: float = 0.25) -> PacketFigures:
    fabric: Any = SimpleNamespace(network=SimpleNamespace(kind="roce", lossless=lossless))
    return figures_of(run, fabric, TOPOLOGY, fluid_s)


def ends(link: int) -> str:
    src, dst = (TOPOLOGY.node_name(int(end[link])) for end in (TOPOLOGY.links.src, TOPOLOGY.links.dst))
    return f"{src} to {dst}"


@pytest.mark.parametrize("queue", range(12))
def test_a_port_has_the_name_of_its_link_and_of_its_lane_where_there_are_several(queue: int) -> None:
    assert port_name(TOPOLOGY, queue, 2) == f"{ends(queue // 2)} (lane {queue % 2})"
    assert port_name(TOPOLOGY, queue % 6, 1) == ends(queue % 6)


def test_the_three_fullest_ports_are_told_the_first_of_equal_ones_first_and_none_that_were_empty() -> None:
    fullest = [(f"{ends(queue // 2)} (lane {queue % 2})", MOST[queue]) for queue in (2, 7, 5)]
    assert [(each.port, each.most_bytes) for each in told(made()).fullest] == fullest
    few = made(queue_bytes=made().queue_bytes * (np.arange(12) == 7))
    assert [each.most_bytes for each in told(few).fullest] == [900]
    assert told(made(queue_bytes=np.zeros((0, 12), np.int32))).fullest == ()


def test_figures_are_those_of_the_run_and_the_longest_pause_of_a_port_counts() -> None:
    found = told(made())
    assert (found.network, found.lanes, found.fluid_s, found.packet_hops, found.events) == ("roce", 2, 0.25, 321, 5000)
    assert (found.pauses, found.paused_s, found.trimmed, found.disordered) == (9, 0.011, 17, 4)


@pytest.mark.parametrize(("lossless", "over"), [("pause", 6), ("credits", 6), ("trim", 0)])
def test_packets_beyond_the_room_of_a_queue_are_none_where_they_are_trimmed(lossless: str, over: int) -> None:
    assert told(made(), lossless).over == over


def test_a_port_is_charged_with_all_known_pauses_that_its_packets_caused() -> None:
    assert blocked_fs(made()).tolist() == [0, 0, 0, 0, 0, 5 * MS, 0, 7 * MS, 0, 0, 0, 0]
    assert blocked_fs(made(pauses=np.array([(3, MS, 5 * MS, 0)]))).tolist() == [4 * MS, *[0] * 11]
    assert blocked_fs(made(pauses=np.zeros((0, 4), np.int64))).tolist() == [0] * 12


def test_all_ports_in_which_something_waited_are_told_with_their_own_pauses_and_those_they_caused() -> None:
    nothing: Any = None
    run = FabricRun("a run", TOPOLOGY, nothing, nothing, nothing, made(), nothing, ())
    found = [(port.port, port.most_bytes, port.pauses, port.paused_s, port.blocked_s) for port in run.ports()]
    rows = {2: (2, 0.003, 0.0), 7: (0, 0.0, 0.007), 5: (2, 0.011, 0.005), 0: (0, 0.0, 0.0), 11: (0, 0.0, 0.0)}
    assert found == [(run.port(queue), MOST[queue], *rest) for queue, rest in rows.items()]


def test_what_a_rank_takes_before_it_enters_counts_in_the_time_and_in_the_fluid_time_beside_it() -> None:
    fabric: Any = SimpleNamespace(network=SimpleNamespace(kind="roce", lossless="pause"))
    nothing: Any = None
    fluid: Any = SimpleNamespace(end_s=0.004)
    run = FabricRun("a run", TOPOLOGY, fabric, nothing, nothing, made(), fluid, (), launch_s=0.25)
    assert run.time_s == pytest.approx(0.255)
    assert run.figures.fluid_s == pytest.approx(0.254)
    assert replace(run, launch_s=0.0).time_s == 0.005
