"""An attention whose tokens lie on several ranks gives what it gives on one: what it asks for, computes, and in which order."""

import numpy as np
import pytest
import torch

from emu.cluster.threads.threads import LocalCluster
from emu.collective.choice import Choice
from emu.model.operator import ATTENTION, Tokens
from emu.model.parallel.context_parallel import shard_sequences
from emu.model.parallel.mesh import build_mesh
from emu.model.parts.attention_block import Attention, Heads, attention_operators
from emu.model.plan.plan import Plan
from emu.trace.trace import Kind

HEADS = Heads(hidden=32, heads=4, kv_heads=2, head_dim=8, turned=8)
B, T = 2, 24
KERNEL = "aten._scaled_dot_product_flash_attention_for_cpu"
WAYS = ["p2p", "all_gather"]


def plan_of(cp, way):
    return Plan(cp=cp, cp_comm=way, seq=T, global_batch=B)


def attended(plan):
    """Output and the gradients of input and weights: of all ranks, put together; the trace, and the same of one process."""
    torch.manual_seed(0)
    x, upstream = torch.randn(B, T, 32), torch.randn(B, T, 32)

    def ran(module, at):
        part = x[:, at].clone().requires_grad_()
        out = module(part)
        out.backward(upstream[:, at])
        return out.detach(), part.grad, [p.grad for p in module.parameters()]

    def built():
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(1)
            return Attention(HEADS, T)

    def on_rank(rank):
        module = built()
        shard_sequences(module, build_mesh(plan)["cp"], plan, plan.positions(rank))
        return ran(module, plan.positions(rank))

    parts, trace = LocalCluster().run_traced(plan.world, Choice(), on_rank)
    out, gradient = torch.full_like(x, torch.nan), torch.full_like(x, torch.nan)
    for rank, (of_rank, gradient_of_rank, _) in enumerate(parts):
        out[:, plan.positions(rank)], gradient[:, plan.positions(rank)] = of_rank, gradient_of_rank
    weights = [torch.stack(each).sum(0) for each in zip(*(weights for _, _, weights in parts), strict=True)]
    return (out, gradient, weights), ran(built(), np.arange(T)), trace


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("cp", [2, 3, 4])
def test_an_attention_over_ranks_is_the_attention_of_one(cp, way):
    (out, gradient, weights), (whole, of_input, of_weights), _ = attended(plan_of(cp, way))
    for found, wanted in [(out, whole), (gradient, of_input), *zip(weights, of_weights, strict=True)]:
        torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)


def rows(trace, rank):
    """Requests and attentions in the order of issue: (row, what, bytes, FLOPs)."""
    events = trace.events_of(rank)
    for row, (name, kind) in enumerate(zip(events.name, events.kind, strict=True)):
        if kind == Kind.COLLECTIVE or name.startswith(KERNEL):
            yield row, name.removeprefix(KERNEL), int(events.bytes[row]), events.flops[row]


def waited_for(trace, rank, request):
    """The first row that waits for it."""
    events = trace.events_of(rank)
    return int(np.searchsorted(events.wait_start, np.flatnonzero(events.wait == request)[0], "right")) - 1


KV = B * HEADS.kv_heads * HEADS.head_dim * 4  # bytes a token of keys, or of values


def test_a_ring_sends_keys_and_values_one_rank_on_while_it_attends_to_what_is_here():
    cp = 3
    *_, trace = attended(plan_of(cp, "p2p"))
    for rank in range(cp):
        seen = list(rows(trace, rank))
        # One buffer with keys and values, before the attention; backward the gradients' buffer follows each attention.
        forward, backward = ["all_to_all", ""] * (cp - 1) + [""], ["all_to_all", "_backward"]
        assert [what for _, what, *_ in seen] == (
            forward + backward + ["all_to_all", *backward] * (cp - 2) + ["all_to_all", "_backward", "all_to_all"]
        )
        exchanged = [of for _, what, of, _ in seen if what == "all_to_all"]
        assert exchanged == [2 * KV * T // cp] * (3 * cp - 2)
        attentions, exchanges = ([row for row, name, *_ in seen if name == what] for what in ("", "all_to_all"))
        for exchange, meanwhile, after in zip(exchanges, attentions, attentions[1:], strict=False):
            assert exchange < meanwhile < waited_for(trace, rank, exchange) <= after
        events = trace.events_of(rank)
        for row in exchanges:
            given = events.split[events.split_start[row] : events.split_start[row + 1]]
            assert np.flatnonzero(given).tolist() == [(rank + 1) % cp]
            assert trace.groups[trace.group_of[rank][events.group[row]]].axis == "cp"


def test_gathered_keys_and_values_come_at_once_and_their_gradients_go_back_at_once():
    cp = 3
    *_, trace = attended(plan_of(cp, "all_gather"))
    for rank in range(cp):
        seen = list(rows(trace, rank))
        assert [what for _, what, *_ in seen] == ["all_gather"] * 2 + ["", "_backward"] + ["reduce_scatter"] * 2
        (keys, *_), (values, *_), (attention, *_), *_ = seen
        assert values == keys + 1 < waited_for(trace, rank, values) <= attention
        for row, what, of, _ in seen:
            if what in ("all_gather", "reduce_scatter"):
                assert of == KV * T
                assert trace.groups[trace.group_of[rank][trace.events_of(rank).group[row]]].axis == "cp"


@pytest.mark.parametrize("cp", [2, 4])
@pytest.mark.parametrize("way", WAYS)
def test_ranks_share_the_flops_of_attention_evenly(cp, way):
    """Gathered they are the list's; in a ring the halves that a causal mask hides are skipped."""
    *_, trace = attended(plan_of(cp, way))
    (core,) = (o for o in attention_operators(HEADS, Tokens(T, sequences=B)) if o.kind == ATTENTION)
    kept = (cp + 1) / (2 * cp) if way == "p2p" else 1
    for which, listed in (("", core.eager.forward), ("_backward", core.eager.backward)):
        of_ranks = [sum(flops for _, what, _, flops in rows(trace, rank) if what == which) for rank in range(cp)]
        assert of_ranks == [kept * listed.flops / cp] * cp


def test_under_a_causal_mask_every_rank_sees_as_many_keys():
    plan = plan_of(4, "p2p")
    at = [plan.positions(rank) for rank in range(4)]
    assert np.array_equal(np.sort(np.concatenate(at)), np.arange(T))
    assert len({int((each + 1).sum()) for each in at}) == 1
