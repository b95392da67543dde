"""A job with faults on each of the systems: a step takes what it takes on a fabric built without the part, and the mending."""

from dataclasses import dataclass, replace
from itertools import product

import numpy as np
import pytest

from emu.model.plan.plan import Plan
from emu.study.live.faulty_job import time_faulty_job, times_of_estimate
from emu.study.training.estimate import EstimateRequest, estimate
from emu.topology.catalogue import build_topology
from emu.topology.fault_injection.fault import check_faults, nic_of, parse_fault
from emu.topology.removal import remove_parts
from emu.topology.topology import Topology
from launch.data.devices import find_device
from topologies.sipac.assignment import initial, reconfigure
from topologies.sipac.levels import Levels
from topologies.sipac.sipac_system import topology_of

MODEL = "tests/data/two-layers.toml"
RINGS = tuple(f"{operation}=ring" for operation in ("all_reduce", "all_gather", "reduce_scatter"))
DEVICE = find_device("h100", "bfloat16")
US, MS = 1e-6, 1e-3


def request(ranks: int) -> EstimateRequest:
    return EstimateRequest(MODEL, Plan(tp=2, dp=ranks // 2, global_batch=ranks // 2, seq=64), algorithms=RINGS)


def job(line: str, ranks: int, texts: list[str], steps: int = 5):
    topology, faults = build_topology(line), [parse_fault(text) for text in texts]
    check_faults(faults, topology, ranks, steps)
    return time_faulty_job(topology, faults, ranks, steps, times_of_estimate(request(ranks), DEVICE), DEVICE.name)


def on(topology: Topology, npus: list[int] | None = None, ranks: int = 8) -> float:
    placed = topology if npus is None else replace(topology, placer=lambda n, _: np.array(npus)[:n])
    return estimate(request(ranks), placed, DEVICE).step_time_s


def links(topology: Topology, *pairs: tuple[int, int]) -> list[int]:
    ends = zip(topology.links.src.tolist(), topology.links.dst.tolist(), strict=True)
    return [i for i, (a, b) in enumerate(ends) if (a, b) in pairs or (b, a) in pairs]


def slow(topology: Topology, share: float, *pairs: tuple[int, int]) -> Topology:
    rates = topology.links.bandwidth_Bps.copy()
    rates[links(topology, *pairs)] *= share
    return replace(topology, links=replace(topology.links, bandwidth_Bps=rates), symmetry=None)


@dataclass
class Case:
    """A fault that a system survives, the fabric that it then is, and what that takes."""

    line: str
    fault: str
    built: callable
    mending_s: float
    ranks: int = 8
    npus: list[int] | None = None

    def __str__(self) -> str:
        return f"{self.line} {self.fault}"


HBD = "infinitehbd:dims=1x5x2x4,k=2,tp=8"  # the first ring is of nodes 0 and 2
RACK = "ub-mesh:rack-full:dims=2x4"
RAIL = "railx:torus:m=2,n=2,nodes=3x3"
HPN = "hpn:segment:dims=2x4,backup=1"
FLEX = "flex-sipac:r=4,L=2,jobs=8"
SYSTEMS = (HBD, RACK, RAIL, HPN, FLEX)


def flexed(jobs, dark=()):
    now = reconfigure(initial(Levels("flex-sipac", 4, 2, 60)), [np.arange(8)])
    pairs = {(a, b) for a, b in dark} | {(b, a) for a, b in dark}
    gone = np.array([pair in pairs for pair in zip(now.near.src.tolist(), now.near.dst.tolist(), strict=True)])
    return topology_of(reconfigure(now, jobs, dark=gone))


SURVIVED = [
    Case(HBD, "npu 2 at step 3", lambda _: build_topology(f"{HBD},faulty=0"), 70 * US),
    Case(HBD, "link 0-1 at step 3", lambda t: remove_parts(t, links=links(t, (0, 1))), 0),
    Case(HBD, "nic 3 slow 0.5 at step 3", lambda t: slow(t, 0.5, (3, 40)), 0),
    Case(HBD, "link 0-1 slow 0.5 at step 3", lambda t: slow(t, 0.5, (0, 1)), 0),
    Case(RACK, "npu 5 at step 3", lambda t: remove_parts(t, nodes=[5]), 0.6 * US, npus=[0, 1, 2, 3, 4, 40, 6, 7]),
    Case(RACK, "link 0-1 at step 3", lambda t: remove_parts(t, links=links(t, (0, 1))), 0.6 * US),
    Case(RACK, "switch 9 at step 3", lambda t: remove_parts(t, nodes=[9]), 0.3 * US),
    Case(RACK, "link 0-1 slow 0.5 at step 3", lambda t: slow(t, 0.5, (0, 1)), 0),
    Case(RACK, "nic 3 at step 3", lambda t: remove_parts(t, links=links(t, *nic_of(t, 3))), 0.6 * US),
    Case(RAIL, "npu 5 at step 3", lambda _: build_topology("railx:torus:m=2,n=2,nodes=2x3"), 6 * MS),
    Case(RAIL, "link 1-4 at step 3", lambda t: remove_parts(t, links=links(t, (1, 4))), 0),
    Case(RAIL, "link 0-1 slow 0.5 at step 3", lambda t: slow(t, 0.5, (0, 1)), 0),
    Case(HPN, "npu 5 at step 3", lambda t: remove_parts(t, nodes=[5]), 0, npus=[0, 1, 2, 3, 8, 9, 10, 11]),
    Case(HPN, "link 0-15 at step 3", lambda t: remove_parts(t, links=links(t, (0, 15))), 1),
    Case(HPN, "switch 15 at step 3", lambda t: remove_parts(t, nodes=[15]), 1),
    Case(HPN, "nic 0 at step 3", lambda t: remove_parts(t, links=links(t, (0, 15), (0, 16))), 1),
    Case(HPN, "nic 0 slow 0.5 at step 3", lambda t: slow(t, 0.5, (0, 15), (0, 16)), 0),
    Case(FLEX, "npu 5 at step 3", lambda _: flexed([np.arange(8, 16)]), 70 * US, npus=list(range(8, 16))),
    Case(FLEX, "link 0-1 at step 3", lambda _: flexed([np.arange(8)], [(0, 1)]), 70 * US),
    Case(FLEX, "link 0-1 slow 0.5 at step 3", lambda t: slow(t, 0.5, (0, 1)), 0),
]


@pytest.mark.parametrize("case", SURVIVED, ids=str)
def test_a_step_takes_what_it_takes_on_a_fabric_built_without_the_part(case):
    found = job(case.line, case.ranks, [case.fault])
    assert found.stopped is None
    assert len(found.steps) == 5
    whole, left = on(build_topology(case.line)), on(case.built(build_topology(case.line)), case.npus)
    before, during, after = found.steps[:2], found.steps[2], found.steps[3:]
    assert [step.time_s for step in before] == [whole] * 2
    assert during.mending_s == pytest.approx(case.mending_s, rel=1e-12)
    assert during.time_s == left + during.mending_s
    assert [step.time_s for step in after] == [left] * 2
    assert during.events
    assert not any(step.events for step in (*before, *after))


def ends(line: str, node: int) -> list[str]:
    """All links of a node as faults."""
    near = build_topology(line).links
    return [f"link {node}-{other} at step 3" for other in np.unique(near.dst[near.src == node]).tolist()]


POD = "hpn:pod:dims=2x2x2,aggs=2,cross_rail=agg"
SURVIVED_NOT = [
    ("infinitehbd:dims=1x5x2x4,k=2,tp=40", 40, ["npu 2 at step 3"], "nodes in a row are left for a ring"),
    (HBD, 16, ["nic 3 at step 3"], "no route from node"),
    (HBD, 8, ["switch 40 at step 3"], "no route from node"),
    ("ub-mesh:rack", 64, ["npu 2 at step 3"], "ranks must be at most 63"),
    (RACK, 8, [*ends(RACK, 0), "npu 2 at step 3"], "NPU 0 is cut off, as no links join it to the others"),
    (RACK, 8, ["npu 2 at step 3", "npu 3 at step 3"], "ranks must be at most 7"),
    ("ub-mesh:board", 8, [f"link 0-{i} at step 3" for i in range(1, 8)], "NPU 0 is cut off, as no links join it"),
    ("railx:torus:m=2,n=1,nodes=2x2", 16, ["npu 2 at step 3"], "2 or more, got 1"),
    ("railx:hyperx:m=1,n=6", 48, ["npu 2 at step 3"], "the job cannot go on where a node of it fails"),
    ("hpn:segment:dims=2x4", 8, ["npu 2 at step 3"], "ranks must be at most 4"),
    (POD, 8, ["nic 3 at step 3"], "no route from node"),
    ("flex-sipac:r=4,L=2,jobs=16", 16, ["npu 2 at step 3"], "a block of CUs must be one of which none failed"),
    ("flex-sipac:r=2,L=1,jobs=2", 2, ["link 0-1 at step 3"], "one of which none failed, that links join and"),
    (POD, 8, [f"switch {switch} at step 3" for _, switch in nic_of(build_topology(POD), 3)], "no route from node"),
    *((line, 8, ["rank 2 kill at step 3"], "rank 2 was killed, and its state with it") for line in SYSTEMS),
]


@pytest.mark.parametrize(("line", "ranks", "texts", "said"), SURVIVED_NOT, ids=str)
def test_where_the_system_cannot_the_job_stops_and_the_cause_is_named(line, ranks, texts, said):
    found = job(line, ranks, texts)
    assert [step.step for step in found.steps] == [1, 2]
    assert found.stopped.startswith("step 3: ")
    assert said in found.stopped
    assert "\n" not in found.stopped


@pytest.mark.parametrize("line", [RACK, RAIL, FLEX])
def test_an_npu_that_no_link_joins_any_more_is_passed_as_one_that_failed(line):
    found, failed = (job(line, 8, texts) for texts in (ends(line, 0), ["npu 0 at step 3"]))
    assert [step.time_s for step in found.steps] == [step.time_s for step in failed.steps]


def test_what_comes_back_serves_as_before():
    found = job(RACK, 8, ["link 0-1 from step 2 to 3"])
    times = [step.time_s - step.mending_s for step in found.steps]
    whole, left = on(build_topology(RACK)), times[2]
    assert left > whole
    assert times == pytest.approx([whole, left, left, whole, whole], rel=1e-12)
    assert found.steps[3].events == ("link 0-1 is as before",)
    assert [step.mending_s > 0 for step in found.steps] == [False, True, False, True, False]


def test_a_second_fault_pays_for_its_own_mending_only():
    found = job(HBD, 8, ["npu 2 at step 2", "link 12-13 at step 4"])
    assert [step.mending_s for step in found.steps] == pytest.approx([0, 70 * US, 0, 0, 0])
    assert found.goodput == pytest.approx(found.undisturbed_s / sum(step.time_s for step in found.steps))


@pytest.mark.parametrize("line", SYSTEMS)
def test_a_slow_npu_computes_longer_and_no_link_is_slower(line):
    found = job(line, 8, [f"npu {build_topology(line).place(8)[5]} slow 0.5 from step 2 to 2"])
    whole = estimate(request(8), build_topology(line), DEVICE)
    assert found.steps[0].time_s == whole.step_time_s
    more = found.steps[1].time_s - whole.step_time_s
    assert 0.3 * whole.compute_s < more < 1.5 * whole.compute_s  # of all of it, some is hidden
    assert found.steps[2].time_s == whole.step_time_s


def test_a_fault_off_the_job_changes_nothing_on_other_fabrics_than_those_that_relay():
    found = job("switch:n=10,bandwidth=50GB/s,latency=500ns", 8, ["npu 9 at step 2", "nic 8 slow 0.1 at step 3"])
    assert len({step.time_s for step in found.steps}) == 1


def test_a_slow_npu_slows_the_rank_that_an_order_of_axes_gives_it():
    """The first stage has most layers; with pp first, NPU 1 has rank 2, of the second stage."""
    topology, plan = build_topology("big-switch:n=4"), Plan(pp=2, dp=2, layers=(6, 2), global_batch=8, seq=64, microbatch=1)
    step_s = {}
    for axes, npu in product(((), ("pp", "dp")), (1, 2)):
        asked = EstimateRequest("llama-tiny", plan, algorithms=RINGS, axes=axes)
        fault = [parse_fault(f"npu {npu} slow 0.1 at step 1")]
        found = time_faulty_job(topology, fault, 4, 1, times_of_estimate(asked, DEVICE), DEVICE.name)
        step_s[axes, npu] = found.steps[0].time_s
    assert step_s[(), 1] > 1.5 * step_s[(), 2]
    assert step_s[("pp", "dp"), 2] == pytest.approx(step_s[(), 1], rel=1e-9)
    assert step_s[("pp", "dp"), 1] == pytest.approx(step_s[(), 2], rel=1e-9)
