"""What is alike, and that a linear program of one of each says what the whole one says."""

import numpy as np
import pytest

from emu.bound.flows import exchange
from emu.bound.network import network
from emu.bound.symmetry import Symmetry, symmetry
from emu.bound.trees import all_reduce_by_trees
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
    "sip-ocs:n=6,ports=2": 6,
}


def _nothing_alike(net):
    nodes = np.where(net.has_rank, np.cumsum(net.has_rank) - 1, -1)
    return Symmetry((), np.sort(net.ranks), nodes, np.arange(len(net.src)))


@pytest.mark.parametrize("line", KINDS)
def test_ranks_that_the_numbering_maps_on_one_another_are_alike(line) -> None:
    topology = build_topology(line)
    net = network(topology, np.arange(topology.n_npus))
    alike = symmetry(net, topology.dims)
    assert len(alike.ranks) == KINDS[line]
    assert alike.ranks_alike.sum() == topology.n_npus
    for image in alike.maps:
        arcs = {(a, b): c for a, b, c in zip(net.src.tolist(), net.dst.tolist(), net.capacity.tolist(), strict=True)}
        assert arcs == {(image[a], image[b]): c for (a, b), c in arcs.items()}


@pytest.mark.parametrize("line", [line for line in KINDS if not line.startswith(("fat-tree", "torus:dims=3"))])
def test_one_of_each_kind_says_what_all_say(line) -> None:
    topology = build_topology(line)
    net = network(topology, np.arange(topology.n_npus))
    alike, apart = symmetry(net, topology.dims), _nothing_alike(net)
    assert exchange(net, alike) == pytest.approx(exchange(net, apart), rel=1e-7)
    assert all_reduce_by_trees(net, alike) == pytest.approx(all_reduce_by_trees(net, apart), rel=1e-7)


def test_one_slower_link_leaves_nothing_alike(made) -> None:
    ring = [(a, (a + d) % 4, 1e9, 0) for a in range(4) for d in (1, 3)]
    even, odd = made(4, 4, ring), made(4, 4, [*ring[:-1], (*ring[-1][:2], 5e8, 0)])
    assert [len(symmetry(network(t, np.arange(4)), ()).ranks) for t in (even, odd)] == [1, 4]


def test_ranks_on_some_npus_are_alike_only_where_they_are_mapped_on_one_another() -> None:
    topology = build_topology(f"torus:dims=4x4,{LINK}")
    row, corner = np.arange(4), np.array([0, 1, 4, 5])
    assert len(symmetry(network(topology, row), topology.dims).ranks) == 1
    assert len(symmetry(network(topology, corner), topology.dims).ranks) == 4
