"""The fastest algorithm is never slower than a library's choice, nor than rings and trees on (hosts x NPUs of a host)."""

from dataclasses import replace

import numpy as np
import pytest

from emu.collective.algorithm import ALGORITHMS, algorithm, compact_schedule
from emu.collective.operation import operation
from emu.study.choice.fastest import fastest
from emu.study.choice.library_choice import library_choice
from emu.study.choice.site import Requirement, Site
from emu.study.timing import CollectiveJob, time_collective
from emu.topology.catalogue import build_topology
from emu.topology.facts.hosts import host_grid
from emu.topology.topology import Topology

HOSTS = (  # a topology, and how many of its NPUs have ranks
    ("hpn:pod:dims=2x4x4,aggs=4", 32),
    ("hpn:pod:dims=4x2x4,aggs=4", 32),
    ("hpn:pod:dims=8x2x4,aggs=2", 64),
    ("hpn:dcn-plus:dims=1x4x3x4,aggs=2,parallel=4", 48),
    ("hpn:segment:dims=16x8", 64),
    ("hpn:segment:dims=8x8", 24),
    ("servers:nodes=8", 48),
    ("rail-optimised:radix=8", 24),
    ("railx:torus:m=2,n=2,nodes=2x4", 32),
    ("infinitehbd:dims=2x2x2x4,tp=16", 32),
)
SIZES = (2**14, 2**20, 2**26)
RAILS = sorted({each.name for _, each in ALGORITHMS if each.name.startswith("rail-")})


def time_fs(site: Site, name: str, grid: tuple[int, ...], operation_name: str, size: int) -> int:
    """Return the ticks of an algorithm on a grid."""
    n = len(site.npus)
    plan = compact_schedule(operation_name, name, n, 0, grid)
    job = CollectiveJob(operation(operation_name, n), plan, size // 4, 4, site.topology, site.placement())
    return int(time_collective(job).end_fs.max())


@pytest.mark.parametrize(("line", "ranks"), HOSTS)
@pytest.mark.parametrize("name", ["all_reduce", "all_gather"])
def test_the_fastest_takes_no_longer_than_a_library_or_rails_through_hosts(line: str, ranks: int, name: str) -> None:
    site = Site.first(build_topology(line), ranks)
    hosts, size_of = host_grid(site.topology, site.npus), operation(name, ranks).count_step * 4
    assert hosts[0] > 1 < hosts[1], line
    for size in (size - size % size_of for size in SIZES):
        best = fastest(site, Requirement(name, 0, size // 4, 4)).served
        taken = time_fs(site, best.algorithm, best.dims, name, size)
        choice = library_choice("nccl", site.topology, site.npus, name, size)
        others = {(rail, hosts) for rail in RAILS if f"{name}/{rail}" in dict(ALGORITHMS)} | {choice.served}
        for other, grid in others:
            assert taken <= time_fs(site, other, grid, name, size), (size, best, other, grid)


@pytest.mark.parametrize(("line", "ranks"), HOSTS)
def test_an_algorithm_that_does_not_take_the_dims_is_built_on_hosts(line: str, ranks: int) -> None:
    site = Site.first(build_topology(line), ranks)
    assert site.dims_for(algorithm("all_reduce", "rail-ring")) == host_grid(site.topology, site.npus)


def test_a_grid_that_is_asked_for_wins_over_that_of_the_hosts() -> None:
    site = Site(build_topology("servers:nodes=4"), tuple(range(32)), (2, 16), only=True)
    assert site.dims_for(algorithm("all_reduce", "rail-ring")) == (2, 16)


def test_npus_that_do_not_come_host_by_host_have_no_grid_of_hosts() -> None:
    topology = build_topology("servers:nodes=4")
    assert host_grid(topology, tuple(range(8, 32))) == (3, 8)
    assert host_grid(topology, tuple(range(0, 32, 4))) == (4, 2)
    assert host_grid(topology, tuple(range(12))) == host_grid(topology, (0, 8, 1, 9)) == ()


def _widened(line: str, times: int) -> Topology:
    """Return a UB-Mesh whose links out of racks are so many times as fast."""
    topology = build_topology(line)
    inside = np.isin(topology.links.dimension, [i for i, tier in enumerate(topology.tiers) if tier.startswith(("X", "Y"))])
    rates = topology.links.bandwidth_Bps * np.where(inside, 1, times)
    return replace(topology, links=replace(topology.links, bandwidth_Bps=rates))


@pytest.mark.parametrize("times", [1, 2, 4])
def test_algorithms_keep_the_shape_of_racks_where_links_between_racks_are_wider(times: int) -> None:
    """From two times on an NPU's links out of its rack are faster than those inside; a group has 8 NPUs of each of 16 racks."""
    site = Site.of(_widened("ub-mesh:pod", times), tuple(range(0, 1024, 8)))
    assert site.dims_for(algorithm("all_gather", "hierarchical-direct")) == (16, 8)


def test_of_hosts_and_of_an_algorithms_best_shape_the_busiest_link_decides_where_hosts_are_joined_by_faster_links() -> None:
    site = Site.first(build_topology("ub-mesh:superpod:dims=2x2x2x2x4"))
    assert host_grid(site.topology, site.npus) == (16, 4)
    assert site.dims_for(algorithm("all_reduce", "torus-buckets")) == (16, 4)
    assert site.dims_for(algorithm("all_reduce", "hyperx-direct")) == (8, 8)
