import itertools
from collections import Counter
from fractions import Fraction

import numpy as np
import pytest

from emu.errors import InputError
from emu.topology.catalogue import build_topology
from tests.topologies.hpn_connections import FIRST_PORT, drain, establish, expected_tries, imbalance, linear_hash, random_hash
from tests.topologies.hpn_nodes import PAPER

# Hashing


def _ports(topology, src, dst, keys):
    """How many of the keys leave by each port of the first NIC, and arrive by each of the second's."""
    routes = topology.routes(np.full(len(keys), src), np.full(len(keys), dst), keys)
    first, last = routes.link[routes.start[:-1]], routes.link[routes.start[1:] - 1]
    return [Counter((link // 2 % 2).tolist()) for link in (first, last)]


@pytest.mark.parametrize("flows", [2, 4, 8, 16])
def test_dual_plane_fills_both_ports_alike_where_a_clos_lays_flows_on_them_by_chance(flows):
    planes, clos = build_topology("hpn:pod:dims=2x64x1,aggs=4"), build_topology("hpn:clos:dims=2x64x1,aggs=4")
    fuller = []
    for pair in range(64):
        sent, arrived = _ports(planes, pair, 64 + pair, np.arange(flows))
        assert sent == arrived == Counter({0: flows // 2, 1: flows // 2})
        for draw in range(8):
            sent, arrived = _ports(clos, pair, 64 + pair, np.arange(flows) + draw * flows)
            assert sent == Counter({0: flows // 2, 1: flows // 2})
            fuller.append(2 * max(arrived.values()) / flows)
    assert np.mean(fuller) == pytest.approx(float(imbalance(flows)), abs=0.06)


def test_the_imbalance_expected_of_flows_on_two_ports():
    assert [round(float(imbalance(k)), 2) for k in (2, 4, 8, 16)] == [1.5, 1.38, 1.27, 1.2]
    for flows in (1, 3, 6):
        every = [max(sum(coins), flows - sum(coins)) for coins in itertools.product((0, 1), repeat=flows)]
        assert imbalance(flows) == Fraction(2 * sum(every), flows * 2**flows)


def test_a_hash_takes_uplinks_evenly():
    pod, n = build_topology(f"{PAPER},route=hash"), 12000
    routes = pod.routes(np.full(n, 7), np.full(n, 9 * 1024 + 7), np.arange(n))
    taken = np.bincount(routes.link.reshape(n, 4)[:, 1] // 2 - 3 * pod.n_npus)
    counts = taken[taken > 0]
    assert len(counts) == 120
    assert ((counts - n / 120) ** 2 / (n / 120)).sum() < 190  # chi-squared of 119 degrees: 1 in 30,000


def test_a_core_port_forwards_to_each_pod_by_one_port_and_dcn_plus_hashes_again():
    fixed = build_topology("hpn:dims=3x2x1x2,aggs=4,up=3")
    hashed = build_topology("hpn:dcn-plus:dims=3x2x2x4,aggs=2,parallel=2,up=3,route=hash-independent")
    for topology, least, most in ((fixed, 1, 1), (hashed, 2, 6)):
        third = topology.n_npus // 3
        keys = np.arange(3000)
        routes = topology.routes(np.zeros(3000), np.full(3000, third), keys)
        hops = routes.link.reshape(3000, 6)
        ways = {up: set(hops[hops[:, 2] == up, 3].tolist()) for up in set(hops[:, 2].tolist())}
        assert {len(found) for found in ways.values()} <= set(range(least, most + 1))
        assert max(map(len, ways.values())) == most


@pytest.mark.parametrize(
    "line",
    [
        "hpn:dims=2x2x1x2,aggs=4,up=3,route=hash",
        "hpn:dims=2x2x1x2,aggs=4,up=3",
        "hpn:dcn-plus:dims=2x2x2x4,aggs=2,parallel=3,up=3,route=hash-independent",
        "hpn:clos:dims=2x2x1,aggs=5",
    ],
)
def test_between_two_nics_every_cable_of_their_tors_and_every_uplink_of_an_agg_is_taken(line):
    topology = build_topology(line)
    links, half = topology.links, topology.n_npus // 2
    routes = topology.routes(np.zeros(2000), np.full(2000, half), np.arange(2000))
    mine, theirs = (links.dst[(links.src == npu) & (links.dimension == 1)] for npu in (0, half))
    out = (links.dimension == 2) & np.isin(links.src, mine)
    into = (links.dimension == 2) & np.isin(links.dst, theirs)
    above = (links.dimension == 3) & np.isin(links.src, links.dst[out])
    assert set(np.flatnonzero(out | into | above)) <= set(routes.link)


# Path selection


@pytest.mark.parametrize("wanted", [4, 8, 16, 60])
def test_a_random_hash_meets_new_uplinks_as_a_collector_does_coupons(wanted):
    tries = []
    for flow in range(400):
        found = establish(random_hash(flow, 60, 2**12), wanted)
        tries.append(found[-1] - FIRST_PORT + 1)
    expected = float(expected_tries(60, wanted))
    assert np.mean(tries) == pytest.approx(expected, rel=0.04)
    assert round(expected, 1) == {4: 4.1, 8: 8.5, 16: 18.4, 60: 280.8}[wanted]


def test_a_linear_hash_meets_60_uplinks_with_60_ports():
    for flow in range(20):
        assert establish(linear_hash(flow, 60), 60).tolist() == list(range(FIRST_PORT, FIRST_PORT + 60))


def test_connections_that_are_established_leave_by_uplinks_of_their_own():
    uplinks = random_hash(11, 60)
    found = establish(uplinks, 40)
    taken = uplinks[found - FIRST_PORT]
    assert len(set(taken.tolist())) == 40
    last = found[-1] - FIRST_PORT
    assert len(set(uplinks[:last].tolist())) == 39  # no lower port would have done


def test_counters_spare_the_congested_connection():
    rates, messages, gap = (0.25, 1.0, 1.0, 1.0), 4000, 0.25
    in_turn, spared = (drain(rates, messages, gap, counters=c) for c in (False, True))
    assert in_turn == messages / 4 / 0.25
    queue = (1 - sum(rates) * gap) * messages / 4  # what counters keep equal, when the last message is posted
    assert spared == pytest.approx(messages * gap + queue / 0.25, rel=0.002)
    assert messages / sum(rates) < spared < in_turn / 2


def test_counters_do_no_harm_where_connections_are_alike():
    for gap in (0.0, 0.25, 1.0):
        in_turn, spared = (drain((1.0,) * 4, 400, gap, counters=c) for c in (False, True))
        assert spared == in_turn


def test_path_selection_refuses_what_no_path_is_for():
    with pytest.raises(InputError, match=r"disjoint paths must be 1\.\.60, the uplinks that 16384 source ports meet, got 61"):
        establish(random_hash(0, 60), 61)
    with pytest.raises(InputError, match="each above 0"):
        drain((1.0, 0.0), 4, 1.0, counters=True)
    with pytest.raises(InputError, match="each above 0"):
        drain((), 4, 1.0, counters=False)
    with pytest.raises(InputError, match="flows must be 1 or more, got 0"):
        imbalance(0)
