"""InfiniteHBD with two dimensions: rings within nodes, and lines of nodes for each GPU."""

import numpy as np
import pytest

from emu.errors import InputError
from emu.topology.catalogue import build_topology

LOOPED, DCN = 1, 3


def _rates(topology, npu):
    """The bytes per second out of an NPU by tier."""
    links = topology.links
    own = links.src == npu
    return np.bincount(links.dimension[own], links.bandwidth_Bps[own], minlength=4)


def test_a_gpu_has_its_bandwidth_in_each_dimension_where_bundles_turn_and_a_share_of_it_where_they_are_split():
    turning = build_topology("infinitehbd:lines:nodes=8,line=4")
    assert _rates(turning, 4).tolist() == [0, 800e9, 800e9, 50e9]
    assert _rates(turning, 0).tolist() == [0, 800e9, 400e9, 50e9]  # the first node of a line
    split = build_topology("infinitehbd:lines:nodes=8,line=4,looped=2")
    assert _rates(split, 4) == pytest.approx([0, 200e9, 600e9, 50e9])
    assert split.circuits is None


@pytest.mark.parametrize("gpus", [2, 4, 8])
def test_each_bundle_serves_two_gpus_and_no_message_needs_one_in_two_states(gpus):
    topology = build_topology(f"infinitehbd:lines:nodes=5,line=5,gpus={gpus}")
    npu = np.arange(topology.n_npus).reshape(5, gpus)
    ahead = npu[:-1].ravel(), npu[1:].ravel()
    switch, state = topology.circuits.needs(*ahead, np.zeros(4 * gpus, int))
    used = switch[switch >= 0]
    assert (state[switch >= 0] == 1).all()
    assert np.unique(used, return_counts=True)[1].tolist() == [2] * (gpus // 2 * 8)
    inner = npu.ravel(), np.roll(npu, -1, axis=1).ravel()
    switch, state = topology.circuits.needs(*inner, np.zeros(5 * gpus, int))
    assert sorted(switch[switch >= 0].tolist()) == list(range(5 * gpus))
    assert (state[switch >= 0] == 0).all()


def test_a_message_keeps_to_its_ring_or_line_and_others_take_the_dcn():
    topology = build_topology("infinitehbd:lines:nodes=8,line=4")
    asked = np.array([[0, 1], [0, 3], [0, 12], [13, 1], [0, 5], [0, 16]])
    routes = topology.routes(*asked.T, np.zeros(len(asked), int))
    tiers = [topology.links.dimension[routes.of(i)].tolist() for i in range(len(asked))]
    assert tiers == [[1], [1], [2, 2, 2], [2, 2, 2], [3, 3], [3, 3]]


def test_bill_counts_the_fibres_of_what_is_sent_out():
    assert build_topology("infinitehbd:lines:nodes=8,line=4").bill["fibre"] == 6 * 2 * 8
    assert build_topology("infinitehbd:lines:nodes=8,line=4,looped=2").bill["fibre"] == 6 * 2 * 6
    assert build_topology("infinitehbd:lines:nodes=8,line=4").bill["OCSTrx"] == 8 * 4 * 8


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ("nodes=8,line=4,gpus=3", "gpus must be even, as half of the bundles lead to each side, got 3; take 4"),
        ("nodes=8,line=3", "line must be a divisor of the 8 nodes, got 3"),
        ("nodes=8,line=4,looped=8", "looped must be 1..7 of the 8 OCSTrx of a bundle, or turns, got 8"),
    ],
)
def test_what_cannot_be_is_refused(settings, message):
    with pytest.raises(InputError) as refused:
        build_topology(f"infinitehbd:lines:{settings}")
    assert str(refused.value) == f"infinitehbd:lines: {message}"
