from dataclasses import replace

import numpy as np

from emu.arrays import column
from emu.topology.builders.grid import Dimension, grid
from emu.topology.catalogue import build_topology
from emu.topology.facts.facts import summary
from launch.show.text.topology_facts import link_classes, topology_rows

LINK = "bandwidth=50GB/s,latency=500ns"


def _table(topology):
    return topology_rows(topology, summary(topology))


def test_the_rows_of_a_rack_answer_what_an_architect_asks():
    rows = _table(build_topology("ub-mesh:rack"))
    assert rows[:12] == [
        ("topology", "ub-mesh:rack"),
        ("NPUs", "64 (8 x 8)"),
        ("switches", "0"),
        ("links", "896, one way each"),
        ("", "dimension 0, full mesh of 8: 448 links, 56 GB/s, 300 ns"),
        ("", "dimension 1, full mesh of 8: 448 links, 56 GB/s, 300 ns"),
        ("degree", "14 links out of an NPU"),
        ("diameter", "2 links"),
        ("paths", "2 shortest between the NPUs farthest apart, 2 at most"),
        ("injection", "784 GB/s out of an NPU"),
        ("bisection", "7.168 TB/s one way (dimension 0 at its middle)"),
        ("bill", "64 NPU, 448 link x4"),
    ]
    assert {label for label, _ in rows[12:]} == {"assumed"}
    assert len(rows) == 16


def test_links_to_a_switch_and_of_a_ring_are_named():
    assert [c.label for c in link_classes(build_topology(f"switch:n=4,{LINK}"))] == ["NPU to switch: 8 links, 50 GB/s, 500 ns"]
    labels = [c.label for c in link_classes(build_topology(f"torus:dims=4x1x2,{LINK}"))]
    assert labels == [
        "dimension 0, ring of 4: 16 links, 50 GB/s, 500 ns",
        "dimension 2, ring of 2: 16 links, 50 GB/s, 500 ns",
    ]


def test_unequal_rates_and_an_odd_wiring_are_shown_as_they_are():
    base = grid("g", [Dimension(8, "cycle", 1e9, 0)])
    kept = np.arange(12)
    columns = {name: getattr(base.links, name)[kept] for name in base.links.__slots__}
    links = type(base.links)(**columns | {"bandwidth_Bps": column(np.where(kept < 3, 1e9, 2e9), np.float64)})
    rows = dict(_table(replace(base, links=links)))
    assert rows[""] == "dimension 0: 12 links, 1 GB/s to 2 GB/s, 0 s"
    assert rows["degree"] == "0 to 2 links out of an NPU"
    assert rows["diameter"] == "none: some NPUs cannot reach others"


def test_a_sampled_diameter_says_so():
    rows = dict(_table(build_topology(f"torus:dims=32x32x32,{LINK}")))
    assert rows["diameter"] == "at least 48 links (measured to 64 of the NPUs)"
