"""InfiniteHBD's Algorithms 1-5: the worked example, what constraints hold, and the cross-ToR traffic of 6.4."""

import itertools

import networkx as nx
import numpy as np
import pytest

from topologies.infinitehbd.ocstrx_bundles import fibres
from topologies.infinitehbd.ocstrx_plan import OcstrxPlan, OcstrxRates
from topologies.infinitehbd.orchestration import choose_groups, cross_tor, deploy, orchestrate


def plan(dims=(1, 8, 1, 4), k=2, tp=4, closed=True, powers=False):
    return OcstrxPlan("infinitehbd", dims, k, tp, OcstrxRates(), closed, powers)


def sound(p, faulty):
    return ~np.isin(np.arange(p.nodes), faulty)


def test_the_worked_example():
    p = plan((1, 4, 2, 4), 2, 8, closed=False)
    assert deploy(p).tolist() == [0, 2, 4, 6, 1, 3, 5, 7]
    assert choose_groups(p, sound(p, [3]), 0).tolist() == [[0, 2], [4, 6], [1, 5]]
    assert choose_groups(p, sound(p, [3]), 3).tolist() == [[0, 4], [1, 5]]  # its ToR, {2, 3}, is out as a whole


def _random(rng):
    tor, domains, k = (int(x) for x in rng.integers((1, 1, 2), (4, 4, 4)))
    tors = int(rng.integers(3, 13))
    p = plan((domains, max(tors, 8), tor, 4), k, 4 * int(rng.integers(1, 5)))
    return p, np.flatnonzero(rng.random(p.nodes) < rng.choice([0.02, 0.1, 0.3]))


def test_more_constraints_never_leave_room_for_more_groups():
    rng = np.random.default_rng(0)
    for _ in range(200):
        p, faulty = _random(rng)
        sizes = [len(choose_groups(p, sound(p, faulty), c)) for c in range(p.sublines + p.dims[0] + 1)]
        assert sizes == sorted(sizes, reverse=True)


def test_groups_without_constraints_are_as_many_as_networkx_components_hold():
    rng = np.random.default_rng(1)
    for _ in range(100):
        p, faulty = _random(rng)
        p = plan(p.dims, 2, p.tp, p.closed)
        order = deploy(p)
        graph = nx.MultiGraph(order[fibres(p)].tolist())
        graph.remove_nodes_from(faulty.tolist())
        parts = nx.connected_components(graph)
        assert len(choose_groups(p, sound(p, faulty), 0)) == sum(len(c) // p.m for c in parts)


@pytest.mark.parametrize("closed", [True, False])
@pytest.mark.parametrize(("k", "m"), [(2, 2), (2, 3), (4, 3), (2, 4)])
def test_no_choice_of_nodes_makes_more_groups(k, m, closed):
    """Tried is every set of groups; a group is nodes that fibres join in a row, as its ends are looped."""
    rng = np.random.default_rng(10 * k + m)
    for _ in range(12):
        n = int(rng.integers(2 * k + 1, 12))
        p = plan((1, n, 1, 4), k, 4 * m, closed)
        works = rng.random(n) < rng.choice([0.5, 0.7, 0.9])
        graph = nx.Graph(fibres(p).tolist())
        rings = [set(nodes) for nodes in itertools.combinations(np.flatnonzero(works).tolist(), m) if _in_a_row(graph, nodes)]
        assert len(choose_groups(p, works, 0)) == _most(rings)


def _in_a_row(graph, nodes):
    return any(all(graph.has_edge(a, b) for a, b in itertools.pairwise(order)) for order in itertools.permutations(nodes))


def _most(rings):
    """The most of them that share no node: the least node is in one of its rings, or in none."""
    if not rings:
        return 0
    least = min(map(min, rings))
    through = [ring for ring in rings if least in ring]
    without = _most([ring for ring in rings if least not in ring])
    return max(without, *(1 + _most([other for other in rings if not other & ring]) for ring in through))


def test_groups_are_of_sound_nodes_each_once_and_hold_the_constraints():
    rng = np.random.default_rng(2)
    for _ in range(60):
        p, faulty = _random(rng)
        most = p.sublines + p.dims[0]
        found = choose_groups(p, sound(p, faulty), most)
        assert np.unique(found).size == found.size
        assert not np.isin(found, faulty).any()
        assert not np.isin(found // p.tor, faulty // p.tor).any()  # a ToR with a fault is out as a whole
        domain = found // (p.tor * p.subline)
        assert (domain == domain[:, :1]).all()
        assert (found % p.tor == found[:, :1] % p.tor).all()


def test_groups_that_share_all_their_tors_come_first_p_in_a_row():
    rng = np.random.default_rng(3)
    for _ in range(60):
        p, faulty = _random(rng)
        if not len(choose_groups(p, sound(p, faulty), 0)):
            continue
        tors = (orchestrate(p, faulty, 0) // p.tor).tolist()
        shared = [tors.count(group) == p.tor for group in tors]
        assert shared == sorted(shared, reverse=True)
        blocks = [tors[i : i + p.tor] for i in range(0, sum(shared), p.tor)]
        assert all(block == block[:1] * p.tor for block in blocks)


def test_a_job_gets_what_it_asks_and_the_largest_what_there_is():
    p = plan((4, 8, 2, 8), 3, 32)
    faulty = np.array([3, 17, 18, 40])
    most = len(choose_groups(p, sound(p, faulty), 0))
    assert len(orchestrate(p, faulty, 0)) == most
    assert len(orchestrate(p, faulty, 32 * (most - 3))) == most - 3
    assert cross_tor(p, orchestrate(p, faulty, 32 * 6)) == 0.0 < cross_tor(p, orchestrate(p, faulty, 0))


@pytest.fixture(scope="module")
def crossing():
    """Shares of CP edges that leave a ToR: 1024 nodes of 8, two a ToR, 256 a domain, K = 3, TP32."""

    def share(job, faults, draws=40):
        p = plan((4, 128, 2, 8), 3, 32)
        rng = np.random.default_rng(0)
        drawn = [rng.choice(1024, round(faults * 1024), replace=False) for _ in range(draws)]
        return np.array([cross_tor(p, orchestrate(p, faulty, int(job * 8192) // 32 * 32)) for faulty in drawn])

    return share


def test_a_job_of_90_percent_at_5_percent_faults_crosses_tors_as_in_the_paper(crossing):
    dcn_share = 0.1  # of all traffic, which the paper's baseline sends across ToRs
    percent = 100 * dcn_share * crossing(0.9, 0.05)
    error = percent.std(ddof=1) / np.sqrt(len(percent))  # of the mean of these draws
    assert error < 0.2
    assert abs(percent.mean() - 1.72) < 2 * error  # hbd-o-172


@pytest.mark.parametrize("k", [2, 3])
def test_groups_and_what_they_cross_are_those_of_the_algorithms_step_by_step(k):
    p = plan((3, 20, 2, 8), k, 32)
    rng = np.random.default_rng(k)
    rooms = set()
    for job in np.tile((0.5, 0.85, 0.9, 0.92), 25):
        faulty = rng.choice(p.nodes, int(rng.integers(0, 12)), replace=False)
        wanted = min(int(job * p.npus) // p.tp, len(_by_hand(p, faulty, 0)))
        constraints, by_hand = max(
            (c, g) for c in range(p.sublines + p.dims[0] + 1) if len(g := _by_hand(p, faulty, c)) >= wanted
        )
        found = orchestrate(p, faulty, wanted * p.tp)
        assert {tuple(group) for group in found.tolist()} <= set(by_hand)
        if wanted == len(by_hand):
            assert sorted(map(tuple, found.tolist())) == sorted(by_hand)
        assert cross_tor(p, found) == pytest.approx(_crossed_by_hand(p, found.tolist()))
        rooms.add(constraints)
    assert len(rooms) > 5  # some jobs fit under more constraints than others


def _by_hand(p, faulty, constraints):
    """Groups under so many constraints, node by node: nodes of equal place in their ToRs make a line, sub-line by sub-line."""
    lines = [[tor * p.tor + place for tor in range(p.nodes // p.tor)] for place in range(p.tor)]
    parts = [line[i : i + p.subline] for line in lines for i in range(0, len(line), p.subline)]
    apart, aligned = min(constraints, len(parts)), max(0, constraints - len(parts))
    out = set(faulty.tolist())
    for node in list(out):
        if node // (p.tor * p.subline) < aligned:
            out |= {node // p.tor * p.tor + other for other in range(p.tor)}
    rest = [node for part in parts[apart:] for node in part]
    found = []
    for part, closed in [(part, False) for part in parts[:apart]] + [(rest, p.closed and not apart)]:
        for run in _runs(p, part, out, closed):
            found += [tuple(run[i : i + p.m]) for i in range(0, len(run) - p.m + 1, p.m)]
    return found


def _runs(p, line, out, closed):
    """Working nodes of a line in a row, which fibres to up to K away join past the others; a pair of farthest ones ends one."""
    if closed:  # begin after the widest gap that no fibre passes, if there is one
        starts = [
            i for i in range(len(line)) if all(line[i - back] in out for back in range(1, p.k + 1)) and line[i] not in out
        ]
        line = line[starts[0] :] + line[: starts[0]] if starts else line
    runs, last, far = [], None, False
    for place, node in enumerate(line):
        if node in out:
            continue
        gap = None if last is None else place - last
        blocked = gap == p.k and far and p.k % 2 == 1 and p.m > 2
        if gap is None or gap > p.k or blocked:
            runs.append([])
        far = gap is not None and gap == p.k and not blocked
        runs[-1].append(node)
        last = place
    return runs


def _crossed_by_hand(p, found):
    """Return the share of edges with ends in two ToRs, for rings of p groups in a row joined between nodes of equal place."""
    leaves = []
    for first in range(0, len(found) - p.tor + 1, p.tor):
        ring = found[first : first + p.tor]
        for group, before in zip(ring, [ring[-1], *ring[:-1]], strict=True):
            leaves += [a // p.tor != b // p.tor for a, b in zip(group, before, strict=True)]
    return np.mean(leaves) if leaves else 0.0


def test_a_job_of_85_percent_crosses_next_to_no_tor_below_7_percent_faults(crossing):
    shares = [crossing(0.85, f, 20).mean() for f in (0.05, 0.06, 0.08, 0.09)]
    assert max(shares[:2]) < 0.05  # (1 - f)^2 of nodes are in whole ToRs: 0.85 at 7.8 %
    assert 0.1 < shares[2] < shares[3]


def test_placing_nodes_at_random_crosses_at_nearly_every_edge():
    p = plan((4, 128, 2, 8), 3, 32)
    rng = np.random.default_rng(0)
    assert cross_tor(p, rng.permutation(1024).reshape(-1, 4)) > 0.98


def test_one_node_a_tor_has_no_edges_of_cp_within_it():
    assert cross_tor(plan((1, 8, 1, 4)), np.arange(8).reshape(-1, 1)) == 0.0
