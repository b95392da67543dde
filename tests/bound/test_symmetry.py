"""Ranks and links that are alike: a linear program of one of each says what the whole one says."""

from dataclasses import replace

import numpy as np
import pytest

from emu.bound.cuts import groups, sampled_cut
from emu.bound.linear_programs import all_reduce_by_trees, exchange
from emu.bound.network import NetworkKinds, network, network_kinds
from emu.collective.operation import ROOTED, operation
from emu.topology.catalogue import build_topology

LINK = "bandwidth=50GB/s,latency=500ns"
# Topologies, and of how many kinds their NPUs are.
KINDS = {
    f"switch:n=5,{LINK}": 1,
    f"ring:n=2,{LINK}": 1,
    f"torus:dims=3x2x2,{LINK}": 1,
    f"torus:dims=4x2,{LINK}": 1,
    "servers:nodes=2,gpus=3,network=rails": 1,
    "dgx-h100:chips=apart": 1,
    "fat-tree:radix=4,tiers=3": 1,
    "hpn:pod:dims=2x2x2,aggs=2": 1,
    "hammingmesh:boards=2x1,side=2": 1,
    "railx:torus:m=2,n=1,nodes=3x2": 2,
    "railx:dragonfly:m=2,n=1,groups=3": 4,  # by steps: none is declared
    "ub-mesh:pod:dims=3x2x2x3,planes=2,route=detour": 1,  # by what is declared and by steps
    "sip-ocs:n=6,ports=2": 1,
}


def _nothing_alike(net):
    nodes = np.where(net.has_rank, np.cumsum(net.has_rank) - 1, -1)
    return NetworkKinds((), np.sort(net.ranks), nodes, np.arange(len(net.src)))


@pytest.mark.parametrize("line", KINDS)
def test_ranks_that_the_numbering_maps_on_one_another_are_alike(line) -> None:
    topology = build_topology(line)
    net = network(topology, np.arange(topology.n_npus))
    alike = network_kinds(net, topology)
    assert len(alike.ranks) == KINDS[line]
    assert alike.ranks_alike.sum() == topology.n_npus
    for image in alike.maps:
        arcs = {(a, b): c for a, b, c in zip(net.src.tolist(), net.dst.tolist(), net.capacity.tolist(), strict=True)}
        assert arcs == {(image[a], image[b]): c for (a, b), c in arcs.items()}


LARGE = ("fat-tree", "torus:dims=3", "railx:dragonfly", "ub-mesh")


@pytest.mark.parametrize("line", [line for line in KINDS if not line.startswith(LARGE)])
def test_one_of_each_kind_says_what_all_say(line) -> None:
    topology = build_topology(line)
    net = network(topology, np.arange(topology.n_npus))
    alike, apart = network_kinds(net, topology), _nothing_alike(net)
    assert exchange(net, alike) == pytest.approx(exchange(net, apart), rel=1e-7)
    assert all_reduce_by_trees(net, alike) == pytest.approx(all_reduce_by_trees(net, apart), rel=1e-7)


@pytest.mark.parametrize(("rate", "latency"), [(5e8, 0), (1e9, 7)])
def test_one_slower_or_longer_link_leaves_nothing_alike(made, rate, latency) -> None:
    ring = [(a, (a + d) % 4, 1e9, 0) for a in range(4) for d in (1, 3)]
    even, odd = made(4, 4, ring), made(4, 4, [*ring[:-1], (*ring[-1][:2], rate, latency)])
    assert [len(network_kinds(network(t, np.arange(4)), t).ranks) for t in (even, odd)] == [1, 4]


def test_ranks_on_some_npus_are_alike_only_where_they_are_mapped_on_one_another() -> None:
    topology = build_topology(f"torus:dims=4x4,{LINK}")
    row, corner = np.arange(4), np.array([0, 1, 4, 5])
    assert len(network_kinds(network(topology, row), topology).ranks) == 1
    assert len(network_kinds(network(topology, corner), topology).ranks) == 4


def _shuffled_ring(made, declared):
    """NPUs in a cycle that their numbers do not follow, so that no step along them maps it on itself."""
    order = np.array([0, 2, 1, 4, 3, 6, 5])
    ends = [(int(a), int(b)) for a, b in zip(order, np.roll(order, -1), strict=True)]
    ring = made(7, 7, [(*pair, 1e9, 0) for end in ends for pair in (end, end[::-1])])
    return replace(
        ring, symmetry=lambda: [np.roll(order, -1)[np.argsort(order)]] if declared == "turned" else [np.roll(order, 1)]
    )


def test_what_is_declared_is_taken_where_the_numbering_says_nothing(made) -> None:
    ring = _shuffled_ring(made, "turned")
    net = network(ring, np.arange(7))
    assert len(network_kinds(net, ring).ranks) == 1
    assert len(network_kinds(net, replace(ring, symmetry=None)).ranks) == 7


def test_what_is_declared_and_does_not_map_arcs_on_arcs_is_left(made) -> None:
    ring = _shuffled_ring(made, "wrong")
    alike = network_kinds(network(ring, np.arange(7)), ring)
    assert (len(alike.maps), len(alike.ranks)) == (0, 7)


@pytest.mark.parametrize("name", ["all_reduce", "all_to_all", "broadcast", "scatter", "gather"])
@pytest.mark.parametrize("line", KINDS)
def test_one_group_of_each_kind_limits_as_all_groups_do(line, name) -> None:
    topology = build_topology(line)
    n = topology.n_npus
    net, op = network(topology, np.arange(n)), operation(name, n, n - 1 if name in ROOTED else 0)
    found = [
        sampled_cut(net, alike, op, topology.dims, most_sets=10**6).ratio
        for alike in (network_kinds(net, topology), _nothing_alike(net))
    ]
    assert found[0] == found[1]


def test_servers_are_alike_but_for_one_with_a_slower_link(made) -> None:
    servers = build_topology("servers:nodes=3,gpus=2,network=switch")
    rate = servers.links.bandwidth_Bps.copy()
    rate[0] /= 2
    slower = replace(servers, links=replace(servers.links, bandwidth_Bps=rate), symmetry=None)
    kinds = []
    for each in (servers, slower):
        net = network(each, np.arange(6))
        [(_, of)] = groups(net, network_kinds(net, each), each.dims)
        kinds.append((len(of.first), of.size.tolist()))
    assert kinds == [(1, [3]), (3, [1, 1, 1])]


def test_what_tears_groups_apart_does_not_make_them_alike(made) -> None:
    ring = made(6, 6, [(a, (a + d) % 6, 1e9, 0) for a in range(6) for d in (1, 5)])
    turned = replace(ring, dims=(3, 2), symmetry=lambda: [np.roll(np.arange(6), -1)])
    net = network(turned, np.arange(6))
    alike = network_kinds(net, turned)
    [(_, kinds)] = groups(net, alike, turned.dims)
    assert (len(alike.ranks), len(kinds.first)) == (1, 3)
