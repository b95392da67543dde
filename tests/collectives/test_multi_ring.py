"""The rings themselves, what each directed link of the full mesh carries, and what a switch beside it adds."""

from collections.abc import Callable
from fractions import Fraction
from math import inf

import numpy as np
import pytest

from collectives import multi_ring
from emu.collective.algorithm import algorithm
from emu.collective.operation import divide_blocks, operation
from emu.collective.proof import prove
from emu.collective.schedule import Schedule
from emu.errors import InputError
from emu.fabric.lower import FabricJob, lower
from emu.fabric.run import run_graph
from emu.topology.catalogue import build_topology
from emu.topology.topology import Links, Routes, Topology

NS = (*range(3, 18), 20, 24, 31, 37, 48, 64)


def on_each_link(src: np.ndarray, dst: np.ndarray, n: int) -> set[int]:
    """How often the directed links of the full mesh are named; none from a rank to itself."""
    named = np.bincount(src.ravel() * n + dst.ravel(), minlength=n * n).reshape(n, n)
    assert not named.diagonal().any()
    return set(named[~np.eye(n, dtype=np.bool_)].tolist())


@pytest.mark.parametrize("n", NS)
def test_each_ring_goes_through_all_ranks_and_each_directed_link_is_on_one_ring(n):
    """For n = 4 and 6 there are no such rings, and each link is on two."""
    order = multi_ring.rings(n)
    shared = 2 if n in (4, 6) else 1
    assert order.shape == (shared * (n - 1), n)
    assert (np.sort(order) == np.arange(n)).all()
    assert on_each_link(order, np.roll(order, -1, axis=1), n) == {shared}


def test_five_ranks_have_walecki_s_two_cycles_both_ways():
    z = 4
    assert multi_ring.rings(5).tolist() == [[z, 0, 3, 1, 2], [z, 1, 0, 2, 3], [2, 1, 3, 0, z], [3, 2, 0, 1, z]]


@pytest.mark.parametrize("n", [4, 6])
def test_the_cycles_of_the_doubled_mesh_use_each_undirected_link_twice(n):
    order = multi_ring.rings(n)[: n - 1]
    ends = np.sort(np.stack((order, np.roll(order, -1, axis=1))), axis=0)
    assert set(np.bincount(ends[0].ravel() * n + ends[1].ravel())) == {0, 2}


def bytes_on_each_link(built: Schedule) -> set[float]:
    """Return the loads that links have, as shares of the operation's size."""
    n = built.n_ranks
    return {rows / built.n_slots for rows in on_each_link(built.src.astype(np.int64), built.dst.astype(np.int64), n)}


@pytest.mark.parametrize("n", [2, 4, 5, 6, 8, 9, 16])
def test_each_directed_link_carries_two_nth_parts_of_the_block_and_each_half_one(n):
    assert bytes_on_each_link(multi_ring.reduce_scatter(n)) == {1 / n}
    assert bytes_on_each_link(multi_ring.all_gather(n)) == {1 / n}
    assert bytes_on_each_link(multi_ring.all_reduce(n)) == {2 / n}
    assert multi_ring.all_reduce(n).n_rounds == 2 * (n - 1)


def test_on_a_board_every_link_carries_a_quarter_of_the_block_and_that_is_the_time():
    """With n = 8 that is 2V/n."""
    board, built = build_topology("ub-mesh:board:latency=0s"), multi_ring.all_reduce(8).expand()
    size = 56 * 10**6  # V is as many as there are slots, 1 ms of a link each
    piece = lower(FabricJob(built, np.full(built.n_slots, size), board, np.arange(8)))
    carried = np.bincount(board.routes(built.src, built.dst, built.channel).link, minlength=len(board.links)) * size
    assert set(carried) == {2 * built.n_slots * size // 8}
    assert run_graph(piece.graph).end_s == pytest.approx(2 * built.n_slots / 8 * 1e-3, rel=1e-12)


@pytest.mark.parametrize("n", [8, 9])
def test_no_link_has_two_rings_at_a_time_where_each_is_on_one(n):
    for rows in (built := multi_ring.all_reduce(n)).rounds():
        pair = built.src[rows].astype(np.int64) * n + built.dst[rows]
        assert len(np.unique(pair)) == len(pair) == n * (n - 1)


def test_more_ranks_than_it_takes_are_told_how_many_work():
    with pytest.raises(InputError, match=r"multi-ring: cannot run on 130 ranks; nearest that work: 127, 128"):
        algorithm("all_reduce", "multi-ring").fit(130)


BLOCK = 10**6 * 5040  # bytes; a link of the mesh takes 1 s


def mesh_and_switch(n: int, port: float, over_switch: Callable[[np.ndarray, np.ndarray, np.ndarray], np.ndarray]) -> Topology:
    """A full mesh of links of rate BLOCK, and a switch with a port of `port` times as much for each rank each way.

    Args:
        over_switch: Of (src[P], dst[P], channel[P]), which go over the switch.
    """
    src, dst = np.divmod(np.arange(n * n), n)
    ranks, hub = np.arange(n), np.full(n, n)
    tails, heads = np.concatenate((src, ranks, hub)), np.concatenate((dst, hub, ranks))
    rate = np.concatenate((np.full(n * n, BLOCK), np.full(2 * n, port * BLOCK)))
    unused = np.zeros(len(rate))
    links = Links(*(c.astype(t) for c, t in zip((tails, heads, rate, unused, unused), "iidqh", strict=True)))

    def router(src: np.ndarray, dst: np.ndarray, channel: np.ndarray) -> Routes:
        up = over_switch(src, dst, channel)
        hops = np.stack((np.where(up, n * n + src, src * n + dst), n * n + n + dst), axis=-1)
        taken = np.stack((np.ones_like(up), up), axis=-1)
        return Routes(np.concatenate(([0], np.cumsum(1 + up))), hops[taken].astype(np.int32))

    return Topology("mesh and switch", n, n + 1, links, router)


def seconds_on(fabric: Topology, built: Schedule) -> float:
    full = built.expand()
    sizes = divide_blocks(np.array([BLOCK]), full.n_slots, full.shares).count
    return run_graph(lower(FabricJob(full, sizes, fabric, np.arange(full.n_ranks, dtype=np.int32))).graph).end_s


@pytest.mark.parametrize("n", [3, 4, 5, 6, 8, 9])
def test_borrowed_ports_of_two_links_are_as_good_as_two_links_more_a_rank(n):
    """All links and ports are busy all the time, also where two rings share a link and so have half the share of the others."""
    fabric = mesh_and_switch(n, 2, lambda _src, _dst, channel: channel >= len(multi_ring.rings(n)))
    whole = 2 * (n - 1) / n
    assert seconds_on(fabric, multi_ring.all_reduce(n)) == pytest.approx(whole / (n - 1), rel=1e-6)
    assert seconds_on(fabric, multi_ring.all_reduce_borrowed(n)) == pytest.approx(whole / (n + 1), rel=1e-6)


@pytest.mark.parametrize("n", range(1, 10))
def test_what_shares_a_link_takes_half_the_share_of_a_ring_of_its_own(n):
    order, B = multi_ring.borrowed_rings(n)
    mesh = len(multi_ring.rings(n))
    assert order.shape == (mesh + 2, n)
    assert sum(B) == max(1, n - 1) + 2
    assert multi_ring.reduce_scatter_borrowed(n).shares == ((1,) * mesh + (2, 2) if n in (4, 6) else ())


CYCLE = [[0, 1, 2, 3], [3, 2, 1, 0]]
CLOSED = [[0, 2, 1, 3], [3, 1, 2, 0]]  # over the links 0-2 and 1-3, which the cycle leaves idle, and a switch


@pytest.mark.parametrize(("shares", "expected"), [((1, 1, 0.5, 0.5), 1 / 3), ((1, 1, 1, 1), 1 / 2)])
def test_idle_links_closed_over_half_as_fast_a_switch_add_their_bandwidth_only_with_their_share(shares, expected):
    """In equal shares the slowest ring takes as long as the cycle alone, both ways with half of the block each."""
    idle = {(0, 2), (2, 0), (1, 3), (3, 1)}

    def over_switch(src, dst, channel):
        return np.array([c >= 2 and (s, d) not in idle for s, d, c in zip(src.tolist(), dst.tolist(), channel, strict=True)])

    built = multi_ring.rings_all_reduce([*CYCLE, *CLOSED], shares)
    fabric = mesh_and_switch(4, 0.5, over_switch)
    assert seconds_on(fabric, built) == pytest.approx(2 * 3 / 4 * expected, rel=1e-6)


def test_rings_of_any_bandwidths_are_proved_and_share_the_block_by_them():
    random = np.random.default_rng(5)
    for n in range(1, 9):
        order = np.array([random.permutation(n) for _ in range(3)])
        built = multi_ring.rings_all_reduce(order, (Fraction(3, 2), 0.5, 2))
        assert built.shares == (3, 1, 4) * n
        assert prove(built, operation("all_reduce", n)).uniform


def test_one_ring_is_a_ring():
    assert multi_ring.rings_all_reduce([range(4)], [56e9]).shares == ()
    assert multi_ring.rings_all_reduce([range(4)], [56e9]).n_rows == 4 * 2 * 3


@pytest.mark.parametrize(
    ("rings", "bandwidths", "says"),
    [
        ([[0, 1, 2], [0, 1, 1]], [1, 1], r"multi-ring: ring 1 must be each of the ranks 0..2 once, got \[0, 1, 1\]"),
        ([[0, 1, 3]], [1], r"multi-ring: ring 0 must be each of the ranks 0..2 once, got \[0, 1, 3\]"),
        ([[0, 1, 2]], [1, 2], "multi-ring: bandwidths must be one for each of the rings, which are 1, got 2"),
        ([], [], "multi-ring: bandwidths must be one for each of the rings, which are 0, got 0"),
        ([[0, 1, 2], [0, 1]], [1, 1], r"multi-ring: ring 1 must be each of the ranks 0..2 once, got \[0, 1\]"),
        ([[0, 1], [1, 0]], [1, 0], r"multi-ring: bandwidths must be positive, got \[1.0, 0.0\]"),
        ([[0, 1], [1, 0]], [1, inf], r"multi-ring: bandwidths must be positive, got \[1.0, inf\]"),
        ([[0, 1], [1, 0]], [1, 0.1], r"in a ratio of whole numbers that add up to 2\*\*20 at most, got \[1.0, 0.1\]; round"),
    ],
)
def test_rings_that_are_none_and_bandwidths_that_are_none_are_refused(rings, bandwidths, says):
    with pytest.raises(InputError, match=says):
        multi_ring.rings_all_reduce(rings, bandwidths)
