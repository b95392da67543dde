"""Megatron-LM's list of requests against closed forms of the papers: h hidden, l layers, s tokens, b sequences at once."""

from collections import Counter

import numpy as np
import pytest

from emu.errors import InputError
from emu.model.generate.generate import generate
from emu.model.generate.item import Computation
from emu.model.generate.megatron.megatron_layer import pieces
from emu.model.model import MODELS
from emu.model.operator import Cut, Tokens
from emu.model.plan.plan_text import parse_plan
from emu.model.stack.stack import parse_stack, saved_amount
from emu.trace.kernel_shape import Kernel, Shape
from emu.trace.trace import Kind
from tests.model.generate.megatron_steps import GPT, LLAMA, B, H, L, S, V, asked, flops, traced


@pytest.mark.parametrize(
    "words", ["dp=2", "tp=4,dp=2", "tp=2,sp,pp=2,dp=2", "pp=2,vp=2,dp=2", "pp=2,vp=2,dp=2,layers=0,4x2,0", "tp=2,pp=4"]
)
@pytest.mark.parametrize(
    ("recompute", "factor", "attention", "vocabulary"),
    [("none", 72, 1 / 6, 1 / 12), ("full", 96, 1 / 6, 1 / 16), ("selective", 72, 2 / 9, 1 / 12)],
)
def test_flops_of_all_ranks_are_those_of_the_papers(words, recompute, factor, attention, vocabulary):
    """Narayanan et al. (2021), equation 2 and appendix; Korthikanti et al. (2022), appendix A."""
    found = flops(traced(f"{words},recompute={recompute}", "attention=unfused", model=GPT))
    assert found == pytest.approx(factor * B * S * L * H**2 * (1 + attention * S / H + vocabulary * V / (L * H)), rel=1e-12)


@pytest.mark.parametrize("recompute", ["none", "full"])
def test_tensor_parallelism_reduces_twice_a_layer_and_direction(recompute):
    """Korthikanti et al., section 4.1: s b h each time; the embedding once, the head's input gradient once."""
    again = 2 * L if recompute == "full" else 0
    found = asked(traced(f"tp=4,microbatch=4,recompute={recompute}"))
    passes = B // 4
    assert found["tp", "all_reduce", 4 * S * H, "bfloat16"] == passes * (4 * L + 2 + again)
    assert found["tp", "all_reduce", 4 * S, "float32"] == 3 * passes  # of the loss
    assert sum(found.values()) == passes * (4 * L + 2 + again + 3) + 1  # and the norm


@pytest.mark.parametrize("recompute", ["none", "full"])
def test_sequence_parallelism_gathers_and_scatters_and_gathers_once_more_for_weights(recompute):
    """Korthikanti et al., section 4.2.2: each all_reduce is a gather and a scatter, and two more gathers a layer backward."""
    again = 2 * L if recompute == "full" else 0
    found = asked(traced(f"tp=4,sp,microbatch=4,recompute={recompute}"))
    passes, size = B // 4, (4 * S * H, "bfloat16")
    assert found["tp", "reduce_scatter", *size] == passes * (4 * L + 2 + again)
    assert found["tp", "all_gather", *size] == passes * (4 * L + 2 + again + 2 * L + 1)
    assert found["tp", "all_reduce", 2 * L * H + H, "float32"] == 1  # the gradients of all norms


@pytest.mark.parametrize("tp", [1, 4])
def test_gradients_are_reduced_in_float32_and_weights_gathered_in_bfloat16(tp):
    """4 bytes a parameter, and 2 with the distributed optimizer, whose AdamW changes a share: ZeRO, stage 1."""
    held = LLAMA.parameters(tp)
    whole, scattered = asked(traced(f"tp={tp},dp=4")), asked(traced(f"tp={tp},dp=4,sharding=zero1"))
    assert whole["dp", "all_reduce", held, "float32"] == 1
    filled = -(-held // 128) * 128
    assert scattered["dp", "reduce_scatter", filled, "float32"] == scattered["dp", "all_gather", filled, "bfloat16"] == 1
    for words, share in (("", held), (",sharding=zero1", filled // 4)):
        events = traced(f"tp={tp},dp=4{words}").events[0]
        (row,) = (i for i in range(len(events)) if events.name[i] == "adamw")
        assert events.bytes[row] == share * (4 + 2 * (4 + 4 + 4) + 2)


def test_the_squares_of_gradients_are_added_up_over_all_that_cut_them_unless_nothing_is_clipped():
    def scalars(words):
        return [axis for axis, _, n, _ in asked(traced(words)) if n == 1]

    assert scalars("tp=2,dp=2,pp=2") == ["tp", "pp"]
    assert scalars("tp=2,dp=2,pp=2,sharding=zero1") == ["dp", "tp", "pp"]
    assert scalars("tp=2,dp=2,pp=2,clip=0") == []


@pytest.mark.parametrize(
    ("words", "share"), [("pp=4", 1), ("pp=4,tp=2", 1), ("pp=4,tp=2,sp", 2), ("pp=2,vp=2", 1), ("pp=2,vp=4", 1)]
)
def test_a_place_sends_each_microbatch_of_each_chunk_once_a_direction(words, share):
    """Narayanan et al., sections 2.2.2 and 3.2: b s h, v times as often where a place has v chunks; with sp a share of tp."""
    plan = parse_plan(words, global_batch=B, seq=S)
    for rank in (0, plan.stage_ranks, plan.world - 1):
        found = asked(traced(words), rank)
        ends = (rank < plan.stage_ranks) + (rank >= plan.world - plan.stage_ranks)
        times = B * (2 * plan.vp - ends)
        size = (S * H // share, "bfloat16")
        assert (found["pp", "send", *size], found["pp", "recv", *size]) == (times, times)


@pytest.mark.parametrize("words", ["pp=4,tp=2", "pp=2,vp=2,tp=4"])
def test_scattered_messages_are_a_share_of_tp_each_and_gathered_where_they_come(words):
    """Narayanan et al., section 4.1: b s h / t each; what sequence parallelism cuts is cut already."""
    plan = parse_plan(words, global_batch=B, seq=S)
    for rank in (0, plan.stage_ranks, plan.world - 1):
        whole, scattered = asked(traced(words), rank), asked(traced(words, "messages=scattered"), rank)
        came = whole["pp", "recv", S * H, "bfloat16"]
        assert came == scattered["pp", "recv", S * H // plan.tp, "bfloat16"] > 0
        assert scattered["pp", "send", S * H // plan.tp, "bfloat16"] == whole["pp", "send", S * H, "bfloat16"]
        assert scattered["tp", "all_gather", S * H, "bfloat16"] == came
    assert asked(traced(f"{words},sp")) == asked(traced(f"{words},sp", "messages=scattered"))


@pytest.mark.parametrize("words", ["pp=2", "pp=4,tp=2,dp=2,sharding=zero1"])
def test_both_ends_of_a_pipeline_add_up_the_gradient_of_a_tied_table(words):
    plan, trace = parse_plan(words, global_batch=B, seq=S), traced(words, model=GPT)
    key = ("embedding", "all_reduce", V * H // plan.tp, "float32")
    times = [asked(trace, rank)[key] for rank in range(plan.world)]
    assert sum(n for rank in range(plan.world) for (axis, *_), n in asked(trace, rank).items() if axis == key[0]) == sum(times)
    assert times == [int(rank // plan.stage_ranks in (0, plan.pp - 1)) for rank in range(plan.world)]
    ends = [trace.groups[g].ranks for g in trace.group_of[0] if trace.groups[g].axis == "embedding"]
    assert ends == [(0, plan.world - plan.stage_ranks)]
    assert not any(axis == "embedding" for axis, *_ in asked(traced(words)))


def test_what_overlaps_asks_for_the_same_bytes():
    experts = MODELS.find("mixtral-tiny")
    assert asked(traced("dp=2,ep=2", "ep=overlapped", experts)) == asked(traced("dp=2,ep=2", model=experts))
    for words, stack in (("tp=4,sp,dp=2", "tp=overlapped"), ("tp=4,sp,dp=2", "tp=exposed"), ("pp=2,vp=2", "pp=exposed"),
                         ("pp=4", "pp=overlapped"), ("dp=4,sharding=zero1", "dp=overlapped"),
                         ("pp=2,vp=2,dp=2,sharding=zero1", "dp=chunked")):  # fmt: skip
        assert asked(traced(words, stack)) == asked(traced(words))


def moved(trace, operation, axis="tp"):
    """Elements of all requests of one kind."""
    return sum(of[2] * times for of, times in asked(trace).items() if of[:2] == (axis, operation))


def test_in_pieces_the_same_is_computed_and_asked_for_and_a_quarter_of_each_scatter_is_waited_for():
    whole, cut = (traced("tp=4,sp,microbatch=4", f"tp={how}") for how in ("overlapped", "chunked"))
    assert flops(cut) == flops(whole)
    for operation in ("all_gather", "reduce_scatter"):
        assert moved(cut, operation) == moved(whole, operation)
    events = cut.events[0]
    rows = np.flatnonzero((events.kind == Kind.COLLECTIVE) & (events.count == 4 * S * H // 4))
    assert len(rows) == 2 * L * B // 4  # the last piece of what each block of the forward gives
    waited = set(events.wait.tolist())
    assert all(row in waited for row in rows.tolist())
    assert all(events.kind[row + 1] == Kind.COMPUTE and row in events.wait[events.wait_start[row + 1] :][:2] for row in rows)
    found = Counter(events.m[(events.flops > 0) & (events.k > 0)].tolist())
    assert found[S * 4 // 4] > found.get(S * 4, 0)


@pytest.mark.parametrize("rows", [8, 9, 11])
def test_pieces_of_a_product_add_up_to_it_whatever_is_left_over(rows):
    work = Computation("mm", 10 * rows + 3, 7 * rows + 1, 5 * rows + 2, Shape(Kernel.PRODUCT, 1, rows, 3, 5), "bfloat16")
    cut = pieces(work, 4)
    assert [each.shape.m for each in cut] == [rows // 4] * 3 + [rows - 3 * (rows // 4)]
    for name in ("flops", "bytes", "elements"):
        assert sum(getattr(each, name) for each in cut) == getattr(work, name)


def test_a_deferred_gradient_of_the_head_comes_after_the_last_backward():
    """The FLOPs stay the same; the first three of four microbatches leave theirs for later, and only on the last stage."""
    now, later = (traced("pp=2,tp=2,sp,microbatch=4", stack) for stack in ("", "deferred=3"))
    assert flops(later) == flops(now)
    shape = (V // 2, H, 4 * S)  # of the gradient of half of the head's weight

    def places(trace, rank):
        e = trace.events_of(rank)
        return np.flatnonzero((e.m == shape[0]) & (e.n == shape[1]) & (e.k == shape[2])).tolist()

    assert [len(places(trace, 2)) for trace in (now, later)] == [B // 4, B // 4]
    received = np.flatnonzero(later.events_of(2).kind == Kind.SEND).max()
    assert [place > received for place in places(later, 2)] == [False] + [True] * 3
    assert not any(place > np.flatnonzero(now.events_of(2).kind == Kind.SEND).max() for place in places(now, 2))
    assert later.events_of(0).flops.tolist() == now.events_of(0).flops.tolist()
    computed = [sorted(zip(e.name, e.bytes.tolist(), strict=True)) for e in (now.events_of(2), later.events_of(2))]
    assert [each for each in computed[1] if each not in computed[0]] == []
    kernels = [sum(e.kind == Kind.COMPUTE) for e in (now.events_of(2), later.events_of(2))]
    assert kernels[0] == kernels[1]  # nothing but the gradients is computed later


@pytest.mark.parametrize(
    ("kind", "model"), [("loss", "llama-tiny"), ("router", "mixtral-tiny"), ("permutation", "mixtral-tiny")]
)
def test_what_is_not_fused_moves_more_and_computes_the_same(kind, model):
    fused, apart = (traced("microbatch=4", stack, MODELS.find(model)) for stack in ("", f"unfused={kind}"))
    assert flops(apart) == flops(fused)
    assert apart.events[0].bytes.sum() > fused.events[0].bytes.sum()


def test_rows_of_experts_are_added_to_their_tokens_by_a_kernel_of_its_own_unless_it_is_fused():
    """Forward the outputs of the experts, backward the gradients of their inputs: top-k rows of each token in each layer."""
    model = MODELS.find("mixtral-tiny")
    fused, apart = (traced("microbatch=4", stack, model).events[0] for stack in ("", "unfused=permutation"))
    added = apart.kernel == Kernel.SCATTER_ADD
    rows = model.top_k * B * S * model.layers
    assert (apart.batch * apart.m)[added].sum() == 2 * rows
    assert set(apart.n[added].tolist()) == {model.hidden}
    assert not (fused.kernel == Kernel.SCATTER_ADD).any()


def test_fused_accumulation_writes_no_gradient_of_a_product_beside_the_sum():
    """8 B a parameter and microbatch, read and written in float32; else 4 B more, written and read in bfloat16."""
    fused, apart = (traced("microbatch=4", f"accumulation={how}").events[0] for how in ("fused", "unfused"))
    multiplied = LLAMA.parameters() - V * H - (2 * L * H + H)  # but for the embedding and the norms
    assert apart.bytes.sum() - fused.bytes.sum() == B // 4 * 4 * multiplied


def test_unfused_attention_writes_its_scores():
    """Moved four times forward and seven times backward; flash works one product out again, and keeps a float32 a row."""
    flash, unfused = (traced("microbatch=4", f"attention={how}") for how in ("cudnn", "unfused"))
    rows = B * S * LLAMA.heads * L
    assert unfused.events[0].bytes.sum() - flash.events[0].bytes.sum() == 2 * 11 * S * rows - 2 * 4 * rows
    assert flops(flash) - flops(unfused) == 2 * B * S * S * H * L


@pytest.mark.parametrize(
    ("words", "stack", "message"),
    [
        ("dp=2,sharding=fsdp", "", "plan: sharding must be ddp or zero1 with software=megatron, got 'fsdp'"),
        ("pp=2,order=gpipe", "", "plan: order must be 1f1b or interleaved with software=megatron, got 'gpipe'"),
        ("tp=2", "tp=overlapped", "plan: sp must be on where the stack says tp=overlapped, got 'off'"),
        ("tp=2", "tp=chunked", "plan: sp must be on where the stack says tp=chunked, got 'off'"),
        ("dp=4,sharding=zero1,shard=2", "", "plan: shard must be 0 or 4 with software=megatron, got 2"),
    ],
)
def test_what_megatron_has_not_is_refused(words, stack, message):
    with pytest.raises(InputError) as error:
        traced(words, stack)
    assert message in str(error.value)


def test_queries_keys_and_values_are_one_product_that_reads_its_input_once():
    """Forward, in bfloat16: s b h read, weights read, and s b (h + 2 h_kv) written, h_kv being half of h here."""
    events = traced("microbatch=4").events[0]
    (forward, *_) = (int(events.bytes[i]) for i in range(len(events)) if events.name[i] == "attention.wq")
    tokens = 4 * S
    assert forward == 2 * (tokens * H + 2 * H * H + tokens * 2 * H)
    backward = [int(events.bytes[i]) for i in range(len(events)) if events.name[i] == "attention.wq"][L : L + 2]
    assert sorted(backward) == sorted([forward, 2 * (tokens * H + tokens * 2 * H) + 8 * 2 * H * H])


def test_weights_that_are_gathered_as_a_step_begins_are_waited_for_where_they_are_read():
    events = traced("dp=4,sharding=zero1", "dp=overlapped").events[0]
    (gather,) = (i for i in range(len(events)) if events.name[i] == "all_gather")
    (first, *_) = (i for i in range(len(events)) if events.name[i] == "embedding")
    assert gather < first
    assert gather in events.wait[events.wait_start[first] : events.wait_start[first + 1]]


@pytest.mark.parametrize(("chunks", "words"), [(1, "dp=2"), (1, "pp=2,dp=2"), (2, "pp=2,vp=2,dp=2")])
def test_gradients_of_a_chunk_are_reduced_at_once_after_its_last_backward(chunks, words):
    """The first stage does so too; only the chunk whose backward is the step's last has nothing to compute beside its own."""
    events = traced(words, "dp=chunked").events[0]
    reduces = [
        i for i in range(len(events)) if events.name[i] == "all_reduce" and events.dtype[i] == "float32" and events.count[i] > V
    ]
    products = [i for i in range(len(events)) if events.name[i] == "attention.wq"]
    assert len(reduces) == chunks
    assert [any(after > asked for after in products) for asked in reduces] == [True] * (chunks - 1) + [False]


@pytest.mark.parametrize(("tp", "words"), [(1, "dp=1"), (4, "tp=4,sp")])
def test_a_layer_keeps_what_the_paper_counts(tp, words):
    """Korthikanti et al., equation 4 without its masks of dropout: 32 s b h + 2 a s^2 b; recomputed, without the scores."""
    plan, stack = parse_plan(words, global_batch=2, seq=512, microbatch=2), parse_stack("software=megatron,attention=unfused")
    again = parse_plan(f"{words},recompute=selective", global_batch=2, seq=512, microbatch=2)
    for of, scores in ((plan, 1), (again, 0)):
        layer = [o.on(Cut(tp, sequence=of.sp)) for o in GPT.part("dense", Tokens(512, sequences=2))]
        kept = sum(saved_amount(o, stack, of).bytes(2) for o in layer)
        statistics = 2 * 2 * 2 * 512 * 2 // tp  # of two norms, two a token
        assert kept == (32 * 512 * 2 * H + scores * 2 * GPT.heads * 512**2 * 2) // tp + statistics


def test_dropout_moves_scores_and_masks_once_more_and_keeps_them():
    """Korthikanti et al., section 4.1: of a s^2 b scores, what is dropped and a mask of a byte; masks of s b h for two sums."""
    scores, sums = 8 * S**2 * B, 2 * S * B * H
    moved = [
        sum(int(e.bytes.sum()) for e in traced(f"dropout={rate}", "attention=unfused", model=GPT).events) for rate in (0, 0.1)
    ]
    assert moved[1] - moved[0] == 2 * (L * (5 * scores + sums) + S * B * H)  # the embedding's too
    words = parse_plan("dropout=0.1", global_batch=B, seq=S)
    stack, part = parse_stack("software=megatron,attention=unfused"), GPT.part("dense", Tokens(S, sequences=B))
    kept = [
        sum(saved_amount(o, stack, plan).bytes(2) for o in part) for plan in (parse_plan("tp=1", global_batch=B, seq=S), words)
    ]
    assert kept[1] - kept[0] == 3 * scores + sums


def test_dropout_is_refused_where_it_cannot_be_run_or_be():
    plan = parse_plan("dropout=0.1", global_batch=B, seq=S)
    with pytest.raises(InputError, match="dropout must be 0 with software=pytorch, got"):
        generate(GPT, plan, parse_stack("software=pytorch"))
    with pytest.raises(InputError, match="dropout must be 0 or more and below 1, got"):
        parse_plan("dropout=1.5", global_batch=B, seq=S)
