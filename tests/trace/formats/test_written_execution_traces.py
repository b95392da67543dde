"""Traces written as execution traces: read back they are as they were, and others find what they look for."""

import json
from dataclasses import replace

import numpy as np
import pytest

from emu.collective.choice import Choice
from emu.errors import InputError
from emu.fabric.run import run_graph
from emu.trace.device.device import measured_device
from emu.trace.formats.chakra import chakra_writer
from emu.trace.formats.trace_formats import output_path, read_foreign, write_trace
from emu.trace.kernel_shape import Kernel
from emu.trace.replay.replay import TraceLayout
from emu.trace.report.report import report
from emu.trace.trace import Events, Group
from emu.trace.trace_file import load
from tests.trace.formats.wire import (
    ALL_GATHER,
    ATTR,
    BOOL,
    COLL,
    COMP,
    DATA_DEPS,
    ID,
    INT32,
    INT64,
    LASTS,
    METADATA,
    NAME,
    RECV,
    SEND,
    STRING,
    TYPE,
    UINT64,
    attrs_of,
    fields,
    framed,
    node,
    packed,
    unframed,
    without,
    write,
)
from tests.trace.laid import DEVICE, in_ms, replay, star_of, trace_of

RING = Choice({"all_reduce": "ring", "all_gather": "ring"})
US = 1e-3  # ms
MEASURED = measured_device("npu")
GROUPS = (Group("tp", (0, 1)), Group("tp", (2, 3)), Group("dp", (1, 3)), Group("dp", (0, 2)), Group("tp", (2, 3)))
GROUP_OF = ((0, 3), (0, 2), (1, 3), (1, 2))


def layout_of(trace):
    return TraceLayout(trace, RING, star_of(trace.n_ranks), DEVICE, "float32")


def step_of(words, first=0.3333, peer=1, *, sends=True):
    """A role of two groups: computations on two streams, both kinds of requests, waits, marks and split sizes."""
    message = words.send(900, peer, tag=3) if sends else words.recv(900, peer, tag=3)
    return words.events(
        words.compute(first, bytes=700, count=100, kernel=Kernel.PRODUCT, batch=1, m=2, n=3, k=4),
        words.compute(0.7, stream=1, name="norm", dtype="bfloat16", waits=(0,)),
        words.collective(250_000, waits=(1,), instance=0),
        words.compute(0.123, flops=0.5),
        words.collective(1001, name="all_gather", instance=1, splits=()),
        {**message, "group": 1},
        words.compute(0.41, waits=(2, 5)),
        words.mark(waits=(6, 4)),
    )


@pytest.fixture
def trace(words):
    roles = step_of(words), step_of(words, first=0.1), step_of(words, sends=False, peer=0), step_of(words, 0.2, 0, sends=False)
    found = trace_of(*roles, role_of_rank=(0, 1, 2, 3), groups=GROUPS, group_of=GROUP_OF, meta=(("command", "run"),))
    return replace(found, peak_by_part=np.arange(16).reshape(4, 4))


def written(trace, path):
    write_trace(layout_of(trace), path)
    return path


def assert_equal(found, trace):
    """All that a trace holds is equal but for its durations, and the note of what was read."""
    for name in Events.__slots__:
        for one, other in zip(found.events, trace.events, strict=True):
            if name != "lasts_s":
                assert np.array_equal(getattr(one, name), getattr(other, name)), name
    assert found.role_of_rank.tolist() == trace.role_of_rank.tolist()
    assert found.group_of == trace.group_of
    named = [[(group.axis, group.ranks) for group in of.groups] for of in (found, trace)]
    assert named[0] == named[1]
    assert found.peak_by_part.tolist() == trace.peak_by_part.tolist()
    assert found.meta[:-1] == trace.meta


def step_ms(trace, device=MEASURED):
    found = replay(trace, RING, star_of(trace.n_ranks), device)
    return in_ms(report(trace, found, run_graph(found.graph)))[0]


def nodes_of(path):
    return [fields(each) for each in unframed(path.read_bytes())[1:]]


def test_a_trace_is_read_back_as_it_was(trace, tmp_path):
    groups = trace.groups[:4]  # the fifth has no rank that knows it
    trace = replace(trace, groups=groups)
    assert_equal(read_foreign(written(trace, tmp_path / "run.et")), trace)
    assert sorted(path.name for path in tmp_path.iterdir()) == [*(f"run.{rank}.et" for rank in range(4)), "run.groups.json"]


def test_a_rank_that_does_nothing_is_read_back(words, tmp_path):
    """Its file has no node, and the trace is the same."""
    busy, idle = words.events(words.compute(0.5), words.collective(1000)), words.events()
    groups = (Group("dp", (0, 1)),)
    trace = trace_of(busy, idle, role_of_rank=(0, 0, 1), groups=groups, group_of=((0,), (0,), ()), meta=(("command", "run"),))
    assert_equal(read_foreign(written(trace, tmp_path / "run.et")), trace)


def test_two_groups_of_the_same_ranks_stay_two(words, tmp_path):
    same = words.events(words.collective(10), words.collective(10, group=1), words.collective(10, instance=1))
    twice = trace_of(same, groups=(Group("", (0, 1)), Group("", (0, 1))), group_of=((0, 1), (0, 1)))
    assert_equal(read_foreign(written(twice, tmp_path / "run.et")), twice)


def test_a_folder_gets_a_file_of_each_rank(trace, tmp_path):
    written(trace, output_path(f"{tmp_path}/out/"))
    assert output_path(tmp_path / "out") == tmp_path / "out" / "trace.et"  # it is there by now
    assert read_foreign(tmp_path / "out").n_ranks == 4
    write_trace(layout_of(trace), tmp_path / "own.trace")
    assert load(tmp_path / "own.trace").digest() == trace.digest()


def test_the_step_takes_as_long_to_the_microsecond(trace, tmp_path):
    own, found = step_ms(trace, DEVICE), step_ms(read_foreign(written(trace, tmp_path / "run.et")))
    assert found == pytest.approx(own, abs=1.01 * US)
    assert found != own  # as durations are whole microseconds


def test_no_error_grows_as_the_ends_of_computations_are_rounded(words, tmp_path):
    many = words.events(*[words.compute(0.0004) for _ in range(1000)], words.collective(10))
    found = read_foreign(written(trace_of(many), tmp_path / "run.et"))
    assert found.events[0].lasts_s.sum() == pytest.approx(400e-6)
    assert set((found.events[0].lasts_s * 1e6).round().tolist()) == {0, 1}


def test_what_was_read_is_written_as_the_same_bytes(trace, tmp_path):
    first = written(trace, tmp_path / "run.et")
    found = read_foreign(first)
    kept = replace(found, meta=found.meta[:-1])
    write_trace(replace(layout_of(kept), device=MEASURED), tmp_path / "again.et")
    for rank in range(4):
        one, other = ((tmp_path / f"{name}.{rank}.et").read_bytes() for name in ("run", "again"))
        assert one == other


def test_other_programs_find_what_they_look_for(trace, tmp_path):
    """The fields by their numbers: nothing of the writer's own schema is taken."""
    written(trace, tmp_path / "run.et")
    head, *_ = unframed((tmp_path / "run.1.et").read_bytes())
    assert fields(head)[1] == [b"1.0.0"]
    nodes = nodes_of(tmp_path / "run.1.et")
    assert [node[NAME][0].decode() for node in nodes] == list(trace.events[1].name)
    assert [node[ID][0] if ID in node else 0 for node in nodes] == list(range(8))
    assert [node[TYPE][0] for node in nodes] == [COMP, COMP, COLL, COMP, COLL, SEND, COMP, COMP]
    lasts, own = ([node[LASTS][0] if LASTS in node else 0 for node in nodes], DEVICE.seconds(trace.events[1], "float32") * 1e6)
    assert np.abs(lasts - own).max() < 1
    assert lasts[0] > 50
    deps = [packed(node[DATA_DEPS][0]) if DATA_DEPS in node else [] for node in nodes]
    assert deps == [
        [],
        [0],
        [1, 0],
        [0],
        [3, 2],
        [3],
        [2, 5, 3],
        [6, 4],
    ]  # those that the trace names, then of streams and queues
    found = [attrs_of(node) for node in nodes]
    assert found[0]["num_ops"] == (INT64, int(0.1 * 1e9))
    assert found[0]["tensor_size"] == (UINT64, 700)
    assert [each["stream"] for each in found[:2]] == [(INT64, 0), (INT64, 1)]
    assert {each["is_cpu_op"] for each in found[:-1]} == {(BOOL, 0)}
    assert found[2]["comm_type"] == (INT64, 0)
    assert found[2]["comm_size"] == (INT64, 1_000_000)
    assert found[2]["pg_name"] == (STRING, b"1")
    assert found[4]["comm_type"] == (INT64, ALL_GATHER)
    assert found[4]["comm_size"] == (INT64, 2002)  # what each rank gives: a half of 4,004 bytes
    assert [found[5][name] for name in ("comm_src", "comm_dst", "comm_tag")] == [(INT32, 1), (INT32, 3), (INT32, 3)]
    taken = attrs_of(nodes_of(tmp_path / "run.2.et")[5])
    assert [taken[name] for name in ("comm_src", "comm_dst")] == [(INT32, 0), (INT32, 2)]
    assert nodes_of(tmp_path / "run.2.et")[5][TYPE] == [RECV]
    groups = json.loads((tmp_path / "run.groups.json").read_text())
    assert groups == {str(number): list(group.ranks) for number, group in enumerate(GROUPS, 1)}


@pytest.mark.parametrize(("bytes_in_all", "of_a_rank"), [(4004, 2002), (4005, 2003)])
def test_what_each_rank_gives_to_a_gathering_is_a_whole_number_of_bytes(bytes_in_all, of_a_rank, words, tmp_path):
    gathering = words.events({**words.collective(0, name="all_gather"), "bytes": bytes_in_all})
    written(trace_of(gathering), tmp_path / "run.et")
    assert attrs_of(nodes_of(tmp_path / "run.0.et")[0])["comm_size"] == (INT64, of_a_rank)


def test_the_words_of_chakra_alone_take_as_long(trace, tmp_path):
    """Without what Emu adds, a trace is one of another program: its step takes the same time."""
    written(trace, tmp_path / "run.et")
    expected = step_ms(read_foreign(tmp_path))
    for file in tmp_path.glob("*.et"):
        head, *nodes = unframed(file.read_bytes())
        assert all(b"emu" in each for each in (head, *nodes))
        file.write_bytes(framed(METADATA, *(without(each, "emu", "dtype") for each in nodes)))
    bare = read_foreign(tmp_path)
    assert {events.dtype[0] for events in bare.events} == {"bfloat16"}  # where Emu's own column had float32
    assert step_ms(bare) == pytest.approx(
        expected, abs=0.01 * US
    )  # blocks of bytes differ from those of elements by some bytes


def test_of_many_ranks_a_file_of_each_role_and_a_map(words, tmp_path, monkeypatch):
    monkeypatch.setattr(chakra_writer, "MOST_FILES", 3)
    roles = step_of(words), step_of(words, sends=False, peer=0)
    many = trace_of(*roles, role_of_rank=(0, 0, 1, 1), groups=GROUPS, group_of=GROUP_OF, meta=(("command", "run"),))
    written(many, tmp_path / "run.et")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["run.map.json", "run.role0.et", "run.role1.et"]
    for path in (tmp_path, tmp_path / "run.et"):
        assert_equal(read_foreign(path), many)
    (tmp_path / "run.role1.et").unlink()
    with pytest.raises(InputError, match=r"cannot read '.*run.role1.et'"):
        read_foreign(tmp_path)
    (tmp_path / "run.map.json").write_text("{}")
    with pytest.raises(InputError, match=r"'run.map.json' is no map of ranks as Emu writes it"):
        read_foreign(tmp_path)


def test_a_trace_over_an_older_one_leaves_none_of_it(trace, words, tmp_path, monkeypatch):
    two = trace_of(words.events(words.collective(10)))
    for kept in ("run.extra.3.et", "other.3.et", "other.map.json"):
        (tmp_path / kept).write_bytes(b"mine")
    for most in (4, 3, 4):  # a file a rank, then a map, then a file a rank
        monkeypatch.setattr(chakra_writer, "MOST_FILES", most)
        assert read_foreign(written(trace, tmp_path / "run.et")).n_ranks == 4
        assert (tmp_path / "run.map.json").is_file() == (most == 3)
        assert len(list(tmp_path.glob("run.[0-9].et"))) == (0 if most == 3 else 4)
    assert read_foreign(written(two, tmp_path / "run.et")).n_ranks == 2
    assert sorted(path.name for path in tmp_path.glob("*.[0-9].et")) == ["other.3.et", "run.0.et", "run.1.et", "run.extra.3.et"]
    assert (tmp_path / "other.map.json").read_bytes() == b"mine"


def test_files_of_others_stay_where_a_smaller_trace_is_written(trace, words, tmp_path, monkeypatch):
    """Files of another program may have the names of more ranks; only what Emu wrote is removed, files of roles too."""
    write(tmp_path, "run.7.et", node(0, "mm", COMP))
    (tmp_path / "run.role9.et").write_bytes(b"mine")
    monkeypatch.setattr(chakra_writer, "MOST_FILES", 3)
    written(trace, tmp_path / "run.et")
    assert (tmp_path / "run.role0.et").is_file()
    monkeypatch.undo()
    written(trace_of(words.events(words.collective(10))), tmp_path / "run.et")
    names = ["run.0.et", "run.1.et", "run.7.et", "run.groups.json", "run.role9.et"]
    assert sorted(path.name for path in tmp_path.iterdir()) == names


def test_files_of_other_runs_and_ranks_are_refused(trace, words, tmp_path):
    two = trace_of(words.events(words.collective(10)))
    written(two, tmp_path / "run.et")
    written(trace, tmp_path / "other.et")
    for rank in (2, 3):
        (tmp_path / f"other.{rank}.et").rename(tmp_path / f"run.{rank}.et")
    for left in tmp_path.glob("other.*"):
        left.unlink()
    with pytest.raises(InputError, match=r"must be of one run, but 'run.0.et' is of 2 ranks and 'run.2.et' of 4 ranks"):
        read_foreign(tmp_path)
    for rank in (2, 3):
        (tmp_path / f"run.{rank}.et").unlink()
    (tmp_path / "run.0.et").write_bytes((tmp_path / "run.1.et").read_bytes())
    with pytest.raises(InputError, match=r"'run.0.et' is of rank 1; give the file the number of its rank"):
        read_foreign(tmp_path)
    written(two, tmp_path / "run.et")
    (tmp_path / "run.groups.json").unlink()
    with pytest.raises(InputError, match=r"'run.0.et' has a group '1', which no file of groups names; put that beside it"):
        read_foreign(tmp_path)


@pytest.mark.parametrize("ranks", [(0, 2, 7), (1, 2)])
@pytest.mark.parametrize("number", [1, 4])
def test_each_group_of_a_written_rank_has_it_and_ranks_of_the_run_alone(number, ranks, trace, tmp_path):
    """Rank 0 is in groups 1 and 4, its first and its last."""
    written(trace, tmp_path / "run.et")
    groups = json.loads((tmp_path / "run.groups.json").read_text())
    (tmp_path / "run.groups.json").write_text(json.dumps({**groups, str(number): ranks}))
    with pytest.raises(InputError, match=r"'run.0.et' .* group .*; (give|groups)"):
        read_foreign(tmp_path)


def test_a_node_without_what_the_others_have_is_refused(trace, tmp_path):
    written(trace, tmp_path / "run.et")
    head, first, *nodes = unframed((tmp_path / "run.0.et").read_bytes())
    (tmp_path / "run.0.et").write_bytes(framed(head, without(first, "dtype"), *nodes))
    assert ATTR in fields(first)
    with pytest.raises(InputError, match=r"node 0 \(mm\) of 'run.0.et' lacks the attributes 'emu' and 'dtype'"):
        read_foreign(tmp_path)


def test_an_operation_that_chakra_lacks_is_refused(words, tmp_path):
    odd = trace_of(words.events(words.collective(10, name="scan")))
    with pytest.raises(InputError, match="--trace: an execution trace has no 'scan'"):
        written(odd, tmp_path / "run.et")
