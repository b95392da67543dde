import itertools

import networkx as nx
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emu.errors import InputError
from emu.topology.catalogue import build_topology
from launch.papers.flex_sipac.counts import cus, flex, tpuv4
from tests.topologies.sipac_jobs import near_of, set_up
from topologies.sipac.assignment import initial, reconfigure
from topologies.sipac.levels import Levels, uniform
from topologies.sipac.sipac_system import topology_of


def _graph(topology):
    graph = nx.DiGraph()
    graph.add_nodes_from(range(topology.n_nodes))
    links = topology.links
    for src, dst, rate in zip(links.src.tolist(), links.dst.tolist(), links.bandwidth_Bps.tolist(), strict=True):
        graph.add_edge(src, dst, capacity=rate)
    return graph


# Size; what else the paper counts is in `emu repro flex-sipac`


def test_at_radix_32_two_levels_and_tpuv4_come_to_the_same():
    assert flex(32, 2) == tpuv4(32) == 1024


def test_a_system_of_60_wavelengths_serves_the_neighbours_of_radix_31_or_21_and_of_no_more():
    """So the radices from 32 on, of which Figure 9 counts CUs, need more wavelengths than the 60 of 6.B."""
    for line, least in (("r=32,L=2", 62), ("r=22,L=3", 63), ("r=64,L=2", 126)):
        with pytest.raises(InputError, match=f"w must be at least {least}, one for each neighbour"):
            build_topology(f"sipac:{line}")
    assert (cus("sipac:r=31,L=2"), cus("sipac:r=21,L=3")) == (961, 9261)
    assert set(np.bincount(build_topology("sipac:r=32,L=2,w=62").links.src).tolist()) == {62}


def test_three_levels_of_radix_64_have_more_links_than_are_built():
    """262144 CUs with 3 x 63 neighbours each."""
    with pytest.raises(InputError, match=r"links must be at most 2\*\*24, got 49545216") as refused:
        build_topology("sipac:r=64,L=3,w=189")
    assert int(str(refused.value).rpartition("got ")[2].split(";")[0]) // (3 * 63) == 262144


def test_a_job_on_the_whole_system_is_the_static_one():
    for size, settings_ in ((64, "r=8,L=2"), (36, "r=6,L=2,w=23"), (8, "r=2,L=3,w=7")):
        static, flex = build_topology(f"sipac:{settings_}"), build_topology(f"flex-sipac:{settings_},jobs={size}")
        assert np.array_equal(static.links.bandwidth_Bps, flex.links.bandwidth_Bps)


# Wiring


@pytest.mark.parametrize(("r", "L"), [(2, 2), (4, 2), (3, 3), (2, 4), (5, 1)])
def test_neighbours_differ_in_one_digit_and_are_a_hamming_graph(r, L):
    _, near = near_of(r, L)
    digits = list(itertools.product(range(r), repeat=L))
    expected = nx.Graph((i, j) for i, j in itertools.combinations(range(r**L), 2) if _apart(digits[i], digits[j]) == 1)
    found = nx.Graph(zip(near.src.tolist(), near.dst.tolist(), strict=True))
    assert {frozenset(e) for e in found.edges} == {frozenset(e) for e in expected.edges}
    assert len(near.src) == 2 * len(expected.edges) == r**L * L * (r - 1)


def _apart(a, b):
    return sum(x != y for x, y in zip(a, b, strict=True))


@pytest.mark.parametrize("r", [2, 4, 5, 6, 7, 8, 10, 16])
def test_of_each_turn_a_cu_has_one_neighbour_or_two_where_r_is_odd(r):
    _, near = near_of(r, 2)
    counts = np.zeros((near.n, near.turn.max() + 1), int)
    np.add.at(counts, (near.src, near.turn), 1)
    assert (counts == 1 + r % 2).all()
    back = {(a, b): turn for a, b, turn in zip(near.src.tolist(), near.dst.tolist(), near.turn.tolist(), strict=True)}
    assert all(back[b, a] == turn for (a, b), turn in back.items())


@given(st.integers(2, 9), st.integers(1, 3), st.integers(0, 100))
@settings(max_examples=30)
def test_wavelengths_spread_evenly_over_neighbours_and_ports_and_none_is_left_but_for_odd_r_and_w(r, L, more):
    levels, near = near_of(r, L, L * (r - 1) + more)
    found = uniform(levels, near)
    assert found.max() - found.min() <= 1
    sums = np.concatenate(near.sums(found))
    assert (sums == levels.w - (r % 2) * (levels.w % 2)).all()
    level = near.turn % L
    ports = [near.of(level == at).sums(found[level == at])[0][0] for at in range(L)]
    assert max(ports) - min(ports) <= 1 + r % 2


def test_as_many_links_lead_out_of_every_cu_as_nothing_short_of_cutting_all_of_them_parts_two():
    topology = build_topology("sipac:r=3,L=2,w=12")
    graph = _graph(topology)
    assert nx.edge_connectivity(graph) == 4
    assert nx.maximum_flow_value(graph, 0, 8) == pytest.approx(12 * 4e9)


@pytest.mark.parametrize("line", ["sipac:r=3,L=3", "flex-sipac:r=4,L=2,jobs=16"])
def test_routes_take_a_hop_a_digit_level_0_first(line):
    topology = build_topology(line)
    pairs = np.array(list(itertools.permutations(range(topology.n_npus), 2)))
    routes = topology.routes(*pairs.T, np.zeros(len(pairs)))
    for at, (src, dst) in enumerate(pairs.tolist()):
        a, b = (np.unravel_index(node, topology.dims) for node in (src, dst))
        differ = [axis for axis in reversed(range(len(a))) if a[axis] != b[axis]]
        assert topology.links.dimension[routes.of(at)].tolist() == differ


# Bad input


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("sipac:r=1,L=2", "sipac: r must be 2 or more ports of a WSS, got 1"),
        ("sipac:r=2,L=25", "sipac: L must be at most 24 levels, got 25"),
        ("sipac:r=200,L=3", "sipac: links must be at most 2**24, got 4776000000; take fewer NPUs"),
        (
            "sipac:r=8,L=3,w=20",
            "sipac: w must be at least 21, one for each neighbour (L (r - 1)), got 20; "
            "take more wavelengths, or a smaller r or L",
        ),
        ("sipac:r=4,L=2,rate=0Gb/s", "sipac: rate must be a rate above 0 such as 50GB/s or 400Gb/s, got '0Gb/s'"),
        ("flex-sipac:r=4,L=2,jobs=8-8", "flex-sipac: jobs must be sizes joined by +, such as 8+4+4, got '8-8'"),
        ("flex-sipac:r=4,L=2,jobs=8,keep=x", "flex-sipac: keep must be a whole number of 0 or more, got 'x'"),
        ("flex-sipac:r=4,L=2,jobs=8,by=luck", "flex-sipac: by must be heuristic or program, got 'luck'"),
        ("flex-sipac:r=4,L=2,jobs=8,keep=11", "flex-sipac: keep must be 0..10, as 6 neighbours share 60 wavelengths, got 11"),
        (
            "flex-sipac:r=4,L=2,jobs=8+12",
            "flex-sipac: CUs of all jobs must be at most 16 (r^L), got 20; take fewer or a larger L",
        ),
        (
            "flex-sipac:r=4,L=2,jobs=2+4",
            "flex-sipac: job 1 of CUs 2..5 falls apart, as no link within it leads from some to the others; "
            "begin it at a multiple of its size, or let all links keep=1 wavelength",
        ),
        (
            "flex-sipac:r=8,L=3,jobs=512,by=program",
            "flex-sipac: links times wavelengths must be at most 524288 for the integer program, got 645120; take by=heuristic",
        ),
    ],
)
def test_what_cannot_be_is_refused_in_a_line_that_says_what_can(line, message):
    with pytest.raises(InputError) as refused:
        build_topology(line)
    assert str(refused.value) == message


@pytest.mark.parametrize(
    ("jobs", "traffic", "message"),
    [
        ([[0, 4]], None, "flex-sipac: CUs of jobs must be 0..3, got '0..4'"),
        ([[0, 1], [1, 3]], None, "flex-sipac: CU 1 is given twice; give each CU to one job once"),
        ([[0, 1]], [[1.0]], "flex-sipac: traffic must be 4 x 4 finite numbers of 0 or more, got (1, 1)"),
        ([[0, 1]], np.full((4, 4), -1), "flex-sipac: traffic must be 4 x 4 finite numbers of 0 or more, got -1.0"),
    ],
)
def test_jobs_that_cannot_be_set_up_are_refused(jobs, traffic, message):
    with pytest.raises(InputError) as refused:
        reconfigure(initial(Levels("flex-sipac", 2, 2, 4)), jobs, traffic)
    assert str(refused.value) == message


def test_a_job_set_up_in_python_is_the_topology_that_its_line_names():
    line = build_topology("flex-sipac:r=4,L=2,jobs=8+4,w=12")
    mine = topology_of(set_up(4, 2, 12, [8, 4]))
    assert np.array_equal(line.links.bandwidth_Bps, mine.links.bandwidth_Bps)
    assert np.array_equal(line.links.dst, mine.links.dst)
    assert line.assumptions == mine.assumptions
