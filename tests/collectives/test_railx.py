"""RailX's hierarchical collectives: steps on 2 x 2 nodes of 2 x 2 chips, equations 6-8 and 13 on two link classes."""

from fractions import Fraction
from functools import partial
from math import prod

import numpy as np
import pytest

from collectives import railx
from emu.collective.algorithm import algorithm
from emu.collective.operation import divide_blocks
from emu.collective.schedule import Schedule
from emu.collective.shape import Shape, parse_dims
from emu.errors import InputError
from emu.fabric.ideal import ideal
from emu.fabric.lower import FabricJob
from emu.fabric.run import time_alone
from emu.study.prove.verify import verify
from emu.topology.topology import Topology
from emu.units import TICKS_PER_S

EVERY = pytest.mark.parametrize(
    ("operation", "name"),
    [
        (operation, name)
        for operation in ("reduce_scatter", "all_gather", "all_reduce")
        for name in ("railx-ring", "railx-hyperx")
    ],
)

# Section 3.1: a chip has n ports of rate B in each of four directions, 8 x 8 nodes have 4 x 4 chips, local links k n B.
N, K, M, P = 1, 4, 4, 8
B, A, A_LOCAL = 100e9, 300e-9, 10e-9
SIDE = M * P
CHIPS = SIDE**2
MB, GB = 10**6, 10**9


def claimed_fabric(name: str, shape: Shape, built: Schedule, rates: list[float], latencies: list[float]) -> Topology:
    """The fabric that an all_reduce of that name claims a time of, classes of those rates and latencies."""
    claim = algorithm("all_reduce", name).claim
    return ideal(
        built,
        claim.fabric,
        bandwidth_Bps=rates,
        latency_fs=[round(a * TICKS_PER_S) for a in latencies],
        link_class=partial(claim.link_class, shape) if claim.link_class else None,
    )


def timed(built: Schedule, size: int, fabric: Topology) -> float:
    """Seconds a schedule takes."""
    return time_alone(
        FabricJob(built, divide_blocks(np.array([size]), built.n_slots).count, fabric, np.arange(built.n_ranks))
    ).end_s


def test_four_nodes_of_four_chips_take_three_local_four_inter_node_and_three_local_steps():
    built = railx.ring_all_reduce((2, 2, 4)).expand()
    inside = [np.unique(built.src[r] // 4 == built.dst[r] // 4).tolist() for r in built.rounds()]
    assert inside == [[True]] * 3 + [[False]] * 4 + [[True]] * 3
    between = built.src // 4 != built.dst // 4
    quarter = Fraction(int(np.count_nonzero(between & (built.src == 0))), built.n_slots)
    assert quarter == Fraction(1, 4) * 2 * Fraction(3, 4)  # an all_reduce among four, of a quarter


@pytest.mark.parametrize("dims", [(3, 3, 3), (3, 3, 4), (4, 4, 5)])
def test_rings_keep_railx_equation_8_with_its_local_latency(dims):
    """B = n B / m on a rail, k n B on a local link: with V/(k n B) + V/(2 m n B) as the dims grow."""
    p, _, g = dims
    size, rail, local = 4 * g * p * p * 10**4, 100e9, 800e9
    expected = 2 * (g - 1) * A_LOCAL + 4 * (p - 1) * A
    expected += (1 - 1 / g) * size / local + (1 - 1 / p**2) * size / (2 * g * rail)
    built = railx.ring_all_reduce(dims)
    fabric = claimed_fabric("railx-ring", dims, built, [local, rail], [A_LOCAL, A])
    assert timed(built, size, fabric) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("dims", [(3, 3, 3), (3, 3, 4), (4, 4, 5)])
def test_all_nodes_at_once_keep_railx_equation_13_in_four_steps_between_nodes(dims):
    """A node's 2 n B / m along a dimension is shared by its p - 1 links, one to each node, both halves at a time."""
    p, _, g = dims
    size, rails, local = 4 * g * p * p * 10**4, 100e9, 800e9
    expected = 2 * (g - 1) * A_LOCAL + 4 * A
    expected += (1 - 1 / g) * size / local + (1 - 1 / p**2) * size / (g * (p - 1) * rails)
    built = railx.hyperx_all_reduce(dims)
    fabric = claimed_fabric("railx-hyperx", dims, built, [local, rails], [A_LOCAL, A])
    assert timed(built, size, fabric) == pytest.approx(expected, rel=1e-9)


@EVERY
@pytest.mark.parametrize("dims", ["3x3x3", "3x3x2", "2x2x3", "3x3x2x2", "2x2x3x3", "3x3x3x3", "2x2x5x5"])
def test_claims_hold_also_where_sides_are_odd_or_two(operation, name, dims):
    (verified,) = verify([(algorithm(operation, name), parse_dims(dims))])
    assert (verified.proof, verified.claim) == ("ok", "equal")


def test_directions_are_told_by_the_parity_of_the_channel_on_every_ring():
    dims = (3, 3, 5)
    built = railx.ring_all_reduce(dims).expand()
    src, dst = (np.stack(np.unravel_index(c, dims), axis=-1) for c in (built.src, built.dst))
    up = ((dst - src) % dims == 1).any(axis=1)
    assert np.array_equal(up, built.channel % 2 == 0)


@EVERY
@pytest.mark.parametrize("dims", [(2, 2, 3, 3), (2, 2, 5, 5), (3, 3, 2, 2)])
def test_a_mesh_uses_links_between_neighbours_only_and_none_that_wraps(operation, name, dims):
    built = algorithm(operation, name).schedule(dims)
    src, dst = (np.stack(np.unravel_index(c, dims), axis=-1) for c in (built.src, built.dst))
    chips, nodes = np.abs(dst - src)[:, 2:].sum(axis=1), (dst != src)[:, :2].sum(axis=1)
    assert set(zip(chips.tolist(), nodes.tolist(), strict=True)) == {(1, 0), (0, 1)}
    halves = 2 if operation == "all_reduce" else 1
    inside = [np.unique(chips[rows]).tolist() for rows in built.rounds()]
    assert inside.count([1]) == halves * 2 * (dims[2] - 1)


@pytest.mark.parametrize(
    ("local", "rails"), [((1, 7), (4, 1)), ((8, 1), (1, 9)), ((1, 0), (1, 0)), ((1, 1), (8, 50)), ((1, 0.001), (1, 1))]
)
@pytest.mark.parametrize("name", ["railx-ring", "railx-hyperx"])
@pytest.mark.parametrize("dims", [(2, 2, 3, 3), (2, 2, 5, 5)])
def test_a_mesh_keeps_its_claim_at_any_rates_and_latencies(dims, name, local, rails):
    """Buffers a ms and ms of latency: chips inside a mesh are ready before those at its corners, and must not hold them up."""
    found, size = algorithm("all_reduce", name), 4 * prod(dims) * 1000
    rates, latencies = [c[0] * size / 1e-3 for c in (local, rails)], [c[1] * 1e-3 for c in (local, rails)]
    expected = sum(float(b) * size / r + a * t for (a, b), r, t in zip(found.claim.terms(dims), rates, latencies, strict=True))
    built = found.schedule(dims)
    assert timed(built, size, claimed_fabric(name, dims, built, rates, latencies)) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("m", [2, 4, 6])
def test_a_mesh_moves_what_its_ring_does_in_fewer_steps(m):
    """Twice as many links carry the bytes, those at the ends of lines as much as each of the ring's."""
    for name in ("railx-ring", "railx-hyperx"):
        claim = algorithm("all_reduce", name).claim
        (mesh_steps, mesh), (ring_steps, ring) = claim.terms((3, 3, m, m))[0], claim.terms((3, 3, m * m))[0]
        assert (mesh, mesh_steps, ring_steps) == (ring, 4 * (m - 1), 2 * (m * m - 1))


def ring_equation_6(size: float) -> float:
    """Return twice eq. 6 around all chips: two ports each way, a reduce_scatter and an all_gather."""
    return 2 * ((CHIPS - 1) * A + (1 - 1 / CHIPS) * size / (2 * 2 * N * B))


def torus_equation_7(size: float) -> float:
    """Eq. 7 before it rounds 4(mp - 1) up to 4mp and drops 1 / (mp)^2."""
    return 4 * (SIDE - 1) * A + (1 - 1 / CHIPS) * size / (2 * N * B)


def hierarchical_equation_8(size: float) -> float:
    """Eq. 8 as printed."""
    return 4 * P * A + (2 / K + 1 / M) * size / (2 * N * B)


@pytest.mark.parametrize(
    ("formula", "of_a_megabyte_us", "of_a_gigabyte_us"),
    [(ring_equation_6, 618.8, 5608.9), (torus_equation_7, 42.2, 5032.3), (hierarchical_equation_8, 13.35, 3759.6)],
)
def test_the_instance_of_section_3_1_by_the_papers_formulas(formula, of_a_megabyte_us, of_a_gigabyte_us):
    """619, 42.2 and 13.3 us for 1 MB; 5609, 5032 and 3760 us for 1 GB."""
    assert formula(MB) * 1e6 == pytest.approx(of_a_megabyte_us, abs=0.06)
    assert formula(GB) * 1e6 == pytest.approx(of_a_gigabyte_us, abs=0.06)


INSTANCES = {
    "bidirectional-ring": (CHIPS, ring_equation_6, [2 * N * B], [A]),
    "torus-buckets": ((SIDE, SIDE), torus_equation_7, [N * B], [A]),
    "railx-ring": ((P, P, M * M), hierarchical_equation_8, [K * N * B, N * B / M], [A_LOCAL, A]),
}


def left_out(name: str, size: float) -> float:
    """Return what the formula adds to the schedule's time.

    Nothing for rings of all chips. Eq. 8 adds one step to each of the four phases between nodes, 1/m^2 of the local bytes
    (a chip keeps its own share) and 1/p^2 of those between nodes, and leaves out the latency of local steps.
    """
    if name != "railx-ring":
        return 0.0
    local_bytes, rail_bytes = size / (K * N * B) / M**2, size / (2 * N * B * M) / P**2
    return 4 * A + local_bytes + rail_bytes - 2 * (M**2 - 1) * A_LOCAL


# The claims of the other two are held of fewer ranks by every test of the catalogue.
@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=() if name == "railx-ring" else pytest.mark.slow) for name in INSTANCES]
)
def test_the_instance_of_section_3_1_by_the_schedules_of_1024_chips(name):
    """Each takes its formula's time less what that leaves out; sizes are 1 MB and 1 GB down to whole slots."""
    shape, formula, rates, latencies = INSTANCES[name]
    built = algorithm("all_reduce", name).compact_schedule(shape)
    fabric = claimed_fabric(name, shape, built, rates, latencies)
    for size in (MB // (4 * CHIPS) * 4 * CHIPS, GB // (4 * CHIPS) * 4 * CHIPS):
        expected = formula(size) - left_out(name, size)
        assert timed(built, size, fabric) == pytest.approx(expected, rel=1e-9)


def test_other_numbers_of_ranks_and_other_meshes_are_refused_with_what_works():
    found = algorithm("all_reduce", "railx-ring")
    with pytest.raises(InputError, match="all_reduce railx-ring: cannot run on 10 ranks; nearest that work: 8, 12"):
        found.fit(10)
    with pytest.raises(InputError, match="all_reduce railx-ring: does not take shape 2x2x2x3; 2x2x6 works"):
        found.check((2, 2, 2, 3))
    assert (found.fit(36), found.fit(36, (2, 2, 3, 3))) == ((3, 3, 4), (2, 2, 3, 3))
