"""The bound of a placement is below its composed time, and becomes it as all requests are told."""

import random

import pytest

from emu.errors import InputError
from emu.model.read import find_model
from emu.study.training.estimate import EstimateRequest
from emu.study.training.least import least_s
from tests.study.planning.spaces import H100, asked, candidates, step_s, topology_of

SPACES = [
    (asked("llama-tiny", 8, 8, 128), "servers:nodes=2,gpus=4"),
    (asked("gpt-moe-tiny", 8, 8, 128), "ub-mesh:board"),
    (asked("llama-tiny", 8, 8, 128, "pytorch"), "fat-tree:radix=4"),
]


def least(request, each, line, enough_s=float("inf")):
    step = EstimateRequest(find_model(request.model), each.plan, request.stack, request.algorithms, each.axes)
    return least_s(step, topology_of(line), H100, enough_s)


@pytest.mark.parametrize(("request_", "line"), SPACES)
def test_no_composed_step_takes_less_than_any_bound_of_its_placement(request_, line):
    shares = []
    for each in random.Random(3).sample(candidates(request_), 6):
        try:
            taken_s = step_s(request_, each, line, composed=True)
        except InputError:  # no such step can be composed
            continue
        first, whole = (least(request_, each, line, enough_s) / taken_s for enough_s in (0.0, float("inf")))
        assert first <= whole <= 1
        shares.append(whole)
    assert max(shares) > 0.99


def test_nothing_more_is_timed_than_what_shows_that_a_placement_loses():
    request, line = SPACES[0]
    each = next(each for each in candidates(request) if each.plan.tp == 2 and each.plan.dp == 4 and each.plan.sp)
    assert least(request, each, line, 0.0) < least(request, each, line)
