"""Memory of FSDP2 in mixed precision against closed forms, and what PyTorch's allocator reserves: a pool for each stream.

P parameters in all, R of the embedding and the head, L of a layer; W ranks; T tokens of a rank; V words.
"""

from math import ceil

import pytest

from emu.model.generate.generate import memory_by_part
from emu.model.generate.rank_parts import RankParts
from emu.model.generate.rank_step import reserved_bytes, write_passes
from emu.model.memory.layer_memory import Ledger, Pools
from emu.model.model import MODELS
from emu.model.plan.plan_text import parse_plan
from emu.model.stack.stack import parse_stack

LLAMA, T, V, H, FFN = MODELS.find("llama3.1-8b"), 16_384, 128_256, 4096, 14_336
P = LLAMA.parameters()
LAYER = 2 * H * H + 2 * H * 1024 + 3 * H * FFN + 2 * H
ROOT = P - 32 * LAYER


def asked(ranks, words="software=pytorch,weight=float32", recompute="ops"):
    plan = parse_plan(f"dp={ranks},sharding=fsdp,recompute={recompute},microbatch=2", global_batch=2 * ranks, seq=8192)
    return LLAMA, plan, parse_stack(words)


def ledger_of(*of, **others):
    """The ledger of a rank after a step."""
    return write_passes(RankParts(*asked(*of, **others), lambda *_: None), {})[0].ledger


@pytest.mark.parametrize("ranks", [8, 128])
def test_more_ranks_leave_16_bytes_a_parameter_less(ranks):
    """These are weights, two moments and the gradients that are reduced, which have a pool of their own; all are of float32."""
    alone, shared = (reserved_bytes(*asked(n)) for n in (ranks, 2 * ranks))
    assert alone - shared == pytest.approx(16 * P / (2 * ranks), rel=1e-3)


def test_weights_are_gathered_in_the_dtype_of_activations():
    """At the beginning of a forward the root's weights are in a buffer and the first layer's come; float32 gathers as many."""
    assert ledger_of(8).reserved.gathers == 2 * (ROOT + LAYER)
    whole = ledger_of(8, "software=pytorch,weight=float32,activation=float32")
    assert whole.reserved.gathers == 4 * (ROOT + LAYER)


def test_the_gradients_that_are_reduced_are_of_float32():
    assert ledger_of(8).reserved.reduces == pytest.approx(4 * ceil(P / 8), rel=1e-4)


def test_most_lives_in_the_loss_of_logits_of_float32():
    """The 32 layers keep inputs, five outputs and a log-sum-exp a head; then come the last norm, the logits and the loss."""
    layer = T * (2 * (H + H + 1024 + H + FFN + H) + 4 * 32)
    last = T * (4 * H + 2 * H + 2 * H + 4)  # what was cast, scaled, and weighed; a row's scale
    loss = T * V * (2 + 3 * 4)
    found = ledger_of(128).peak.activations
    assert found == pytest.approx(32 * layer + last + loss, rel=1e-4)


def test_a_compiled_layer_does_not_keep_what_only_the_last_sum_reads():
    eager, compiled = (
        reserved_bytes(*asked(8, f"software=pytorch,weight=float32,compile={what}")) for what in ("nothing", "layers")
    )
    assert eager - compiled == pytest.approx(32 * T * 2 * H, rel=1e-3)


def test_a_pool_keeps_its_most_whenever_that_was():
    ledger = Ledger()
    ledger.change(activations=5)
    ledger.change(activations=-5)
    ledger.change(activations=3, pool="gathers")
    assert (sum(ledger.peak), ledger.reserved) == (5, Pools(5, 3, 0))
    again = Ledger()
    again.change(weights=1)
    again.append(ledger)
    assert again.reserved == Pools(6, 3, 0)
    assert again.pools == Pools(1, 3, 0)


def test_what_lives_is_no_more_than_what_is_reserved():
    for recompute in ("none", "ops", "full"):
        of = asked(8, recompute=recompute)
        assert sum(memory_by_part(*of).values()) <= reserved_bytes(*of)
