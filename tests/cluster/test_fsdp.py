"""FSDP2 as it would overlap on a device: four layers, on four ranks."""

import threading
from functools import cache

import pytest
import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard

from emu.backend.rank.record import Recording
from emu.cluster.rank_state.cpu_device import emulate_device
from emu.cluster.threads.threads import ThreadRanks
from emu.collective.choice import Choice
from emu.study.training.step.step import time_trace
from emu.topology.catalogue import build_topology
from emu.trace.device.device import Device
from emu.trace.replay.replay import TraceLayout
from emu.trace.trace import PARTS

WIDTH, LAYERS, STEPS = 256, 4, 2
DEVICE = Device("a-device", {"float32": 1e12}, hbm_Bps=1e12)


@cache
def recorded(hsdp=False, reshard=True):
    def program(rank):
        torch.manual_seed(0)
        shape, names = ((2, 2), ("replicate", "shard")) if hsdp else ((4,), ("shard",))
        mesh = init_device_mesh("cpu", shape, mesh_dim_names=names)
        layers = nn.Sequential(*(nn.Linear(WIDTH, WIDTH, bias=False) for _ in range(LAYERS)))
        for layer in (*layers, layers):
            fully_shard(layer, mesh=mesh, reshard_after_forward=reshard)
        optimizer = torch.optim.SGD(layers.parameters(), 0.1)
        for _ in range(STEPS):
            layers(torch.ones(256, WIDTH)).square().mean().backward()
            optimizer.step()
            optimizer.zero_grad()

    recording = Recording(4)
    ThreadRanks(4, recording=recording).run(program)
    return recording.trace()


def timed(trace):
    switch = build_topology("switch:n=4,bandwidth=50GB/s,latency=500ns")
    return time_trace(TraceLayout(trace, Choice(), switch, DEVICE, "float32"))


def of_last_step(trace, name):
    events = trace.events_of(0)
    return [i for i in range(len(events)) if events.name[i] == name and events.step[i] == STEPS]


def spans(done, rows):
    """From when to when each of some requests of rank 0 went on: from the last wait of its to its end."""
    line, laid = done.timeline, done.replayed
    return [(int(line.end_fs[laid.begins[i]]), int(line.end_fs[laid.ends[i]])) for i in rows]


@pytest.mark.parametrize("hsdp", [False, True])
def test_communication_hides_behind_the_layers(hsdp):
    trace = recorded(hsdp)
    step = timed(trace).step()
    assert 0 < step.exposed_comm_s < 0.5 * step.total_comm_s
    assert set(step.exposed_comm_by_axis_s) == ({"replicate", "shard"} if hsdp else {"shard"})
    assert step.compute_s + step.exposed_comm_s + step.idle_s == pytest.approx(step.step_time_s, rel=1e-12)


def test_each_layer_is_gathered_under_the_one_before_and_reduced_under_the_one_after_in_backward():
    trace = recorded()
    done, events = timed(trace), trace.events_of(0)
    line, laid = done.timeline, done.replayed
    products = [(int(line.start_fs[laid.begins[i]]), int(line.end_fs[laid.begins[i]])) for i in of_last_step(trace, "aten.mm")]
    gathers, reduces = (spans(done, of_last_step(trace, name)) for name in ("all_gather", "reduce_scatter"))
    assert len(gathers) == 2 * LAYERS
    assert len(reduces) == LAYERS
    for layer in range(LAYERS - 1):  # forward: the next weights come while this layer computes
        assert gathers[layer + 1][0] < products[layer][1]
        assert gathers[layer + 1][1] <= products[layer + 1][0]
    backward = products[LAYERS:]  # two products a layer, one for the first, whose input needs no gradient
    for layer in range(LAYERS - 1):
        assert gathers[LAYERS + layer + 1][0] < backward[2 * layer][1]
        assert reduces[layer][0] < backward[2 * layer + 2][1]
    assert {int(events.stream[i]) for i in of_last_step(trace, "aten.mm")} == {0}
    assert all(events.stream[i] for name in ("all_gather", "reduce_scatter") for i in of_last_step(trace, name))


def test_as_a_cpu_has_it_all_communication_is_exposed(monkeypatch):
    """Without the streams nothing is hidden: what the test above measures is their doing."""
    monkeypatch.setattr("emu.cluster.threads.threads.emulate_device", lambda *_: threading.Lock())
    step = timed(recorded.__wrapped__()).step()
    assert step.exposed_comm_s > 0.9 * step.total_comm_s


@pytest.mark.parametrize("hsdp", [False, True])
def test_what_is_resharded_after_its_forward_is_not_held(hsdp):
    traces = [recorded(hsdp, reshard) for reshard in (True, False)]
    resharded, held = (dict(zip(PARTS, trace.peak_by_part[0].tolist(), strict=True)) for trace in traces)
    layer, shards = 4 * WIDTH * WIDTH, 2 if hsdp else 4
    assert traces[0].peak_bytes[0] + 2 * layer <= traces[1].peak_bytes[0]
    assert resharded["weights"] + 2 * layer <= held["weights"] == LAYERS * layer + LAYERS * layer // shards
    assert 0 < resharded["gradients"] <= LAYERS * layer // shards


def test_with_replicas_the_gradients_are_summed_on_a_stream_of_their_own():
    trace = recorded(hsdp=True)
    events = trace.events_of(0)
    sums, shares = of_last_step(trace, "all_reduce"), of_last_step(trace, "reduce_scatter")
    assert len(sums) == len(shares) == LAYERS
    assert {int(events.stream[i]) for i in sums}.isdisjoint(int(events.stream[i]) for i in shares)
    for share, total in zip(shares, sums, strict=True):
        assert share in events.wait[events.wait_start[total] : events.wait_start[total + 1]]


def test_all_is_as_before_once_the_ranks_have_run():
    def names():
        cpu = [getattr(torch.cpu, n) for n in ("Stream", "Event", "StreamContext", "stream", "current_stream")]
        return [*cpu, torch.accelerator.current_stream, torch.UntypedStorage.resize_]

    before = names()
    with emulate_device():
        assert all(a is not b for a, b in zip(before, names(), strict=True))
    assert names() == before


def test_streams_of_a_thread_that_is_no_rank_s_do_nothing():
    with emulate_device():
        made = torch.cpu.Stream()
        with torch.cpu.stream(made):
            assert torch.cpu.current_stream() == made
        event = made.record_event()
        event.wait()
        event.synchronize()
        made.wait_stream(torch.cpu.current_stream())
        made.synchronize()
        assert (event.query(), made.query()) == (True, True)
