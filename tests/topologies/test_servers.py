import numpy as np
import pytest

from emu.equivalence import orbits
from emu.errors import InputError
from emu.topology.catalogue import build_topology


def _path(topology, src, dst, key=0):
    return topology.links.dst[topology.routes([src], [dst], [key]).link].tolist()


def test_gpus_of_a_server_meet_on_nvlink_and_never_leave_it():
    cluster = build_topology("servers:nodes=2,gpus=4")
    assert _path(cluster, 1, 3) == [8, 3]
    assert _path(cluster, 5, 6) == [9, 6]


def test_gpus_of_a_rail_meet_on_its_switch():
    for network in ("spine", "rails"):
        cluster = build_topology(f"servers:nodes=2,gpus=4,network={network}")
        assert _path(cluster, 1, 5) == [8 + 2 + 1, 5]


def test_a_message_to_another_rail_goes_through_the_spine_where_there_is_one():
    cluster = build_topology("servers:nodes=2,gpus=4")
    assert _path(cluster, 1, 6) == [11, 14, 12, 6]


def test_without_a_spine_it_goes_over_nvlink_to_the_gpu_of_that_rail_first():
    cluster = build_topology("servers:nodes=2,gpus=4,network=rails")
    assert _path(cluster, 1, 6) == [8, 2, 12, 6]
    assert cluster.n_nodes == 8 + 2 + 4


def test_all_nics_may_be_on_one_switch():
    cluster = build_topology("servers:nodes=2,gpus=4,network=switch")
    assert {tuple(_path(cluster, src, 4)) for src in range(4)} == {(10, 4)}
    assert cluster.bill["switch"] == 1


def test_a_taper_narrows_the_links_to_the_spine():
    full, third = (build_topology(f"servers:nodes=6,taper={taper}") for taper in (1, 3))
    up = [c.links.bandwidth_Bps[c.links.dimension == 2] for c in (full, third)]
    assert set(up[0].tolist()) == {6 * 50e9}
    assert set(up[1].tolist()) == {2 * 50e9}
    assert "1 port up for 3 down" in third.assumptions[2]


def test_a_hop_between_servers_may_take_longer():
    cluster = build_topology("servers:latency=100ns,nic_latency=2us")
    assert set(cluster.links.latency_fs[cluster.links.dimension == 0].tolist()) == {100_000_000}
    assert set(cluster.links.latency_fs[cluster.links.dimension > 0].tolist()) == {2_000_000_000}


def test_a_rail_optimised_segment_has_as_many_gpus_as_ports_of_a_rail_switch_times_gpus_of_a_server():
    segment = build_topology("rail-optimised:radix=64")
    assert (segment.n_npus, segment.dims) == (64 * 8, (64, 8))
    down = np.bincount(segment.links.src[segment.links.dimension == 1])[segment.n_npus + 64 :]
    assert down.tolist() == [64] * 8


def test_a_rail_has_as_much_up_as_down_over_all_spines_and_keys_use_them_all():
    segment = build_topology("rail-optimised:radix=8,gpus=4,spines=3")
    rail = segment.n_npus + 8
    up = (segment.links.src == rail) & (segment.links.dimension == 2)
    assert segment.links.bandwidth_Bps[up].sum() == pytest.approx(8 * 50e9)
    routes = segment.routes(np.zeros(50), np.full(50, 31), np.arange(50))
    assert len(set(segment.links.dst[routes.link.reshape(50, 4)[:, 1]].tolist())) == 3


@pytest.mark.parametrize("line", ["servers:nodes=3,gpus=4", "servers:network=rails", "rail-optimised:radix=4,gpus=4,spines=1"])
def test_servers_and_gpus_are_alike_unless_a_hash_takes_one_of_several_spines(line):
    cluster = build_topology(line)
    assert len(np.unique(orbits(cluster.n_npus, [node[: cluster.n_npus] for node in cluster.symmetry()]))) == 1
    assert build_topology("rail-optimised:radix=4,gpus=4,spines=2").symmetry is None


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("network=ring", "servers: network must be spine or rails or switch, got 'ring'"),
        ("nodes=1000000,gpus=1000000", "links must be at most"),
        ("network=switch,taper=8", "taper must be 1 where network is not spine, got 8; leave it out, or take network=spine"),
        ("network=rails,taper=2", "taper must be 1 where network is not spine, got 2"),
    ],
)
def test_a_cluster_that_cannot_be_is_refused(line, message):
    with pytest.raises(InputError, match=message):
        build_topology(f"servers:{line}")
