"""The columns of a rank's profile, and the steps of its events, held against a file that has one event of each category."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from emu.errors import InputError
from emu.trace.formats.kineto.collective_kernels import collective_rows, sending_kernels
from emu.trace.formats.kineto.rank_events import rank_work
from emu.trace.formats.kineto.rank_profile import RankProfile, read_profile
from tests.trace.formats.profiles import HOST, Event, call, kernel, profile_of, span, step, write

SHAPES = {"Input Dims": [[8, 4], [8, 4]], "Input type": ["float", "float"]}


def read(folder: Path, *events: Event, **more: Any) -> RankProfile:
    return read_profile(write(folder, "rank0.json", profile_of(0, [*events], **more)))


def named(profile: RankProfile, kind: str) -> list[tuple[str, float, float, int]]:
    spans = getattr(profile, kind)
    names = [profile.names[number] for number in spans.name.tolist()]
    return list(zip(names, spans.start.tolist(), spans.lasts.tolist(), spans.event.tolist(), strict=True))


CALLS = ("cuda_runtime", "cuda_driver", "Runtime")
ONE_OF_EACH = [
    {"ph": "M", "cat": "kernel", "name": "no span"},
    span("Kernel", "k", 1, 2, 7, device=0, stream=7),
    span("gpu_memcpy", "Memcpy DtoD", 3, 4, 9, device=0, stream=9, bytes=10),
    span("gpu_memset", "Memset", 5, 6, 9, device=1, stream=9),
    *(span(category, f"of {category}", 7 + i, 1, HOST + i) for i, category in enumerate(CALLS)),
    span("cpu_op", "aten::add", 20, 2, HOST, **SHAPES),
    span("Operator", "c10d::send", 22, 2, HOST + 1, a=5),
    span("user_annotation", "nccl:send", 24, 2, HOST, b=6),
    span("user_annotation", "of mine", 25, 2, HOST),
    span("user_annotation", "ProfilerStep#12", 26, 3, HOST),
    span("cpu_op", "Optimizer.step#SGD.step", 50, 5, HOST),
    span("user_annotation", "Optimizer.step#Adam.step", 30, 7, HOST),
    span("cuda_sync", "Event Sync", 31, 1, 7, correlation=4, wait_on_stream=5),
    *(span(category, "silent", 32, 1, 7) for category in ("Trace", "gpu_user_annotation", "")),
    *(span("python_function", "other", 33, 1, 7) for _ in range(3)),
    span("mtia_runtime", "other", 33, 1, 7),
]  # fmt: skip


def test_each_event_goes_where_its_category_belongs_and_the_rest_is_counted(tmp_path: Path) -> None:
    found = read(tmp_path, *ONE_OF_EACH, deviceProperties=[{"name": "A"}, 5, {}, {"name": "B"}])
    assert named(found, "kernels") == [("k", 1, 2, 1), ("Memcpy DtoD", 3, 4, 2), ("Memset", 5, 6, 3)]
    assert [found.streams[place] for place in found.kernels.place.tolist()] == [(0, 7), (0, 9), (1, 9)]
    assert named(found, "calls") == [(f"of {name}", 7 + i, 1, 4 + i) for i, name in enumerate(CALLS)]
    assert [found.threads[place] for place in found.calls.place.tolist()] == [(0, HOST), (0, HOST + 1), (0, HOST + 2)]
    assert named(found, "operators") == [("aten::add", 20, 2, 7), ("c10d::send", 22, 2, 8)]
    assert named(found, "annotations") == [("nccl:send", 24, 2, 9)]
    assert [found.threads[place] for place in found.operators.place.tolist()] == [(0, HOST), (0, HOST + 1)]
    assert (found.steps, found.updates) == ({12: (26, 29)}, (37, 55))
    assert found.args == {8: {"a": 5}, 9: {"b": 6}}
    assert found.syncs == {4: {"correlation": 4, "wait_on_stream": 5}}
    assert found.left_out == {"python_function": 3, "mtia_runtime": 1}
    assert found.devices == ("A", "", "B")
    assert found.launch.tolist() == [-1, -1, -1]  # no event has a correlation


def test_a_kernel_without_its_place_among_its_arguments_is_of_its_process_and_thread(tmp_path: Path) -> None:
    bare = [{**span("kernel", "k", 1, 2, 7), "pid": pid} for pid in (0, 3)]
    found = read(tmp_path, *bare, {**bare[1], "args": None}, span("kernel", "k", 1, 2, 9, stream=7))
    assert [found.streams[place] for place in found.kernels.place.tolist()] == [(0, 7), (3, 7), (3, 7), (0, 7)]


def test_a_kernel_is_launched_by_the_call_of_its_correlation(tmp_path: Path) -> None:
    calls = [call("launch", 10 * i, correlation) for i, correlation in enumerate((9, 2, 0, 5))]
    kernels = [span("kernel", "k", 100 + i, 1, 7, correlation=link) for i, link in enumerate((5, 9, 3, 0, 2, 10, 9, -1))]
    assert read(tmp_path, *kernels, *calls).launch.tolist() == [3, 0, -1, 2, 1, -1, 0, -1]
    assert read(tmp_path, *kernels).launch.tolist() == [-1] * 8


@pytest.mark.parametrize(("early", "fits"), [(1000.0, True), (1000.5, False)])
def test_two_clocks_may_be_a_millisecond_apart(tmp_path: Path, early: float, fits: bool) -> None:
    """The second of three kernels is the one that begins before it is launched."""
    events = [each for i in range(3) for each in kernel(f"k{i}", 5000, 5000 - early * (i == 1), 1, i)]
    if fits:
        assert len(read(tmp_path, *events).kernels.start) == 3
        return
    with pytest.raises(InputError, match=r"goes backwards: event 3 \(k1\) begins 1000 us before it is launched; profile again"):
        read(tmp_path, *events)


def test_equal_operators_share_a_work_and_attention_is_told_apart_by_its_values(tmp_path: Path) -> None:
    name, dims = "aten::_flash_attention_forward", [[2, 64, 8, 128]] * 3
    told = [
        {"Input Dims": dims, "Input type": ["c10::Half"] * 3, "Concrete Inputs": [""] * 8 + [mask]}
        for mask in ("True", "False")
    ]
    args = [
        SHAPES,
        told[0],
        told[1],
        {**SHAPES, "Concrete Inputs": ["9"]},
        told[0],
        {},
        {**SHAPES, "Input type": ["int", "int"]},
    ]
    events = [span("cpu_op", name if "Half" in str(of) else "aten::add", i, 1, HOST, **of) for i, of in enumerate(args)]
    copy = span("gpu_memcpy", "Memcpy DtoD", 50, 4, 9, device=0, stream=9, bytes=10)
    found = read(tmp_path, *events, copy, span("kernel", "k", 60, 1, 7))
    assert found.operators.link.tolist() == [0, 1, 2, 0, 1, -1, 3]
    assert found.own_work.tolist() == [4, -1]
    assert [work.dtype for work in found.works] == ["float32", "float16", "float16", "int32", "uint8"]
    assert [work.shape.kernel.name for work in found.works] == ["OTHER", "CAUSAL", "ATTENTION", "OTHER", "OTHER"]


def test_a_kernel_is_of_the_step_in_which_it_was_launched_from_its_beginning_until_before_its_end(tmp_path: Path) -> None:
    launched = [5, 10, 19.5, 20, 29, 30, 45]
    events = [each for i, at in enumerate(launched) for each in kernel("k", at, 100 + i, 1, i)]
    found = rank_work(read(tmp_path, step(8, 20, 10), step(3, 10, 10), *events))
    assert found.step.tolist() == [-1, 3, 3, 8, 8, -1, -1]
    assert found.steps == {3, 8}
    ends = [span("cpu_op", "Optimizer.step#SGD.step", at - 2, 2, HOST) for at in (30, 20)]
    assert rank_work(read(tmp_path, *ends, *events)).step.tolist() == [0, 0, 0, 0, 1, 1, -1]


def test_kernels_that_send_by_themselves_are_counted_and_the_three_most_frequent_are_named(tmp_path: Path) -> None:
    often = {"void deep_ep::intranode::combine<2>(int)": 2, "vllm::cross_device_reduce_1stage<4>": 4, "nvshmem_put": 3,
             "one_shot_all_gather": 1,
             "triton_one_shot_all_reduce": 5, "nccl_all_reduce": 6, "relu": 7}  # fmt: skip
    events = [span("kernel", name, i, 1, 7) for name, count in often.items() for i in range(count)]
    told = "vllm::cross_device_reduce_1stage, nvshmem_put, deep_ep::intranode::combine"
    assert sending_kernels(read(tmp_path, *events)) == f"10 kernels that send data without NCCL ({told})"
    assert (
        sending_kernels(read(tmp_path, span("kernel", "nvshmem_put", 1, 1, 7)))
        == "1 kernel that sends data without NCCL (nvshmem_put)"
    )
    assert sending_kernels(read(tmp_path, span("kernel", "relu", 1, 1, 7))) == ""


def test_kernels_that_communicate_have_a_name_of_nccl_or_where_none_has_say_what_they_do(tmp_path: Path) -> None:
    asked, names = {"Collective name": "allreduce"}, ("relu", "ncclKernel", "sum", "RCCL_Kernel")
    events = [span("kernel", name, i, 1, 7, **(asked if name == "sum" else {})) for i, name in enumerate(names)]
    assert collective_rows(read(tmp_path, *events)).tolist() == [1, 3]
    assert collective_rows(read(tmp_path, *events[::2])).tolist() == [1]
    assert np.array_equal(collective_rows(read(tmp_path, events[0])), [])
