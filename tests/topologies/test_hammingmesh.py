import networkx as nx
import numpy as np
import pytest

from emu.errors import InputError
from emu.topology.catalogue import build_topology
from emu.topology.facts.facts import bisection
from tests.topologies import counted

PLANES = 9
FOUR, SEVEN = (f"hammingmesh:boards=32x32,side={side},planes={PLANES}" for side in (4, 7))
TWO_TIERS = (200704, 48384, 4128)  # RailX, Table 6, Hx7Mesh (2-Tier FT): chips, switches, thousands of transceivers


def _light(mesh):
    """[L] links that leave a board: to a switch, or from one."""
    return (mesh.links.src >= mesh.n_npus) | (mesh.links.dst >= mesh.n_npus)


def _switches(mesh):
    """Count the switches of 64 ports of 400 Gb/s, of all planes."""
    return counted.switches(mesh, 64)


def _transceivers(mesh):
    """Count thousands of transceivers: one at either end of every port's cable that leaves a board."""
    return round(counted.ports(mesh, _light(mesh)) / 1000, 1)


def _share(mesh):
    """Percent of what half of the chips inject that crosses to the other half."""
    return round(100 * bisection(mesh)[0] / (mesh.n_npus / 2 * 4 * PLANES * counted.PORT), 1)


ROWS = {  # what is printed, of which line, and how it is counted
    "rx-t6-Hx4-sw": (2304, FOUR, _switches),
    "rx-t6-Hx4-aot": (294.9, FOUR, _transceivers),
    "rx-t6-Hx4-gbw": (12.5, FOUR, _share),
    "rx-t6-Hx7-sw": (4032, SEVEN, _switches),
    "rx-t6-Hx7-aot": (516.1, SEVEN, _transceivers),
    "rx-t6-Hx7-gbw": (7.1, SEVEN, _share),
}


@pytest.mark.parametrize("row", ROWS)
def test_a_row_of_the_paper_is_what_is_built(row):
    printed, line, computed = ROWS[row]
    assert computed(build_topology(line)) == printed


@pytest.mark.parametrize("line", [FOUR, SEVEN, f"hammingmesh:boards=64x64,side=7,planes={PLANES}"])
def test_the_bill_is_what_the_links_take(line):
    mesh = build_topology(line)
    assert (mesh.bill["switch"], mesh.bill["optical transceiver"]) == (_switches(mesh), counted.ports(mesh, _light(mesh)))


@pytest.mark.parametrize(("side", "share"), [(4, 12.5), (7, 7.1)])
def test_global_bandwidth_is_that_of_table_6_at_any_number_of_boards(side, share):
    for boards in ("2x2", "4x6"):
        assert _share(build_topology(f"hammingmesh:boards={boards},side={side},planes={PLANES}")) == share


def test_lines_of_128_ends_are_on_trees_of_four_leaves_and_two_spines():
    mesh = build_topology(f"hammingmesh:boards=64x64,side=7,planes={PLANES}")
    counts = (mesh.n_npus, _switches(mesh), int(_transceivers(mesh)))  # printed truncated
    assert counts == TWO_TIERS
    assert set(np.bincount(mesh.links.src)[mesh.n_npus :].tolist()) == {64}


@pytest.mark.parametrize("side", [1, 2, 4])
def test_the_lines_of_a_board_row_are_one_hop_from_any_of_its_boards(side):
    mesh = build_topology(f"hammingmesh:boards=2x3,side={side}")
    graph = nx.MultiGraph()
    graph.add_edges_from(zip(mesh.links.src[::2].tolist(), mesh.links.dst[::2].tolist(), strict=True))
    chips = np.arange(mesh.n_npus).reshape(mesh.dims)
    for line in range(2 * side):
        row = chips[line // side, :, line % side]
        neighbours = [chip for switch in [mesh.n_npus + line] for chip in graph[switch] for _ in graph[switch][chip]]
        assert sorted(neighbours) == sorted([*row[:, 0].tolist(), *row[:, -1].tolist()])
    assert {graph.degree(chip) for chip in range(mesh.n_npus)} == {4}


def test_equally_near_edges_and_all_spines_are_used():
    mesh = build_topology("hammingmesh:boards=8x8,side=1,radix=8")
    routes = mesh.routes(np.zeros(200), np.full(200, 4), np.arange(200))
    assert (routes.hops == 4).all()
    table = routes.link.reshape(200, 4)
    assert [len(set(stage.tolist())) for stage in table.T] == [2, 4, 4, 2]


def test_hops_on_a_board_take_less_time():
    mesh = build_topology("hammingmesh:boards=2x2,latency=1us,board_latency=5ns")
    away = (mesh.links.src >= mesh.n_npus) | (mesh.links.dst >= mesh.n_npus)
    assert set(mesh.links.latency_fs[away].tolist()) == {1_000_000_000}
    assert set(mesh.links.latency_fs[~away].tolist()) == {5_000_000}


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("boards=4", "boards must be two sizes, rows and columns, such as 4x4, got '4'"),
        ("boards=33x2", r"boards on a line must be at most 32 \(a switch a line\), or 32 times a divisor of it .*, got 33"),
        ("boards=2x5,radix=6", r"boards on a line must be at most 3 \(a switch a line\), got 5"),
        ("boards=32x32,side=1000", "links must be at most"),
    ],
)
def test_boards_that_the_switches_cannot_join_are_refused(line, message):
    with pytest.raises(InputError, match=message):
        build_topology(f"hammingmesh:{line}")
