"""A recorded step on a fabric: overlap, what served it, and the same figures every time."""

import json
from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from emu.backend.rank.record import Recording
from emu.cluster.threads.threads import ThreadRanks
from emu.collective.choice import AlgorithmOnDims, Choice, Request
from emu.errors import InputError
from emu.study.training.step.choices import choice_for, choice_of, with_choice
from emu.study.training.step.step import TimedTrace, algorithms_by_axis, algorithms_of, time_trace
from emu.topology.catalogue import build_topology
from emu.trace.device.device import Device
from emu.trace.replay.replay import TraceLayout
from emu.trace.replay.replay_graph import Service
from emu.trace.trace import Trace
from emu.units import format_time, seconds
from tests.trace.laid import Words
from tests.trace.walked import walked

DEVICE = Device("a-device", {"float32": 1e12, "bfloat16": 2e12}, hbm_Bps=1e12)
SWITCH = "switch:n=4,bandwidth=50GB/s,latency=500ns"


def three_buckets(rank: int) -> None:
    torch.manual_seed(0)
    layers = nn.Sequential(*(nn.Linear(256, 256, bias=False) for _ in range(3)))
    module = DistributedDataParallel(layers, bucket_cap_mb=0.2)  # a layer of 256 KiB a bucket
    optimizer = torch.optim.SGD(module.parameters(), 0.1)
    for _ in range(3):
        optimizer.zero_grad()
        module(torch.ones(64, 256)).square().mean().backward()
        optimizer.step()


@pytest.fixture(scope="module")
def trace() -> Trace:
    recording = Recording(4)
    ThreadRanks(4, recording=recording).run(three_buckets)
    return recording.trace()


def timed(trace: Trace, words: tuple[str, ...] = (), topology: str = SWITCH) -> TimedTrace:
    return time_trace(TraceLayout(trace, Choice.parse(words), build_topology(topology), DEVICE, "float32"))


def test_three_buckets_of_ddp_hide_behind_the_backward(trace: Trace) -> None:
    events = trace.events_of(0)
    last = int(events.step.max())
    buckets = [i for i in range(len(events)) if events.name[i] == "all_reduce" and events.step[i] == last]
    assert len(buckets) == 3
    step = timed(trace).step()
    assert 0 < step.exposed_comm_s < step.total_comm_s
    assert repr(step) == f"<Step {SWITCH}: {format_time(step.step_time_s)}>"


def with_a_fast_rank(trace: Trace, times: float) -> Trace:
    """Return the trace as if all ranks but the first computed so many times as much."""
    slow = replace(trace.events[0], flops=trace.events[0].flops * times)
    twice = np.repeat(trace.peak_by_part, 2, axis=0)
    return replace(trace, events=(trace.events[0], slow), role_of_rank=np.array([0, 1, 1, 1], np.int32), peak_by_part=twice)


@pytest.mark.parametrize("times", [1, 100])
def test_a_step_is_what_a_walk_over_its_instants_finds(trace: Trace, times: float) -> None:
    trace = with_a_fast_rank(trace, times)
    done = timed(trace, ("all_reduce=direct",))
    rank, step, found, total, waited = walked(trace, done.replayed, done.timeline, done.report.step)
    told = done.step()
    assert (done.report.rank, told.step_time_s, told.total_comm_s) == (rank, seconds(step), seconds(total))
    assert (told.compute_s, told.idle_s) == (seconds(found["compute"]), seconds(found["idle"]))
    ticks = [int(DEVICE.ticks(e, "float32")[e.step == done.report.step].sum()) for e in trace.events]
    assert (told.rank, told.compute_least_s, told.compute_most_s) == (rank, seconds(min(ticks)), seconds(max(ticks)))
    assert told.early_compute_s == seconds(ticks[trace.role_of_rank[rank]] - found["compute"])
    assert told.exposed_comm_by_axis_s == {"world": seconds(found["world"])}
    assert told.exposed_comm_s == seconds(found["world"]) > 0
    assert (found["idle"] > 0) == (times > 1)
    assert told.straggling_by_rank_s == {rank: seconds(t) for rank, t in waited.items()}


def test_peak_memory_is_that_of_the_rank_that_holds_most(trace: Trace) -> None:
    peaks, roles = np.array([[0, 0, 0, 7], [1, 2, 3, 2**33], [9, 0, 0, 0]]), np.array([0, 1, 2, 0], np.int32)
    apart = replace(trace, events=trace.events * 3, role_of_rank=roles, peak_by_part=peaks)
    step = timed(apart).step()
    assert step.peak_memory_bytes == 2**33 + 6
    assert step.memory_by_part_bytes == {"weights": 1, "gradients": 2, "optimizer_state": 3, "activations": 2**33}


def test_a_faster_fabric_hides_more_of_its_communication(trace: Trace) -> None:
    fast = timed(trace, topology="switch:n=4,bandwidth=5000GB/s,latency=0s").step()
    slow = timed(trace, topology="switch:n=4,bandwidth=1GB/s,latency=500ns").step()
    assert fast.exposed_comm_s / fast.total_comm_s < slow.exposed_comm_s / slow.total_comm_s
    assert slow.exposed_comm_s > 0.9 * slow.total_comm_s


def test_the_same_trace_takes_the_same_ticks_every_time(trace: Trace) -> None:
    first, second = timed(trace), timed(trace)
    assert (first.timeline.end_fs == second.timeline.end_fs).all()
    assert first.report.step_times_fs == second.report.step_times_fs


def test_a_trace_remembers_what_served_it_and_another_choice_overrides(trace: Trace) -> None:
    ran = with_choice(trace, Choice.parse(("all_reduce=direct",)))
    assert choice_of(ran).name("all_reduce") == "direct"
    assert choice_for(ran, ("all_reduce=ring",), build_topology(SWITCH), "float32").name("all_reduce") == "ring"
    assert timed(trace, ("all_reduce=direct",)).step().algorithms["all_reduce"] == "direct"
    assert timed(trace, ("all_reduce=direct",)).step().step_time_s != timed(trace).step().step_time_s


def test_a_step_served_as_the_run_was_says_nothing_of_it_and_another_says_so(trace: Trace) -> None:
    ran = with_choice(trace, Choice.parse(("all_reduce=direct",)))
    said = "the run itself was served by other algorithms, which change no size and no order of requests"
    assert said not in timed(ran, ("all_reduce=direct",)).step().assumptions
    assert said in timed(ran, ("all_reduce=ring",)).step().assumptions
    assert said not in timed(trace, ("all_reduce=direct",)).step().assumptions  # what served the run is not known


def test_what_served_is_noted_in_the_order_of_the_names_so_that_equal_runs_are_equal_files(trace: Trace) -> None:
    names = ("reduce_scatter", "all_gather", "broadcast", "all_to_all", "scatter", "all_reduce", "reduce", "gather")
    words = Words()
    rows = [words.collective(8, name, instance=i) for i, name in enumerate(names)]
    ran = with_choice(replace(trace, events=(words.events(*rows),)), Choice())
    noted = dict(ran.meta)["algorithms"].split()
    assert [word.partition("=")[0] for word in noted] == sorted(names)


def test_an_operation_all_of_whose_requests_had_a_choice_of_their_own_has_no_word_for_all(trace: Trace) -> None:
    events = Words()
    one = replace(trace, events=(events.events(events.collective(8, "all_reduce")),))
    noted = dict(with_choice(one, choice_for(one, ("auto",), build_topology(SWITCH), "float32")).meta)
    assert noted["algorithms"] == ""
    assert len(json.loads(noted["requests"])) == 1


def test_a_trace_remembers_the_grid_that_served_it(trace: Trace) -> None:
    ran = with_choice(trace, Choice.parse(("all_reduce=torus-buckets:2x2",)))
    assert choice_of(ran).dims == {"all_reduce": (2, 2)}
    assert timed(ran, ("all_reduce=torus-buckets:2x2",)).step().algorithms["all_reduce"] == "torus-buckets:2x2"


def test_what_a_figure_rests_on_is_said(trace: Trace) -> None:
    said = " ".join(timed(trace, topology="ub-mesh:board").step().assumptions)
    for words in (
        "a lane carries 112 Gb/s",
        f"{DEVICE.gemm_share:g} of the a-device's peak",
        "the first of the 8 NPUs",
        "peak memory",
        "messages share the bandwidth of a link max-min fairly",
        "adding what arrives takes no time",
    ):
        assert words in said
    assert "timed as" not in said
    assert (
        "what ran in float32 is timed as bfloat16"
        in time_trace(TraceLayout(trace, Choice(), build_topology(SWITCH), DEVICE, "bfloat16")).step().assumptions
    )


def test_a_trace_without_a_step_and_one_too_large_for_the_topology_are_refused(trace: Trace) -> None:
    recording = Recording(4)
    ThreadRanks(4, recording=recording).run(lambda _: None)
    with pytest.raises(InputError, match="must hold a step after set-up"):
        timed(recording.trace())
    with pytest.raises(InputError, match="4 ranks do not fit"):
        timed(trace, topology="switch:n=3,bandwidth=50GB/s,latency=500ns")


def test_a_step_that_does_not_feed_back_has_no_spread(trace: Trace) -> None:
    on = build_topology(SWITCH), DEVICE, "float32"
    assert time_trace(TraceLayout(trace, Choice(), *on), perturb=3).step().spread is None
    with pytest.raises(InputError, match="perturb: the number of runs must be 0, or 2 or more, got 1"):
        time_trace(TraceLayout(trace, Choice(), *on), perturb=1)


def with_a_checkpoint_and_a_reference(rank: int) -> None:
    """Five steps of DDP, of which the second rebuilds its buckets and the last saves; then six of one process."""
    torch.manual_seed(0)
    alone = nn.Linear(16, 16)
    module = DistributedDataParallel(nn.Linear(16, 16))
    for trained, steps in ((module, 5), (alone, 6)):
        optimizer = torch.optim.SGD(trained.parameters(), 0.1)
        for step in range(steps):
            optimizer.zero_grad()
            trained(torch.ones(4, 16)).sum().backward()
            if trained is module and step == 4:
                torch.distributed.all_reduce(module.module.weight.detach().clone())
            optimizer.step()


def test_a_checkpoint_and_a_reference_beside_are_not_the_step_of_a_run() -> None:
    recording = Recording(4)
    ThreadRanks(4, recording=recording).run(with_a_checkpoint_and_a_reference)
    step = timed(recording.trace()).step()
    assert step.step_groups == ((3, 4), (1,), (2,), (5,), (6, 7, 8, 9, 10, 11))
    assert step.step_time_s == min(step.step_times_s[2:4]) == step.step_times_s[step.step - 1]
    assert step.total_comm_s > 0


def test_sizes_are_told_where_what_serves_differs_smallest_first_in_whatever_order_they_were_asked() -> None:
    """A step asks for a large bucket before a small one, and for an all_reduce before an all_gather."""

    def asked(name: str, size: int, by: str) -> Service:
        return Service(Request(name, (0, 1), 0, size // 4), size, AlgorithmOnDims.parse(name, by))

    rows = [asked("all_reduce", s, "ring" if s > 100 else "direct") for s in (1024, 64, 16, 4)]
    assert [*algorithms_of([*rows, asked("all_gather", 8, "ring")]).items()] == [
        ("all_gather", "ring"),
        ("all_reduce", "direct 4 B to 64 B, ring 1 KiB"),
    ]


def test_what_served_each_axis_is_told_apart() -> None:
    def asked(axis: str, size: int, by: str) -> Service:
        request = Request("all_reduce", (0, 1), 0, size // 4, axis=axis)
        return Service(request, size, AlgorithmOnDims.parse("all_reduce", by))

    rows = [asked("tp", 64, "direct"), asked("dp", 64, "ring"), asked("tp", 1024, "ring")]
    assert algorithms_by_axis(rows) == {
        "dp": {"all_reduce": "ring"},
        "tp": {"all_reduce": "direct 64 B, ring 1 KiB"},
    }
