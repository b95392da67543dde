"""Arguments of profiles that no program should trust: one line with the file and the event, or a kernel of unknown work."""

import json
import os
import re

import pytest

import emu
from emu.errors import InputError
from emu.trace.formats.trace_formats import read_foreign
from tests.trace.formats.profiles import HOST, call, collective, kernel, profile_of, span, step, step_of_ddp, two_ranks, write

EMU = {"Emu kernel": "product", "batch": 1, "m": 2, "n": 3, "k": 4, "FLOPs": 48.0, "Bytes moved": 100, "Elements": 25}
WORK = kernel("odd", 200, 210, 5, 40, **{**EMU, "dtype": "float32"})
SUM = collective("allreduce", 200, 210, 5, 40, 8, 8, [0, 1])
SYNC = [span("cuda_sync", "Stream Wait Event", 1, 0, 7, correlation=3, wait_on_cuda_event_record_corr_id=1)]


def with_argument(events, name, value):
    """Return events of which the last has another argument."""
    *others, last = json.loads(json.dumps(events))
    return [*others, {**last, "args": {**last["args"], name: value}}]


def refused(folder, events, told):
    """Read a profile whose second rank has these events besides; the error is one line with the event."""
    write(folder, "rank0.json", profile_of(0, step_of_ddp()))
    write(folder, "rank1.json", profile_of(1, [*step_of_ddp(), *events]))
    with pytest.raises(InputError, match=told) as raised:
        read_foreign(folder)
    assert "\n" not in str(raised.value)
    return str(raised.value)


@pytest.mark.parametrize(
    ("events", "name", "value"),
    [
        (WORK, "Emu kernel", "turbo"),
        (WORK, "m", "many"),
        (WORK, "k", 2**40),
        (WORK, "FLOPs", None),
        (WORK, "dtype", "turbo"),
        (WORK, "Bytes moved", [1]),
        (WORK, "correlation", {}),
        (WORK, "stream", [7]),
        (SUM, "In msg nelems", "many"),
        (SUM, "In msg nelems", 2**70),
        (SUM, "Group size", -4),
        (SUM, "Process Group Ranks", "[0, 0]"),
        (SUM, "Process Group Ranks", "[0, 99999999999]"),
        (kernel("Memcpy DtoD", 200, 210, 5, 40), "bytes", "1 MB"),
        (SYNC, "wait_on_cuda_event_record_corr_id", "soon"),
        (SYNC, "correlation", None),
    ],
)
def test_an_argument_that_is_impossible(tmp_path, events, name, value):
    """Each argument that is taken as a number is checked where it is read."""
    line = refused(tmp_path, with_argument(events, name, value), r"profile: event 1[12] \(.*\) of 'rank1.json' ")
    assert re.search(f"{name!r}|another form than PyTorch|list of ranks|each rank once", line)


def test_arguments_that_are_no_object(tmp_path):
    """A list in place of the arguments is no reason to end in a traceback."""
    refused(tmp_path, [{**call("odd", 1, 2), "args": [1]}], r"event 11 \(odd\) of 'rank1.json' its args must be an object")


def test_a_root_beyond_its_group(tmp_path):
    """A root is a rank of the group, as the operator around the launch says it."""
    around = span("cpu_op", "c10d::broadcast_", 199, 4, HOST, **{"Concrete Inputs": ["", "", "5"]})
    asked = [around, *collective("broadcast", 200, 210, 5, 40, 8, 8, [0, 1])]
    write(tmp_path, "rank0.json", profile_of(0, [*step_of_ddp(), *asked]))
    refused(tmp_path, asked, r"event 13 of 'rank\d.json' .* a root or a peer below 2, .* got 5|event 13 of .* got 5")


@pytest.mark.parametrize(
    "told",
    [5, {"rank": "0", "world_size": 2}, {"rank": 0, "world_size": 2**40}, {"rank": 0, "pg_config": [{"ranks": [0]}]},
     {"rank": 0, "world_size": 2, "pg_config": [{"pg_name": "1", "ranks": ["a"]}]}],
)  # fmt: skip
def test_a_job_that_is_impossible(tmp_path, told):
    """The job of a profile is checked before its events count."""
    two_ranks(tmp_path)
    write(tmp_path, "rank0.json", profile_of(0, step_of_ddp(), distributedInfo=told))
    with pytest.raises(InputError, match=r"profile: distributedInfo of 'rank0.json' (must have|is not as PyTorch)"):
        read_foreign(tmp_path)


@pytest.mark.parametrize(
    "dims", [[["a", 2], [2, 2]], [3, 3], [[-1, 2], [2, 2]], [[2**40, 2**40], [2**40, 2**40]], [[[]], [2]], "ab"]
)
def test_shapes_that_are_none_leave_a_kernel_without_work(tmp_path, dims):
    """An operator of a user's own may have anything for shapes: its kernels last as they were measured."""
    told = {"Input Dims": dims, "Input type": ["float", "float"]}
    events = [step(5, 0, 500), span("cpu_op", "aten::mm", 0.5, 3, HOST, **told), *step_of_ddp()[1:]]
    for rank in range(2):
        write(tmp_path, f"rank{rank}.json", profile_of(rank, events))
    assert emu.load_trace(tmp_path).events[0].dtype[0] == ""


def test_a_pipe_in_a_folder_is_no_profile(tmp_path):
    """A pipe would be waited for."""
    os.mkfifo(two_ranks(tmp_path) / "pipe.json")
    assert read_foreign(tmp_path).n_ranks == 2


def test_deep_json_is_refused(tmp_path):
    """Lists within lists end the parser before the file ends."""
    (tmp_path / "rank0.json").write_text('{"traceEvents": [' + "[" * 100_000)
    with pytest.raises(InputError, match=r"'rank0.json' must be JSON, but is not after its beginning"):
        read_foreign(tmp_path)


def test_capitals_in_the_ending_of_a_name(tmp_path):
    """One rule holds for all endings."""
    for file in list(two_ranks(tmp_path).iterdir()):
        file.rename(file.with_name(file.name.upper()))
    assert read_foreign(tmp_path).n_ranks == 2
    assert read_foreign(tmp_path / "RANK0.JSON", fill_ranks=True).n_ranks == 2


def test_an_older_profile_without_the_type_of_a_buffer_is_refused_by_its_rank(tmp_path):
    events = [
        step(1, 0, 900),
        *kernel("ncclKernel_AllReduce_RING_LL_Sum_bf16", 12, 20, 10, 1, 20),
        span("user_annotation", "nccl:all_reduce", 10, 5, HOST, **{"Input Dims": [[25, 4]]}),
    ]
    for rank in range(2):
        write(tmp_path, f"rank{rank}.json", profile_of(rank, events))
    with pytest.raises(InputError, match=r"rank0.json.*unknown dtype"):
        read_foreign(tmp_path)
