"""The DCN of an InfiniteHBD with ToRs whose links up are narrower than those of their GPUs."""

import numpy as np

from emu.topology.catalogue import build_topology
from topologies.infinitehbd.ocstrx_plan import OcstrxPlan, OcstrxRates
from topologies.infinitehbd.ring_line import build

PLAIN, TAPERED = (build_topology(f"infinitehbd:dims=1x8x2x4,tp=16{more}") for more in ("", ",taper=4"))


def _crossed(src, dst, topology=TAPERED):
    """Return the tiers of the links from each GPU to another."""
    routes = topology.routes(np.atleast_1d(src), np.atleast_1d(dst), np.zeros(np.size(src), np.int64))
    return topology.links.dimension[routes.link].tolist()


def test_messages_between_tors_cross_the_links_up_of_both():
    assert _crossed(0, 9) == [3, 4, 4, 3]
    assert _crossed(0, 5) == [3, 3]  # two nodes of one ToR
    assert _crossed(0, 9, PLAIN) == [3, 3]


def test_a_link_up_has_its_share_of_the_gpus_bandwidth_and_rings_stay_as_they_are():
    up = TAPERED.links.dimension == 4
    assert up.sum() == 2 * 8
    assert set(TAPERED.links.bandwidth_Bps[up].tolist()) == {8 * 50e9 / 4}
    within = PLAIN.links.dimension < 3
    assert np.array_equal(PLAIN.links.src[within], TAPERED.links.src[TAPERED.links.dimension < 3])


def test_rings_are_those_of_the_groups_that_are_given():
    plan = OcstrxPlan("infinitehbd", (1, 8, 2, 4), 3, 16, OcstrxRates(), taper=4)
    groups = np.array([[1, 3, 5, 7], [0, 2, 4, 6]])
    placed = build(plan, (), 32, groups).place(32)
    assert [set((placed[i : i + 16] // 4).tolist()) for i in (0, 16)] == [set(row) for row in groups.tolist()]
