"""Searches for plans whose requests are served by schedules that are made for them: for all groups of an axis at once."""

from dataclasses import replace

import numpy as np
import pytest

from emu.model.generate.item import Ask
from emu.study.planning.request_times.placed_groups import Groups
from emu.study.planning.request_times.rates import Rates
from emu.study.planning.request_times.request_floor import BoundedRequest, least_request_time
from tests.study.planning.spaces import asked, enumerated, found, of, step_s, tightest_s, times, topology_of

# The links from each leaf to the spine are shared, and so slow that a step is hardly more than its messages.
TAPERED = "fat-tree:pgft:down=2x2,up=1x1,parallel=1x1,bandwidth=1GB/s"


def searched(word: str):
    """A search of the plans with dp and tp of a small batch on four NPUs."""
    return replace(asked("llama-tiny", 4, 2, 32, top=1), algorithms=(word,), given="pp=1,cp=1,recompute=none")


def steps_of(request):
    """The composed steps of all plans and placements of such a search, by other code."""
    every = [each for each in enumerated(request) if each.plan.pp == each.plan.cp == 1 and each.plan.recompute == "none"]
    return {each: step_s(request, each, TAPERED, composed=True) for each in every}


def test_a_search_finds_the_plan_whose_step_is_the_shortest_with_made_schedules():
    request = searched("synthesized")
    [best], every = found(request, TAPERED).rows, steps_of(request)
    quickest = min(every, key=lambda each: (every[each], each.tie_key))
    assert (best.plan, best.axes) == (quickest.tie_key[1], ",".join(quickest.axes))
    assert best.step_time_s == step_s(request, quickest, TAPERED)
    assert "synthesized-" in str(best.algorithms)


def test_no_step_with_made_schedules_takes_less_than_its_bounds():
    request = searched("synthesized")
    placed, every = of(request, TAPERED), steps_of(request)
    shares = [tightest_s(placed, each, times(request, TAPERED)) / taken_s for each, taken_s in every.items()]
    assert len(shares) > 3
    assert 0.5 < max(shares) <= 1


@pytest.mark.parametrize(("word", "bounded"), [("synthesized", True), ("auto+synthesized", True), ("auto", False)])
def test_where_a_schedule_may_be_made_its_bytes_alone_bound_a_request(word, bounded):
    topology = topology_of(TAPERED)
    ranks, rates = np.array([[0, 2], [1, 3]]), Rates(2e9, 2e9, 0.0)
    request = BoundedRequest(Ask("dp", "all_reduce", 2**20, "float32"), Groups(ranks, ranks, 1, rates, "both"))
    least = least_request_time(request, topology, (word,), 0)
    floor_s = rates.least_s("all_reduce", 2**20, 4, 2)
    assert (least.delivered_s == floor_s) is bounded
    assert least.delivered_s >= floor_s
