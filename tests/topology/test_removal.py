"""A topology without what has failed still joins all that networkx finds joined."""

import itertools
from dataclasses import replace
from functools import partial

import networkx as nx
import numpy as np
import pytest

from emu.errors import InputError
from emu.topology.builders.grid import Dimension, grid
from emu.topology.builders.wiring import Cables, star, wire
from emu.topology.catalogue import build_topology
from emu.topology.paths.shortest_paths import shortest
from emu.topology.removal import remove_parts
from emu.topology.topology import Topology

MESH = grid("mesh", [Dimension(3, "cycle", 1e9, 5), Dimension(4, "complete", 2e9, 7)])


def _graph(links):
    return nx.MultiDiGraph(zip(links.src.tolist(), links.dst.tolist(), strict=True))


def _pairs(n):
    return np.array(list(itertools.permutations(range(n), 2)))


@pytest.mark.parametrize("seed", range(6))
def test_every_pair_that_is_still_joined_is_routed_over_what_is_left(seed):
    rng = np.random.default_rng(seed)
    dead = rng.choice(len(MESH.links), size=20 + 6 * seed, replace=False)
    left = remove_parts(MESH, links=dead)
    graph, pairs = _graph(left.links), _pairs(12)
    graph.add_nodes_from(range(12))
    joined = np.array([nx.has_path(graph, *pair) for pair in pairs.tolist()])
    asked = pairs[joined]
    routes = left.routes(*asked.T, np.full(len(asked), seed))
    before = MESH.routes(*asked.T, np.full(len(asked), seed))
    for pair, (src, dst) in enumerate(asked.tolist()):
        walked, old = left.links, before.of(pair)
        nodes = [src, *walked.dst[routes.of(pair)].tolist()]
        assert walked.src[routes.of(pair)].tolist() == nodes[:-1]
        assert nodes[-1] == dst
        if not np.isin(old, dead).any():
            assert nodes[1:] == MESH.links.dst[old].tolist()
        else:
            assert len(nodes) - 1 == nx.shortest_path_length(graph, src, dst)
    for src, dst in pairs[~joined].tolist():
        with pytest.raises(InputError, match=f"no route from node {src} to node {dst}"):
            left.routes([src], [dst], [0])


def test_a_refusal_says_what_failed_and_whether_anything_is_left():
    apart, _ = wire("w", [Cables("cable", [0, 1, 2], [1, 2, 3], 1e9, 0)])
    line = Topology("w", 4, 4, apart, shortest(apart, 4))
    for left, why in (
        (remove_parts(line, nodes=[1]), "w without NPU 1: no route from node 1 to node 3: node 1 failed"),
        (
            remove_parts(line, links=[2, 3]),
            "w without the link NPU 1 to NPU 2: no route from node 1 to node 3: no links join them",
        ),
    ):
        with pytest.raises(InputError, match=f"^{why}$"):
            left.routes([1], [3], [0])


def test_many_failed_parts_are_counted_not_listed():
    assert remove_parts(MESH, nodes=[5], links=range(9)).name == "mesh without 10 parts"


def test_the_equal_ways_that_are_left_share_what_a_failed_one_carried():
    tree = build_topology("fat-tree:radix=8")
    pairs = np.array([(a, b) for a, b in _pairs(tree.n_npus).tolist() if a // 4 != b // 4])
    left = remove_parts(tree, nodes=[tree.n_nodes - 1])
    keys = np.arange(40)
    taken = np.zeros(tree.n_nodes, np.int64)
    for src, dst in pairs[::11].tolist():
        own = tree.routes(np.full(40, src), np.full(40, dst), keys)
        now = left.routes(np.full(40, src), np.full(40, dst), keys)
        before, after = (t.links.dst[r.link].reshape(40, 4) for t, r in ((tree, own), (left, now)))
        kept = before[:, 1] != tree.n_nodes - 1
        assert np.array_equal(before[kept], after[kept])
        taken += np.bincount(after[~kept, 1], minlength=tree.n_nodes)
    spines = taken[tree.n_npus + 8 : -1]
    assert spines.sum() == taken.sum() > 800
    assert spines.min() > 0.8 * spines.mean()


def test_virtual_channels_of_routes_that_stay_are_kept():
    whole = build_topology("railx:torus:m=2,n=2,nodes=3x2")
    pairs = _pairs(whole.n_npus)
    key = np.zeros(len(pairs), np.int64)
    left = remove_parts(whole, links=[0, 1])
    before, after = whole.routes(*pairs.T, key), left.routes(*pairs.T, key)
    assert before.virtual.max() > 0
    stays = [pair for pair in range(len(pairs)) if not {0, 1} & set(before.of(pair).tolist())]
    assert len(stays) < len(pairs)
    for pair in stays:
        at = (slice(r.start[pair], r.start[pair + 1]) for r in (before, after))
        assert np.array_equal(*(r.virtual[where] for r, where in zip((before, after), at, strict=True)))


def test_what_goes_round_over_the_network_needs_no_optical_switch_to_turn():
    whole = build_topology("infinitehbd:binary:nodes=4,k=2")
    pairs = _pairs(whole.n_npus)
    key = np.zeros(len(pairs), np.int64)
    fibre = int(np.flatnonzero(whole.links.dimension == 2)[0])
    left = remove_parts(whole, links=[fibre, fibre + 1])
    (switch, state), (now, then) = whole.circuits.needs(*pairs.T, key), left.circuits.needs(*pairs.T, key)
    broken = np.array([bool({fibre, fibre + 1} & set(whole.routes([a], [b], [0]).link.tolist())) for a, b in pairs.tolist()])
    assert (switch[broken] >= 0).any()
    assert (now[broken] == -1).all()
    assert np.array_equal(now[~broken], switch[~broken])
    assert np.array_equal(then[~broken], state[~broken])


def test_what_is_left_keeps_its_rates_and_the_nodes_their_numbers():
    left = remove_parts(MESH, nodes=[5], links=[0, 3])
    gone = {0, 3} | {i for i in range(len(MESH.links)) if 5 in (MESH.links.src[i], MESH.links.dst[i])}
    kept = [i for i in range(len(MESH.links)) if i not in gone]
    for name in ("src", "dst", "bandwidth_Bps", "latency_fs", "dimension"):
        assert np.array_equal(getattr(left.links, name), getattr(MESH.links, name)[kept])
    assert (left.n_npus, left.n_nodes, left.dims) == (12, 12, (3, 4))
    assert left.name == "mesh without NPU 5, the link NPU 0 to NPU 4, the link NPU 1 to NPU 9"


def test_a_route_to_a_failed_npu_is_refused():
    with pytest.raises(InputError, match="no route from node 0 to node 5"):
        remove_parts(MESH, nodes=[5]).routes([0], [5], [0])


def test_nothing_failed_changes_no_route():
    pairs = _pairs(12)
    before, after = (t.routes(*pairs.T, np.ones(len(pairs))) for t in (MESH, remove_parts(MESH)))
    assert np.array_equal(before.link, after.link)


def test_an_npu_beside_a_switch_passes_nothing_on_unless_it_may():
    """NPUs 0 and 1 have a cable of their own; 0's link up to the switch, node 3, fails."""
    links, _ = wire("w", [Cables("cable", [0, 1, 2, 0], [3, 3, 3, 1], 1e9, 0)])
    whole = Topology("w", 3, 4, links, shortest(links, 4, [False, False, False, True]))
    with pytest.raises(InputError, match="no route from node 0 to node 2"):
        remove_parts(whole, links=[0]).routes([0], [2], [0])
    found = remove_parts(replace(whole, relays=np.ones(4, np.bool_)), links=[0])
    assert found.links.dst[found.routes([0], [2], [0]).link].tolist() == [1, 3, 2]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (partial(remove_parts, MESH, nodes=[12]), "mesh: a failed node must be one of 0..11, got '12..12'"),
        (partial(remove_parts, MESH, links=[-1, 4]), "mesh: a failed link must be one of 0..59, got '-1..4'"),
        (partial(remove_parts, star("s", 2, 1e9, 0), nodes=[3]), "s: a failed node must be one of 0..2, got '3..3'"),
    ],
)
def test_what_is_not_there_cannot_fail(change, message):
    with pytest.raises(InputError) as refused:
        change()
    assert str(refused.value) == message
