"""Forests in the rates of hops: rates fit the links, trees that are packed in them do the operation and stay near the best."""

import numpy as np
import pytest

from emu.bound.trees import tree_optimum
from emu.collective.operation import operation
from emu.collective.proof import prove
from emu.study.synthesize import SynthesisRequest, synthesize
from emu.synthesis import hop_rates
from emu.synthesis.forest import grow_forest
from emu.synthesis.hop_rates import forest_by_rates
from emu.synthesis.hops import hop_network
from emu.synthesis.ordering import streams
from emu.synthesis.relief import busiest
from emu.topology.catalogue import build_topology
from tests.synthesis.graphs import drawn

HPN = "hpn:pod:dims=2x2x2,aggs=2"


def never() -> None:
    """Let no time end."""


def rates_of(hops, shares):
    pair, of = np.unique(hops.src * hops.n_ranks + hops.dst, return_inverse=True)
    return hop_rates._rates(hops, (pair, of), shares, never)


@pytest.mark.parametrize("seed", range(12))
def test_rates_fit_the_links_and_let_trees_be_as_fast_as_the_best_where_routes_leave_no_choice(seed):
    topology = drawn(seed)
    n = topology.n_npus
    hops, shares = hop_network(topology, tuple(range(n))), np.ones(n, np.int64)
    rate = rates_of(hops, shares)
    load = np.bincount(hops.link, np.repeat(rate, np.diff(hops.start)), len(hops.capacity_Bps))
    assert (load <= hops.capacity_Bps * (1 + 1e-6)).all()
    forest = forest_by_rates(hops, shares, 32, never, inward=False)
    best_s = tree_optimum(topology, operation("all_gather", n), tuple(range(n))).s_per_byte
    took_s = busiest(hops, forest.hop) / (len(forest.root) // n)
    assert best_s * (1 - 1e-6) <= took_s <= 1.25 * best_s


@pytest.mark.parametrize("inward", [False, True])
@pytest.mark.parametrize("roots", [range(8), [3]])
def test_forests_by_rates_do_the_operation(roots, inward):
    shares = np.isin(np.arange(8), roots).astype(np.int64)
    hops = hop_network(build_topology(HPN), tuple(range(8)))
    forest = forest_by_rates(hops, shares, 4, never, inward=inward)
    assert np.array_equal(np.unique(forest.root), np.flatnonzero(shares))
    name = (("broadcast", "reduce"), ("all_gather", "reduce_scatter"))[len(roots) > 1][inward]
    prove(streams((forest,), hops, 2), operation(name, 8, 3 if len(roots) == 1 else 0))


def test_a_program_that_is_too_large_is_not_solved(monkeypatch):
    hops = hop_network(build_topology(HPN), tuple(range(8)))
    monkeypatch.setattr(hop_rates, "_MOST", 8)
    assert forest_by_rates(hops, np.ones(8, np.int64), 4, never, inward=False) is None


def test_ways_of_a_router_are_filled_better_by_their_rates_than_by_capacities_split_off():
    """Trees can take all that HPN's links carry over the hops that its routers offer; splitting finds three quarters of it."""
    topology, shares = build_topology(HPN), np.ones(8, np.int64)
    hops = hop_network(topology, tuple(range(8)))
    best_s = tree_optimum(topology, operation("all_gather", 8), tuple(range(8))).s_per_byte
    split, rated = grow_forest(hops, shares, 32, never, inward=False), forest_by_rates(hops, shares, 32, never, inward=False)
    by_split, by_rates = (best_s / busiest(hops, each.hop) * (len(each.root) // 8) for each in (split, rated))
    assert by_split < 0.8
    assert 0.9 < by_rates <= 1 + 1e-6
    found = synthesize(topology, SynthesisRequest("all_gather", 64 * 2**20))
    assert found.of_trees > 0.95
