"""How links become arcs."""

from dataclasses import replace

import numpy as np
import pytest

from emu.bound.network import network


def test_links_from_one_node_to_another_are_one_arc_of_all_their_rates_and_the_least_latency(made) -> None:
    topology = made(2, 3, [(0, 1, 5e9, 400), (0, 1, 2e10, 300), (0, 1, 5e9, 900), (1, 0, 1e10, 100)])
    net = network(topology, [1, 0])
    assert (net.src.tolist(), net.dst.tolist(), net.latency_fs.tolist()) == ([0, 1], [1, 0], [300, 100])
    assert (net.capacity.tolist(), net.unit_Bps) == ([3, 1], 10**10)
    assert net.has_rank.tolist() == [True, True, False]
    assert (net.leaving.tolist(), net.back().leaving.tolist()) == ([3, 1, 0], [1, 3, 0])


@pytest.mark.parametrize(("back", "both"), [(2.0, True), (3.0, False)])
def test_arcs_are_both_ways_if_each_has_one_back_as_fast(made, back, both) -> None:
    cycle = [(0, 1, 2.0, 0), (1, 0, back, 0), (1, 2, 5.0, 0), (2, 1, 5.0, 9)]
    assert network(made(3, 3, cycle), [0, 1, 2]).both_ways is both
    assert not network(made(3, 3, [*cycle, (0, 2, 1.0, 0)]), [0, 1, 2]).both_ways


def test_an_arc_is_of_the_least_dimension_of_its_links(made) -> None:
    topology = made(2, 2, [(0, 1, 1.0, 0), (1, 0, 1.0, 0), (0, 1, 1.0, 0)])
    links = replace(topology.links, dimension=np.array([3, 2, 1], np.int16))
    assert network(replace(topology, links=links), [0, 1]).dimension.tolist() == [1, 2]


def test_a_rate_of_no_whole_bytes_a_second_counts_as_the_next_whole(made) -> None:
    net = network(made(2, 2, [(0, 1, 2.5, 0), (1, 0, 6.0, 0)]), [0, 1])
    assert (net.capacity.tolist(), net.unit_Bps) == ([1, 2], 3)
