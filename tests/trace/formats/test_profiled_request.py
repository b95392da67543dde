"""Requests as the arguments of a profile tell of them: every field, held against what PyTorch's call says by hand."""

from typing import Any

import pytest

from emu.collective.operation import ROOTED
from emu.dtypes import DTYPES
from emu.errors import BareError
from emu.trace.formats.kineto.profiled_request import (
    MESSAGES,
    UNTOLD,
    ProfiledRequest,
    axis_label,
    axis_of,
    dtype_of,
    operation_of,
    request_by_annotation,
    request_by_arguments,
    request_by_operator,
    root_and_tag,
)
from emu.trace.formats.rank_group import RankGroup

RANKS = (4, 2, 7)
TOLD: dict[str, Any] = {"dtype": "BFloat16", "Process Group Ranks": "[4, 2, 7]", "Process Group Description": "mesh_tp"}
TENSORS = ["TensorList", "", "Scalar", "ScalarList"]


def told(what: str, given: int, made: int | None = None, **more: Any) -> ProfiledRequest:
    sizes = {"In msg nelems": given} if made is None else {"In msg nelems": given, "Out msg nelems": made}
    return request_by_arguments({"Collective name": what, **sizes, **TOLD, **more}, {"5": (9, 8)})


@pytest.mark.parametrize(
    ("what", "operation", "given", "made", "elements"),
    [
        ("allreduce", "all_reduce", 30, 30, 30),
        ("broadcast", "broadcast", 30, 60, 60),
        ("_reduce_oop", "reduce", 60, 30, 60),
        ("barrier", "all_reduce", 1, 0, 1),
        ("barrier", "all_reduce", 0, 0, 1),  # PyTorch counts no element of it
        ("_allgather_base", "all_gather", 10, 30, 30),
        ("all_gather_into_tensor_coalesced", "all_gather", 10, 0, 30),  # three ranks give as many
        ("_allgather_base", "all_gather", 10, 31, 31),
        ("_reduce_scatter_base", "reduce_scatter", 30, 10, 30),
        ("reduce_scatter_tensor_coalesced", "reduce_scatter", 30, 11, 33),
        ("all_to_allv", "all_to_all", 20, 50, 50),
        ("all_to_allv", "all_to_all", 50, 20, 50),
        ("gather", "gather", 10, 0, 30),
        ("scatter", "scatter", 0, 10, 30),
        ("scatter", "scatter", 500, 10, 30),  # what the root gives is told of its lists, and not by each rank
        ("send", "send", 12, 0, 12),
        ("recv", "recv", 0, 12, 12),
    ],
)
def test_a_call_of_nccl_has_the_largest_buffer_of_any_of_its_ranks(
    what: str, operation: str, given: int, made: int, elements: int
) -> None:
    root = UNTOLD if operation in MESSAGES else 0
    assert told(what, given, made) == ProfiledRequest(operation, elements, "bfloat16", root, 0, (), RANKS, "mesh_tp")


def test_the_result_and_the_description_may_be_left_out() -> None:
    asked = {"Collective name": "allreduce", "In msg nelems": "30", "dtype": "Float"}
    assert request_by_arguments(asked, {}) == ProfiledRequest("all_reduce", 30, "float32", 0, 0, (), (), "")


def test_the_size_of_a_group_counts_where_its_ranks_are_not_told_and_before_them() -> None:
    assert told("gather", 10, 0, **{"Group size": 5}).elements == 50
    assert told("gather", 10, 0, **{"Group size": 5, "Process Group Ranks": ""}).group == RankGroup((), "mesh_tp")


PEERS = {"Dst Rank": 7, "Src Rank": 2}  # ranks of the job


@pytest.mark.parametrize(
    ("what", "peer", "ranked"),
    [("send", 2, 1), ("recv", 1, 1), ("allreduce", 0, 0), ("broadcast", 0, 1), ("all_to_allv", 0, 0), ("gather", 0, 1)],
)
def test_a_peer_is_told_as_a_rank_of_the_job_and_a_root_as_one_of_its_group(what: str, peer: int, ranked: int) -> None:
    """PyTorch writes `Rank` to every call: of an all_reduce it is the rank that calls, and no root."""
    assert told(what, 6, 6, **PEERS).root == peer
    assert told(what, 6, 6, Rank=1).root == ranked
    unknown = told(what, 6, 6, **PEERS, **{"Process Group Ranks": ""})
    assert unknown.root == {"send": 7, "recv": 2}.get(what, 0)  # the group is taken to be all ranks


def test_a_peer_that_is_not_of_its_group_is_refused() -> None:
    with pytest.raises(BareError) as raised:
        told("recv", 6, 6, **{"Src Rank": 1})
    assert str(raised.value) == "must have a rank of its group (4, 2, 7) as 'Src Rank', got 1; profile again"


@pytest.mark.parametrize(
    ("rows", "splits"),
    [
        ("[1, 2, 3]", (10, 20, 30)),
        ("[0, 0, 5]", (0, 0, 60)),
        ("[5, 0, 0]", (60, 0, 0)),
        ("[2, 2, 2]", (20, 20, 20)),
        ("[0, 0, 0]", (0, 0, 0)),
        ("[]", ()),
        (None, ()),
    ],
)
def test_rows_of_blocks_share_out_the_elements_that_a_rank_gives(rows: str | None, splits: tuple[int, ...]) -> None:
    more = {} if rows is None else {"In split size": rows}
    assert told("all_to_allv", 60, 90, **more).splits == splits
    assert told("allreduce", 60, 90, **more).splits == ()
    with pytest.raises(BareError, match=r"must have split sizes of 0 or more, got \(3, -1\)"):
        told("all_to_allv", 60, 90, **{"In split size": "[3, -1]"})


FIRST = [*[1] * 29, 2]  # the split sizes of 32 blocks that PyTorch writes, before 3 and 4


@pytest.mark.parametrize(
    ("around", "last", "cut"),
    [
        ({"Input Dims": [[99, 10], [38, 10]], "Concrete Inputs": ["", "", "", "[9]", str([*FIRST, 3, 4])]}, [30, 40], False),
        ({"Input Dims": [[99, 10], [38, 10]], "Concrete Inputs": ["", "", "", "", ""]}, [35, 35], True),
    ],
)
def test_of_a_list_that_pytorch_cut_the_rest_is_in_the_operator_or_shared_evenly(
    around: dict[str, Any], last: list[int], cut: bool
) -> None:
    args = {"In split size": f"[{', '.join(map(str, FIRST))}, ...]", "Group size": 32}
    found = request_by_arguments({"Collective name": "all_to_allv", "In msg nelems": 380, **TOLD, **args}, {}, around)
    assert found.splits == (*[10] * 29, 20, *last)
    assert found.cut == cut


@pytest.mark.parametrize(
    ("first", "splits"), [([1, 3], (10, 30, 20, 20)), ([0, 0], (0, 0, 40, 40)), ([2, 2], (20, 20, 20, 20))]
)
def test_where_no_tensor_has_the_rows_the_others_are_as_large_as_the_mean(first: list[int], splits: tuple[int, ...]) -> None:
    for around in ({}, {"Input Dims": [[9, 2], []]}, {"Input Dims": [[9, 2], [[1], [2]]]}, {"Input Dims": [[9, 2], [1, 80]]}):
        args = {"In split size": f"[{first[0]}, {first[1]}, ...]", "Group size": 4, "Process Group Ranks": ""}
        found = request_by_arguments({"Collective name": "all_to_allv", "In msg nelems": 80, **TOLD, **args}, {}, around)
        assert (found.splits, found.cut) == (splits, True)
    whole = told("all_to_allv", 60, 60, **{"In split size": "[1, 1, 1, ...]", "Group size": 3})
    assert (whole.splits, whole.cut) == ((20, 20, 20), False)


def test_a_group_is_told_by_its_name_or_by_its_ranks_or_by_a_stride() -> None:
    cut, stride = {"Process Group Ranks": "[4, 2, ...]"}, {"Global rank start": 3, "Global rank stride": 4, "Group size": 3}
    assert told("allreduce", 1, 1, **{"Process Group Name": "5"}, **stride).ranks == (9, 8)
    assert told("allreduce", 1, 1, **{"Process Group Name": "6"}, **stride).ranks == RANKS
    assert told("allreduce", 1, 1, **cut, **stride).ranks == (3, 7, 11)
    assert told("allreduce", 1, 1, **cut, **{**stride, "Global rank start": 0}).ranks == (0, 4, 8)
    assert told("allreduce", 1, 1, **cut, **{**stride, "Global rank stride": 1, "Group size": 1}).ranks == (3,)
    for name in stride:
        assert told("allreduce", 1, 1, **cut, **{key: value for key, value in stride.items() if key != name}).ranks == ()
    for changed in ({"Global rank stride": 0}, {"Group size": 0}):
        assert told("allreduce", 1, 1, **cut, **{**stride, **changed}).ranks == ()
    with pytest.raises(BareError, match=r"must have each rank once in a group, got "):
        told("allreduce", 1, 1, **{"Process Group Ranks": "[1, 1]"})


def test_an_operation_of_emus_own_is_told_beside_the_one_that_pytorch_has() -> None:
    assert told("all_to_allv", 6, 6, **{"Emu operation": "dispatch"}).operation == "dispatch"
    assert told("all_to_allv", 6, 6, **{"Emu operation": "other"}).operation == "all_to_all"


@pytest.mark.parametrize(
    ("args", "why"),
    [
        ({"Collective name": "sum"}, "has an unknown collective 'sum'"),
        ({}, "has an unknown collective None"),
        ({"Collective name": "allreduce", "dtype": "Float"}, "has no 'In msg nelems' and 'dtype'"),
        ({"Collective name": "allreduce", "In msg nelems": 4}, "has no 'In msg nelems' and 'dtype'"),
        ({"Collective name": "allreduce", "In msg nelems": 4, "dtype": "Odd"}, "has an unknown dtype 'Odd'"),
    ],
)
def test_a_call_that_does_not_tell_what_it_sends_is_refused(args: dict[str, Any], why: str) -> None:
    with pytest.raises(BareError) as raised:
        request_by_arguments(args, {})
    assert str(raised.value) == why


OPERATORS = [  # name, the dims of its arguments, its values, and the operation, elements, root, tag and splits
    ("allreduce_", [[[4, 5], [2]]], ["", "3", "4"], ("all_reduce", 22, 0, 0, ())),
    ("broadcast_", [[[7]]], ["", "", "2", "5"], ("broadcast", 7, 2, 0, ())),
    ("reduce_", [[[7]]], ["", "", "5", "2"], ("reduce", 7, 2, 0, ())),
    ("_allgather_base_", [[30], [10]], [], ("all_gather", 30, 0, 0, ())),
    ("allgather_", [[], [[10]]], [], ("all_gather", 30, 0, 0, ())),
    ("_reduce_scatter_base_", [[10], [30]], [], ("reduce_scatter", 30, 0, 0, ())),
    ("alltoall_base_", [[50], [40, 3]], ["", "", "", "[9, 9]", "[1, 2, 3]"], ("all_to_all", 120, 0, 0, (20, 40, 60))),
    ("alltoall_base_", [[150], [40, 3]], ["", "", "", "[1, 2, 3]"], ("all_to_all", 150, 0, 0, ())),
    (
        "alltoall_base_",
        [[60], []],
        ["", "", "", "[9, 9]", "[1, 2, 3]"],
        ("all_to_all", 60, 0, 0, (0, 0, 0)),
    ),  # it gives nothing
    ("alltoall_", [[[1], [2]], [[4, 2], [5]]], [""] * 5, ("all_to_all", 13, 0, 0, (8, 5))),
    ("gather_", [[], [[10]]], ["", "", "", "1"], ("gather", 30, 1, 0, ())),
    ("scatter_", [[[10]], []], ["", "", "", "2"], ("scatter", 30, 2, 0, ())),
    ("send", [[[12]]], ["", "", "1", "6"], ("send", 12, 1, 6, ())),
    ("recv_", [[[12]]], ["", "", "2", "7"], ("recv", 12, 2, 7, ())),
    ("send", [[[12]]], ["", "", ""], ("send", 12, UNTOLD, 0, ())),
]


@pytest.mark.parametrize(("name", "dims", "values", "expected"), OPERATORS)
def test_an_operator_has_the_sizes_of_its_tensors_and_its_own_root_tag_and_splits(
    name: str, dims: list[Any], values: list[str], expected: tuple[Any, ...]
) -> None:
    operation, elements, root, tag, splits = expected
    args = {"Input Dims": dims, "Input type": TENSORS, "Concrete Inputs": values}
    found = request_by_operator(f"c10d::{name}", args, "long int", 3)
    assert found == ProfiledRequest(operation, elements, "int64", root, tag, splits, (), "")
    assert root_and_tag(operation, args) == (root, tag)
    rooted = operation in (*MESSAGES, *ROOTED)
    assert root_and_tag(operation, {}) == (UNTOLD if rooted else 0, 0)
    unsaid = request_by_operator(f"c10d::{name}", {**args, "Concrete Inputs": []}, "long int", 3)
    assert unsaid.root == (UNTOLD if operation in MESSAGES else 0)


def test_a_dtype_of_an_operator_is_that_of_its_input_unless_it_is_told_otherwise() -> None:
    args = {"Input Dims": [[30], [10]], "Input type": ["float", "c10::Half"]}
    assert request_by_operator("c10d::_allgather_base_", args, "", 3).dtype == "float16"
    assert request_by_operator("c10d::_allgather_base_", args, "double", 3).dtype == "float64"
    for hidden in TENSORS:
        assert (
            request_by_operator("c10d::_allgather_base_", {**args, "Input type": ["float", hidden]}, "", 3).dtype == "float32"
        )
    with pytest.raises(BareError, match="has an unknown dtype ''"):
        request_by_operator("c10d::_allgather_base_", {**args, "Input type": TENSORS}, "", 3)


def test_an_operator_needs_shapes_unless_it_is_a_barrier() -> None:
    assert request_by_operator("c10d::barrier", {}, "", 3) == ProfiledRequest("all_reduce", 1, "float32", 0, 0, (), (), "")
    for args in ({}, {"Input Dims": []}, {"Input Dims": [[], []]}):
        with pytest.raises(BareError, match="has no shapes; profile with record_shapes=True"):
            request_by_operator("c10d::allreduce_", args, "float", 3)
    with pytest.raises(BareError, match="is an unknown operator"):
        request_by_operator("c10d::sum_", {"Input Dims": [[3]]}, "float", 3)


def test_an_annotation_has_the_shape_of_its_first_tensor() -> None:
    args = {"Input Dims": [[25, 4], [9]], "Input type": ["c10::BFloat16", "float"]}
    for name, expected in (("all_reduce", 100), ("_all_gather_base first=3", 300), ("scatter", 0)):
        operation = operation_of(name.partition(" ")[0])
        found = request_by_annotation(f"nccl:{name}", args, 3)
        assert found == ProfiledRequest(operation, expected, "bfloat16", 0, 0, (), (), "")
    assert request_by_annotation("nccl:recv", args, 3).root == UNTOLD
    with pytest.raises(BareError, match="is an unknown 'nccl:sum'"):
        request_by_annotation("nccl:sum", args, 3)
    with pytest.raises(BareError, match="has an unknown dtype ''"):
        request_by_annotation("nccl:all_reduce", {"Input Dims": [[3]]}, 3)


@pytest.mark.parametrize(("axis", "label"), [("world", "default_pg"), ("", "undefined"), ("tp", "mesh_tp")])
def test_the_description_of_a_group_comes_from_its_axis_and_back(axis: str, label: str) -> None:
    assert axis_label(axis) == label
    assert axis_of(label) == axis
    assert axis_of("of_my_own") == "of_my_own"


def test_a_request_has_the_bytes_of_its_elements_and_the_group_of_its_ranks() -> None:
    for dtype, width in DTYPES.items():
        asked = ProfiledRequest("recv", 6, dtype, 0, 0, (), (3, 1), "mesh_tp")
        assert (asked.size_bytes, asked.group, asked.is_message) == (6 * width, RankGroup((3, 1), "mesh_tp"), True)
    assert [asked._replace(operation=other).is_message for other in ("send", "scatter")] == [True, False]


def test_names_of_dtypes_are_those_of_torch_whatever_a_profile_calls_them() -> None:
    names = {"Float": "float32", "double": "float64", "c10::Half": "float16", "long int": "int64", "Int": "int32",
             "short int": "int16", "signed char": "int8", "unsigned char": "uint8", "c10::BFloat16": "bfloat16"}  # fmt: skip
    assert {name: dtype_of(name) for name in names} == names
