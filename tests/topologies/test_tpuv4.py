import numpy as np
import pytest

from emu.equivalence import components
from emu.errors import InputError
from emu.topology.catalogue import build_topology
from emu.topology.facts.facts import bisection
from tests.topologies import counted

FULL = "tpuv4:cubes=4x4x4,optical=700ns"  # so that light is told from copper
SIX = f"{FULL},planes=6"  # RailX's ports of a chip in each direction


def _parts(tpu):
    return counted.tpuv4(tpu)


def _reached(tpu):
    """Count the chips that links lead to from the first, itself among them."""
    return int((components(tpu.n_npus, tpu.links.src, tpu.links.dst) == 0).sum())


def _cubes(tpu):
    """Count the parts that are left without light."""
    copper = tpu.links.latency_fs != 700_000_000
    return len(np.unique(components(tpu.n_npus, tpu.links.src[copper], tpu.links.dst[copper])))


def _share(tpu):
    """Return the bisection as a share of what half of the chips send through their 36 ports."""
    return bisection(tpu)[0] / (tpu.n_npus / 2 * 36 * 50e9)


ROWS = {  # what is printed, by the id of the target: of which line, printed, computed
    "hbd-t8-tpu-counts": (
        FULL,
        (6144, 5120, 48),
        lambda t: tuple(_parts(t)[p] for p in ("optical module", "DAC cable", "OCS")),
    ),
    "hbd-topo-tpu": (FULL, 4096, _reached),
    "rx-tpu": (FULL, 4096, _reached),
    "rx-tpu-cubes": (FULL, 64, _cubes),
    "fs-scale-tpu": (FULL, 4096, _reached),
    "fs-tpu-ocs": (FULL, 48, lambda t: _parts(t)["OCS"]),
    "rx-t6-TorOCS-sw": (SIX, 288, lambda t: _parts(t)["OCS"]),
    # Without switches the same cables and modules join the faces.
    **{f"rx-t6-{name}-pcc": (SIX, 30.7, lambda t: round(_parts(t)["DAC cable"] / 1000, 1)) for name in ("TorOCS", "Tor")},
    **{f"rx-t6-{name}-aot": (SIX, 36.9, lambda t: round(_parts(t)["optical module"] / 1000, 1)) for name in ("TorOCS", "Tor")},
    **{f"rx-t6-{name}-gbw": (SIX, 4.2, lambda t: round(100 * _share(t), 1)) for name in ("TorOCS", "Tor")},
}


@pytest.mark.parametrize("row", ROWS)
def test_a_row_of_a_paper_is_what_is_built(row):
    line, printed, computed = ROWS[row]
    assert computed(build_topology(line)) == printed


@pytest.mark.parametrize("line", [FULL, SIX, "tpuv4:cubes=2x2x1,optical=700ns", "tpuv4:cubes=16x2x2,optical=700ns"])
def test_the_bill_is_what_the_links_take(line):
    """An OCS has a pair of ports for each cube, whether there are as many as it takes or fewer."""
    tpu = build_topology(line)
    parts = _parts(tpu)
    assert parts == {part: tpu.bill[part] for part in parts if part != "OCS"} | {"OCS": tpu.bill["OCS"] * _cubes(tpu) / 64}


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
