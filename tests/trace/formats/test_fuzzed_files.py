"""Damaged files of every format: each is a trace, or one line for the user, and never another error."""

import copy
import json
import random
import shutil

import pytest

import emu
from emu.errors import InputError
from emu.trace.formats.chakra.chakra_schema import chakra_messages
from tests.trace.formats.profiles import HOST, kernel, profile_of, span, step_of_ddp, write
from tests.trace.formats.test_gloo_groups import four_ranks
from tests.trace.formats.test_goal import PING
from tests.trace.formats.wire import COLL, COMP, META, RECV, SEND, framed, node, unframed
from tests.trace.formats.wire import write as write_nodes

SWITCH = "switch:n=4,bandwidth=1GB/s,latency=1us"
VALUES = [None, True, -1, 0, 2**31, 2**40, 2**70, 1.5, 1e300, float("nan"), "", "x", "7", [], [1], [[]], ["a"], {}, {"a": 1}]
GROUPS = {"1": [0, 1]}


def outcome(path, replays=False):
    """Read a trace, and time it where it is one; any other error than one for the user ends the test."""
    try:
        trace = emu.load_trace(path)
        if replays:
            emu.replay(trace, topology=SWITCH)
    except InputError as error:
        line = str(error)
    else:
        return "taken"
    assert "\n" not in line
    return "refused"


def places(value, path=()):
    """The place of each value within a value."""
    yield path
    for key in value if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ():
        yield from places(value[key], (*path, key))


def changed(value, at, new):
    """A copy of a value with another one at a place."""
    made = copy.deepcopy(value)
    if not at:
        return new
    within = made
    for key in at[:-1]:
        within = within[key]
    within[at[-1]] = new
    return made


def profile():
    """A profile with each kind of event whose arguments are read."""
    shapes = {"Input Dims": [[8, 4], [4, 8]], "Input type": ["float", "float"], "Concrete Inputs": ["", ""]}
    waits = {"stream": 20, "correlation": 90, "wait_on_stream": 7, "wait_on_cuda_event_record_corr_id": 1}
    work = {"Emu kernel": "product", "m": 2, "n": 3, "k": 4, "FLOPs": 48.0, "Bytes moved": 100, "Elements": 25}
    events = [
        *step_of_ddp(),
        span("cpu_op", "c10d::allreduce_", 13.5, 3, HOST, **{"Input Dims": [[[8]]], "Concrete Inputs": ["", "0"]}),
        span("cpu_op", "aten::mm", 19.5, 3, HOST, **shapes),
        span("cuda_sync", "Stream Wait Event", 12, 0, 7, **waits),
        *kernel("odd", 60, 200, 5, 30, **work, dtype="float32"),
        *kernel("Memcpy DtoD", 61, 210, 5, 31, bytes=100),
    ]
    found = profile_of(0, events)
    found["distributedInfo"]["pg_config"] = [{"pg_name": "0", "pg_desc": "default_pg", "ranks": [0, 1]}]
    return found


@pytest.mark.parametrize("seed", range(8))
def test_a_profile_with_another_value_at_any_place(tmp_path, seed):
    """Types of values are flipped, in the file of one rank or of both."""
    drawn, own, told = random.Random(seed), profile(), set()
    for _ in range(25):
        bad = changed(own, drawn.choice([*places(own)]), drawn.choice(VALUES))
        write(tmp_path, "rank0.json", bad)
        both = drawn.random() < 0.5 and isinstance(bad, dict) and isinstance(bad.get("distributedInfo"), dict)
        write(tmp_path, "rank1.json", changed(bad if both else own, ("distributedInfo", "rank"), 1))
        told.add(outcome(tmp_path, replays=drawn.random() < 0.1))
    assert told == {"taken", "refused"}


def test_profiles_of_gloo_with_another_value_at_any_place(tmp_path):
    """Groups and threads of gloo are told by many values together."""
    drawn, path = random.Random(3), four_ranks(tmp_path) / "rank0.json"
    own = json.loads(path.read_text())
    for _ in range(60):
        path.write_text(json.dumps(changed(own, drawn.choice([*places(own)]), drawn.choice(VALUES))))
        outcome(tmp_path)


def cut_and_flipped(data, drawn):
    """Yield the beginning of a file, or the file with some other bytes."""
    for at in range(60):
        made = bytearray(data)
        if at % 2:
            made = made[: drawn.randrange(len(made))]
        for _ in range(drawn.choice([1, 2, 5]) * (at % 2 == 0)):
            made[drawn.randrange(len(made))] = drawn.randrange(256)
        yield bytes(made)


@pytest.fixture(scope="module")
def of_emu(tmp_path_factory):
    """A step in each format that Emu writes."""
    folder = tmp_path_factory.mktemp("own")
    step = emu.estimate(model="llama-tiny", plan="pp=2,dp=2,microbatch=1", topology=SWITCH, global_batch=4, seq=16)
    for name in ("step.trace", "et/step.et", "prof/step.json.gz", "step.goal"):
        (folder / name).parent.mkdir(exist_ok=True)
        step.save_trace(folder / name)
    (folder / "ping.goal").write_text(PING)
    return folder


@pytest.mark.parametrize("name", ["step.trace", "et/step.0.et", "prof/step.rank0.json.gz", "step.goal", "ping.goal"])
def test_files_that_are_cut_or_have_other_bytes(tmp_path, of_emu, name):
    """A file may end anywhere, and any byte may be another one."""
    drawn, path = random.Random(name), tmp_path / name
    if "/" in name:
        shutil.copytree((of_emu / name).parent, path.parent)
    for data in cut_and_flipped((of_emu / name).read_bytes(), drawn):
        path.write_bytes(data)
        outcome(path.parent if "/" in name else path)


def with_another_attribute(data, drawn):
    """A node with an attribute of another type, or that is missing, or with other numbers."""
    made = chakra_messages().node.FromString(data)
    which = drawn.choice(["attribute", "attribute", "type", "deps", "id", "times"])
    if which == "attribute" and made.attr:
        attr = drawn.choice(made.attr)
        name, kind = attr.name, drawn.choice(["bool", "int64", "uint64", "double", "string"])
        value = drawn.choice(
            {"bool": [True], "int64": [-1, 5, 2**62], "uint64": [2**64 - 1], "double": [1.5], "string": ["", "7"]}[kind]
        )
        attr.Clear()
        attr.name = name
        if drawn.random() < 0.3:
            getattr(attr, f"{kind}_list").values.append(value)
        else:
            setattr(attr, f"{kind}_val", value)
    made.type = drawn.choice(range(9)) if which == "type" else made.type
    made.id = drawn.choice([0, 2**64 - 1]) if which == "id" else made.id
    made.duration_micros = drawn.choice([2**64 - 1, 2**40]) if which == "times" else made.duration_micros
    made.data_deps.extend([drawn.randrange(7)] * (which == "deps"))
    return made.SerializeToString()


@pytest.mark.parametrize("seed", range(4))
def test_execution_traces_with_other_attributes(tmp_path, of_emu, seed):
    """Attributes of another type are told, in files of other programs and of Emu."""
    drawn = random.Random(seed)
    sums = [node(1, "sum", COLL, deps=(0,), comm_type=0, comm_size=8, pg_name="1", involved_dim=(True, True))]
    talk = {"comm_size": 8, "comm_src": 0, "comm_dst": 1, "comm_tag": 3}
    own = [node(0, "mm", COMP, us=5, num_ops=5, stream=3), *sums, node(2, "give", SEND, deps=(1,), **talk)]
    other = [node(0, "mm", COMP, us=5), *sums, node(2, "take", RECV, deps=(1,), **talk)]
    own += [node(3, "groups", META, inputs='[{"pg_name": "4", "ranks": [0, 1]}]')]
    (tmp_path / "run.groups.json").write_text(json.dumps(GROUPS))
    write_nodes(tmp_path, "run.1.et", *other)
    shutil.copytree(of_emu / "et", tmp_path / "et")
    head, *nodes = unframed((of_emu / "et" / "step.0.et").read_bytes())
    for _ in range(30):
        at = drawn.randrange(len(own))
        write_nodes(tmp_path, "run.0.et", *own[:at], with_another_attribute(own[at], drawn), *own[at + 1 :])
        outcome(tmp_path, replays=drawn.random() < 0.1)
        at = drawn.randrange(len(nodes))
        bad = [*nodes[:at], with_another_attribute(nodes[at], drawn), *nodes[at + 1 :]]
        (tmp_path / "et" / "step.0.et").write_bytes(framed(head, *bad))
        outcome(tmp_path / "et")


def test_files_of_groups_and_maps_with_another_value_at_any_place(tmp_path, of_emu):
    """The JSON files beside execution traces are checked as the traces are."""
    drawn = random.Random(1)
    shutil.copytree(of_emu / "et", tmp_path / "et")
    own = json.loads((of_emu / "et" / "step.groups.json").read_text())
    for _ in range(60):
        bad = json.dumps(changed(own, drawn.choice([*places(own)]), drawn.choice(VALUES)))
        (tmp_path / "et" / "step.groups.json").write_text(bad)
        outcome(tmp_path / "et")
    told = {"role_of_rank": [0, 0], "groups": [["dp", [0, 1]]], "group_of": [[0], [0]]}
    for _ in range(60):
        (tmp_path / "run.map.json").write_text(json.dumps(changed(told, drawn.choice([*places(told)]), drawn.choice(VALUES))))
        assert outcome(tmp_path / "run.et") == "refused"
