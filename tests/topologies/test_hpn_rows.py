"""The bisection of DCN+ and the size of a Clos of HPN's switches; rows of papers that count HPN are in `emu repro`."""

from functools import cache

import pytest

from emu.topology.catalogue import build_topology
from emu.topology.facts.facts import bisection
from tests.topologies.hpn_nodes import PORT, of_kind, out_of


@pytest.fixture(scope="module")
def built():
    return cache(build_topology)


def _of_first(topology, kind, to):
    """Cables from the first switch of a kind to others."""
    return out_of(topology, of_kind(topology, kind)[0], to)[1]


def _agg(topology, kind):
    return _of_first(topology, "Agg", of_kind(topology, kind))


def test_dcn_plus_has_full_bisection_where_hpn_has_a_fifteenth_above_its_aggs(built):
    for line, ratio in (("hpn:dcn-plus", 1), ("hpn", 15)):
        topology = built(line)
        assert _agg(topology, "ToR") == ratio * _agg(topology, "Core")
    small = build_topology("hpn:dcn-plus:dims=2x4x2x8,aggs=2,parallel=4,up=32")
    assert bisection(small)[0] == small.n_npus * PORT  # half of the GPUs, two ports each


def test_a_clos_of_these_switches_has_4096_gpus_with_one_cable_to_an_agg_where_table_2_prints_2k(built):
    clos = built("hpn:clos")
    assert _of_first(clos, "ToR", of_kind(clos, "Agg")[:1]) == 1
    assert clos.n_npus == 2 * 2048
