"""Sections of the page of a step that only a training run, a profile or a long critical path has; figures are known by hand."""

from dataclasses import replace
from types import SimpleNamespace

import pytest
from matplotlib.colors import to_hex, to_rgb

from emu.trace.formats.measured_parts import MeasuredParts
from emu.trace.report.critical_path import PathPart
from emu.trace.report.mean_parts import MeanParts
from launch.show.html import step_page
from launch.show.html.step_page import breakdown, figures_of, measured_parts_table, settings_of, steps_table
from launch.show.step_parts import BUBBLE, COMPUTE, IDLE, colours_of
from tests.launch.show.text.test_step_report import STEP
from tests.launch.show.text.test_train_report import RUN


def texts(table):
    """The heads of a table, and the text of each cell of each row."""
    return [column.head for column in table.columns], [[column.text(row) for column in table.columns] for row in table.rows]


def test_each_step_of_a_run_has_its_time_and_of_a_training_its_losses():
    heads, rows = texts(steps_table(replace(STEP, step_times_s=(7e-3, 2e-3, 3e-3))))
    assert (heads, rows) == (["step", "virtual time"], [["1", "7 ms"], ["2", "2 ms"], ["3", "3 ms"]])
    heads, rows = texts(steps_table(RUN))
    assert heads == ["step", "virtual time", "loss", "loss of one process"]
    assert rows == [["1", "7 ms", "5.500000", "5.500000"], ["2", "2 ms", "5.250000", "5.300000"]]


def test_a_training_is_told_with_its_model_and_plan_and_with_its_loss():
    assert "model tiny; plan tp=2,dp=4" in settings_of(RUN)
    assert not any(line.startswith("model") for line in settings_of(STEP))
    assert {"loss", "gradient_error"} <= {figure.name for figure in figures_of(RUN)}
    assert not {"loss", "gradient_error"} & {figure.name for figure in figures_of(STEP)}


def test_measured_parts_stand_beside_virtual_ones_of_all_axes_that_either_has():
    measured = MeasuredParts(compute_s=4e-3, exposed_comm_by_axis_s={"tp": 2e-3, "": 1e-3}, idle_s=3e-3)
    step = SimpleNamespace(
        measured_parts=measured, measured_step_s=1e-2, step_time_s=8e-3, compute_s=5e-3, idle_s=5e-4,
        exposed_comm_by_axis_s={"tp": 1.5e-3, "dp": 1e-3},
    )  # fmt: skip
    heads, rows = texts(measured_parts_table(step))
    assert heads == ["part", "measured", "virtual"]
    assert rows == [
        ["step", "10 ms", "8 ms"], ["computation", "4 ms", "5 ms"], ["other exposed", "1 ms", "0 s"],
        ["dp exposed", "0 s", "1 ms"], ["tp exposed", "2 ms", "1.5 ms"], ["idle", "3 ms", "500 us"],
    ]  # fmt: skip
    assert step_page._collectives(SimpleNamespace(collectives=(), measured_parts=measured)) == ()
    both = step_page._collectives(SimpleNamespace(collectives=(1, 2), **vars(step)))
    assert [len(block.rows) for block in both] == [6, 2]
    [alone] = step_page._collectives(SimpleNamespace(collectives=(1, 2), measured_parts=None))
    assert alone.rows == (1, 2)


def test_parts_of_the_critical_path_have_the_colour_of_their_axis_the_later_of_one_paler():
    """An activity without an axis that is no computation is grey."""
    kinds = [("all_reduce", "tp"), ("host", None), ("computation", None), ("all_gather", "tp"), ("send", "pp"), ("copy", None)]
    path = tuple(PathPart(what, axis, None, None, 6.0 - i) for i, (what, axis) in enumerate(kinds))
    [(_, pieces, _)] = step_page._path(replace(STEP, critical_path=path, step_time_s=21.0)).bars
    axes = colours_of(["tp", "pp"])
    grey = pieces[1].colour
    assert len({grey, COMPUTE.lower(), *(colour.lower() for colour in axes.values())}) == 4
    paler = {colour: to_hex([1 - 0.72 * (1 - part) for part in to_rgb(colour)]) for colour in (axes["tp"], grey)}
    own = [axes["tp"].lower(), grey, COMPUTE.lower(), paler[axes["tp"]], axes["pp"].lower(), paler[grey]]
    assert [piece.colour for piece in pieces] == own
    assert [piece.share for piece in pieces] == pytest.approx([part.time_s / 21 for part in path])
    assert [piece.told for piece in pieces][:2] == ["tp all_reduce 6 s, 28.6 %", "host 5 s, 23.8 %"]


def test_a_step_of_no_time_has_parts_of_no_share():
    path = (PathPart("computation", None, None, None, 0.0),)
    [(_, [piece], _)] = step_page._path(replace(STEP, critical_path=path, step_time_s=0.0)).bars
    assert (piece.share, piece.told) == (0.0, "computation 0 s, 0.0 %")


def parts_of(compute_s, tp_s, bubble_s, straggling_s):
    return MeanParts(
        compute_s=compute_s, optimizer_s=None, exposed_comm_s=tp_s, exposed_comm_by_axis_s={"tp": tp_s},
        idle_s=bubble_s + straggling_s, bubble_s=bubble_s,
    )  # fmt: skip


def test_bars_are_as_long_as_their_steps_and_only_one_alone_has_times_in_its_legend():
    steps = parts_of(4.0, 1.0, 0.5, 2.5), parts_of(10.0, 2.0, 3.0, 1.0)
    block = breakdown(steps, ["a", "b"], ["first", "second"])
    assert [(name, told) for name, _, told in block.bars] == [("a", "first"), ("b", "second")]
    shares = [[piece.share for piece in pieces] for _, pieces, _ in block.bars]
    assert shares[0] == pytest.approx([4 / 16, 1 / 16, 0.5 / 16, 2.5 / 16])
    assert shares[1] == pytest.approx([10 / 16, 2 / 16, 3 / 16, 1 / 16])
    assert [piece.told for piece in block.bars[0][1]] == [
        "compute 4 s, 50.0 %", "tp exposed 1 s, 12.5 %", "bubble 500 ms, 6.2 %", "straggling 2.5 s, 31.2 %",
    ]  # fmt: skip
    colours = [COMPUTE, colours_of(["tp"])["tp"], BUBBLE, IDLE]
    names = ["compute", "tp exposed", "bubble", "straggling"]
    assert [(key.name, key.colour, key.told) for key in block.keys] == [(*key, "") for key in zip(names, colours, strict=True)]
    alone = breakdown(steps[:1], [""], [""])
    assert [key.told for key in alone.keys] == ["4 s, 50.0 %", "1 s, 12.5 %", "500 ms, 6.2 %", "2.5 s, 31.2 %"]
    assert sum(piece.share for piece in alone.bars[0][1]) == pytest.approx(1)
