"""Planes: which links they have, and routes that keep to some of them."""

import numpy as np
import pytest

from emu.errors import InputError
from emu.topology.catalogue import build_topology
from emu.topology.paths.planes import NO_PLANE, planes_of, within_planes

PODS = "hpn:pod:dims=2x4x8"


@pytest.mark.parametrize("where", ["hpn:segment:dims=4x8", PODS])
def test_a_nic_of_two_ports_has_two_planes(where):
    topology = build_topology(where)
    of, tiers = planes_of(topology), topology.links.dimension
    assert set(of[tiers == 0].tolist()) == {NO_PLANE}  # NVLink
    up = of[(tiers == 1) & (topology.links.src < topology.n_npus)]
    assert np.bincount(up).tolist() == [topology.n_npus] * 2
    assert (of[tiers > 0] >= 0).all()


@pytest.mark.parametrize("where", ["servers:nodes=4", "torus:dims=4x4,bandwidth=1GB/s,latency=1us"])
def test_other_topologies_have_none(where):
    topology = build_topology(where)
    assert set(planes_of(topology).tolist()) == {NO_PLANE}
    with pytest.raises(InputError, match=r"jobs: .* has no planes; take one whose NICs have ports to several"):
        within_planes(topology, (0,))


@pytest.mark.parametrize("plane", [0, 1])
def test_routes_keep_to_a_plane(plane):
    topology = build_topology(PODS)
    own, of = within_planes(topology, (plane,)), planes_of(topology)
    src, dst = (each.ravel() for each in np.meshgrid(np.arange(topology.n_npus), np.arange(topology.n_npus)))
    apart = src != dst
    src, dst, key = src[apart], dst[apart], np.arange(apart.sum()) % 4
    found, before = own.routes(src, dst, key), topology.routes(src, dst, key)
    assert set(of[found.link].tolist()) == {NO_PLANE, plane}
    assert set(of[before.link].tolist()) == {NO_PLANE, 0, 1}
    kept = [pair for pair in range(len(src)) if set(of[before.of(pair)].tolist()) <= {NO_PLANE, plane}]
    assert len(kept) > len(src) // 4
    assert all(found.of(pair).tolist() == before.of(pair).tolist() for pair in kept)
    assert np.array_equal(own.links.src, topology.links.src)
    for pair in range(0, len(src), 97):
        hops = found.of(pair)
        assert own.links.src[hops[0]] == src[pair]
        assert own.links.dst[hops[-1]] == dst[pair]


def test_a_plane_that_is_not_there_is_refused():
    with pytest.raises(InputError, match="jobs: planes must be 0 to 1, the planes of hpn:pod:dims=2x4x8, got 2"):
        within_planes(build_topology(PODS), (0, 2))
    with pytest.raises(InputError, match="spreads messages over its planes; take it with another route="):
        within_planes(build_topology("hpn:pod:dims=2x2x2,route=spray"), (0,))
