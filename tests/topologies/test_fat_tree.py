from math import prod

import networkx as nx
import numpy as np
import pytest

from emu.errors import InputError
from emu.study.choice.fastest import fastest
from emu.study.choice.site import Requirement, Site
from emu.topology.catalogue import build_topology
from emu.topology.facts.facts import bisection, cut
from emu.topology.placement import hubs
from launch.papers.networks import collective_s
from tests.topologies import counted

PORTS = 36  # 400 Gb/s ports of a chip in RailX's Table 6
FULL, THIRD, SEVENTH = (f"fat-tree:radix=64,{rest},planes={PORTS}" for rest in ("tiers=2", "taper=3", "tiers=3,taper=7"))


def _hosts(tree):
    """Count the hosts that have links."""
    return len(np.unique(tree.links.src[tree.links.src < tree.n_npus]))


def _switches(tree):
    """Count the switches of 64 ports of 400 Gb/s, of all planes."""
    return counted.switches(tree, 64)


def _transceivers(tree):
    """Count thousands of transceivers: one at either end of every port's cable."""
    return round(counted.ports(tree) / 1000, 1)


def _share(tree):
    """Percent of what half of the hosts inject that crosses to the other half."""
    low = np.arange(tree.n_npus) < tree.n_npus // 2
    return round(100 * cut(tree, low) / (tree.n_npus / 2 * PORTS * counted.PORT), 1)


ROWS = {  # what is printed, of which line, and how it is counted
    "rx-t6-2FT-sw": (3456, FULL, _switches),
    "rx-t6-2FT-aot": (294.9, FULL, _transceivers),
    "rx-t6-2FT-gbw": (100, FULL, _share),
    "rx-t6-Tap13-sw": (2880, THIRD, _switches),
    "rx-t6-Tap13-aot": (294.9, THIRD, _transceivers),
    "rx-t6-Tap13-gbw": (33.3, THIRD, _share),
    "rx-t6-Tap49-sw": (149760, SEVENTH, _switches),
    "rx-t6-Tap49-aot": (16810, SEVENTH, lambda tree: round(_transceivers(tree))),
    "rx-t6-Tap49-gbw": (2.0, SEVENTH, _share),
    "hpn-t1-ft-n": (27648, "fat-tree:radix=48,tiers=3", _hosts),
}


@pytest.mark.parametrize("row", ROWS)
def test_a_row_of_the_paper_is_what_is_built(row):
    printed, line, computed = ROWS[row]
    assert computed(build_topology(line)) == printed


@pytest.mark.parametrize("line", [FULL, THIRD, SEVENTH])
def test_the_bill_is_what_the_links_take(line):
    tree = build_topology(line)
    assert (tree.bill["switch"], tree.bill["optical transceiver"]) == (_switches(tree), counted.ports(tree))


@pytest.mark.parametrize(("line", "hosts"), [(FULL, 2048), (THIRD, 3072), (SEVENTH, 200704)])
def test_chips_are_as_many_as_table_6_says(line, hosts):
    assert _hosts(build_topology(line)) == hosts


@pytest.mark.parametrize(("radix", "tiers"), [(4, 2), (4, 3), (6, 2), (6, 3), (2, 4)])
def test_hosts_and_switches_follow_the_closed_forms(radix, tiers):
    tree = build_topology(f"fat-tree:radix={radix},tiers={tiers}")
    assert tree.n_npus == 2 * (radix // 2) ** tiers
    assert tree.n_nodes - tree.n_npus == (2 * tiers - 1) * tree.n_npus // radix
    assert set(np.bincount(tree.links.src)[tree.n_npus :].tolist()) == {radix}


def test_two_hosts_of_different_pods_have_k_squared_over_four_paths():
    tree = build_topology("fat-tree:radix=6,tiers=3")
    graph = nx.Graph(zip(tree.links.src.tolist(), tree.links.dst.tolist(), strict=True))
    assert len(list(nx.all_shortest_paths(graph, 0, tree.n_npus - 1))) == 9
    leaf, far = (next(iter(graph[host])) for host in (0, tree.n_npus - 1))
    assert nx.edge_connectivity(graph, leaf, far) == 3
    assert bisection(tree)[0] == tree.n_npus / 2 * 50e9


def test_any_upper_switch_can_fail():
    tree = build_topology("fat-tree:radix=4,tiers=3")
    graph = nx.Graph(zip(tree.links.src.tolist(), tree.links.dst.tolist(), strict=True))
    leaves = 8
    for switch in range(tree.n_npus + leaves, tree.n_nodes):
        left = nx.restricted_view(graph, [switch], [])
        assert all(nx.has_path(left, 0, host) for host in range(tree.n_npus))


def test_planes_widen_the_links_and_multiply_what_is_bought():
    one, three = (build_topology(f"fat-tree:radix=4,planes={planes}") for planes in (1, 3))
    assert np.array_equal(3 * one.links.bandwidth_Bps, three.links.bandwidth_Bps)
    assert three.bill["switch"] == 3 * one.bill["switch"]
    assert three.bill["optical transceiver"] == 2 * 3 * three.bill["link x3"] == 3 * one.bill["optical transceiver"]
    assert any("3 equal planes" in sentence for sentence in three.assumptions)


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("fat-tree:radix=7", r"radix must be a multiple of 2 \(1 ports down for each up\), got 7; take 6"),
        ("fat-tree:radix=1", r"radix must be a multiple of 2 .*; take 2"),
        ("fat-tree:radix=10,taper=3", r"radix must be a multiple of 4 \(3 ports down for each up\), got 10; take 8"),
        ("fat-tree:radix=8,tiers=9", "tiers must be at most 8, got 9"),
        ("fat-tree:radix=8,tiers=3,taper=1x1x1", "taper must be one ratio, or 2 joined by x"),
        ("fat-tree:radix=64,tiers=1,taper=3", "taper must be 1 where tiers is 1, as that switch has no ports up, got '3'"),
        ("fat-tree:radix=64,tiers=1,taper=1x1", "taper must be 1 where tiers is 1"),
        ("fat-tree:radix=64,tiers=5", "links must be at most"),
        ("fat-tree:pgft:down=4x4,up=1x2x3", "up must be one number, or 2 joined by x as down has, got '1x2x3'"),
        ("fat-tree:pgft:down=4x4,up=1,parallel=1x1x1", "parallel must be one number, or 2 joined by x"),
    ],
)
def test_ports_that_do_not_close_are_refused(line, message):
    with pytest.raises(InputError, match=message):
        build_topology(line)


def test_switches_that_add_serve_the_hosts_below_them():
    """The ranks of one leaf send each byte once, not 2 (n - 1) / n times; those of two leaves have no switch in common."""
    plain, adding = (build_topology(f"fat-tree:radix=8,adds={adds}") for adds in ("no", "yes"))
    assert not plain.adds
    assert adding.adds
    assert hubs(adding, np.arange(4), [range(4)]).tolist() == [32]
    assert hubs(adding, np.arange(8), [range(8)]).tolist() == []
    size = 2**26
    by_switch = collective_s("fat-tree:radix=8,adds=yes", "all_reduce", "in-switch", 4, size)
    by_ranks = collective_s("fat-tree:radix=8", "all_reduce", "direct", 4, size)
    assert by_switch / by_ranks == pytest.approx((1 + 1 / 8) / (2 * 3 / 4), rel=1e-3)


@pytest.mark.parametrize(
    ("settings", "dims"), [("radix=8", (8, 4)), ("radix=4,tiers=3", (4, 2, 2)), ("radix=4,tiers=4", (4, 2, 2, 2))]
)
def test_the_switches_of_all_tiers_add_for_all_hosts(settings, dims):
    """A host sends each byte once however many tiers there are; a further hop costs one of 64 pieces, and its latency."""
    word, size, n = f"fat-tree:{settings},adds=yes", 2**26, prod(dims)
    topology, tiers = build_topology(word), len(dims)
    assert topology.dims == dims
    host = size / float(topology.links.bandwidth_Bps[0])
    hops = 2 * tiers * int(topology.links.latency_fs[0]) / 1e15
    found = collective_s(word, "all_reduce", "in-switch-tiers", dims, size)
    assert found == pytest.approx(host * (1 + (2 * tiers - 1) / 64) + hops, rel=1e-9)
    assert found < collective_s(word, "all_reduce", "ring", n, size)
    chosen = fastest(Site.first(topology), Requirement("all_reduce", 0, size // 4, 4)).served
    assert (chosen.algorithm, chosen.dims) == ("in-switch-tiers", dims)
