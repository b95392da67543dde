"""The times of messages that go in rounds, told without the solver, against the solver's."""

import numpy as np
import pytest

from emu.collective.choice import AlgorithmOnDims
from emu.fabric.lower import lower_placed
from emu.fabric.rounds import group_message_count, rounds_of
from emu.fabric.run import run_graph
from emu.topology.catalogue import build_topology
from emu.trace.matching.call_batch import BatchKey
from emu.trace.replay.placed_request import place_request

FAT, HPN, RACKS = "fat-tree:radix=16", "hpn:segment:dims=8x4", "servers:nodes=4"
SPRAY, SPRAYED_RACK = "fat-tree:radix=16,taper=3,route=spray", "ub-mesh:rack:route=spray-detour"
STRIPED, SIXES = np.arange(128).reshape(16, 8).T, np.arange(30).reshape(5, 6)  # sixes reach over the end of a server
ONE_ROUND = [
    (FAT, "all_gather", "direct", STRIPED),
    (FAT, "reduce_scatter", "direct", STRIPED),
    (FAT, "all_to_all", "at-once", STRIPED),
    (HPN, "all_gather", "direct", np.arange(32).reshape(8, 4).T),
    (RACKS, "all_gather", "direct", SIXES),
    (SPRAY, "all_to_all", "at-once", STRIPED),
    (SPRAYED_RACK, "all_gather", "direct", np.arange(64).reshape(8, 8)),
]
SEVERAL = [
    (FAT, "all_gather", AlgorithmOnDims("hyperx-direct", (4, 4)), STRIPED),
    (FAT, "reduce_scatter", AlgorithmOnDims("hyperx-direct", (4, 4)), STRIPED),
    (FAT, "all_reduce", AlgorithmOnDims("direct"), STRIPED),
    (f"{FAT},route=spray", "all_gather", AlgorithmOnDims("hyperx-direct", (4, 4)), STRIPED),
    (HPN, "all_gather", AlgorithmOnDims("hierarchical-direct", (2, 4)), np.arange(32).reshape(4, 8)),
    (FAT, "all_gather", AlgorithmOnDims("ring"), np.arange(128).reshape(4, 32)),
    ("ring:n=8,bandwidth=50GB/s,latency=1us", "reduce_scatter", AlgorithmOnDims("bidirectional-ring"), np.arange(8)[None]),
]


def laid(line, name, served, ranks, size):
    n, topology = ranks.shape[1], build_topology(line)
    by = served if isinstance(served, AlgorithmOnDims) else AlgorithmOnDims(served)
    return place_request(BatchKey(0, by, name, n, 0, 840 * n * size, 840 * n * size, b""), topology, ranks)


def both(line, name, served, ranks, size):
    each = laid(line, name, served, ranks, size)
    return rounds_of([each], 31), run_graph(lower_placed(each).graph), each


@pytest.mark.parametrize("size", [1, 4000])
@pytest.mark.parametrize(("line", "name", "served", "ranks"), ONE_ROUND)
def test_of_one_round_the_solver_is_between_the_times_and_its_links_are_as_busy(line, name, served, ranks, size):
    told, timed, each = both(line, name, served, ranks, size)
    end_fs = int(timed.end_fs.max())
    assert told.least_fs - 4 <= end_fs <= told.most_fs + 4
    assert told.apart < 0.02
    np.testing.assert_allclose(told.busy_s, timed.busy_s(each.topology.capacity_Bps), rtol=1e-12)


@pytest.mark.parametrize(("line", "name", "served", "ranks"), SEVERAL)
def test_of_several_rounds_the_solver_is_between_the_times(line, name, served, ranks):
    told, timed, _ = both(line, name, served, ranks, 4000)
    assert told.least_fs - 4 <= timed.end_fs.max() <= told.most_fs * 1.001


def test_the_messages_on_the_busiest_link_are_those_that_share_it():
    told, _, each = both("fat-tree:radix=4", "all_gather", "direct", np.arange(4)[None], 4000)
    assert (told.flows, group_message_count([each])) == (3.0, 12)


def test_rounds_of_several_sizes_and_many_rounds_are_left_to_the_solver():
    assert rounds_of([laid(FAT, "all_gather", "ring", STRIPED, 1)], 4) is None
    assert rounds_of([laid(FAT, "all_reduce", "direct", STRIPED, 1)], 1) is None
    several = [laid(FAT, "all_gather", "direct", STRIPED[:4], 1), laid(FAT, "all_gather", "direct", STRIPED[4:], 2)]
    assert rounds_of(several, 4) is None
