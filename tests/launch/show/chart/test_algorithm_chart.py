"""The picture of algorithms against one another names every one of them, and the fastest stand out."""

import pytest
from matplotlib.colors import to_hex

from emu.collective.algorithm import ALGORITHMS
from emu.study.measure.bench import bench
from emu.study.measure.request import BenchRequest
from emu.topology.catalogue import build_topology
from launch.show.chart.algorithm_chart import algorithm_figure
from launch.show.chart.time_chart import MARKED, PALE
from tests.launch.show.drawn import on_one_another, outside

BOARD = build_topology("ub-mesh:board")
NAMES = ("direct", "hyperx-direct", "double-tree", "recursive-doubling", "ring", "swing")
TREE = ("halving-doubling", "recursive-doubling", "ring")


def _rows(names, *sizes, topology=BOARD):
    return [row for name in names for row in bench(topology, BenchRequest("all_reduce", name, sizes))]


def _coloured(axes):
    return {text.get_text() for text in axes.texts if text.get_fontweight() == "bold"}


def test_one_size_is_a_bar_an_algorithm_the_fastest_on_top():
    rows = _rows(NAMES, 2**20)
    figure = algorithm_figure(rows)
    (axes,) = figure.axes
    by_time = sorted(rows, key=lambda row: (row.time_s, row.built))
    assert [label.get_text() for label in axes.get_yticklabels()][::-1] == [row.built for row in by_time]
    assert [bar.get_width() for bar in axes.patches][::-1] == [row.time_s for row in by_time]
    assert len({bar.get_facecolor() for bar in axes.patches}) == 2
    fastest = [bar for bar in axes.patches if bar.get_facecolor() == axes.patches[-1].get_facecolor()]
    assert len(fastest) == 2  # direct is what it is on one dimension too
    assert [text.get_text().partition(" · ")[2] for text in axes.texts][::-1] == [
        f"of_bound {row.of_bound:.3f}" for row in by_time
    ]
    assert figure.get_suptitle() == "all_reduce among 8 ranks of ub-mesh:board, 1 MiB"
    assert outside(figure) == []
    assert on_one_another(figure) == []


def test_many_sizes_are_lines_that_end_at_their_names_and_the_best_are_in_colour():
    rows = _rows(NAMES, 2**10, 2**16, 2**24)
    figure = algorithm_figure(rows)
    (axes,) = figure.axes
    lines = [line for line in axes.lines if len(line.get_xdata()) == 3]
    assert sorted(text.get_text() for text in axes.texts) == [
        *("direct, hyperx-direct", "double-tree", "recursive-doubling", "ring", "swing")
    ]
    assert _coloured(axes) == {"direct, hyperx-direct"}
    assert sorted(line.get_color() == PALE for line in lines) == [False, True, True, True, True]
    for name, text in {text.get_text(): text for text in axes.texts}.items():
        (line,) = [line for line in lines if line.get_ydata()[-1] == text.xy[1]]
        assert list(line.get_ydata()) == [row.time_s for row in rows if row.built == name.partition(",")[0]]
    assert outside(figure) == []
    assert on_one_another(figure) == []


def test_each_that_is_the_fastest_at_some_size_has_a_colour_of_its_own():
    tree = build_topology("switch:n=16,bandwidth=50GB/s,latency=5us")
    rows = _rows(TREE, 2**8, 2**28, topology=tree)
    figure = algorithm_figure(rows)
    (axes,) = figure.axes
    at = {(row.built, row.size_bytes): row.time_s for row in rows}
    best = {min(TREE, key=lambda name: at[name, size]) for size in (2**8, 2**28)}
    assert len(best) == 2
    assert _coloured(axes) == best
    assert len({text.get_color() for text in axes.texts if text.get_text() in best}) == 2


@pytest.mark.parametrize("sizes", [(2**20,), (2**10, 2**20)])
def test_all_algorithms_of_one_operation_are_drawn_each_named_once(emu, tmp_path, monkeypatch, sizes):
    figures = []
    monkeypatch.setattr("launch.show.canvas.save", lambda *args: figures.append(args[0]))
    args = ["--topology", "switch:n=6,bandwidth=50GB/s,latency=500ns", "-b", str(sizes[0]), "-e", str(sizes[-1]), "-f", "1024"]
    done = emu("bench", "all_reduce", "--algorithm", "all", *args, "--json", "--png", str(tmp_path / "a.png"))
    assert done.code == 0, done.err
    (figure,) = figures
    (axes,) = figure.axes
    named = {row["algorithm"] for row in done.json}
    told = [word.get_text() for word in (axes.get_yticklabels() if len(sizes) == 1 else axes.texts)]
    assert len(told) == (len(named) if len(sizes) == 1 else len(set(told)))
    if len(sizes) == 1:
        assert {word.split()[0] for word in told} == named
    assert outside(figure) == []
    assert on_one_another(figure) == []


OWN = """import numpy as np
from emu import Schedule, Sends, collective

@collective("all_gather", "own-ring")
def own_ring(n):
    r = np.arange(n)
    return Schedule.build(n, n, [Sends(r, (r + 1) % n, (r - t) % n) for t in range(n - 1)])
"""


@pytest.mark.parametrize("sizes", [(2**20,), (2**10, 2**20)])
def test_an_algorithm_of_ones_own_stands_out_though_others_are_faster(emu, tmp_path, monkeypatch, sizes):
    figures, before = [], dict(ALGORITHMS)
    monkeypatch.setattr("launch.show.canvas.save", lambda *args: figures.append(args[0]))
    (tmp_path / "own.py").write_text(OWN)
    args = ["--topology", "ub-mesh:board", "-b", str(sizes[0]), "-e", str(sizes[-1]), "-f", "1024", "--ranks", "8"]
    words = ["--import", str(tmp_path / "own.py"), "--json", "--png", str(tmp_path / "a.png")]
    done = emu("bench", "all_gather", "--algorithm", "all", *args, *words)
    ALGORITHMS._filed.clear()
    ALGORITHMS._filed.update(before)
    assert done.code == 0, done.err
    (axes,) = figures[0].axes
    if len(sizes) == 1:
        names = [label.get_text() for label in axes.get_yticklabels()]
        own = [bar.get_facecolor() for bar, name in zip(axes.patches, names, strict=True) if name == "own-ring"]
        assert [to_hex(colour, keep_alpha=False) for colour in own] == [MARKED.lower()]
        assert [bar.get_facecolor() for bar in axes.patches].count(own[0]) == 1
    else:
        assert any("own-ring" in name for name in _coloured(axes))
        assert "; own-ring: your own" in figures[0].get_suptitle()
