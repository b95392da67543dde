"""Megatron-LM's list of requests against closed forms of the papers: h hidden, l layers, s tokens, b sequences at once."""

from collections import Counter

import numpy as np
import pytest

from emu.errors import InputError
from emu.model.generate.generate import generate
from emu.model.model import MODELS
from emu.model.operator import Cut, Tokens
from emu.model.plan.plan_text import parse_plan
from emu.model.stack.kernels import kept_by
from emu.model.stack.spell import parse_stack
from emu.trace.trace import Kind

GPT, LLAMA = MODELS.find("gpt-tiny"), MODELS.find("llama-tiny")
B, S, H, L, V = 16, 64, 64, 8, 256  # both have 8 layers of 64, and 256 words


def traced(words, stack="", model=LLAMA, **batch):
    plan = parse_plan(words, **{"global_batch": B, "seq": S, **batch})
    return generate(model, plan, parse_stack(f"software=megatron,{stack}" if stack else "software=megatron"))


def asked(trace, rank=0):
    """How often a rank asks for what: axis, operation, elements, dtype."""
    events, groups = trace.events_of(rank), trace.group_of[rank]
    rows = np.flatnonzero((events.kind != Kind.COMPUTE) & (events.kind != Kind.MARK))
    return Counter(
        (trace.groups[groups[events.group[i]]].axis, events.name[i], int(events.count[i]), events.dtype[i]) for i in rows
    )


def flops(trace):
    return sum(trace.events_of(rank).flops.sum() for rank in range(trace.n_ranks))


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
    pieces = Counter(events.m[(events.flops > 0) & (events.k > 0)].tolist())
    assert pieces[S * 4 // 4] > pieces.get(S * 4, 0)


def test_a_deferred_gradient_of_the_head_comes_after_the_last_backward():
    """As many FLOPs in all; the first three of four microbatches leave theirs, and only on the last stage."""
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


@pytest.mark.parametrize(
    ("kind", "model"), [("loss", "llama-tiny"), ("router", "mixtral-tiny"), ("permutation", "mixtral-tiny")]
)
def test_what_is_not_fused_moves_more_and_computes_the_same(kind, model):
    fused, apart = (traced("microbatch=4", stack, MODELS.find(model)) for stack in ("", f"unfused={kind}"))
    assert flops(apart) == flops(fused)
    assert apart.events[0].bytes.sum() > fused.events[0].bytes.sum()


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
    """Of the first stage too; only the chunk whose backward is the step's last has nothing to compute beside its own."""
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
        kept = sum(kept_by(o, stack, of).bytes(2) for o in layer)
        statistics = 2 * 2 * 2 * 512 * 2 // tp  # of two norms, two a token
        assert kept == (32 * 512 * 2 * H + scores * 2 * GPT.heads * 512**2 * 2) // tp + statistics


MOE = MODELS.find("mixtral-tiny")  # 4 experts, of which a token sees 2, in each of 8 layers


@pytest.mark.parametrize(("tp", "ep", "etp"), [(1, 2, 1), (1, 4, 1), (2, 2, 2), (2, 4, 1), (2, 1, 2), (4, 2, 2)])
def test_rows_travel_to_their_experts_and_back_in_both_directions(tp, ep, etp):
    """k s b h / tp each time over ep; what a rank has of them is gathered and scattered over etp."""
    sp = ",sp" if tp > 1 else ""
    found = asked(traced(f"tp={tp}{sp},dp=4,ep={ep},etp={etp},microbatch=1", model=MOE))
    rows, passes = MOE.top_k * S // tp * H, B // 4
    assert found["ep", "all_to_all", rows, "bfloat16"] == (4 * L * passes if ep > 1 else 0)
    for operation in ("all_gather", "reduce_scatter"):
        assert found["etp", operation, etp * rows, "bfloat16"] == (2 * L * passes if etp > 1 else 0)
    counts = [n for (_, _, _, dtype), n in found.items() if dtype == "int64"]
    assert counts == ([L * passes] if ep * etp > 1 else [])


@pytest.mark.parametrize(("tp", "ep", "etp"), [(1, 2, 1), (1, 4, 1), (2, 2, 2), (2, 1, 1), (2, 4, 2)])
def test_rows_are_sorted_by_expert_where_a_rank_has_several(tp, ep, etp):
    """To them and back, in both directions: each time etp x k s b h / tp elements are read and written."""
    sp = ",sp" if tp > 1 else ""
    events = traced(f"tp={tp}{sp},dp=4,ep={ep},etp={etp},microbatch=1", model=MOE).events_of(0)
    moved = [int(events.bytes[i]) for i in range(len(events)) if events.name[i] == "sorted"]
    each, passes = 2 * 2 * etp * MOE.top_k * S // tp * H, B // 4
    assert moved == ([] if ep == MOE.experts else [each] * (4 * L * passes))


def test_nobody_is_told_how_many_rows_come_where_a_capacity_says_it():
    found = asked(traced("tp=2,sp,dp=4,ep=2,etp=2,microbatch=1,capacity=1", model=MOE))
    assert not [key for key in found if key[3] == "int64"]


def test_rows_may_travel_to_their_experts_in_another_dtype_than_back():
    found = asked(traced("tp=2,sp,dp=4,ep=2,etp=2,microbatch=1", "dispatch=float8_e4m3fn", model=MOE))
    rows, times = MOE.top_k * S // 2 * H, 2 * L * B // 4
    assert found["ep", "all_to_all", rows, "float8_e4m3fn"] == found["ep", "all_to_all", rows, "bfloat16"] == times
    assert (
        found["etp", "all_gather", 2 * rows, "float8_e4m3fn"] == found["etp", "reduce_scatter", 2 * rows, "bfloat16"] == times
    )


@pytest.mark.parametrize("words", ["dp=4,ep=4", "tp=2,sp,dp=2,ep=2,pp=2", "tp=2,sp,dp=2,ep=4,etp=1"])
@pytest.mark.parametrize("name", ["mixtral-tiny", "gpt-moe-tiny"])
def test_flops_of_experts_are_those_of_the_model_wherever_they_are(name, words):
    model = MODELS.find(name)
    assert flops(traced(words, model=model)) == B * sum(model.flops(S))


def test_gradients_of_experts_are_reduced_over_those_that_have_copies():
    """Of dense weights over tp x dp / tp ranks, of experts over tp x dp / (ep x etp)."""
    here, own = MOE.parameters(2, 2, 1), 3 * 64 * 96 * 2 * L
    found = asked(traced("tp=2,sp,dp=4,ep=2,etp=1,sharding=zero1", model=MOE))
    (dense,), (experts,) = ([n for axis, what, n, _ in found if (axis, what) == (of, "reduce_scatter")] for of in ("dp", "edp"))
    assert (dense, experts) == (-(-(here - own) // 128) * 128, own)
    assert (found["dp", "all_gather", dense, "bfloat16"], found["edp", "all_gather", experts, "bfloat16"]) == (1, 1)
    assert [axis for axis, _, n, _ in found.elements() if n == 1] == ["dp", "tp"]  # all ranks, once


@pytest.mark.parametrize("words", ["tp=2", "tp=4,dp=2"])
def test_without_sp_experts_that_all_ranks_of_tp_share_are_added_up_as_any_block(words):
    """InfiniteHBD, table 3: an all_reduce of b s h a layer and direction, whatever k is; and no row travels."""
    plan = parse_plan(words, global_batch=B, seq=S, microbatch=1)
    found = asked(traced(f"{words},microbatch=1", model=MOE))
    assert found["tp", "all_reduce", S * H, "bfloat16"] == plan.passes * (4 * L + 2)
    assert not any(axis in ("etp", "ep") for axis, *_ in found)


def test_without_sp_what_each_rank_of_tp_got_back_from_experts_is_gathered():
    """In the forward, and of the gradients of what they read; the rest of a layer is added up."""
    found, passes = asked(traced("tp=2,dp=4,ep=4,etp=1,microbatch=1", model=MOE)), B // 4
    assert found["tp", "all_gather", S * H, "bfloat16"] == passes * 2 * L
    assert found["tp", "all_reduce", S * H, "bfloat16"] == passes * (2 * L + 2)
    assert found["ep", "all_to_all", MOE.top_k * S // 2 * H, "bfloat16"] == passes * 4 * L


@pytest.mark.parametrize(("words", "here"), [("dp=4,ep=4", 1), ("dp=2,ep=2", 2), ("tp=2,sp,dp=4,ep=4,etp=2", 1)])
@pytest.mark.parametrize("imbalance", [0.25, 0.5])
def test_the_step_is_that_of_the_rank_with_the_fullest_expert(words, here, imbalance):
    """One of 4 experts has the most rows, each other 1 - imbalance of them; `here` are on one rank."""
    others = 1 - imbalance
    more = 4 * (1 + (here - 1) * others) / (here * (1 + 3 * others))
    even, uneven = (traced(f"{words}{which}", model=MOE) for which in ("", f",imbalance={imbalance}"))

    def of_experts(trace):
        events = trace.events[0]
        return sum(int(events.flops[i]) for i in range(len(events)) if ".experts.w" in events.name[i])

    def travelled(trace):
        return {n for axis, what, n, _ in asked(trace) if what == "all_to_all"}

    assert of_experts(uneven) / of_experts(even) == pytest.approx(more, rel=0.02)  # rows are whole
    assert flops(uneven) - of_experts(uneven) * uneven.n_ranks == flops(even) - of_experts(even) * even.n_ranks
    (rows,), (most,) = travelled(even), travelled(uneven)
    assert most / rows == pytest.approx(more, rel=0.02)


def test_tensor_parallelism_alone_knows_no_fullest_expert():
    even, uneven = (traced(f"tp=2,sp,dp=2{which}", model=MOE) for which in ("", ",imbalance=0.5"))
    assert (flops(even), asked(even)) == (flops(uneven), asked(uneven))


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
    assert flops(traced(words)) == B * sum(LLAMA.flops(S))
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
    whole, attended = sum(LLAMA.flops(S)), 14 * S * S * H * L  # 4 forward, 10 backward by flash
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


def test_dropout_moves_scores_and_masks_once_more_and_keeps_them():
    """Korthikanti et al., section 4.1: of a s^2 b scores, what is dropped and a mask of a byte; masks of s b h for two sums."""
    scores, sums = 8 * S**2 * B, 2 * S * B * H
    moved = [
        sum(int(e.bytes.sum()) for e in traced(f"dropout={rate}", "attention=unfused", model=GPT).events) for rate in (0, 0.1)
    ]
    assert moved[1] - moved[0] == 2 * (L * (5 * scores + sums) + S * B * H)  # the embedding's too
    words = parse_plan("dropout=0.1", global_batch=B, seq=S)
    stack, part = parse_stack("software=megatron,attention=unfused"), GPT.part("dense", Tokens(S, sequences=B))
    kept = [sum(kept_by(o, stack, plan).bytes(2) for o in part) for plan in (parse_plan("tp=1", global_batch=B, seq=S), words)]
    assert kept[1] - kept[0] == 3 * scores + sums


def test_dropout_is_refused_where_it_cannot_be_run_or_be():
    plan = parse_plan("dropout=0.1", global_batch=B, seq=S)
    with pytest.raises(InputError, match="dropout must be 0 with software=pytorch, got"):
        generate(GPT, plan, parse_stack("software=pytorch"))
    with pytest.raises(InputError, match="dropout must be 0 or more and below 1, got"):
        parse_plan("dropout=1.5", global_batch=B, seq=S)


def test_a_stage_without_experts_takes_part_in_the_norm_of_those_of_the_others():
    """Of 8 stages each second layer has experts: on two places of four all that have them are on one."""
    trace = traced("ep=2,dp=2,pp=2,vp=4", model=MODELS.find("gpt-moe-tiny"))
    norms = [asked(trace, rank)["pp", "all_reduce", 1, "float32"] for rank in range(trace.n_ranks)]
    assert norms == [2] * trace.n_ranks  # of dense gradients and of those of experts
