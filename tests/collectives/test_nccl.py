"""NCCL's choice beside what NCCL itself printed on real clusters, and beside what follows from its rules.

Sources of what is printed: the issues NVIDIA/nccl-tests 309 and NVIDIA/nccl 1453, 1189, 1752, and nccl-tests' table on a node
of 8 H100 (launch/data/measured).
"""

import re
from itertools import pairwise, product
from typing import Any

import pytest

from collectives.nccl.choice import TUNED, expected_times, nccl, nccl_choice, time_us
from collectives.nccl.graphs import ChannelGraph, graphs_of
from emu.collective.algorithm import algorithm
from emu.collective.libraries import GroupNetwork
from emu.collective.shape import dims_of
from launch.papers.nccl.report import measured_times

SIZES = [2**exponent for exponent in range(2, 33)]


def hosts(servers: int, each: int = 8, *, adds: bool = True, nvlink: float = 450e9, nic: float = 50e9) -> GroupNetwork:
    return GroupNetwork(servers * each, servers, True, nvlink, nic, adds, False)


def ways(around: GroupNetwork, operation: str = "all_reduce") -> list[tuple[str, int]]:
    """Return the algorithm and the number of its protocol for each size."""
    found = [nccl_choice(operation, size, around).way for size in SIZES]
    return [(way.algorithm, way.protocol) for way in found]


def test_a_node_of_8_h100_takes_a_ring_with_ll_to_1_mib_and_nvls_from_2_mib() -> None:
    """nccl-tests 309 prints these choices for 8 B to 16 GiB."""
    for size, (name, protocol) in zip(SIZES, ways(hosts(1)), strict=True):
        assert (name, protocol) == (("ring", 0) if size <= 2**20 else ("nvls", 2))


def test_three_nodes_of_8_h100_take_a_tree_with_ll_for_4_bytes_and_expect_25_2_us() -> None:
    """NVIDIA/nccl 1453 prints `4 Bytes -> Algo 0 proto 0 time 25.200462`."""
    around = hosts(3)
    found, on = nccl_choice("all_reduce", 4, around).way, graphs_of(around)
    assert tuple(found) == ("tree", 0)
    assert time_us("all_reduce", found, expected_times("all_reduce", on)[found], on, 4) == pytest.approx(25.200462, abs=1e-3)


def test_two_gpus_of_each_node_have_four_channels_of_24_gb_a_second() -> None:
    """NVIDIA/nccl 1189 prints `nChannels 4, bw 24.000000/24.000000` for GPUs with a NIC of 50 GB/s and NVLink of 370.8."""
    assert graphs_of(hosts(2, 2)).ring == ChannelGraph(4, 24, 24)


def test_64_nodes_of_8_h200_take_a_tree_with_ll128_for_16_mib_and_later_nvls_tree() -> None:
    """NVIDIA/nccl 1752 prints both with 16 channels; NVLS begins at 32 MiB in its version of 2025, and at 64 MiB here."""
    small, large = (nccl_choice("all_reduce", size, hosts(64)) for size in (2**24, 2**26))
    assert tuple(small.way) == ("tree", 1)
    assert tuple(large.way) == ("nvls-tree", 2)
    assert small.channels == large.channels == 16


VOLTA: dict[str, Any] = {"nvlink": 150e9, "nic": 12.5e9}
AMPERE: dict[str, Any] = {"nvlink": 300e9, "nic": 25e9}
BLACKWELL: dict[str, Any] = {"nvlink": 900e9, "nic": 50e9}


@pytest.mark.parametrize(
    ("operation", "log2_size", "around", "way", "channels", "expected_us"),
    [
        ("all_reduce", 24, hosts(1, adds=False, **VOLTA), ("ring", 2), 12, 300.668),
        ("all_reduce", 22, hosts(2, adds=False, **VOLTA), ("tree", 1), 16, 149.812),
        ("all_reduce", 26, hosts(16, 1, adds=False, **VOLTA), ("ring", 2), 2, 11299.719),
        ("all_reduce", 20, hosts(4, adds=False, **AMPERE), ("tree", 1), 16, 91.682),
        ("all_gather", 16, hosts(16, 1, adds=False, **AMPERE), ("pat", 2), 2, 72.441),
        ("reduce_scatter", 26, hosts(16, adds=False, **AMPERE), ("ring", 1), 16, 702.954),
        ("all_reduce", 26, hosts(1), ("nvls", 2), 16, 271.724),
        ("all_reduce", 22, hosts(2, 4), ("tree", 1), 16, 74.214),
        ("all_reduce", 24, hosts(8), ("nvls-tree", 2), 16, 241.142),
        ("all_reduce", 13, hosts(8), ("tree", 0), 2, 46.347),
        ("all_reduce", 30, hosts(33, adds=False), ("tree", 2), 16, 7660.94),
        ("all_gather", 30, hosts(1), ("ring", 2), 24, 2641.989),
        ("broadcast", 26, hosts(8), ("ring", 2), 16, 197.163),
        ("all_reduce", 30, hosts(1, **BLACKWELL), ("nvls", 2), 24, 2634.789),
        ("all_reduce", 28, hosts(64, nvlink=900e9, nic=100e9), ("nvls-tree", 2), 32, 1206.047),
        ("all_reduce", 29, hosts(8, 4, **BLACKWELL), ("ring", 2), 16, 5932.283),
    ],
)
def test_what_is_taken_and_expected_is_what_nccls_own_functions_give(
    operation: str, log2_size: int, around: GroupNetwork, way: tuple[str, int], channels: int, expected_us: float
) -> None:
    """The values are from src/graph/tuning.cc of v2.30.7-1, called once with the graphs found here (for NVLS no channels)."""
    found, on = nccl_choice(operation, 2**log2_size, around), graphs_of(around)
    assert (tuple(found.way), found.channels) == (way, channels)
    assert time_us(operation, found.way, expected_times(operation, on)[found.way], on, 2**log2_size) == pytest.approx(
        expected_us, rel=1e-4
    )


def test_what_is_expected_of_nvls_is_what_nccl_tests_measured() -> None:
    on = graphs_of(hosts(1))
    ways = {way.algorithm: of for way, of in expected_times("all_reduce", on).items() if way.protocol == 2}
    size, time_s = measured_times()[-1]
    assert ways["nvls"][1] * 1e9 == pytest.approx(size / time_s, rel=0.02)


@pytest.mark.parametrize("operation", TUNED)
def test_nvls_is_taken_only_where_switches_add_and_every_size_has_a_way(operation: str) -> None:
    for servers, each in product((1, 2, 3, 8, 64), (1, 2, 8)):
        if servers * each > 1:
            found = ways(hosts(servers, each, adds=False), operation)
            assert not any("nvls" in name or "collnet" in name for name, _ in found)


def test_the_larger_the_size_the_more_bandwidth_and_the_no_fewer_channels() -> None:
    """The expected time does not fall as the size grows, but for 5 %, and what is taken has the least of all."""
    for servers in (1, 2, 8, 64):
        around = hosts(servers)
        on, known = graphs_of(around), expected_times("all_reduce", graphs_of(around))
        times = [
            time_us(
                "all_reduce", nccl_choice("all_reduce", s, around).way, known[nccl_choice("all_reduce", s, around).way], on, s
            )
            for s in SIZES
        ]
        assert all(a <= b * 1.05 for a, b in pairwise(times))
        for size, time in zip(SIZES, times, strict=True):
            assert time == min(time_us("all_reduce", way, of, on, size) for way, of in known.items())
        for size in SIZES:
            more = nccl_choice("all_reduce", size * 2, around)
            if more.way == nccl_choice("all_reduce", size, around).way:
                assert more.channels >= nccl_choice("all_reduce", size, around).channels


def test_latency_grows_with_the_ranks_on_rings_and_with_their_logarithm_on_trees() -> None:
    of = {servers: expected_times("all_reduce", graphs_of(hosts(servers))) for servers in (8, 16, 32)}
    ring, tree = ([next(e[0] for w, e in of[n].items() if w == (name, 0)) for n in of] for name in ("ring", "tree"))
    assert ring[2] - ring[1] == pytest.approx(2 * (ring[1] - ring[0]))
    assert tree[2] - tree[1] == pytest.approx(tree[1] - tree[0])


@pytest.mark.parametrize("operation", [*TUNED, "all_to_all"])
def test_what_serves_is_an_algorithm_that_takes_the_ranks_on_the_dims_that_are_named(operation: str) -> None:
    for servers, each, size in product((1, 2, 3, 5, 8), (1, 2, 3, 6, 8), SIZES[::3]):
        for in_order in (True, False) if servers * each > 1 else ():
            around = GroupNetwork(servers * each, servers, in_order, 450e9, 50e9, servers == 1, False)
            found = nccl(operation, size, around)
            assert found is not None
            shape = algorithm(operation, found.served.algorithm).fit(around.ranks, found.served.dims)
            assert not found.served.dims or dims_of(shape) == found.served.dims


def test_rings_are_as_many_as_the_channels_but_no_more_than_nics() -> None:
    """A channel a ring; of 8 NICs each has one at most, so that the 16 channels of large sizes are 8 rings."""
    for size in SIZES:
        found = nccl("all_gather", size, hosts(8, adds=False))
        channels = nccl_choice("all_gather", size, hosts(8, adds=False)).channels
        assert found is not None
        rings = dims_of(found.served.dims)[1] if found.served.dims else 1
        assert rings <= min(channels, 8) < 2 * rings


def test_what_nccl_is_taken_to_see_and_as_how_many_rings_its_channels_are_timed_is_said() -> None:
    def said(around: GroupNetwork, size: int) -> tuple[str, ...]:
        found = nccl("all_gather", size, around)
        assert found is not None
        return found.assumptions

    assert said(hosts(1, adds=False), 2**30) == ("NCCL is taken to see 1 server of 8 Hopper GPUs",)
    seen, channels, rails = said(hosts(3, 4, adds=False, nic=100e9), 2**30)
    assert seen == "NCCL is taken to see 3 servers of 4 Hopper GPUs, with a NIC of 100 GB/s for each GPU"
    assert channels.startswith("the 16 channels of NCCL are timed as 4 rings, ")
    assert "(PXN)" in rails
    seen, channels = said(hosts(4, 1, adds=False, nvlink=200e9), 2**30)  # a GPU a server has but one rail
    assert seen == "NCCL is taken to see 4 servers of 1 Ampere GPU, with a NIC of 50 GB/s for each GPU"
    assert re.match("the [0-9]+ channels of NCCL are timed as one ring, ", channels)
    assert not any("channels" in each for each in said(hosts(2), 2**10))  # a message too small for more than one


def test_ranks_on_one_nic_each_take_pat_for_small_sizes_of_a_gather_and_rings_for_large_ones() -> None:
    found = [name for name, _ in ways(hosts(16, 1), "all_gather")]
    assert found[-1] == "ring"
    assert set(found) <= {"pat", "ring"}


def test_a_fabric_whose_ports_are_no_faster_than_nics_has_a_server_for_each_rank() -> None:
    star = GroupNetwork(16, 1, True, 50e9, 0, False, False)
    assert (graphs_of(star).servers, graphs_of(star).per_server) == (16, 1)
    assert graphs_of(hosts(1)).servers == 1
