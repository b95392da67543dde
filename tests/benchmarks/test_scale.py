"""Small forms of the cases of scale are timed by the way that is named, with the result that is known."""

from dataclasses import replace
from functools import partial

import numpy as np
import pytest

from benchmarks.growth import SERIES, Point, Series, draw, grid, slope
from benchmarks.memory import TimedCase, columns, rise
from benchmarks.peers import __main__ as peers
from benchmarks.scale import CASES, LINK, Case, Collective, Flows, Measured, built, chosen, main, measure, row
from emu.collective.algorithm import algorithm
from emu.fabric.graph import COLUMNS
from emu.topology.catalogue import build_topology

SMALL = (  # case, the same on a small topology, how it is timed
    ("ring-1024", f"switch:n=8,{LINK}", (), "sweep"),
    ("ring-1024-declared", f"switch:n=8,{LINK}", (), "quotient"),
    ("ring-torus-4096", f"torus:dims=4x4,{LINK}", (), "quotient"),
    ("direct-1024", f"switch:n=8,{LINK}", (), "quotient"),
    ("at-once-torus-1024", f"torus:dims=4x4,{LINK}", (), "quotient"),
    ("at-once-torus-1024-declared", f"torus:dims=4x4,{LINK}", (), "quotient"),
    ("at-once-two-tier-1024", "fat-tree:pgft:down=4x4,up=1x4", (), "solver"),
    ("at-once-three-tier-1024", "fat-tree:radix=4,tiers=3", (), "solver"),
    ("irregular-128", f"switch:n=8,{LINK}", (), "solver"),
    ("hierarchical-15360", f"switch:n=30,{LINK}", (5, 3, 2), "quotient"),
    ("2d-ring-torus-200704", f"torus:dims=6x6,{LINK}", (6, 6), "quotient"),
    ("2d-ring-railx-200704", "railx:torus:m=3,n=1,nodes=4x4", (12, 12), "quotient"),
)
FEW = ("ring-1024-declared", "ring-4096", "at-once-torus-1024-declared", "at-once-torus-8192")  # a tenth of a second each


@pytest.mark.parametrize(("name", "topology", "dims", "how"), SMALL, ids=[name for name, *_ in SMALL])
def test_a_case_is_timed_by_the_way_that_it_is_about(name, topology, dims, how):
    assert replace(CASES[name].what, topology=topology, dims=dims).time().how == how


@pytest.mark.parametrize("name", FEW)
def test_declared_symmetry_times_thousands_of_ranks_by_a_few_tasks(name):
    found = measure(CASES[name].what, repeats=1)
    assert found.how == "quotient"
    assert found.tasks <= 8192


@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_every_case_is_of_the_catalogue(case):
    topology = built(case.what.topology)
    if isinstance(case.what, Collective):
        found = algorithm(case.what.operation, case.what.algorithm)
        assert found.fit(topology.n_npus, case.what.dims) == (case.what.dims or topology.n_npus)


@pytest.mark.parametrize("operation", ["all_reduce ring", "all_to_all at-once"])
def test_every_message_and_declared_symmetry_end_at_one_tick(operation):
    what = partial(Collective, f"torus:dims=4x3,{LINK}", *operation.split())
    assert what(declared=False).time().end_fs.max() == what().time().end_fs.max()


def test_neighbours_in_rows_of_chips_are_one_link_apart():
    what = Collective("railx:torus:m=2,n=1,nodes=3x4", "all_reduce", "2d-ring", (8, 6), axes=(0, 2, 1, 3))
    longest = max(build_topology(what.topology).links.latency_fs)
    rounds = 2 * (7 + 5)
    assert what.time().end_s < rounds * (longest / 1e15 + 48 * 2**16 / 50e9)
    assert replace(what, axes=()).time().end_s > what.time().end_s


def test_irregular_slots_differ_and_are_the_same_every_time():
    what = Collective(f"switch:n=4,{LINK}", "all_to_all", "at-once", irregular=True)
    ends = what.time().end_fs
    assert len(set(ends[:12].tolist())) == 12
    assert np.array_equal(ends, what.time().end_fs)


@pytest.mark.parametrize("load", [0.2, 0.7])
def test_flows_keep_the_links_of_npus_busy_for_their_load(load):
    timeline, topology = Flows("fat-tree:radix=4", 4000, load).time(), build_topology("fat-tree:radix=4")
    out = topology.links.src < topology.n_npus
    capacity, carried = topology.links.bandwidth_Bps[out].sum(), timeline.carried_bytes[out].sum()
    assert carried / capacity / (timeline.start_fs.max() / 1e15) == pytest.approx(load, rel=0.01)


def test_a_case_that_is_refused_says_why():
    found = measure(Collective(f"switch:n=5,{LINK}", "all_gather", "swing"))
    line = row("odd", Case("swing on 5", Collective(f"switch:n=5,{LINK}", "all_gather", "swing"), 1), found)
    assert "| refused: all_gather swing: cannot run on 5 ranks" in line
    assert line.endswith("| no |")


@pytest.mark.parametrize(
    ("wall_s", "peak_gb", "target_gb", "met"),
    [((3.0, 1.0), 9.0, None, "yes"), ((3.0, 1.1), 1.0, 2, "no"), ((1.0,), 2.0, 2, "yes"), ((1.0,), 2.1, 2, "no")],
)
def test_a_target_is_met_by_the_least_time_and_the_peak(wall_s, peak_gb, target_gb, met):
    case = Case("words", CASES["ring-1024"].what, 1.0, target_gb)
    assert row("name", case, Measured(wall_s, 3, "sweep", 1e-3, peak_gb)).endswith(f"| 1 ms | sweep | {met} |")


def test_cases_are_chosen_by_how_their_names_begin(monkeypatch, capsys):
    assert chosen([]) == list(CASES)
    assert chosen(["flows", "irregular"]) == [name for name in CASES if name.split("-")[0] in {"flows", "irregular"}]
    monkeypatch.setattr("sys.argv", ["scale", "star"])
    assert main() == 2
    assert capsys.readouterr().err.startswith("scale: no case begins with star; there are ring-1024, ")


@pytest.mark.parametrize("series", SERIES, ids=[series.label for series in SERIES])
def test_a_line_of_the_plot_is_the_same_case_for_every_number_of_ranks(series):
    assert series.sizes()[0] == 8
    for n in (8, 32):
        what = series.case(n)
        assert build_topology(what.topology).n_npus == n
        assert len(what.time().end_fs) > 0
    assert series.messages(series.sizes()[-1]) <= 2**24


def test_a_grid_is_as_square_as_a_power_of_two_can_be():
    assert [grid(2**k) for k in (3, 4, 13)] == [(4, 2), (4, 4), (128, 64)]


def test_the_slope_is_the_power_that_time_grows_with(tmp_path):
    points = [Point(n, n**1.5 / 1e6 + (n < 512), 0.1, "sweep") for n in (64, 512, 1024, 4096)]
    assert slope(points) == pytest.approx(1.5)
    draw([(Series("line", "#000000", SERIES[0].case, SERIES[0].messages), points)], tmp_path / "growth.png")
    assert (tmp_path / "growth.png").read_bytes().startswith(b"\x89PNG")


def test_all_columns_of_a_graph_are_counted_once():
    asked = TimedCase(f"switch:n=8,{LINK}", "all_reduce", "ring")
    graph, rows = asked.graph(), asked.schedule().n_rows
    _, *of_graph, hops = columns(asked)
    assert hops == 2
    assert sum(of_graph) * rows == sum(getattr(graph, name).nbytes for name in COLUMNS)


def test_a_rise_is_what_is_held_at_the_same_time():
    rose, _ = rise(lambda: [np.ones(2**22) for _ in range(2)])
    assert 64 * 2**20 <= rose < 72 * 2**20


def test_peers_that_are_not_installed_are_named(monkeypatch, capsys):
    monkeypatch.setenv("PATH", "")
    assert peers.main() == 2
    assert capsys.readouterr().err.startswith("peers: no smpicc and smpirun on the path; ")
