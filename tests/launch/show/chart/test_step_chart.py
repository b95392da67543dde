"""The picture of a step on several topologies: a bar each, whose parts add up to the step."""

from dataclasses import replace

import pytest

from emu.model.plan.plan_text import parse_plan
from emu.study.training.estimate import EstimateRequest, estimate_and_times
from emu.study.training.step.step import with_means
from emu.topology.catalogue import build_topology
from launch.data.devices import find_device
from launch.show.chart.step_chart import parts_figure

H100 = find_device("h100", "bfloat16")
REQUEST = EstimateRequest("llama-tiny", parse_plan("tp=2,dp=2,pp=2", global_batch=8, seq=64), algorithms=("auto",))


@pytest.fixture(scope="module")
def results():
    found = with_means(*estimate_and_times(REQUEST, build_topology("ub-mesh:board"), H100))
    means = replace(
        found.mean_over_ranks, exposed_comm_s=1e-5, exposed_comm_by_axis_s={"dp_shard": 1e-5}, idle_s=0.0, bubble_s=0.0
    )
    return [found, replace(found, topology="other", mean_over_ranks=means)]


def test_a_bar_has_a_part_for_computation_each_axis_and_what_is_left(results):
    axes = parts_figure(results).axes[0]
    lengths = {of.get_label(): [bar.get_width() for bar in of] for of in axes.containers}
    assert {"compute", "tp exposed", "dp exposed", "dp_shard exposed"} <= set(lengths)
    assert sum(of[0] for of in lengths.values()) == pytest.approx(results[0].step_time_s, rel=1e-3)  # less is left out
    assert lengths["dp_shard exposed"] == pytest.approx([0.0, 1e-5])
    assert lengths["compute"] == [pytest.approx(results[0].mean_over_ranks.compute_s)] * 2
    colours = [of.patches[0].get_facecolor() for of in axes.containers]
    assert len(set(colours)) == len(colours)


def test_the_first_topology_is_on_top_and_each_tells_its_time(results):
    axes = parts_figure(results).axes[0]
    height_of = {label.get_text(): at for label, at in zip(axes.get_yticklabels(), axes.get_yticks(), strict=True)}
    assert height_of["ub-mesh:board"] > height_of["other"]
    assert not axes.yaxis_inverted()
    dp_shard = next(of for of in axes.containers if of.get_label() == "dp_shard exposed")
    assert [bar.get_y() + bar.get_height() / 2 for bar in dp_shard] == [height_of["ub-mesh:board"], height_of["other"]]
    assert len([text for text in axes.texts if "MFU" in text.get_text()]) == 2


def test_the_parts_of_a_single_step_are_those_of_the_rank_that_ended_last(results):
    first = replace(results[0], compute_s=0.5 * results[0].compute_s)
    (compute,) = [of for of in parts_figure([first]).axes[0].containers if of.get_label() == "compute"]
    assert compute[0].get_width() == first.compute_s
