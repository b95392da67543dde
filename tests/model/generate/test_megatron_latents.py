"""Latent attention under Megatron-LM's tensor parallelism: which ranks multiply what, and what they gather and sum.

Source: Megatron-LM, core_v0.15.3, megatron/core/transformer/multi_latent_attention.py, where the narrow products are TELinear
with `parallel_mode="duplicated"`, and the part of a key that all heads share is gathered after them.
"""

from collections import Counter

import pytest

from emu.model.model import MODELS
from tests.model.generate.megatron_steps import B, H, L, S, asked, flops, traced

DEEPSEEK = MODELS.find("deepseek-tiny")
QUERY, KEY, TURNED = 32, 16, 4  # elements of a token: the two latents, and the part of a key that all heads share
NARROW, ROUTERS = L * H * (QUERY + KEY + TURNED), (L - 1) * H * 8  # weights; all layers but the first have 8 experts
PASSES = B // 4


def latents(words):
    """Return how often rank 0 asks for what over tp, of the sizes that a microbatch of latents has."""
    found, sizes = Counter(), {4 * S * width: width for width in (QUERY, KEY, TURNED)}
    for (axis, operation, elements, dtype), times in asked(traced(f"{words},microbatch=4", model=DEEPSEEK)).items():
        if axis == "tp" and elements in sizes and dtype == "bfloat16":
            found[operation, sizes[elements]] += times
    return found


@pytest.mark.parametrize(("recompute", "forwards"), [("none", 1), ("full", 2)])
def test_with_sequence_parallelism_latents_are_gathered_and_hidden_states_are_not(recompute, forwards):
    times = L * PASSES
    assert latents(f"tp=2,sp,recompute={recompute}") == {
        ("all_gather", QUERY): (forwards + 1) * times,  # once more for the gradient of the weight
        ("all_gather", KEY): (forwards + 1) * times,
        ("all_gather", TURNED): forwards * times,  # no weight reads it
        **{("reduce_scatter", width): times for width in (QUERY, KEY, TURNED)},
    }


def test_without_sequence_parallelism_the_gradients_of_latents_are_summed():
    assert latents("tp=2") == {("all_reduce", QUERY): L * PASSES, ("all_reduce", KEY): L * PASSES}


@pytest.mark.parametrize("words", ["tp=2,sp", "tp=4,sp", "tp=2,sp,ep=2,etp=1", "tp=2,sp,pp=2"])
def test_ranks_that_cut_sequences_compute_together_what_one_rank_computes(words):
    assert flops(traced(words, model=DEEPSEEK)) == flops(traced("dp=1", model=DEEPSEEK))


def test_without_sequence_parallelism_every_rank_multiplies_all_tokens_by_the_narrow_weights():
    more = flops(traced("tp=2", model=DEEPSEEK)) - flops(traced("dp=1", model=DEEPSEEK))
    assert more == 3 * 2 * B * S * (NARROW + ROUTERS)  # on one rank more


def test_gradients_of_narrow_weights_are_summed_where_each_rank_has_those_of_its_own_tokens():
    cut, whole = (asked(traced(words, model=DEEPSEEK)) for words in ("tp=2,sp", "tp=2"))
    norms = L * (2 * H + QUERY + KEY) + H
    assert cut["tp", "all_reduce", norms + NARROW + ROUTERS, "float32"] == 1
    of_loss = {("tp", "all_reduce", B * S, "float32"): 3}
    norm = {("tp", "all_reduce", 1, "float32"): 1}
    assert {key: n for key, n in whole.items() if key[0] == "tp" and key[3] == "float32"} == of_loss | norm
