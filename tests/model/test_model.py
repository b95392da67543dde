"""A model as plain data: what its operators add up to."""

import re
import subprocess
import sys
from dataclasses import replace

import pytest

from emu.errors import InputError
from emu.model.memory import host_bytes, rank_bytes
from emu.model.model import MODELS, Model, ModelOperator, attention, model, product
from emu.model.plan import Plan

ALONE, PAIR = Plan(global_batch=2, seq=3), Plan(dp=2, global_batch=4, seq=3)


def toy(name, width):
    """An embedding, two products (cut at their outputs, then at their inputs) and a norm, for 3 tokens of vocabulary 5."""

    def operators(seq):
        return (
            ModelOperator("embedding", 1, 5 * width, writes=seq * width, cut_in=True, lookup=True),
            product("up", seq, width, 4 * width, times=2, cut="out"),
            product("down", seq, 4 * width, width, times=2, cut="in"),
            ModelOperator("norm", 2, width, writes=seq * width),
        )

    return Model(name, 2, width, 1, width, 5, 99, operators, build=operators)  # never built


def test_a_product_is_two_flops_a_multiplication_and_twice_that_backward():
    up = product("up", 3, 8, 32)
    assert (up.parameters, up.flops_forward, up.flops_backward) == (256, 2 * 3 * 256, 4 * 3 * 256)
    assert up.writes == 3 * 32


def test_attention_is_two_products_forward_and_five_backward():
    one = attention("attention", 6, heads=4, head_dim=8)
    assert (one.flops_forward, one.flops_backward) == (2 * 2 * 36 * 32, 5 * 2 * 36 * 32)
    assert one.writes == 6 * 32


def test_sums_over_operators():
    small = toy("toy", 8)
    assert small.parameters() == 40 + 2 * 256 + 2 * 256 + 2 * 8
    assert small.parameters(2) == 20 + 2 * 128 + 2 * 128 + 2 * 8
    assert small.flops(3) == (4 * 2 * 3 * 256, 8 * 2 * 3 * 256)
    assert small.flops(3, tp=4) == (2 * 3 * 256, 2 * 2 * 3 * 256)
    assert small.flops_per_token(3) == 6 * (4 * 256 + 16) + 12 * 2 * 8 * 3
    assert small.activations(3) == 24 + 2 * 96 + 2 * 24 + 2 * 24
    assert small.activations(3, tp=2) == 2 * 24 + 2 * 48 + 2 * 2 * 24 + 2 * 24  # partial sums twice


def test_each_configuration_is_filed_under_its_name():
    model({"test-toy-1": 8, "test-toy-2": 16})(toy)
    try:
        assert MODELS.find("test-toy-2").hidden == 16
        with pytest.raises(InputError, match=re.escape("registry: model 'test-toy-1' is filed twice")):
            model({"test-toy-1": 8})(toy)
    finally:
        for name in ("test-toy-1", "test-toy-2"):
            del MODELS._filed[name]


def test_an_unknown_model_is_refused_with_the_nearest():
    with pytest.raises(InputError, match=r"^registry: no model is called 'llama-tinny'; did you mean llama-tiny"):
        MODELS.find("llama-tinny")


@pytest.mark.parametrize(("plan", "floats"), [(ALONE, 4), (Plan(tp=2, global_batch=2, seq=3), 4 / 2), (PAIR, 5)])
def test_a_parameter_takes_a_rank_weight_gradient_and_two_moments_and_with_ddp_its_place_in_a_bucket(plan, floats):
    """Of 4 bytes each, and cut by tp; whatever the activations take."""
    small = toy("toy", 8)
    larger = replace(small, operators=lambda seq: (*small.operators(seq), ModelOperator("more", 1, 1000, cut_out=True)))
    assert rank_bytes(larger, plan) - rank_bytes(small, plan) == 1000 * floats * 4


def test_activations_are_those_of_one_pass():
    small = toy("toy", 8)
    assert rank_bytes(small, Plan(global_batch=4, seq=3, microbatch=2)) == rank_bytes(small, ALONE)
    one, two, three = (rank_bytes(small, Plan(global_batch=n, seq=3)) for n in (1, 2, 3))
    assert three - two == two - one >= 4 * small.activations(3)


def test_a_host_holds_every_rank_and_the_reference():
    small, plan = toy("toy", 8), Plan(dp=2, tp=2, global_batch=4, seq=3)
    wider = Plan(dp=4, tp=2, global_batch=8, seq=3)
    reference = rank_bytes(small, wider.alone()) - rank_bytes(small, plan.alone())
    each = (host_bytes(small, wider) - host_bytes(small, plan) - reference) / 4 - rank_bytes(small, plan)
    assert 0 < each < 10_000_000  # what a thread takes without any tensor
    assert host_bytes(small, ALONE) > 2 * rank_bytes(small, ALONE) + each  # the rank and the reference, and Python
    kept = host_bytes(small, plan, kept_gradients=2) - host_bytes(small, plan)
    assert kept == 2 * 4 * (4 * small.parameters(2) + small.parameters())


def test_plans_and_models_as_data_need_no_torch():
    code = "import sys, emu.model.plan, emu.model.memory; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
