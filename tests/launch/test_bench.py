"""`emu bench` as a person uses it: its figures, its columns, its refusals."""

import re

import pytest

from emu.collective.schedule import Schedule, Sends
from emu.collective.shape import parse_grid
from emu.study.measure.request import BenchRequest, place_bench
from emu.topology.catalogue import build_topology

SWITCH = "switch:n=8,bandwidth=50GB/s,latency=500ns"
KEYS = {"operation", "algorithm", "ranks", "size_bytes", "dtype", "time_s", "algbw_Bps", "busbw_Bps", "wrong"}
KEYS |= {"wall_build_s", "wall_execute_s", "wall_fabric_s"}


def test_a_ring_on_a_switch_takes_its_closed_form(emu) -> None:
    done = emu("bench", "all_reduce", "--algorithm", "ring", "--topology", SWITCH, "--size", "64MiB", "--json")
    (row,) = done.json
    assert done.code == 0
    assert set(row) >= KEYS
    steps, alpha_s, body_s = 14, 2 * 500e-9, 2**23 / 50e9
    assert row["time_s"] == pytest.approx(steps * (alpha_s + body_s), rel=1e-9)
    assert row["busbw_Bps"] == pytest.approx(row["algbw_Bps"] * 14 / 8)
    assert row["wrong"] == 0


@pytest.mark.parametrize(
    "operation", ["reduce_scatter", "all_gather", "all_to_all", "broadcast", "reduce", "scatter", "gather"]
)
def test_every_operation_moves_its_data_right_from_the_last_root(emu, operation: str) -> None:
    root = ["--root", "7"] if operation in ("broadcast", "reduce", "scatter", "gather") else []
    done = emu("bench", operation, "--topology", SWITCH, "--size", "1000B", "-d", "int16", *root, "--json")
    assert done.code == 0, done.err
    assert done.json[0]["wrong"] == 0
    assert done.json[0]["time_s"] > 0


@pytest.mark.parametrize("operation", ["dispatch", "combine"])
def test_tokens_come_to_their_experts_and_back_by_either_way(emu, operation: str) -> None:
    for name in ("flat", "hierarchical"):
        done = emu("bench", operation, "--algorithm", name, "--topology", SWITCH, "--size", "1KiB", "-d", "int16", "--json")
        assert (done.code, done.json[0]["wrong"]) == (0, 0), done.err


def test_sizes_step_from_begin_to_end_on_each_topology(emu) -> None:
    args = ("-b", "1KiB", "-e", "1MiB", "-f", "4", "--topology", SWITCH, "--topology", "ub-mesh:board", "--json")
    rows = emu("bench", "all_gather", *args).json
    assert [row["size_bytes"] for row in rows] == [4**i * 1024 for i in range(6)] * 2
    assert [row["topology"] for row in rows] == [SWITCH] * 6 + ["ub-mesh:board"] * 6


def test_timing_only_moves_nothing_and_takes_the_same_virtual_time(emu) -> None:
    args = ("bench", "all_to_all", "--topology", SWITCH, "--size", "1MiB", "--json")
    (moved,), (timed,) = emu(*args).json, emu(*args, "--timing-only").json
    assert timed["wrong"] is None
    assert timed["wall_execute_s"] is None
    assert timed["time_s"] == moved["time_s"]


def test_a_comparison_of_all_moves_nothing_as_its_help_says(emu) -> None:
    args = ("bench", "all_reduce", "--algorithm", "all", "--topology", SWITCH, "--size", "1KiB", "--json")
    compared, timed = emu(*args).json, emu(*args, "--timing-only").json
    assert {(row["wrong"], row["wall_execute_s"]) for row in compared} == {(None, None)}
    assert [row["time_s"] for row in timed] == [row["time_s"] for row in compared]
    said = " ".join(emu("bench", "--help").out.split())
    assert "`all` compares all and moves no data" in said
    assert "Move no data, as `all` never does" in said


def test_a_send_overhead_holds_a_ranks_sends_apart(emu) -> None:
    args = ("bench", "all_to_all", "--algorithm", "at-once", "--topology", SWITCH, "--size", "64B", "-d", "int8", "--json")
    (free,), (paid,) = emu(*args).json, emu(*args, "--send-overhead", "1us").json
    assert paid["time_s"] - free["time_s"] == pytest.approx(7e-6, abs=1e-8)


def test_the_table_says_what_was_checked(emu) -> None:
    done = emu("bench", "all_reduce", "--algorithm", "ring", "--topology", SWITCH, "--size", "64MiB")
    assert "2.363 ms" in done.out
    assert "every element of every rank was checked" in done.out
    assert "send overhead 0 s" in done.out


def test_all_that_a_time_rests_on_is_told_once_and_for_whom(emu) -> None:
    args = ("bench", "all_reduce", "--algorithm", "in-switch", "--size", "1MiB", "--timing-only")
    where = ("--topology", SWITCH, "--topology", "fat-tree:radix=4")
    told = emu(*args, *where).out.partition("\nAssumed:\n")[2].splitlines()
    assert "- messages share the bandwidth of a link max-min fairly" in told
    assert len(told) == len(set(told))
    rows = emu(*args, *where, "--json").json
    for row, declared in zip(rows, (SWITCH, "fat-tree:radix=4"), strict=True):
        adds = [line for line in row["assumptions"] if "taken to add" in line]
        assert len(adds) == 1, declared  # neither says that its switches can add
        assert set(build_topology(declared).assumptions) < set(row["assumptions"])
        assert f"- {declared}: {adds[0]}" in told
    (ring,) = emu(*args[:2], "--size", "1MiB", "--timing-only", "--algorithm", "ring", "--topology", SWITCH, "--json").json
    assert not [line for line in ring["assumptions"] if "taken to add" in line]


def test_a_time_stands_beside_the_least_possible_and_which_bound_says_so(emu) -> None:
    args = ("bench", "all_reduce", "--algorithm", "ring", "--topology", SWITCH, "--size", "64MiB")
    (row,) = emu(*args, "--timing-only", "--json").json
    least_s = 14 / 8 * 2**26 / 50e9 + 1e-6  # every rank sends 2(n - 1)/n of the size, and its last message takes two hops
    assert (row["bound"], row["bound_s"]) == ("messages", pytest.approx(least_s, rel=1e-9))
    assert row["of_bound"] == pytest.approx(least_s / row["time_s"], rel=1e-9)
    assert (row["in_a_row_s"], row["trees_s"]) == (pytest.approx(least_s - 1e-6, rel=1e-9), None)
    told = emu(*args, "--timing-only").out
    assert "  of_bound  bound" in told
    assert "0.994 messages" in " ".join(told.split())
    assert "messages: where only ranks add, n ranks, or groups of ranks, need at least 2(n - 1) messages to add up" in told
    meaning = "of_bound: the bound divided by the time. No schedule beats the bound; 1 means that nothing is left to gain."
    assert f"{meaning} Kinds of bounds:\n" in told
    assert (
        "\n  not computed, because they take long (add --bounds all): cuts around all sets of nodes, the best trees\n" in told
    )
    orientation = "without latency, the best reduce_scatter and then the best all_gather would take 2.349 ms"
    assert f"\n{orientation} (64 MiB on {SWITCH}); this is no bound" in told
    every = (*args, "--timing-only", "--bounds", "all")
    assert emu(*every, "--json").json[0]["trees_s"] == pytest.approx(least_s - 1e-6, rel=1e-9)
    told = emu(*every).out
    assert f"\n{orientation}, the best trees would take 2.349 ms (64 MiB on {SWITCH})" in told
    assert "not computed" not in told


def test_where_a_quick_bound_leaves_no_gap_nothing_more_is_looked_at(emu, monkeypatch: pytest.MonkeyPatch) -> None:
    args = ("bench", "all_to_all", "--algorithm", "at-once", "--topology", SWITCH, "--size", "64MiB", "--timing-only")
    for program in ("exchange", "by_prices", "all_reduce_by_trees"):
        monkeypatch.setattr(f"emu.bound.linear_programs.{program}", lambda *_: pytest.fail("a linear program was solved"))
    (row,) = emu(*args, "--bounds", "all", "--json").json
    assert row["of_bound"] == pytest.approx(1, abs=1e-6)
    assert row["bounds_left_out"] == []
    assert "--bounds" not in emu(*args).out


def test_what_has_no_bound_shows_none_and_what_needs_none_does_not_tell_of_trees(emu) -> None:
    args = ("bench", "all_gather", "--topology", SWITCH, "--size", "4B")
    assert emu(*args, "--json").json[0]["of_bound"] is None
    out = emu(*args).out
    assert "of_bound:" not in out
    assert "trees" not in out


def test_where_all_sets_are_too_many_the_table_says_that_some_were_tried(emu) -> None:
    args = ("--algorithm", "flat", "--topology", SWITCH, "--size", "1KiB", "-d", "int16")
    told = emu("bench", "dispatch", *args).out
    assert (
        "tried cuts: the bytes that some ranks must send to the others; the slowest of single ranks, groups and halves" in told
    )


def test_wrong_data_is_counted_printed_and_exit_code_1(emu, monkeypatch: pytest.MonkeyPatch) -> None:
    half = Schedule.build(2, 2, [Sends([0, 1], [1, 0], [1, 0], reduce=True)])  # reduces, and forgets to gather
    monkeypatch.setattr("emu.study.measure.request.compact_schedule", lambda *_: half)
    args = ("--topology", "switch:n=2,bandwidth=1GB/s,latency=1us", "--size", "400B", "--json")
    done = emu("bench", "all_reduce", *args)
    assert done.code == 1
    assert done.json[0]["wrong"] > 0
    assert done.err.splitlines() == [f"emu: bench: {done.json[0]['wrong']} elements of all_reduce came out wrong"]


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["all_redcue", "--size", "1MiB"], "no operation is called 'all_redcue'; did you mean all_reduce"),
        (
            ["all_reduce", "--size", "1MiB", "--algorithm", "rign"],
            "no all_reduce algorithm is called 'rign'; did you mean ring",
        ),
        (
            ["all_reduce", "--size", "64M"],
            "--size must be a size such as 64MiB, 1GB or 4096B, got '64M'; say MiB (2**10) or MB",
        ),
        (["all_reduce", "--size", "-4B"], "--size must be a size"),
        (["all_reduce", "--size", "6B"], "--size must be a multiple of 4 bytes, the size of a float32, got 6"),
        (
            ["dispatch", "--size", "1000B"],
            "dispatch: elements must be a multiple of 128, the tokens of the largest buffer, got 250",
        ),
        (["all_reduce"], "no size given; give --size 64MiB"),
        (["all_reduce", "--size", "4B", "-b", "4B"], "give --size, or --begin and --end, not both"),
        (
            ["all_reduce", "-b", "8KiB", "-e", "4KiB"],
            "--size, or -b and -e, must be above 0, and the end not below the beginning, got '8192 B to 4096 B'",
        ),
        (["all_reduce", "-b", "4KiB", "-e", "8KiB", "-f", "1"], "--factor must be above 1, got 1.0"),
        (["all_reduce", "--size", "1MiB", "-d", "float23"], "no dtype is called 'float23'; did you mean float32"),
        (["all_reduce", "--size", "1MiB", "-o", "summ"], "no reduce operation is called 'summ'; did you mean sum"),
        (
            ["all_reduce", "--size", "1MiB", "-d", "complex64", "-o", "max", "--timing-only"],
            "all_reduce: reduce must be sum or avg for complex64, got 'max'",
        ),
        (
            ["reduce_scatter", "--size", "1MiB", "-d", "float8_e5m2"],
            "reduce_scatter: dtype must be one that can be reduced, got 'float8_e5m2'; it can be moved",
        ),
        (["all_reduce", "--size", "1MiB", "-r", "3"], "root must be 0, because the operation has no root, got 3"),
        (["broadcast", "--size", "1MiB", "-r", "8"], "root must be a rank of 0..7, got 8"),
        (["all_reduce", "--size", "1MiB", "--ranks", "9"], "9 ranks do not fit switch:n=8"),
        (["all_reduce", "--size", "1MiB", "--ranks", "0"], "ranks must be 1 or more, got 0"),
        (["all_reduce", "--size", "1MiB", "--send-overhead", "1 fortnight"], "--send-overhead must be a time"),
        (["all_reduce", "--size", "100TB"], "memory"),
        (
            ["all_reduce", "--size", "1MiB", "--algorithm", "ring@0"],
            "channels after the @ must be a number of 1 to 9999, got '0'; such as ring@4",
        ),
        (
            ["all_reduce", "--size", "1MiB", "--axes", "0:1"],
            "--axes must be numbers of dimensions joined by commas, such as 0,2,1,3",
        ),
        (["all_reduce", "--size", "1MiB", "--axes", "0,1"], "--axes must be each dimension of switch:n=8"),
    ],
)
def test_bad_input_is_one_line_and_nothing_runs(emu, args: list[str], message: str) -> None:
    done = emu("bench", *args, "--topology", SWITCH)
    assert done.code == 2
    assert done.out == ""
    assert len(done.err.splitlines()) == 1
    assert message in done.err


@pytest.mark.parametrize(
    ("topology", "message"),
    [
        ("swich:n=8", "no topology is called 'swich'; did you mean switch"),
        ("switch:n=8", "settings missing: bandwidth, latency"),
        ("switch:n=8,bandwidth=50GB,latency=1us", "bandwidth must be a rate above 0 such as 50GB/s"),
        ("switch:n=8,bandwidth=50GB/s,latency=1", "latency must be a time with its unit"),
        ("torus:dims=0x4,bandwidth=50GB/s,latency=1us", "dims must be whole numbers of 1 or more"),
    ],
)
def test_a_bad_topology_is_one_line(emu, topology: str, message: str) -> None:
    done = emu("bench", "all_reduce", "--size", "1MiB", "--topology", topology)
    assert done.code == 2
    assert len(done.err.splitlines()) == 1
    assert message in done.err


def test_a_job_on_part_of_a_grid_is_on_those_places_of_a_topology_with_that_grid(emu) -> None:
    request = BenchRequest("all_reduce", "flex-sipco", (4,), ranks=8, dims=parse_grid("4x4:4-11"))
    for grid, first in (("4x4", 4), ("2x8", 0)):
        asked = place_bench(build_topology(f"torus:dims={grid},bandwidth=50GB/s,latency=500ns"), request)
        assert asked.site.npus == tuple(range(first, first + 8))
    words = ["--algorithm", "flex-sipco", "--topology", "torus:dims=4x4,bandwidth=50GB/s,latency=500ns", "--size", "1KiB"]
    done = emu("bench", "all_reduce", *words, "--ranks", "8", "--dims", "4x4:4-11", "--json")
    assert (done.code, done.json[0]["wrong"], done.json[0]["shape"]) == (0, 0, [4, 4])
    refused = emu("bench", "all_reduce", *words, "--ranks", "6", "--dims", "4x4:4-11")
    assert (refused.code, refused.err.strip()) == (2, "emu: bench: --dims must be a grid of the 6 ranks, got '4x4:4-11'")


def test_ranks_along_the_axes_of_a_grid_send_to_their_neighbours(emu) -> None:
    """Each walk round a row of four ends two links from the next row's begin, and so does each to and fro of two."""
    torus = "torus:dims=4x2,bandwidth=50GB/s,latency=1us"
    args = ("bench", "all_gather", "--algorithm", "ring", "--topology", torus, "--size", "8B", "-d", "int8", "--json")
    (by_columns,), (by_rows,) = emu(*args, "--axes", "1,0").json, emu(*args).json
    assert (by_columns["wrong"], by_rows["wrong"]) == (0, 0)
    links = {"columns": (1, 1, 1, 2, 1, 1, 1, 2), "rows": (1, 2, 1, 2, 1, 2, 1, 2)}  # from each rank to the next
    for row, way in ((by_columns, links["columns"]), (by_rows, links["rows"])):
        slowest = max(sum((way * 2)[i : i + 7]) for i in range(8))  # the piece that passes the most links
        assert row["time_s"] == pytest.approx(slowest * 1e-6, rel=1e-2)


@pytest.mark.parametrize("axes", ["0,1", "1,0"])
def test_an_algorithm_on_the_grid_of_a_topology_finds_its_rows_whatever_the_order_of_the_axes(emu, axes: str) -> None:
    torus = "torus:dims=4x2,bandwidth=50GB/s,latency=1us"
    args = ("bench", "all_gather", "--algorithm", "torus-buckets", "--topology", torus, "--size", "8MiB", "--json")
    (usual,), (turned,) = emu(*args).json, emu(*args, "--axes", axes).json
    assert turned["shape"] == [(4, 2)[int(axis)] for axis in axes.split(",")]
    assert (turned["wrong"], turned["time_s"]) == (0, usual["time_s"])


@pytest.mark.parametrize("operation", ["all_reduce", "reduce_scatter", "all_gather", "broadcast", "reduce", "all_to_all"])
def test_at_the_least_time_busbw_is_the_rate_of_a_link_whatever_the_operation(emu, operation: str) -> None:
    """Which is what busbw is for; the least time is found from cuts of the network, not from busbw's factor."""
    args = ("--topology", "switch:n=8,bandwidth=50GB/s,latency=0s", "--size", "56KiB", "--timing-only", "--json")
    (row,) = emu("bench", operation, *args).json
    assert row["busbw_Bps"] / row["of_bound"] == pytest.approx(50e9, rel=1e-6)


def test_on_more_channels_data_ends_right_and_takes_as_long_where_they_share_the_port(emu) -> None:
    args = ("bench", "all_reduce", "--topology", SWITCH, "--size", "8MiB", "--json")
    (one,), (four,) = emu(*args, "--algorithm", "ring").json, emu(*args, "--algorithm", "ring@4").json
    assert (four["algorithm"], four["wrong"]) == ("ring@4", 0)
    assert four["time_s"] == pytest.approx(one["time_s"], rel=1e-9)


def test_a_collective_on_part_of_a_grid_is_shown(emu) -> None:
    done = emu("show", "collective", "all_reduce", "flex-sipco", "--dims", "2x2x2:0-5")
    assert done.out.startswith("all_reduce flex-sipco on 2x2x2:0-5 ranks: 5 rounds, 20 slots sent")
    refused = emu("show", "collective", "all_reduce", "flex-sipco", "--dims", "4x4:0-7,9")
    assert (refused.code, refused.err.strip()) == (
        2,
        "emu: all_reduce flex-sipco: does not take shape 4x4:0-7,9; 3x3:0-8 works. It takes ranks on a part of a grid of equal "
        "sizes, such as 4x4:0-7: two whole rows or more, which have all places of at least one digit of the first dim in which "
        "they differ",
    )


@pytest.mark.parametrize(
    ("operation", "dtype", "reduce"),
    [
        ("all_reduce", "bool", "xor"),
        ("reduce_scatter", "int64", "and"),
        ("reduce", "uint8", "or"),
        ("all_reduce", "bool", "sum"),
        ("all_reduce", "complex64", "avg"),
        ("all_gather", "float8_e4m3fn", "sum"),
        ("all_to_all", "float8_e5m2", "sum"),
        ("broadcast", "complex128", "sum"),
        ("all_gather", "int32", "avg"),
        ("all_reduce", "int32", "avg"),
        ("reduce_scatter", "float16", "avg"),
    ],
)
def test_every_dtype_and_reduction_ends_right(emu, operation: str, dtype: str, reduce: str) -> None:
    (row,) = emu("bench", operation, "--topology", SWITCH, "--size", "16KiB", "-d", dtype, "-o", reduce, "--json").json
    assert (row["wrong"], row["dtype"], row["reduce"]) == (0, dtype, reduce)


def test_a_time_that_varies_has_a_spread_and_others_have_none(emu) -> None:
    args = ("bench", "all_to_all", "--size", "1MiB", "--timing-only", "--perturb", "3", "--topology")
    tree, switch = ("fat-tree:radix=8,tiers=3", "--algorithm", "pairwise"), (SWITCH, "--algorithm", "pairwise")
    told = emu(*args, *tree).out
    assert re.search(r"varies by [0-9.]+ %: all_to_all pairwise of 1 MiB on fat-tree:radix=8,tiers=3 takes ", told)
    assert "in 3 runs whose starts moved by a tick" in told
    assert "varies" not in emu(*args, *switch).out
    spread = emu(*args, *tree, "--json").json[0]["spread"]
    assert spread["seeds"] == 3
    assert 0 < spread["least_s"] < spread["most_s"]
    assert emu(*args, *switch, "--json").json[0]["spread"] is None


def test_a_single_perturbed_run_is_refused_before_anything_moves(emu) -> None:
    done = emu("bench", "all_reduce", "--topology", SWITCH, "--size", "1MiB", "--perturb", "1")
    assert (done.code, done.out) == (2, "")
    assert done.err == "emu: perturb: the number of runs must be 0, or 2 or more, got 1\n"


def test_where_switches_add_all_algorithms_have_one_bound(emu) -> None:
    args = ("bench", "all_reduce", "--topology", "nvl:36", "--size", "64MiB", "--timing-only", "--json")
    rows = [emu(*args, "--algorithm", name).json[0] for name in ("hyperx-direct", "in-switch-tree")]
    assert rows[0]["bound_s"] == rows[1]["bound_s"]
    assert rows[0]["of_bound"] < 0.6 < rows[1]["of_bound"] <= 1


def test_rows_of_several_topologies_have_the_rate_out_of_an_npu(emu) -> None:
    args = ("bench", "all_gather", "--size", "1MiB", "--timing-only", "--ranks", "8", "--topology", "ub-mesh:board")
    assert "injection" not in emu(*args).out
    told = emu(*args, "--topology", "servers:nodes=1").out
    assert "busbw  injection  of_bound" in told
    assert " 392 " in told
    assert " 500 " in told


def test_a_grid_that_is_shown_is_of_the_ranks_that_are_named(emu):
    done = emu("show", "collective", "all_reduce", "hyperx-direct", "--ranks", "8", "--dims", "4x4")
    assert (done.code, done.out) == (2, "")
    assert done.err == "emu: show collective: --dims must be a grid of the 8 ranks, got '4x4'\n"
    assert emu("show", "collective", "all_reduce", "hyperx-direct", "--ranks", "16", "--dims", "4x4").code == 0
