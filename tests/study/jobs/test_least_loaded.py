"""Routes that are chosen for jobs: by hand, by invariants, and what cannot be."""

import numpy as np
import pytest

from emu.errors import InputError
from emu.fabric.packet_fabric import packet_fabric
from emu.study.jobs.job import Job, loop_work
from emu.study.jobs.jobs_request import JobsRequest, JobsSetting
from emu.study.jobs.side_by_side import SideBySide, place_side_by_side
from emu.study.jobs.step_graphs.least_loaded import _chosen_keys, _ChosenRoutes
from emu.topology.catalogue import build_topology
from emu.topology.topology import CHANNELS
from emu.units import TICKS_PER_S
from tests.study.jobs.test_side_by_side import run

PODS = "hpn:pod:dims=2x8x8"
CHOSEN, OWN = JobsSetting("random:seed=1", routes="least-loaded"), JobsSetting("random:seed=1")


def rings(ranks: int = 16, jobs: int = 8) -> list[Job]:
    work = loop_work("all_reduce", 2**28, ranks, ("all_reduce=ring",), TICKS_PER_S // 200)
    return [Job(f"j{number}", work) for number in range(jobs)]


def placed(setting: JobsSetting, where: str = PODS, **more: int) -> SideBySide:
    return place_side_by_side(JobsRequest(tuple(rings(**more)), 2), build_topology(where), setting)


def test_rings_at_random_no_longer_meet_where_each_takes_a_free_path():
    own, chosen = (run(rings(), PODS, 2, setting).row for setting in (OWN, CHOSEN))
    assert own.slow_down > 1.4
    assert [job.slow_down for job in chosen.jobs] == pytest.approx([1.0] * 8, rel=1e-9)
    assert [job.npus for job in own.jobs] == [job.npus for job in chosen.jobs]


@pytest.mark.parametrize("seed", range(3))
def test_the_busiest_link_carries_no_more_and_all_bytes_go_from_end_to_end(seed):
    where = f"random:seed={seed}"
    own, chosen = (placed(JobsSetting(where, routes=routes)) for routes in ("own", "least-loaded"))
    busiest = [np.sum(each.link_s, axis=0).max() for each in (own, chosen)]
    assert busiest[1] <= busiest[0]
    for one, other in zip(own.tasks, chosen.tasks, strict=True):
        assert one.graph.size_bytes.tolist() == other.graph.size_bytes.tolist()
        for graph in (one.graph, other.graph):  # a path is a chain of links
            links, inner = own.topology.links, np.diff(graph.hop_task) == 0
            assert (links.dst[graph.hop_link[:-1]] == links.src[graph.hop_link[1:]])[inner].all()
        first = [each.graph.hop_link[each.graph.hop_start[:-1][np.diff(each.graph.hop_start) > 0]] for each in (one, other)]
        assert np.array_equal(*(own.topology.links.src[links] for links in first))


def test_the_most_intense_job_keeps_the_paths_that_are_free_for_it():
    """The most intense job chooses first: no other path has less to carry than its own, so it is as fast as alone."""
    jobs = rings(jobs=2)
    busy = Job("busy", loop_work("all_reduce", 2**28, 16, ("all_reduce=ring",), TICKS_PER_S))
    row = run([*jobs, busy], PODS, 2, CHOSEN).row
    assert row.jobs[2].slow_down == 1


def test_routes_are_not_chosen_where_messages_are_not_known():
    with pytest.raises(InputError, match="jobs: routes must be own where steps are composed, got 'least-loaded'; take time"):
        run(rings(jobs=2), PODS, 2, CHOSEN, time="composed")
    with pytest.raises(InputError, match=r"jobs: routes least-loaded: hpn:pod:.*route=spray spreads messages over all paths"):
        placed(CHOSEN, "hpn:pod:dims=2x8x8,route=spray")
    with pytest.raises(InputError, match="jobs: planes and routes must be all of them and own where packets keep to lanes"):
        run(rings(4, 2), "torus:dims=4x4,bandwidth=1GB/s,latency=1us", 2, CHOSEN, packets=packet_fabric("packets:cell=64KiB"))


def test_packets_take_the_routes_that_are_chosen():
    """Rings of eight that a hash puts on one port have ports of their own by the routes that are chosen."""
    work = loop_work("all_reduce", 2**21, 8, ("all_reduce=ring",), TICKS_PER_S // 10**4)
    jobs, packets = [Job(f"j{number}", work) for number in range(4)], packet_fabric("packets:cell=64KiB")
    own, chosen = (run(jobs, "hpn:pod:dims=2x4x4", 2, setting, packets=packets).row for setting in (OWN, CHOSEN))
    assert chosen.engine == "packets"
    assert chosen.slow_down < 0.95 * own.slow_down


def test_of_pairs_with_equal_bytes_the_first_chooses_first():
    """So paths are the same on every machine: an amount far below a byte that makes the pairs unequal changes none."""
    topology, n = build_topology("fat-tree:radix=8"), 28
    asked = np.stack((np.repeat(np.arange(4), 7), np.arange(n) + 4, np.zeros(n, np.int64)))
    sent, idle = np.tile([1e6, 2e6], n // 2), np.zeros(len(topology.links))
    in_order = _chosen_keys(topology, asked, sent - 1e-6 * np.arange(n), idle.copy())
    assert _chosen_keys(topology, asked, sent, idle.copy()).tolist() == in_order.tolist()


def test_each_channel_of_a_pair_has_the_path_that_was_chosen_for_it_and_other_pairs_their_own():
    topology, (src, dst) = build_topology("fat-tree:radix=8"), np.meshgrid(np.arange(4), np.arange(4, 8), indexing="ij")
    pairs = [np.repeat(each.ravel(), 3) for each in (src, dst)]
    keys = np.tile([0, 1, 5], len(pairs[0]) // 3)
    asked, chosen = np.stack((*pairs, keys)), np.random.default_rng(0).integers(0, CHANNELS, len(keys))
    router = _ChosenRoutes.of(topology, asked[:, ::2], chosen[::2])
    wanted = np.where(np.arange(len(keys)) % 2, keys, chosen)
    assert router(*asked).link.tolist() == topology.routes(*pairs, wanted).link.tolist()
    assert router(*asked).link.tolist() != topology.routes(*asked).link.tolist()
