"""Answers in a notebook and in a table of pandas: short texts of rows, few columns first, a table for a sweep."""

import csv
import io
import re

import pytest

import emu
from emu.units import format_time
from launch.show.chart.step_chart import sweep_figure

SWITCH = "switch:n=8,bandwidth=50GB/s,latency=500ns"
TINY = {"model": "llama-tiny", "plan": "tp=2,dp=2,sharding=fsdp", "topology": SWITCH, "global_batch": 16, "seq": 64}
LARGE = {"model": "llama3-8b", "plan": "tp=8,sp,microbatch=1", "topology": "ub-mesh:board", "global_batch": 1, "seq": 8192}


@pytest.fixture(scope="module")
def sweep():
    return emu.estimate(**TINY, sweep=["global_batch=2,8,16", "plan.tp=2,16"])


def test_a_row_is_one_short_line():
    step = emu.estimate(**TINY)[0]
    assert repr(step) == f"<StepEstimate {SWITCH}: {format_time(step.step_time_s)}, MFU {step.mfu:.3f}>"


def test_a_plan_is_one_short_line(tmp_path):
    [row] = emu.plan(model="llama-tiny", npus=2, topology=SWITCH, global_batch=2, seq=64, plan="tp=2", top=1, cache=tmp_path)
    assert repr(row).startswith("<PlanRow tp=2")
    assert len(repr(row)) < 200


def test_a_single_row_has_its_means_as_the_json_has_them():
    answer = emu.estimate(**TINY)
    assert answer.mean_over_ranks is not None
    assert answer.to_dict()["mean_over_ranks"]["compute_s"] == answer.mean_over_ranks.compute_s


def test_a_table_of_pandas_begins_with_what_is_mostly_asked_for_and_has_the_expected_range():
    answer = emu.estimate(**LARGE)
    table = answer.to_pandas()
    assert list(table)[:3] == ["topology", "model", "plan"]
    at = list(table).index("step_time_s")
    assert list(table)[at + 1 : at + 5] == ["expected_least_s", "expected_most_s", "tokens_per_s", "mfu"]
    assert (table["expected_least_s"][0], table["expected_most_s"][0]) == answer[0].expected_s
    assert table["expected_least_s"][0] < answer.step_time_s < table["expected_most_s"][0]
    assert emu.estimate(**TINY).to_pandas()["expected_least_s"].isna().all()  # no published run is of so small a model


def test_a_sweep_prints_a_table_and_saves_csv(sweep, tmp_path):
    head, *lines = repr(sweep).splitlines()
    assert re.split(r"\s{2,}", head) == ["global-batch", "plan.tp", "topology", "step", "MFU", "tokens/s", "memory", "refused"]
    assert len(lines) == len(sweep) == 6
    for line, row in zip(lines, sweep, strict=True):
        assert (format_time(row.step.step_time_s) if row.step else row.refused) in line
    sweep.save(tmp_path / "a.csv")
    rows = list(csv.DictReader(io.StringIO((tmp_path / "a.csv").read_text())))
    assert [float(row["step_time_s"]) for row in rows if not row["refused"]] == [r.step.step_time_s for r in sweep if r.step]


def test_swept_numbers_are_numbers_of_one_column(sweep):
    table = sweep.to_pandas()
    assert [name for name in table if "batch" in name] == ["global_batch"]
    assert table["global_batch"].tolist() == [2, 2, 8, 8, 16, 16]
    assert table["plan.tp"].tolist() == [2, 16] * 3


def test_the_fastest_point_of_a_sweep_is_that_of_the_shortest_step(sweep):
    assert sweep.fastest.step.step_time_s == min(row.step.step_time_s for row in sweep if row.step)
    assert sweep.fastest.point == {"global-batch": "2", "plan.tp": "2"}


def test_the_page_of_a_sweep_says_of_what_it_is(sweep):
    page = sweep.page()
    assert page.title == "A step of llama-tiny, tp=2,dp=2,sharding=fsdp: a sweep of global-batch and plan.tp"
    assert page.sections[-1].blocks[0].text == repr(sweep)


def test_the_times_of_a_sweep_are_drawn_from_zero(sweep):
    near = [row for row in sweep if row.step and row.point["global-batch"] != "2"]
    (axes,) = sweep_figure(near, "A step").axes
    assert (axes.get_ylabel(), axes.get_yscale(), axes.get_ylim()[0]) == ("step time", "linear", 0)
    assert axes.get_ylim()[1] >= max(row.step.step_time_s for row in near)


def test_an_answer_in_python_names_arguments_of_python(tmp_path):
    bench = emu.bench("all_reduce", topology=SWITCH, size="1MiB", timing_only=True)
    assert "(add bounds='all')" in repr(bench)
    assert "--" not in repr(bench)
    with pytest.raises(emu.RunError, match=r"^save: cannot write"):
        emu.estimate(**TINY).save_timeline(tmp_path / "none" / "step.json")


def test_no_choice_is_told_where_the_user_has_named_every_algorithm():
    named = emu.estimate(**TINY, algorithm=["all_reduce=ring", "all_gather=ring", "reduce_scatter=ring"])
    assert "\n  auto " not in repr(named)
    assert "\n  auto " in repr(emu.estimate(**TINY, algorithm="all_gather=ring"))
    assert "all_gather" not in " ".join(emu.estimate(**TINY, algorithm="all_gather=ring").auto.free)
