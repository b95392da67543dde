"""How many NPUs groups can be made of where some are faulty, held to counting by hand and to networkx."""

from itertools import pairwise

import networkx as nx
import numpy as np
import pytest

from emu.errors import InputError
from emu.topology.catalogue import TOPOLOGIES, build_topology
from emu.topology.usable_npus import usable_in_blocks, usable_in_healthy_units, usable_npus, usable_within_units

EXAMPLES = [f"{name}:{settings}" if settings else name for name, known in TOPOLOGIES for settings in known.examples[:2]]


def states(npus, count, seed=0, rate=0.1):
    return np.random.default_rng(seed).random((count, npus)) < rate


@pytest.mark.parametrize("word", EXAMPLES)
def test_every_topology_says_what_is_left_and_more_faults_leave_no_more(word):
    topology = build_topology(word)
    faulty = states(topology.n_npus, 4)
    more = faulty | states(topology.n_npus, 4, seed=1)
    left, fewer = usable_npus(topology, 1, faulty), usable_npus(topology, 1, more)
    assert (fewer <= left).all()
    assert (left <= topology.n_npus).all()
    assert 0 < usable_npus(topology, 1, np.zeros((1, topology.n_npus), np.bool_))[0] <= topology.n_npus


def test_a_unit_holds_as_many_whole_groups_as_its_working_npus_make():
    faulty = states(6 * 12, 50, rate=0.2)
    for group in (1, 2, 5, 12):
        by_hand = [sum((12 - sum(unit)) // group * group for unit in state.reshape(6, 12)) for state in faulty]
        assert usable_within_units("x", 12, group, faulty).tolist() == by_hand


def test_a_group_of_several_units_takes_those_without_a_fault():
    faulty = np.zeros((2, 40), np.bool_)
    faulty[1, [3, 25]] = True
    assert usable_within_units("x", 10, 20, faulty).tolist() == [40, 20]
    assert usable_in_healthy_units("x", 10, 5, faulty).tolist() == [40, 20]
    assert usable_in_blocks("x", 8, faulty).tolist() == [40, 24]


def test_a_group_that_no_part_can_hold_is_refused():
    nothing = np.zeros((1, 40), np.bool_)
    with pytest.raises(InputError, match="x: NPUs of a group must be at most 10, or a multiple of it, got 15"):
        usable_within_units("x", 10, 15, nothing)
    with pytest.raises(InputError, match="x: NPUs of a group must be a divisor of 40"):
        usable_in_blocks("x", 15, nothing)
    with pytest.raises(InputError, match=r"nvl:36: NPUs of a group must be 1..36, got 64; take a smaller group"):
        usable_npus(build_topology("nvl:36"), 64, np.zeros((1, 36), np.bool_))
    with pytest.raises(InputError, match="infinitehbd: NPUs of a group must be a multiple of 4, the GPUs of a node, or fewer"):
        usable_npus(build_topology("infinitehbd:dims=1x8x2x4,tp=16"), 6, np.zeros((1, 64), np.bool_))


@pytest.mark.parametrize("k", [2, 3])
@pytest.mark.parametrize("word", ["infinitehbd", "infinitehbd:line"])
def test_infinitehbd_makes_groups_of_what_its_fibres_join(word, k):
    """Nodes that fibres of 1..K join make components; each holds as many whole groups as it has nodes for."""
    topology = build_topology(f"{word}:dims=1x10x2x4,k={k},tp=8")
    nodes, faulty = 20, states(20, 30, rate=0.3)
    order = np.arange(nodes).reshape(-1, 2).T.ravel()
    found = usable_npus(topology, 8, np.repeat(faulty, 4, axis=1))
    for state, npus in zip(faulty, found, strict=True):
        graph = nx.Graph()
        graph.add_nodes_from(np.flatnonzero(~state[order]).tolist())
        reach = [(i, (i + d) % nodes) for i in range(nodes) for d in range(1, k + 1) if word == "infinitehbd" or i + d < nodes]
        graph.add_edges_from((i, j) for i, j in reach if i in graph and j in graph)
        assert npus == sum(len(part) // 2 * 8 for part in nx.connected_components(graph))


def test_a_broken_ring_holds_no_group_and_a_cube_holds_what_is_left():
    ring, cubes = build_topology("sip-ring:size=8,rings=4"), build_topology("tpuv4:cubes=2x1x1")
    one = np.zeros((1, 32), np.bool_)
    one[0, 9] = True
    assert usable_npus(ring, 8, one) == 24
    one = np.zeros((1, 128), np.bool_)
    one[0, 0] = True
    assert [int(usable_npus(cubes, group, one)[0]) for group in (32, 64, 128)] == [96, 64, 0]


def test_a_backup_npu_keeps_its_rack_whole_until_a_second_fails():
    rack = build_topology("ub-mesh:rack-full")
    faulty = np.zeros((3, rack.n_npus), np.bool_)
    faulty[1, 5], faulty[2, [5, 9]] = True, True
    assert usable_npus(rack, 8, faulty).tolist() == [64, 64, 56]


def test_a_cube_is_what_optical_switches_take_out_whatever_its_numbers_are():
    """The chips of either of the two cubes are neighbours in three dimensions, but stand apart in the numbering."""
    topology = build_topology("tpuv4:cubes=1x1x2")
    chips = np.arange(128).reshape(4, 4, 8)
    faulty = np.zeros((1, 128), np.bool_)
    faulty[0, chips[:, :, :4].ravel()[[0, 63]]] = True
    assert usable_npus(topology, 64, faulty) == 64
    faulty[0, chips[0, 0, 7]] = True
    assert usable_npus(topology, 64, faulty) == 0
    assert all(a <= b for a, b in pairwise([int(usable_npus(topology, g, faulty)[0]) for g in (64, 32, 16, 1)]))
