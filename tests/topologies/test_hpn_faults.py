"""A cable of a NIC, a ToR or an Agg down: what HPN's two ports, two planes and the GPUs of a host still join (4.2, 6.1)."""

import itertools

import numpy as np
import pytest

from emu.collective.algorithm import ALGORITHMS
from emu.errors import InputError
from emu.fabric.lower import FabricJob, lower
from emu.fabric.run import run_graph
from emu.topology.catalogue import build_topology
from emu.topology.removal import remove_parts
from tests.topologies.hpn_nodes import of_kind

LINES = [
    "hpn:segment:dims=4x2",
    "hpn:segment:dims=2x4,backup=1",
    "hpn:pod:dims=2x2x2,aggs=2",
    "hpn:pod:dims=2x2x2,aggs=2,cross_rail=agg",
    "hpn:rail-only:dims=2x2x2,aggs=2",
    "hpn:dims=2x2x1x2,aggs=2,up=2",
    "hpn:clos:dims=2x2x2,aggs=2",
    "hpn:dcn-plus:dims=1x2x2x2,aggs=2,parallel=2",
]
KEYS = range(16)
every = pytest.mark.parametrize("line", LINES)


def _all_pairs(topology):
    return np.array([(*pair, key) for key in KEYS for pair in itertools.permutations(range(topology.n_npus), 2)]).T


def _check_whole(topology, routes, src, dst):
    ends, starts = topology.links.dst[routes.link], topology.links.src[routes.link]
    assert np.array_equal(starts[routes.start[:-1]], src)
    assert np.array_equal(ends[routes.start[1:] - 1], dst)
    inside = np.setdiff1d(np.arange(1, len(ends)), routes.start)
    assert np.array_equal(ends[inside - 1], starts[inside])


def _cables(topology, dimension):
    """Both links of each cable."""
    first = np.flatnonzero(topology.links.dimension == dimension)[::2]
    return np.stack((first, first + 1), axis=-1)


@every
def test_with_any_link_of_a_nic_down_every_pair_and_key_has_a_way_as_short_as_before(line):
    topology = build_topology(line)
    src, dst, key = _all_pairs(topology)
    before = topology.routes(src, dst, key)
    for cable in _cables(topology, 1):
        assert set(topology.links.src[cable]) == set(topology.links.dst[cable])
        left = remove_parts(topology, links=cable)
        after = left.routes(src, dst, key)
        _check_whole(left, after, src, dst)
        assert np.array_equal(after.hops, before.hops)


@every
def test_with_any_other_cable_down_every_pair_and_key_has_a_way_and_above_the_tors_one_as_short(line):
    topology = build_topology(line)
    src, dst, key = _all_pairs(topology)
    before = topology.routes(src, dst, key)
    for tier in sorted({*topology.links.dimension.tolist()} - {1}):
        for cable in _cables(topology, tier):
            left = remove_parts(topology, links=cable)
            after = left.routes(src, dst, key)
            _check_whole(left, after, src, dst)
            assert tier == 0 or np.array_equal(after.hops, before.hops)


@every
def test_with_any_tor_down_every_pair_and_key_has_a_way_as_short_as_before(line):
    topology = build_topology(line)
    src, dst, key = _all_pairs(topology)
    before = topology.routes(src, dst, key)
    for tor in of_kind(topology, "ToR").tolist():
        left = remove_parts(topology, nodes=[tor])
        after = left.routes(src, dst, key)
        _check_whole(left, after, src, dst)
        assert np.array_equal(after.hops, before.hops)


@pytest.mark.parametrize("line", LINES[:5])
def test_a_message_to_another_rail_keeps_to_the_gpu_of_its_host_that_is_on_it(line):
    topology = build_topology(line)
    src, dst, key = _all_pairs(topology)
    before = topology.routes(src, dst, key)
    second = topology.links.dst[before.link[before.start[:-1] + 1]]
    for cable in _cables(topology, 1):
        left = remove_parts(topology, links=cable)
        after = left.routes(src, dst, key)
        relayed = second < topology.n_npus
        assert np.array_equal(left.links.dst[after.link[after.start[:-1] + 1]][relayed], second[relayed])


def test_an_agg_that_fails_leaves_its_messages_to_the_others_of_its_plane():
    topology = build_topology("hpn:pod:dims=2x2x2,aggs=3")
    src, dst, key = _all_pairs(topology)
    before = topology.routes(src, dst, key)
    far = np.repeat(before.hops > 2, before.hops) & (topology.links.dimension[before.link] == 1)
    for agg in of_kind(topology, "Agg").tolist():
        left = remove_parts(topology, nodes=[agg])
        after = left.routes(src, dst, key)
        _check_whole(left, after, src, dst)
        assert np.array_equal(after.hops, before.hops)
        ports = left.links.dst[after.link[far]], left.links.src[after.link[far]]
        assert np.array_equal(ports[0], topology.links.dst[before.link[far]])
        assert np.array_equal(ports[1], topology.links.src[before.link[far]])


def _time_s(topology):
    schedule = ALGORITHMS.find("all_to_all/at-once").schedule(topology.n_npus)
    piece = lower(FabricJob(schedule, np.full(schedule.n_slots, 2**20), topology, np.arange(topology.n_npus)))
    return run_graph(piece.graph).end_s


@pytest.mark.parametrize("line", LINES[:5])
def test_an_all_to_all_goes_on_without_a_link_and_without_a_tor_but_takes_longer(line):
    topology = build_topology(line)
    whole = _time_s(topology)
    assert _time_s(remove_parts(topology, links=_cables(topology, 1)[2])) > whole
    assert _time_s(remove_parts(topology, nodes=of_kind(topology, "ToR")[:1])) > whole


def test_two_nics_with_no_plane_in_common_left_are_joined_by_a_gpu_that_relays():
    topology = build_topology("hpn:segment:dims=4x2")
    tor = of_kind(topology, "ToR")
    cut = [np.isin(topology.links.src, ends) & np.isin(topology.links.dst, ends) for ends in ((0, tor[0]), (2, tor[1]))]
    left = remove_parts(topology, links=np.flatnonzero(cut[0] | cut[1]))
    for key in KEYS:
        route = left.routes([0], [2], [key])
        _check_whole(left, route, [0], [2])
        assert (left.links.dst[route.link[:-1]] < topology.n_npus).any()


def test_where_no_gpu_relays_the_refusal_names_the_pair_the_fault_and_the_routing():
    topology = build_topology("hpn:dcn-plus:dims=1x2x2x2,aggs=2,parallel=2")
    dead = np.flatnonzero((topology.links.dimension == 1) & ((topology.links.src == 0) | (topology.links.dst == 0)))
    with pytest.raises(InputError) as refused:
        remove_parts(topology, links=dead).routes([0], [2], [0])
    assert str(refused.value) == (
        "hpn:dcn-plus:dims=1x2x2x2,aggs=2,parallel=2 without the link NPU 0 to switch 12, the link NPU 0 to switch 13: "
        "no route from node 0 to node 2: links join them only through nodes that pass nothing on in this topology's routing"
    )
