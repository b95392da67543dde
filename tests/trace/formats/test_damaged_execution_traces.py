"""Files beside execution traces, and values in them, that no program should trust: one line each, or they are no concern."""

import json
import os

import pytest

import emu
from emu.errors import InputError
from emu.trace.formats.chakra.chakra_schema import chakra_messages
from emu.trace.formats.trace_formats import read_foreign
from tests.trace.formats.test_refused_execution_traces import SUM, refused
from tests.trace.formats.wire import COLL, META, SEND, framed, node, unframed, write

DEEP = '{"1": ' + "[" * 100_000


def one_rank(folder, **attrs):
    """Write the trace of a rank that asks for one sum."""
    write(folder, "run.0.et", node(0, "sum", COLL, **SUM, **attrs))


@pytest.mark.parametrize("text", [DEEP, '{"1": [Infinity]}', '{"1": ["a"]}', '{"1": [0, 0]}', '{"1": [true]}', "[1]", "{"])
def test_a_damaged_file_of_groups(tmp_path, text):
    """The file with the name of the trace must be one of groups."""
    one_rank(tmp_path)
    (tmp_path / "run.groups.json").write_text(text)
    refused(tmp_path, "the file of groups 'run.groups.json' must ")


def test_other_files_beside_a_trace_are_not_read(tmp_path):
    """A pipe would be waited for, and a profile of many GB would be read whole; neither begins as groups do."""
    one_rank(tmp_path)
    os.mkfifo(tmp_path / "pipe.json")
    (tmp_path / "deep.json").write_text("[" * 100_000)
    with (tmp_path / "profile.json").open("wb") as large:
        large.write(b'{"schemaVersion": 1, "traceEvents": [')
        large.truncate(100 * 10**6)
    with (tmp_path / "large.json").open("wb") as large:
        large.write(b'{"1": [0')
        large.truncate(100 * 10**6)
    assert read_foreign(tmp_path).n_ranks == 1


@pytest.mark.parametrize("word", ["comm_dst", "comm_src"])
def test_a_rank_that_no_job_has(tmp_path, word):
    """The largest rank that is named says how many ranks a job has: a damaged one must not make billions."""
    write(tmp_path, "run.0.et", node(0, "give", SEND, comm_size=8, **{"comm_src": 0, "comm_dst": 1, word: 2**32 - 1}))
    refused(tmp_path, f"node 0 (give) of 'run.0.et' must have a {word} of 0 or more and below 2**24, got 4294967295")


def test_a_rank_that_no_job_has_in_a_name_and_in_groups(tmp_path):
    """File names and groups name ranks, too."""
    write(tmp_path, "run.99999999999999999999.et", node(0, "sum", COLL, **SUM))
    refused(tmp_path, "the rank in the name 'run.99999999999999999999.et' must be below 16777216")
    (tmp_path / "run.99999999999999999999.et").unlink()
    groups = '[{"pg_name": "1", "ranks": [4294967295]}]'
    write(tmp_path, "run.0.et", node(0, "groups", META, inputs=groups))
    refused(tmp_path, "node 0 (groups) of 'run.0.et' must have a list of process groups")


def test_an_involved_dim_that_is_no_list(tmp_path):
    """Chakra has it as a list of true and false."""
    one_rank(tmp_path, involved_dim=True)
    refused(tmp_path, "node 0 (sum) of 'run.0.et' must have a list as involved_dim, got True")


def two_groups(folder, first, second):
    """Write two ranks that ask for two sums, one in each of two named groups."""
    for rank in range(2):
        sums = (node(i, "sum", COLL, **SUM, pg_name=name) for i, name in enumerate((first, second)))
        write(folder, f"run.{rank}.et", *sums)


def test_groups_of_equal_ranks_stay_apart_where_the_file_names_them_apart(tmp_path):
    """Requests of two groups do not wait for one another, as those of one do."""
    two_groups(tmp_path, "1", "2")
    (tmp_path / "run.groups.json").write_text(json.dumps({"1": [0, 1], "2": [0, 1]}))
    trace = read_foreign(tmp_path)
    assert [group.ranks for group in trace.groups] == [(0, 1), (0, 1)]
    assert trace.events[0].group.tolist() == [0, 1]
    assert trace.events[0].instance.tolist() == [0, 0]
    two_groups(tmp_path, "2", "2")
    trace = read_foreign(tmp_path)
    assert [group.ranks for group in trace.groups] == [(0, 1)]
    assert trace.events[0].instance.tolist() == [0, 1]


def test_no_name_and_the_name_0_are_one_group(tmp_path):
    """Both are of all ranks, as nothing names them otherwise."""
    two_groups(tmp_path, "", "0")
    assert read_foreign(tmp_path).events[0].group.tolist() == [0, 0]


@pytest.fixture(scope="module")
def of_emu(tmp_path_factory):
    """A folder with execution traces that Emu wrote."""
    folder = tmp_path_factory.mktemp("emu")
    step = emu.estimate(
        model="llama-small", plan="dp=2", topology="switch:n=2,bandwidth=1GB/s,latency=1us", global_batch=2, seq=64
    )
    step.save_trace(folder / "run.et")
    return folder


def test_capitals_in_the_ending_of_a_name(tmp_path):
    """One rule holds for all endings, of files beside the trace, too."""
    write(tmp_path, "run.0.ET", node(0, "sum", COLL, **SUM, pg_name="7"))
    (tmp_path / "run.Groups.JSON").write_text('{"7": [0]}')
    assert read_foreign(tmp_path).n_ranks == read_foreign(tmp_path / "run.0.ET").n_ranks == 1
    (tmp_path / "run.MAP.json").write_text("{}")
    refused(tmp_path, "'run.MAP.json' is no map of ranks as Emu writes it")


MAPS = {
    "[]": "TypeError",
    "{": "JSONDecodeError",
    '{"role_of_rank": [0, 4294967296], "groups": [], "group_of": [[], []]}': "role_of_rank must be a list",
    '{"role_of_rank": [0, 2], "groups": [], "group_of": [[], []]}': "role_of_rank must name each role up to 2",
    '{"role_of_rank": [-1], "groups": [], "group_of": [[]]}': "role_of_rank must be a list",
    '{"role_of_rank": [0], "groups": [["dp", [1]]], "group_of": [[]]}': "groups must have ranks below 1",
    '{"role_of_rank": [0], "groups": [["dp", [0]]], "group_of": [[1]]}': "group_of must have",
    '{"role_of_rank": [0], "groups": [["dp", "0"]], "group_of": [[0]]}': "ValueError",
    '{"role_of_rank": [0], "groups": [["dp", [0]]], "group_of": [[true]]}': "group_of must have",
    '{"role_of_rank": [0], "groups": [["dp", [0]]], "group_of": 5}': "TypeError",
}


@pytest.mark.parametrize("text", list(MAPS))
def test_a_damaged_map(tmp_path, text):
    """Each number of a map is checked before a file of a role is read."""
    (tmp_path / "run.map.json").write_text(text)
    refused(tmp_path / "run.et", "'run.map.json' is no map of ranks as Emu writes it: ")
    with pytest.raises(InputError, match=MAPS[text]):
        read_foreign(tmp_path / "run.et")


def with_exact(folder, of_emu, change):
    """Copy a trace that Emu wrote, with the values of the last node of rank 0 changed."""
    for file in of_emu.iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    *others, last = unframed((folder / "run.0.et").read_bytes())
    changed = chakra_messages().node.FromString(last)
    change(next(each for each in changed.attr if each.name == "emu"))
    (folder / "run.0.et").write_bytes(framed(*others, changed.SerializeToString()))


@pytest.mark.parametrize(
    ("column", "value"), [(1, 9), (2, 2**20), (5, 77), (10, 3), (12, -5), (14, 10**6), (3, -1), (6, 2**40)]
)
def test_columns_out_of_range(tmp_path, of_emu, column, value):
    """A value that no column can have is told with its node, and ends in no error of numpy."""

    def change(attr):
        attr.int64_list.values[column] = value

    with_exact(tmp_path, of_emu, change)
    with pytest.raises(InputError, match=r"node \d+ \(\w.*\) of 'run.0.et' must have a [\w ]+ of -?\d+ or more and below"):
        read_foreign(tmp_path)


def test_columns_of_the_wrong_type(tmp_path, of_emu):
    """Words in place of numbers are told with their node."""

    def change(attr):
        attr.string_list.values.extend(["1"] * 16)

    with_exact(tmp_path, of_emu, change)
    with pytest.raises(InputError, match=r"node \d+ \(\w.*\) of 'run.0.et' must have whole numbers in 'emu'"):
        read_foreign(tmp_path)
