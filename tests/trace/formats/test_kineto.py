"""Profiles of GPUs written by hand become events in order, and a step that is timed on a fabric."""

import json
import random
import tracemalloc

import numpy as np
import pytest

import emu
from emu.errors import InputError
from emu.trace.formats.kineto import json_events
from emu.trace.formats.kineto.json_events import EVENTS, json_entries
from emu.trace.formats.reading import reading_of
from emu.trace.formats.trace_formats import read_foreign
from emu.trace.trace import Kind
from emu.trace.trace_file import load, save
from tests.trace.formats.profiles import (
    COMPUTE,
    HOST,
    NCCL,
    call,
    collective,
    exchange,
    kernel,
    profile_of,
    span,
    step,
    step_of_ddp,
    two_ranks,
    write,
)

FAST, SLOW = "switch:n=2,bandwidth=400GB/s,latency=1us", "switch:n=2,bandwidth=100MB/s,latency=0s"


def rows_of(events):
    """Return each event with what it waits for, by name."""
    found = {}
    for row, name in enumerate(events.name):
        waits = events.wait[events.wait_start[row] : events.wait_start[row + 1]]
        found[name] = {events.name[w] for w in waits}
    return found


def waits_of(folder, profiled):
    """Return, by name, what each event waits for on two ranks that have the same profile."""
    for rank in range(2):
        write(folder, f"rank{rank}.json", profile_of(rank, profiled))
    return rows_of(read_foreign(folder).events[0])


def test_kernels_last_as_measured_and_nccl_becomes_requests(tmp_path):
    trace = read_foreign(two_ranks(tmp_path))
    for events in trace.events:
        assert events.name == ("gradient_2", "all_reduce", "gradient_1", "optimizer")
        assert events.kind.tolist() == [Kind.COMPUTE, Kind.COLLECTIVE, Kind.COMPUTE, Kind.COMPUTE]
        assert (events.lasts_s * 1e6).round(6).tolist() == [40, 100, 60, 20]
        assert (events.bytes[1], events.count[1], events.dtype[1]) == (4000, 1000, "float32")
        assert events.stream.tolist() == [0, 1, 0, 0]
        assert events.step.tolist() == [1] * 4
    assert [(g.axis, g.ranks) for g in trace.groups] == [("world", (0, 1))]


SENDING = {
    "void (anonymous namespace)::multimem_all_reduce_kernel<c10::BFloat16, 16>(c10::BFloat16*, unsigned long)": True,
    "void vllm::cross_device_reduce_2stage<__nv_bfloat16, 8>(vllm::RankData*, vllm::RankSignals)": True,
    "triton_poi_fused_one_shot_all_reduce_wait_tensor_0": False,  # compiled: named by the operators around it
    "void at::native::reduce_kernel<512, 1, at::native::ReduceOp<float> >()": False,
}


@pytest.mark.parametrize("name", SENDING)
def test_kernels_that_send_without_nccl_are_told(tmp_path, name):
    """They count as computations, as measured on the fabric that they ran on: nobody may take them for free of it."""
    events = [*step_of_ddp(), *kernel(name, 45, 170, 30, 5)]
    for rank in (0, 1):
        write(tmp_path, f"rank{rank}.json", profile_of(rank, events))
    assumed = emu.replay(tmp_path, topology=FAST).assumptions
    told = [
        each for each in assumed if "1 kernel that sends data without NCCL" in each and "as measured, on any fabric" in each
    ]
    assert len(told) == 2 * SENDING[name]


def test_order_comes_from_launches_and_waits_of_streams(tmp_path):
    (events, _) = read_foreign(two_ranks(tmp_path)).events
    waits = rows_of(events)
    assert waits["all_reduce"] == {"gradient_2"}
    assert waits["gradient_1"] == set()  # it only follows gradient_2 on its stream
    assert waits["optimizer"] == {"all_reduce"}


def test_the_step_is_timed_on_the_fabric_and_compared_with_the_measured_one(tmp_path):
    slow, fast = emu.replay(two_ranks(tmp_path), topology=[SLOW, FAST], algorithm="all_reduce=ring")
    assert slow.step_time_s == pytest.approx(40e-6 + 4000 / 100e6 + 20e-6 + 20e-6)  # gradient_1 lasts beyond the all_reduce
    assert fast.step_time_s == pytest.approx(120e-6)  # the all_reduce is hidden
    assert slow.measured_step_s == pytest.approx(160e-6)  # from the first kernel's start to the last one's end
    told = emu.replay(tmp_path, topology=FAST).text()
    assert "measured        160 us; the replay takes 25.0% less" in told
    assert "2 ranks on NVIDIA H100, 1 step, 6 computations on 2 streams, 2 collectives (200 us measured" in told


def test_events_of_cuda_order_streams_where_the_profile_has_them(tmp_path):
    """The side kernel waits for the first kernel, not for the second, which had ended by then as well."""
    waits = {"cuda_sync_kind": "Stream Wait Event", "stream": 9, "wait_on_stream": COMPUTE, "device": 0}
    side = [
        step(1, 0, 900),
        *kernel("first", 1, 10, 5, 1),
        call("cudaEventRecord", 3, 50),
        *kernel("second", 5, 20, 5, 2),
        call("cudaStreamWaitEvent", 6, 51),
        span("cuda_sync", "Stream Wait Event", 6, 1, 9, correlation=51, wait_on_cuda_event_record_corr_id=50, **waits),
        *kernel("side", 8, 100, 5, 3, stream=9),
        *collective("allreduce", 14, 200, 10, 4, 10, 10, [0, 1]),
    ]
    assert waits_of(tmp_path, side)["side"] == {"first"}


def test_without_events_a_kernel_waits_for_the_last_one_that_had_ended_when_it_began(tmp_path):
    """The third of another stream's kernels, which are all launched before it, begins later."""
    side = [
        step(1, 0, 900),
        *kernel("first", 1, 10, 5, 1),
        *kernel("second", 3, 20, 5, 2),
        *kernel("third", 5, 300, 5, 3),
        call("cudaStreamWaitEvent", 6, 51),
        *kernel("side", 8, 100, 5, 4, stream=9),
        *collective("allreduce", 14, 200, 10, 5, 10, 10, [0, 1]),
    ]
    assert waits_of(tmp_path, side)["side"] == {"second"}


def test_a_collective_waits_for_the_one_before_it_on_its_stream(tmp_path):
    two = [
        step(1, 0, 900),
        *kernel("work", 1, 10, 5, 1),
        *collective("allreduce", 14, 100, 10, 2, 10, 10, [0, 1]),
        *collective("broadcast", 16, 120, 10, 3, 10, 10, [0, 1]),
    ]
    assert "all_reduce" in waits_of(tmp_path, two)["broadcast"]


def test_a_collective_and_kernels_on_its_own_stream_follow_one_another(tmp_path):
    """A request does not occupy the stream of a trace, so that the order there must be said."""
    one = [
        step(1, 0, 900),
        *kernel("copy", 1, 10, 5, 1, stream=NCCL),
        *collective("allreduce", 14, 100, 10, 2, 10, 10, [0, 1]),
        *kernel("scale", 16, 120, 10, 3, stream=NCCL),
    ]
    waits = waits_of(tmp_path, one)
    assert (waits["all_reduce"], waits["scale"]) == ({"copy"}, {"all_reduce"})


def test_kernels_of_a_graph_wait_for_those_that_ended_while_their_stream_stood_still(tmp_path):
    """One call launches four kernels on two streams; the last one waits for the side stream."""
    parts = [("first", 10, 5, COMPUTE), ("side", 15, 30, 9), ("beside", 16, 10, COMPUTE), ("last", 46, 5, COMPUTE)]
    graph = [span("kernel", name, ts, dur, on, device=0, stream=on, correlation=1) for name, ts, dur, on in parts]
    more = [call("cudaStreamWaitEvent", 60, 90), *collective("allreduce", 61, 70, 5, 2, 4, 4, [0, 1])]
    waits = waits_of(tmp_path, [step(1, 0, 900), call("cudaGraphLaunch", 1, 1), *graph, *more])
    assert waits["side"] == {"first"}
    assert waits["beside"] == set()
    assert waits["last"] == {"side"}


def test_a_host_that_synchronises_launches_nothing_before(tmp_path):
    events = [*step_of_ddp(), call("cudaDeviceSynchronize", 60, 70, dur=115), *kernel("after", 180, 190, 10, 5)]
    waits = waits_of(tmp_path, events)
    assert waits["after"] == {"synchronize"}
    assert waits["synchronize"] == {"optimizer", "all_reduce"}


def test_the_time_of_the_host_counts_when_asked_for(tmp_path):
    """The second kernel is launched late: its stream stands still for the host."""
    events = [
        step(1, 0, 900),
        *kernel("first", 1, 2, 5, 1),
        *kernel("second", 300, 301, 5, 2),
        *collective("allreduce", 302, 307, 10, 3, 10, 10, [0, 1]),
    ]
    for rank in range(2):
        write(tmp_path, f"rank{rank}.json", profile_of(rank, events))
    without, kept = (emu.replay(tmp_path, topology=FAST, host_time=host)[0] for host in (False, True))
    assert without.step_time_s < 20e-6
    assert kept.step_time_s == pytest.approx(306e-6, rel=0.02)
    assert kept.compute_s == pytest.approx(10e-6)  # the host's work is none of the device's
    assert any(part.what == "host" and part.time_s > 290e-6 for part in kept.critical_path)


def test_sizes_of_operations_are_those_that_emu_records(tmp_path):
    made = [("_allgather_base", 5, 10), ("_reduce_scatter_base", 10, 5), ("broadcast", 7, 7), ("all_to_allv", 12, 12)]
    events = [step(1, 0, 900)]
    for at, (what, given, got) in enumerate(made):
        splits = {"In split size": "[2, 1]"} if what == "all_to_allv" else {}
        events += collective(what, 10 * at, 10 * at + 5, 4, at, given, got, [0, 1], **splits)
    for rank in range(2):
        write(tmp_path, f"rank{rank}.json", profile_of(rank, events))
    of_rank = read_foreign(tmp_path).events[0]
    assert list(zip(of_rank.name, of_rank.count.tolist(), strict=True)) == [
        ("all_gather", 10),
        ("reduce_scatter", 10),
        ("broadcast", 7),
        ("all_to_all", 12),
    ]
    assert of_rank.split.tolist() == [8, 4]


def test_an_older_profile_has_sizes_in_annotations_and_no_groups(tmp_path):
    told = {"Input Dims": [[25, 4]], "Input type": ["c10::BFloat16"]}
    events = [
        step(1, 0, 900),
        *kernel("ncclKernel_AllReduce_RING_LL_Sum_bf16", 12, 20, 10, 1, NCCL),
        span("user_annotation", "nccl:all_reduce", 10, 5, HOST, **told),
    ]
    for rank in range(2):
        write(tmp_path, f"rank{rank}.json", profile_of(rank, events))
    trace = read_foreign(tmp_path)
    assert (trace.events[0].name, trace.events[0].dtype, trace.events[0].bytes.tolist()) == (
        ("all_reduce",),
        ("bfloat16",),
        [200],
    )
    assert "are taken to be all 2 ranks" in reading_of(trace).assumptions[0]


def test_ranks_without_a_file_do_what_equal_ranks_do(tmp_path):
    """Two hosts of tp=2; only the first has files."""

    def of_rank(rank):
        tp, dp = {"Process Group Description": "mesh_tp"}, {"Process Group Description": "mesh_dp"}
        return [
            step(1, 0, 900),
            *kernel("work", 1, 2, 5 + rank, 1),
            *collective("allreduce", 10, 20, 5, 2, 8, 8, [0, 1], **tp),
            *collective("allreduce", 12, 30, 5, 3, 6, 6, [rank, rank + 2], **dp),
        ]

    for rank in range(2):
        write(tmp_path, f"rank{rank}.json", profile_of(rank, of_rank(rank), world=4))
    with pytest.raises(InputError, match=r"has 2 of 4 ranks, but not 2, 3; add their files"):
        read_foreign(tmp_path)
    trace = read_foreign(tmp_path, fill_ranks=True)
    assert trace.role_of_rank.tolist() == [0, 1, 0, 1]
    groups = [{trace.groups[g].axis: trace.groups[g].ranks for g in of} for of in trace.group_of]
    assert groups == [
        {"tp": (0, 1), "dp": (0, 2)},
        {"tp": (0, 1), "dp": (1, 3)},
        {"tp": (2, 3), "dp": (0, 2)},
        {"tp": (2, 3), "dp": (1, 3)},
    ]
    assert reading_of(trace).filled_ranks == (2, 3)
    topology = "switch:n=4,bandwidth=400GB/s,latency=1us"
    assert emu.replay(tmp_path, topology=topology, fill_ranks=True)[0].ranks == 4


def stages(folder):
    """Write the profiles of two ranks of a pipeline, which exchange tensors by batch_isend_irecv."""
    for rank in range(2):
        events = [
            step(1, 0, 900),
            *kernel("forward", 1, 2, 20, 1),
            *exchange("send", 5, 1 - rank, 100 + rank),
            *exchange("recv_", 10, 1 - rank, 101 - rank),
            *kernel("ncclDevKernel_SendRecv", 20, 30, 40, 2, NCCL),
            call("cudaStreamWaitEvent", 22, 90),
            *kernel("backward", 24, 80, 20, 3),
        ]
        write(folder, f"rank{rank}.json", profile_of(rank, events))
    return folder


def test_one_kernel_sends_several_messages(tmp_path):
    """The next kernel waits for both messages."""
    trace = read_foreign(stages(tmp_path))
    for rank, events in enumerate(trace.events):
        assert events.name == ("forward", "send", "recv", "messages sent together", "backward")
        assert events.bytes.tolist() == [0, 200 + 2 * rank, 202 - 2 * rank, 0, 0]
        assert events.root.tolist() == [0, 1 - rank, 1 - rank, 0, 0]
        waits = rows_of(events)
        assert waits["send"] == waits["recv"] == {"forward"}
        assert waits["messages sent together"] == {"send", "recv"}
        assert waits["backward"] == {"messages sent together"}
    assert reading_of(trace).collective_s == pytest.approx(80e-6)  # of two kernels
    assert emu.replay(tmp_path, topology=FAST)[0].step_time_s == pytest.approx(40e-6 + 2e-6 + 202 / 400e9)  # over two links


def test_messages_of_two_streams_belong_to_the_launches_that_follow_them_whatever_the_order_of_kernels(tmp_path):
    """A host that launches on two streams: the kernel that was launched last runs first."""

    def sent(ts, elements, launched, begins, correlation, stream):
        told = {"Input Dims": [[[elements]], [], []], "Concrete Inputs": ["", "", "1", "0"]}
        sizes = {"Collective name": "send", "In msg nelems": elements, "Out msg nelems": elements, "dtype": "BFloat16"}
        return [
            span("cpu_op", "c10d::send", ts, 4, HOST, **told),
            span(
                "cpu_op", "record_param_comms", ts + 1, 2, HOST, **sizes, **{"Process Group Ranks": "[0, 1]", "Group size": 2}
            ),
            *kernel("ncclDevKernel_SendRecv", launched, begins, 40, correlation, stream),
        ]

    events = [step(1, 0, 900), *sent(5, 100, 20, 300, 1, NCCL), *sent(25, 200, 40, 60, 2, NCCL + 1)]
    for order in (events, events[::-1]):
        write(tmp_path, "rank0.json", profile_of(0, order))
        write(tmp_path, "rank1.json", profile_of(1, [step(1, 0, 900), *collective("allreduce", 1, 2, 20, 1, 8, 8, [0, 1])]))
        found = read_foreign(tmp_path).events[0]
        assert [size for name, size in zip(found.name, found.bytes.tolist(), strict=True) if name == "send"] == [200, 400]


def test_only_steps_that_every_rank_has_count(tmp_path):
    later = [step(6, 600, 300), *kernel("more", 610, 620, 5, 8)]
    write(tmp_path, "rank0.json", profile_of(0, [*step_of_ddp(), *later]))
    write(tmp_path, "rank1.json", profile_of(1, step_of_ddp()))
    trace = read_foreign(tmp_path)
    assert all(len(events) == 4 for events in trace.events)
    assert reading_of(trace).left_out == {"in no step of all ranks": 1}


@pytest.mark.parametrize("seed", range(4))
def test_the_order_of_events_in_the_file_changes_nothing(tmp_path, seed):
    """Each rank of PyTorch writes its events by thread and by stream, not by time."""
    events = [*step_of_ddp(), step(6, 600, 300), *kernel("more", 610, 620, 5, 8), *kernel("last", 611, 700, 50, 9, stream=9)]
    shuffled = random.Random(seed).sample(events, len(events))
    for folder, order in (("in time", events), ("in any order", shuffled)):
        for rank in range(2):
            write(tmp_path / folder, f"rank{rank}.json", profile_of(rank, order))
    in_time, in_any_order = (read_foreign(tmp_path / folder) for folder in ("in time", "in any order"))
    assert in_time.digest() == in_any_order.digest()
    assert reading_of(in_time).step_times_s == reading_of(in_any_order).step_times_s == pytest.approx((160e-6, 580e-6))


def test_a_trace_of_a_profile_keeps_its_times_in_a_file(tmp_path):
    trace = emu.load_trace(two_ranks(tmp_path / "prof"))
    save(trace, tmp_path / "kept.trace")
    kept = load(tmp_path / "kept.trace")
    assert kept.digest() == trace.digest()
    times = [emu.replay(each, topology=SLOW)[0].step_time_s for each in (trace, kept, tmp_path / "prof")]
    assert len(set(times)) == 1


def test_a_profile_is_read_event_by_event(tmp_path):
    """The text in memory is a window, not the file."""
    path = tmp_path / "long.json"
    with path.open("w") as file:
        file.write('{"schemaVersion": 1, "traceEvents": [\n')
        for at in range(60_000):
            file.write(json.dumps(span("cpu_op", "aten::add", at, 0.5, HOST, padding="x" * 200)) + ",\n")
        file.write('{"ph": "M"}\n], "traceName": "é\\u00e9"}')
    tracemalloc.start()
    found = [key for key, _ in json_entries(path)]
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert found.count(EVENTS) == 60_001
    assert found[-1] == "traceName"
    assert peak < path.stat().st_size / 3


@pytest.mark.parametrize("chunk", [1, 2, 3, 7, 64])
def test_values_that_lie_in_two_windows_are_whole(tmp_path, monkeypatch, chunk):
    profile = profile_of(0, step_of_ddp(start=12345), world=2, baseTimeNanoseconds=1234567890123, ended=[1, 22, 333])
    path = write(tmp_path, "rank0.json", profile)
    monkeypatch.setattr(json_events, "_CHUNK", chunk)
    entries = list(json_entries(path))
    assert [value for key, value in entries if key == EVENTS] == profile["traceEvents"]
    assert {key: value for key, value in entries if key != EVENTS} == {k: v for k, v in profile.items() if k != EVENTS}


@pytest.mark.parametrize("option", ["host_time", "fill_ranks"])
def test_options_of_a_profile_are_refused_for_other_traces(tmp_path, option):
    save(emu.load_trace(two_ranks(tmp_path / "prof")), tmp_path / "kept.trace")
    with pytest.raises(InputError, match=rf"replay: {option} needs a profile or execution traces of another program"):
        emu.replay(tmp_path / "kept.trace", topology=FAST, **{option: True})
    with pytest.raises(InputError, match=r"trace: cannot read .*nowhere': No such file or directory"):
        emu.replay(tmp_path / "nowhere", topology=FAST, **{option: True})


def test_a_device_is_refused_where_the_profile_has_no_shapes(tmp_path):
    with pytest.raises(InputError, match=r"replay: device must be left out for a profile.* got 'h100'; profile a GPU with"):
        emu.replay(two_ranks(tmp_path), topology=FAST, device="h100")


def test_times_are_kept_to_the_nanosecond(tmp_path):
    events = [step(1, 0, 900), *kernel("work", 1, 2, 1.234, 1), *collective("allreduce", 3, 5, 2.5, 2, 4, 4, [0, 1])]
    for rank in range(2):
        write(tmp_path, f"rank{rank}.json", profile_of(rank, events))
    np.testing.assert_allclose(read_foreign(tmp_path).events[0].lasts_s, [1.234e-6, 2.5e-6], atol=1e-15)
