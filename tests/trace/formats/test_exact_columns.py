"""All that Emu writes into a node of an execution trace comes back as it was; a value outside of its limits is refused."""

import json
from typing import Any

import pytest

from emu.trace.formats.chakra.chakra_node import EXACT, ChakraNode
from emu.trace.formats.chakra.exact_columns import COLUMNS, DTYPE, FLOPS, NodeEvent, RankAbout, exact_row, exact_values
from emu.trace.kernel_shape import Kernel
from emu.trace.trace import Kind

SIZES = 2, 4, 3  # ranks of the groups of the rank
FIRST = {
    "step": 1,
    "kind": int(Kind.COLLECTIVE),
    "stream": 2,
    "bytes": 800,
    "count": 200,
    "kernel": 0,
    "batch": 0,
    "m": 0,
    "n": 0,
}
ASKED = {**FIRST, "k": 0, "group": 1, "instance": 5, "root": 3, "tag": 7}
COMPUTED = {**ASKED, "kind": int(Kind.COMPUTE), "kernel": int(Kernel.PRODUCT), "m": 9, "group": -1, "root": 0}
MOST, OTHER = 2**62, 2**31


def node(values: Any, deps: tuple[int, ...] = (), **attrs: Any) -> ChakraNode:
    return ChakraNode(9, "a-name", 4, deps, (), 0, 250, "", {EXACT: values, DTYPE: "bfloat16", **attrs})


def row(
    columns: dict[str, int], named: int = 0, splits: tuple[int, ...] = (), deps: tuple[int, ...] = (), **attrs: Any
) -> NodeEvent:
    values = tuple(exact_values([columns[name] for name in COLUMNS], named, splits))
    return exact_row(node(values, deps, **attrs), SIZES, {40: 4, 50: 5, 60: 6}, 1e-6)


@pytest.mark.parametrize("columns", [ASKED, COMPUTED])
@pytest.mark.parametrize(("named", "waits"), [(0, ()), (1, (6,)), (3, (6, 4, 5))])
@pytest.mark.parametrize("splits", [(), (0,), (0, MOST - 1), (3, 1, 2)])
def test_what_is_written_comes_back(
    columns: dict[str, int], named: int, waits: tuple[int, ...], splits: tuple[int, ...]
) -> None:
    found = row(columns, named, splits, deps=(60, 40, 50), num_ops=12)
    beside = {**columns, "name": "a-name", "dtype": "bfloat16", "flops": 12.0}
    order = (*COLUMNS[:3], "name", "dtype", "flops", *COLUMNS[3:])
    assert found == NodeEvent(tuple(beside[name] for name in order), waits, splits, pytest.approx(250e-6))
    assert (found.kind, found.stream, found.group) == (columns["kind"], 2, columns["group"])


def test_flops_are_those_that_are_no_whole_number_else_those_of_the_node_else_none() -> None:
    assert row(COMPUTED, **{FLOPS: 2.5, "num_ops": 3}).columns[5] == 2.5
    assert row(COMPUTED, num_ops=3).columns[5] == 3.0
    assert row(COMPUTED).columns[5] == 0.0
    with pytest.raises(ValueError, match="must have a number as flops, got many"):
        row(COMPUTED, **{FLOPS: "many"})


LIMITS = {
    "step": (0, OTHER), "kind": (0, len(Kind)), "stream": (0, 2**15), "bytes": (0, MOST), "count": (0, MOST),
    "kernel": (0, len(Kernel)), "batch": (0, OTHER), "m": (0, OTHER), "n": (0, OTHER), "k": (0, OTHER),
    "instance": (0, OTHER), "tag": (0, OTHER),
}  # fmt: skip


@pytest.mark.parametrize("name", LIMITS)
def test_each_column_has_its_limits(name: str) -> None:
    least, below = LIMITS[name]
    for value in (least, below - 1):
        if name != "kind":  # of the other kinds a group is not of use
            assert row({**ASKED, name: value}).columns[3 * (COLUMNS.index(name) >= 3) + COLUMNS.index(name)] == value
    for value in (least - 1, below):
        with pytest.raises(ValueError, match=rf"must have a {name} of {least} or more and below {below} in 'emu', got {value}"):
            row({**ASKED, name: value})


@pytest.mark.parametrize(("group", "members"), list(enumerate(SIZES)))
@pytest.mark.parametrize("kind", [Kind.COLLECTIVE, Kind.SEND, Kind.RECV])
def test_a_request_is_of_a_group_of_the_rank_and_its_root_is_a_member(group: int, members: int, kind: Kind) -> None:
    asked = {**ASKED, "kind": int(kind), "group": group}
    for root in (0, members - 1):
        assert row({**asked, "root": root}).columns[-2] == root
    for root in (-1, members):
        with pytest.raises(ValueError, match=rf"must have a root of 0 or more and below {members} in 'emu', got {root}"):
            row({**asked, "root": root})
    for bad in (-1, 3):
        with pytest.raises(ValueError, match=rf"must have a group of 0 or more and below 3 in 'emu', got {bad}"):
            row({**asked, "group": bad, "root": 0})


@pytest.mark.parametrize("kind", [Kind.COMPUTE, Kind.MARK])
def test_what_asks_for_nothing_has_no_group(kind: Kind) -> None:
    assert row({**COMPUTED, "kind": int(kind), "root": OTHER - 1}).columns[-2] == OTHER - 1
    for group in (-2, 0, 1):
        with pytest.raises(ValueError, match=rf"must have a group of -1 or more and below 0 in 'emu', got {group}"):
            row({**COMPUTED, "kind": int(kind), "group": group})
    with pytest.raises(ValueError, match="must have a root"):
        row({**COMPUTED, "kind": int(kind), "root": OTHER})


@pytest.mark.parametrize("splits", [(-1,), (3, -1, 2), (MOST,), (0, MOST), (-1, MOST)])
def test_split_sizes_have_limits(splits: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match=r"must have split sizes of 0 or more and below 2\*\*62 in 'emu', got \["):
        row(ASKED, 0, splits)


@pytest.mark.parametrize(("named", "deps"), [(-1, ()), (1, ()), (3, (40, 50))])
def test_no_more_waits_are_named_than_there_are(named: int, deps: tuple[int, ...]) -> None:
    what = rf"must have a number of waits of 0 or more and below {len(deps) + 1} in 'emu', got {named}"
    with pytest.raises(ValueError, match=what):
        row(ASKED, named, deps=deps)


@pytest.mark.parametrize(
    ("values", "dtype"),
    [(None, "bfloat16"), ("text", "bfloat16"), (tuple(range(len(COLUMNS))), "bfloat16"), (tuple(range(len(COLUMNS) + 1)), 5)],
)
def test_a_node_that_emu_did_not_write_is_refused(values: Any, dtype: Any) -> None:
    with pytest.raises(ValueError, match="lacks the attributes 'emu' and 'dtype', which the other nodes have; write it by Emu"):
        exact_row(node(values, dtype=dtype), SIZES, {}, 1e-6)


@pytest.mark.parametrize("value", [1.0, True, "1"])
def test_values_are_whole_numbers(value: Any) -> None:
    with pytest.raises(ValueError, match="must have whole numbers in 'emu'"):
        exact_row(node((value,) * (len(COLUMNS) + 1)), SIZES, {}, 1e-6)


ABOUT = RankAbout(1, 4, "h100", ("0", "12"), ("tp", "dp"), (5, 0, 2**63 - 1), (("command", "emu train"), ("plan", "dp=4")))


def told(**changed: Any) -> dict[str, Any]:
    return {EXACT: json.dumps({**json.loads(ABOUT.text()), **changed})}


def test_what_is_told_of_a_rank_comes_back() -> None:
    assert RankAbout.of({EXACT: ABOUT.text()}) == ABOUT
    assert RankAbout.of({"other": ABOUT.text()}) is None
    for changed in ({"rank": 0}, {"rank": 3}, {"groups": [], "axes": []}, {"peak": []}, {"rank": 0, "ranks": 1}):
        assert RankAbout.of(told(**changed)) is not None


@pytest.mark.parametrize(
    "changed",
    [
        {"rank": 4}, {"rank": -1}, {"rank": "1"}, {"rank": 1.0}, {"ranks": 0}, {"ranks": 2**40}, {"axes": ["tp"]},
        {"axes": ["tp", 5]}, {"axes": [5, "dp"]}, {"groups": ["0", "x"]}, {"groups": ["x", "0"]}, {"groups": [0, 1]},
        {"peak": [-1]}, {"peak": [0, 2**63]}, {"peak": [0.5]}, {"meta": [["a"]]}, {"meta": 5}, {"groups": None},
    ],
)  # fmt: skip
def test_what_cannot_be_told_of_a_rank_is_refused(changed: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="the attribute 'emu' of its metadata is not as Emu writes it"):
        RankAbout.of(told(**changed))
    with pytest.raises(ValueError, match="is not as Emu writes it"):
        RankAbout.of({EXACT: ABOUT.text()[:-1]})
