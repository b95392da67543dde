"""Megatron-LM's list of requests against counts by hand from its source: core_v0.15.3, the files that each test names.

h hidden, f columns of the feed-forward block, k of keys, V words, t ranks of tp, n tokens of a microbatch.
"""

from collections import Counter
from math import lcm, prod

import numpy as np
import pytest

from emu.model.generate.generate import generate
from emu.model.generate.megatron.chunk import Buffer, Tensor
from emu.model.generate.tape import Tape
from emu.model.model import MODELS
from emu.model.plan.plan_text import parse_plan
from emu.model.stack.stack import Precision, parse_stack
from emu.trace.trace import Kind

L, H, V = 8, 64, 256  # of the tiny models
B, S = 16, 64


def traced(name, words, stack="", **batch):
    plan = parse_plan(words, **{"global_batch": B, "seq": S, **batch})
    return plan, generate(MODELS.find(name), plan, parse_stack(f"software=megatron,{stack}" if stack else "software=megatron"))


def asked(trace, operation, rank=0):
    """The elements of each request of one kind, in the order of issue, by axis."""
    events, groups, found = trace.events_of(rank), trace.group_of[rank], {}
    for i in np.flatnonzero(events.kind == Kind.COLLECTIVE):
        if events.name[i] == operation and events.count[i] > 1:
            found.setdefault(trace.groups[groups[events.group[i]]].axis, []).append(int(events.count[i]))
    return found


def computed(trace, name, rank=0):
    """Bytes of each computation of that name."""
    events = trace.events_of(rank)
    return [int(events.bytes[i]) for i in range(len(events)) if events.name[i] == name and events.kind[i] == Kind.COMPUTE]


def filled(elements, ranks):
    """param_and_grad_buffer.py, `_pad_end_of_bucket_if_needed`."""
    return -(-elements // lcm(ranks, 128)) * lcm(ranks, 128)


LLAMA_8B = {"qkv": 4096 * (4096 + 2 * 1024), "proj": 4096**2, "fc1": 2 * 14336 * 4096, "fc2": 14336 * 4096, "norm": 4096}


def summed(words, of):
    return sum(of[word] for word in words.split())


@pytest.mark.parametrize(("dp", "cp"), [(8, 1), (8, 8), (64, 1), (64, 2)])
def test_buckets_hold_a_million_parameters_a_rank_of_dp_and_no_fewer_than_forty(dp, cp):
    """distributed_data_parallel.py: max(40 M, 1 M x ranks of dp without cp). Tensors come in reverse; a bucket that is full
    ends. Of Llama 3 8B fc2 has 59 M, fc1 117 M, and proj with qkv 42 M."""
    _, trace = traced("llama3-8b", f"dp={dp},cp={cp},sharding=zero1", "dp=overlapped", global_batch=dp, seq=8192)
    (found,) = asked(trace, "reduce_scatter").values()
    table = 128_256 * 4096
    if dp == 8:  # 40 M
        last = "norm", table
        middle = ["norm fc2", "fc1", "norm proj qkv"] * 32
    else:  # 64 M
        last = "norm proj qkv norm", table
        middle = ["norm fc2 fc1", *["norm proj qkv norm fc2", "fc1"] * 31]
    wanted = [table, *(summed(words, LLAMA_8B) for words in middle), summed(last[0], LLAMA_8B) + last[1]]
    assert found == [filled(elements, dp * cp) for elements in wanted]
    assert list(asked(trace, "all_gather").values())[-1] == found[::-1]  # weights in the order of the forward


def test_buckets_of_experts_are_as_large_as_those_of_all_other_weights():
    """distributed_data_parallel.py: one `bucket_size` for both. Of 64 M, and not of the 40 M that 8 ranks of edp would have."""
    _, trace = traced("mixtral-8x7b", "dp=64,ep=8,sharding=zero1", "dp=overlapped", global_batch=64, seq=4096)
    fc1, fc2 = 2 * 14336 * 4096, 14336 * 4096
    assert asked(trace, "reduce_scatter")["edp"] == [fc1 + fc2] * 32


@pytest.mark.parametrize("words", ["pp=4,dp=2", "pp=2,vp=2,dp=2"])
def test_buckets_are_of_the_first_chunk_alone(words):
    """distributed_data_parallel.py, `disable_bucketing or pp_rank > 0`; training.py: of chunks after the first."""
    plan, trace = traced("llama3-8b", words, "dp=overlapped", global_batch=16, seq=1024)
    counts = [len(asked(trace, "all_reduce", place * plan.stage_ranks)["dp"]) for place in range(plan.pp)]
    layers = 32 // plan.stages
    first = 3 * layers + 1  # each layer's fc2, fc1, proj with qkv; the table
    assert counts == [first + plan.vp - 1, *[plan.vp] * (plan.pp - 1)]


@pytest.mark.parametrize(
    ("scattered", "ranks", "wanted"), [(True, 6, [384, 384, 768]), (True, 4, [256, 256, 512]), (False, 6, [735])]
)
def test_what_is_scattered_begins_where_megatron_aligns_it(scattered, ranks, wanted):
    """param_and_grad_buffer.py: tensors begin at multiples of 64, buckets end at those of lcm(ranks, 128); a table that the
    other end of a pipeline has, too, is a bucket of its own."""
    tensors = [Tensor(100), Tensor(64), Tensor(1), Tensor(200, shared=True), Tensor(300), Tensor(70)]
    # 100, 64 from 128 and 1 from 192: 193. The table: 200. 300, and 70 from 320: 390.
    assert Buffer(Tape("bfloat16"), Precision(), "dp", ranks, scattered, tensors).buckets == wanted


@pytest.mark.parametrize("stack", ["", "dp=overlapped"])
def test_a_table_at_both_ends_of_a_pipeline_is_scattered_by_itself(stack):
    """language_module.py, `shared_embedding`; param_and_grad_buffer.py, `_does_param_require_new_bucket`."""
    plan, trace = traced("gpt-tiny", "pp=2,dp=4,sharding=zero1", stack)
    layer = 12 * H * H + 13 * H
    rest = [1024 * H + 4 * layer, 4 * layer + 2 * H]  # positions; the last norm
    for place, order in ((0, (rest[0], V * H)), (1, (V * H, rest[1]))):
        found = asked(trace, "reduce_scatter", place * plan.stage_ranks)["dp"]
        assert found == [filled(elements, 4) for elements in order]
    whole = traced("gpt-tiny", "pp=2,dp=4", stack)[1]
    assert asked(whole, "all_reduce")["dp"] == [rest[0] + V * H]


@pytest.mark.parametrize("words", ["tp=1", "tp=4,sp", "tp=2,cp=2,cp_comm=all_gather"])
def test_what_selective_recomputation_runs_once_more_is_attention_alone(words):
    """transformer_config.py: `recompute_modules` is core_attn unless something else is asked for."""

    def names(recompute):
        plan, trace = traced("llama-tiny", f"{words},microbatch=4,recompute={recompute}")
        events = trace.events_of(0)
        return plan, Counter(events.name[i] for i in np.flatnonzero(events.kind == Kind.COMPUTE)), trace

    plan, kept, without = names("none")
    _, again, trace = names("selective")
    assert again - kept == {"attention.attention": L * plan.passes}
    forward = computed(without, "attention.attention")[0]
    moved = [sum(sum(computed(of, name)) for name in again) for of in (without, trace)]
    assert moved[1] - moved[0] == L * plan.passes * forward


@pytest.mark.parametrize("tp", [1, 2, 4])
def test_each_rank_takes_the_loss_of_its_share_of_the_vocabulary(tp):
    """cross_entropy.py: logits of n x V / t are read and their softmax written, which the gradient takes the place of; for each
    token three all_reduces over tp, of the largest, the target's and the sum."""
    _, trace = traced("llama-tiny", f"tp={tp},microbatch=4")
    n = 4 * S
    for moved in computed(trace, "loss"):
        assert 0 <= moved - 2 * 2 * n * V // tp <= 16 * n  # and a few figures a token
    assert asked(trace, "all_reduce").get("tp", []).count(n) == (3 * B // 4 if tp > 1 else 0)


@pytest.mark.parametrize("tp", [1, 2])
def test_a_fused_kernel_copies_the_shared_part_of_a_latent_attentions_key_to_every_head(tp):
    """fused_mla_yarn_rope_apply.py, `rotary_fwd_kv_kernel`: of a token k_pe is read once, and written for each of the
    heads; its backward kernel adds what the heads have."""
    _, trace = traced("deepseek-tiny", f"tp={tp},microbatch=4")
    n, heads, turned, layers = 4 * S, 8 // tp, 4, 8
    assert computed(trace, "attention.heads") == [2 * n * (turned + heads * turned)] * (2 * layers * B // 4)


DENSE = ("tp=2,dp=2,pp=2", "tp=2,dp=2,cp=2")
OF_EXPERTS = ("tp=2,sp,dp=4,ep=2,etp=2,pp=2", "tp=4,sp,dp=2,ep=4,etp=1", "tp=2,sp,dp=4,ep=4")


@pytest.mark.parametrize("sharding", ["ddp", "zero1"])
@pytest.mark.parametrize("words", [*DENSE, *OF_EXPERTS])
def test_the_norm_is_of_the_ranks_that_hold_parts_of_what_an_optimizer_changes(words, sharding):
    """optimizer/__init__.py, `grad_stats_parallel_group`: all ranks with the distributed optimizer, once; else tp x pp, and for
    experts expert tp x ep x pp."""
    model = "mixtral-tiny" if "ep=" in words else "llama-tiny"
    plan, trace = traced(model, f"{words},sharding={sharding}")
    for rank in range(plan.world):
        events, groups = trace.events_of(rank), trace.group_of[rank]
        over = [trace.groups[groups[events.group[i]]] for i in np.flatnonzero(events.count == 1) if events.group[i] >= 0]
        sizes = [len(group.ranks) for group in over if rank in group.ranks]
        dense, experts = plan.tp * plan.pp, plan.expert_tp * plan.ep * plan.pp
        wanted = plan.world if sharding == "zero1" else dense * (experts if "ep=" in words else 1)
        assert prod(sizes) == wanted
        assert (sum(group.axis == "pp" for group in over)) == (plan.pp > 1) * (2 if "ep=" in words and sharding == "ddp" else 1)


@pytest.mark.parametrize(("words", "share"), [("tp=4,dp=4", 1), ("tp=4,dp=4,sharding=zero1", 4)])
def test_a_rank_squares_and_scales_the_gradients_that_its_optimizer_changes(words, share):
    """clip_grads.py: the norm reads them once, in float32; what is clipped is read and written. Before, they are set to 0, and
    scaled by 1 / dp as they are reduced."""
    _, trace = traced("llama-tiny", words)
    held = MODELS.find("llama-tiny").parameters(4)
    held = filled(held, 4) if share > 1 else held
    assert computed(trace, "gradients") == [4 * held, 8 * held, 4 * held // share, 8 * held // share]
