"""Profiles that cannot be taken: one line that names the file and the event."""

import json

import pytest

from emu.errors import InputError
from emu.trace.formats.trace_formats import read_foreign
from tests.trace.formats.profiles import (
    HOST,
    NCCL,
    call,
    collective,
    kernel,
    profile_of,
    span,
    step,
    step_of_ddp,
    two_ranks,
    write,
)


def refused(path, match):
    with pytest.raises(InputError, match=match) as raised:
        read_foreign(path)
    assert "\n" not in str(raised.value)
    assert raised.value.exit_code == 2


def second_rank(folder, events, **more):
    """Write a usual profile of rank 0, and these events of rank 1."""
    write(folder, "rank0.json", profile_of(0, step_of_ddp()))
    write(folder, "rank1.json", profile_of(1, events, **more))
    return folder


def test_a_file_that_is_cut_off(tmp_path):
    path = write(tmp_path, "rank0.json", profile_of(0, step_of_ddp()))
    path.write_text(path.read_text()[:1500])
    refused(tmp_path, r"'rank0.json' is cut off after event \d+ \(\w+\); copy the file again")


def test_a_gzip_that_is_cut_off(tmp_path):
    many = [span("cpu_op", f"aten::op{at * 7919 % 10007}", at, 0.5, HOST) for at in range(20_000)]
    path = write(tmp_path, "rank0.json.gz", profile_of(0, many))
    path.write_bytes(path.read_bytes()[:-9000])
    refused(path, r"'rank0.json.gz' is cut off after event \d+ \(aten::op\d+\)")


def test_a_file_that_is_no_gzip_though_named_so(tmp_path):
    path = tmp_path / "rank0.json.gz"
    path.write_text(json.dumps(profile_of(0, step_of_ddp())))
    refused(path, r"'rank0.json.gz' must be a gzip, as its name ends in .gz")


def test_a_file_that_is_damaged(tmp_path):
    path = write(tmp_path, "rank0.json", profile_of(0, step_of_ddp()))
    path.write_text(path.read_text().replace('"gradient_1"', "gradient_1"))
    refused(path, r"'rank0.json' must be JSON, but is not after event \d+ \(.*\)")


def test_other_json(tmp_path):
    path = write(tmp_path, "rank0.json", {"schemaVersion": 1})
    refused(path, r"'rank0.json' has no traceEvents")


def test_an_empty_folder(tmp_path):
    refused(tmp_path, r"has no .json and no .json.gz")


def test_ranks_that_are_missing(tmp_path):
    (two_ranks(tmp_path) / "rank1.json.gz").unlink()
    refused(tmp_path, r"has 1 of 2 ranks, but not 1; add their files")


def test_a_rank_that_has_two_files(tmp_path):
    write(two_ranks(tmp_path), "copy.json", profile_of(1, step_of_ddp()))
    refused(tmp_path, r"'copy.json' and 'rank1.json.gz' are both of rank 1; remove one of them")


def test_a_rank_that_is_not_said(tmp_path):
    write(two_ranks(tmp_path), "other.json", {"traceEvents": step_of_ddp()})
    refused(tmp_path, r"'other.json' does not say its rank in distributedInfo")


def test_files_of_different_jobs(tmp_path):
    refused(second_rank(tmp_path, step_of_ddp(), world=4), r"'rank0.json' of 2 and 'rank1.json' of 4 ranks")


@pytest.mark.parametrize(
    ("elements", "told"), [(2000, "all_reduce of 1000 float32 in step 1, event 5 of 'rank1.json' is all_reduce of 2000")]
)
def test_members_that_do_not_agree_on_a_size(tmp_path, elements, told):
    refused(second_rank(tmp_path, step_of_ddp(elements=elements)), rf"event 5 of 'rank0.json' is {told}")


def test_a_member_that_makes_fewer_calls(tmp_path):
    more = [*step_of_ddp(), *collective("broadcast", 200, 210, 5, 9, 4, 4, [0, 1])]
    refused(second_rank(tmp_path, more), r"the end of 'rank0.json' is nothing, event 12 of 'rank1.json' is broadcast of 4")


def test_a_rank_that_is_not_of_its_group(tmp_path):
    refused(second_rank(tmp_path, step_of_ddp(ranks=[0])), r"event 5 of 'rank1.json' is of ranks 0, without rank 1 itself")


def test_steps_that_no_other_rank_has(tmp_path):
    other = [step(6, 0, 500), *step_of_ddp()[1:]]
    refused(second_rank(tmp_path, other), r"'rank0.json' has \[5\] and 'rank1.json' has \[6\]")


def test_steps_in_which_nothing_happens(tmp_path):
    other = [step(5, 900_000, 500), *step_of_ddp()[1:]]
    refused(second_rank(tmp_path, other), r"'rank1.json' has no kernel and no operator in any of its steps")


def test_an_event_that_ends_before_it_begins(tmp_path):
    bad = [*step_of_ddp(), *kernel("late", 41, 180, -3, 9)]
    refused(second_rank(tmp_path, bad), r"dur of event 12 \(late\) of 'rank1.json' must be a time in us of 0 or more, got -3")


def test_a_kernel_that_begins_before_it_is_launched(tmp_path):
    bad = [*step_of_ddp(start=10_000), *kernel("early", 10_050, 20, 5, 9)]
    told = r"the clock of 'rank1.json' goes backwards: event 12 \(early\) begins 10030 us before it is launched"
    refused(second_rank(tmp_path, bad), told)


def test_a_profile_without_steps(tmp_path):
    refused(second_rank(tmp_path, step_of_ddp()[1:]), r"'rank1.json' has no ProfilerStep and no Optimizer.step")


def test_a_profile_without_a_collective(tmp_path):
    refused(
        second_rank(tmp_path, [step(5, 0, 500), *kernel("work", 1, 2, 5, 1)]),
        r"'rank1.json' has no collective among the 1 .* fabric changes .* or take its kernels by `emu calibrate --from`",
    )


def test_kernels_that_send_without_nccl(tmp_path):
    """DeepEP's dispatch sends, but a profile does not say how much."""
    sent = kernel("void deep_ep::internode::dispatch<false, 8, true, 8>(int4*, float*)", 10, 20, 5, 1)
    layout = kernel("void deep_ep::layout::get_dispatch_layout<256, 32, 8>(long const*)", 30, 40, 5, 2)
    told = r"'rank1.json' has no coll.*, but 1 kernel that sends data without NCCL \(deep_ep::internode::dispatch\), .* not say"
    refused(second_rank(tmp_path, [step(5, 0, 500), *sent, *layout]), told)


def test_a_collective_of_unknown_size(tmp_path):
    bare = kernel("ncclKernel_AllReduce_RING_LL_Sum_float", 10, 20, 5, 1, NCCL)
    refused(second_rank(tmp_path, [step(5, 0, 500), *bare]), r"event 2 \(ncclKernel_AllReduce.*\) of 'rank1.json' has no 'Coll")


def test_a_dtype_that_nobody_knows(tmp_path):
    bad = [step(5, 0, 500), *collective("allreduce", 10, 20, 5, 1, 8, 8, [0, 1], dtype="Quint9")]
    refused(second_rank(tmp_path, bad), r"event 2 \(ncclDevKernel_Generic\) of 'rank1.json' has an unknown dtype 'Quint9'")


def test_another_accelerator(tmp_path):
    runtime = span("mtia_runtime", "run", 1, 2, HOST)
    events = [step(5, 0, 500), span("cpu_op", "aten::add", 10, 5, HOST), runtime]
    write(tmp_path, "rank0.json", profile_of(0, events, world=1))
    refused(tmp_path, r"'rank0.json' has no kernels of a GPU, but events of 'mtia_runtime'")
    groups = [{"pg_name": str(number), "pg_desc": "", "ranks": [0]} for number in range(2)]
    asked = [span("cpu_op", "c10d::allreduce_", 20, 1, HOST), span("user_annotation", "gloo:all_reduce", 21, 2, 900)]
    told = {"rank": 0, "world_size": 1, "pg_config": groups}  # which of gloo's groups asks is no matter there
    write(tmp_path, "rank0.json", {"distributedInfo": told, "traceEvents": [*events, *asked]})
    refused(tmp_path, r"'rank0.json' has no kernels of a GPU, but events of 'mtia_runtime'")


def test_gloo_with_several_groups(tmp_path):
    told = {"Input Dims": [[[8]], [], []], "Input type": ["TensorList", "", ""]}
    events = [step(5, 0, 500), span("cpu_op", "c10d::allreduce_", 10, 5, HOST, **told), call("x", 1, 1)]
    profile = profile_of(0, events)
    groups = [{"pg_name": str(n), "ranks": ranks} for n, ranks in enumerate(([0, 1], [0]))]
    profile["distributedInfo"]["pg_config"] = groups
    write(tmp_path, "rank0.json", profile)
    refused(tmp_path, r"event 1 \(c10d::allreduce_\) of 'rank0.json' is of one of 2 groups")


@pytest.mark.parametrize("value", ["soon", None, float("nan")])
def test_a_time_that_is_none(tmp_path, value):
    bad = [*step_of_ddp(), call("cudaLaunchKernel", value, 9)]
    refused(second_rank(tmp_path, bad), r"ts of event 11 \(cudaLaunchKernel\) of 'rank1.json' must be a time in us")
