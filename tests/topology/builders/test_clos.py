import itertools
from collections import Counter

import networkx as nx
import numpy as np
import pytest

from emu.errors import InputError
from emu.topology.builders.clos import Tier, clos, count

TIERS = [
    [Tier(4, 1, 1e9, 1)],
    [Tier(3, 2, 1e9, 1), Tier(2, 2, 2e9, 1, parallel=2)],
    [Tier(2, 1, 1e9, 1), Tier(3, 2, 1e9, 1), Tier(2, 3, 1e9, 1)],
]
built = pytest.mark.parametrize("tiers", TIERS, ids=["one", "two", "three"])


def _pairs(n):
    return np.array(list(itertools.permutations(range(n), 2))).T


def _by_definition(tiers):
    """Öhring's XGFT: nodes are (tier, digits of the block, digits of the choice); a cable changes digit l of either."""
    digits = [[range(t.down) for t in tiers[level:]] + [range(t.up) for t in tiers[:level]] for level in range(len(tiers) + 1)]
    edges = Counter()
    for level, tier in enumerate(tiers):
        for node in itertools.product(*digits[level]):
            blocks, choice = node[: len(tiers) - level], node[len(tiers) - level :]
            for parent in range(tier.up):
                edges[(level, blocks, choice), (level + 1, blocks[1:], (*choice, parent))] += tier.parallel
    return edges


@built
def test_it_is_the_tree_of_the_definition(tiers):
    topology = clos("t", tiers)
    found, expected = nx.MultiGraph(), nx.MultiGraph()
    found.add_edges_from(zip(topology.links.src[::2].tolist(), topology.links.dst[::2].tolist(), strict=True))
    for (a, b), times in _by_definition(tiers).items():
        expected.add_edges_from([(a, b)] * times)
    assert (len(found), found.size()) == (len(expected), expected.size())
    assert nx.is_isomorphic(found, expected)


@built
def test_routes_climb_no_higher_than_they_must_then_descend(tiers):
    topology = clos("t", tiers)
    graph = nx.Graph(zip(topology.links.src.tolist(), topology.links.dst.tolist(), strict=True))
    src, dst = _pairs(topology.n_npus)
    routes = topology.routes(src, dst, np.zeros(len(src)))
    tier_of = np.repeat(np.arange(len(tiers) + 1), count(tiers).nodes)
    for pair in range(len(src)):
        ends = [topology.links.src[routes.of(pair)].tolist(), topology.links.dst[routes.of(pair)].tolist()]
        assert [src[pair], *ends[1]] == [*ends[0], dst[pair]]
        top = nx.shortest_path_length(graph, src[pair], dst[pair]) // 2
        assert tier_of[ends[1]].tolist() == [*range(1, top + 1), *range(top - 1, -1, -1)]


def test_keys_spread_over_all_ways_up_and_all_parallel_cables_down():
    topology = clos("t", TIERS[1])
    keys = np.arange(400)
    routes = topology.routes(np.zeros(400), np.full(400, 5), keys)
    assert (routes.hops == 4).all()
    taken = {tuple(links) for links in routes.link.reshape(400, 4).tolist()}
    assert len(taken) == 2 * 2 * 2 * 2  # switch of the first tier, of the second, cable up, cable down


def test_a_helper_on_a_switch_is_reached_from_every_npu():
    topology = clos("t", TIERS[2])
    src, dst = np.arange(12), np.full(12, 12)
    there, back = (topology.routes(*ends, np.zeros(12)) for ends in ((src, dst), (dst, src)))
    assert np.array_equal(topology.links.dst[there.link[there.start[1:] - 1]], dst)
    assert np.array_equal(topology.links.dst[back.link[back.start[1:] - 1]], src)
    mixed = topology.routes([0, 12, 3], [11, 3, 13], np.zeros(3))
    assert topology.links.dst[mixed.link[mixed.start[1:] - 1]].tolist() == [11, 3, 13]
    assert np.array_equal(mixed.of(0), topology.routes([0], [11], [0]).link)


@pytest.mark.parametrize("tiers", [[], [Tier(0, 1, 1e9, 1)], [Tier(4, 1, 1e9, 1, parallel=0)]])
def test_a_tree_without_a_tier_or_with_an_empty_one_is_refused(tiers):
    with pytest.raises(InputError, match="tiers must be one or more, with 1 or more down, up and in parallel"):
        clos("t", tiers)


def test_too_many_links_are_refused_before_they_are_made():
    with pytest.raises(InputError, match="links must be at most"):
        clos("t", [Tier(10**9, 10**9, 1e9, 1)])
