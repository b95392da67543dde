"""The trees of pauses: causes by hand on a chain of switches, and incasts whose full port and victims are known."""

from itertools import pairwise
from types import SimpleNamespace

import numpy as np
import pytest

import emu
from emu.fabric.engine.packets.ways import message_ends
from emu.fabric.graph import Timeline
from emu.study.pause_tree import PauseCauses, PauseTree, _overlap_fs, _tasks_by_queues, _united, held_messages, pause_causes

SWITCH = "switch:n=8,bandwidth=50GB/s,latency=500ns"
DRAIN = 1000  # ticks in which a port sends what made a link pause


def causes(*pauses):
    """Pauses of queues of links of 1 B a tick without latency; each lets 1000 B wait at most."""
    links = SimpleNamespace(latency_fs=np.zeros(9, np.int64), bandwidth_Bps=np.full(9, 1e15))
    run = SimpleNamespace(pauses=np.array(pauses, np.int64).reshape(-1, 4), lanes=1)
    return pause_causes(run, SimpleNamespace(links=links), DRAIN)


def shape(tree: PauseTree):
    return tree.queue, tree.pauses, tree.paused_fs, [shape(each) for each in tree.upstream]


def test_a_pause_within_that_of_the_port_it_waits_for_is_upstream_of_it():
    found = causes((1, 100, 300, 0), (2, 150, 400, 1), (3, 160, 180, 2))
    assert [shape(tree) for tree in found.trees] == [(0, 0, 0, [(1, 1, 200, [(2, 1, 250, [(3, 1, 20, [])])])])]
    assert found.root.tolist() == [0, 0, 0]


@pytest.mark.parametrize(("late", "is_upstream"), [(DRAIN, True), (DRAIN + 1, False)])
def test_a_pause_is_a_cause_for_as_long_as_its_port_sends_what_waited(late, is_upstream):
    found = causes((1, 100, 300, 0), (2, 300 + late, 5000, 1))
    assert [tree.queue for tree in found.trees] == ([0] if is_upstream else [1, 0])


def test_a_port_that_was_paused_only_later_was_full_by_itself():
    found = causes((2, 100, 200, 1), (1, 300, 500, 0))
    assert {tree.queue for tree in found.trees} == {0, 1}


def test_a_circle_of_ports_ends_at_the_port_at_which_it_closes():
    found = causes((1, 0, 900, 3), (2, 10, 900, 1), (3, 20, 900, 2), (1, 950, 990, 3))
    assert found.root.tolist() == [3, 3, 2, 2]
    assert [shape(tree) for tree in found.trees] == [
        (3, 0, 0, [(1, 1, 900, [(2, 1, 890, [])])]),
        (2, 0, 0, [(3, 1, 880, [(1, 1, 40, [])])]),
    ]


def test_of_two_pauses_that_begin_at_one_tick_the_one_of_the_lower_queue_is_no_branch_of_the_other():
    found = causes((1, 100, 300, 2), (2, 100, 300, 0))
    assert {(tree.queue, tree.held_fs) for tree in found.trees} == {(0, 200), (2, 200)}


@pytest.mark.parametrize("last_tick", [10, 10**5])
def test_every_pause_is_in_one_tree_at_random(last_tick):
    rng = np.random.default_rng(0)
    for _ in range(50):
        since = rng.integers(0, last_tick, 60)
        queue, waits_for = rng.integers(0, 9, (2, 60))
        columns = np.stack((queue, since, since + rng.integers(1, 9999, 60), waits_for), axis=-1)
        rows = columns[queue != waits_for].tolist()
        found = causes(*rows)
        all_of = [tree for root in found.trees for deep, tree in root.ports() if deep]
        assert sum(tree.pauses for tree in all_of) == len(rows)
        assert sum(tree.paused_fs for tree in all_of) == sum(until - since for _, since, until, _ in rows)
        assert sum(tree.held_fs for tree in found.trees) == sum(until - since for _, since, until, _ in rows)
        held = [tree.held_fs for tree in found.trees]
        assert held == sorted(held, reverse=True)


def test_the_overlap_with_pauses_is_their_length_within_a_message():
    spans = np.array([(0, 10, 20, 1), (0, 30, 60, 1)])
    start, end = np.array([0, 15, 40, 21, 70]), np.array([100, 35, 50, 29, 90])
    assert _overlap_fs(spans, start, end).tolist() == [40, 10, 10, 0, 0]


@pytest.mark.parametrize("seed", range(40))
def test_pauses_together_last_while_one_of_them_does(seed):
    """By marking every tick; which queue a joint pause names is not asked."""
    random = np.random.default_rng(seed)
    since = random.integers(0, 40, random.integers(1, 9))
    spans = np.stack((random.integers(0, 3, len(since)), since, since + random.integers(1, 12, len(since)), since), axis=1)
    marked = np.zeros(60, bool)
    for _, begin, end, _ in spans.tolist():
        marked[begin:end] = True
    found = _united(spans)
    edges = np.flatnonzero(np.diff(np.concatenate(([0], marked, [0]))))
    joined = [(a, b) for a, b in found[:, 1:3].tolist()]
    assert all(before[1] <= after[0] for before, after in pairwise(joined))
    again = np.zeros(60, bool)
    for begin, end in joined:
        again[begin:end] = True
    assert (again == marked).all()
    assert len(joined) >= len(edges) // 2
    start, end = np.sort(random.integers(0, 55, (2, 20)), axis=0)
    assert _overlap_fs(found, start, end).tolist() == [int(marked[a:b].sum()) for a, b in zip(start, end, strict=True)]


@pytest.mark.parametrize("seed", range(20))
def test_tasks_are_sorted_by_all_the_queues_that_they_cross(seed):
    random = np.random.default_rng(seed)
    crossed = {task: sorted(random.choice(5, random.integers(1, 4), replace=False).tolist()) for task in range(seed % 12)}
    task = np.array([t for t, queues in crossed.items() for _ in queues], np.int64)
    queue = np.array([q for queues in crossed.values() for q in queues], np.int64)
    found = [(tuple(queues.tolist()), part.tolist()) for queues, part in _tasks_by_queues(task, queue)]
    assert len(dict(found)) == len(found)
    assert dict(found) == {own: [t for t in crossed if tuple(crossed[t]) == own] for own in map(tuple, crossed.values())}


def test_messages_that_were_held_up_longest_come_first_and_of_equal_ones_those_that_lost_most():
    """Four messages from tick 0, each over a port of its own that was paused for 10, 30, 30 and 20 ticks."""
    queue, ends = np.arange(1, 5), np.array([100, 100, 150, 100])
    graph = SimpleNamespace(n_tasks=4, hop_task=np.arange(4), hop_link=queue)
    rows = np.array([(q, 40, 40 + held, 0) for q, held in zip(queue, (10, 30, 30, 20), strict=True)])
    took, fluid = (Timeline(np.zeros(4, np.int64), end, end, np.zeros(4), "packets") for end in (ends, np.full(4, 10)))
    run = SimpleNamespace(timeline=took, lanes=1)
    found = held_messages(PauseCauses(rows, np.zeros(4, np.int64), ()), 0, run, graph, queue, fluid)
    assert [(each.queue, each.held_fs) for each in found] == [(3, 30), (2, 30), (4, 20), (1, 10)]


def held_of_one_message(pauses, hops, lanes=1, root=0):
    """The message of the given hops, from tick 0 to 100 and alone to 10, as the tree of `root` with these pauses held it up."""
    queue = np.array(hops)
    graph = SimpleNamespace(n_tasks=1, hop_task=np.zeros(len(hops), np.int64), hop_link=queue // lanes)
    rows = np.array([(q, since, until, root) for q, since, until in pauses])
    found = PauseCauses(rows, np.full(len(rows), root), ())
    took, fluid = (Timeline(*np.array([[0], [end], [end], [0.0]]), "packets") for end in (100, 10))
    run = SimpleNamespace(timeline=took, lanes=lanes)
    return [(each.queue, each.held_fs) for each in held_messages(found, root, run, graph, queue, fluid)]


def test_a_message_is_held_up_while_one_port_on_its_way_is_paused_at_least():
    assert held_of_one_message([(1, 10, 40), (2, 20, 60), (1, 70, 80)], [1, 2, 3]) == [(1, 60)]
    assert held_of_one_message([(1, 20, 30), (2, 10, 60), (4, 0, 100)], [1, 2, 3]) == [(2, 50)]


def test_a_pause_of_a_lane_holds_up_none_of_another_lane():
    pauses = [(4, 10, 40), (5, 50, 60)]  # both lanes of link 2
    assert held_of_one_message(pauses, [4, 6], lanes=2) == [(4, 30)]
    assert held_of_one_message(pauses, [5, 6], lanes=2) == [(5, 10)]
    assert held_of_one_message(pauses, [6], lanes=2) == []


def goal(sends: list[tuple[int, int]], ranks: int = 8, size: int = 2**21) -> str:
    """All messages at once, from one rank to another."""
    lines = [f"num_ranks {ranks}"]
    for rank in range(ranks):
        sent = [f"send {size}b to {to}" for src, to in sends if src == rank]
        sent += [f"recv {size}b from {src}" for src, to in sends if to == rank]
        lines += [f"rank {rank} {{", *(f"l{i}: {what}" for i, what in enumerate(sent, 1)), "}"]
    return "\n".join(lines) + "\n"


@pytest.fixture
def shown(tmp_path):
    def of(sends, **asked):
        path = tmp_path / "incast.goal"
        path.write_text(goal(sends))
        return emu.show_fabric_run(path, **{"topology": SWITCH, "network": "roce", **asked})

    return of


INCAST = [(1, 0), (2, 0), (3, 0)]


def test_an_incast_on_a_switch_has_one_full_port_and_holds_up_its_senders_alone(shown):
    answer = shown(INCAST).to_dict()
    assert [tree["port"] for tree in answer["full_ports"]] == ["switch 8 to NPU 0"]
    [tree] = answer["full_ports"]
    assert {each["port"] for each in tree["upstream"]} == {f"NPU {i} to switch 8" for i in (1, 2, 3)}
    assert tree["not_on_its_way"] == []
    assert answer["time_s"] / answer["fluid_s"] == pytest.approx(1.02, abs=0.02)


def test_a_message_beside_an_incast_is_named_with_what_it_would_have_taken(shown):
    """By the fluid fabric, the incast takes a third of the port of NPU 3, and leaves two thirds to the message beside it."""
    answer = shown([*INCAST, (3, 5)]).to_dict()
    [tree] = answer["full_ports"]
    [held] = tree["not_on_its_way"]
    assert held["message"] == "2 MiB from NPU 3 to NPU 5"
    assert held["port"] == "NPU 3 to switch 8"
    fluid_s = 2**21 / 50e9 * 3 / 2
    assert held["fluid_s"] == pytest.approx(fluid_s, rel=0.05)
    assert held["time_s"] > 1.2 * held["fluid_s"]
    [paused_s] = [port["paused_s"] for port in answer["ports"] if port["port"] == "NPU 3 to switch 8"]
    assert 0.25 * held["time_s"] < held["held_s"] <= paused_s


def test_nothing_is_named_where_packets_take_several_paths(shown):
    answer = shown([*INCAST, (3, 5)], network="roce:route=in-turn").to_dict()
    assert answer["full_ports"][0]["not_on_its_way"] == []


@pytest.mark.parametrize(
    ("network", "says"),
    [
        (
            "roce:pause_above=64MiB,resume_below=1MiB",
            "no link was paused: nowhere waited more than 64 MiB that one link brought",
        ),
        ("infiniband", "no link was paused: a network of infiniband has no pauses (links have credits)"),
        ("tcp", "no link was paused: a network of tcp has no pauses (full queues trim packets)"),
        ("roce:lossless=none", "no link was paused: a network of roce has no pauses (queues have no limit)"),
    ],
)
def test_one_line_says_that_nothing_paused(shown, network, says):
    lines = shown(INCAST, network=network).text().splitlines()
    assert [line for line in lines if line.startswith("no link")] == [says]
    assert not any("blocks whom" in line for line in lines)


def test_messages_on_their_way_to_the_full_port_are_not_named():
    found = emu.show_fabric_run(
        "all_to_all", topology="fat-tree:radix=8,taper=3", network="roce", algorithm="at-once", size="4MiB", ranks=24
    ).found
    graph, named = found.graph, 0
    took = found.run.timeline.end_fs - found.run.timeline.start_fs
    fluid = found.fluid.end_fs - found.fluid.start_fs
    for tree in found.causes.trees:
        paused = {each.queue for deep, each in tree.ports() if deep}
        for held in found.held(tree.queue):
            links = graph.hop_link[graph.hop_start[held.task] : graph.hop_start[held.task + 1]].tolist()
            assert tree.queue not in links
            assert held.queue in paused & set(links)
            assert (held.time_fs, held.fluid_fs) == (took[held.task], fluid[held.task])
            assert held.time_fs > 1.05 * held.fluid_fs
            named += 1
    assert named > 100


def test_the_port_that_held_up_a_message_is_on_a_lane_that_it_takes():
    """Routes of a torus name two lanes; a pause is of one of them."""
    found = emu.show_fabric_run(
        "all_to_all",
        topology="torus:dims=4x4,bandwidth=50GB/s,latency=500ns",
        network="roce:pause_above=32KiB,resume_below=24KiB",
        algorithm="at-once",
        size="4MiB",
    ).found
    assert found.run.lanes == 2
    lanes, (src, dst) = set(), message_ends(found.graph, found.topology.links)
    routes = [found.topology.routes(src, dst, np.full(len(src), key)) for key in range(4)]
    starts = [each.start for each in routes]
    for tree in found.causes.trees:
        for held in found.held(tree.queue):
            spans = [slice(*start[held.task : held.task + 2]) for start in starts]
            ways = [2 * each.link[span] + each.virtual[span] for each, span in zip(routes, spans, strict=True)]
            assert held.queue in np.concatenate(ways)
            lanes.add(held.queue % 2)
    assert lanes == {0, 1}
