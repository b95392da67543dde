"""Plans: parsed, placed, and refused where they do not divide."""

import re
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from emu.errors import InputError
from emu.model.model import MODELS
from emu.model.plan import AXES, Plan

TINY = MODELS.find("llama-tiny")


def refused(message):
    return pytest.raises(InputError, match=f"^{re.escape(message)}$")


def test_axes_that_are_not_named_are_one():
    assert Plan.parse("dp=4, tp=2") == Plan(tp=2, dp=4)
    assert Plan.parse("tp=2", global_batch=8, seq=32, microbatch=4) == Plan(tp=2, global_batch=8, seq=32, microbatch=4)


def test_a_plan_prints_as_it_is_parsed():
    for text in ("tp=4,dp=4", "dp=2", "dp=1"):
        assert str(Plan.parse(text)) == text


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("dp4", "plan: an axis must be AXIS=SIZE, got 'dp4'; e.g. dp=4,tp=4"),
        ("dp=two", "plan: an axis must be AXIS=SIZE, got 'dp=two'; e.g. dp=4,tp=4"),
        ("", "plan: an axis must be AXIS=SIZE, got ''; e.g. dp=4,tp=4"),
        ("td=2", "registry: no axis of a plan is called 'td'; did you mean tp or dp?"),
        ("dp=2,dp=4", "plan: axis dp is given twice in 'dp=2,dp=4'"),
        ("tp=0", "plan: tp must be 1 or more, got 0"),
        ("pp=2", "plan: pp must be 1, got 2; only tp and dp are implemented"),
        ("dp=3", "plan: dp must be a divisor of the global batch 16, got 3; take dp=2 or 4, or a global batch of 15 or 18"),
    ],
)
def test_what_is_no_plan_is_refused_in_one_line(text, message):
    with refused(message):
        Plan.parse(text)


def test_a_batch_that_does_not_divide_is_refused_with_what_fits():
    with refused("plan: dp must be a divisor of the global batch 2, got 4; take dp=2, or a global batch of 4"):
        Plan(dp=4, global_batch=2)
    with refused("plan: microbatch must be a divisor of the 8 sequences of a rank, got 3; take 2 or 4"):
        Plan(dp=2, global_batch=16, microbatch=3)
    with refused("plan: seq must be 1 or more, got 0"):
        Plan(seq=0)


def test_a_model_that_does_not_divide_is_refused_with_what_fits():
    with refused("plan: tp must be a divisor of the 8 heads of llama-tiny, got 3; take tp=2 or 4"):
        Plan(tp=3).check(TINY)
    with refused("plan: tp must be a divisor of the 4 key and value heads of llama-tiny, got 8; take tp=4"):
        Plan(tp=8).check(TINY)
    with refused("plan: seq must be at most the 1024 tokens of llama-tiny, got 2048"):
        Plan(seq=2048).check(TINY)
    Plan(tp=4, dp=2).check(TINY, world=8)


def test_a_world_of_another_size_is_refused():
    with refused("plan: the product of its axes must be the 8 ranks of the world, got 4"):
        Plan(tp=2, dp=2).check(TINY, world=8)


def test_rank_is_tensor_parallel_fastest():
    plan = Plan(tp=4, dp=2)
    assert [plan.coordinates(r)["tp"] for r in range(8)] == [0, 1, 2, 3] * 2
    assert [plan.coordinates(r)["dp"] for r in range(8)] == [0] * 4 + [1] * 4
    assert plan.groups("tp") == ((0, 1, 2, 3), (4, 5, 6, 7))
    assert plan.groups("dp") == ((0, 4), (1, 5), (2, 6), (3, 7))


@given(st.integers(1, 5), st.integers(1, 5))
def test_groups_of_an_axis_partition_the_ranks_and_differ_on_it_alone(tp, dp):
    plan = Plan(tp=tp, dp=dp, global_batch=dp)
    for axis in AXES:
        groups = plan.groups(axis)
        assert sorted(r for group in groups for r in group) == list(range(plan.world))
        for group in groups:
            places = [plan.coordinates(r) for r in group]
            assert [p.pop(axis) for p in places] == list(range(getattr(plan, axis)))
            assert all(p == places[0] for p in places)


def test_batch_arithmetic():
    plan = Plan(tp=2, dp=4, global_batch=16, seq=32, microbatch=2)
    assert (plan.world, plan.rank_batch, plan.passes, plan.tokens) == (8, 4, 2, 512)
    assert replace(plan, microbatch=0).passes == 1
    assert plan.alone() == Plan(global_batch=16, seq=32)
