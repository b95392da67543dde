"""A topology's declared symmetry is of permutations of nodes that bring links to links, and every route to a route."""

import itertools

import numpy as np
import pytest

from emu.collective.schedule import Translations
from emu.fabric.job_symmetry import image_of, powers_of
from emu.topology.catalogue import TOPOLOGIES, build_topology
from emu.topology.paths.spray import shares_kept
from emu.topology.topology import CHANNELS


def translating(topology):
    """Return a function that tells whether a permutation of nodes translates the NPUs."""
    n = topology.n_npus
    moves = Translations(topology.dims or (n,), n, 1)
    return lambda node: np.array_equal(node[:n], moves.rank(np.arange(n), node[0]))


def moves_of(topology, keeps):
    """Return the moves of a topology's symmetry that keep something."""
    return [image_of(topology, power) for power in powers_of(topology, np.arange(topology.n_npus), keeps)]


LINES = [":".join(filter(None, (name, example))) for name, blueprint in TOPOLOGIES for example in blueprint.examples]
DECLARED = [line for line in LINES if build_topology(line).symmetry is not None]


@pytest.mark.parametrize("line", DECLARED)
def test_a_declared_symmetry_is_a_permutation_that_leaves_npus_npus(line):
    topology = build_topology(line)
    for node in topology.symmetry():
        assert sorted(node.tolist()) == list(range(topology.n_nodes))
        assert node[: topology.n_npus].max() < topology.n_npus


@pytest.mark.parametrize("line", DECLARED)
def test_what_is_found_of_it_keeps_links_and_the_route_of_every_pair(line):
    topology, links = build_topology(line), build_topology(line).links
    n = topology.n_npus
    src, dst = np.array(list(itertools.permutations(range(n), 2)), np.int64).reshape(-1, 2).T
    for node, link in moves_of(topology, translating(topology)):
        assert np.array_equal(node[links.src], links.src[link])
        assert np.array_equal(node[links.dst], links.dst[link])
        assert np.array_equal(links.bandwidth_Bps, links.bandwidth_Bps[link])
        assert np.array_equal(links.latency_fs, links.latency_fs[link])
        for key in (0, 1, 3 * CHANNELS + 5):
            keys = np.full(len(src), key)
            if topology.spray is not None:
                assert shares_kept(topology, topology.spray, (src, dst, keys), node, link)
                continue
            here, there = topology.routes(src, dst, keys), topology.routes(node[src], node[dst], keys)
            assert np.array_equal(link[here.link], there.link)


@pytest.mark.parametrize(("line", "found"), [("switch:n=5", 1), ("ring:n=5", 1), ("torus:dims=3x4x1", 2), ("full-mesh:n=4", 1)])
def test_switch_ring_torus_and_mesh_have_a_translation_along_each_dimension(line, found):
    topology = build_topology(f"{line},bandwidth=1GB/s,latency=1ns")
    n = topology.n_npus
    moves = moves_of(topology, translating(topology))
    assert len(moves) == found
    assert all((nodes[:n] != np.arange(n)).all() for nodes, _ in moves)
