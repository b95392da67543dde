"""The optimum of trees, against all cuts of small networks and against the bounds of every schedule."""

from fractions import Fraction
from itertools import product

import numpy as np
import pytest

from emu.bound.limit import FULL_EFFORT, limit_of
from emu.bound.network import network
from emu.bound.trees import ALL_CUTS, HALVES, PROGRAM, TREE_OPERATIONS, tree_optimum
from emu.collective.operation import operation
from emu.errors import InputError
from emu.topology.catalogue import build_topology

LINK = "bandwidth=50GB/s,latency=500ns"
SEEDS = range(25)


def _ratio(net, blocks):
    """The largest number of blocks for a unit of capacity of all sets of nodes."""
    found = Fraction(0)
    for bits in product((False, True), repeat=net.n_nodes):
        inside = np.array(bits)
        sent = blocks(inside[net.ranks])
        if sent:
            found = max(found, Fraction(sent, net.out_of(inside)))
    return found


BLOCKS = {
    "all_gather": lambda inside: 0 if inside.all() else int(inside.sum()),
    "reduce_scatter": lambda inside: int((~inside).sum()) if inside.any() else 0,
    "broadcast": lambda inside: int(inside[0] and not inside.all()),
    "reduce": lambda inside: int(not inside[0] and inside.any()),
}


def _full_duplex(random_topology, made, seed):
    """The random topology with a link back for each link, so that switches let out what they let in."""
    topology = random_topology(seed)
    links = topology.links
    rows = list(
        zip(links.src.tolist(), links.dst.tolist(), links.bandwidth_Bps.tolist(), links.latency_fs.tolist(), strict=True)
    )
    return made(topology.n_npus, topology.n_nodes, rows + [(b, a, rate, late) for a, b, rate, late in rows])


@pytest.mark.parametrize("name", BLOCKS)
@pytest.mark.parametrize("seed", SEEDS)
def test_where_switches_let_out_what_they_let_in_it_is_the_worst_of_all_cuts(random_topology, made, seed, name) -> None:
    topology = _full_duplex(random_topology, made, seed)
    n = topology.n_npus
    found = tree_optimum(topology, operation(name, n), tuple(range(n)))
    net = network(topology, np.arange(n))
    assert found.by == ALL_CUTS
    assert found.s_per_byte == pytest.approx(net.seconds(_ratio(net, BLOCKS[name])), rel=1e-12)


@pytest.mark.parametrize("name", TREE_OPERATIONS)
@pytest.mark.parametrize("seed", SEEDS)
def test_no_bound_of_all_schedules_is_above_it(random_topology, seed, name) -> None:
    topology = random_topology(seed)
    n = topology.n_npus
    npus = tuple(range(n))
    found = tree_optimum(topology, operation(name, n), npus)
    limit = limit_of(topology, operation(name, n), npus, helpers=False, effort=FULL_EFFORT)
    assert all(term.s_per_byte <= found.s_per_byte * (1 + 1e-7) for term in limit.terms)
    assert found.least_s(2**30) > 0


def test_a_switch_that_lets_out_more_than_it_lets_in_copies_nothing(made) -> None:
    # One unit comes in, and each of three NPUs could be sent a unit: a cut sees 1 block over 1, but each copy has to come in.
    rows = [(0, 3, 1e9, 0), (3, 1, 1e9, 0), (3, 2, 1e9, 0), (1, 0, 1e9, 0), (2, 0, 1e9, 0)]
    topology = made(3, 4, rows)
    found = tree_optimum(topology, operation("broadcast", 3), (0, 1, 2))
    assert found.by == PROGRAM
    assert found.s_per_byte * 1e9 == pytest.approx(2, rel=1e-6)
    more = made(3, 4, [*rows, (1, 2, 1e9, 0)])
    assert tree_optimum(more, operation("broadcast", 3), (0, 1, 2)).s_per_byte * 1e9 == pytest.approx(1, rel=1e-6)


def test_an_all_reduce_that_no_program_reaches_is_that_of_both_halves() -> None:
    topology, npus = build_topology("hammingmesh:boards=2x2,side=4"), tuple(range(64))
    found = tree_optimum(topology, operation("all_reduce", 64), npus)
    half = [tree_optimum(topology, operation(name, 64), npus).s_per_byte for name in ("reduce_scatter", "all_gather")]
    assert found.by == HALVES
    assert found.s_per_byte == pytest.approx(sum(half) / 64, rel=1e-9)


@pytest.mark.parametrize("dims", ["4x4", "4x4x4"])
def test_a_torus_takes_what_its_ports_take(dims) -> None:
    topology = build_topology(f"torus:dims={dims},{LINK}")
    n, ports = topology.n_npus, 2 * len(topology.dims)
    found = tree_optimum(topology, operation("all_gather", n), tuple(range(n)))
    assert found.s_per_byte == pytest.approx((n - 1) / ports / 50e9)
    assert found.latency_fs == 500_000_000
    assert tree_optimum(topology, operation("all_reduce", n), tuple(range(n))).by == PROGRAM


def test_one_rank_takes_no_time_and_an_exchange_is_by_no_tree() -> None:
    topology = build_topology(f"torus:dims=4x4,{LINK}")
    assert tree_optimum(topology, operation("all_gather", 1), (0,)).least_s(1) == 0
    with pytest.raises(InputError, match=r"operation must be one of all_gather, .*, got 'all_to_all'"):
        tree_optimum(topology, operation("all_to_all", 16), tuple(range(16)))
