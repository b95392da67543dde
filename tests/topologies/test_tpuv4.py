import numpy as np
import pytest

from emu.errors import InputError
from emu.topology.catalogue import build_topology
from emu.topology.facts import bisection

FULL = "tpuv4:cubes=4x4x4"
SIX = f"{FULL},planes=6"  # RailX's ports of a chip in each direction
ROWS = {  # what is printed, by the id of the target
    "hbd-t8-tpu-counts": (6144, 5120, 48),
    "hbd-topo-tpu": 4096,
    "rx-tpu": 4096,
    "rx-tpu-cubes": 64,
    "fs-scale-tpu": 4096,
    "fs-tpu-ocs": 48,
    "rx-t6-TorOCS-sw": 288,
    "rx-t6-TorOCS-pcc": 30.7,
    "rx-t6-TorOCS-aot": 36.9,
    "rx-t6-TorOCS-gbw": 4.2,
    "rx-t6-Tor-pcc": 30.7,
    "rx-t6-Tor-aot": 36.9,
    "rx-t6-Tor-gbw": 4.2,
}


def test_64_cubes_are_bought_as_table_8_lists_them():
    tpu = build_topology(FULL)
    assert tuple(tpu.bill[part] for part in ("optical module", "DAC cable", "OCS")) == ROWS["hbd-t8-tpu-counts"]
    assert tpu.bill["OCS"] == ROWS["fs-tpu-ocs"]
    assert tpu.n_npus == ROWS["hbd-topo-tpu"] == ROWS["rx-tpu"] == ROWS["fs-scale-tpu"] == 64 * ROWS["rx-tpu-cubes"]


def test_with_six_ports_a_direction_the_counts_are_railx_s():
    tpu = build_topology(SIX)
    assert tpu.bill["OCS"] == ROWS["rx-t6-TorOCS-sw"]
    for name in ("TorOCS", "Tor"):  # without switches the same cables and modules join the faces
        assert round(tpu.bill["DAC cable"] / 1000, 1) == ROWS[f"rx-t6-{name}-pcc"]
        assert round(tpu.bill["optical module"] / 1000, 1) == ROWS[f"rx-t6-{name}-aot"]
        share = bisection(tpu)[0] / (tpu.n_npus / 2 * 36 * 50e9)
        assert round(100 * share, 1) == ROWS[f"rx-t6-{name}-gbw"]


def test_a_cube_has_96_ports_on_its_faces_and_144_links_inside():
    bill = build_topology("tpuv4:cubes=1x1x1").bill
    assert bill["optical module"] == 96
    assert bill["link on a board"] + bill["link of copper"] == 144


def test_light_is_what_joins_two_cubes_or_closes_a_ring_and_nothing_else():
    tpu = build_topology("tpuv4:cubes=2x1x1,latency=10ns,optical=700ns")
    a, b = (np.stack(np.unravel_index(nodes, tpu.dims)) for nodes in (tpu.links.src, tpu.links.dst))
    two_cubes = (a // 4 != b // 4).any(axis=0)
    closing = (abs(a - b) == np.array(tpu.dims)[:, None] - 1).any(axis=0)
    assert np.array_equal(tpu.links.latency_fs == 700_000_000, two_cubes | closing)


@pytest.mark.parametrize("line", ["cubes=2x1x1", "cubes=1x3x2,side=2", "cubes=1x1x1,side=6"])
def test_the_bill_counts_links_of_light_as_the_latencies_do(line):
    tpu = build_topology(f"tpuv4:{line},latency=10ns,optical=700ns")
    assert (tpu.links.latency_fs == 700_000_000).sum() == 2 * tpu.bill["link through an OCS"]


def test_one_faulty_chip_takes_its_cube():
    tpu = build_topology("tpuv4:cubes=2x1x1")
    assert tpu.place(64, [3]).tolist() == list(range(64, 128))
    with pytest.raises(InputError, match="at most 64 where 1 of 128"):
        tpu.place(65, [127])
    assert tpu.place(128).tolist() == list(range(128))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("cubes=4x4", "cubes must be three sizes, such as 4x4x4, got '4x4'"),
        ("cubes=5x4x4", "the number of cubes must be at most 64, as each takes 2 of the 128 ports of an OCS, got 80"),
        ("cubes=1x1x1,side=3", "side must be even, as a board has 2x2 chips, got 3"),
        ("cubes=1x1x1,side=1000", "links must be at most"),
    ],
)
def test_cubes_that_the_switches_cannot_join_are_refused(line, message):
    with pytest.raises(InputError, match=message):
        build_topology(f"tpuv4:{line}")
