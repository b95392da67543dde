"""A model as plain data: what its operators add up to."""

import re
import subprocess
import sys

import pytest

from emu.errors import InputError
from emu.model.memory.executed_memory import host_bytes, rank_bytes
from emu.model.model import ARCHITECTURES, EMBEDDING, HEAD, MODELS, Model, model
from emu.model.operator import Amount, Cut, ModelOperator, Tokens, attention, lookup, product
from emu.model.parts.expert_block import of_experts
from emu.model.plan.plan import Plan
from emu.model.stack.passes import element_wise
from tests.model.counts import part_parameters, sequence_flops

ALONE, PAIR = Plan(global_batch=2, seq=3), Plan(dp=2, global_batch=4, seq=3)


def toy(name, width, more=0):
    """An embedding, two layers of a norm and two products (cut at their outputs, then at their inputs), vocabulary 5."""

    def part(of, tokens):
        if of == EMBEDDING:
            return (lookup("embedding", tokens.n, 5, width),)
        if of == HEAD:
            return (ModelOperator("more", "product", more, cut="out"),)
        return (
            element_wise("norm", "rms norm", tokens.n * width, tokens.n, weights=width, sequence=True),
            product("up", tokens.n, width, 4 * width, "out"),
            product("down", tokens.n, 4 * width, width, "in"),
        )

    return Model(name, width, 1, width, 5, 99, ("dense",) * 2, part, build=part)  # never built


def test_a_product_is_two_flops_a_multiplication_forward_and_for_each_gradient():
    up = product("up", 3, 8, 32, "out")
    passes = up.eager
    assert up.parameters == 256
    assert [p.flops for p in (passes.forward, passes.backward_input, passes.backward_weight)] == 3 * [2 * 3 * 256]
    assert [p.elements for p in (passes.forward, passes.backward_input, passes.backward_weight)] == 3 * [256 + 3 * (8 + 32)]
    assert (up.shape, up.outputs.cut, passes.saved.whole) == ((3, 32, 8), 3 * 32, 3 * 8)


def test_attention_is_two_products_forward_and_five_backward():
    one = attention("attention", Tokens(6), heads=4, kv_heads=2, head_dim=8).eager
    assert (one.forward.flops, one.backward.flops) == (2 * 2 * 36 * 32, 5 * 2 * 36 * 32)
    assert (one.forward.cut, one.saved.cut) == (6 * (32 + 16 + 16 + 32), 6 * (32 + 16 + 16 + 32))


def test_fewer_queries_than_keys_read_the_keys_whole():
    one = attention("attention", Tokens(6, context=24, sequences=3), heads=4, kv_heads=2, head_dim=8).eager.forward
    assert (one.flops, one.cut) == (3 * 4 * 6 * 24 * 32, 3 * (6 * 64 + 24 * 32))


def test_values_of_another_size_run_padded_in_pytorch_and_as_they_are_in_a_fused_kernel():
    one = attention("attention", Tokens(6), heads=4, kv_heads=4, head_dim=12, value_dim=8)
    assert one.eager.forward.flops == 2 * 36 * 4 * 24
    assert one.fused.forward.flops == 2 * 36 * 4 * 20
    assert one.fused.backward.flops == 2 * 36 * 4 * (3 * 12 + 2 * 8)


def test_one_rank_has_its_share_of_a_product():
    up, down = (product("p", 6, 8, 32, cut).on(Cut(tp=4)) for cut in ("out", "in"))
    assert (up.parameters, up.shape, up.eager.forward.flops) == (64, (6, 8, 8), 2 * 6 * 64)
    assert (down.parameters, down.shape) == (64, (6, 32, 2))
    assert (up.eager.saved, down.eager.saved) == (Amount(whole=48), Amount(cut=12))


def test_sequence_parallelism_cuts_the_tokens_of_what_lies_between_the_products_but_not_its_parameters():
    norm = toy("toy", 8).part("dense", Tokens(6))[0]
    half = norm.on(Cut(tp=2, sequence=True))
    assert norm.on(Cut(tp=2)) == norm
    assert half.eager.forward.whole == norm.eager.forward.whole // 2
    assert half.parameters == half.eager.forward.parameters == 8


@pytest.mark.parametrize(
    ("cut", "parameters", "rows", "columns"),
    [
        (Cut(), 4 * 256, 6, 32),
        (Cut(ep=4), 256, 6, 32),  # as many rows come from the three others as go to them
        (Cut(tp=2), 4 * 128, 6, 16),
        (Cut(tp=2, ep=2), 2 * 128, 6, 16),
        (Cut(tp=2, ep=2, etp=1), 2 * 256, 3, 32),  # the two ranks of tp bring half of the tokens each
    ],
)
def test_experts_are_shared_among_ranks_and_their_columns_among_fewer(cut, parameters, rows, columns):
    one = of_experts(product("experts.w1", 6, 8, 32, "out"), 4, 2).on(cut)
    assert (one.parameters, one.shape) == (parameters, (rows, columns, 8))
    assert one.eager.forward.flops == 2 * rows * columns * 8
    assert (one.eager.saved.whole, one.outputs.cut) == (rows * 8, rows * columns)
    assert one.eager.forward.fixed_bytes == 4 * (4 // cut.ep)


def test_an_expert_that_a_token_does_not_see_is_not_active():
    one = of_experts(product("experts.w1", 6, 8, 32, "out"), 4, 2)
    assert (one.parameters, one.active_parameters) == (4 * 256, 2 * 256)


def test_sums_over_operators():
    small = toy("toy", 8)
    assert small.layers == 2
    assert small.parameters() == 40 + 2 * 256 + 2 * 256 + 2 * 8
    assert small.parameters(2) == 20 + 2 * 128 + 2 * 128 + 2 * 8
    assert part_parameters(small, "dense") == 2 * 256 + 8
    assert part_parameters(small, EMBEDDING, Cut(tp=4)) == 10
    assert sequence_flops(small, 3) == (4 * 2 * 3 * 256, 8 * 2 * 3 * 256)
    assert sequence_flops(small, 3, tp=4) == (2 * 3 * 256, 2 * 2 * 3 * 256)
    assert small.flops_per_token(3) == 6 * (4 * 256 + 16)
    norm, up, down = 2 * 24 + 3, 24, 96
    assert small.saved(Tokens(3), Cut()).elements == 2 * (norm + up + down)
    assert small.saved(Tokens(3), Cut(tp=2, sequence=True)).elements == 2 * (norm // 2 + up + down // 2)


def test_each_configuration_is_filed_under_its_name():
    model({"test-toy-1": 8, "test-toy-2": 16})(toy)
    try:
        assert MODELS.find("test-toy-2").hidden == 16
        with pytest.raises(InputError, match=re.escape("model 'test-toy-1' is defined twice")):
            model({"test-toy-1": 8})(toy)
    finally:
        for name in ("test-toy-1", "test-toy-2"):
            del MODELS._filed[name]
        del ARCHITECTURES._filed["toy"]


def test_an_unknown_model_is_refused_with_the_nearest():
    with pytest.raises(InputError, match=r"^no model is called 'llama-tinny'; did you mean llama-tiny"):
        MODELS.find("llama-tinny")


@pytest.mark.parametrize(
    ("plan", "floats"),
    [
        (ALONE, 4),
        (Plan(tp=2, global_batch=2, seq=3), 4 / 2),
        (PAIR, 5),
        (Plan(pp=2, global_batch=2, seq=3), 4 / 2),
        (Plan(dp=4, shard=2, sharding="fsdp", global_batch=4, seq=3), 4 / 2),
    ],
)
def test_a_parameter_takes_a_rank_weight_gradient_and_two_moments_and_with_ddp_its_place_in_a_bucket(plan, floats):
    """Each of these floats has 4 bytes and is cut by tp, whatever the activations take."""
    small, larger = toy("toy", 64), toy("toy", 64, more=1000)
    assert rank_bytes(larger, plan) - rank_bytes(small, plan) == 1000 * floats * 4


def test_activations_are_those_of_one_pass():
    small = toy("toy", 8)
    assert rank_bytes(small, Plan(global_batch=40, seq=3, microbatch=20)) == rank_bytes(small, Plan(global_batch=20, seq=3))
    one, two, three = (rank_bytes(small, Plan(global_batch=n, seq=3)) for n in (100, 200, 300))
    assert three - two == two - one > small.saved(Tokens(3, sequences=100), Cut()).bytes()


def test_a_host_holds_every_rank_and_the_reference():
    small, plan = toy("toy", 8), Plan(dp=2, tp=2, global_batch=4, seq=3)
    wider = Plan(dp=4, tp=2, global_batch=8, seq=3)
    reference = rank_bytes(small, wider.alone()) - rank_bytes(small, plan.alone())
    each = (host_bytes(small, wider) - host_bytes(small, plan) - reference) / 4 - rank_bytes(small, plan)
    assert 0 < each < 10_000_000  # what a thread takes without any tensor
    assert host_bytes(small, ALONE) > 2 * rank_bytes(small, ALONE) + each  # the rank and the reference, and Python
    kept = host_bytes(small, plan, kept=2) - host_bytes(small, plan)
    assert kept == 2 * 4 * (4 * small.parameters(2) + small.parameters())


def test_plans_and_models_as_data_need_no_torch():
    modules = "emu.model.plan.plan, emu.model.memory.step_memory, emu.model.stack.passes"
    code = f"import sys, {modules}; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
