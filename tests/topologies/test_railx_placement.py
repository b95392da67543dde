import itertools

import networkx as nx
import numpy as np
import pytest

from emu.errors import InputError
from emu.topology.catalogue import build_topology
from emu.topology.usable_npus import usable_npus
from topologies.railx.rail_repair import largest_grid, subnetworks


def _size(rows, columns, faults):
    kept = largest_grid(rows, columns, np.array(faults, np.int64).reshape(-1, 2))
    assert not any(r in kept[0] and c in kept[1] for r, c in faults)
    return len(kept[0]) * len(kept[1])


def _most(rows, columns, faults):
    """By trying every set of rows, and then leaving out each column that still has a fault."""
    return max(
        len(kept) * (columns - len({c for r, c in faults if r in kept}))
        for count in range(rows + 1)
        for kept in itertools.combinations(range(rows), count)
    )


def _placed(rows, columns, faults):
    """Nodes of four chips that a job on a built torus gets where one chip of each faulty node is down."""
    topology = build_topology(f"railx:torus:m=2,n=1,nodes={columns}x{rows}")
    faulty = [4 * (row * columns + column) for row, column in faults]
    kept = topology.placer(0, np.unique(np.array(faulty, np.int64)))
    assert not np.isin(kept // 4, np.array(faulty, np.int64) // 4).any()
    whole, chips = np.unique(kept // 4, return_counts=True)
    assert (chips == 4).all()
    return len(whole)


@pytest.mark.parametrize("seed", range(40))
def test_algorithm_2_is_as_good_as_trying_everything(seed):
    rng = np.random.default_rng(seed)
    for _ in range(10):  # 400 grids in all
        rows, columns = rng.integers(2, 8, size=2)
        faults = [tuple(map(int, rng.integers((rows, columns)))) for _ in range(rng.integers(0, 8))]
        assert _placed(rows, columns, faults) == _size(rows, columns, faults) == _most(rows, columns, faults)


def test_two_faults_of_a_row_cost_the_row_and_one_alone_a_column():
    rows, columns = largest_grid(4, 4, np.array([(0, 0), (0, 1), (2, 3)]))
    assert len(rows) * len(columns) == 9
    assert 0 not in rows


@pytest.mark.parametrize("a", [1, 2, 5])
def test_the_worst_case_of_2a_faults_leaves_a_square_without_a_rows_and_columns(a):
    assert _placed(64, 64, [(i, i) for i in range(2 * a)]) == (64 - a) ** 2
    assert _placed(64, 64, [(3, i) for i in range(2 * a)]) == 63 * 64


def test_availability_at_one_node_in_a_thousand_is_above_nine_in_ten_for_r_128():
    rng = np.random.default_rng(0)
    kept = [_size(64, 64, [tuple(map(int, f)) for f in np.argwhere(rng.random((64, 64)) < 1e-3)]) for _ in range(100)]
    assert 0.9 < np.mean(kept) / 64**2 < 0.96


def test_no_fault_costs_nothing_and_faults_everywhere_leave_nothing():
    assert _size(3, 5, []) == 15
    assert _size(2, 2, list(itertools.product(range(2), repeat=2))) == 0


def test_few_columns_are_tried_rather_than_many_rows():
    assert _size(40, 40, [(i, i % 2) for i in range(40)]) == 40 * 38


def test_more_faults_than_can_be_tried_are_refused():
    faults = np.array([(i // 2, (i + 1) // 2 % 30) for i in range(60)])  # one long chain
    with pytest.raises(InputError, match=r"^railx: rows with faults that share .* must be at most 20, got 30"):
        largest_grid(64, 64, faults)


def test_a_job_is_on_whole_nodes_of_whole_rows_and_columns_without_a_fault():
    topology = build_topology("railx:torus:m=2,n=1,nodes=4x3")
    faulty = [4 * 5 + 1, 4 * 5 + 3]  # two chips of node X 1, Y 1
    npus = topology.place(36, faulty)
    assert np.array_equal(npus.reshape(-1, 4)[:, 0] // 4, [0, 2, 3, 4, 6, 7, 8, 10, 11])
    assert np.array_equal(npus.reshape(-1, 4) % 4, np.broadcast_to(np.arange(4), (9, 4)))
    with pytest.raises(InputError, match="at most 36 where 2 of 48"):
        topology.place(37, [0, 1])


def test_what_is_left_of_a_hyperx_still_joins_all_nodes_of_a_row():
    topology = build_topology("railx:hyperx:m=2,n=2")
    npus = topology.place(80, [0])
    nodes = nx.Graph((a // 4, b // 4) for a, b in zip(topology.links.src, topology.links.dst, strict=True) if a // 4 != b // 4)
    left = nodes.subgraph(np.unique(npus // 4).tolist())
    assert nx.diameter(left) == 2


@pytest.mark.parametrize("seed", range(20))
def test_sub_networks_share_no_node_and_have_all_without_a_fault(seed):
    """Every node that works is in one grid, and there are no more grids than rows, or columns, have different faults."""
    rng = np.random.default_rng(seed)
    rows, columns = map(int, rng.integers(2, 9, size=2))
    faults = rng.integers((0, 0), (rows, columns), size=(int(rng.integers(0, 9)), 2))
    if not seed:  # rows have four kinds of faults, columns three
        rows, columns, faults = 4, 5, np.array([(0, 0), (1, 1), (2, 0), (2, 1)])
    found = subnetworks(rows, columns, faults)
    nodes = [(r, c) for grid in found for r in grid[0].tolist() for c in grid[1].tolist()]
    faulty = set(map(tuple, faults.tolist()))
    assert sorted(nodes) == sorted(set(itertools.product(range(rows), range(columns))) - faulty)
    patterns = [
        {frozenset(f[1 - axis] for f in faulty if f[axis] == i) for i in range(n)} for axis, n in ((0, rows), (1, columns))
    ]
    whole = [len(kinds - {frozenset(range(other))}) for kinds, other in zip(patterns, (columns, rows), strict=True)]
    assert len(found) == min(whole)


def test_jobs_beside_the_largest_take_what_a_fault_cuts_off_from_it():
    """One faulty node of 5 x 5, each of four chips: one job loses its row, several lose the node alone."""
    faulty = np.zeros((2, 100), np.bool_)
    faulty[1, 4 * 7 + 1] = True
    left = {
        jobs: usable_npus(build_topology(f"railx:torus:m=2,n=2,nodes=5x5,jobs={jobs}"), 4, faulty)
        for jobs in ("one", "several")
    }
    assert left["one"].tolist() == [100, 80]
    assert left["several"].tolist() == [100, 96]
    wide = usable_npus(build_topology("railx:torus:m=2,n=2,nodes=5x5,jobs=several"), 20, faulty)
    assert wide.tolist() == [100, 80]  # a group of a whole row finds no place in the row with the fault
