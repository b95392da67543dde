"""Parts as means over all ranks: against a walk over each rank, and where a rank stands for many."""

import numpy as np
import pytest

from emu.fabric.run import run_graph
from emu.trace.report.mean_parts import mean_parts
from emu.trace.report.report import report
from emu.trace.trace import Kind
from emu.units import TICKS_PER_S
from tests.study.training.composed.composed_and_whole import both_ways
from tests.trace.laid import replayed, trace_of
from tests.trace.report.test_report import GROUPS, MESH, drawn, groups_of
from tests.trace.walked import walked

ONE_EACH = np.ones(4, np.int64)


def means(trace, laid, standing):
    timeline = run_graph(laid.graph)
    told = report(trace, laid, timeline)
    return mean_parts(trace, laid, timeline, told, standing), told, timeline


@pytest.mark.parametrize("seed", range(0, 60, 3))
def test_the_mean_of_a_part_is_that_of_walks_over_each_rank(words, seed):
    trace, stages = drawn(words, seed), {0: 0, 3: 1} if groups_of(seed) == GROUPS else {}
    laid = replayed(trace, MESH)
    found, told, timeline = means(trace, laid, ONE_EACH)
    walks = [walked(trace, laid, timeline, told.step, stages, rank) for rank in range(4)]

    def mean_s(part):
        return pytest.approx(sum(of.get(part, 0) for _, _, of, _, _ in walks) / 4 / TICKS_PER_S, rel=1e-12)

    assert (found.compute_s, found.idle_s) == (mean_s("compute"), mean_s("idle"))
    axes = {axis for _, _, of, _, _ in walks for axis in of} - {"compute", "idle"}
    assert found.exposed_comm_by_axis_s == {axis: mean_s(axis) for axis in axes}
    assert found.exposed_comm_s == pytest.approx(sum(found.exposed_comm_by_axis_s.values()), rel=1e-12, abs=1e-18)
    waits = sum(waited.get(None, 0) for *_, waited in walks)
    assert found.bubble_s == pytest.approx(waits / 4 / TICKS_PER_S, rel=1e-12)
    assert found.step_time_s == pytest.approx(told.step_time_s, rel=1e-12)
    assert found.optimizer_s is None


def test_the_optimizer_is_the_mean_of_those_that_have_one(words):
    own = words.events(words.compute(2), {**words.mark(), "name": "optimizer"}, words.compute(4))
    assert own.kind[1] == Kind.MARK
    trace = trace_of(own, words.events(words.compute(6)), role_of_rank=(0, 1))
    found, told, _ = means(trace, replayed(trace), ONE_EACH[:2])
    assert (found.compute_s, found.optimizer_s, told.step_time_s) == (6e-3, 2e-3, 6e-3)


def test_a_rank_counts_as_often_as_it_stands_for_others(words):
    trace = trace_of(words.events(words.compute(2)), words.events(words.compute(6)), role_of_rank=(0, 1))
    found, _, _ = means(trace, replayed(trace), np.array([3, 1]))
    assert (found.compute_s, found.idle_s) == (pytest.approx(3e-3), pytest.approx(3e-3))


def test_a_composed_step_has_the_means_of_the_whole_graph():
    few, whole = both_ways("ub-mesh:rack", "tp=2,dp=2,pp=4", "llama3-8b", global_batch=8, seq=256)
    one, other = few.mean_over_ranks(), whole.mean_over_ranks()
    assert one.compute_s == pytest.approx(other.compute_s, rel=1e-6)
    assert one.step_time_s == pytest.approx(few.report.step_time_s, rel=1e-12)
    near = pytest.approx(other.bubble_s, abs=0.02 * whole.report.step_time_s)
    assert (one.bubble_s, one.bubble_s > 0) == (near, True)
    last = few.step()
    assert last.compute_s != pytest.approx(one.compute_s, rel=1e-3)
