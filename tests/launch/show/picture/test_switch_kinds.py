"""Switches in a picture are called by their tier, and lie in layers by their distance from the NPUs."""

from collections import Counter

import networkx as nx
import pytest

from emu.topology.catalogue import build_topology
from launch.show.picture.groups import layers, switch_names


@pytest.mark.parametrize(
    ("line", "names"),
    [
        ("fat-tree:radix=4,tiers=3", {"tier 1": 8, "tier 2": 8, "tier 3": 4}),
        ("hpn:pod:dims=2x4x8,aggs=4", {"NVSwitch": 8, "ToR": 32, "Agg": 8}),
        ("hammingmesh:boards=4x4,side=2", {"X switch": 8, "Y switch": 8}),
        ("dragonfly:p=2,a=4,h=2", {"router": 36}),
        ("ub-mesh:rack-full", {"LRS": 72, "backup NPU": 1}),
        ("switch:n=4,bandwidth=1GB/s,latency=1us", {"switch": 1}),
        ("ub-mesh:board", {}),
    ],
)
def test_switches_are_called_by_the_upper_end_of_the_tier_that_reaches_them(line, names):
    assert Counter(switch_names(build_topology(line))) == names


@pytest.mark.parametrize(
    "line", ["fat-tree:radix=4,tiers=3", "dragonfly:p=2,a=4,h=2", "ub-mesh:rack-full", "hpn:pod:dims=2x2x2,aggs=2"]
)
def test_layers_are_links_to_the_nearest_npu(line):
    topology = build_topology(line)
    graph = nx.Graph(zip(topology.links.src.tolist(), topology.links.dst.tolist(), strict=True))
    far = nx.multi_source_dijkstra_path_length(graph, set(range(topology.n_npus)), weight=None)
    assert layers(topology).tolist() == [far[node] for node in range(topology.n_nodes)]
