"""The oracles of `make fidelity` against exact references, and what its table calls within and outside."""

import sys
from fractions import Fraction
from random import Random

import networkx as nx
import numpy as np
import pytest

from benchmarks.fidelity.__main__ import main
from benchmarks.fidelity.cases import LOT, collective
from benchmarks.fidelity.graphs import graph_of, least_cut
from benchmarks.fidelity.nccl import Calibration, predicted_s
from benchmarks.fidelity.rates import ends, fair_rates
from benchmarks.fidelity.row import Row, farthest, show
from benchmarks.fidelity.traffic import lowered, over_ns3, request
from emu.errors import RunError
from emu.fabric.run import run_graph
from emu.topology.catalogue import build_topology
from tests.fabric import reference


@pytest.mark.parametrize("seed", range(10))
def test_linear_programs_give_the_rates_of_progressive_filling(seed):
    random = Random(seed)
    capacity = [random.choice([1e9, 2e9, 4e9]) for _ in range(5)]
    hops = [tuple(random.sample(range(5), random.randint(1, 3))) for _ in range(8)]
    flows = {v: reference.Task(1, hops=tuple((link, 1) for link in links)) for v, links in enumerate(hops)}
    exact = reference.fair_rates([Fraction(c) for c in capacity], flows)
    crosses = np.array([[link in links for links in hops] for link in range(5)], np.float64)
    assert fair_rates(np.array(capacity), crosses) == pytest.approx([float(exact[v]) for v in range(8)], rel=1e-9)


def test_a_flow_speeds_up_when_the_one_beside_it_has_left():
    found = ends(np.array([10.0]), np.ones((1, 2)), np.array([10.0, 30.0]), np.array([0.0, 1.0]))
    assert found == pytest.approx([1.0, 4.0])
    assert ends(np.array([10.0]), np.ones((1, 2)), np.array([10.0, 30.0]), np.zeros(2)) == pytest.approx([2.0, 4.0])


def test_the_least_cut_takes_the_lesser_of_two_ways():
    graph = nx.DiGraph([(0, 2, {"capacity": 5}), (2, 1, {"capacity": 3}), (1, 0, {"capacity": 4})])
    assert least_cut(graph, np.array([True, False])) == 3


def test_parallel_links_are_one_of_their_joint_bandwidth():
    graph = graph_of(build_topology("torus:dims=2x2,bandwidth=50GB/s,latency=500ns"))
    assert {capacity for *_, capacity in graph.edges(data="capacity")} == {100e9}


def test_ns3_is_given_each_message_and_what_is_delivered_before_it():
    ring = collective("all_reduce", "ring", 4, 2**22)
    asked = request(ring, lowered(ring), fair=True)
    assert len(asked["messages"]) == 24
    assert asked["cables"] == [(host, 4, 1e8, 50e-6) for host in range(4)]
    arrives_before = {(m, p) for m, p in asked["waits"] if p // 4 == m // 4 - 1}
    assert arrives_before == {(m, 4 * (m // 4 - 1) + (m - 1) % 4) for m in range(4, 24)}


def test_ns3_that_does_not_run_is_named(monkeypatch):
    monkeypatch.setattr(sys, "executable", "false")
    with pytest.raises(RunError, match="fidelity: ns-3 ended with 1; install the extra `fidelity`, as `make fidelity` does"):
        over_ns3([])


def test_a_part_that_is_none_is_refused(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["fidelity", "kernel", "ns4"])
    with pytest.raises(SystemExit, match="fidelity: a part must be one of kernel, ns3, rates, graphs, nccl, got ns4"):
        main()


def test_the_kernels_rows_are_within_their_bounds(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["fidelity", "kernel"])
    with pytest.raises(SystemExit) as ended:
        main()
    assert ended.value.code == 0
    assert "24 lines have a bound, 0 of them lie outside it" in capsys.readouterr().out


def test_a_parking_lot_shares_its_narrowest_cable_three_ways():
    piece = lowered(LOT)
    timeline, rate = run_graph(piece.graph), 1e8 / 8 * 1448 / 1502
    alone_s = 2**22 / rate
    left_s = timeline.left_fs[: len(piece.receiver)] / 1e15
    assert left_s == pytest.approx(alone_s * np.array([3, 1.5, 3, 3, 1.5]), rel=1e-9)


def test_the_switch_is_taken_where_its_set_up_is_worth_it():
    cheap, dear = Calibration(1e-5, 1e-6, 0, 3e11), Calibration(1e-5, 1e-6, 1.0, 3e11)
    assert predicted_s(cheap, 2**30) == pytest.approx(1e-5 + 1e-6 + 2**30 * 9 / 8 / 3e11)
    assert predicted_s(dear, 2**30) == pytest.approx(1e-5 + 14 * (1e-6 + 2**27 / 3e11))


def test_a_row_is_outside_where_its_ratio_is_farther_from_one_than_its_bound():
    assert Row("a", 1.01, 1.0, "s", 0.015).verdict == "within"
    assert Row("a", 0.98, 1.0, "s", 0.015, "why").verdict == "outside: why"
    assert Row("a", float("nan"), 1.0, "s", 0.015).failed
    assert not Row("a", 9.0, 1.0, "s", None, "why").failed
    assert farthest("a", "s", [(1.0, 1.0), (0.5, 1.0), (1.2, 1.0)], 0.1).measured == 0.5
    assert "2 lines have a bound, 1 of them lie outside it" in show([Row("a", 1, 1, "", 0), Row("b", 2, 1, "", 0)])
