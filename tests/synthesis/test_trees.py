"""Switches split off, trees packed, ways shortened, and the order of sends: properties that must hold on every network."""

from collections import Counter
from itertools import pairwise

import numpy as np
import pytest

from emu.collective.operation import operation
from emu.collective.proof import prove
from emu.errors import RunError
from emu.synthesis.capacities import capacity_network, suffices, whole_capacities
from emu.synthesis.forest import grow_forest
from emu.synthesis.hops import hop_network
from emu.synthesis.ordering import lanes, streams
from emu.synthesis.packing import Tree, pack
from emu.synthesis.relief import busiest, relieve
from emu.synthesis.shortening import lengths, parents_of, shorten
from emu.synthesis.splitting import UnpairedError, even_amounts, remove_switches
from emu.topology.catalogue import build_topology
from tests.synthesis.graphs import drawn

LINK = "bandwidth=50GB/s,latency=500ns"
SEEDS = range(15)


def never() -> None:
    """Let no time end."""


def arcs_of(trees: list[Tree]) -> Counter:
    return sum((Counter(dict.fromkeys(tree.arcs, tree.weight)) for tree in trees), Counter())


def split_network(seed: int):
    topology = drawn(seed)
    n = topology.n_npus
    hops = hop_network(topology, tuple(range(n)))
    whole = whole_capacities(capacity_network(hops), np.ones(n, np.int64), 8)
    joined = np.zeros((n, n), np.bool_)
    joined[hops.src, hops.dst] = True
    given = np.full(n, whole.trees)
    return remove_switches(whole.capacity, given, joined, never), given, whole.capacity


@pytest.mark.parametrize("seed", SEEDS)
def test_without_switches_as_many_trees_can_be_packed_and_no_link_carries_more(seed):
    split, given, capacity = split_network(seed)
    n = len(given)
    assert not split.capacity[n:].any()
    assert not split.capacity[:, n:].any()
    assert suffices(split.capacity[:n, :n].copy(), given)
    carried = np.zeros_like(capacity)
    for (a, b), parts in split.ways.items():
        assert sum(parts.values()) == split.capacity[a, b]
        for via, amount in parts.items():
            nodes = [a, *via, b]
            for here, there in pairwise(nodes):
                carried[here, there] += amount
    assert (carried <= capacity).all()


@pytest.mark.parametrize("seed", SEEDS)
def test_packed_trees_span_all_ranks_and_fit_together(seed):
    split, given, _ = split_network(seed)
    n = len(given)
    capacity = split.capacity[:n, :n].copy()
    trees = pack(capacity, given, never)
    for tree in trees:
        assert sorted(tree.ranks) == list(range(n))
        reached = {tree.root}
        for a, b in tree.arcs:
            assert a in reached
            reached.add(b)
    assert np.array_equal(np.bincount([t.root for t in trees], [t.weight for t in trees], n), given)
    assert all(taken <= capacity[arc] for arc, taken in arcs_of(trees).items())


@pytest.mark.parametrize("seed", SEEDS)
def test_shorter_ways_take_the_same_arcs(seed):
    split, given, _ = split_network(seed)
    n = len(given)
    trees = pack(split.capacity[:n, :n].copy(), given, never)
    root, parent = parents_of(trees, n)
    step = np.ones((n, n))
    short = shorten(parent, step, 4, never)
    for rank in range(n):
        assert np.array_equal(np.sort(short[:, rank]), np.sort(parent[:, rank]))
    assert np.array_equal(short[np.arange(len(root)), root], root)
    assert lengths(short, step).max() <= lengths(parent, step).max()
    up = short
    for _ in range(n):  # every way ends at the root
        up = np.take_along_axis(short, up, axis=1)
    assert np.array_equal(up, np.repeat(root[:, None], n, axis=1))


def test_ways_on_a_torus_become_as_short_as_its_diameter():
    hops = hop_network(build_topology(f"torus:dims=4x4,{LINK}"), tuple(range(16)))
    assert grow_forest(hops, np.ones(16, np.int64), 4, never, inward=False).depth == 4


def test_busy_links_are_relieved_by_other_parents():
    hops = hop_network(build_topology(f"full-mesh:n=5,{LINK}"), tuple(range(5)))
    parent = np.zeros((4, 5), np.int64)  # in four trees all ranks are reached from rank 0
    pair = {ends: hop for hop, ends in enumerate(zip(hops.src.tolist(), hops.dst.tolist(), strict=True))}
    hop = np.array([[-1 if above == rank else pair[above, rank] for rank, above in enumerate(row)] for row in parent.tolist()])
    fewer, over = relieve(hops, parent, hop, never, inward=False)
    assert busiest(hops, over) < busiest(hops, hop) == pytest.approx(4 / 50e9)
    assert np.isfinite(lengths(fewer, np.ones((5, 5)))).all()
    assert np.array_equal(hops.src[over[over >= 0]], fewer[over >= 0])


def test_amounts_are_as_even_as_possible_and_leave_out_a_nodes_own():
    usable = ~np.eye(4, dtype=np.bool_)
    assert np.array_equal(even_amounts(np.full(4, 3), np.full(4, 3), usable), usable.astype(np.int64))
    found = even_amounts(np.array([6, 2, 2, 2]), np.array([6, 2, 2, 2]), usable)
    assert np.array_equal(found.sum(axis=0), [6, 2, 2, 2])
    assert np.array_equal(found.sum(axis=1), [6, 2, 2, 2])
    assert not np.diag(found).any()


@pytest.mark.parametrize("seed", range(20))
def test_amounts_add_up_also_where_pairs_of_use_do_not_suffice(seed):
    random = np.random.default_rng(seed)
    into = random.integers(0, 9, 5)
    out = random.permutation(into)
    found = even_amounts(into, out, random.random((5, 5)) < 0.4)
    assert (found >= 0).all()
    assert np.array_equal(found.sum(axis=1), into)
    assert np.array_equal(found.sum(axis=0), out)


def test_a_switch_from_which_nothing_can_be_left_out_is_told():
    # One unit comes in, and two ranks need one each: a cut lets it through, but nothing copies it.
    capacity = np.zeros((4, 4), np.int64)
    capacity[[0, 3, 3], [3, 1, 2]] = 1
    assert suffices(capacity, np.array([1, 0, 0]))
    with pytest.raises(UnpairedError):
        remove_switches(capacity, np.array([1, 0, 0]), np.ones((3, 3), np.bool_), never)


def test_trees_that_do_not_fit_are_told():
    with pytest.raises(RunError, match="no arc can be added to a tree of rank 0"):
        pack(np.array([[0, 1], [1, 0]], np.int64), np.array([2, 0]), never)


@pytest.mark.parametrize("inward", [False, True])
@pytest.mark.parametrize("pieces", [1, 3])
@pytest.mark.parametrize("seed", range(6))
def test_lanes_and_streams_of_a_forest_do_the_operation(seed, pieces, inward):
    topology = drawn(seed)
    n = topology.n_npus
    hops = hop_network(topology, tuple(range(n)))
    forest = grow_forest(hops, np.ones(n, np.int64), 4, never, inward=inward)
    wanted = operation("reduce_scatter" if inward else "all_gather", n)
    for schedule in (lanes(forest, hops, 2.0**20, pieces, never), streams([forest], hops, pieces)):
        assert prove(schedule, wanted).n_rows == len(forest.root) * (n - 1) * pieces
        assert set(zip(schedule.src.tolist(), schedule.dst.tolist(), strict=True)) <= set(
            zip(hops.src.tolist(), hops.dst.tolist(), strict=True)
        )


def test_a_lane_carries_one_message_a_round():
    hops = hop_network(build_topology(f"torus:dims=3x3,{LINK}"), tuple(range(9)))
    schedule = lanes(grow_forest(hops, np.ones(9, np.int64), 4, never, inward=False), hops, 2.0**20, 2, never)
    key = np.stack((schedule.round_column(), schedule.src, schedule.channel))
    assert np.unique(key, axis=1).shape[1] == schedule.n_rows
