"""Trees that pass switches which copy and add: they do the operation, come up to the bound, and sit on the switches meant."""

from dataclasses import replace

import numpy as np
import pytest

from emu.backend.executor.executor import execute
from emu.bound.limit import FULL_EFFORT, limit_of
from emu.bound.trees import tree_optimum
from emu.collective.operation import operation
from emu.collective.proof import prove
from emu.study.measure.move import Payload, dtype_of
from emu.study.synthesize import SynthesisRequest, synthesize
from emu.synthesis.adding import steiner_program
from emu.synthesis.adding.adding_hops import adding_hops, adding_switches
from emu.synthesis.adding.steiner_program import steiner_forests
from emu.synthesis.adding.steiner_tree import DirectedHops, steiner_tree
from emu.synthesis.ordering import streams
from emu.synthesis.relief import busiest
from emu.synthesis.variants import IN_SWITCHES
from emu.topology.catalogue import build_topology
from emu.topology.placement import hubs
from tests.synthesis.graphs import drawn, made

LARGE = 64 * 2**20
SERVER = "dgx-h100:adds=yes"
TWO_TIERS = "dgx-h100:superpod:servers=2"
BESIDE_OTHERS = "servers:nodes=2,gpus=2,adds=yes"
OPERATIONS = ("all_reduce", "all_gather", "reduce_scatter", "broadcast", "reduce")
INWARD = {name: (name in ("reduce_scatter", "reduce"),) for name in OPERATIONS} | {"all_reduce": (True, False)}


def never() -> None:
    """Let no time end."""


def forests_on(topology, name, most=16):
    """The forests of an operation whose trees pass switches, and the hops that they take."""
    n = topology.n_npus
    hops = adding_hops(topology, tuple(range(n)))
    roots = {"all_reduce": [range(hops.n_ranks)], "broadcast": [[0]], "reduce": [[0]]}.get(name, [[root] for root in range(n)])
    return steiner_forests(hops, roots, INWARD[name], most, never)


def slowness(hops, forests, blocks):
    """Seconds for which the busiest link is taken by a byte of each block."""
    hop = np.concatenate([each.hop for each in forests])
    return busiest(hops, hop) / (len(forests[0].root) // blocks)


@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.parametrize("line", [SERVER, TWO_TIERS, BESIDE_OTHERS])
def test_a_schedule_whose_switches_add_is_proved_moves_the_data_and_sits_on_the_switches_meant(line, name):
    topology = build_topology(line)
    op = operation(name, topology.n_npus)
    hops, forests = forests_on(topology, name)
    schedule = streams(forests, hops, 2)
    assert schedule.helpers == hops.helpers > 0
    assert prove(schedule, op).uniform
    assert hubs(topology, np.arange(topology.n_npus), schedule.helped).tolist() == hops.npus[topology.n_npus :].tolist()
    payload = Payload.make(op, 1027, dtype_of("float32"), "sum")
    execute(schedule, op, payload.buffers(), counts=payload.block_counts)
    assert payload.wrong() == 0


@pytest.mark.parametrize("line", [SERVER, TWO_TIERS])
def test_an_all_reduce_in_switches_takes_little_more_than_a_block_over_each_link(line):
    topology = build_topology(line)
    found = synthesize(topology, SynthesisRequest("all_reduce", LARGE))
    port_Bps = topology.links.bandwidth_Bps[topology.links.src == 0].max()
    assert found.variant.how == IN_SWITCHES
    assert found.trees_s == pytest.approx(LARGE / port_Bps, rel=0.01)
    assert found.time_s < 1.02 * LARGE / port_Bps


@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.parametrize("seed", range(8))
def test_trees_through_switches_come_near_the_bound_on_any_network_and_never_below(seed, name):
    topology = replace(drawn(seed, most=6), adds=True)
    if not len(adding_switches(topology)):
        pytest.skip("it has no switch")
    n, npus = topology.n_npus, tuple(range(topology.n_npus))
    hops, forests = forests_on(topology, name, most=32)
    least_s = tree_optimum(topology, operation(name, n), npus).s_per_byte
    assert (
        least_s * (1 - 1e-6) <= slowness(hops, forests, 1 if len(forests) == 2 else len(set(forests[0].root))) <= 1.1 * least_s
    )
    prove(streams(forests, hops, 1), operation(name, n))


@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.parametrize("seed", range(8))
def test_the_bound_with_such_switches_is_above_that_of_all_schedules_and_not_above_that_without(seed, name):
    topology = drawn(seed, even=False)
    n, npus = topology.n_npus, tuple(range(topology.n_npus))
    op, adding = operation(name, n), replace(topology, adds=True)
    found, without = (tree_optimum(each, op, npus).s_per_byte for each in (adding, topology))
    limit = limit_of(adding, op, npus, helpers=True, effort=FULL_EFFORT)
    assert max(term.s_per_byte for term in limit.terms) * (1 - 1e-6) <= found <= without * (1 + 1e-6)


def test_a_switch_that_copies_need_not_get_each_copy():
    """One unit comes in, and each of two NPUs can be sent a unit: a switch that copies sends both of them the same."""
    rows = [(0, 3, 1e9, 0), (3, 1, 1e9, 0), (3, 2, 1e9, 0), (1, 3, 1e6, 0), (2, 3, 1e6, 0), (3, 0, 1e9, 0)]
    topology, op = made(3, 4, rows), operation("broadcast", 3)
    copying = replace(topology, adds=True)
    assert tree_optimum(topology, op, (0, 1, 2)).s_per_byte * 1e9 == pytest.approx(2, rel=0.01)
    assert tree_optimum(copying, op, (0, 1, 2)).s_per_byte * 1e9 == pytest.approx(1, rel=0.01)
    found = synthesize(copying, SynthesisRequest("broadcast", 2**20))
    assert found.variant.how == IN_SWITCHES
    assert found.time_s == pytest.approx(2**20 / 1e9, rel=0.05)


def test_only_switches_that_a_topology_names_and_software_asks_for_are_used():
    asked, named = build_topology("dgx-h100"), build_topology(BESIDE_OTHERS)
    assert not len(adding_switches(asked))
    assert adding_hops(asked, tuple(range(8))) is None
    assert adding_switches(named).tolist() == np.flatnonzero(named.adders).tolist()
    hops = adding_hops(named, (0, 1, 2, 3))
    helps = (hops.src >= 4) | (hops.dst >= 4)
    assert (np.diff(hops.start)[helps] == 1).all()
    assert (np.diff(hops.start)[~helps] > 1).all()  # the others pass switches that only pass on


def test_a_switch_behind_one_that_only_passes_on_is_not_reached():
    rows = [(a, b, 1e9, 0) for a, b in ((0, 2), (2, 0), (1, 2), (2, 1), (2, 3), (3, 2))]
    topology = replace(made(2, 4, rows), adds=True, adders=np.arange(4) == 3)
    hops = adding_hops(topology, (0, 1))
    assert sorted(zip(hops.src.tolist(), hops.dst.tolist(), strict=True)) == [(0, 1), (1, 0)]


def test_a_tree_takes_a_switch_where_that_is_cheaper():
    src, dst = np.array([0, 3, 3, 0, 1]), np.array([3, 1, 2, 1, 2])  # a star around node 3, and a chain
    hops = DirectedHops.of(src, dst, 4, inward=False)
    assert steiner_tree(hops, np.array([1.0, 1, 1, 3, 3]), 0, 3).tolist() == [-1, 1, 2, 0]
    assert steiner_tree(hops, np.array([3.0, 3, 3, 1, 1]), 0, 3).tolist() == [-1, 3, 4, -1]
    assert steiner_tree(hops, np.ones(5), 2, 3) is None
    assert steiner_tree(DirectedHops.of(dst, src, 4, inward=True), np.ones(5), 0, 3) is not None


def test_a_search_that_would_be_too_long_and_ranks_out_of_reach_give_no_trees(monkeypatch):
    apart = replace(made(2, 3, [(0, 2, 1e9, 0), (2, 1, 1e9, 0)]), adds=True)
    hops = adding_hops(apart, (0, 1))
    assert steiner_forests(hops, [[0], [1]], (False,), 4, never) is None
    monkeypatch.setattr(steiner_program, "_MOST_GROWN", 1)
    assert steiner_forests(hops, [[0]], (False,), 4, never) is None
