"""`emu bench --algorithm auto` and `all`: every algorithm that fits is timed, and the fastest is what runs."""

from math import lcm
from pathlib import Path

import pytest

from emu.study.measure.bench import BenchRequest, bench
from emu.study.measure.choice import candidates
from emu.study.measure.choose import best_rows, choose, compare
from emu.topology.catalogue import build_topology

BOARD = "ub-mesh:board"
REQUEST = BenchRequest("all_reduce", "ring", (1024, 2**24))


def test_all_compares_every_algorithm_that_fits(emu) -> None:
    rows = emu(
        "bench", "all_reduce", "--algorithm", "all", "--topology", BOARD, "-b", "1KiB", "-e", "1MiB", "-f", "1024", "--json"
    ).json
    names = {row["algorithm"] for row in rows}
    assert names == {a.name for a in candidates("all_reduce", 8, build_topology(BOARD))}
    assert {"ring", "direct", "recursive-doubling"} <= names
    assert "in-switch" not in names  # a board has no switch
    assert all(row["wrong"] is None for row in rows)
    for size in (1024, 2**20):
        times = {row["algorithm"]: row["time_s"] for row in rows if row["size_bytes"] == size}
        (best,) = (row["algorithm"] for row in rows if row["size_bytes"] == size and row["fastest"])
        assert times[best] == min(times.values())


def test_auto_moves_data_by_the_fastest_of_each_size(emu) -> None:
    rows = emu(
        "bench", "all_reduce", "--algorithm", "auto", "--topology", BOARD, "-b", "1KiB", "-e", "16MiB", "-f", "16384", "--json"
    ).json
    assert [row["algorithm"] for row in rows] == [
        served.algorithm for served in choose(build_topology(BOARD), REQUEST).values()
    ]
    assert [row["wrong"] for row in rows] == [0, 0]


def test_where_a_switch_adds_it_competes(emu) -> None:
    switch = "dgx-h100"
    assert "in-switch" in {a.name for a in candidates("all_reduce", 8, build_topology(switch))}
    (row,) = emu("bench", "all_reduce", "--algorithm", "auto", "--topology", switch, "--size", "64MiB", "--json").json
    assert row["algorithm"] == "in-switch"  # 1 + 1/k of the buffer a port, where the others send 2 (n-1)/n
    assert row["wrong"] == 0


@pytest.mark.parametrize("n", [2, 3, 5, 6, 8, 12, 16])
def test_no_all_reduce_on_one_switch_beats_the_port_bound_but_the_switch_that_adds(n: int) -> None:
    """2 (n-1)/n of the buffer through each port, at latency 0 and sizes that divide."""
    topology = build_topology(f"switch:n={n},bandwidth=50GB/s,latency=0s")
    size = 4 * lcm(*range(1, 17)) * 1024
    rows = list(compare(topology, BenchRequest("all_reduce", "ring", (size,))))
    bound = 2 * (n - 1) / n * size / 50e9
    (added,) = bench(topology, BenchRequest("all_reduce", "in-switch", (size,), timing_only=True))
    times = {row.algorithm: row.time_s for row in rows}
    assert all(time_s >= bound * (1 - 1e-9) for time_s in times.values())
    for name in {"ring", "halving-doubling", "circulant", "direct"} & set(times):
        assert times[name] == pytest.approx(bound, rel=1e-6)
    assert {"ring", "circulant", "direct"} <= set(times)
    assert n == 2 or added.time_s < bound
    assert "in-switch" not in times  # no one says that this switch can add


def test_the_plot_is_drawn_and_the_table_marks_the_fastest(emu, tmp_path: Path) -> None:
    args = ("--topology", BOARD, "-b", "1KiB", "-e", "1MiB", "-f", "32", "--png", str(tmp_path / "c.png"))
    done = emu("bench", "all_gather", "--algorithm", "all", *args)
    assert done.code == 0, done.err
    assert done.out.count("*") == 3 + 1  # one a size, one in the head
    assert "1.000 *" in done.out  # at 1 MiB the fastest is all but the least possible
    assert (tmp_path / "c.png").read_bytes().startswith(b"\x89PNG")


def test_ties_go_to_the_first_by_name() -> None:
    rows = list(compare(build_topology(BOARD), BenchRequest("all_to_all", "ring", (8,))))
    best = best_rows(rows)[8]
    assert best.algorithm == min(row.algorithm for row in rows if row.time_s == best.time_s)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (["--algorithm", "auto", "--dims", "2x4"], "--algorithm must be one by its name where --dims is given, got 'auto'"),
        (["--algorithm", "all", "--cluster", "ray"], "must be auto or a name where --cluster is given, got 'all'; `all` moves"),
        (
            ["--algorithm", "all", "--topology", BOARD, "--png", "x.png"],
            "--topology must be given once where --algorithm all is drawn, got 2",
        ),
        (["--algorithm", "ring", "--png", "no/x.png"], "bench: cannot write 'no/x.png': No such file or directory"),
        (["--algorithm", "ring", "--dims", "3x3"], "dims must be a grid of the 8 ranks, got '3x3'"),
        (["--algorithm", "ring", "--dims", "2x4"], "all_reduce ring: does not take shape 2x4; 8 works"),
        (["--algorithm", "sipco", "--ranks", "8", "--dims", "2x4"], "does not take shape 2x4; 2x2x2 works"),
        (["--algorithm", "swing", "--ranks", "7"], "takes no 7 ranks; nearest that work"),
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
