"""The chart of a pipeline against the times of the step: boxes, ticks, and which rank stands for a stage."""

import re
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from emu.model.plan.plan_text import parse_plan
from emu.study.training.estimate import EstimateRequest, estimate_and_times
from emu.topology.catalogue import build_topology
from emu.trace.report.report import RankTimes, rank_times
from emu.trace.report.request_times import Arrivals
from emu.units import TICKS_PER_S, format_time
from launch.data.devices import find_device
from launch.show.html import pipeline as pipeline_chart
from launch.show.html.pipeline import pipeline, rows_of
from launch.show.lanes import Lane, RepresentativeRank, lanes_of, representatives
from launch.show.step_parts import COMPUTE

WIDE, HIGH = 2000, 24  # of a row
NUMBER = r"(-?[\d.]+)"
BOX = re.compile(rf"M{NUMBER} {NUMBER}h{NUMBER}v{NUMBER}h-{NUMBER}z")


@pytest.fixture(scope="module")
def timed():
    plan = parse_plan("tp=2,pp=2,cp=2,microbatch=1", global_batch=4, seq=1024)
    return estimate_and_times(
        EstimateRequest("llama-tiny", plan), build_topology("ub-mesh:board"), find_device("h100", "bfloat16")
    )[1]


def seen_from(timed, began, ended, rank=None):
    """The step as if only a window of it, in shares of its time, had been reported, of a rank."""
    report = timed.report
    low, whole = report.began_fs, report.ended_fs - report.began_fs
    window = {"began_fs": low + int(began * whole), "ended_fs": low + int(ended * whole)}
    return replace(timed, report=replace(report, rank=report.rank if rank is None else rank, **window))


def drawn(path):
    """[boxes, 4] left, top, width and height of each box of a path."""
    found = np.array(BOX.findall(path), float)
    assert BOX.sub("", path) == ""
    assert (found[:, 2] == found[:, 4]).all()
    return found[:, :4]


@pytest.mark.parametrize(("began", "ended"), [(0, 1), (0.3, 0.7), (0.5, 0.52)])
def test_boxes_of_a_row_are_the_times_at_which_its_rank_computes_and_talks(timed, began, ended):
    shown = seen_from(timed, began, ended)
    total = shown.report.ended_fs - shown.report.began_fs
    ranks = rows_of(shown)
    divided = rank_times(shown.trace, shown.replayed, shown.timeline, shown.report, [each.row for each in ranks])
    block, table = pipeline(shown)
    axes = {part.colour: place for place, part in enumerate(block.keys[1:-1])}
    if (began, ended) == (0, 1):
        assert {part.name for part in block.keys[1:-1]} >= {f"communication, {axis}" for axis in ("tp", "pp", "cp")}
    for (_, _, stretches), parts in zip(block.data.rows, divided, strict=True):
        for colour, path in stretches:
            boxes = drawn(path)
            left, top, wide, high = boxes.T
            assert left.min() >= 0
            assert (left + wide).max() <= WIDE + 0.5
            assert wide.min() >= 0.5  # what is shorter could not be seen
            thin = HIGH / 2 / len(axes)
            at, tall = (0, HIGH / 2) if colour == COMPUTE else (HIGH / 2 + axes[colour] * thin, thin)
            assert (top, high) == (pytest.approx(at, rel=5e-3), pytest.approx(tall, rel=5e-3))
            if colour == COMPUTE:
                assert wide.sum() == pytest.approx(WIDE * parts.compute_fs / total, abs=0.6 * len(boxes))
    talked = {colour for *_, stretches in block.data.rows for colour, _ in stretches} - {COMPUTE}
    assert talked == set(axes)  # none has a key that is not drawn
    told = {column.head: [column.key(row) for row in table.rows] for column in table.columns}
    assert all(any(keys) for head, keys in told.items() if head.endswith("exposed"))
    assert told["computation"] == [parts.compute_fs / TICKS_PER_S for parts in divided]


@pytest.mark.parametrize("share", [1, 0.9, 0.71, 0.5, 0.33, 0.21, 0.13, 0.0123])
def test_ticks_are_round_times_as_far_as_the_step_goes(timed, share):
    """Three to six of them after the first."""
    shown = seen_from(timed, 0, share)
    total_s = (shown.report.ended_fs - shown.report.began_fs) / TICKS_PER_S
    ticks = pipeline(shown)[0].data.ticks
    places = [place for place, _ in ticks]
    assert places[0] == 0
    assert np.diff(places) == pytest.approx(places[1])
    assert 4 <= len(ticks) <= 7
    assert places[-1] <= 1 + 1e-9 < places[-1] + places[1]
    assert f"{places[1] * total_s:e}"[:3] in ("1.0", "2.0", "2.5", "5.0")
    assert [text for _, text in ticks] == [format_time(place * total_s) for place in places]


def test_the_rank_of_the_figures_stands_for_its_stage_and_stages_come_in_their_order(timed):
    """Ranks of a stage have other roles by their place in the ring of cp, of which the figures may be of any."""
    for told in representatives(timed):
        rows = rows_of(seen_from(timed, 0, 1, told.row))
        assert len(rows) < len(representatives(timed))
        assert [each.stage for each in rows] == [0, 1]
        assert rows[told.stage].row == told.row
        block, table = pipeline(seen_from(timed, 0, 1, told.row))
        assert [name for name, *_ in block.data.rows] == [each.name for each in rows]
        assert [each.row for each, _ in table.rows] == [each.row for each in rows]


def test_what_is_too_near_to_be_told_apart_is_one_box(timed):
    """A stream computes one kernel after another, drawn within a time twenty times as long.

    There are as many boxes as gaps of more than a fifth of a unit, and one.
    """
    shown = seen_from(timed, 0, 20)
    began, ended = shown.report.began_fs, shown.report.ended_fs
    coming = Arrivals.of(shown.replayed, shown.timeline)
    for each, (_, _, stretches) in zip(rows_of(shown), pipeline(shown)[0].data.rows, strict=True):
        lane = next(lanes_of(shown.trace, shown.replayed, shown.timeline, coming, each.row))
        gaps = (lane.start[1:] - lane.end[:-1]) / (ended - began) * WIDE
        boxes = drawn(dict(stretches)[COMPUTE])
        assert len(boxes) == 1 + (gaps > 0.2).sum() < 1 + (gaps > 0).sum()


@pytest.mark.parametrize("staged", [True, False])
def test_at_most_64_rows_are_drawn_the_first_of_each_stage_or_of_all_roles(monkeypatch, staged):
    """Stages are found from the last to the first, each twice; the rank of the figures stands for its own."""
    found = [RepresentativeRank(i, i, (199 - i) // 2 if staged else None, 4) for i in range(200)]
    monkeypatch.setattr(pipeline_chart, "representatives", lambda _: found)
    rows = rows_of(SimpleNamespace(report=SimpleNamespace(rank=193)))
    of_stages = [193 if stage == 3 else 198 - 2 * stage for stage in range(64)]
    assert [each.row for each in rows] == (of_stages if staged else [*range(64)])


def test_a_step_of_no_ticks_has_no_marks_of_time():
    assert pipeline_chart._ticks(0) == []


def test_a_row_of_one_rank_has_its_streams_of_computation_in_one_path_and_its_shares_in_words():
    """Two streams overlap for 100 of 1000 ticks; the axis dp, which talks on other ranks alone, leaves its room."""

    def lane(stream, *spans):
        return Lane("rank 0", stream, ("",) * len(spans), *np.array(spans, np.int64).T)

    lanes = [lane("compute", (0, 200)), lane("compute on stream 1", (100, 300)), lane("pp", (300, 400), (600, 800))]
    parts = RankTimes(300, {"pp": 250, "": 50}, 0, {}, 0)
    name, told, stretches = pipeline_chart._row("rank 0", lanes, parts, {"tp": "a", "dp": "b", "pp": "c"}, 1000)
    assert (name, told) == ("rank 0", "rank 0 computes 30.0 %, communicates 30.0 %, is idle 40.0 % of the step")
    assert [colour for colour, _ in stretches] == [COMPUTE, "c"]
    boxes = [drawn(path).tolist() for _, path in stretches]
    assert boxes == [[[0, 0, 600, 12]], [[600, 20, 200, 4], [1200, 20, 400, 4]]]


@pytest.mark.parametrize("stage", [None, 2])
def test_the_table_of_ranks_has_a_bubble_where_they_have_a_stage_and_an_axis_that_is_exposed_somewhere(stage):
    parts = RankTimes(3, {"tp": 0, "": 2}, 1, {}, 0), RankTimes(4, {"dp": 5, "tp": 0}, 2, {}, 0)
    ranks = [RepresentativeRank(row, 10 + row, stage, 6 + row) for row in range(2)]
    table = pipeline_chart._table([*zip(ranks, parts, strict=True)], 20)
    of_stage = [["stage"], ["bubble"]] if stage else [[], []]
    heads = [*of_stage[0], "rank", "stands for", "computation", "dp exposed", "other exposed", *of_stage[1], "idle"]
    assert [column.head for column in table.columns] == heads
    keys = {column.head: [column.key(row) for row in table.rows] for column in table.columns}
    ticks = {"computation": [3, 4], "dp exposed": [0, 5], "other exposed": [2, 0], "bubble": [1, 2], "idle": [15, 11]}
    assert {head: keys[head] for head in keys if head in ticks} == {
        head: [each / TICKS_PER_S for each in of] for head, of in ticks.items() if head in heads
    }
    assert (keys["rank"], keys["stands for"], keys.get("stage")) == ([10, 11], [6, 7], [2, 2] if stage else None)
