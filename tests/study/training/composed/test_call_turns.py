"""Optical switches that turn between the calls of a composed step, against the graph of all ranks."""

import numpy as np
import pytest

from emu.model.plan.plan_text import parse_plan
from emu.model.stack.stack import Stack
from emu.study.training.composed.call_turns import call_turns
from emu.study.training.composed.stretch_choice import NEGLIGIBLE
from emu.study.training.estimate import EstimateRequest, estimate
from emu.study.training.step_choice.algorithm_search import ALWAYS_COMPOSED
from emu.topology.catalogue import build_topology
from emu.trace.replay.switch_turns import SwitchStates
from launch.data.devices import find_device

H100 = find_device("h100", "bfloat16")
LINES, BINARY = "infinitehbd:lines:nodes=8,line=4", "infinitehbd:binary:nodes=16"
TURN_S = 70e-6


def states(*of_switches):
    return SwitchStates(*np.array(of_switches, np.int64).reshape(-1, 3).T)


def pairs(told):
    """Return the calls before each turn, and those after it."""
    before, after = told.before, told.after
    return [(set(before[1][before[0] == n].tolist()), set(after[0][after[1] == n].tolist())) for n in range(told.total)]


def test_a_turn_comes_between_all_calls_that_need_one_state_and_all_that_need_the_next():
    asked = [states((0, 0, 0)), states((0, 1, 1), (5, 2, 2)), states((5, 2, 2)), states()]
    request, began = np.array([1, 0, 3, 0, 1, 2]), np.array([9, 0, 1, 2, 8, 30])
    told = call_turns(7, asked, request, began, began + 1)
    assert told.turn_fs == 7
    assert pairs(told) == [({1, 3}, {0, 4})]  # switch 5 keeps its state, and call 2 needs none


def test_a_call_that_leaves_a_switch_in_another_state_than_it_found_it_needs_a_turn_before_it_comes_again():
    told = call_turns(1, [states((0, 0, 1))], np.array([0, 0, 0]), np.array([20, 0, 10]), np.array([30, 10, 20]))
    assert sorted(map(str, pairs(told))) == sorted(map(str, [({1}, {2}), ({2}, {0})]))


def test_of_calls_that_begin_at_once_the_one_that_ends_first_is_served_first():
    told = call_turns(1, [states((0, 0, 0)), states((0, 1, 1))], np.array([0, 1]), np.array([5, 5]), np.array([6, 5]))
    assert pairs(told) == [({1}, {0})]


def both(line, plan):
    request = EstimateRequest("llama-tiny", parse_plan(plan, global_batch=16, seq=64), Stack(), ("auto",))
    topology = build_topology(line)
    return estimate(request, topology, H100), estimate(request, topology, H100, effort=ALWAYS_COMPOSED)


@pytest.mark.parametrize(
    ("line", "plan", "turns"), [(LINES, "tp=4,dp=4", True), (LINES, "tp=4,dp=4,pp=2", True), (BINARY, "tp=2,dp=8", False)]
)
def test_a_composed_step_counts_the_turns_that_the_whole_graph_has(line, plan, turns):
    """Some steps have turns between requests, others only within them, group after group."""
    whole, composed = both(line, plan)
    assert composed.step_time_s == pytest.approx(whole.step_time_s, rel=1e-9)
    still_s = composed.between_s[0] / (1 - NEGLIGIBLE)  # without turns between requests
    assert (composed.step_time_s - still_s > 0.9 * TURN_S) == turns


def test_where_the_order_of_turns_is_unsure_the_range_holds_the_whole_graph():
    whole, composed = both(LINES, "tp=2,dp=4,pp=4")
    assert composed.between_s[0] < whole.step_time_s < composed.between_s[1]
    assert any("take turns on optical switches" in each for each in composed.assumptions)
