"""How a network hears of a failed link, on a ring where distances are known, and on UB-Mesh."""

import numpy as np
import pytest

from emu.errors import InputError
from emu.topology.catalogue import build_topology
from emu.topology.facts.notices import direct_notices, flooded_notices, hearers

NS, US = 10**6, 10**9  # ticks
RING = build_topology("torus:dims=8,bandwidth=50GB/s,latency=500ns")
RACK = build_topology("ub-mesh:rack:route=detour")


def test_on_a_ring_each_hop_adds_what_a_node_takes_to_act_but_to_a_direct_notice() -> None:
    """Without the cable 0-1 the ring is a path, and the farthest that used it is three hops from an end."""
    told = np.setdiff1d(hearers(RING, (0, 1)), (0, 1))
    far = int(np.minimum(told - 1, 8 - told).max())
    assert far == 3
    direct, flooded = (way(RING, (0, 1), 2 * US) for way in (direct_notices, flooded_notices))
    assert direct.last_fs == far * 500 * NS + 2 * US
    assert flooded.last_fs == far * (500 * NS + 2 * US)
    assert (direct.sent, direct.acting) == (int(np.minimum(told - 1, 8 - told).sum()), len(told))
    assert (flooded.sent, flooded.acting) == (8, 6)  # 4 hops from either end: both notices cross in the middle


@pytest.mark.parametrize("cable", [(0, 1), (0, 8)])
def test_in_a_rack_of_ub_mesh_direct_notices_are_fewer_and_sooner(cable: tuple[int, int]) -> None:
    """All NPUs may use the link for a detour: 20 are one hop from an end, 42 are two hops away."""
    direct, flooded = (way(RACK, cable, US) for way in (direct_notices, flooded_notices))
    assert (direct.acting, flooded.acting) == (62, 62)
    assert direct.sent == 20 + 2 * 42
    assert (direct.last_fs, flooded.last_fs) == (2 * 300 * NS + US, 2 * (300 * NS + US))
    assert flooded.sent == 64 * 14 - 2 - 62


def test_nobody_is_told_of_a_link_that_only_its_ends_use() -> None:
    """On a board without detours a link has no other traffic."""
    board = build_topology("ub-mesh:board")
    assert hearers(board, (2, 5)).tolist() == [2, 5]
    assert vars_of(direct_notices(board, (2, 5), US)) == (0, 0, 0)
    assert flooded_notices(board, (2, 5), US).last_fs == 0


def test_an_end_that_is_cut_off_tells_nobody() -> None:
    """An NPU whose only cable has failed: the switch tells the other three, a hop away each."""
    star = build_topology("switch:n=4,bandwidth=50GB/s,latency=500ns")
    assert vars_of(direct_notices(star, (0, 4), US)) == (500 * NS + US, 3, 3)


@pytest.mark.parametrize("cable", [(0, 9), (0, 99)])
def test_a_cable_that_is_not_there_is_refused(cable: tuple[int, int]) -> None:
    for way in (direct_notices, flooded_notices):
        with pytest.raises(InputError, match=f"notices: cable must be two nodes that a cable joins, got '0-{cable[1]}'"):
            way(RACK, cable, US)


def vars_of(found) -> tuple[int, int, int]:
    """Return the fields of notices."""
    return found.last_fs, found.sent, found.acting
