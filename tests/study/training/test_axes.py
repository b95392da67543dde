"""Ranks learn what one process learns by every axis and setting of a plan: alone, in pairs, and of every architecture.

In the default suite are each axis alone and few plans in which all pairs occur, but for the pairs of all orders of a pipeline;
each pair by itself is slow. Which pairs there are is worked out from the values and from what the product itself refuses.
"""

from itertools import combinations

import numpy as np
import pytest

from emu.collective.choice import Choice
from emu.model.model import MODELS
from emu.model.plan.plan_text import parse_plan
from emu.study.training.learn.learn import learn
from emu.study.training.learn.program import Program, read_text
from tests.covering import completed, ordered, pairs, singles
from tests.four_layers import four_layers
from tests.study.training.axes import (
    COVERING,
    OFTEN,
    SETTINGS,
    allowed,
    cost,
    every_pair,
    plan_of,
    refusal,
    spelled,
    word_of,
)

SPLIT = [f"pp=2,vp=2,order={order}" for order in ("zero-bubble", "zbv", "dualpipev")]
# Each axis, and every order of a pipeline, beside the defaults.
ALONE = [
    *({"pp": order} for order in SETTINGS["pp"]),
    {"tp": "tp=2"},
    {"tp": "tp=2,sp"},
    {"cp": "cp=2"},
    {"dp": "dp=4,sharding=fsdp,shard=2"},
    {"dp": "dp=2", "ep": "ep=2", "model": "experts"},
    {"dp": "dp=2", "etp": "etp=2", "model": "experts"},
]
TINY = [name for name, _ in MODELS if name.endswith("-tiny")]


def check_learns(model, plan, steps=2):
    learned = learn(Program(model, plan, read_text(), steps, seed=0, learning_rate=1e-3), Choice())
    np.testing.assert_allclose(learned.loss, learned.reference_loss, rtol=1e-5)
    assert learned.gradient_error <= 1e-4


def names(each):
    return each if isinstance(each, str) else spelled(each)


@pytest.mark.parametrize("chosen", [*(ordered(each.items(), SETTINGS) for each in ALONE), *COVERING], ids=names)
def test_losses_and_gradients_are_those_of_one_process(chosen):
    check_learns(word_of(chosen), plan_of(chosen))


def pytest_generate_tests(metafunc):
    """Parametrize the slow tests only where they are collected: their cases take seconds to work out."""
    if metafunc.function is test_every_pair_learns_what_one_process_learns:
        metafunc.parametrize("chosen", every_pair(), ids=names)
    if metafunc.function is test_every_architecture_learns_by_every_axis:
        metafunc.parametrize(("name", "chosen"), [each for name in TINY for each in of_tiny(name)])


@pytest.mark.slow
def test_every_pair_learns_what_one_process_learns(chosen):
    check_learns(word_of(chosen), plan_of(chosen))


def test_one_rank_that_has_both_ends_of_a_pipeline_has_one_table_of_words_there(tmp_path):
    check_learns(four_layers("gpt", tmp_path), parse_plan("pp=2,vp=2,order=zbv,clip=0.1", global_batch=4, seq=8))


def of_tiny(name):
    """Every value with the fewest others that it needs, as far as this model has the axis."""
    for value in singles({axis: values for axis, values in SETTINGS.items() if axis != "model"}):

        def takes(chosen):
            return not refusal(chosen, MODELS.find(name))

        found = completed(value, {axis: v for axis, v in SETTINGS.items() if axis != "model"}, takes, cost)
        if found is not None:
            yield pytest.param(name, found, id=f"{name} {spelled(found)}")


@pytest.mark.slow
def test_every_architecture_learns_by_every_axis(name, chosen):
    check_learns(name, plan_of(chosen))


PRODUCTS = [
    ("llama-tiny", "cp=2,dp=4,sharding=fsdp,shard=2,clip=0.1"),
    ("llama-tiny", "cp=2,dp=2,sharding=zero1,recompute=full"),
    ("llama-tiny", "tp=2,sp,cp=2,dp=2,pp=2,clip=0.1"),
    ("llama-tiny", "tp=2,cp=2,cp_comm=all_gather,pp=2,recompute=selective,clip=0.1"),
    ("llama-tiny", "tp=2,sp,cp=2,dp=2,sharding=fsdp,clip=0.1,recompute=selective"),
    ("llama-tiny", "cp=4,pp=2,order=gpipe,dp=2,sharding=zero1"),
    ("llama-tiny", "cp=2,pp=2,vp=2,order=zbv,recompute=selective"),
    ("llama-tiny", "tp=2,sp,dp=2,pp=2,vp=2,order=dualpipev,clip=0.1"),
    ("llama-tiny", "tp=2,sp,dp=2,sharding=zero1,pp=2,vp=2,order=zbv"),
    ("gpt-moe-tiny", "tp=2,ep=2,dp=2,pp=2"),
    ("gpt-moe-tiny", "ep=2,dp=2,pp=2,vp=2,order=dualpipev,clip=0.1"),
    ("gpt-moe-tiny", "tp=2,sp,dp=2,ep=2,sharding=fsdp,clip=0.1"),
    ("gpt-moe-tiny", "tp=2,sp,pp=2,ep=2,etp=1"),
    ("gpt-moe-tiny", "dp=4,pp=2,ep=2,sharding=zero1,clip=0.1"),
    ("gpt-moe-tiny", "pp=4,ep=2,dp=2,order=interleaved,vp=2"),
    ("gpt-moe-tiny", "cp=2,pp=2,ep=2,capacity=1.25,recompute=full"),
    ("mixtral-tiny", "dp=4,ep=2,etp=2,sharding=fsdp,recompute=full"),
    ("mixtral-tiny", "tp=2,sp,dp=2,ep=2,capacity=0.5"),
    ("grok-tiny", "tp=2,sp,dp=2,ep=4,etp=1,sharding=fsdp,microbatch=2"),
    ("qwen3-moe-tiny", "cp=2,dp=2,ep=4,sharding=fsdp,clip=0.1"),
    ("qwen3-moe-tiny", "tp=2,cp=2,dp=2,pp=2,capacity=1,clip=0.1"),
    ("deepseek-tiny", "tp=2,sp,cp=2,pp=2,ep=4,etp=1,clip=0.1"),
]


@pytest.mark.slow
@pytest.mark.parametrize(("model", "text"), PRODUCTS)
def test_products_of_axes_learn_what_one_process_learns(model, text):
    check_learns(model, parse_plan(text, global_batch=8, seq=16))


@pytest.mark.slow
@pytest.mark.parametrize("name", TINY)
def test_every_architecture_learns_by_three_axes(name):
    plan = parse_plan(f"tp=2,sp,dp=2,pp=2{',ep=2' if MODELS.find(name).experts else ''}", global_batch=8, seq=16)
    check_learns(name, plan, steps=3)


def test_pairs_that_no_plan_has_are_refused_in_one_line_that_names_what_does_not_fit():
    """FSDP2 does not see a split backward; what is of experts needs a model that has some. Nothing else is refused."""
    refused = {pair for pair in pairs(SETTINGS) if completed(pair, SETTINGS, allowed, cost) is None}
    sharded = {(("pp", order), ("dp", how)) for order in SPLIT for how in SETTINGS["dp"] if "fsdp" in how}
    of_experts = {((axis, v), ("model", "dense")) for axis in ("ep", "etp", "capacity") for v in SETTINGS[axis]}
    assert refused == sharded | of_experts
    for pair in refused:
        told = refusal(pair)
        assert told.startswith("plan: ")
        assert "\n" not in told
        assert any(word in told for word in ("sharding must be ddp or zero1 in the order", "etp * ep", "has no experts"))


def test_the_plans_of_the_default_suite_have_every_pair_that_they_are_to_have():
    there = {pair for chosen in COVERING for pair in combinations(chosen, 2)}
    wanted = {pair for pair in pairs(OFTEN) if completed(pair, OFTEN, allowed, cost) is not None}
    assert wanted <= there
    assert len(ALONE) + len(COVERING) <= 25
    assert {value for chosen in COVERING for value in chosen} == {value for (value,) in singles(OFTEN)}
