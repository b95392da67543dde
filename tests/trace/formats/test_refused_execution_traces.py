"""Execution traces that cannot be taken: one line that names the file and the node."""

import gzip
import json
import re

import pytest

from emu.errors import InputError
from emu.trace.formats.trace_formats import read_foreign
from tests.trace.formats.wire import ALL_REDUCE, COLL, COMP, META, SEND, framed, message, node, write

SUM = {"comm_type": ALL_REDUCE, "comm_size": 8}


def refused(path, match):
    with pytest.raises(InputError, match=re.escape(match)) as raised:
        read_foreign(path)
    assert "\n" not in str(raised.value)
    assert raised.value.exit_code == 2


@pytest.mark.parametrize(
    ("bad", "match"),
    [
        (node(3, "mm", COMP, deps=(7,)), "node 3 (mm) of 'run.0.et' depends on node 7, which the file lacks"),
        (node(0, "mm", COMP), "node 0 (mm) of 'run.0.et' has the number of another node (sum)"),
        (node(3, "mm", COMP, deps=(3,)), "node 3 (mm) of 'run.0.et' depends on itself, by way of others"),
        (node(3, "sum", COLL, comm_size=8), "node 3 (sum) of 'run.0.et' must have a comm_type of 0..9, got None"),
        (node(3, "sum", COLL, comm_type=10, comm_size=8), "must have a comm_type of 0..9, got 10"),
        (node(3, "sum", COLL, comm_type=0), "node 3 (sum) of 'run.0.et' lacks comm_size"),
        (node(3, "sum", COLL, comm_type=0, comm_size="8"), "comm_size must be a whole number of 0 or more"),
        (
            node(3, "all", COLL, comm_type=2, comm_size=2**61),
            "node 3 (all) of 'run.0.et' must have a comm_size below 2**62 bytes",
        ),
        (node(3, "give", SEND, comm_size=8), "node 3 (give) of 'run.0.et' lacks comm_dst"),
        (node(3, "give", SEND, comm_size=8, comm_dst=1, comm_tag=2**31), "must have a comm_tag below 2**31"),
        (
            node(3, "sum", COLL, **SUM, pg_name="5"),
            "is of process group '5', which neither a file of groups nor the trace names",
        ),
        (node(3, "sum", COLL, **SUM, involved_dim=(True, False)), "is of some dimensions of a network (involved_dim)"),
        (node(3, "sum", COLL, **SUM, pg_name="2"), "is of process group '2', which lacks rank 0 itself"),
        (node(3, "mm", COMP, num_ops="many"), "num_ops must be a whole number"),
        (node(3, "groups", META, inputs="['[{\"pg_name\": 4}]']"), "node 3 (groups) of 'run.0.et' must have a list of process"),
        (node(3, "mm", 8), "message 2 of 'run.0.et' is no node: 8 is not a valid NodeType"),
        (message((1, 3)), "message 2 of 'run.0.et' is no node: it has neither a name nor a type"),
        (message((2, 5)), "message 2 of 'run.0.et' is no node"),
    ],
)
def test_a_node_that_is_impossible(tmp_path, bad, match):
    (tmp_path / "run.groups.json").write_text(json.dumps({"2": [1, 2]}))
    write(tmp_path, "run.0.et", node(0, "sum", COLL, **SUM), bad)
    for rank in (1, 2):
        write(tmp_path, f"run.{rank}.et", node(0, "sum", COLL, **SUM))
    refused(tmp_path, match)


def test_a_circle_of_two(tmp_path):
    write(tmp_path, "run.0.et", node(1, "a", COMP, deps=(2,)), node(2, "b", COMP, deps=(1,)))
    refused(tmp_path, "node 1 (a) of 'run.0.et' depends on itself, by way of others; break the circle")


def test_a_file_that_is_cut_off(tmp_path):
    path = write(tmp_path, "run.0.et", node(0, "a", COMP), node(1, "b", COMP))
    whole = path.read_bytes()
    for left in (len(whole) - 1, len(whole) - len(node(1, "b", COMP))):
        path.write_bytes(whole[:left])
        refused(tmp_path, "'run.0.et' is cut off within message 2, of which node 1 is made")
    path.write_bytes(whole[:3])
    refused(tmp_path, "'run.0.et' is cut off within its metadata")
    path.write_bytes(gzip.compress(whole)[:-9])
    refused(tmp_path, "'run.0.et' is cut off, or no gzip")
    path.write_bytes(b"")
    refused(tmp_path, "'run.0.et' is empty")


def test_a_gzip_is_read(tmp_path):
    path = write(tmp_path, "run.0.et", node(0, "a", COMP, us=1))
    path.write_bytes(gzip.compress(path.read_bytes()))
    assert read_foreign(tmp_path).events[0].name == ("a",)


@pytest.mark.parametrize("data", [b'{"traceEvents": []}', framed(message((1, 7), (5, "x"))), framed(b"", b""), b"\xff" * 40])
def test_messages_of_something_else(tmp_path, data):
    (tmp_path / "run.0.et").write_bytes(data)
    refused(tmp_path, "'run.0.et'")


def test_a_trace_without_nodes(tmp_path):
    write(tmp_path, "run.0.et")
    refused(tmp_path, "'run.0.et' has no node")


def test_ranks_that_are_missing_or_twice(tmp_path):
    for rank in (0, 2):
        write(tmp_path, f"run.{rank}.et", node(0, "sum", COLL, **SUM))
    refused(tmp_path, "has 2 of 3 ranks, but not 1; add their files, or let them do what equal ranks do by --fill-ranks")
    write(tmp_path, "run.00.et", node(0, "sum", COLL, **SUM))
    refused(tmp_path, "'run.0.et' and 'run.00.et' are both of rank 0; remove one of them")


def test_two_runs_in_one_folder_and_none(tmp_path):
    for name in ("one.0.et", "two.0.et"):
        write(tmp_path, name, node(0, "a", COMP))
    refused(tmp_path, "has the files of 'one' and 'two'; name one by one.et")
    refused(tmp_path / "three.et", "neither it nor three.0.et is a file")


def test_two_files_of_groups(tmp_path):
    write(tmp_path, "run.0.et", node(0, "sum", COLL, **SUM, pg_name="1"))
    for name in ("a.json", "b.json", "settings.json"):
        (tmp_path / name).write_text(json.dumps({"1": [0]} if name < "c" else {"scheduling-policy": "LIFO"}))
    refused(tmp_path, "'a.json' and 'b.json' both have groups; name that of 'run' 'run.groups.json'")
