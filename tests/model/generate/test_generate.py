"""A generated trace does what real ranks do: requests, order, dependencies and FLOPs exactly, memory traffic within 2 %."""

from pathlib import Path

import numpy as np
import pytest

from emu.errors import InputError
from emu.model.generate.generate import generate, holds, memory_by_part
from emu.model.model import MODELS, find_model
from emu.model.plan.plan_text import parse_plan
from emu.model.stack.stack import Precision, Stack, parse_stack
from emu.trace.trace import Kind
from tests.model.counts import sequence_flops
from tests.model.generate.executed import EXECUTED, compared, executed, splits_of
from tests.two_layers import MODEL, TWO_LAYERS

DATA = Path(__file__).parents[2] / "data"
SINGLE = [
    "dp=1",
    "dp=2",
    "tp=2",
    "tp=4",
    "tp=2,sp",
    "clip=0",
    "dp=2,clip=0",
    "tp=2,clip=0",
    "microbatch=2",
    "dp=2,microbatch=2",
    "recompute=full",
    "tp=2,recompute=full",
    "pp=2",
    "pp=2,order=gpipe",
    "dp=2,sharding=zero1",
    "dp=2,sharding=fsdp",
    "dp=4,sharding=fsdp,shard=2",
    "dp=4,sharding=zero1,shard=2",
    "sharding=fsdp",
]
PRODUCTS = [
    "tp=2,dp=2",
    "tp=2,dp=2,microbatch=1",
    "tp=2,sp,microbatch=1",
    "tp=2,sp,microbatch=2",
    "tp=2,sp,recompute=full",
    "tp=2,sp,dp=2,clip=1",
    "tp=2,sp,dp=2,recompute=full,clip=1",
    "tp=2,sp,dp=2,microbatch=1,recompute=full,clip=1",
    "dp=2,recompute=full,microbatch=2",
    "pp=2,clip=1",
    "pp=2,dp=2",
    "pp=2,tp=2,sp",
    "pp=2,recompute=full,microbatch=2",
    "pp=2,dp=2,tp=2,sp,clip=1",
    "tp=2,dp=2,sharding=zero1",
    "pp=2,dp=2,sharding=zero1",
    "dp=2,sharding=fsdp,microbatch=2",
    "dp=2,sharding=fsdp,clip=1",
    "dp=2,sharding=fsdp,recompute=full",
    "dp=4,sharding=fsdp,shard=2,microbatch=1,recompute=full,clip=1",
    "tp=2,dp=2,sharding=fsdp",
    "tp=2,sp,dp=2,sharding=fsdp",
    "tp=2,dp=2,sharding=fsdp,microbatch=2",
    "tp=2,sp,dp=2,sharding=fsdp,microbatch=1,clip=1,recompute=full",
    "tp=2,dp=4,sharding=fsdp,shard=2,clip=1",
    "pp=2,dp=4,sharding=zero1,shard=2",
    "pp=2,dp=2,sharding=fsdp",
    "pp=2,dp=2,sharding=fsdp,order=gpipe",
    "pp=2,dp=4,sharding=fsdp,shard=2,recompute=full",
    "pp=2,tp=2,sp,dp=2,sharding=fsdp",
]
QUICK = {
    "dp=4,sharding=fsdp,shard=2,microbatch=1,recompute=full,clip=1",
    "dp=1",
    "pp=2,dp=2,sharding=zero1",
    "pp=2,dp=2,sharding=fsdp",
    "tp=2,clip=0",
    "dp=2,recompute=full,microbatch=2",
    "tp=2,sp,recompute=full",
    "tp=2,dp=2,sharding=fsdp,microbatch=2",
    "sharding=fsdp",
}


@pytest.mark.parametrize("words", [w if w in QUICK else pytest.param(w, marks=pytest.mark.slow) for w in SINGLE + PRODUCTS])
def test_a_generated_step_is_what_runs(words):
    assert compared(words).first is None


@pytest.mark.slow
@pytest.mark.parametrize("words", ["dp=1", "dp=2,microbatch=1", "dp=2,sharding=fsdp"])
@pytest.mark.parametrize("name", ["gpt-tiny", "nemotron-tiny", "mixtral-tiny", "deepseek-tiny", "qwen3-moe-tiny"])
def test_a_step_of_another_architecture_is_what_runs(name, words):
    assert compared(words, name, global_batch=4, seq=8).first is None


@pytest.mark.slow
@pytest.mark.parametrize(
    "words", ["pp=3,vp=2,microbatch=2", "pp=3,vp=2,dp=2,clip=1", "pp=2,vp=3,layers=1x6,tp=2,sp", "pp=3,vp=2,dp=2,sharding=fsdp"]
)
def test_stages_that_a_place_has_several_of_take_turns_as_they_run(words):
    assert compared(words, "llama-small", seq=4).first is None


@pytest.mark.slow
def test_weights_of_more_stages_than_are_whole_at_a_time_are_dropped_as_they_run():
    assert compared("pp=2,vp=4,dp=2,sharding=fsdp", "llama-tiny", seq=4).first is None


def test_a_rank_that_shards_alone_gathers_from_nobody_in_a_pipeline_either():
    assert compared("pp=2,vp=2,sharding=fsdp", FOUR_LAYERS, global_batch=4, seq=8).first is None


@pytest.mark.slow
@pytest.mark.parametrize("words", ["dp=2", "tp=2,dp=2"])
def test_gradients_of_several_buckets_are_reduced_as_they_come(words):
    """The buckets of a larger model: the first of 1 MiB, then of 25."""
    found = compared(words, "llama-small", global_batch=4, seq=4)
    assert found.first is None
    assert found.by_axis["dp"].events == (2 * found.ranks,) * 2


FOUR_LAYERS, FOUR_OF_EXPERTS = (str(DATA / f"four-layers{of}.toml") for of in ("", "-of-experts"))
MIXTRAL = str(DATA / "small" / "mixtral.toml")
# By the model: plans whose memory a real rank has to the byte of states and gradients.
HELD = {
    TWO_LAYERS: [
        "recompute=full",
        "recompute=selective",
        "recompute=ops",
        "dp=2,sharding=fsdp,recompute=ops",
        "pp=2,recompute=ops,microbatch=4",
        "tp=2,sp",
        "microbatch=2",
        "dp=2,sharding=zero1",
        "pp=2,dp=2,tp=2",
        "dp=2,sharding=fsdp",
        "sharding=fsdp",
        "dp=4,sharding=fsdp,shard=2,recompute=full",
        "tp=2,sp,dp=2,sharding=fsdp",
        "tp=2,sp,dp=2,sharding=fsdp,microbatch=1,recompute=full",
        "pp=2,sharding=fsdp",
        "pp=2,dp=2,sharding=fsdp,order=gpipe",
        "pp=2,dp=4,sharding=fsdp,shard=2,recompute=full",
        "pp=2,tp=2,sp,dp=2,sharding=fsdp",
        "cp=2",
        "cp=2,cp_comm=all_gather",
    ],
    "llama-small": ["pp=3,vp=2,dp=2,sharding=fsdp", "pp=2,vp=3,dp=2,sharding=fsdp,layers=1x6"],
    "llama-tiny": ["pp=2,vp=4,dp=2,sharding=fsdp"],
    "gpt-tiny": [
        "dp=2,microbatch=1",
        "tp=2",
        "microbatch=2",
        "pp=2,tp=2",
        "dp=2,sharding=fsdp",
        "pp=2,dp=2,sharding=fsdp",
        "tp=2,dp=2,sharding=fsdp",
        "pp=2,vp=2,order=zbv",  # whose ends share a table
        "pp=2,vp=2,order=zero-bubble,tp=2",
    ],
    "mixtral-tiny": ["dp=1", "tp=2,sp", "capacity=1", "pp=2", "recompute=full,tp=2,sp,microbatch=2"],
    "deepseek-tiny": ["dp=1", "pp=2,tp=2", "dp=2,sharding=fsdp"],
    # Backwards in two.
    FOUR_LAYERS: [
        f"pp=2,vp=2,{words}"
        for words in (
            "order=zbv,microbatch=2",
            "order=zbv,tp=2,sp",
            "order=zbv,dp=2,recompute=selective",
            "order=zbv,recompute=full,microbatch=2",
            "order=zero-bubble",
            "order=zero-bubble,tp=2,dp=2",
            "order=zero-bubble,cp=2,cp_comm=all_gather,recompute=full",
            "order=dualpipev",
            "order=dualpipev,tp=2,sp",
            "cp=2,cp_comm=all_gather",  # a mask for each of a place's stages
        )
    ],
    # Tokens that travel to their experts.
    FOUR_OF_EXPERTS: [
        "dp=2,ep=2",
        "dp=2,ep=2,capacity=1,microbatch=2",
        "dp=2,etp=2,recompute=full",
        "tp=2,sp,dp=2,ep=2,etp=1",
        "pp=2,dp=2,ep=2",
        "pp=2,vp=2,order=zbv,dp=2,ep=2,microbatch=2",
        "dp=4,ep=2,sharding=zero1,microbatch=1",
        "dp=4,ep=2,capacity=1,sharding=fsdp,microbatch=1",
    ],
    MIXTRAL: [
        "ep=2,dp=4,capacity=1.25,sharding=fsdp",
        "etp=2,dp=2,sharding=fsdp",
        "tp=2,etp=1,sharding=fsdp",
    ],
}
HELD_QUICK = {
    (TWO_LAYERS, "recompute=full"),
    ("gpt-tiny", "pp=2,dp=2,sharding=fsdp"),
    ("gpt-tiny", "dp=2,microbatch=1"),
    ("mixtral-tiny", "capacity=1"),
    (FOUR_LAYERS, "pp=2,vp=2,order=zbv,microbatch=2"),
    (FOUR_LAYERS, "pp=2,vp=2,cp=2,cp_comm=all_gather"),
    (FOUR_OF_EXPERTS, "dp=2,ep=2,capacity=1,microbatch=2"),
    (FOUR_OF_EXPERTS, "dp=2,etp=2,recompute=full"),
    (MIXTRAL, "etp=2,dp=2,sharding=fsdp"),
}


@pytest.mark.parametrize(
    ("name", "words"),
    [
        pytest.param(name, words, marks=[] if (name, words) in HELD_QUICK else pytest.mark.slow)
        for name, of_model in HELD.items()
        for words in of_model
    ],
)
def test_what_lives_when_most_does_is_what_real_ranks_hold_then(name, words):
    """States and gradients exactly, all of it within 5 %."""
    model, plan = find_model(name), parse_plan(words, global_batch=8, seq=16)
    found = executed(name, plan)
    told = generate(model, plan, Stack(precision=EXECUTED), splits_of(model, plan, found))
    made, ran = (t.peak_by_part[t.role_of_rank] for t in (told, found))
    assert np.array_equal(made[:, :3], ran[:, :3])
    assert made.sum(axis=1) == pytest.approx(ran.sum(axis=1), rel=0.05)


@pytest.mark.parametrize(("words", "place"), [("pp=2,order=gpipe", 1), ("pp=4", 0)])
def test_the_memory_of_a_plan_is_that_of_the_place_that_holds_most(words, place):
    """Which may be the first, that has the most microbatches under way, or the last, that has the logits."""
    model, plan, stack = find_model(FOUR_LAYERS), parse_plan(words, global_batch=8, seq=16), Stack(precision=EXECUTED)
    ran = executed(FOUR_LAYERS, plan)
    of_ranks = ran.peak_by_part[ran.role_of_rank].sum(axis=1)
    told = sum(memory_by_part(model, plan, stack).values())
    assert of_ranks.argmax() == place
    assert told == pytest.approx(of_ranks[place], rel=0.05)
    places = range(plan.pp)
    assert (holds(model, plan, stack, told, places), holds(model, plan, stack, told - 1, places)) == (True, False)


def test_gradients_added_up_late_are_gone_when_that_of_a_table_is_cut():
    """DTensor makes the whole table's; what waits for the end of the backward is added up before it is cut."""
    found = compared("pp=2,tp=2", str(DATA / "two-layers-of-experts.toml"), global_batch=2, seq=8)
    assert found.first is None


def test_a_plan_changed_by_a_little_is_told_from_what_runs():
    """So that the comparison above could have failed."""
    small, large = (
        generate(MODEL, parse_plan(words, global_batch=8, seq=16), Stack(precision=EXECUTED))
        for words in ("tp=2", "tp=2,recompute=full")
    )
    requests = [int((t.events[0].kind == Kind.COLLECTIVE).sum()) for t in (small, large)]
    assert requests[1] == requests[0] + 2  # the sum that ends the attention of each layer


def test_flops_and_gradients_of_a_step_at_full_size():
    """Products and attention as the model has them; gradients summed once, in the dtype of gradients."""
    model = MODELS.find("llama3.1-8b")
    plan = parse_plan("tp=8,dp=1024", global_batch=2048, seq=8192, microbatch=1)
    trace = generate(model, plan, Stack())
    (events,) = trace.events
    assert trace.n_ranks == 8192
    assert events.flops.sum() == plan.rank_batch * sum(sequence_flops(model, plan.seq, tp=8))
    reduced = np.array([trace.groups[trace.group_of[0][g]].axis == "dp" for g in events.group]) & (
        events.kind == Kind.COLLECTIVE
    )
    assert events.bytes[reduced].sum() == 4 * model.parameters(8)
    assert {events.dtype[i] for i in np.flatnonzero(reduced)} == {"float32"}
    assert trace.groups[trace.group_of[9][0]].ranks == tuple(range(8, 16))


def test_another_precision_changes_bytes_and_no_request():
    model, plan = MODEL, parse_plan("tp=2,dp=2", global_batch=8, seq=16)
    whole, half = (generate(model, plan, Stack(precision=p)) for p in (EXECUTED, Precision()))
    asks = [e.kind == Kind.COLLECTIVE for t in (whole, half) for e in t.events]
    assert np.array_equal(*asks)
    ratio = whole.events[0].bytes[asks[0]] / half.events[0].bytes[asks[0]]
    assert set(ratio) == {2.0, 1.0}  # activations, gradients
    assert ratio[-1] == 1.0


@pytest.mark.parametrize(
    ("name", "words", "told"),
    [
        ("mixtral-tiny", "ep=4,dp=8,seq", "generate: ep must be a divisor of the 6 rows"),
        ("llama-small", "pp=3,vp=2,order=zbv,sharding=fsdp", "plan: sharding must be ddp or zero1"),
    ],
)
def test_what_cannot_be_generated_yet_is_refused(name, words, told):
    batch = {"global_batch": 8, "seq": 16}
    if words.endswith(",seq"):
        words, batch = words.removesuffix(",seq"), {"global_batch": 8, "seq": 3}
    with pytest.raises(InputError, match=told):
        generate(MODELS.find(name), parse_plan(words, **batch), Stack())


def test_an_unknown_software_or_dtype_is_refused():
    with pytest.raises(InputError, match="software of a stack"):
        parse_stack("software=jax")
    with pytest.raises(InputError, match="dtype"):
        Precision(weight="float31")
