"""Rates at which all NPUs send at once, held to closed forms of full meshes, rings, tori and switches."""

import numpy as np
import pytest

from emu.errors import InputError
from emu.topology.catalogue import build_topology
from emu.topology.facts import facts
from emu.topology.facts.facts import exchange_rate

RATE = "bandwidth=50GB/s,latency=500ns"


@pytest.mark.parametrize(
    ("word", "links"),
    [
        (f"full-mesh:n=8,{RATE}", 7),  # each pair has its link
        (f"switch:n=8,{RATE}", 1),
        (f"torus:dims=5,{RATE}", 4 / 3),  # (n^2 - 1) / 8 pairs share a link of an odd ring
        (f"torus:dims=5x5,{RATE}", 24 / 15),
        (f"torus:dims=7,{RATE}", 6 / 6),
    ],
)
def test_each_npu_sends_what_the_busiest_link_lets_through(word, links):
    assert exchange_rate(build_topology(word)) == pytest.approx(links * 50e9)


@pytest.mark.parametrize("name", ["fat-tree:radix=8", "rail-only:dims=4x4"])
def test_messages_that_choose_among_their_ways_are_sent_as_fast_as_sprayed_ones(name):
    chosen, sprayed = (exchange_rate(build_topology(f"{name},route={route}")) for route in ("least-loaded", "spray"))
    assert chosen == pytest.approx(sprayed)


def test_no_rate_above_it_keeps_all_links_within_what_they_carry():
    """Counted pair by pair, on a network whose ways a hash spreads."""
    topology = build_topology("fat-tree:radix=8")
    n, ways = topology.n_npus, 4
    src, dst = (grid.ravel() for grid in np.meshgrid(np.arange(n), np.arange(n)))
    src, dst = src[src != dst], dst[src != dst]
    crossed = np.zeros(len(topology.links))
    for way in range(ways):
        np.add.at(crossed, topology.routes(src, dst, facts.mix(src, dst, way) % 64).link, 1 / ways)
    each = exchange_rate(topology) / (n - 1)
    assert (crossed * each / topology.links.bandwidth_Bps).max() == pytest.approx(1)


def test_a_machine_is_asked_in_pieces_and_gives_the_same(monkeypatch):
    whole = exchange_rate(build_topology("rail-only:dims=4x8,planes=2"))
    monkeypatch.setattr(facts, "_PAIRS", 100)
    assert exchange_rate(build_topology("rail-only:dims=4x8,planes=2")) == whole


def test_a_machine_that_is_too_large_is_refused():
    with pytest.raises(InputError, match=r"NPUs of an all-to-all must be 2\.\.8192, got 9000; take a smaller size"):
        exchange_rate(build_topology("big-switch:n=9000"))
