"""The window in which a fabric has most to do: which request, which tasks, how it is cut, and its times in the whole graph."""

from dataclasses import replace

import numpy as np
import pytest

from emu.fabric.busy_window import TimedGraph, WindowError, busiest_request, busiest_window, late_starts
from emu.fabric.graph import Graph
from emu.fabric.run import run_graph
from tests.fabric.packets.packet_cases import BARE, STAR, Sent, messages, rounds_of_ring
from tests.fabric.reference import Task, graph_of

MIB = 2**20


def timed_graph(graph: Graph, request: list[int] | None = None) -> TimedGraph:
    """A graph with its fluid times; one request has all messages if none are given."""
    of = np.zeros(graph.n_tasks, np.int64) if request is None else np.array(request, np.int64)
    return TimedGraph(graph, run_graph(graph), np.zeros(graph.n_tasks, np.int64), of)


def sent(*of: Sent, waits: list[list[int]] | None = None) -> Graph:
    """Messages on a star."""
    return messages(STAR, of, waits or ())


def test_the_busiest_request_needs_one_link_for_the_longest_time_its_own_is_long() -> None:
    spread = [(src, (src + 4) % 8, 3 * MIB) for src in range(8)]  # more bytes, none of which share a link
    into_one = [(src, 0, 2 * MIB) for src in (1, 2, 3)]
    graph = sent(*spread, *into_one)
    assert busiest_request(timed_graph(graph, [0] * 8 + [1] * 3)) == 1
    assert busiest_request(timed_graph(graph, [0] * 8 + [-1] * 3)) == 0
    assert busiest_request(timed_graph(graph, [-1] * 11)) is None


def test_of_two_requests_that_need_a_link_for_as_long_the_longer_one_is_the_busiest() -> None:
    graph = sent((1, 0, 4 * MIB), (2, 3, 2 * MIB), (2, 3, 2 * MIB))
    apart = replace(graph, ready_fs=np.array([0, 0, 10**12]))
    assert busiest_request(timed_graph(apart, [0, 1, 1])) == 1
    assert busiest_request(timed_graph(graph, [0, 1, 1])) == 0


def test_what_begins_when_the_busiest_request_ends_is_not_in_its_window() -> None:
    graph = sent((1, 0, 4 * MIB), (1, 0, MIB), (3, 2, MIB), waits=[[], [0], []])
    source = timed_graph(graph, [0, 1, 2])
    assert source.timeline.start_fs[1] == source.timeline.end_fs[0]
    window = busiest_window(source, BARE)
    assert window.task.tolist() == [0, 2]
    assert window.share == pytest.approx(5 / 6)


def test_the_whole_of_a_collective_is_its_window_where_the_budget_allows() -> None:
    graph = rounds_of_ring(STAR, 8, MIB)
    window = busiest_window(timed_graph(graph), BARE)
    assert (window.share, window.cell_bytes, window.divisor) == (1.0, 0, 1)
    assert np.array_equal(np.sort(window.task), np.arange(graph.n_tasks))
    assert window.of_request.all()
    assert run_graph(window.graph).end_s == run_graph(graph).end_s


def test_a_budget_leaves_the_first_rounds_as_they_are() -> None:
    graph = rounds_of_ring(STAR, 8, MIB)
    a_round = 8 * 2 * MIB // 4096
    window = busiest_window(timed_graph(graph), BARE, 3 * a_round + 5)
    assert len(window.task) == 24
    assert window.share == pytest.approx(3 / 14)
    assert window.graph.size_bytes.tolist() == [MIB] * 24
    assert run_graph(window.graph).end_fs.max() == run_graph(graph).end_fs[window.task].max()


def test_what_starts_at_one_moment_becomes_cells_and_then_smaller_and_is_refused_at_last() -> None:
    source = timed_graph(sent(*((src, 0, 4 * MIB) for src in range(1, 8))))
    hops = 14 * 4 * MIB // 4096
    cut = [(of.cell_bytes, of.divisor) for of in (busiest_window(source, BARE, hops // n) for n in (1, 2, 4, 8))]
    assert cut == [(0, 1), (8192, 1), (16384, 1), (16384, 2)]
    half = busiest_window(source, BARE, hops // 8)
    assert half.graph.size_bytes.tolist() == [2 * MIB] * 7
    assert half.share == 0.5
    with pytest.raises(WindowError, match="have 14336 packet hops, more than the budget of 447"):
        busiest_window(source, BARE, hops // 32 - 1)


def test_credits_have_room_for_the_cells() -> None:
    source = timed_graph(sent(*((src, 0, 8 * MIB) for src in range(1, 8))))
    few = replace(BARE, lossless="credits", credit_bytes=3 * 4096)
    assert busiest_window(source, few, 14 * 8 * MIB // 4096 // 4).cell_bytes == 8192


def test_what_is_under_way_has_what_is_left_and_what_is_over_is_not_waited_for() -> None:
    """A message of another request, half of which has left, shares the port with the busiest one; a computation goes on."""
    long, own = sent((1, 0, 8 * MIB), (2, 0, 16 * MIB)), 8 * MIB / 50e9 / 2
    half_fs = round(own * 1e15)
    graph = replace(long, ready_fs=np.array([0, half_fs]))
    source = timed_graph(graph, [-1, 0])
    window = busiest_window(source, BARE)
    assert window.task.tolist() == [0, 1]
    # the other shares the port from half of its time on, so that an even rate leaves it more than half of its bytes
    left = 1 - half_fs / source.timeline.left_fs[0]
    assert window.graph.size_bytes.tolist() == [np.ceil(8 * MIB * left), 16 * MIB]
    assert window.graph.ready_fs.tolist() == [0, 0]
    assert window.of_request.tolist() == [False, True]


def test_a_computation_under_way_holds_back_what_waits_for_it() -> None:
    hops = messages(STAR, [(1, 0, MIB)]).hop_link
    send = {"size": MIB, "alpha": 10**9, "hops": tuple((int(k), 1) for k in hops)}
    tasks = [Task(alpha=10**9), Task(alpha=5 * 10**9), Task(preds=((0, False),), **send), Task(preds=((1, False),), **send)]
    graph = graph_of(STAR.links.bandwidth_Bps.tolist(), tasks)
    source = timed_graph(graph, [-1, -1, 0, 0])
    window = busiest_window(source, BARE)
    assert window.task.tolist() == [1, 2, 3]
    assert window.graph.alpha_fs.tolist()[0] == 4 * 10**9
    assert np.array_equal(run_graph(window.graph).end_fs + 10**9, source.timeline.end_fs[window.task])


def test_only_what_waits_for_nothing_starts_later() -> None:
    graph = rounds_of_ring(STAR, 8, MIB)
    late = late_starts(graph, 3, 1000)
    assert (late.ready_fs[8:] == 0).all()
    assert 0 < late.ready_fs[:8].max() <= 1000
    assert not np.array_equal(late.ready_fs, late_starts(graph, 4, 1000).ready_fs)


def test_what_has_left_but_not_arrived_holds_back_nobody_who_waits_for_it_to_leave() -> None:
    hops = messages(STAR, [(1, 0, MIB)]).hop_link
    left_fs = MIB * 20_000
    send = {"size": MIB, "alpha": 10**9}
    first = Task(hops=tuple((int(k), 1) for k in hops), **send)
    own = Task(hops=tuple((int(k), 1) for k in messages(STAR, [(2, 3, MIB)]).hop_link), preds=((0, True), (1, False)), **send)
    graph = graph_of(STAR.links.bandwidth_Bps.tolist(), [first, Task(alpha=left_fs + 10**8), own])
    source = timed_graph(graph, [-1, -1, 0])
    window = busiest_window(source, BARE)
    assert window.task.tolist() == [0, 2]
    assert np.diff(window.graph.hop_start).tolist() == [0, 2]
    assert window.graph.alpha_fs.tolist() == [9 * 10**8, 10**9]
    assert np.array_equal(run_graph(window.graph).end_fs + left_fs + 10**8, source.timeline.end_fs[window.task])
