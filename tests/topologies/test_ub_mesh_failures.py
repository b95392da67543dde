"""Failures in a UB-Mesh: the backup NPU that stands in, and who must hear of a link that is down."""

import networkx as nx
import numpy as np
import pytest

from emu.collective.schedule import Schedule, Sends
from emu.errors import InputError
from emu.fabric.lower import FabricJob, lower
from emu.fabric.run import run_graph
from emu.topology.catalogue import build_topology
from emu.topology.topology import FailedParts


def test_the_backup_npu_stands_in_for_one_failed_npu_of_its_rack():
    pod = build_topology("ub-mesh:pod:dims=2x2x2x4")
    first_backup = pod.n_nodes - 4
    placed = pod.place(32, [3, 17])
    expected = np.arange(32)
    expected[[3, 17]] = first_backup, first_backup + 2
    assert np.array_equal(placed, expected)
    assert np.array_equal(pod.place(32), np.arange(32))


def test_of_two_failed_npus_of_a_rack_one_is_replaced():
    pod = build_topology("ub-mesh:pod:dims=2x2x2x4")
    placed = pod.place(31, [3, 5])
    assert np.array_equal(placed, [0, 1, 2, pod.n_nodes - 4, 4, *range(6, 32)])
    with pytest.raises(InputError) as refused:
        pod.place(32, [3, 5])
    expected = "ub-mesh:pod:dims=2x2x2x4: ranks must be at most 31 where 2 of 32 NPUs are faulty, got 32; "
    assert str(refused.value) == expected + "take fewer ranks or a larger topology"


@pytest.mark.parametrize("failed", [0, 9, 63])
def test_every_neighbour_of_a_failed_npu_meets_the_backup_over_three_links_of_one_back_plane_and_in_900_ns(failed):
    rack = build_topology("ub-mesh:rack-full")
    backup = int(rack.place(64, [failed])[failed])
    near = rack.links.dst[(rack.links.src == failed) & (rack.links.dst < 64)].astype(np.int64)
    assert len(near) == 14
    ways = rack.routes(near, np.full_like(near, backup), np.zeros_like(near))
    for at, npu in enumerate(near.tolist()):
        *lrs, last = rack.links.dst[ways.of(at)].tolist()
        assert last == backup
        assert len(lrs) == 2
        assert len({(switch - 64) // 18 for switch in lrs}) == 1
        assert [_latency_fs(rack, npu, to) for to in (failed, backup)] == [300_000_000, 900_000_000]


def _latency_fs(topology, src, dst):
    """Return the latency of a message: its time without the nanosecond that an x4 needs for its bytes."""
    one = Schedule.build(2, 1, [[Sends(0, 1, slot=0)]])
    piece = lower(FabricJob(one, np.array([56]), topology, np.array([src, dst])))
    return int(run_graph(piece.graph).end_fs.max()) - 1_000_000


def test_any_npu_of_a_full_rack_can_fail_and_64_are_joined():
    rack = build_topology("ub-mesh:rack-full")
    graph = nx.Graph(zip(rack.links.src.tolist(), rack.links.dst.tolist(), strict=True))
    for failed in range(64):
        placed = rack.place(64, [failed]).tolist()
        assert failed not in placed
        assert len(set(placed)) == 64
        left = nx.restricted_view(graph, [failed], [])
        assert nx.is_connected(left)


# Direct notification


@pytest.mark.parametrize("line", ["ub-mesh:pod:dims=2x2x2x2", "ub-mesh:rack-full:dims=4x4", "ub-mesh:rack"])
def test_all_hear_of_a_failed_cable_directly_and_none_before_a_notice_can_be_there(line):
    topology = build_topology(line)
    cables, latency = list(zip(topology.links.src.tolist(), topology.links.dst.tolist(), strict=True)), 300_000_000
    graph = nx.Graph(cables)
    for ends in cables[::61]:
        cable = (min(ends), max(ends))
        told = topology.fault_handler(topology, FailedParts((), (cable,)), topology.n_npus, FailedParts())
        left = nx.restricted_view(graph, [], [cable])
        depth = nx.multi_source_dijkstra_path_length(left, set(cable))
        farthest = max(depth[npu] for npu in range(topology.n_npus))
        assert told.took_fs % latency == 0
        assert farthest <= told.took_fs // latency <= farthest + 1  # an own route round the cable may be a hop longer
