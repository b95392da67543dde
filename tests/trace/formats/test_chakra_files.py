"""The files of an execution trace by their names, its groups, and the map of ranks to roles."""

import json
from pathlib import Path
from typing import Any

import pytest

from emu.errors import InputError
from emu.files import MOST_TEXT_BYTES
from emu.trace.formats.chakra.chakra_files import (
    GROUPS,
    MAP,
    TraceFiles,
    groups_beside,
    groups_in_metadata,
    is_chakra,
    ranks_named,
    trace_files,
)
from emu.trace.formats.chakra.chakra_node import ChakraNode, NodeFile
from emu.trace.formats.chakra.chakra_schema import NodeType
from emu.trace.formats.chakra.role_map import read_map
from emu.trace.formats.rank_group import MOST_RANKS


def written(folder: Path, *names: str) -> Path:
    for name in names:
        (folder / name).write_text("x")
    return folder


NAMES = {
    "all_gather.0.et": ("all_gather", 0), "run-12.et": ("run", 12), "rank7.et": ("", 7),
    "rank_8.et": ("rank", 8), "npu3.ET": ("", 3),
    "run.rank.007.et": ("run", 7), "a.b_c-rank_1.et": ("a.b_c", 1), "5.et": ("", 5), "x.0000.et": ("x", 0),
}  # fmt: skip


@pytest.mark.parametrize("name", NAMES)
def test_the_name_of_a_file_has_a_prefix_and_a_rank(name: str, tmp_path: Path) -> None:
    prefix, rank = NAMES[name]
    path = written(tmp_path, name) / name
    own = TraceFiles(tmp_path, prefix, {rank: path})
    assert trace_files(path) == own
    assert trace_files(tmp_path) == own
    if prefix:
        assert trace_files(tmp_path / f"{prefix}.et") == own
    assert is_chakra(path)
    assert is_chakra(tmp_path)


def test_a_file_without_a_number_is_of_rank_0(tmp_path: Path) -> None:
    path = written(tmp_path, "alone.et") / "alone.et"
    assert trace_files(path) == TraceFiles(tmp_path, "alone", {0: path})


def test_all_files_of_a_run_are_found_and_no_others(tmp_path: Path) -> None:
    written(tmp_path, "run.10.et", "run.2.et", "run.0.et", ".run.3.et", "run.4.json", "other", "run.role0.et.txt")
    (tmp_path / "run.5.et").mkdir()
    found = trace_files(tmp_path)
    assert found.prefix == "run"
    assert {rank: path.name for rank, path in found.of_rank.items()} == {0: "run.0.et", 2: "run.2.et", 10: "run.10.et"}
    assert found.map == tmp_path / f"run{MAP}"
    assert found.beside(".txt").name == "run.txt"
    written(tmp_path, "RUN.MAP.JSON", "run.MAP.json")
    assert found.map.name == "run.MAP.json"


def test_a_folder_of_several_runs_or_of_none_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"cannot read .*: no file NAME.0.et in it; name the files of ranks by their numbers$"):
        trace_files(tmp_path)
    with pytest.raises(InputError, match=r"cannot read .*run.et': neither it nor run.0.et is a file"):
        trace_files(tmp_path / "run.et")
    with pytest.raises(InputError, match=r"cannot read .*run.et'"):
        trace_files(tmp_path / "nowhere" / "run.et")
    assert not is_chakra(tmp_path)
    assert not is_chakra(tmp_path / "nowhere")
    written(tmp_path, "a.0.et", f"b{MAP}")
    with pytest.raises(InputError, match=r"has the files of 'b' and 'a'; name one by b.et$"):
        trace_files(tmp_path)
    assert trace_files(tmp_path / "a.et").of_rank == {0: tmp_path / "a.0.et"}
    assert trace_files(tmp_path / "b.et") == TraceFiles(tmp_path, "b", {})
    written(tmp_path, "a.00.et")
    with pytest.raises(InputError, match=r"'a.0.et' and 'a.00.et' are both of rank 0; remove one of them$"):
        trace_files(tmp_path / "a.et")


def test_the_number_of_a_rank_has_a_limit(tmp_path: Path) -> None:
    for number, known in ((MOST_RANKS - 1, True), (MOST_RANKS, False), (10**30, False)):
        path = written(tmp_path, f"run.{number}.et") / f"run.{number}.et"
        if known:
            assert list(trace_files(path).of_rank) == [number]
        else:
            with pytest.raises(InputError, match=rf"must be below {MOST_RANKS}, got '{str(number)[:20]}'"):
                trace_files(path)
        path.unlink()


TOLD = {"0": [0, 1], "12": [1]}


def test_the_groups_of_a_trace_are_in_the_file_of_its_name_or_in_the_only_one(tmp_path: Path) -> None:
    files = trace_files(written(tmp_path, "run.0.et"))
    assert groups_beside(files) == {}
    written(tmp_path, "other.json", f"other{GROUPS}", f"other{MAP}")
    assert groups_beside(files) == {}
    for text in (json.dumps(TOLD), "\n  " + json.dumps(TOLD, indent=1)):
        (tmp_path / "process.json").write_text(text)
        assert groups_beside(files) == {"0": (0, 1), "12": (1,)}
    (tmp_path / "empty.json").write_text(" {}")
    with pytest.raises(
        InputError, match=rf"'empty.json' and 'process.json' both have groups; name that of 'run' 'run{GROUPS}'$"
    ):
        groups_beside(files)
    (tmp_path / f"run{GROUPS}").write_text('{"3": []}')
    assert groups_beside(files) == {"3": ()}


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("[1]", "must be an object with a list of ranks for each number of a group"),
        ('{"a": [1], "1": [0]}', "must be an object with a list of ranks for each number of a group"),
        ('{"1": [0], "a": [1]}', "must be an object with a list of ranks for each number of a group"),
        ('{"1": 5}', "must have a list of ranks below 2**24, got 5"),
        ('{"1": [0, 0]}', "must have each rank once in a group, got [0, 0]"),
        ('{"1": [0', "must be JSON, and is cut off or damaged"),
    ],
)  # fmt: skip
def test_a_file_of_something_else_is_no_file_of_groups(text: str, why: str, tmp_path: Path) -> None:
    files = trace_files(written(tmp_path, "run.0.et"))
    (tmp_path / f"run{GROUPS}").write_text(text)
    with pytest.raises(InputError) as raised:
        groups_beside(files)
    assert str(raised.value) == f"execution trace: the file of groups 'run{GROUPS}' {why}; write it again"


def node(kind: NodeType, inputs: str = "", **attrs: Any) -> ChakraNode:
    return ChakraNode(3, "n", kind, (), (), 0, 0, inputs, attrs)


def test_groups_that_pytorch_wrote_are_found_in_nodes_of_metadata() -> None:
    text = '["[{\\"pg_name\\"', 'x [{"pg_name": 4, "ranks": [0, 2]}, {"pg_name": "5", "ranks": []}] y'
    nodes = [node(NodeType.METADATA, text[1]), node(NodeType.COMP, text[1].replace("4", "9")), node(NodeType.METADATA, "[{}]")]
    more = node(NodeType.METADATA, '[{"pg_name": "6", "ranks": [1]}]')
    assert groups_in_metadata(NodeFile("a.et", {}, (*nodes, more))) == {"4": (0, 2), "5": (), "6": (1,)}
    sized = node(
        NodeType.METADATA, '[{"pg_name": "0", "ranks": [], "group_size": 3}, {"pg_name": "1", "ranks": [2], "group_size": 1}]'
    )
    assert groups_in_metadata(NodeFile("a.et", {}, (sized,))) == {"0": (0, 1, 2), "1": (2,)}
    whole = [f'[{{"pg_name": "0", "ranks": [], "group_size": {size}}}]' for size in ("-1", "2.5", "true", '"8"', 2**24)]
    for bad in (
        *whole,
        '[{"pg_name": 4}]',
        '[{"pg_name": 4, "ranks": [0}]',
        '[{"pg_name": 4, "ranks": [0, 0]}]',
        '[{"pg_name" 4}]',
    ):
        with pytest.raises(InputError, match=r"node 3 \(n\) of 'a.et' must have a list of process groups as PyTorch writes it"):
            groups_in_metadata(NodeFile("a.et", {}, (node(NodeType.METADATA, bad),)))


def test_as_many_ranks_are_named_as_messages_and_groups_have() -> None:
    send, recv = node(NodeType.COMM_SEND, comm_src=0, comm_dst=5), node(NodeType.COMM_RECV, comm_src=7)
    other = node(NodeType.COMM_COLL, comm_dst=99)
    assert ranks_named([], []) == 0
    assert ranks_named([NodeFile("a", {}, (other,))], [{"0": (0, 3), "1": ()}, {"1": (2,)}]) == 4
    assert ranks_named([NodeFile("a", {}, (send, other))], [{"0": (0, 3)}]) == 6
    assert ranks_named([NodeFile("a", {}, (send,)), NodeFile("b", {}, (recv,))], []) == 8
    for bad in (-1, MOST_RANKS, "5", True):
        with pytest.raises(InputError, match=rf"must have a comm_dst of 0 or more and below 2\*\*24, got {bad}"):
            ranks_named([NodeFile("a", {}, (node(NodeType.COMM_SEND, comm_dst=bad),))], [])


MAPPED = {"role_of_rank": [0, 1, 0], "groups": [["tp", [0, 1]], ["dp", [0, 2]], ["", []]], "group_of": [[0, 1], [0], [1, 1]]}


def mapped(folder: Path, **changed: Any) -> TraceFiles:
    (folder / f"run{MAP}").write_text(json.dumps({**MAPPED, **changed}))
    return TraceFiles(folder, "run", {})


def test_a_map_has_the_file_of_each_role_and_the_groups_of_each_rank(tmp_path: Path) -> None:
    found = read_map(mapped(tmp_path))
    assert [path.name for path in found.paths] == ["run.role0.et", "run.role1.et"]
    assert list(found.role_of_rank) == [0, 1, 0]
    assert [(group.axis, group.ranks) for group in found.groups] == [("tp", (0, 1)), ("dp", (0, 2)), ("", ())]
    assert found.group_of == ((0, 1), (0,), (1, 1))
    found.check_groups([2, 1])
    for counts in ([1, 1], [2, 2], [2, 0]):
        with pytest.raises(
            InputError, match=r"group_of of rank [01] must have the \d groups of role [01], each with this rank"
        ):
            found.check_groups(counts)
    for rank, own in ((0, [0, 2]), (0, [2, 0]), (2, [1, 0]), (2, [0, 1])):
        other = [own if each == rank else of for each, of in enumerate(MAPPED["group_of"])]
        with pytest.raises(InputError, match=rf"group_of of rank {rank} must have the 2 groups of role 0, each with this rank"):
            read_map(mapped(tmp_path, group_of=other)).check_groups([2, 1])


def test_a_map_may_be_larger_than_other_texts(tmp_path: Path) -> None:
    files = mapped(tmp_path)
    files.map.write_text(files.map.read_text() + " " * MOST_TEXT_BYTES)
    assert len(read_map(files).groups) == 3


@pytest.mark.parametrize(
    ("changed", "why"),
    [
        ({"role_of_rank": []}, "role_of_rank must be a list with the number of a role for each rank"),
        ({"role_of_rank": [0, -1, 0]}, "role_of_rank must be a list with the number of a role for each rank"),
        ({"role_of_rank": [0, "1", 0]}, "role_of_rank must be a list with the number of a role for each rank"),
        ({"role_of_rank": [0, 2, 0]}, "role_of_rank must name each role up to 2"),
        ({"role_of_rank": [1, 1, 1]}, "role_of_rank must name each role up to 1"),
        ({"groups": [["tp", [0, 3]], ["dp", [0, 2]]]}, "groups must have ranks below 3, the number of ranks"),
        ({"group_of": [[0], [0]]}, "group_of must have, for each of 3 ranks, numbers below 3"),
        ({"group_of": [[0], [0], [3]]}, "group_of must have, for each of 3 ranks, numbers below 3"),
        ({"group_of": [[0], [0], [-1]]}, "group_of must have, for each of 3 ranks, numbers below 3"),
        ({"group_of": 5}, "it is cut off or damaged (TypeError)"),
        ({"groups": [["tp"]]}, "it is cut off or damaged (ValueError)"),
    ],
)
def test_a_map_of_impossible_numbers_is_refused(changed: dict[str, Any], why: str, tmp_path: Path) -> None:
    with pytest.raises(InputError) as raised:
        read_map(mapped(tmp_path, **changed))
    assert str(raised.value).endswith(f"'run{MAP}' is no map of ranks as Emu writes it: {why}; write the trace again")
