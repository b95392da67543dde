"""Rows of the paper, and of others that count HPN, are what is built."""

from functools import cache

import numpy as np
import pytest

from emu.topology.catalogue import build_topology
from emu.topology.facts import bisection
from emu.topology.faults import without
from tests.topologies.counted import hpn as counted
from tests.topologies.counted import of_tier
from tests.topologies.hpn_nodes import PAPER, PORT, of_kind, out_of

ROWS = {
    "hpn-tor-cap": 51.2,
    "hpn-tor-os": 1.067,
    "hpn-seg": 1024,
    "hpn-seg-bk": 64,
    "hpn-seg-tor": 16,
    "hpn-pod": 15360,
    "hpn-agg-os": 15,
    "hpn-875": 87.5,
    "hpn-aggs": 60,
    "hpn-host": 3.2,
    "hpn-nvlink": (4, 9),
    "hpn-t1-HPN": 60,
    "hpn-t1-ft-n": 27648,
    "hpn-t2-t1-clos": 64,
    "hpn-t2-t1-dual": 128,
    "hpn-t2-t1-rail": 1024,
    "hpn-t2-t2-dual": 4096,
    "hpn-t2-t2-plane": 8192,
    "hpn-t2-t2-os": 15360,
    "hpn-t4-planes": 16,
    "hpn-t4-any": 2,
    "hpn-t4-gpus": 122880,
    "hpn-dcn-seg": 128,
    "hpn-dcn-pod": 512,
    "hpn-dcn-all": 16384,
    "hpn-dcn-bis": 8,
    "hpn-2300-dcn": 19,
    "hpn-2300-hpn": 3,
    "hpn-448": 448,
    "hpn-256": 256,
    "hpn-625": 6.25,
    "hbd-t8-hpn-counts": (360, 32640, 28800, 16320),
    "rx-hpn360": 360,
}


def _tor(topology, to):
    """Bandwidth and cables from the first ToR."""
    return out_of(topology, of_kind(topology, "ToR")[0], to)


def _agg(topology, kind):
    """Cables from the first Agg to the kind of switch."""
    return out_of(topology, of_kind(topology, "Agg")[0], of_kind(topology, kind))[1]


def _up(topology):
    return _tor(topology, of_kind(topology, "Agg"))


def _down(topology):
    return _tor(topology, np.arange(topology.n_npus))


def _nic(topology):
    return out_of(topology, 0, of_kind(topology, "ToR"))


def _tors(topology):
    """Switches that the NICs' links lead to."""
    nic = of_tier(topology, "NIC to ToR") & (topology.links.src < topology.n_npus)
    return len(np.unique(topology.links.dst[nic]))


def _spans(topology, ranks, size):
    return len(set((topology.place(ranks) // size).tolist()))


def _after_a_link(topology):
    """Percent of a host's rate that is gone with one of its NIC's links."""
    gone = np.flatnonzero((topology.links.src == 0) & (topology.links.dst == of_kind(topology, "ToR")[0]))
    before, after = (
        sum(out_of(t, npu, of_kind(topology, "ToR"))[0] for npu in range(8)) for t in (topology, without(topology, links=gone))
    )
    return 100 * (before - after) / before


COMPUTED = {
    "hpn-tor-cap": lambda built: (_up(built(PAPER))[0] + _down(built(PAPER))[0]) * 8 / 1e12,
    "hpn-tor-os": lambda built: round(_down(built("hpn:pod"))[0] / _up(built("hpn:pod"))[0], 3),
    "hpn-seg": lambda built: built("hpn:segment").n_npus,
    "hpn-seg-bk": lambda built: built("hpn:segment:backup=8").n_npus - len(built("hpn:segment:backup=8").place(1024)),
    "hpn-seg-tor": lambda built: _tors(built("hpn:segment")),
    "hpn-pod": lambda built: built("hpn:pod").n_npus,
    "hpn-agg-os": lambda built: _agg(built("hpn"), "ToR") / _agg(built("hpn"), "Core"),
    "hpn-875": lambda built: (
        100 * (2 * _agg(built("hpn"), "ToR") / (_agg(built("hpn"), "ToR") + _agg(built("hpn"), "Core")) - 1)
    ),
    "hpn-aggs": lambda built: built("hpn:pod").bill["Agg switch"] / _nic(built("hpn:pod"))[1],
    "hpn-host": lambda built: 8 * _nic(built("hpn:pod"))[0] * 8 / 1e12,
    "hpn-nvlink": lambda built: tuple(
        built(f"hpn:segment:nvlink={rate}").links.bandwidth_Bps.max() / _nic(built("hpn:segment"))[0]
        for rate in ("200GB/s", "450GB/s")
    ),
    "hpn-t1-HPN": lambda built: _up(built("hpn:pod"))[1],
    "hpn-t1-ft-n": lambda built: built("fat-tree:radix=48,tiers=3").n_npus,
    "hpn-t2-t1-clos": lambda built: _down(built("hpn:pod"))[0] / _nic(built("hpn:pod"))[0],
    "hpn-t2-t1-dual": lambda built: _down(built("hpn:pod"))[1],
    "hpn-t2-t1-rail": lambda built: built("hpn:segment").n_npus,
    "hpn-t2-t2-dual": lambda built: built("hpn:clos").n_npus * (_agg(built("hpn:clos"), "ToR") == 64),
    "hpn-t2-t2-plane": lambda built: built("hpn:pod:dims=8x128x8").n_npus * (_agg(built("hpn:pod:dims=8x128x8"), "ToR") == 64),
    "hpn-t2-t2-os": lambda built: built("hpn:pod").n_npus * (_agg(built("hpn:pod"), "ToR") == 120),
    "hpn-t4-planes": lambda built: built("hpn:rail-only").bill["Agg switch"] / _up(built("hpn:rail-only"))[1],
    "hpn-t4-any": lambda built: built("hpn:pod").bill["Agg switch"] / _up(built("hpn:pod"))[1],
    "hpn-t4-gpus": lambda built: built("hpn:rail-only").n_npus,
    "hpn-dcn-seg": lambda built: _down(built("hpn:dcn-plus"))[1],
    "hpn-dcn-pod": lambda built: built("hpn:dcn-plus").n_npus // built("hpn:dcn-plus").dims[0],
    "hpn-dcn-all": lambda built: built("hpn:dcn-plus").n_npus,
    "hpn-dcn-bis": lambda built: _tor(built("hpn:dcn-plus"), of_kind(built("hpn:dcn-plus"), "Agg")[:1])[1],
    "hpn-2300-dcn": lambda built: _spans(built("hpn:dcn-plus"), 289 * 8, 128),  # 288+ hosts: at least one more
    "hpn-2300-hpn": lambda built: _spans(built("hpn:pod"), 289 * 8, 1024),
    "hpn-448": lambda built: built("hpn:segment:dims=56x8").n_npus,
    "hpn-256": lambda built: built("hpn:segment:dims=32x8").n_npus,
    "hpn-625": lambda built: _after_a_link(built("hpn:segment")),
    "hbd-t8-hpn-counts": lambda built: (
        built(PAPER).bill["ToR switch"] + built(PAPER).bill["Agg switch"],
        built(PAPER).bill["cable NIC to ToR"],
        built(PAPER).bill["optical transceiver"],
        built(PAPER).n_npus,
    ),
    "rx-hpn360": lambda built: counted(built("hpn:pod"))["ToR switch"] + counted(built("hpn:pod"))["Agg switch"],
}


@pytest.fixture(scope="module")
def built():
    return cache(build_topology)


@pytest.mark.parametrize("row", ROWS)
def test_a_row_of_the_paper_is_what_is_built(row, built):
    assert COMPUTED[row](built) == pytest.approx(ROWS[row], rel=1e-12)


def test_dcn_plus_has_full_bisection_where_hpn_has_a_fifteenth_above_its_aggs(built):
    for line, ratio in (("hpn:dcn-plus", 1), ("hpn", 15)):
        topology = built(line)
        assert _agg(topology, "ToR") == ratio * _agg(topology, "Core")
    small = build_topology("hpn:dcn-plus:dims=2x4x2x8,aggs=2,parallel=4,up=32")
    assert bisection(small)[0] == small.n_npus * PORT  # half of the GPUs, two ports each


def test_a_clos_of_these_switches_has_4096_gpus_with_one_cable_to_an_agg_where_table_2_prints_2k(built):
    clos = built("hpn:clos")
    assert _tor(clos, of_kind(clos, "Agg")[:1])[1] == 1
    assert clos.n_npus == 2 * 2048
