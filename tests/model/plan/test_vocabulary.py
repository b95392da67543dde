"""A vocabulary that tp does not divide is filled up as Megatron-LM fills it up, and refused with PyTorch's pieces."""

from dataclasses import replace

import pytest

from emu.errors import InputError
from emu.model.generate.generate import generate, memory_by_part
from emu.model.layer_on_rank import padded_model, padding_note
from emu.model.model import EMBEDDING, MODELS
from emu.model.plan.plan import Plan
from emu.model.plan.plan_checks import check_fits_model
from emu.model.stack import software
from emu.model.stack.stack import Stack
from emu.study.planning.space import Space
from tests.model.counts import part_parameters

MEGATRON, PYTORCH = Stack(software.MEGATRON), Stack()
GPT, LLAMA = MODELS.find("gpt-tiny"), MODELS.find("llama-tiny")


def with_vocabulary(model, size):
    return model.describe(replace(model.config, vocab=size))


@pytest.mark.parametrize(("tp", "size"), [(1, 50257), (2, 50432), (4, 50688), (8, 51200)])
def test_gpt_2s_words_are_as_many_as_megatron_prints(tp, size):
    """Its log: "padded vocab (size: 50257) with 175 dummy tokens (new size: 50432)" for 2 ranks, 431 for 4, 943 for 8."""
    gpt = MODELS.find("gpt3-175b")
    assert padded_model(Plan(tp=tp), gpt, MEGATRON).vocab == size
    told = padding_note(Plan(tp=tp), gpt, MEGATRON)
    assert [f"50,257 is filled up to {size:,}, a multiple of 128 x tp={tp};" in each for each in told] == [True] * (tp > 1)


@pytest.mark.parametrize("model", ["llama3-8b", "mixtral-8x7b", "deepseek-v3", "nemotron4-15b", "grok1-314b"])
def test_a_vocabulary_that_divides_stays(model):
    found = MODELS.find(model)
    assert padded_model(Plan(tp=8), found, MEGATRON) is found
    assert not padding_note(Plan(tp=8), found, MEGATRON)


def test_pytorch_refuses_what_megatron_fills_up():
    gpt = MODELS.find("gpt3-175b")
    check_fits_model(Plan(tp=8), gpt, MEGATRON)
    with pytest.raises(InputError, match=r"^plan: tp must be a divisor of the 50257 vocabulary of .*, got 8; take tp=1$"):
        check_fits_model(Plan(tp=8), gpt, PYTORCH)
    with pytest.raises(InputError, match=r"^plan: tp must be a divisor of the 96 heads of gpt3-175b, got 5; take tp=4 or 6$"):
        check_fits_model(Plan(tp=5), gpt, MEGATRON)
    other = replace(gpt, describe=None)  # a model of one's own, of which no other sizes are known
    with pytest.raises(InputError, match=r"^plan: tp must be a divisor of the 50257 vocabulary"):
        check_fits_model(Plan(tp=8), other, MEGATRON)
    for stack, sizes in ((MEGATRON, {1, 2, 4, 8}), (PYTORCH, {1})):
        assert {plan.tp for plan in Space(gpt, stack, 8, 8, 2048, {"microbatch": 1, "recompute": "full"}).plans()} == sizes


@pytest.mark.parametrize("model", [GPT, LLAMA])
@pytest.mark.parametrize("words", [{"tp": 4}, {"tp": 4, "sp": True, "dp": 2}, {"tp": 2, "pp": 2, "recompute": "full"}])
def test_a_step_is_that_of_a_model_that_has_so_many_words(model, words):
    """Event for event, and so is what a rank holds; what MFU counts is not filled up."""
    odd, plan = with_vocabulary(model, 251), Plan(**words, global_batch=8, seq=64)
    whole = with_vocabulary(model, 512 if plan.tp == 4 else 256)
    assert padded_model(plan, odd, MEGATRON).vocab == whole.vocab
    assert generate(odd, plan, MEGATRON).digest() == generate(whole, plan, MEGATRON).digest()
    assert memory_by_part(odd, plan, MEGATRON) == memory_by_part(whole, plan, MEGATRON)
    assert part_parameters(odd, EMBEDDING) < part_parameters(whole, EMBEDDING)
    assert odd.flops_per_token(64) < whole.flops_per_token(64)
