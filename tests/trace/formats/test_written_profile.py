"""A virtual run written as a profile: read back it is the same step, and it says what other programs ask a profile for."""

import gzip
import json
from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

import emu
from emu.collective.choice import Choice
from emu.errors import InputError
from emu.trace.formats.kineto.profile_writer import rank_path, write_profile
from emu.trace.formats.kineto.profiled_trace import read_kineto
from emu.trace.formats.trace_formats import read_foreign, write_trace
from emu.trace.replay.replay import TraceLayout
from emu.trace.steps import computes
from emu.trace.trace import Group, Kind
from tests.trace.laid import DEVICE, star_of, trace_of

FABRIC = "switch:n=8,bandwidth=50GB/s,latency=1us"
ALL_OF_16 = Group("world", tuple(range(16)))
RING = ("all_reduce=ring", "all_gather=ring", "reduce_scatter=ring")


@pytest.fixture(scope="module")
def written(tmp_path_factory):
    """An estimated step, and the folder of its profile."""
    folder = tmp_path_factory.mktemp("written")
    step = emu.estimate(model="llama-tiny", plan="tp=2,pp=2,dp=2", topology=FABRIC, global_batch=8, seq=16, algorithm=RING)
    step.save_trace(folder / "step.trace")
    (folder / "prof").mkdir()
    step.save_trace(folder / "prof" / "step.pt.trace.json.gz")
    return step, folder


def test_a_step_read_back_takes_the_same_time(written):
    step, folder = written
    own, again = (emu.replay(folder / name, topology=FABRIC, algorithm=RING) for name in ("step.trace", "prof"))
    assert own.step_time_s == step.step_time_s
    assert again.step_time_s == pytest.approx(step.step_time_s, rel=0, abs=1e-12)
    assert 0.98 * step.step_time_s < again.measured_step_s < step.step_time_s  # a second stage of the pipeline begins later
    assert again.compute_s == pytest.approx(own.compute_s, rel=1e-9)
    assert again.exposed_comm_by_axis_s == pytest.approx(own.exposed_comm_by_axis_s, rel=1e-6, abs=1e-12)
    for each in again.collectives:
        assert each.virtual.time_s == pytest.approx(each.measured.time_s, rel=1e-6)
        assert each.virtual.last_rank == each.measured.last_rank


def test_every_request_and_the_work_of_every_kernel_come_back(written):
    folder = written[1]
    own, again = emu.load_trace(folder / "step.trace"), emu.load_trace(folder / "prof")
    for rank in range(8):
        mine, theirs = own.events_of(rank), again.events_of(rank)
        asked = [np.flatnonzero(~computes(of) & (of.step > 0)) for of in (mine, theirs)]
        for name in ("kind", "bytes", "count", "root", "tag"):
            assert getattr(mine, name)[asked[0]].tolist() == getattr(theirs, name)[asked[1]].tolist(), name
        groups = [
            [trace.groups[trace.group_of[rank][of.group[row]]] for row in rows]
            for trace, of, rows in zip((own, again), (mine, theirs), asked, strict=True)
        ]
        assert [(g.axis, g.ranks) for g in groups[0]] == [(g.axis, g.ranks) for g in groups[1]]
        works = [np.flatnonzero((of.kind == Kind.COMPUTE) & (of.step > 0)) for of in (mine, theirs)]
        for name in ("flops", "bytes", "count", "kernel", "batch", "m", "n", "k"):
            assert getattr(mine, name)[works[0]].tolist() == getattr(theirs, name)[works[1]].tolist(), name


def test_a_device_times_it_as_it_timed_the_step_itself(written):
    step, folder = written
    again = emu.replay(folder / "prof", topology=FABRIC, algorithm=RING, device="h100")
    assert again.step_time_s == pytest.approx(step.step_time_s, rel=1e-9)
    other = emu.replay(folder / "prof", topology=FABRIC, algorithm=RING, device="a100-80g")
    itself = emu.replay(folder / "step.trace", topology=FABRIC, algorithm=RING, device="a100-80g")
    assert other.step_time_s == pytest.approx(itself.step_time_s, rel=1e-9)
    assert all(each.device_s is not None for each in other.kernels)
    assert other.kernels[0].device_s != pytest.approx(other.kernels[0].measured_s)
    assert "on the device" in other.text()


def test_the_file_has_what_other_programs_ask_for(written):
    with gzip.open(written[1] / "prof" / "step.rank3.pt.trace.json.gz") as file:
        profile = json.load(file)
    told = profile["distributedInfo"]
    assert (told["rank"], told["world_size"], told["backend"]) == (3, 8, "nccl")
    events = profile["traceEvents"]
    of = {category: [each for each in events if each.get("cat") == category] for category in ("kernel", "cuda_runtime")}
    calls = {each["args"]["correlation"]: each for each in of["cuda_runtime"]}
    for kernel in of["kernel"]:
        launch = calls[kernel["args"]["correlation"]]
        assert launch["name"] == "cudaLaunchKernel"
        assert launch["ts"] < kernel["ts"]
    nccl = [each["args"] for each in of["kernel"] if each["name"].startswith("ncclDevKernel_")]
    assert {"Collective name", "In msg nelems", "Out msg nelems", "Group size", "dtype", "Process Group Ranks"} <= set(nccl[0])
    peers = {each[key] for each in nccl for key in ("Dst Rank", "Src Rank") if key in each}
    assert peers == {7}  # the other stage of rank 3, by its rank in the job
    assert [each["name"] for each in events if each.get("cat") == "user_annotation"] == ["ProfilerStep#1"]
    per_stream: dict[int, float] = {}
    for kernel in sorted(of["kernel"], key=lambda each: each["ts"]):
        assert kernel["ts"] > per_stream.get(kernel["tid"], -1.0) - 1e-6  # no two kernels of a stream at one time
        per_stream[kernel["tid"]] = kernel["ts"] + kernel["dur"]


def test_names_of_files_keep_their_endings(tmp_path):
    names = ["step.json.gz", "step.json", "run.pt.trace.json.gz"]
    assert [rank_path(tmp_path / name, 12).name for name in names] == [
        "step.rank12.json.gz", "step.rank12.json", "run.rank12.pt.trace.json.gz",
    ]  # fmt: skip


def test_more_ranks_than_files_are_refused(tmp_path, written):
    trace = emu.load_trace(written[1] / "step.trace")
    many = type(trace)(
        trace.events, np.zeros(1025, np.int32), trace.groups, trace.group_of * 129, trace.peak_by_part, trace.meta
    )
    with pytest.raises(InputError, match=r"ranks of a profile must be at most 1,024, as each has a file, got 1025; save it as"):
        write_profile(TraceLayout(many, None, None, None, "as-ran"), tmp_path / "step.json")
    assert not list(tmp_path.iterdir())


def test_a_calibration_from_it_has_the_times_of_its_device(written, tmp_path):
    found = emu.calibrate(profile=written[1] / "prof")
    assert (found.device.name, found.base.name) == ("h100 as in prof", "h100")
    products = [each for each in found if each.kernel.kernel == 1]
    assert products
    assert found.unknown == 0
    predicted = dict(zip((each.kernel for each in found), found.as_json()["predicted_s"], strict=True))
    for each in products:
        assert each.seen > 0
        assert predicted[each.kernel] == pytest.approx(each.kernel.seconds, rel=0.02)  # one that adds to its result moves more
        assert each.high_s - each.low_s < 0.02 * each.kernel.seconds
    found.save_toml(tmp_path / "mine.toml")
    again = emu.find_device(str(tmp_path / "mine.toml"))
    assert len(again.measured) >= len(products)


def test_what_is_read_is_the_profile_alone(written):
    trace = read_kineto(written[1] / "prof")
    assert trace.n_ranks == 8
    assert dict(trace.meta)["command"] == "run"


@pytest.mark.parametrize("name", ["step.et", "step.goal", "prof/step.json"])
def test_computations_last_until_the_slowest_of_many_ranks_is_done(words, tmp_path, name):
    """A step of 16 ranks waits for the slowest of them in every format, as where the trace itself is timed."""
    trace = trace_of(words.events(words.compute(3), words.collective(8)), role_of_rank=(0,) * 16, groups=(ALL_OF_16,))
    device = replace(DEVICE, spread=0.05)
    (tmp_path / "prof").mkdir()
    write_trace(TraceLayout(trace, Choice({"all_reduce": "ring"}), star_of(16), device, "float32"), tmp_path / name)
    back = read_foreign((tmp_path / name).parent if name.startswith("prof") else tmp_path / name)
    lasts = back.events[0].lasts_s[computes(back.events[0])][0]
    assert lasts == pytest.approx(device.for_ranks(16).seconds(trace.events[0], "float32")[0], rel=0, abs=1e-6)
    assert lasts > 1.01 * device.seconds(trace.events[0], "float32")[0]


def test_a_rank_that_does_nothing_has_a_file_like_the_others(words, tmp_path):
    trace = trace_of(words.events(words.compute(3), words.collective(8)), words.events(), role_of_rank=(0, 0, 1))
    write_profile(TraceLayout(trace, Choice({"all_reduce": "ring"}), star_of(3), DEVICE, "float32"), tmp_path / "step.json")
    files = [json.loads(rank_path(tmp_path / "step.json", rank).read_text()) for rank in range(3)]
    assert [sum(event.get("cat") == "kernel" for event in each["traceEvents"]) for each in files] == [2, 2, 0]


def test_a_request_of_every_operation_comes_back_with_all_that_it_is(words, tmp_path):
    """Roots, blocks of unlike sizes, dtypes and groups are among it."""
    asked = [
        words.collective(12, "all_reduce", dtype="float32"),
        words.collective(12, "broadcast", root=2),
        words.collective(12, "reduce", root=1),
        words.collective(12, "all_gather", dtype="int32"),
        words.collective(12, "reduce_scatter"),
        words.collective(12, "all_to_all"),
        words.collective(12, "all_to_all", splits=(3, 4, 5)),
        words.collective(12, "gather", root=2),
        words.collective(12, "scatter", root=1),
    ]
    asked = [{**each, "instance": number} for number, each in enumerate(asked)]
    three = Group("tp", (0, 1, 2))
    trace = trace_of(words.events(words.compute(3), *asked), role_of_rank=(0, 0, 0), groups=(three,))
    (tmp_path / "prof").mkdir()
    write_trace(TraceLayout(trace, Choice({}), star_of(3), DEVICE, "float32"), tmp_path / "prof" / "step.json")
    back = read_foreign(tmp_path / "prof")
    for rank in range(3):
        mine, theirs = trace.events_of(rank), back.events_of(rank)
        rows = [np.flatnonzero(of.kind == Kind.COLLECTIVE) for of in (mine, theirs)]
        assert [mine.name[i] for i in rows[0]] == [theirs.name[i] for i in rows[1]]
        assert [mine.dtype[i] for i in rows[0]] == [theirs.dtype[i] for i in rows[1]]
        for name in ("bytes", "count", "root"):
            assert getattr(mine, name)[rows[0]].tolist() == getattr(theirs, name)[rows[1]].tolist(), name
        splits = [
            [of.split[of.split_start[i] : of.split_start[i + 1]].tolist() for i in own]
            for of, own in zip((mine, theirs), rows, strict=True)
        ]
        assert splits[0] == splits[1]
        assert [(back.groups[g].axis, back.groups[g].ranks) for g in back.group_of[rank]] == [("tp", (0, 1, 2))]


def test_an_exchange_comes_back_in_which_a_rank_gives_equal_blocks_or_none(words, tmp_path):
    """Sizes that cut the largest buffer evenly say no more than no sizes do, and come back as none."""
    sizes = (0, 0, 0), (1, 1, 1), (4, 4, 4), (1, 2, 9)
    asked = [words.collective(12, "all_to_all", splits=own) for own in sizes]
    of_four = [words.events({**each, "instance": 0}) for each in asked]
    trace = trace_of(*of_four, role_of_rank=(0, 1, 2, 3, 1, 2), groups=(Group("ep", (0, 1, 3)), Group("ep", (2, 4, 5))),
                     group_of=((0,), (0,), (1,), (0,), (1,), (1,)))  # fmt: skip
    write_profile(TraceLayout(trace, Choice(), star_of(6), DEVICE, "float32"), tmp_path / "step.json")
    back = read_foreign(tmp_path)
    found = [(back.events_of(rank).count.tolist(), back.events_of(rank).split.tolist()) for rank in range(6)]
    assert found == [([12], list(own) if own != (4, 4, 4) else []) for own in (sizes[role] for role in trace.role_of_rank)]


def test_two_groups_of_equal_ranks_and_axis_come_back_as_two(words, tmp_path):
    asked = [words.collective(size, group=group) for size, group in ((1200, 1), (600, 0))]
    trace = trace_of(words.events(*asked), groups=(Group("dp", (0, 1)),) * 2, group_of=((0, 1), (0, 1)))
    write_profile(TraceLayout(trace, Choice({"all_reduce": "ring"}), star_of(2), DEVICE, "float32"), tmp_path / "step.json")
    back = read_foreign(tmp_path)
    assert [(group.axis, group.ranks) for group in back.groups] == [("dp", (0, 1))] * 2
    assert (back.events[0].group.tolist(), back.events[0].instance.tolist()) == ([0, 1], [0, 0])


def test_the_root_is_written_to_the_kernel_as_pytorch_writes_it(words, tmp_path):
    trace = trace_of(words.events(words.collective(8, "broadcast", root=1)))
    write_profile(TraceLayout(trace, Choice(), star_of(2), DEVICE, "float32"), tmp_path / "step.json")
    events = json.loads((tmp_path / "step.rank0.json").read_text())["traceEvents"]
    assert [event["args"]["Rank"] for event in of_kind(events, "kernel")] == [1]


def profile_of_ranks(words, n, path):
    """Write the profile of a step in which n ranks sum once."""
    world = Group("world", tuple(range(n)))
    asked = (words.collective(10),) if n > 1 else (words.compute(1.0),)
    trace = trace_of(words.events(*asked), role_of_rank=(0,) * n, groups=(world,))
    write_profile(TraceLayout(trace, Choice(), star_of(max(n, 2)), DEVICE, "float32"), path)


def test_a_smaller_trace_over_a_larger_one_leaves_none_of_it(words, tmp_path):
    """Files of more ranks that Emu wrote are removed, and no others."""
    for name in ("step.rank9.json.gz", "other.rank9.json", "step.rank9.json"):
        (tmp_path / name).write_bytes(gzip.compress(b'{"traceEvents": [{"name": "mine"}]}'))
    kept = sorted(path.name for path in tmp_path.iterdir())
    for n in (4, 2, 1, 2):
        profile_of_ranks(words, n, tmp_path / "step.json.gz")
        own = ["step.json.gz"] if n == 1 else [f"step.rank{rank}.json.gz" for rank in range(n)]
        assert sorted(path.name for path in tmp_path.iterdir()) == sorted([*kept, *own])


@pytest.mark.parametrize("name", ["dispatch", "combine"])
def test_tokens_for_experts_are_written_and_come_back(words, tmp_path, name):
    """PyTorch has no name for this operation: others see an exchange of all with all, and Emu what it was."""
    trace = trace_of(words.events(words.collective(1600, name=name, group=0)))
    write_profile(TraceLayout(trace, Choice(), star_of(2), DEVICE, "float32"), tmp_path / "step.json")
    events = json.loads((tmp_path / "step.rank0.json").read_text())["traceEvents"]
    told = [event["args"] for event in events if event.get("name", "").startswith("nccl")]
    assert [args["Collective name"] for args in told] == ["all_to_allv"]
    again = read_foreign(tmp_path).events[0]
    assert (again.name, again.count.tolist(), again.bytes.tolist()) == ((name,), [1600], [6400])


def events_of_two_steps(words, tmp_path):
    """Write a profile of two ranks with two streams and two steps; return the events of the second."""
    rows = [
        words.compute(3),
        words.collective(8 * 10**6, waits=(0,)),  # 32 ms by a ring of two
        words.compute(2, stream=1, waits=(0,)),
        words.compute(1, waits=(2, 1)),
        words.mark(waits=(3,)),
        words.compute(4, step=2),
        words.collective(10**6, step=2, instance=1),  # 4 ms
        words.compute(5, step=2, waits=(6,)),
        words.mark(step=2, waits=(7,)),
    ]
    trace = trace_of(words.events(*rows))
    write_profile(TraceLayout(trace, Choice({"all_reduce": "ring"}), star_of(2), DEVICE, "float32"), tmp_path / "step.json")
    return json.loads((tmp_path / "step.rank1.json").read_text())["traceEvents"]


def of_kind(events, category):
    return [each for each in events if each.get("cat") == category]


def test_kernels_begin_and_last_as_in_virtual_time(words, tmp_path):
    """They follow one another on each stream; requests have a stream of their own, behind those that compute."""
    kernels = of_kind(events_of_two_steps(words, tmp_path), "kernel")
    began = min(each["ts"] for each in kernels)
    told = sorted((round(each["ts"] - began), round(each["dur"]), each["tid"]) for each in kernels)
    ms = 1000
    assert told == [
        (0, 3 * ms, 7), (3 * ms, 2 * ms, 8), (3 * ms, 32 * ms, 9), (35 * ms, ms, 7), (36 * ms, 4 * ms, 7),
        (40 * ms, 4 * ms, 9), (44 * ms, 5 * ms, 7),
    ]  # fmt: skip


def test_the_host_makes_one_call_after_another_each_as_late_as_its_device_and_later_calls_let_it(words, tmp_path):
    events = events_of_two_steps(words, tmp_path)
    calls, kernels = of_kind(events, "cuda_runtime"), {each["args"]["correlation"]: each for each in of_kind(events, "kernel")}
    assert [each["args"]["correlation"] for each in calls] == list(range(1, len(calls) + 1))
    starts = [each["ts"] for each in calls]
    assert all(later - one >= 0.01 - 1e-9 for one, later in pairwise(starts))
    assert all(one + each["dur"] < later for each, one, later in zip(calls, starts, starts[1:], strict=False))
    ahead = {round(kernels[n]["ts"] - calls[n - 1]["ts"], 3) for n in kernels}  # no launch waits for its device
    assert max(ahead) == pytest.approx(0.01 * len(calls), abs=1e-3)
    assert min(ahead) >= 0.01 - 1e-3
    launches = [calls[n - 1]["name"] for n in kernels]
    assert set(launches) == {"cudaLaunchKernel"}
    steps = of_kind(events, "user_annotation")
    assert [each["name"] for each in steps] == ["ProfilerStep#1", "ProfilerStep#2"]
    second = min(calls[n - 1]["ts"] for n, each in kernels.items() if round(each["dur"]) == 4000 and each["tid"] == 7)
    assert [each["ts"] for each in steps] == pytest.approx([starts[0], second])
    assert [each["ts"] + each["dur"] for each in steps] == pytest.approx([second, starts[-1] + 0.02])


def test_a_stream_waits_for_an_event_that_was_recorded_behind_what_it_waits_for(words, tmp_path):
    events = events_of_two_steps(words, tmp_path)
    calls, waits = of_kind(events, "cuda_runtime"), of_kind(events, "cuda_sync")
    told = []
    for each in waits:
        args = each["args"]
        call, record = calls[args["correlation"] - 1], calls[args["wait_on_cuda_event_record_corr_id"] - 1]
        assert (call["name"], record["name"]) == ("cudaStreamWaitEvent", "cudaEventRecord")
        assert (each["ts"], each["tid"]) == (call["ts"], args["stream"])
        assert args["wait_on_cuda_event_id"] == args["wait_on_cuda_event_record_corr_id"]
        before = calls[record["args"]["correlation"] - 2]
        launched = next(k for k in of_kind(events, "kernel") if k["args"]["correlation"] == before["args"]["correlation"])
        assert launched["tid"] == args["wait_on_stream"]
        told.append((args["stream"], args["wait_on_stream"], round(launched["dur"])))
    ms = 1000
    assert told == [(9, 7, 3 * ms), (8, 7, 3 * ms), (7, 9, 32 * ms), (7, 8, 2 * ms), (9, 7, 4 * ms), (7, 9, 4 * ms)]
    assert {each["args"]["cuda_sync_kind"] for each in waits} == {"Stream Wait Event"}
