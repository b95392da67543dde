"""Faults at times meet the steps that ran: each step is what the engine says for the fabric that it meets, at its time."""

import numpy as np
import pytest
import torch
import torch.distributed as dist
from torch import nn

from emu.cluster.threads.threads import LocalCluster
from emu.collective.choice import Choice
from emu.errors import InputError
from emu.fabric.run import CapacityEvent, run_graph
from emu.model.stack.stack import Stack
from emu.study.live.faulty_job import FaultyJob, times_of_trace
from emu.study.live.timed_faults import ends_fs, laid, run_through_timed_faults
from emu.topology.catalogue import build_topology
from emu.topology.fault_injection.fault import check_before_end, parse_fault
from emu.topology.fault_injection.fault_script import faults_of
from emu.topology.fault_injection.machine_history import MachineHistory
from emu.topology.fault_injection.machine_state import machine_state
from emu.topology.topology import Topology
from emu.trace.replay.replay import TraceLayout
from emu.trace.trace import Trace
from emu.units import seconds
from launch.data.devices import find_device

DEVICE = find_device("h100", "bfloat16")
CHOICE = Choice.parse(("all_reduce=ring", "all_to_all=at-once", "broadcast=binomial"))
RACK = build_topology("ub-mesh:rack-full:dims=2x4")
TORUS = build_topology("torus:dims=2x4,bandwidth=50GB/s,latency=500ns")
STEPS = 4


def program(rank: int) -> None:
    module = nn.Linear(1024, 1024, bias=False)
    optimizer = torch.optim.SGD(module.parameters(), 0.1)
    for _ in range(STEPS):
        module(torch.ones(8, 1024)).sum().backward()
        for parameter in module.parameters():
            dist.all_reduce(parameter.grad)
            dist.all_to_all_single(torch.empty_like(parameter.grad), parameter.grad)
        optimizer.step()


@pytest.fixture(scope="module")
def trace() -> Trace:
    return LocalCluster().run_traced(8, CHOICE, program)[1]


def job(trace: Trace, topology: Topology, *texts: str) -> FaultyJob:
    faults = faults_of(texts, topology, 8, STEPS, clock=True)
    return run_through_timed_faults(TraceLayout(trace, CHOICE, topology, DEVICE, "bfloat16"), Stack(), faults)


def times(found: FaultyJob) -> list[float]:
    return [step.time_s for step in found.steps]


def on(trace: Trace, topology: Topology, *texts: str) -> list[float]:
    """Return the time of every step on the fabric that the faults leave."""
    found = machine_state(topology, [parse_fault(text) for text in texts], 8)
    return list(times_of_trace(trace, lambda _: CHOICE, DEVICE, "bfloat16", Stack())(found))


def test_without_a_fault_in_time_the_steps_are_those_of_the_whole_fabric(trace: Trace) -> None:
    found = job(trace, RACK, "link 0-1 at 1s")
    assert times(found) == on(trace, RACK)
    assert found.goodput == pytest.approx(1, rel=1e-12)
    with pytest.raises(
        InputError, match=r"the moment of 'link 0-1 at 1s' must be before .*, when the job has ended, got '1 s'"
    ):
        check_before_end([parse_fault("link 0-1 at 1s")], sum(times(found)))


@pytest.mark.parametrize("what", ["link 0-1", "link 0-1 slow 0.5", "npu 5 slow 0.25"])
def test_a_fault_from_the_first_tick_on_is_a_fabric_built_so(trace: Trace, what: str) -> None:
    assert times(job(trace, TORUS, f"{what} at 0s")) == pytest.approx(on(trace, TORUS, f"{what} at step 1"), rel=1e-9)


def test_a_link_halved_in_the_middle_is_what_the_engine_has_for_such_a_change(trace: Trace) -> None:
    recorded = TraceLayout(trace, CHOICE, TORUS, DEVICE, "bfloat16")
    whole = MachineHistory(TORUS, (), 8).whole
    replayed, at_fs = laid(recorded, Stack(), whole.found, whole.speed), 10**10
    links = TORUS.links
    pair = np.flatnonzero(np.isin(links.src, (0, 1)) & np.isin(links.dst, (0, 1)))
    events = [CapacityEvent(int(link), at_fs, 25e9) for link in pair]
    events += [CapacityEvent(int(link), 2 * at_fs, 50e9) for link in pair]
    ends = ends_fs(trace, replayed, run_graph(replayed.graph, events).end_fs)
    found = job(trace, TORUS, "link 0-1 slow 0.5 from 10us to 20us")
    assert times(found) == [seconds(t) for t in np.diff(ends, prepend=0).tolist()]
    assert times(found) != on(trace, TORUS)


def test_a_link_that_is_lost_in_the_middle_shows_in_the_step_it_meets(trace: Trace) -> None:
    whole, left = on(trace, RACK), on(trace, RACK, "link 0-1 at step 1")
    middle_s = whole[0] + whole[1] * 0.6
    found = job(trace, RACK, f"link 0-1 at {middle_s * 1e6:.3f}us")
    first, second, *rest = times(found)
    assert first == whole[0]
    assert whole[1] < second < left[1] + found.mending_s
    assert rest == pytest.approx(left[2:], rel=0.01)
    assert found.mending_s == pytest.approx(0.6e-6, rel=1e-6)
    assert found.steps[1].events == (f"link 0-1 failed at {middle_s * 1e6:.4g} us",)
    assert "other paths" in found.steps[1].told
    assert found.steps[3].topology == f"{RACK.name} without the link NPU 0 to NPU 1"


def test_what_comes_back_serves_as_before(trace: Trace) -> None:
    whole = on(trace, RACK)
    found = job(trace, RACK, f"link 0-1 from {whole[0] * 0.5e6:.3f}us to {whole[0] * 1.5e6:.3f}us")
    assert times(found)[0] > whole[0]
    assert times(found)[3] == pytest.approx(whole[3], rel=0.01)
    assert found.steps[3].topology == RACK.name


def test_a_step_in_which_an_npu_of_the_job_fails_begins_anew_on_a_spare(trace: Trace) -> None:
    whole, left = on(trace, RACK), on(trace, RACK, "npu 5 at step 1")
    at_s = whole[0] + 0.5 * whole[1]
    found = job(trace, RACK, f"npu 5 at {at_s * 1e6:.3f}us")
    assert times(found)[0] == whole[0]
    assert times(found)[1] == pytest.approx(0.5 * whole[1] + found.mending_s + left[0], rel=0.03)
    assert times(found)[2:] == pytest.approx(left[2:], rel=0.01)


def test_a_lost_step_begins_anew_once_its_own_npu_is_replaced_and_repairs_at_one_time_count_once(trace: Trace) -> None:
    """The repair of a link ends while that of the NPU, begun 0.3 us later, is under way; each takes 0.6 us."""
    whole = on(trace, RACK)
    left = on(trace, RACK, "npu 5 at step 1", "link 0-1 at step 1")
    at_us = (whole[0] + 0.5 * whole[1]) * 1e6
    found = job(trace, RACK, f"link 0-1 at {at_us - 0.3:.3f}us", f"npu 5 at {at_us:.3f}us")
    assert found.mending_s == pytest.approx(0.9e-6, rel=1e-6)
    assert times(found)[1] >= 0.5 * whole[1] + 0.6e-6 + left[0]
    assert times(found)[1] == pytest.approx(0.5 * whole[1] + 0.6e-6 + left[0], rel=0.03)


def test_the_job_stops_where_nothing_goes_on_and_says_when_and_why(trace: Trace) -> None:
    whole = on(trace, TORUS)
    at = f"{(whole[0] + whole[1] / 2) * 1e6:.3f}us"
    killed = job(trace, TORUS, f"rank 3 kill at {at}")
    assert times(killed) == whole[:1]
    assert killed.stopped.startswith("step 2, at ")
    assert "rank 3 was killed, and its state with it" in killed.stopped
    alone = job(trace, TORUS, *(f"link 0-{i} at {at}" for i in (1, 3, 4)))
    assert times(alone) == whole[:1]
    assert "link 0-4 failed, and the job cannot go on: " in alone.stopped


def test_random_faults_at_times_are_what_their_seed_says(trace: Trace) -> None:
    words = "random link=0.05 npu=0.01 slow=0.7 repair=1 every=20us steps=5 seed={}"
    first, again, other = (job(trace, RACK, words.format(seed)) for seed in (3, 3, 4))
    assert first == again
    assert first.faults != other.faults
    assert all("us" in fault and "step" not in fault for fault in first.faults)
    assert len(first.faults) > 3


def test_optical_switches_that_turn_have_no_lasting_links_to_fail(trace: Trace) -> None:
    with pytest.raises(InputError, match="must be one with lasting links"):
        job(trace, build_topology("infinitehbd:binary:nodes=16"), "npu 0 slow 0.5 at 1us")
