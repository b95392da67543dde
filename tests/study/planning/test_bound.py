"""A bound is below every estimate, and near enough to it to be of use."""

import random

import pytest

from emu.errors import InputError
from emu.model.peak import memory_by_part
from emu.model.read import find_model
from emu.model.spell import parse_plan
from emu.study.planning.bound import Bounds, Rates
from emu.study.planning.floor import Floors
from emu.study.planning.row import Candidate
from emu.study.training.calls import device_under, topology_under
from tests.study.planning.spaces import H100, asked, candidates, step_s, topology_of

SPACES = [
    (asked("llama-tiny", 8, 8, 128), "ub-mesh:board"),
    (asked("llama-tiny", 8, 8, 128, "pytorch"), "servers:nodes=2,gpus=4"),
    (asked("gpt-moe-tiny", 8, 8, 128), "fat-tree:radix=4"),
]
LARGE = [
    (asked("llama-tiny", 16, 32, 128, "pytorch"), "ub-mesh:rack"),
    (asked("deepseek-tiny", 16, 32, 128), "servers:nodes=2"),
    (asked("gpt-moe-tiny", 16, 16, 128, "pytorch"), "ub-mesh:rack"),
    (asked("gpt-tiny", 16, 16, 128), "torus:dims=4x4,bandwidth=50GB/s,latency=500ns"),
]


def of(request, line):
    topology, model = topology_of(line), find_model(request.model)
    return Bounds(
        model,
        request.stack,
        device_under(request.stack, H100).over(request.npus),
        Rates.of(topology_under(request.stack, topology)),
    )


def shares(request, line, n, *, composed):
    """Bound by time, of plans at random."""
    bounds, taken = of(request, line), []
    for each in random.Random(7).sample(candidates(request), n):
        try:
            taken.append(bounds.seconds(each.plan) / step_s(request, each, line, composed=composed))
        except InputError:  # no such step can be generated
            continue
    return taken


@pytest.mark.parametrize(("request_", "line"), SPACES)
def test_no_step_takes_less_than_its_bound(request_, line):
    found = shares(request_, line, 5, composed=True) + shares(request_, line, 1, composed=False)
    assert len(found) > 4
    assert max(found) <= 1
    assert max(found) > 0.3


def test_gradients_that_are_sharded_may_go_beside_what_is_computed():
    request, line = asked("llama-tiny", 8, 8, 128, "pytorch"), "servers:nodes=2,gpus=4"
    words = "tp=2,cp=2,pp=2,sp,sharding=fsdp,recompute=selective,cp_comm=all_gather,microbatch=1"
    plan = parse_plan(words, global_batch=8, seq=128)
    taken_s = step_s(request, Candidate(0, plan, ("tp", "cp", "pp")), line, composed=True)
    assert of(request, line).seconds(plan) <= taken_s


@pytest.mark.slow
@pytest.mark.parametrize(("request_", "line"), SPACES + LARGE)
def test_no_step_of_hundreds_takes_less_than_its_bound(request_, line):
    found = shares(request_, line, 100, composed=True) + shares(request_, line, 30, composed=False)
    assert len(found) > 100
    assert max(found) <= 1


@pytest.mark.parametrize(("request_", "line"), SPACES)
def test_no_rank_holds_less_than_its_floor(request_, line):
    model, floors = find_model(request_.model), Floors(find_model(request_.model), request_.stack)
    plans = random.Random(7).sample([each.plan for each in candidates(request_)], 60)
    found = [floors.bytes(plan) / sum(memory_by_part(model, plan, request_.stack).values()) for plan in plans]
    assert max(found) <= 1
    assert max(found) > 0.5


def test_an_operation_takes_a_rank_what_it_must_send_or_receive():
    rates = Rates(100.0, 50.0, 1.0)
    assert rates.least_s("all_gather", 16, 2, 4) == 1.0 + 24 / 100
    assert rates.least_s("all_reduce", 16, 2, 4) == 1.0 + 32 / 100
    assert rates.least_s("all_reduce", 16, 2, 1) == 0
    assert rates.least_s("broadcast", 16, 2, 4) == 0
