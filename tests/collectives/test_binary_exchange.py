"""InfiniteHBD's Algorithm 6 as corrected: the worked example, and where it beats relaying around a ring."""

import numpy as np
import pytest

from collectives import exchange, relayed
from emu.collective.algorithm import schedule
from emu.collective.operation import operation
from emu.errors import InputError
from emu.study.timing import CollectiveJob, time_collective
from emu.topology.catalogue import build_topology
from emu.units import TICKS_PER_S


def sent(built, src: int) -> list[list[tuple[int, tuple[int, int]]]]:
    """Return for each round the (dst, item (s, d)) that `src` sends."""
    n = built.n_ranks
    rows = [np.flatnonzero(built.src[r] == src) + r.start for r in built.rounds()]
    return [[(int(built.dst[i]), divmod(int(built.slot[i]), n)) for i in of_round] for of_round in rows]


def test_four_nodes_send_what_the_worked_example_says():
    assert sent(exchange.all_to_all(4), 0) == [[(2, (0, 2)), (2, (0, 3))], [(1, (0, 1)), (1, (2, 1))]]
    # Node 0 gets (2,0), (2,1) of node 2, then (1,0), (3,0) of node 1.
    assert sent(exchange.all_to_all(4), 2)[0] == [(0, (2, 0)), (0, (2, 1))]
    assert sent(exchange.all_to_all(4), 1)[1] == [(0, (1, 0)), (0, (3, 0))]


@pytest.mark.parametrize("p", [2, 4, 8, 16, 32])
def test_every_round_takes_half_of_what_each_node_holds_to_one_partner_at_a_power_of_two(p):
    built = exchange.all_to_all(p)
    assert built.n_rounds == p.bit_length() - 1
    for k, rows in enumerate(built.rounds(), start=1):
        assert np.bincount(built.src[rows]).tolist() == [p // 2] * p
        assert set(np.abs(built.src[rows] - built.dst[rows]).tolist()) == {p >> k}


@pytest.mark.parametrize(("p", "of_ring", "of_exchange"), [(4, 2, 4), (8, 8, 12), (16, 32, 32), (32, 128, 80)])
def test_a_port_carries_less_than_a_link_of_the_ring_only_above_sixteen_nodes(p, of_ring, of_exchange):
    """Loads are counted in items; the ring relays both ways, and a channel is a link there."""
    ring = relayed.ring(p).expand()
    assert np.bincount(ring.src[ring.channel == 0]).max() / 2 == of_ring  # two parts an item
    assert np.bincount(exchange.all_to_all(p).src).max() == of_exchange


@pytest.mark.parametrize("p", [2, 4, 8, 16])
def test_a_round_takes_a_start_and_half_of_the_items_of_a_node_on_the_fibres_of_infinitehbd(p):
    """Items of m = 100 kB on fibres of 400 GB/s: log2 p (ts + tw p m/2). ts is the hops, and 70 us where bundles turn first.

    They need not turn before the first round: what they are set to then is free.
    """
    q, m = p.bit_length() - 1, 10**5
    built = build_topology("infinitehbd:binary:nodes=16,bandwidth=800GB/s,latency=1us,reconfiguration=70us")
    npus = 4 * np.arange(p)  # a GPU of each node
    found = time_collective(
        CollectiveJob(operation("all_to_all", p), schedule("all_to_all", "binary-exchange", p), p * m // 4, 4, built, npus)
    )
    hops = [built.routes(npus, npus[np.arange(p) ^ (p >> k)], np.zeros(p)).hops.max() for k in range(1, q + 1)]
    starts = sum(hops) * 1e-6 + (q - 1) * 70e-6
    assert found.end_fs.max() / TICKS_PER_S == pytest.approx(starts + q * p * m / 2 / 400e9, rel=1e-9)


def test_six_nodes_are_refused_with_the_nearest_that_work():
    with pytest.raises(InputError, match="all_to_all binary-exchange: cannot run on 6 ranks; nearest that work: 4, 8"):
        schedule("all_to_all", "binary-exchange", 6)
