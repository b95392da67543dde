"""Context parallelism in Megatron-LM's list of requests, against closed forms: h hidden, s tokens, b sequences at once."""

import numpy as np
import pytest

from emu.model.plan.plan_text import parse_plan
from emu.trace.kernel_shape import Kernel
from emu.trace.trace import Kind
from tests.model.counts import sequence_flops
from tests.model.generate.megatron_steps import LLAMA, B, H, L, S, asked, flops, traced


@pytest.mark.parametrize(
    "words", ["cp=2,cp_comm=all_gather", "cp=4,tp=2,sp,cp_comm=all_gather", "cp=2,dp=2,pp=2,cp_comm=all_gather"]
)
def test_ranks_of_a_sequence_gather_keys_and_values_and_scatter_their_gradients(words):
    """Llama's 4 of 8 heads have keys: a layer's are s b h, of all ranks and both; forward once, and once more backward."""
    plan = parse_plan(words, global_batch=B, seq=S)
    found, share = asked(traced(words)), plan.passes * L // plan.pp
    keys = S * H // plan.tp * plan.pass_batch
    assert found["cp", "all_gather", keys, "bfloat16"] == 2 * share
    assert found["cp", "reduce_scatter", keys, "bfloat16"] == share
    assert flops(traced(words)) == B * sum(sequence_flops(LLAMA, S))
    axis = "cp+dp" if plan.dp > 1 else "cp"
    assert sum(found[key] for key in found if key[:2] == (axis, "all_reduce")) == 1


@pytest.mark.parametrize("words", ["cp=2", "cp=4,tp=2,sp", "cp=2,dp=2,pp=2", "cp=4,recompute=selective", "cp=2,recompute=full"])
def test_keys_and_values_go_round_a_ring_and_their_gradients_home(words):
    """CP - 1 exchanges of a layer forward and backward each, and CP of gradients; half of another block is masked."""
    plan, trace = parse_plan(words, global_batch=B, seq=S), traced(words)
    keys, layers = S * H // plan.cp // plan.tp * plan.pass_batch, plan.passes * L // plan.pp
    forwards = 1 if plan.recompute == "none" else 2
    times = layers * ((forwards + 1) * (plan.cp - 1) + plan.cp)
    for rank in range(plan.world):
        found = asked(trace, rank)
        assert (found["cp", "send", keys, "bfloat16"], found["cp", "recv", keys, "bfloat16"]) == (times, times)
    whole, attended = sum(sequence_flops(LLAMA, S)), 14 * S * S * H * L  # 4 forward, 10 backward by flash
    skipped = attended * (plan.cp - 1) / (2 * plan.cp)
    if plan.recompute == "none":
        assert flops(trace) == B * (whole - skipped)


def test_a_ring_of_exposed_messages_takes_longer_than_one_beside_attention():
    assert asked(traced("cp=4", "cp=exposed")) == asked(traced("cp=4"))
    waits = [traced("cp=4", f"cp={how}").events[0] for how in ("exposed", "overlapped")]
    received = [{i for i in range(len(e)) if e.kind[i] == Kind.RECV} for e in waits]
    first = [min(i for i in range(len(e)) if e.name[i] == "attention.attention") for e in waits]
    before = [set(e.wait[e.wait_start[i] : e.wait_start[i + 1]].tolist()) for e, i in zip(waits, first, strict=True)]
    assert [len(rows & got) for rows, got in zip(before, received, strict=True)] == [1, 0]


@pytest.mark.parametrize("words", ["cp=4", "cp=2,tp=2,sp"])
def test_a_block_of_another_rank_has_half_the_keys_and_no_mask(words):
    """A device times each by its shape: m queries and n keys of all heads, 4 or 10 FLOPs for each of a head's elements."""
    plan, events = parse_plan(words, global_batch=B, seq=S), traced(words).events[0]
    rows = np.flatnonzero((events.kernel == Kernel.CAUSAL) | (events.kernel == Kernel.ATTENTION))
    queries, turns = S // plan.cp, [0, *[1] * (plan.cp - 1)]
    assert events.kernel[rows].tolist() == [(Kernel.CAUSAL, Kernel.ATTENTION)[turn] for turn in turns * (L * plan.passes)]
    assert events.m[rows].tolist() == [queries] * len(rows)
    assert events.n[rows].tolist() == [queries // (1 + turn) for turn in turns * (L * plan.passes)]
    own, other = events.bytes[rows[:2]].tolist()
    assert own / 2 <= other <= 3 * own / 4  # half of the keys and values, and at most all queries and outputs
    behind = np.isin(events.kernel, (Kernel.CAUSAL_BACKWARD, Kernel.ATTENTION_BACKWARD))
    assert behind.sum() == len(rows)
    for of, each in ((rows, 4), (np.flatnonzero(behind), 10)):
        sizes = [getattr(events, name)[of].astype(np.int64) for name in ("batch", "m", "n", "k")]
        assert events.flops[of].tolist() == (each * np.prod(sizes, axis=0)).tolist()
