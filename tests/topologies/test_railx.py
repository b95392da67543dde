import itertools
from collections import Counter

import networkx as nx
import numpy as np
import pytest

from emu.errors import InputError
from emu.topology.catalogue import TOPOLOGIES, build_topology, read_topology
from emu.topology.facts.facts import bisection, cut
from tests.topologies import counted
from topologies.railx.rail_wiring import RailGroup, System, circuits, strides

SMALL = [f"railx:{v}:{e}" for v in ("torus", "hyperx", "dragonfly", "split") for e in TOPOLOGIES.find(f"railx:{v}").examples]
SEVEN, FOUR = (f"railx:torus:m={m},n=9,nodes=64x64" for m in (7, 4))


def _system(line):
    arguments = read_topology(line)[1]
    m, n, nodes, a = (arguments.get(name) for name in ("m", "n", "nodes", "a"))
    kind = line.split(":")[1]
    if kind == "split":
        return System(m, n, *arguments["rails"])
    if kind == "torus":
        return System(m, n, *((RailGroup("ring", size, m * n),) for size in nodes))
    sizes = (m * n // (a or 1) + 1,) * 2 if kind == "hyperx" else (m * n + 1, arguments["groups"])
    return System(m, n, *((RailGroup("complete", size, m * n),) for size in sizes))


def _between_nodes(topology, m):
    """How many rails each ordered pair of nodes has."""
    rails = topology.links.dimension > 0
    src, dst = topology.links.src[rails] // m**2, topology.links.dst[rails] // m**2
    return Counter(zip(src.tolist(), dst.tolist(), strict=True))


def _rails(topology, axis):
    """[L] whether a link is light along X (0) or Y (1), whatever logical dimensions it has."""
    return topology.links.dimension == 1 + axis


def _transceivers(topology):
    """Count the transceivers of 400 Gb/s, one at either end of a rail."""
    return counted.ports(topology, topology.links.dimension > 0)


@pytest.mark.parametrize("line", [SEVEN, FOUR, "railx:hyperx:m=4,n=2", "railx:dragonfly:m=2,n=2,groups=11"])
def test_the_bill_is_what_the_links_take(line):
    """An OCS serves a rail of a row or column, whether its ports are all in use or not."""
    topology = build_topology(line)
    assert topology.bill["optical transceiver"] == _transceivers(topology)
    system = _system(line)
    assert topology.bill["OCS"] == sum(len(ports) * len(ports[0]) for ports in (circuits(system, axis) for axis in (0, 1)))


def test_figure_19_is_chips_and_four_logical_dimensions():
    topology = build_topology("railx:split:m=2,n=4,rails=C3@4+C5@4/K3@4+C7@4")
    assert topology.dims == (3, 7, 3, 5, 2, 2)
    assert topology.n_npus == 4 * 3 * 3 * 5 * 7


@pytest.mark.parametrize("size", [2, 3, 5, 7, 8, 9, 16])
def test_each_ordered_pair_is_joined_by_plus_and_minus_on_one_rail(size):
    """A rail's cable begins at a + port, and its first link leads from there."""
    topology = build_topology(f"railx:hyperx:m=1,n={size - 1}")
    assert topology.dims[:2] == (size, size)
    plus = np.flatnonzero(_rails(topology, 0))[::2]
    src, dst = topology.links.src[plus], topology.links.dst[plus]
    assert np.array_equal(src // size, dst // size)
    pairs = Counter(zip(src.tolist(), dst.tolist(), strict=True))
    row = itertools.permutations(range(size), 2)
    assert pairs == {(at + a, at + b): 1 for a, b in row for at in range(0, size**2, size)}


@pytest.mark.parametrize("line", SMALL)
@pytest.mark.parametrize("axis", [0, 1])
def test_an_optical_switch_joins_each_port_to_one_other_a_plus_to_a_minus(line, axis):
    system = _system(line)
    ports = circuits(system, axis)
    assert ports.shape == (system.sizes[1 - axis], system.r, 2 * system.sizes[axis])
    assert ports.shape[2] <= system.hardware.radix
    assert np.array_equal(np.take_along_axis(ports, ports, axis=2), np.broadcast_to(np.arange(ports.shape[2]), ports.shape))
    assert ((ports + np.arange(ports.shape[2])) % 2 == 1).all()


@pytest.mark.parametrize("line", SMALL)
def test_rails_lead_where_the_optical_switches_are_set_to(line):
    """Rebuilt from the port maps, chip by chip: rail a ends on row or column a // n."""
    system, topology = _system(line), build_topology(line)
    m, n, (n_x, _) = system.m, system.n, system.sizes
    expected = Counter()
    for axis in (0, 1):
        maps = circuits(system, axis)
        for node_line, rail, port in np.ndindex(*maps.shape):
            ends = []
            for p in (port, int(maps[node_line, rail, port])):
                along, across = (0 if p % 2 else m - 1), rail // n
                (X, x), (Y, y) = ((p // 2, along), (node_line, across)) if axis == 0 else ((node_line, across), (p // 2, along))
                ends.append(((Y * n_x + X) * m + y) * m + x)
            expected[(*ends, 1 + axis)] += 1
    links = topology.links
    rails = links.dimension > 0
    found = zip(links.src[rails].tolist(), links.dst[rails].tolist(), links.dimension[rails].tolist(), strict=True)
    assert Counter(found) == expected


@pytest.mark.parametrize(("line", "m", "a", "size"), [("m=2,n=2", 2, 1, 5), ("m=4,n=2,a=2", 4, 2, 5), ("m=3,n=2,a=3", 3, 3, 3)])
def test_a_hyperx_joins_all_nodes_of_a_row_and_of_a_column_by_2a_rails(line, m, a, size):
    topology = build_topology(f"railx:hyperx:{line}")
    oracle = nx.cartesian_product(nx.complete_graph(size), nx.complete_graph(size))  # (Y, X)
    edges = {(s[0] * size + s[1], d[0] * size + d[1]): 2 * a for s, d in oracle.to_directed().edges}
    assert _between_nodes(topology, m) == edges


def test_a_torus_joins_neighbours_by_all_rails():
    found = _between_nodes(build_topology("railx:torus:m=2,n=2,nodes=5x3"), 2)
    oracle = nx.grid_graph((5, 3), periodic=True)  # (Y, X)
    assert found == {(s[0] * 5 + s[1], d[0] * 5 + d[1]): 4 for s, d in oracle.to_directed().edges}


@pytest.mark.parametrize(("m", "n", "groups"), [(2, 1, 7), (1, 2, 5), (2, 2, 11), (2, 1, 3)])
def test_rows_of_a_dragonfly_are_complete_and_its_columns_share_the_rings_between_rows(m, n, groups):
    r = m * n
    found = _between_nodes(build_topology(f"railx:dragonfly:m={m},n={n},groups={groups}"), m)
    rows, columns = Counter(), Counter()
    for (src, dst), rails in found.items():
        (Y, X), (V, U) = divmod(src, r + 1), divmod(dst, r + 1)
        assert (X == U) != (Y == V)
        (rows if Y == V else columns)[(Y, V) if X == U else (Y, X, U)] += rails
    assert rows == {(Y, X, U): 2 for Y in range(groups) for X, U in itertools.permutations(range(r + 1), 2)}
    turns = (r + 1) * r // (groups - 1)
    assert set(columns) == set(itertools.permutations(range(groups), 2))
    assert 2 * turns <= min(columns.values()) <= max(columns.values()) <= 2 * turns + 2


def test_rails_in_x_belong_to_their_logical_dimension():
    line = "railx:split:m=1,n=5,rails=K3@2+C4@3/C2@5"
    system, topology = _system(line), build_topology(line)
    assert strides(system.x) == [4, 1]
    digits = np.stack(np.unravel_index(np.arange(topology.n_npus), topology.dims))
    differ = digits[:, topology.links.src] != digits[:, topology.links.dst]
    assert (differ.sum(axis=0) == 1).all()
    assert np.bincount(np.argmax(differ, axis=0)).tolist() == [2 * 5 * 24, 2 * 2 * 24, 2 * 3 * 24]


@pytest.mark.parametrize("line", ["railx:hyperx:m=2,n=1", "railx:torus:m=2,n=1,nodes=3x2", "railx:dragonfly:m=1,n=2,groups=5"])
def test_as_many_paths_without_a_link_in_common_as_a_chip_has_links(line):
    topology = build_topology(line)
    graph = nx.DiGraph()
    graph.add_nodes_from(range(topology.n_npus))
    for (a, b), count in Counter(zip(topology.links.src.tolist(), topology.links.dst.tolist(), strict=True)).items():
        graph.add_edge(a, b, capacity=count)
    degree = int(np.bincount(topology.links.src).min())
    assert {nx.maximum_flow_value(graph, 0, npu) for npu in range(1, topology.n_npus)} == {degree}


def _throughput(topology, cut_Bps):
    """All-to-all throughput of a chip in ports, 2 B_c / N, where B_c is both ways (equation 2)."""
    return 4 * cut_Bps / topology.links.bandwidth_Bps.min() / topology.n_npus


def test_all_to_all_throughput_is_equation_2_of_the_torus():
    topology = build_topology("railx:torus:m=7,n=9,nodes=64x64")
    assert _throughput(topology, bisection(topology)[0]) == pytest.approx(16 * 9 / (128 * 7), rel=1e-12)  # rx-t2-torus-bw


@pytest.mark.parametrize(("m", "n"), [(7, 9), (3, 3), (1, 7)])
def test_all_to_all_throughput_is_equation_3_of_the_hyperx_before_it_is_rounded(m, n):
    topology = build_topology(f"railx:hyperx:m={m},n={n}")
    exact = 2 * (m * n + 1) / m**2  # rx-t2-hx-bw
    assert _throughput(topology, bisection(topology)[0]) == pytest.approx(exact, rel=1e-12)
    assert exact - 2 * n / m == pytest.approx(2 / m**2)


def test_all_to_all_throughput_between_a_dragonfly_s_groups_is_table_2_s_but_for_the_group_itself():
    groups, m, n = 10, 4, 2  # 8 rings each for 9 columns: every pair of groups has 16 rails
    topology = build_topology(f"railx:dragonfly:m={m},n={n},groups={groups}")
    between = cut(topology, np.arange(topology.n_npus) < topology.n_npus // 2)
    assert _throughput(topology, between) == pytest.approx(2 * n / m * groups / (groups - 1), rel=1e-12)  # rx-t2-df-bw


@pytest.mark.parametrize("size", [5, 9])
def test_a_row_of_a_hyperx_of_odd_size_is_cut_by_two_floor_times_ceil(size):
    topology = build_topology(f"railx:hyperx:m=1,n={size - 1}")
    low = np.arange(topology.n_npus) % size < size // 2
    assert cut(topology, low) == size * 2 * (size // 2) * (size - size // 2) * 50e9


def test_meshes_are_squares_on_the_grid_of_nodes():
    drawing = build_topology("railx:torus:m=3,n=1,nodes=4x3").draw()
    at = drawing.at.reshape(3, 4, 3, 3, 2)
    assert (np.ptp(at, axis=(2, 3)) == 2).all()
    assert (np.diff(at[..., 0], axis=1) > 3).all()
    assert (np.diff(at[..., 1], axis=0) < -3).all()
    assert [box.nodes for box in drawing.boxes] == [(i, i + 9) for i in range(0, 108, 9)]


def test_what_the_paper_leaves_open_is_said_with_the_value_taken():
    said = " ".join(build_topology("railx:hyperx:m=2,n=2,k=3,bandwidth=100GB/s,optical=1us").assumptions)
    for words in ("100 GB/s one way", "600 GB/s", "k n = 6", "10 ns in a node and 1 us between", "3 virtual channels"):
        assert words in said


def test_a_split_is_shown_as_it_is_written():
    kinds = dict(TOPOLOGIES.find("railx:split").kinds)
    text = "K3@4+C2@2/C3@6"
    assert kinds["rails"].show(kinds["rails"].read(text, "rails")) == text


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("hyperx:m=3,n=1", r"nodes in a row must be r/a \+ 1, but not 4 or 6, .*, got 4; take a=3 for 2 nodes, another m or n"),
        ("hyperx:m=2,n=5,a=2", "nodes in a row must be .*got 6; take a=10 for 2 nodes, a=5 for 3 nodes, a=1 for 11 nodes"),
        ("hyperx:m=2,n=2,a=3", "a must be a divisor of m n = 4, got 3; take a=4 for 2 nodes, a=2 for 3 nodes, a=1 for 5"),
        ("hyperx:m=7,n=10", "nodes along X must be at most 64, as each takes 2 of the 128 ports of an OCS, got 71"),
        ("hyperx:m=1,n=129,radix=512", "nodes of an all-to-all must be at most 128 where even, got 130"),
        ("torus:m=2,n=2,nodes=4", "nodes must be two sizes, along X and Y, such as 4x4, got '4'"),
        ("torus:m=2,n=2,nodes=4x1", "nodes of a dimension must be 2 or more, got 1"),
        ("torus:m=2,n=2,nodes=4x4,radix=7", "radix must be even, as a node has two ports on an OCS, got 7"),
        ("torus:m=50,n=9,nodes=64x64", r"links must be at most 2\*\*24, got 47513600"),
        ("dragonfly:m=3,n=1,groups=7", "3 rings cannot join 4 nodes.*Lemma 3.1.*; take another, or a ring"),
        ("dragonfly:m=2,n=2,groups=6", "5 rings cannot join 6 nodes"),
        ("dragonfly:m=2,n=1,groups=8", r"groups must be at most 7, as \(r\+1\) r rails leave one .*, got 8"),
        ("split:m=2,n=2,rails=K3@3+C2@1/C4@4", "rails of an all-to-all of 3 nodes must be a multiple of 2, its rings, got 3"),
        ("split:m=2,n=2,rails=K3@2/C4@4", "rails along X must be m n = 4 in all, got 2"),
        ("split:m=2,n=2,rails=C4@4+K3@0/C4@4", "rails of a dimension must be 1 or more, got 0"),
        ("split:m=2,n=2,rails=C4@4", "rails must be X/Y, each rings Cs@r or all-to-alls Ks@r .*, got 'C4@4'"),
        ("split:m=2,n=2,rails=C4x4/C4@4", "rails must be X/Y"),
    ],
)
def test_what_does_not_close_is_refused_with_what_works(line, message):
    with pytest.raises(InputError, match=message):
        build_topology(f"railx:{line}")
