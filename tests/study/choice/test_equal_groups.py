"""Groups that a symmetry brings to one another are asked about as one."""

from dataclasses import replace

import numpy as np
import pytest

from emu.collective.choice import Request
from emu.collective.chooser_names import AUTO
from emu.study.choice.chooser import choice_on
from emu.study.choice.fastest import fastest
from emu.study.choice.site import _shifts_of, canonical_group, canonical_npus
from emu.topology.catalogue import build_topology

POD = build_topology("ub-mesh:pod:dims=2x2x4x4")


def groups(n, size, stride=1):
    ranks = np.arange(n).reshape(-1, size, stride)
    return [tuple(row) for block in ranks for row in block.T.tolist()]


@pytest.mark.parametrize(
    ("line", "size", "stride", "kinds"),
    [
        ("ub-mesh:pod:dims=2x2x4x4", 4, 1, 1),  # the NPUs of a board
        ("ub-mesh:pod:dims=2x2x4x4", 4, 4, 1),  # one of each board of a rack
        ("ring:n=12,bandwidth=50GB/s,latency=500ns", 3, 1, 1),
        ("ring:n=12,bandwidth=50GB/s,latency=500ns", 3, 4, 1),
        ("torus:dims=4x6,bandwidth=50GB/s,latency=500ns", 2, 1, 1),  # pairs along a row, each begun at an even place
        ("servers:nodes=6,gpus=4", 4, 1, 1),  # the GPUs of a server
        ("servers:nodes=6,gpus=4,network=rails", 6, 4, 1),  # one of each server: a rail
        ("servers:nodes=6,gpus=4,network=switch", 2, 2, 1),  # every second of a server
        ("fat-tree:radix=4", 2, 1, 4),  # which declares no symmetry
        ("railx:hyperx:m=1,n=1", 2, 1, 2),  # whose rails declare an empty list of them
    ],
)
def test_groups_that_are_shifts_of_one_another_are_one(line, size, stride, kinds):
    topology = build_topology(line)
    found = {canonical_group(topology, group) for group in groups(topology.n_npus, size, stride)}
    assert len(found) == kinds
    assert groups(topology.n_npus, size, stride)[0] in found


def test_an_orbit_that_begins_after_another_has_two_members_is_moved_to_its_own_start():
    """The mirror image of pairs: {0, 1} and {2, 3}."""
    to_orbit_start = _shifts_of([np.array([1, 0, 3, 2])])
    assert to_orbit_start(np.array([3, 0])).tolist() == [2, 1]


def test_groups_of_another_form_stay_apart():
    """Along a dimension, and across two."""
    assert canonical_group(POD, (5, 6)) == (0, 1)
    assert canonical_group(POD, (5, 9)) == (0, 4)
    assert canonical_group(POD, (5, 10)) == (0, 5)


def test_an_image_is_served_as_the_group_that_is_asked_about(monkeypatch):
    asked = []

    def spied(site, wanted):
        asked.append(site.npus)
        return fastest(site, wanted)

    monkeypatch.setattr("emu.study.choice.chooser.fastest", spied)
    choice = choice_on(POD, (AUTO,), "float32")
    served = [choice.algorithm_for(Request("all_reduce", group, 0, 2**16, "float32")) for group in groups(64, 4)]
    assert len(set(served)) == 1
    assert asked == [(0, 1, 2, 3)] * 16


def test_groups_of_other_servers_come_to_those_of_the_first_with_all_their_npus():
    servers = build_topology("servers:nodes=4,gpus=4,network=switch")
    first = np.array([[0, 1], [2, 3]])
    assert np.array_equal(canonical_npus(servers, first + 8), first)
    assert np.array_equal(canonical_npus(servers, np.array([6, 2])), [0, 12])


def test_what_keeps_no_links_or_routes_brings_a_group_nowhere():
    servers, group = build_topology("servers:nodes=4,gpus=4,network=switch"), np.array([9, 10])
    [moved, *_] = servers.symmetry()
    swapped = np.arange(servers.n_nodes)
    swapped[[8, 16]] = 16, 8  # an NPU and a switch
    assert np.array_equal(canonical_npus(replace(servers, symmetry=lambda: [swapped]), group), group)
    elsewhere = replace(servers, symmetry=lambda: [moved], router=_by_number(servers))
    assert np.array_equal(canonical_npus(elsewhere, group), group)


def _by_number(topology):
    """Ways of another topology, of which those from one NPU are others."""

    def routes(src, dst, key):
        return topology.router(np.where(src == 0, 1, src), np.where(src == 0, np.where(dst == 1, 2, dst), dst), key)

    return routes


def test_where_no_symmetry_is_declared_all_npus_are_themselves():
    ring, npus = build_topology("ring:n=12,bandwidth=50GB/s,latency=500ns"), np.array([5, 6, 7])
    assert canonical_npus(ring, npus).min() == 0
    assert np.array_equal(canonical_npus(replace(ring, symmetry=None), npus), npus)
