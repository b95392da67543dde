"""Where single operators are worked out again, a layer keeps torchtitan's list; it is refused where none is known."""

from dataclasses import replace

import pytest

from emu.errors import InputError
from emu.model.generate.generate import generate
from emu.model.model import MODELS
from emu.model.operator import Tokens, outputs_kept
from emu.model.plan.plan_checks import check_fits_model
from emu.model.plan.plan_text import parse_plan
from emu.model.recomputed_flops import recomputed_flops_per_token
from emu.model.stack.stack import Stack, parse_stack
from emu.trace.steps import computes
from tests.model.generate.executed import compared

LLAMA = MODELS.find("llama3.1-8b")
MEGATRON = parse_stack("software=megatron")


def test_attention_and_every_second_product_are_kept_as_torchtitan_counts_them():
    """The order of a layer is queries, keys, values, what attention gave; gate, its other side, and the way back."""
    layer = LLAMA.part("dense", Tokens(8))
    kept = [layer[i].name for i in sorted(outputs_kept(layer))]
    assert kept == ["attention.wq", "attention.wv", "attention.attention", "ffn.w1", "ffn.w2"]


def test_a_product_with_a_bias_is_no_product_alone():
    layer = MODELS.find("gpt-tiny").part("dense", Tokens(8))
    assert [layer[i].kind for i in outputs_kept(layer)] == ["attention"]


def test_what_is_worked_out_again_is_the_products_between():
    again = recomputed_flops_per_token(LLAMA, parse_plan("recompute=ops", global_batch=1, seq=8), Stack()) / 32
    products = 4096 * 1024 + 4096 * 4096 + 4096 * 14336  # keys, the way out of attention, one side of the gate
    assert again == 2 * (products + 2 * 4096)  # and the weights of two norms, which MFU counts too


def test_checkpoints_of_pytorch_stop_before_the_last_product_of_a_layer():
    # Queries and the way out, keys and values, and two of the three products of the feed-forward block.
    products = 4096 * (2 * 4096 + 2 * 1024) + 2 * 4096 * 14336
    layer = 2 * products + 4 * 1024 * 4096 + 2 * 2 * 4096  # and the weights of two norms, which MFU counts too
    plan = parse_plan("recompute=full", global_batch=1, seq=1024)
    assert recomputed_flops_per_token(LLAMA, plan, Stack()) == 32 * layer
    assert recomputed_flops_per_token(LLAMA, plan, MEGATRON) == 32 * (layer + 2 * 4096 * 14336)


AGAIN = [
    ("llama-tiny", "dp=1,recompute=full", "pytorch"),
    ("llama-tiny", "tp=2,pp=2,recompute=full", "pytorch"),
    ("gpt-tiny", "pp=2,vp=2,recompute=full", "pytorch"),
    ("mixtral-tiny", "ep=2,dp=2,recompute=full", "pytorch"),
    ("llama-tiny", "dp=1,recompute=selective", "pytorch"),
    ("llama-tiny", "dp=1,recompute=ops", "pytorch"),
    ("llama-tiny", "pp=2,vp=2,order=zbv,recompute=full", "pytorch"),
    ("gpt-tiny", "pp=4,vp=2,order=zero-bubble,recompute=full", "pytorch"),
    ("llama-tiny", "pp=2,vp=2,order=zbv,recompute=selective", "pytorch"),
    ("llama-tiny", "tp=2,sp,pp=2,recompute=full", "megatron"),
    ("mixtral-tiny", "ep=2,dp=2,recompute=full", "megatron"),
    ("gpt-tiny", "tp=2,recompute=selective", "megatron"),
]


@pytest.mark.parametrize(("name", "words", "software"), AGAIN)
def test_hfu_counts_what_the_events_of_all_ranks_compute_again(name, words, software):
    model, stack = MODELS.find(name), parse_stack(f"software={software}")
    plan = parse_plan(words, global_batch=8, seq=128)
    without = replace(plan, recompute="none")
    again = computed_flops(generate(model, plan, stack)) - computed_flops(generate(model, without, stack))
    assert recomputed_flops_per_token(model, plan, stack) * plan.tokens == pytest.approx(
        again, rel=2e-2
    )  # but for norms and biases
    assert recomputed_flops_per_token(model, without, stack) == 0


def computed_flops(trace):
    return sum(float(trace.events[role].flops[computes(trace.events[role])].sum()) for role in trace.role_of_rank.tolist())


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
