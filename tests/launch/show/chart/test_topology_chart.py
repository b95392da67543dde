"""The picture of topologies against one another shows every row, with its algorithm."""

from dataclasses import replace

import pytest

from emu.study.measure.bench import bench
from emu.study.measure.request import BenchRequest
from emu.topology.catalogue import build_topology
from emu.units import format_bandwidth, format_time
from launch.show.chart.algorithm_chart import topology_figure
from tests.launch.show.drawn import on_one_another, outside

LINES = [f"{shape},bandwidth=50GB/s,latency=500ns" for shape in ("ring:n=8", "full-mesh:n=8", "switch:n=8")]


def _rows(*sizes):
    request = BenchRequest("all_gather", "ring", sizes)
    return [row for line in LINES for row in bench(build_topology(line), request)]


def test_one_size_is_bars_the_fastest_on_top_each_with_its_time_and_algorithm():
    rows = _rows(2**20)
    figure = topology_figure(rows, ["auto"] * len(rows))
    (axes,) = figure.axes
    slowest_first = sorted(rows, key=lambda row: -row.time_s)
    assert [label.get_text() for label in axes.get_yticklabels()] == [row.topology for row in slowest_first]
    assert [bar.get_width() for bar in axes.patches] == [row.time_s for row in slowest_first]
    assert [text.get_text() for text in axes.texts] == [
        f"{format_time(row.time_s)} · ring · {format_bandwidth(row.injection_Bps)}" for row in slowest_first
    ]
    assert sorted(row.injection_Bps / 1e9 for row in rows) == [50, 100, 350]
    assert figure.get_suptitle() == "all_gather among 8 ranks, 1 MiB; right: algorithm, bandwidth out of an NPU"
    assert outside(figure) == []
    assert on_one_another(figure) == []


def test_several_sizes_are_a_line_a_topology_named_at_its_end_and_a_mark_an_algorithm():
    rows = _rows(2**20, 2**10)
    figure = topology_figure(rows, ["auto"] * len(rows))
    (axes,) = figure.axes
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["ring"]
    lines = [line for line in axes.lines if len(line.get_xdata()) == 2]
    assert [list(line.get_xdata()) for line in lines] == [[2**10, 2**20]] * 3
    for line, name in zip(lines, LINES, strict=True):
        assert list(line.get_ydata()) == sorted(row.time_s for row in rows if row.topology == name)
        (label,) = [text for text in axes.texts if text.get_text() == name]
        assert label.xy == (2**20, line.get_ydata()[-1])
        assert label.get_color() == line.get_color()
    assert outside(figure) == []
    assert on_one_another(figure) == []


def test_twenty_lines_that_end_in_one_place_have_their_names_apart():
    row = _rows(2**10)[0]
    rows = [replace(row, topology=f"fabric {i}", size_bytes=size) for i in range(20) for size in (2**10, 2**20)]
    figure = topology_figure(rows, ["auto"] * len(rows))
    assert len(figure.axes[0].texts) == 20
    assert outside(figure) == []
    assert on_one_another(figure) == []


def test_several_topologies_by_auto_are_one_table_and_one_picture(emu, tmp_path):
    args = [arg for line in LINES for arg in ("--topology", line)]
    done = emu("bench", "all_reduce", "--algorithm", "auto", "--size", "64KiB", *args, "--png", str(tmp_path / "c.png"))
    assert done.code == 0, done.err
    assert all(sum(row.startswith(line + " ") for row in done.out.splitlines()) == 1 for line in LINES)
    assert (tmp_path / "c.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize("command", ["bench", "show"])
def test_a_file_that_is_no_topology_is_one_line_and_exit_2(emu, tmp_path, command):
    (tmp_path / "own.toml").write_text("[npus]\ngpu = 2\n[[link]]\n")
    words = ["topology"] if command == "show" else ["all_reduce", "--size", "1MiB", "--topology"]
    done = emu(command, *words, str(tmp_path / "own.toml"))
    assert (done.code, done.out, len(done.err.splitlines())) == (2, "", 1)
    assert "own.toml: unknown key 'link'; did you mean links?" in done.err
