"""A topology tells whether the number of a communicator changes the ways that its messages take."""

import pytest

from emu.topology.catalogue import build_topology
from emu.topology.facts.facts import routes_spread


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("fat-tree:radix=4", True),
        ("fat-tree:radix=5,tiers=1", False),  # one switch
        ("fat-tree:radix=8,route=spray", False),
        ("fat-tree:radix=8,adds=yes,route=spray", True),  # a message to a switch that adds is not sprayed
        ("ub-mesh:rack", False),
        ("servers:nodes=2", False),
        ("switch:n=1,bandwidth=50GB/s,latency=500ns", False),
    ],
)
def test_equal_ways_are_spread_over_by_a_hash_or_there_are_none(line, told):
    assert routes_spread(build_topology(line)) == told
