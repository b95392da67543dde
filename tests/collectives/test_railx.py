"""RailX's hierarchical collectives: steps on 2 x 2 nodes of 2 x 2 chips, equations 8 and 13 on two link classes."""

from dataclasses import replace
from fractions import Fraction

import numpy as np
import pytest

from collectives import railx
from emu.arrays import column
from emu.collective.algorithm import algorithm
from emu.collective.operation import cut
from emu.collective.shape import parse_dims
from emu.errors import InputError
from emu.fabric.ideal import ideal
from emu.fabric.lower import lower
from emu.fabric.run import run
from emu.study.verify import verify
from emu.units import TICKS_PER_S

US = TICKS_PER_S // 10**6


def taken(built, dims, size, local, rails):
    """Seconds with a link a pair, of (bytes a second, ticks) `local` inside a node and `rails` between nodes."""
    fabric = ideal(built, "pair", bandwidth_Bps=1.0, latency_fs=0)
    squares = dims[1] * dims[2]
    inside = fabric.links.src % squares == fabric.links.dst % squares
    rate = column(np.where(inside, local[0], rails[0]), np.float64)
    latency = column(np.where(inside, local[1], rails[1]), np.int64)
    fabric = replace(fabric, links=replace(fabric.links, bandwidth_Bps=rate, latency_fs=latency))
    slots = cut(np.array([size]), built.n_slots)
    piece = lower(built, slots.count, fabric, np.arange(built.n_ranks, dtype=np.int32))
    return int(run(piece.graph).end_fs.max()) / TICKS_PER_S


def test_four_nodes_of_four_chips_take_three_local_four_inter_node_and_three_local_steps():
    built = railx.ring_all_reduce((4, 2, 2))
    inside = [np.unique(built.src[r] % 4 == built.dst[r] % 4).tolist() for r in built.rounds()]
    assert inside == [[True]] * 3 + [[False]] * 4 + [[True]] * 3
    between = built.src % 4 != built.dst % 4
    quarter = Fraction(int(np.count_nonzero(between & (built.src == 0))), built.n_slots)
    assert quarter == Fraction(1, 4) * 2 * Fraction(3, 4)  # an all_reduce among four, of a quarter


@pytest.mark.parametrize("dims", [(3, 3, 3), (4, 3, 3), (5, 4, 4)])
def test_rings_keep_railx_equation_8_with_its_local_latency(dims):
    """B = n B / m on a rail, k n B on a local link: with V/(k n B) + V/(2 m n B) as the dims grow."""
    g, p, _ = dims
    size, rail, local = 4 * g * p * p * 10**4, 100e9, 800e9
    expected = 2 * (g - 1) * 0.01e-6 + 4 * (p - 1) * 0.3e-6
    expected += (1 - 1 / g) * size / local + (1 - 1 / p**2) * size / (2 * g * rail)
    built = railx.ring_all_reduce(dims)
    assert taken(built, dims, size, (local, US // 100), (rail, 3 * US // 10)) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("dims", [(3, 3, 3), (4, 3, 3), (5, 4, 4)])
def test_all_nodes_at_once_keep_railx_equation_13_in_four_steps_between_nodes(dims):
    """A node's 2 n B / m along a dimension is shared by its p - 1 links, one to each node, both halves at a time."""
    g, p, _ = dims
    size, rails, local = 4 * g * p * p * 10**4, 100e9, 800e9
    expected = 2 * (g - 1) * 0.01e-6 + 4 * 0.3e-6
    expected += (1 - 1 / g) * size / local + (1 - 1 / p**2) * size / (g * (p - 1) * rails)
    built = railx.hyperx_all_reduce(dims)
    assert taken(built, dims, size, (local, US // 100), (rails, 3 * US // 10)) == pytest.approx(expected, rel=1e-9)


@pytest.mark.parametrize("operation", ["reduce_scatter", "all_gather", "all_reduce"])
@pytest.mark.parametrize("name", ["railx-ring", "railx-hyperx"])
@pytest.mark.parametrize("dims", ["3x3x3", "2x3x3", "3x2x2"])
def test_claims_hold_also_where_sides_are_odd_or_two(operation, name, dims):
    (verified,) = verify([(algorithm(operation, name), parse_dims(dims))])
    assert (verified.proof, verified.claim) == ("ok", "equal")


def test_directions_are_told_by_the_parity_of_the_channel_on_every_ring():
    dims = (5, 3, 3)
    built = railx.ring_all_reduce(dims)
    src, dst = (np.stack(np.unravel_index(c, dims), axis=-1) for c in (built.src, built.dst))
    up = ((dst - src) % dims == 1).any(axis=1)
    assert np.array_equal(up, built.channel % 2 == 0)


def test_other_numbers_of_ranks_are_refused_with_what_works():
    with pytest.raises(InputError, match="all_reduce railx-ring: takes no 10 ranks; nearest that work: 8, 12"):
        algorithm("all_reduce", "railx-ring").fit(10)
