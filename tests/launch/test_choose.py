"""`emu bench --algorithm auto` and `all`: every algorithm that fits is timed, and the fastest is what runs."""

import re
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import fields
from itertools import product
from math import lcm
from pathlib import Path
from typing import Any

import pytest

from emu.collective.algorithm import ALGORITHMS
from emu.collective.chooser_names import AUTO
from emu.collective.schedule import RowsError
from emu.errors import InputError
from emu.study.choice.fastest import fastest
from emu.study.choice.site import Site, candidates
from emu.study.measure.bench import BenchRow, CollectiveRow, UntimedRow, algorithm_names, bench, best_rows, compare
from emu.study.measure.request import BenchRequest, place_bench
from emu.topology.catalogue import build_topology
from launch.front import measurements
from launch.show.text.collective_table import compare_lines

BOARD = "ub-mesh:board"
TORUS = "torus:dims=4x2,bandwidth=50GB/s,latency=500ns"


def one_by_one(topology: str, operation: str, sizes: tuple[int, ...]) -> dict[str, list[float]]:
    """The time at each size of every algorithm that runs there when it is asked for by its name."""
    times = {}
    for key, each in ALGORITHMS:
        if key.startswith(f"{operation}/"):
            with suppress(InputError):
                request = BenchRequest(operation, each.name, sizes)
                times[each.name] = [row.time_s for row in bench(build_topology(topology), request)]
    return times


def test_all_compares_every_algorithm_that_fits(emu) -> None:
    rows = emu(
        "bench", "all_reduce", "--algorithm", "all", "--topology", BOARD, "-b", "1KiB", "-e", "1MiB", "-f", "1024", "--json"
    ).json
    alone = one_by_one(BOARD, "all_reduce", (1024, 2**20))
    assert {name: [row["time_s"] for row in rows if row["algorithm"] == name] for name in alone} == alone
    assert {"ring", "direct", "recursive-doubling"} <= {row["algorithm"] for row in rows} == set(alone)
    assert "in-switch" not in alone  # a board has no switch
    assert all(row["wrong"] is None for row in rows)
    fastest = {row["size_bytes"]: row["time_s"] for row in rows if row["fastest"]}
    assert fastest == {size: min(times[at] for times in alone.values()) for at, size in enumerate((1024, 2**20))}


def test_unless_one_is_named_data_moves_by_the_fastest_of_each_size(emu) -> None:
    args = ("--topology", TORUS, "-b", "1KiB", "-e", "16MiB", "-f", "16384")
    rows = emu("bench", "all_reduce", *args, "--json").json
    assert emu("bench", "all_reduce", *args, "--algorithm", "auto", "--timing-only").out.count("recursive-doubling") == 1
    alone = one_by_one(TORUS, "all_reduce", (1024, 2**24))
    assert [row["time_s"] for row in rows] == [min(times[at] for times in alone.values()) for at in (0, 1)]
    assert [alone[row["algorithm"]][at] for at, row in enumerate(rows)] == [row["time_s"] for row in rows]
    assert len({row["algorithm"] for row in rows}) == 2
    assert [row["wrong"] for row in rows] == [0, 0]


def test_where_a_switch_adds_it_competes(emu) -> None:
    switch = "dgx-h100:adds=yes"
    assert "in-switch" in {a.name for a in candidates("all_reduce", Site.first(build_topology(switch)))}
    (row,) = emu("bench", "all_reduce", "--algorithm", "auto", "--topology", switch, "--size", "64MiB", "--json").json
    assert row["algorithm"] == "in-switch"  # 1 + 1/k of the buffer a port, where the others send 2 (n-1)/n
    assert row["wrong"] == 0


def test_what_was_not_tried_is_said(emu, monkeypatch: pytest.MonkeyPatch) -> None:
    args = ("bench", "all_reduce", "--topology", "ring:n=5,bandwidth=1GB/s,latency=1us", "--size", "20KiB", "--timing-only")
    assert "not tried" not in emu(*args).out
    monkeypatch.setattr("emu.study.choice.fastest.MOST_MESSAGES", 1)
    fastest.cache_clear()
    told = emu(*args).out
    fastest.cache_clear()
    assert "\n* not tried on ring:n=5,bandwidth=1GB/s,latency=1us: bidirectional-ring, " in told
    assert "too many messages to be timed for a choice; name one with --algorithm to time it\n" in told
    assert "  ring* " in told  # the default is tried, however many it sends


def test_where_a_grid_is_given_only_what_is_built_on_it_competes(emu) -> None:
    args = ("bench", "all_reduce", "--dims", "2x4", "--topology", BOARD, "--size", "1MiB", "--timing-only", "--json")
    rows, (best,) = emu(*args, "--algorithm", "all").json, emu(*args, "--algorithm", "auto").json
    assert {"torus-buckets", "hyperx-direct"} <= {row["algorithm"] for row in rows}
    assert all(row["shape"] == [2, 4] for row in [*rows, best])
    assert best["time_s"] == min(row["time_s"] for row in rows)


@pytest.mark.parametrize("n", [2, 3, 5, 6, 8, 12, 16])
def test_no_all_reduce_on_one_switch_beats_the_port_bound_but_the_switch_that_adds(n: int) -> None:
    """2 (n-1)/n of the buffer through each port, at latency 0 and sizes that divide."""
    topology = build_topology(f"switch:n={n},bandwidth=50GB/s,latency=0s")
    size = 4 * lcm(*range(1, 17)) * 1024
    rows = list(compare(place_bench(topology, BenchRequest("all_reduce", "ring", (size,)))))
    bound = 2 * (n - 1) / n * size / 50e9
    (added,) = bench(topology, BenchRequest("all_reduce", "in-switch", (size,)))
    times = {row.algorithm: row.time_s for row in rows}
    assert all(time_s >= bound * (1 - 1e-9) for time_s in times.values())
    for name in {"ring", "halving-doubling", "circulant", "direct"} & set(times):
        assert times[name] == pytest.approx(bound, rel=1e-6)
    assert {"ring", "circulant", "direct"} <= set(times)
    assert n == 2 or added.time_s < bound
    assert "in-switch" not in times  # no one says that this switch can add


def test_what_takes_long_to_time_and_has_a_bound_beyond_the_best_is_not_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = place_bench(build_topology(BOARD), BenchRequest("all_reduce", AUTO, (1024, 2**20)))
    timed = {(row.algorithm, row.size_bytes): row.time_s for row in compare(asked) if isinstance(row, BenchRow)}
    named = {name.partition(" ")[0] for name in algorithm_names(asked)}  # without the grid
    assert timed.keys() == set(product(named, asked.request.sizes))
    monkeypatch.setattr("emu.study.measure.bench.LIGHT", 0)
    rows = list(compare(asked))
    passed = [row for row in rows if isinstance(row, UntimedRow)]
    assert {(row.algorithm, row.size_bytes) for row in rows} == set(timed)
    assert passed
    for row in passed:
        assert min(time_s for (_, size), time_s in timed.items() if size == row.size_bytes) < row.at_least_s
        assert row.at_least_s <= timed[row.algorithm, row.size_bytes]
    best = best_rows(rows)
    assert {size: row.time_s for size, row in best.items()} == {
        size: min(time_s for (_, of), time_s in timed.items() if of == size) for size in best
    }


@pytest.mark.parametrize("line", ["infinitehbd:binary:nodes=16", BOARD])  # on the first most would tear its optical switches
def test_the_progress_of_a_comparison_ends_at_its_total(line: str, monkeypatch: pytest.MonkeyPatch) -> None:
    totals: list[int] = []

    def watched(items: Iterable[object], label: str, total: int, *_: object) -> Iterator[object]:
        totals.append(total)
        return iter(items)

    monkeypatch.setattr(measurements, "with_progress", watched)
    found = measurements.bench("all_reduce", topology=line, algorithm="all", begin=1024, end=4096, factor=4)
    assert totals == [len(found.rows)]


def test_the_fastest_at_the_largest_size_is_the_first_line_and_what_was_not_timed_the_last() -> None:
    asked = place_bench(build_topology(BOARD), BenchRequest("all_reduce", AUTO, (1024, 2**24)))
    rows = list(compare(asked))
    untimed = [UntimedRow(**named_fields(row), at_least_s=1.0) if row.algorithm == "ring" else row for row in rows]
    names = algorithm_names(asked)
    for of, last in ((rows, ""), (untimed, "ring")):
        told = [name for line in compare_lines(asked, of) if (name := line.partition("  ")[0].strip()) in names]
        time_s = {row.built: row.time_s for row in of if isinstance(row, BenchRow) and row.size_bytes == 2**24}
        timed = [name for name in told if name in time_s]
        assert [time_s[name] for name in timed] == sorted(time_s.values())
        assert told == timed + [last] * bool(last)
    columns = [*compare_lines(asked, rows)][3]
    assert columns.split() == ["time", "of_bound"] * 2


def named_fields(row: BenchRow | UntimedRow) -> dict[str, Any]:
    """Return the fields that every row has."""
    return {field.name: getattr(row, field.name) for field in fields(CollectiveRow)}


def test_the_plot_is_drawn_and_the_table_names_the_fastest_of_each_size(emu, tmp_path: Path) -> None:
    args = ("--topology", BOARD, "-b", "1KiB", "-e", "1MiB", "-f", "32", "--png", str(tmp_path / "c.png"))
    done = emu("bench", "all_gather", "--algorithm", "all", *args)
    assert done.code == 0, done.err
    head, _, columns = done.out.splitlines()[:3]
    assert head == "all_gather among 8 ranks of ub-mesh:board: virtual time and of_bound"
    assert columns.split() == ["algorithm", "1", "KiB", "32", "KiB", "1", "MiB"]
    (fastest,) = (line for line in done.out.splitlines() if line.startswith("fastest: "))
    assert re.findall(r"[\d.]+ [KM]iB(?=: )", fastest) == ["1 KiB", "32 KiB", "1 MiB"]
    name = fastest.rpartition(": ")[2]
    (line,) = (line for line in done.out.splitlines() if line.startswith(f"{name}  "))
    assert line.endswith("1.000")  # at 1 MiB the fastest is all but the least possible
    assert (tmp_path / "c.png").read_bytes().startswith(b"\x89PNG")


def test_ties_go_to_the_first_by_name() -> None:
    rows = list(compare(place_bench(build_topology(BOARD), BenchRequest("all_to_all", AUTO, (8,)))))
    best = best_rows(rows)[8]
    assert best.algorithm == min(row.algorithm for row in rows if row.time_s == best.time_s)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--algorithm", "auto", "--dims", "2x5"], "dims must be a grid of the 8 ranks, got '2x5'"),
        (["--algorithm", "all", "--cluster", "ray"], "must be auto or a name where --cluster is given, got 'all'; `all` moves"),
        (
            ["--algorithm", "all", "--topology", BOARD, "--png", "x.png"],
            "--topology must be given once where --algorithm all is drawn, got 2",
        ),
        (["--algorithm", "ring", "--png", "no/x.png"], "--png: cannot write 'no/x.png': its folder is not there"),
        (["--algorithm", "my-own"], "; one of your own needs --import FILE.py"),
        (["--algorithm", "binary-exchange"], "binary-exchange is one of all_to_all"),
        (["--algorithm", "ring", "--dims", "3x3"], "dims must be a grid of the 8 ranks, got '3x3'"),
        (["--algorithm", "ring", "--dims", "2x4"], "all_reduce ring: does not take shape 2x4; 8 works"),
        (["--algorithm", "sipco", "--ranks", "8", "--dims", "2x4"], "does not take shape 2x4; 2x2x2 works"),
        (["--algorithm", "swing", "--ranks", "7"], "cannot run on 7 ranks; nearest that work"),
        (["--algorithm", "in-switch"], "1 helpers, such as a switch that adds, do not fit ub-mesh:board with its 0 switches"),
    ],
)
def test_what_does_not_fit_is_one_line(emu, args: list[str], message: str) -> None:
    done = emu("bench", "all_reduce", *args, "--topology", BOARD, "--size", "1MiB")
    assert (done.code, done.out, len(done.err.splitlines())) == (2, "", 1)
    assert message in done.err


def test_what_would_tear_an_optical_switch_is_passed_over(emu) -> None:
    fabric = "infinitehbd:binary:nodes=16"
    rows = emu("bench", "all_to_all", "--algorithm", "all", "--topology", fabric, "--size", "1MiB", "--json").json
    assert "binary-exchange" in {row["algorithm"] for row in rows}
    assert "at-once" not in {row["algorithm"] for row in rows}
    refused = emu("bench", "all_to_all", "--algorithm", "at-once", "--topology", fabric, "--size", "1MiB")
    assert (refused.code, refused.out) == (2, "")
    assert "at once; take another algorithm, or put these messages in rounds of their own" in refused.err


def test_a_ring_on_a_system_with_an_order_of_its_own_runs_from_neighbour_to_neighbour(emu) -> None:
    fabric = "infinitehbd:dims=1x8x2x4,tp=64"
    (row,) = emu(
        "bench", "all_reduce", "--algorithm", "ring", "--topology", fabric, "--size", "64MiB", "--timing-only", "--json"
    ).json
    assert row["busbw_Bps"] > 300e9  # an edge has 400 GB/s; off the ring there are 50


@pytest.mark.parametrize(
    ("command", "word", "says"),
    [
        ("estimate", "dpp.all_gather=ring", "no axis with communication is called 'dpp'; did you mean dp"),
        (
            "estimate",
            "dp.all_reduce=in-switch",
            "all_reduce of dp must be one that groups of 2 ranks of ub-mesh:board can have",
        ),
        ("estimate", "dp.all_to_all=single-path", "no collective on dp is called 'all_to_all'; known: all_reduce"),
        ("plan", "dp.all_to_all=single-path", "no collective on dp is called 'all_to_all'; did you mean all_gather"),
        ("plan", "ep.all_gather=ring", "no axis of the plans searched is called 'ep'; did you mean"),
        ("plan", "dp.all_gather=in-switch", "all_gather of dp must be one that groups of 2 ranks of ub-mesh:board can have"),
        ("train", "cp.all_gather=ring", "no axis with communication is called 'cp'"),
        ("train", "dp.all_gather=rign", "no all_gather algorithm is called 'rign'; did you mean ring"),
    ],
)
def test_a_word_for_an_axis_that_is_not_there_or_that_no_group_can_have_is_refused_in_one_line(emu, command, word, says):
    model = (command, "--model", "llama-tiny", "--topology", BOARD, "--global-batch", "2", "--seq", "32", "--algorithm", word)
    rest = ("--npus", "2", "--plan", "tp=1,pp=1,cp=1") if command == "plan" else ("--plan", "dp=2")
    done = emu(*model, *rest)
    assert (done.code, done.out, done.err.count("\n")) == (2, "", 1)
    assert says in done.err


def test_a_word_for_an_axis_that_no_rank_of_a_trace_talks_on_is_refused(emu, tmp_path: Path) -> None:
    trace, on = tmp_path / "step.trace", ("--topology", BOARD)
    model = ("estimate", "--model", "llama-tiny", *on, "--global-batch", "2", "--seq", "32", "--plan", "dp=2")
    assert emu(*model, "--trace", str(trace)).code == 0
    by_dp, refused = (
        emu("replay", str(trace), *on, "--algorithm", f"{axis}.all_reduce=ring", "--json") for axis in ("dp", "tp")
    )
    assert "ring" in by_dp.json[0]["algorithms"]["all_reduce"]
    assert (refused.code, refused.out) == (2, "")
    assert "no axis with communication is called 'tp'; did you mean dp?" in refused.err


def test_a_step_says_what_a_library_chose_for_it(emu) -> None:
    model = ("estimate", "--model", "llama-tiny", "--global-batch", "4", "--seq", "32", "--plan", "dp=4")
    on = ("--topology", "servers:nodes=2,gpus=2")
    (found,) = [emu(*model, *on, "--algorithm", "nccl", "--json").json]
    assert list(found["chosen"]) == [operation for operation in found["algorithms"] if operation in found["chosen"]]
    assert found["chosen"]["all_reduce"].startswith("nccl: ")
    told = emu(*model, *on, "--algorithm", "nccl").out
    assert f"\n  chosen        all_reduce by {found['chosen']['all_reduce']}" in told
    assert "chosen" not in emu(*model, *on, "--json").json


def test_bench_takes_what_a_library_takes_at_each_size_and_says_what_that_is(emu) -> None:
    """By its name, or by the library of a stack unless an algorithm is named."""
    words = (
        "bench",
        "all_reduce",
        "--topology",
        "servers:nodes=2",
        "-b",
        "1KiB",
        "-e",
        "64MiB",
        "-f",
        "65536",
        "--timing-only",
    )
    rows = emu(*words, "--algorithm", "nccl", "--json").json
    assert [row["algorithm"] for row in rows] == ["rail-tree", "rail-ring"]
    assert [row["chosen"].split(",")[0] for row in rows] == ["Tree", "Ring"]
    told = emu(*words, "--algorithm", "nccl").out
    assert "chosen on servers:nodes=2, 1 KiB: Tree, LL, 1 channel\n" in told
    by_stack = emu(*words, "--stack", "nccl", "--json").json
    assert [row["algorithm"] for row in by_stack] == ["rail-tree", "in-switch-tree"]
    named = emu(*words, "--stack", "nccl", "--algorithm", "ring", "--json").json
    assert {(row["algorithm"], row["chosen"]) for row in named} == {("ring", "")}


def test_an_estimate_is_served_by_the_library_of_its_stack_unless_words_say_otherwise(emu) -> None:
    words = "estimate", "--model", "llama-tiny", "--plan", "dp=8", "--global-batch", "8", "--seq", "64"
    on = "--topology", "servers:nodes=2,gpus=4", "--json"
    of_stack, of_word, of_auto, mixed = (
        emu(*words, *on, *more).json
        for more in (
            ("--stack", "library=nccl"),
            ("--algorithm", "nccl"),
            ("--stack", "library=nccl", "--algorithm", "auto"),
            ("--stack", "library=nccl", "--algorithm", "all_reduce=ring"),
        )
    )
    served = [each["algorithms"]["all_reduce"] for each in (of_stack, of_word, of_auto, mixed)]
    assert served == ["rail-tree:2x4", "rail-tree:2x4", served[2], "ring"]
    assert not served[2].startswith(("rail-tree", "ring"))


def test_where_ranks_do_not_fill_switches_that_add_it_is_said() -> None:
    said = "switches can add, but no algorithm that lets them was the fastest on 8 ranks; try all 72 (--ranks 72)"
    topology = build_topology("nvl:72")
    for asked, ranks, algorithm, is_said in ((AUTO, 8, "ring", True), (AUTO, 72, "ring", False), (AUTO, 8, "in-switch", False)):
        case = place_bench(topology, BenchRequest("all_reduce", asked, (2**20,), ranks=ranks)).case(algorithm)
        assert (said in case.assumptions()) == is_said


def test_a_named_algorithm_of_too_many_messages_is_refused_in_words_of_a_user(emu, monkeypatch: pytest.MonkeyPatch) -> None:
    def too_many(*_: object) -> None:
        raise RowsError("schedule: 17335296 rows or more, at most 2**24")

    monkeypatch.setattr("emu.study.measure.request.compact_schedule", too_many)
    args = ("bench", "all_reduce", "--algorithm", "ring", "--topology", "ub-mesh:board", "--size", "1MiB", "--timing-only")
    done = emu(*args)
    assert done.code == 2
    assert "sends too many messages among 8 ranks to be timed; take fewer ranks, another grid (--dims), or --al" in done.err
