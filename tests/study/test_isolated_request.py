"""A request timed by clusters of groups that share no link with others, against one graph of all its groups."""

from dataclasses import replace

import numpy as np
import pytest

from emu.collective.choice import AlgorithmOnDims, Request
from emu.fabric.lower import delay_entries, lower_placed
from emu.fabric.run import run_graph
from emu.study import isolated_request
from emu.study.isolated_request import RequestPart, time_isolated
from emu.topology.catalogue import build_topology
from emu.trace.matching.call_batch import BatchKey
from emu.trace.replay.placed_request import place_request
from emu.units import TICKS_PER_S

LAUNCH_FS = 10**9
STRIPED = np.arange(32).reshape(16, 2).T  # every second rank: two groups of 16
PAIRS = np.arange(32).reshape(2, 16).T  # a rank and the one 16 places on: the messages of a pipeline
SIXES = np.arange(30).reshape(5, 6)  # in servers of 8: within one, and over the end of one
ASKS = [
    ("fat-tree:radix=8", "all_reduce", AlgorithmOnDims("ring"), STRIPED),
    ("fat-tree:radix=8", "all_gather", AlgorithmOnDims("bruck"), SIXES),
    ("fat-tree:radix=8", "message", None, PAIRS),
    ("fat-tree:radix=8,route=spray", "all_gather", AlgorithmOnDims("bruck"), SIXES),
    ("fat-tree:radix=8,taper=3,route=spray", "all_to_all", AlgorithmOnDims("at-once"), STRIPED),
    ("servers:nodes=4", "reduce_scatter", AlgorithmOnDims("direct"), SIXES),
    ("servers:nodes=4", "broadcast", AlgorithmOnDims("binomial"), SIXES),
    ("hpn:segment:dims=8x4", "all_gather", AlgorithmOnDims("ring"), np.arange(32).reshape(8, 4).T),
    ("hpn:segment:dims=8x4", "all_reduce", AlgorithmOnDims("hierarchical-direct", (2, 4)), np.arange(32).reshape(4, 8)),
]


def part(name, served, ranks, communicator=0):
    n = ranks.shape[1]
    what = BatchKey(communicator, served, name, n, 0, 4 * 840 * n, 840 * n, b"")
    return RequestPart(what, ranks, Request(name, tuple(ranks[0].tolist())))


def timed(line, parts, known=None):
    topology = build_topology(line)
    return time_isolated(parts, topology, np.arange(topology.n_npus), LAUNCH_FS, {} if known is None else known)


@pytest.mark.parametrize(("line", "name", "served", "ranks"), ASKS)
def test_each_kind_of_groups_timed_once_is_what_all_of_them_take_at_once(line, name, served, ranks):
    topology, asked = build_topology(line), part(name, served, ranks)
    piece = delay_entries(lower_placed(place_request(asked.what, topology, ranks)), LAUNCH_FS)
    graph = piece.graph
    whole, found = run_graph(graph), timed(line, [asked])
    leaves = whole.end_fs[piece.exit.reshape(len(ranks), -1)[:, 0 if served else 1 : ranks.shape[1]]]  # who takes a message
    assert found.apart == leaves.max() - leaves.min()
    assert found.apart_mean == pytest.approx(leaves.max() - leaves.mean(), abs=1)
    assert found.messages == (np.diff(graph.hop_start) > 0).sum()
    busy_s = whole.busy_s(graph.capacity_Bps)
    assert found.ticks == whole.end_fs.max()
    assert found.link.tolist() == np.flatnonzero(busy_s).tolist()
    assert found.busy_s.tolist() == busy_s[found.link].tolist()
    task = np.repeat(np.arange(graph.n_tasks), np.diff(graph.hop_start))
    on_worst = graph.hop_link == busy_s.argmax()
    crossing_fs = (whole.left_fs - whole.start_fs)[task[on_worst]] * graph.hop_weight[on_worst] / topology.parts
    assert found.flows == pytest.approx(max(1, crossing_fs.sum() / TICKS_PER_S / busy_s.max()))


@pytest.mark.parametrize(("line", "name", "served", "ranks"), ASKS)
def test_groups_that_are_served_otherwise_may_share_links_with_them(line, name, served, ranks):
    if name != "message":
        split = [part(name, served, ranks[:1]), part(name, served, ranks[1:])]
        a, b = timed(line, split), timed(line, [part(name, served, ranks)])
        assert (a.ticks, a.tail, a.flows, a.busy_s.tolist()) == (b.ticks, b.tail, b.flows, b.busy_s.tolist())


def test_of_groups_that_are_alike_one_is_timed_and_what_is_known_is_not_timed_again(monkeypatch):
    sizes, spread = [], "rail-optimised:radix=4,gpus=8"  # whose spines a hash chooses among, so that it declares no symmetry

    def counted(graph):
        sizes.append(np.count_nonzero(graph.size_bytes))
        return run_graph(graph)

    monkeypatch.setattr(isolated_request, "run_graph", counted)
    known, eights = {}, np.arange(32).reshape(4, 8)
    assert timed(spread, [part("all_gather", AlgorithmOnDims("direct"), eights[:3])], known).tasks == 3 * 56
    timed(spread, [part("all_gather", AlgorithmOnDims("direct"), eights[3:], communicator=1)], known)
    assert sizes == [56]
    timed(spread, [part("all_gather", AlgorithmOnDims("bruck"), eights[:1])], known)
    assert len(sizes) == 2


def test_ways_of_other_rates_are_not_alike():
    ring = build_topology("ring:n=4,bandwidth=50GB/s,latency=1us")
    slow = np.where(ring.links.src + ring.links.dst == 1, 25e9, ring.links.bandwidth_Bps)  # between NPUs 0 and 1
    uneven = replace(ring, links=replace(ring.links, bandwidth_Bps=slow), symmetry=None)
    both, one = (part("all_gather", AlgorithmOnDims("direct"), np.array(ranks)) for ranks in ([[2, 3], [0, 1]], [[2, 3]]))
    assert time_isolated([both], uneven, np.arange(4), 0, {}).ticks > time_isolated([one], uneven, np.arange(4), 0, {}).ticks


@pytest.mark.parametrize(
    ("line", "name", "served", "ranks"),
    [
        ("fat-tree:radix=16", "all_gather", AlgorithmOnDims("direct"), np.arange(128).reshape(16, 8).T),
        ("fat-tree:radix=16", "all_reduce", AlgorithmOnDims("direct"), np.arange(128).reshape(16, 8).T),
        ("servers:nodes=4", "all_gather", AlgorithmOnDims("direct"), SIXES),
    ],
)
def test_many_messages_in_few_rounds_are_timed_by_bounds_that_are_close(line, name, served, ranks, monkeypatch):
    small = part(name, served, ranks)
    of = small.what
    asked = small._replace(what=of._replace(size_bytes=1000 * of.size_bytes, elements=1000 * of.elements))
    slow = timed(line, [asked])
    monkeypatch.setattr(isolated_request, "LIGHT", 1)
    monkeypatch.setattr(isolated_request, "HEAVY", 1)
    monkeypatch.setattr(isolated_request, "run_graph", None)  # nothing is left to it
    quick = timed(line, [asked])
    assert quick.ticks == pytest.approx(slow.ticks, rel=isolated_request.WITHIN)
    assert (quick.tail, quick.tasks) == (slow.tail, slow.tasks)
    assert quick.link.tolist() == slow.link.tolist()
    np.testing.assert_allclose(quick.busy_s, slow.busy_s, rtol=1e-12)
    assert quick.flows == pytest.approx(slow.flows, rel=2 * isolated_request.WITHIN)


def test_many_messages_whose_bounds_are_apart_are_left_to_the_solver(monkeypatch):
    asked = part("all_gather", AlgorithmOnDims("hyperx-direct", (4, 4)), np.arange(128).reshape(16, 8).T)
    slow = timed("fat-tree:radix=16", [asked])
    monkeypatch.setattr(isolated_request, "LIGHT", 1)
    monkeypatch.setattr(isolated_request, "HEAVY", 1)
    assert timed("fat-tree:radix=16", [asked]).ticks == slow.ticks


@pytest.mark.parametrize(
    ("line", "algorithm", "n"),
    [("infinitehbd:lines:nodes=8,line=4", "ring", 4), ("infinitehbd:binary:nodes=16", "recursive-doubling", 16)],
)
def test_groups_with_switches_of_their_own_turn_them_at_one_time(line, algorithm, n):
    """The GPUs of a node, or of neighbouring nodes, need no switch of another group."""
    ranks = np.arange(32).reshape(-1, n)
    one, all_of_them = (timed(line, [part("all_reduce", AlgorithmOnDims(algorithm), some)]) for some in (ranks[:1], ranks))
    assert all_of_them.ticks == one.ticks
    assert all_of_them.messages == len(ranks) * one.messages
