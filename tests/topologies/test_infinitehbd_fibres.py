"""InfiniteHBD's bundles and fibres against networkx, and the wiring for Binary Exchange."""

import re
from itertools import product
from math import ceil

import networkx as nx
import numpy as np
import pytest

from emu.collective.algorithm import schedule
from emu.collective.operation import operation
from emu.errors import InputError
from emu.study.timing import CollectiveJob, time_collective
from emu.topology.catalogue import build_topology, read_topology
from topologies.infinitehbd.ocstrx_bundles import LOOPBACK, blocked_distance, bundle, bundles, fibres, states
from topologies.infinitehbd.ocstrx_plan import OcstrxPlan, OcstrxRates
from topologies.infinitehbd.orchestration import components


def plan(dims=(1, 8, 1, 4), k=2, tp=4, closed=True, powers=False):
    return OcstrxPlan("infinitehbd", dims, k, tp, OcstrxRates(), closed, powers)


@pytest.mark.parametrize(("n", "k"), [(8, 2), (9, 2), (9, 4), (15, 3), (16, 3), (20, 4), (13, 6)])
def test_a_k_hop_ring_has_degree_2k_its_diameter_and_k_k_plus_1_fibres_between_its_halves(n, k):
    graph = nx.MultiGraph(fibres(plan((1, n, 1, 8), k, 8)).tolist())
    assert {degree for _, degree in graph.degree} == {2 * k}
    assert graph.number_of_edges() == n * k
    assert nx.diameter(graph) == ceil(n // 2 / k)
    if n >= 4 * k:
        assert nx.cut_size(graph, set(range(n // 2))) == k * (k + 1)


@pytest.mark.parametrize(("n", "k"), [(8, 2), (9, 3), (16, 4)])
def test_a_k_hop_line_lacks_the_fibres_over_its_end(n, k):
    assert len(fibres(plan((1, n, 1, 4), k, 4, closed=False))) == n * k - k * (k + 1) // 2


@pytest.mark.parametrize("k", range(2, 9))
def test_each_of_k_bundles_has_two_external_paths_and_only_an_odd_k_blocks_a_pair(k):
    p = plan((1, 20, 1, 8), k, 8)
    away = [a for i in range(1, k + 1) for a in (i, -i)]
    paths = {a: tuple(int(x) for x in bundle(p, a)) for a in away}
    assert sorted(paths.values()) == sorted(product(bundles(p).tolist(), (1, 2)))
    torn = [(a, b) for a, b in product(away, away) if a < 0 < b and paths[a][0] == paths[b][0]]
    assert torn == ([(-k, k)] if k % 2 else [])
    assert blocked_distance(p) == (k if k % 2 else 0)


def test_a_place_no_fibre_leads_to_has_no_bundle():
    (out, state), (into, _) = states(plan(), np.array([0, 0]), np.array([3, 6]))
    assert out.tolist() == [-1, 0]  # 6 is two down from 0, round the ring
    assert state.tolist() == [-1, 2]
    assert into.tolist() == [-1, 2]


@pytest.mark.parametrize("closed", [True, False])
@pytest.mark.parametrize("k", [2, 3, 4])
def test_a_ring_or_line_splits_exactly_at_runs_of_k_faults(k, closed):
    rng = np.random.default_rng(k)
    for _ in range(150):
        n = int(rng.integers(2 * k + 1, 40))
        p = plan((1, n, 1, 4), k, 4, closed)
        alive = rng.random(n) < rng.choice([0.3, 0.6, 0.9])
        at, part = components(p, alive)
        graph = nx.MultiGraph(fibres(p).tolist()).subgraph(np.flatnonzero(alive).tolist())
        found = {frozenset(at[part == c].tolist()) for c in np.unique(part)}
        assert found == {frozenset(c) for c in nx.connected_components(graph)}
        assert len(found) == _pieces(alive, k, closed)


def _pieces(alive, k, closed):
    """How many a line falls into, from its runs of faults; a ring takes one to become a line."""
    if not alive.any():
        return 0
    marks = "".join("x" if a else " " for a in np.roll(alive, -np.argmax(alive) if closed else 0))
    long_runs = sum(len(run) >= k for run in (marks if closed else marks.strip()).split("x"))
    return max(1, long_runs) if closed else 1 + long_runs


@pytest.mark.parametrize("closed", [True, False])
@pytest.mark.parametrize("k", [2, 4])  # an odd K also has pairs of fibres that no ring passes
def test_the_longest_ring_that_can_be_lit_is_of_the_nodes_between_two_runs_of_k_faults(k, closed):
    rng = np.random.default_rng(10 + k)
    for _ in range(12):
        n = int(rng.integers(2 * k + 1, 24))
        alive = rng.random(n) < 0.6
        alive[rng.integers(n)] = True
        marks = "".join(".x"[int(a)] for a in np.roll(alive, -np.argmax(alive) if closed else 0))
        pieces = [piece.count("x") for piece in re.split(rf"\.{{{k},}}", marks)]
        if closed and len(pieces) > 1:
            pieces[0] += pieces.pop()  # nothing parts the last from the first, which begins with a node that works
        longest = max(pieces)
        faulty = "+".join(map(str, np.flatnonzero(~alive))) or "none"
        line = f"infinitehbd{'' if closed else ':line'}:dims=1x{n}x1x4,k={k},faulty={faulty}"
        ring = build_topology(f"{line},tp={4 * longest},job={4 * longest}")
        lit = ring.links.dimension == 2
        assert len(np.unique(ring.links.src[lit] // 4)) == (longest if longest > 1 else 0)
        if longest < n:
            with pytest.raises(InputError):
                build_topology(f"{line},tp={4 * longest + 4},job={4 * longest + 4}")


@pytest.mark.parametrize(("r", "k"), [(4, 2), (4, 3), (4, 4), (8, 8), (3, 3)])
def test_partners_of_binary_exchange_are_always_neighbours(r, k):
    p = plan((1, 2**k * 2, 1, r), k, r, powers=True)
    graph = nx.MultiGraph(fibres(p).tolist())
    i = np.arange(p.nodes)
    for b in range(k):
        (out, s), (into, t) = states(p, i, i ^ 1 << b)
        assert all(graph.has_edge(a, a ^ 1 << b) for a in i.tolist())
        assert (np.stack((out, into)) >= 0).all()
        assert np.isin((s, t), (1, 2)).all()
        back = states(p, i ^ 1 << b, i)
        assert np.array_equal(back[0], (into, t))
        assert np.array_equal(back[1], (out, s))


def _classes(line, src, dst):
    topology = build_topology(line)
    routes = topology.routes(src, dst, np.zeros(len(src)))
    return [set(topology.links.dimension[routes.of(i)].tolist()) for i in range(len(src))]


@pytest.mark.parametrize(
    ("line", "gpus"), [("infinitehbd:binary:nodes=32", 64), ("infinitehbd:binary:nodes=512,gpus=8,k=8", 2048)]
)
def test_partners_within_tp_times_ep_do_without_the_dcn_and_the_next_bit_needs_it(line, gpus):
    src = np.arange(gpus)
    for b in range(gpus.bit_length() - 1):
        assert all(3 not in used for used in _classes(line, src, src ^ 1 << b))
    assert all(used == {3} for used in _classes(line, src, src ^ gpus))


@pytest.mark.parametrize(
    "line", ["infinitehbd:binary:nodes=16", "infinitehbd:binary:nodes=8,k=3", "infinitehbd:binary:nodes=8,gpus=3,k=3"]
)
def test_a_message_needs_the_bundles_that_its_route_crosses(line):
    topology = build_topology(line)
    n, r = topology.n_npus, topology.dims[-1]
    src, dst = (g.ravel() for g in np.meshgrid(np.arange(n), np.arange(n)))
    src, dst = src[src != dst], dst[src != dst]
    routes = topology.routes(src, dst, src + dst)
    switches, wanted = topology.circuits.needs(src, dst, src + dst)
    p = plan((1, n // r, 1, r), read_topology(line)[1].get("k", 4), r, powers=True)
    optical = bundles(p)
    for i in range(len(src)):
        looped, lit = set(), dict[int, int]()
        for a, b in zip(topology.links.src[routes.of(i)].tolist(), topology.links.dst[routes.of(i)].tolist(), strict=True):
            if max(a, b) == n:
                continue
            if a // r == b // r:
                which = a % r if (b - a) % r == 1 else b % r
                looped |= {a // r * r + which} if which in optical else set()
            else:
                ends = zip((a // r, b // r), states(p, a // r, b // r), strict=True)
                lit = {node * r + int(which): int(state) for node, (which, state) in ends}
        need = dict(zip(switches[i].tolist(), wanted[i].tolist(), strict=True))
        need.pop(-1, None)
        assert need == dict.fromkeys(looped, LOOPBACK) | lit


@pytest.mark.parametrize(("nodes", "gpus", "k"), [(16, 4, 4), (8, 4, 3), (8, 5, 3), (4, 8, 2)])
def test_a_message_to_a_partner_takes_the_shortest_way_that_the_lit_bundle_leaves(nodes, gpus, k):
    """Held against networkx on the two nodes alone, the bundle that is lit not looped."""
    topology, p = (
        build_topology(f"infinitehbd:binary:nodes={nodes},gpus={gpus},k={k}"),
        plan((1, nodes, 1, gpus), k, gpus, powers=True),
    )
    for here, b in product(range(nodes), range(k)):
        there = here ^ 1 << b
        (out, _), (into, _) = states(p, here, there)
        graph = nx.Graph([((here, (out + lane) % gpus), (there, (into + lane) % gpus)) for lane in (0, 1)])
        for node, lit in ((here, out), (there, into)):
            graph.add_edges_from(((node, g), (node, (g + 1) % gpus)) for g in range(gpus) if g != lit)
        src, dst = (g.ravel() for g in np.meshgrid(np.arange(gpus), np.arange(gpus)))
        hops = topology.routes(here * gpus + src, there * gpus + dst, src).hops.tolist()
        ways = zip(src.tolist(), dst.tolist(), strict=True)
        assert hops == [nx.shortest_path_length(graph, (here, g), (there, h)) for g, h in ways]


def test_within_a_node_a_message_goes_the_shorter_way_and_to_the_switch_by_the_dcn():
    topology = build_topology("infinitehbd:binary:nodes=4,gpus=8,k=2")
    gpu = np.arange(8)
    for away in range(1, 8):
        assert (topology.routes(gpu, (gpu + away) % 8, gpu).hops == min(away, 8 - away)).all()
    assert (topology.routes(np.arange(32), np.full(32, 32), np.zeros(32)).hops == 1).all()


def test_a_reconfiguration_stands_between_rounds_that_need_a_bundle_in_two_states():
    op, plan_ = operation("all_to_all", 64), schedule("all_to_all", "binary-exchange", 64)

    def end_us(turn):
        topology = build_topology(f"infinitehbd:binary:nodes=16,reconfiguration={turn}us")
        return time_collective(CollectiveJob(op, plan_, 2**16, 4, topology, topology.place(64))).end_fs.max() / 1e9

    turns = (end_us(140) - end_us(70)) / 70
    assert turns == pytest.approx(4)  # between four rounds over fibres, and back to loopback for two within a node
    own = build_topology("infinitehbd:binary:nodes=16")
    own_us = time_collective(CollectiveJob(op, plan_, 2**16, 4, own, own.place(64))).end_fs.max() / 1e9
    assert 60 <= (own_us - end_us(0)) / turns <= 80  # what 5.1 says of OCSTrx
