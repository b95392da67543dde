"""The best trees of an all_reduce, against closed forms, packings that exist, and what no schedule beats."""

from fractions import Fraction

import numpy as np
import pytest

from emu.bound.cuts import densest_cut
from emu.bound.limit import CUT, FULL_EFFORT, MESSAGES, limit_of
from emu.bound.linear_programs import all_reduce_by_trees
from emu.bound.network import network, network_kinds
from emu.collective.operation import operation
from emu.topology.catalogue import build_topology

LINK = "bandwidth=50GB/s,latency=500ns"


def _trees(topology):
    net = network(topology, np.arange(topology.n_npus))
    return net.seconds(all_reduce_by_trees(net, network_kinds(net, topology)))


@pytest.mark.parametrize("n", [2, 3, 5, 8])
def test_on_one_switch_the_best_trees_take_2_n_minus_1_over_n(n) -> None:
    found = _trees(build_topology(f"switch:n={n},{LINK}"))
    assert found * 50e9 == pytest.approx(2 * (n - 1) / n, rel=1e-9)


@pytest.mark.parametrize("n", [2, 3, 4, 6])
def test_on_a_full_duplex_path_they_take_what_one_link_does_and_two_in_a_row_nearly_twice_that(path, n) -> None:
    topology = path(n)
    assert _trees(topology) * 1e9 == pytest.approx(1, rel=1e-9)
    net = network(topology, np.arange(n))
    row = (densest_cut(net, net.ranks).ratio + densest_cut(net.back(), net.ranks).ratio) / n
    assert row == Fraction(2 * (n - 1), n)


@pytest.mark.parametrize("seed", range(25))
def test_they_are_no_slower_than_two_in_a_row_and_no_quicker_than_the_bounds(random_topology, seed) -> None:
    topology = random_topology(seed)
    n = topology.n_npus
    limit = limit_of(topology, operation("all_reduce", n), tuple(range(n)), helpers=False, effort=FULL_EFFORT)
    trees, row = limit.trees_s_per_byte, limit.in_a_row_s_per_byte
    assert trees <= row * (1 + 1e-7)
    assert {term.by for term in limit.terms} >= {CUT, MESSAGES}
    assert all(term.s_per_byte <= trees * (1 + 1e-7) for term in limit.terms)


def test_a_switch_passes_on_but_does_not_copy(made) -> None:
    # If it did, one block out of each of three ranks and one into each would do: 1, not 4/3.
    star = [(a, b, 1e9, 0) for i in range(3) for a, b in ((i, 3), (3, i))]
    assert _trees(made(3, 4, star)) * 1e9 == pytest.approx(4 / 3)
