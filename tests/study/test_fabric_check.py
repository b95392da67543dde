"""The check of a fluid time by packets: near 1 where nothing blocks; beyond 5 %, with what blocks, beside an incast."""

from dataclasses import replace

import numpy as np
import pytest

from emu.fabric.busy_window import TimedGraph
from emu.fabric.engine.packets.ways import path_ways
from emu.fabric.packet_fabric import PacketFabric, engine_choice, packet_fabric
from emu.fabric.run import run_graph
from emu.study import fabric_check
from emu.study.fabric_check import RUNS, _blocking, _crossing, check_fabric, unchecked
from emu.study.measure.bench import bench
from emu.study.measure.request import BenchRequest
from emu.study.packet_figures import port_name
from tests.fabric.packets.packet_cases import BARE, RING, STAR, messages, rounds_of_ring
from tests.study.test_packet_figures import MS, TOPOLOGY, made

MIB = 2**20
ROCE = packet_fabric("packets", "roce")
ROCE_CHECK = engine_choice("fluid", "roce", check_fabric=True)


def check_of(graph, request=None, topology=STAR, fabric=ROCE):
    """The check of a graph whose requests are named by their numbers."""
    of = np.zeros(graph.n_tasks, np.int64) if request is None else np.array(request, np.int64)
    source = TimedGraph(graph, run_graph(graph), np.zeros(graph.n_tasks, np.int64), of)
    return check_fabric(source, topology, fabric, lambda number: f"request {number}")


def test_a_ring_on_one_switch_is_as_the_fluid_fabric_says() -> None:
    found = check_of(rounds_of_ring(STAR, 8, MIB))
    assert (found.runs, found.why_not, found.network, found.request) == (RUNS, "", "roce", "request 0")
    assert 1 < found.least <= found.most < 1.05
    assert not found.is_beyond
    assert found.share == 1.0
    assert found.packet_hops == 14 * 8 * 2 * MIB // 4096


def test_a_victim_beside_an_incast_is_beyond_and_the_port_of_the_incast_blocks() -> None:
    incast = [(src, 0, 4 * MIB) for src in range(1, 7)]
    graph = messages(STAR, [*incast, (1, 7, 4 * MIB)])
    found = check_of(graph, [-1] * 6 + [0])
    assert found.is_beyond
    assert 1.5 < found.least <= found.most
    assert found.ports[0].port == "switch 8 to NPU 0"
    assert found.ports[0].blocked_s > 0
    assert found.messages[0].startswith("4 MiB from NPU 1 to NPU 0")


def test_runs_differ_by_their_starts_and_are_the_same_each_time() -> None:
    graph = messages(STAR, [(src, dst, 4 * MIB) for src in range(4) for dst in range(4, 8)])
    found = check_of(graph)
    assert found.least < found.most
    assert check_of(graph) == found


def test_what_cannot_be_checked_has_a_reason(monkeypatch) -> None:
    assert check_of(messages(STAR, [(0, 1, MIB)]), [-1]).why_not == "nothing is sent"
    sent = [(i, (i + 3) % 6, 4 * MIB) for i in range(6)]
    network = replace(BARE, lossless="credits", credit_bytes=2 * 4096)
    monkeypatch.setattr(PacketFabric, "ways", lambda _, graph, topology, __: path_ways(graph, topology.links))  # on one lane
    stuck = check_of(messages(RING, sent), topology=RING, fabric=replace(ROCE, network=network))
    assert "wait for one another in a circle" in stuck.why_not
    assert (stuck.runs, stuck.is_beyond) == (0, False)


def test_what_is_larger_than_the_budget_says_so(monkeypatch) -> None:
    def small(source, network):
        return fabric_window(source, network, 1000)

    fabric_window = fabric_check.busiest_window
    monkeypatch.setattr(fabric_check, "busiest_window", small)
    found = check_of(messages(STAR, [(src, 0, MIB) for src in range(1, 8)]))
    assert found.why_not == (
        "messages that start at one moment have 3584 packet hops, more than the budget of 1000; "
        "take a smaller size, fewer ranks or --fabric packets"
    )


@pytest.mark.parametrize("algorithm", ["ring", "recursive-doubling"])
def test_a_bench_is_checked_in_the_window_of_all_of_it(algorithm: str) -> None:
    (row,) = bench(STAR, BenchRequest("all_reduce", algorithm, (8 * MIB,), engine=ROCE_CHECK))
    (plain,) = bench(STAR, BenchRequest("all_reduce", algorithm, (8 * MIB,)))
    assert row.time_s == plain.time_s == row.fabric_check.fluid_s
    assert plain.fabric_check is None
    assert row.fabric_check.share == 1.0
    assert 1 < row.fabric_check.least < 1.05


@pytest.mark.parametrize(
    ("least", "most", "runs", "beyond"),
    [(0.94, 1.0, 8, True), (0.96, 1.04, 8, False), (1.0, 1.06, 8, True), (1.06, 1.07, 8, True), (0.9, 1.2, 0, False)],
)
def test_a_check_is_beyond_where_any_run_differs_by_more_than_five_percent(least, most, runs, beyond) -> None:
    assert replace(unchecked("roce", ""), least=least, most=most, runs=runs).is_beyond is beyond


def test_ports_that_block_longest_over_all_runs_come_first_and_then_those_in_which_most_waited() -> None:
    """In two runs of several ports, queue 7 blocks for 7 and 2 ms and queue 5 for 5 and 8 ms; queue 2 blocks for no time."""
    first = made()
    pauses = np.array([(2, 0, 8 * MS, 5), (5, 0, 2 * MS, 7), (5, 0, 9 * MS, -1)])
    second = replace(first, pauses=pauses, queue_bytes=first.queue_bytes[:, ::-1])  # queue 9 is as full as queue 2 was
    found = _blocking([first, second], TOPOLOGY)
    assert [*found] == [5, 7, 2]
    assert [each.blocked_s for each in found.values()] == [0.0065, 0.0045, 0]
    assert [each.most_bytes for each in found.values()] == [300, 900, 900]
    assert [each.port for each in found.values()] == [port_name(TOPOLOGY, queue, 2) for queue in found]
    empty = replace(first, queue_bytes=first.queue_bytes * (np.arange(12) == 5))
    assert [*_blocking([empty, empty], TOPOLOGY)] == [5]


def test_messages_over_a_port_are_added_up_by_their_ends_and_request_and_the_three_largest_are_told() -> None:
    """Five pairs send to NPU 0; of one of them, messages are of two requests, and the busiest request (-1) has no name."""
    sent = [(1, 0, MIB), (2, 0, 3 * MIB), (1, 0, MIB), (3, 0, MIB), (4, 0, MIB), (2, 0, MIB), (0, 5, 9 * MIB)]
    graph = messages(STAR, sent)
    down = int(np.flatnonzero((STAR.links.src == STAR.n_npus) & (STAR.links.dst == 0))[0])
    requests = np.array([-1, 0, -1, -1, 2, 2, -1])
    assert _crossing(graph, down, requests, STAR, lambda number: f"request {number}") == (
        "3 MiB from NPU 2 to NPU 0 (request 0)",
        "2 MiB from NPU 1 to NPU 0",
        "1 MiB from NPU 2 to NPU 0 (request 2)",
    )
