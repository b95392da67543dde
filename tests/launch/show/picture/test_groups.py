"""The structure of a topology stands for all of it."""

from collections import Counter

import numpy as np
import pytest

from emu.topology.catalogue import TOPOLOGIES, build_topology
from launch.show.picture.groups import TIMES, group_nodes, switch_names

LINK = "bandwidth=50GB/s,latency=500ns"
FULL = [
    *("fat-tree:radix=64,tiers=3", "hpn", "hpn:dcn-plus", "ub-mesh:pod", "ub-mesh:superpod", "dragonfly:p=8,a=16,h=8"),
    *("hammingmesh:boards=32x32,planes=9", "big-switch:n=8192", "railx:hyperx:m=4,n=2", "infinitehbd", "sipac:r=16,L=3"),
    *(f"torus:dims=32x32x32,{LINK}", f"ring:n=1000,{LINK}", f"full-mesh:n=500,{LINK}", f"torus:dims=401,{LINK}"),
]


@pytest.mark.parametrize("line", [*FULL, *(blueprint.example for _, blueprint in TOPOLOGIES)])
def test_no_node_no_link_and_no_rate_is_lost(line):
    topology = build_topology(line)
    merged = group_nodes(topology)
    links = merged.graph.links
    assert sum(map(Counter, merged.parts), Counter()) == Counter({"NPU": topology.n_npus}) + Counter(switch_names(topology))
    assert merged.bundled.sum() + (merged.bundle == -1).sum() == len(topology.links)
    src, dst = merged.group[topology.links.src], merged.group[topology.links.dst]
    assert np.isclose(links.bandwidth_Bps.sum(), topology.links.bandwidth_Bps[src != dst].sum())
    for row in range(0, len(links), max(1, len(links) // 8)):
        joined = (src == links.src[row]) & (dst == links.dst[row]) & (topology.links.dimension == links.dimension[row])
        assert merged.bundled[row] == joined.sum()


@pytest.mark.parametrize("line", FULL)
def test_the_groups_are_few_enough_to_draw(line):
    assert 2 <= len(group_nodes(build_topology(line)).names) <= 36


def _shown(line):
    merged = group_nodes(build_topology(line))
    return [(name, dict(part)) for name, part in zip(merged.names, merged.parts, strict=True)]


def test_a_pod_of_ub_mesh_is_its_racks():
    assert _shown("ub-mesh:pod") == [(f"rack {i}", {"NPU": 64, "LRS": 72, "backup NPU": 1}) for i in range(16)]


def test_an_hpn_pod_is_segments_under_two_planes():
    found = _shown("hpn:pod")
    whole = {"NPU": 1024, "NVSwitch": 128, "ToR": 16}
    assert found[:3] == [(f"segment {i}", whole) for i in range(3)]
    assert found[3] == ("… 11 more", {kind: 11 * count for kind, count in whole.items()})
    assert found[4] == ("segment 14", whole)
    assert found[5:] == [("Agg", {"Agg": 60})] * 2


def test_a_fat_tree_is_one_group_for_each_tier():
    merged = group_nodes(build_topology("fat-tree:radix=64,tiers=3"))
    assert merged.names == (f"2,048 {TIMES} 32 NPUs", "tier 1", "tier 2", "tier 3")
    assert [dict(part) for part in merged.parts] == [{"NPU": 65536}, {"tier 1": 2048}, {"tier 2": 2048}, {"tier 3": 1024}]
    between = ("32 cables down each", "32 cables up each")
    assert merged.each == (("1 cable up each",), between, between, ("64 cables down each",))
    assert merged.bundled.tolist() == [65536] * 6
    assert not (merged.bundle == -1).any()


LEAVES = "[npus]\ngpu = 512\n[switches]\nleaf = 16\nspine = {spines}\n[[links]]\nbetween = ['gpu', 'leaf']\n"
LEAVES += "wiring = 'blocks'\nbandwidth = '50GB/s'\nlatency = '1us'\n[[links]]\nbetween = ['leaf', 'spine']\n"
LEAVES += "bandwidth = '100GB/s'\nlatency = '1us'\n"


def test_equal_leaves_of_a_file_are_folded_tier_by_tier(tmp_path):
    (tmp_path / "own.toml").write_text(LEAVES.format(spines=8))
    merged = group_nodes(build_topology(str(tmp_path / "own.toml")))
    assert merged.names == (f"16 {TIMES} 32 NPUs", "leaf", "spine")
    assert [dict(part) for part in merged.parts] == [{"NPU": 512}, {"leaf": 16}, {"spine": 8}]
    assert merged.each == (("1 cable up each",), ("32 cables down each", "8 cables up each"), ("16 cables down each",))


def test_leaves_that_are_not_equal_are_not_folded(tmp_path):
    less = "[[links]]\nbetween = ['leaf.0', 'spine.0-3']\nbandwidth = '100GB/s'\nlatency = '1us'\n"
    (tmp_path / "own.toml").write_text(LEAVES.format(spines=8).replace("['leaf', 'spine']", "['leaf.1-15', 'spine']") + less)
    merged = group_nodes(build_topology(str(tmp_path / "own.toml")))
    assert merged.each == ()
    assert dict(merged.parts[0]) == {"NPU": 32, "leaf": 1}


def test_npus_on_one_switch_are_one_group_and_a_ring_is_cut_into_runs():
    assert _shown("big-switch:n=8192") == [("NPU 0..8191", {"NPU": 8192}), ("switch", {"switch": 1})]
    runs = group_nodes(build_topology(f"ring:n=1000,{LINK}"))
    assert {part["NPU"] for part in runs.parts} == {62, 63}
    assert (runs.bundled == 1).all()
    assert len(runs.bundled) == 2 * 16


def test_both_middles_of_a_plane_of_groups_are_ellipses():
    merged = group_nodes(build_topology(f"torus:dims=32x32x32,{LINK}"))
    assert merged.graph.dims == (5, 5)
    assert merged.names[18] == "… 784 more"  # 28 x 28
    assert [merged.names[i] for i in (0, 3, 4, 15)] == ["NPU 0..31", "… 28 more", "NPU 992..1023", "… 28 more"]
