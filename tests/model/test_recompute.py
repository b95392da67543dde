"""Where single operators are worked out again, a layer keeps torchtitan's list; it is refused where none is known."""

import pytest

from emu.errors import InputError
from emu.model.model import MODELS
from emu.model.operator import Tokens, outputs_kept
from emu.model.plan.plan_checks import check_fits_model
from emu.model.plan.plan_text import parse_plan
from emu.model.stack.stack import parse_stack
from tests.model.generate.executed import compared

LLAMA = MODELS.find("llama3.1-8b")


def test_attention_and_every_second_product_are_kept_as_torchtitan_counts_them():
    """The order of a layer is queries, keys, values, what attention gave; gate, its other side, and the way back."""
    layer = LLAMA.part("dense", Tokens(8))
    kept = [layer[i].name for i in sorted(outputs_kept(layer))]
    assert kept == ["attention.wq", "attention.wv", "attention.attention", "ffn.w1", "ffn.w2"]


def test_a_product_with_a_bias_is_no_product_alone():
    layer = MODELS.find("gpt-tiny").part("dense", Tokens(8))
    assert [layer[i].kind for i in outputs_kept(layer)] == ["attention"]


def test_what_is_worked_out_again_is_the_products_between():
    again = LLAMA.recomputed_flops_per_token(8, "ops") / 32
    products = 4096 * 1024 + 4096 * 4096 + 4096 * 14336  # keys, the way out of attention, one side of the gate
    assert again == 2 * (products + 2 * 4096)  # and the weights of two norms, which MFU counts too


@pytest.mark.parametrize("words", ["dp=1", "dp=2,sharding=fsdp", "pp=2,microbatch=4"])
def test_a_generated_step_works_out_again_what_real_ranks_do(words):
    """PyTorch's own selective checkpoint says what is kept where ranks run."""
    assert compared(f"{words},recompute=ops").first is None


@pytest.mark.parametrize(
    ("words", "stack", "said"),
    [
        ("tp=2", "software=pytorch", "plan: tp must be 1 with recompute=ops, got 2; take recompute=selective or full, or tp=1"),
        ("cp=2", "software=pytorch", "plan: cp must be 1 with recompute=ops, got 2"),
        ("pp=2,vp=2,order=zbv", "software=pytorch", "plan: order must be one of whole backwards with recompute=ops, got 'zbv'"),
        ("dp=2", "software=megatron", "plan: recompute must be none, selective or full with software=megatron, got 'ops'"),
    ],
)
def test_it_is_refused_where_nobody_knows_what_is_kept(words, stack, said):
    plan = parse_plan(f"{words},recompute=ops", global_batch=8, seq=64)
    with pytest.raises(InputError, match=said):
        check_fits_model(plan, LLAMA, parse_stack(stack))
