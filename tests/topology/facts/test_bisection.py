"""Bisections of small instances of every family, against the least cut over all sets of nodes with half of the NPUs."""

from dataclasses import replace
from itertools import combinations, product
from math import inf

import networkx as nx
import numpy as np
import pytest

from emu.topology.catalogue import TOPOLOGIES, build_topology
from emu.topology.facts.facts import bisection, cut, halvings
from emu.topology.topology import Links

ODD_FIRST = (  # dimensions of odd size are cut, because there is no even one or an even one is wider
    *(f"torus:dims={dims},bandwidth=50GB/s,latency=500ns" for dims in ("3x3", "3x5", "5x3", "2x5", "7x2", "3x2x2")),
    *("full-mesh:n=7,bandwidth=50GB/s,latency=500ns", "ring:n=11,bandwidth=50GB/s,latency=500ns", "big-switch:n=7"),
    *("switch:n=9,bandwidth=50GB/s,latency=500ns", "fat-tree:pgft:down=2x5,up=1x1,parallel=1x1"),
    *("fat-tree:pgft:down=3x3,up=1x2,parallel=1x1", "fat-tree:radix=5,tiers=1", "fat-tree:pgft:down=5,up=2,parallel=3"),
    *("dragonfly:p=2,a=2,h=1", "dragonfly:p=3,a=1,h=2", "dragonfly:p=1,a=2,h=1", "dragonfly:p=1,a=1,h=4"),
    *("hammingmesh:boards=1x1,side=3", "hammingmesh:boards=3x3,side=1,planes=9", "rail-only:dims=3x3", "rail-only:dims=5x2"),
    *("rail-optimised:radix=2,gpus=3,spines=1", "servers:nodes=3,gpus=2,network=switch", "servers:nodes=3,gpus=2"),
    *("servers:nodes=5,gpus=2,network=rails", "servers:nodes=3,gpus=3,network=switch", "servers:nodes=3,gpus=1"),
    *("infinitehbd:dims=1x7x1x2,k=2,tp=2", "infinitehbd:line:dims=1x5x1x3,tp=3", "sip-ring:size=3,rings=3"),
    *("sip-ring:size=5,rings=3", "sip-ring:size=2,rings=3", "sip-ring:size=5,rings=2,dcn=25GB/s", "sipac:r=3,L=2"),
    *("sipac:r=7,L=1", "sipac:r=3,L=2,w=13", "flex-sipac:r=3,L=2,jobs=9", "flex-sipac:r=3,L=2,jobs=3+6"),
    *("railx:hyperx:m=1,n=2", "railx:hyperx:m=1,n=4,a=2", "railx:torus:m=1,n=1,nodes=3x5", "railx:torus:m=1,n=2,nodes=3x3"),
    *("railx:torus:m=1,n=1,nodes=7x2", "railx:split:m=1,n=2,rails=K3@2/C5@2", "railx:dragonfly:m=1,n=2,groups=3"),
    *("railx:dragonfly:m=1,n=2,groups=5", "hpn:segment:dims=3x2", "hpn:segment:dims=3x3,nvlink=450GB/s"),
    *("ub-mesh:rack-full:dims=3x3,planes=1", "ub-mesh:rack-full:dims=3x2,planes=1"),
)
EVEN = (
    *("torus:dims=4x3,bandwidth=50GB/s,latency=500ns", "hypercube:d=3,bandwidth=50GB/s,latency=500ns", "dgx-h100"),
    *("fat-tree:radix=4", "hpn:segment:dims=4x2", "servers:nodes=2,gpus=4,network=rails", "rail-only:dims=2x3"),
    *("infinitehbd:line:dims=1x5x1x2,k=2,tp=2", "sip-ring:size=8", "sipac:r=4,L=2", "ub-mesh:board"),
    *("railx:hyperx:m=2,n=1,a=2,k=1", "railx:torus:m=2,n=1,nodes=2x2", "railx:dragonfly:m=1,n=2,groups=2"),
    *("tpuv4:cubes=1x1x1,side=2", "flex-sipac:r=4,L=2,jobs=8+4+4,w=30,keep=1", "railx:hyperx-nonminimal:m=1,n=2"),
)
MANY_SWITCHES = (
    *("hpn:pod:dims=3x1x2,aggs=1", "hpn:clos:dims=3x2x1,aggs=2", "hpn:rail-only:dims=3x1x2,aggs=1"),
    *("ub-mesh:rack-1d-fm-a:dims=3x2", "ub-mesh:rack-1d-fm-b:dims=3x2", "ub-mesh:rack-clos:dims=3x2"),
    *("hpn:dcn-plus:dims=3x1x2x1,aggs=1,parallel=1", "hpn:dims=3x1x2x1,aggs=1", "ub-mesh:pod:dims=1x1x2x3"),
)
# The middle of the numbering is not the best place to cut circuits that lead everywhere; nothing else is tried.
ABOVE = {"sip-ocs:n=12,ports=4": 5 / 3, "sip-ocs:n=16": 1.125}


def _joint(topology):
    """The bandwidth from one node to another, by both."""
    found, links = {}, topology.links
    for src, dst, rate in zip(*(c.tolist() for c in (links.src, links.dst, links.bandwidth_Bps)), strict=True):
        found[src, dst] = found.get((src, dst), 0.0) + rate
    return found


def _least_of_all_sets(topology):
    """The least bandwidth out of a set of nodes that has half of the NPUs; each switch is in it or not."""
    n, least, size = topology.n_npus, inf, 2**16
    for first in range(0, 2**topology.n_nodes, size):
        inside = (np.arange(first, min(first + size, 2**topology.n_nodes))[:, None] >> np.arange(topology.n_nodes) & 1) > 0
        inside = inside[np.isin(inside[:, :n].sum(axis=1), (n // 2, n - n // 2))].T
        out = sum(rate * (inside[src] & ~inside[dst]) for (src, dst), rate in _joint(topology).items())
        least = min(least, out.min(initial=inf))
    return least


def _least_of_all_halves(topology):
    """The least of networkx's minimum cuts between two halves of the NPUs."""
    n, graph = topology.n_npus, nx.DiGraph()
    graph.add_edges_from((*ends, {"capacity": rate}) for ends, rate in _joint(topology).items())
    least = inf
    for low in combinations(range(n), n // 2):
        joined = graph.copy()
        for npu in range(n):
            joined.add_edges_from([("low", npu), (npu, "low")] if npu in low else [("high", npu), (npu, "high")], capacity=inf)
        least = min(least, *(nx.minimum_cut_value(joined, *ends) for ends in (("low", "high"), ("high", "low"))))
    return least


@pytest.mark.parametrize("word", [*ODD_FIRST, *EVEN])
def test_a_bisection_is_the_least_of_all_sets_with_half_of_the_npus(word):
    topology = build_topology(word)
    assert bisection(topology)[0] == pytest.approx(_least_of_all_sets(topology), rel=1e-12)


@pytest.mark.parametrize("word", MANY_SWITCHES)
def test_a_bisection_is_the_least_minimum_cut_between_two_halves(word):
    topology = build_topology(word)
    assert bisection(topology)[0] == pytest.approx(_least_of_all_halves(topology), rel=1e-12)


@pytest.mark.parametrize(("word", "times"), ABOVE.items())
def test_a_bisection_is_an_upper_bound_where_no_halving_that_is_tried_is_the_least(word, times):
    topology = build_topology(word)
    assert bisection(topology)[0] == pytest.approx(times * _least_of_all_sets(topology), rel=1e-12)


def test_every_family_has_an_instance():
    tried = {word.partition(":")[0] for word in (*ODD_FIRST, *EVEN, *MANY_SWITCHES, *ABOVE)}
    assert {name.partition(":")[0] for name, _ in TOPOLOGIES} - tried == {"nvl"}  # of 36 GPUs or more behind one kind of switch


def test_halves_differ_by_one_npu_at_most_whatever_the_dimensions():
    for dims in ((3, 5, 7), (2, 3), (37, 37, 4, 4), (5,), (1, 9), (), (3, 1, 3, 2)):
        n = int(np.prod(dims)) if dims else 11
        assert {int(low.sum()) for _, low in halvings(n, dims)} == {n // 2}


def test_a_hyperx_of_odd_rows_is_cut_through_its_rows_and_not_through_its_meshes():
    topology, rows, pairs = build_topology("railx:hyperx:m=4,n=9"), 37, 18 * 19
    found, halves = bisection(topology)
    assert halves.startswith("dimension 0 at its middle, its middle place by dimension")
    column = 2 * pairs * rows * 50e9  # two rails of a pair of nodes, each way
    assert column < found < 1.05 * column
    assert found / (topology.n_npus // 2 * 36 * 50e9) == pytest.approx(0.066, abs=0.0005)


def _most_lit(topology, low):
    """The most that any states of the optical switches light between two sides, tried one by one."""
    links = topology.links
    src, dst = links.src.astype(np.int64), links.dst.astype(np.int64)
    switch, state = topology.circuits.needs(src, dst, np.zeros(len(src), np.int64))
    names, most = sorted(set(switch[switch >= 0].tolist())), 0.0
    for states in product(range(int(state.max()) + 1), repeat=len(names)):
        at = dict(zip(names, states, strict=True))
        lit = [
            all(s < 0 or at[s] == t for s, t in zip(*each, strict=True))
            for each in zip(switch.tolist(), state.tolist(), strict=True)
        ]
        kept = [
            column[np.array(lit)] for column in (links.src, links.dst, links.bandwidth_Bps, links.latency_fs, links.dimension)
        ]
        most = max(most, cut(replace(topology, links=Links(*kept), circuits=None), low))
    return most


@pytest.mark.parametrize("x", ["cp3~ep3@2", "cp2~ep3@2", "cp3~dp3@2"])
def test_dimensions_that_share_rails_are_not_lit_at_one_time(x):
    topology = build_topology(f"railx:mapped:m=1,n=2,x={x},y=pp3@2")
    tried = [_most_lit(topology, low) for _, low in halvings(topology.n_npus, topology.dims)]
    assert bisection(topology)[0] == pytest.approx(min(tried), rel=1e-12)
    assert bisection(topology)[0] < bisection(replace(topology, circuits=None))[0]
