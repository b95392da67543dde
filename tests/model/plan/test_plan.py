"""Plans: parsed, placed, and refused where they do not divide."""

import re
from dataclasses import fields, replace
from itertools import pairwise
from math import prod

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from emu.errors import InputError
from emu.model.model import MODELS
from emu.model.pipeline_order import ORDERS, stages_of
from emu.model.plan.plan import AXES, EXPERT_AXES, Plan, cp_positions
from emu.model.plan.plan_checks import check_fits_model, check_runs, check_world
from emu.model.plan.plan_text import WORDS, parse_plan, spell
from emu.model.plan.stage_layers import part_names, stage_layers
from emu.model.stack.software import MEGATRON
from emu.model.stack.stack import Stack

TINY = MODELS.find("llama-tiny")
SMALL = st.sampled_from([1, 2, 3, 4])


def refused(message):
    return pytest.raises(InputError, match=f"^{re.escape(message)}$")


def test_axes_that_are_not_named_are_one():
    assert parse_plan("dp=4, tp=2") == Plan(tp=2, dp=4)
    assert parse_plan("tp=2", global_batch=8, seq=32, microbatch=4) == Plan(tp=2, global_batch=8, seq=32, microbatch=4)


def test_stages_of_unequal_layers_are_read_with_their_commas():
    plan = parse_plan("tp=8,sp,pp=4,layers=7,8x2,7,dp=2", seq=8)
    assert (plan.layers, plan.dp, plan.sp) == ((7, 8, 8, 7), 2, True)


@pytest.mark.parametrize(
    "text",
    [
        "tp=4,dp=4",
        "dp=2",
        "dp=1",
        "tp=2,ep=2,dp=2,etp=1,sp,capacity=1.25",
        "dp=2,pp=4,order=gpipe,layers=1,2x2,1",
        "dp=4,pp=2,vp=2,sharding=fsdp,shard=2,recompute=selective,clip=0.5,microbatch=2",
        "cp=2,cp_comm=all_gather",
    ],
)
def test_a_plan_is_spelt_as_it_is_parsed(text):
    assert spell(parse_plan(text)) == text


def test_every_setting_but_the_batch_has_a_word():
    assert {f.name for f in fields(Plan)} - set(WORDS) == {"global_batch", "seq"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("dp4", "plan: an entry must be NAME=VALUE, got 'dp4'; e.g. dp=4,tp=4"),
        ("dp=4,zero1", "plan: an entry must be NAME=VALUE, got 'zero1'; did you mean sharding=zero1?"),
        ("dp=two", "plan: dp must be a whole number, got 'two'; e.g. dp=4"),
        ("", "plan: an entry must be NAME=VALUE, got ''; e.g. dp=4,tp=4"),
        ("td=2", "no axis or setting of a plan is called 'td'; did you mean tp or dp?"),
        ("dp=2,dp=4", "plan: dp is given twice in 'dp=2,dp=4'"),
        ("tp=0", "plan: tp must be 1 or more, got 0"),
        ("dp=3", "plan: dp must be a divisor of the global batch 16, got 3; take dp=2 or 4, or a global batch of 15 or 18"),
        ("sp=maybe", "plan: sp must be on or off, got 'maybe'; or write sp alone"),
        ("sp,dp=2", "plan: tp must be 2 or more with sp, which shards activations that tp leaves whole, got 1"),
        ("capacity=much", "plan: capacity must be a number, got 'much'; e.g. capacity=1.25"),
        ("capacity=-1", "plan: capacity must be 0 or more, got -1.0"),
        ("clip=nan", "plan: clip must be 0 or more, got nan"),
        ("sharding=fsdp2,dp=2", "no sharding of a plan is called 'fsdp2'; did you mean fsdp or ddp?"),
        ("order=1fb1,pp=2", "no order of a pipeline is called '1fb1'; did you mean 1f1b?"),
        ("order=1f1b", "plan: order must be left out where pp=1, got '1f1b'"),
        ("layers=8,x", "plan: layers must be layers of each stage, got 'x'; e.g. layers=7,8x14,7: 7, fourteen times 8, and 7"),
        ("layers=4,4", "plan: the number of layers= entries must be 1, one for each stage, got 2"),
        ("layers=4,0,2,2,pp=4", "plan: layers must be 1 or more in each stage between the first and the last, got 0"),
        ("vp=2", "plan: vp must be 1 where pp=1, got 2"),
        (
            "pp=4,vp=2,order=1f1b",
            "plan: vp must be 1 in the order 1f1b, got 2; take order=interleaved or zero-bubble or zbv or dualpipev",
        ),
        ("shard=2,dp=4", "plan: shard must be left out where sharding=ddp, got 2; or take sharding=zero1 or fsdp"),
        ("shard=3,dp=4,sharding=fsdp", "plan: shard must be a divisor of dp=4, got 3; take 2 or 4"),
        (
            "shard=1,dp=4,sharding=fsdp",
            "plan: shard must be a divisor of dp=4, above 1, as one rank shards nothing, got 1; take 2",
        ),
        ("shard=2,sharding=zero1", "plan: shard must be a divisor of dp=1, got 2; leave it out"),
        (
            "ep=3,dp=2,tp=2",
            "plan: etp * ep must be a divisor of the 4 ranks of a stage (tp * cp * dp), got 6; take ep=2, or another etp",
        ),
        ("etp=4,dp=2", "plan: etp * ep must be a divisor of the 2 ranks of a stage (tp * cp * dp), got 4; take a smaller etp"),
    ],
)
def test_what_is_no_plan_is_refused_in_one_line(text, message):
    with refused(message):
        parse_plan(text)


def test_a_batch_that_does_not_divide_is_refused_with_what_fits():
    with refused("plan: dp must be a divisor of the global batch 2, got 4; take dp=2, or a global batch of 4"):
        Plan(dp=4, global_batch=2)
    with refused("plan: microbatch must be a divisor of the 8 sequences of a rank, got 3; take 2 or 4"):
        Plan(dp=2, global_batch=16, microbatch=3)
    with refused("plan: seq must be 1 or more, got 0"):
        Plan(seq=0)
    with refused(
        "plan: seq must be a multiple of 4, for 2 chunks of a sequence on each of the 2 ranks of cp, got 30; take 28 or 32"
    ):
        Plan(cp=2, seq=30)
    with refused("plan: seq must be such that the 10 tokens of a rank divide by tp=4, as sp requires, got 10; take 8 or 12"):
        Plan(tp=4, sp=True, seq=10)


def test_a_pipeline_is_refused_fewer_microbatches_than_its_order_needs():
    with refused(
        "plan: microbatches must be 4 or more in the order 1f1b of 4 stages, got 2; take a global batch of 32 or order=gpipe"
    ):
        check_runs(Plan(pp=4, dp=8), TINY)
    check_runs(Plan(pp=4, dp=8), TINY, Stack(MEGATRON))
    with refused(
        "plan: microbatches must be a multiple of the 4 stages in the order interleaved, got 11; take a global batch of 8 or 12"
    ):
        Plan(pp=4, vp=2, global_batch=11)
    Plan(pp=4, dp=8, order="gpipe")
    Plan(pp=4, vp=2, global_batch=12)


def test_a_model_that_does_not_divide_is_refused_with_what_fits():
    with refused("plan: tp must be a divisor of the 8 heads of llama-tiny, got 3; take tp=2 or 4"):
        check_fits_model(Plan(tp=3), TINY)
    with refused("plan: tp must be a divisor of the 4 key and value heads of llama-tiny, got 8; take tp=4"):
        check_fits_model(Plan(tp=8), TINY)
    larger = "take 1024, or a model with a larger max_seq"
    with refused(f"plan: seq must be at most the 1024 tokens of llama-tiny, got 2048; {larger}"):
        check_fits_model(Plan(seq=2048), TINY)
    check_fits_model(Plan(tp=4, dp=2), TINY)


def test_stages_that_do_not_divide_the_layers_are_refused_with_a_split_that_fits():
    eighteen = replace(TINY, kinds=("dense",) * 18)
    with refused(
        "plan: pp * vp must be a divisor of the 18 layers of llama-tiny, got 4; take pp=3 or 6, or say what each stage has: "
        "layers=4,5x2,4"
    ):
        check_fits_model(Plan(pp=4), eighteen)
    with refused("plan: layers must be 18 in all, as llama-tiny has, got 16; take layers=4,5x2,4"):
        check_fits_model(Plan(pp=4, layers=(4, 4, 4, 4)), eighteen)
    assert stage_layers(parse_plan("pp=4,layers=4,5x2,4"), eighteen) == (4, 5, 5, 4)
    assert stage_layers(Plan(pp=3), eighteen) == (6, 6, 6)


def test_more_ranks_than_npus_are_refused_with_the_size_of_an_axis_that_fits():
    """The axis that leaves most ranks; dp before others that leave as many."""
    check_world(Plan(tp=2, dp=4), TINY, 8, "board")
    told = "plan: tp * cp * dp * pp must be at most the 8 NPUs of board, got"
    for plan, got in [
        (Plan(tp=4, dp=4), "16; take dp=2, or a larger topology"),
        (Plan(tp=4, dp=8, order="gpipe", pp=2), "64; take dp=1, or a larger topology"),
        (Plan(tp=4, pp=4, layers=(1, 3, 3, 1)), "16; take tp=2, or a larger topology"),
        (Plan(tp=4, pp=16, dp=4, order="gpipe"), "256; take smaller axes, or a larger topology"),
    ]:
        with refused(f"{told} {got}"):
            check_world(plan, TINY, 8, "board")


@pytest.mark.parametrize(
    ("model", "plan", "message"),
    [
        ("llama-tiny", Plan(dp=2, ep=2), "plan: ep must be left out, as llama-tiny has no experts, got 2; take ep=1"),
        (
            "llama-tiny",
            Plan(dp=2, etp=2),
            "plan: etp must be left out, as llama-tiny has no experts, got 2; take etp=0, which is tp",
        ),
        (
            "llama-tiny",
            Plan(capacity=1.5),
            "plan: capacity must be left out, as llama-tiny has no experts, got 1.5; take capacity=0",
        ),
        (
            "llama-tiny",
            Plan(imbalance=0.2),
            "plan: imbalance must be left out, as llama-tiny has no experts, got 0.2; take imbalance=0",
        ),
        (
            "gpt-moe-tiny",
            Plan(dp=3, ep=3, global_batch=3),
            "plan: ep must be a divisor of the 4 experts of gpt-moe-tiny, got 3; take ep=2 or 4",
        ),
        (
            "gpt-moe-tiny",
            Plan(tp=2, dp=2, ep=2, seq=7),
            "plan: seq must be such that the 7 tokens of a rank divide by tp=2, as its block of experts requires, got 7; "
            "take 6 or 8",
        ),
    ],
)
def test_experts_that_do_not_divide_are_refused_with_what_fits(model, plan, message):
    with refused(message):
        check_fits_model(plan, MODELS.find(model))


def test_what_pytorch_cannot_share_in_a_split_backward_is_refused():
    with refused(
        "plan: sharding must be ddp or zero1 in the order zbv, got 'fsdp'; "
        "PyTorch's hooks for fsdp do not see a split backward; or take order=interleaved or 1f1b"
    ):
        check_runs(Plan(pp=2, vp=2, order="zbv", dp=2, sharding="fsdp"), TINY)


def test_the_ends_of_a_pipeline_may_have_no_layers_where_pytorch_does_not_execute_it():
    plan = parse_plan("pp=4,layers=0,4,4,0", global_batch=4)
    check_runs(plan, TINY, Stack(MEGATRON))
    assert [part_names(plan, TINY, stage)[:1] for stage in (0, 3)] == [("embedding",), ("head",)]
    with refused("plan: layers must be 1 or more in each stage with software=pytorch, got 0; take layers=2x4"):
        check_runs(plan, TINY)


def test_rank_is_tensor_parallel_fastest_then_context_data_pipeline():
    plan = Plan(tp=4, dp=2)
    assert [plan.coordinates(r)["tp"] for r in range(8)] == [0, 1, 2, 3] * 2
    assert [plan.coordinates(r)["dp"] for r in range(8)] == [0] * 4 + [1] * 4
    assert plan.groups("tp") == ((0, 1, 2, 3), (4, 5, 6, 7))
    assert plan.groups("dp") == ((0, 4), (1, 5), (2, 6), (3, 7))
    deep = Plan(tp=2, cp=2, dp=2, pp=2)
    assert deep.groups("cp")[0] == (0, 2)
    assert deep.groups("cp+dp")[0] == (0, 2, 4, 6)
    assert deep.groups("pp")[0] == (0, 8)


def test_expert_axes_regroup_the_ranks_of_a_stage():
    """The example of the issue: 8 ranks of tp 2, dp 2, pp 2 with experts over 2; no tensor parallelism within an expert."""
    plan = Plan(tp=2, ep=2, dp=2, pp=2, etp=1)
    assert plan.world == 8
    assert plan.groups("ep") == ((0, 1), (2, 3), (4, 5), (6, 7))
    assert plan.groups("edp") == ((0, 2), (1, 3), (4, 6), (5, 7))
    same = replace(plan, etp=0)
    assert same.groups("etp") == same.groups("tp")
    assert same.groups("ep") == same.groups("dp")
    with refused("plan: tp+ep mixes axes of all layers (tp, cp, dp, pp) with those of expert layers"):
        plan.groups("tp+ep")
    with pytest.raises(InputError, match="no axis of a plan is called 'xp'"):
        plan.groups("xp")


@given(SMALL, SMALL, SMALL, st.sampled_from([1, 2]), SMALL, SMALL)
def test_groups_of_an_axis_partition_the_ranks_and_differ_on_it_alone(tp, cp, dp, pp, ep, etp):
    etp, ep = (etp, ep) if (tp * cp * dp) % (etp * ep) == 0 else (1, 1)
    plan = Plan(tp=tp, cp=cp, dp=dp, pp=pp, ep=ep, etp=etp, global_batch=2 * dp, seq=24)
    for numbering in (AXES, EXPERT_AXES):
        assert prod(plan.sizes[axis] for axis in numbering) == plan.world
        for axes in (*((axis,) for axis in numbering), *pairwise(numbering)):
            for group in _partition(plan, axes):
                places = [{axis: plan.coordinates(r)[axis] for axis in numbering} for r in group]
                here = [tuple(p.pop(axis) for axis in reversed(axes)) for p in places]
                assert here == sorted(here)
                assert len(set(here)) == prod(plan.sizes[axis] for axis in axes)
                assert all(p == places[0] for p in places)


def _partition(plan, axes):
    groups = plan.groups("+".join(axes))
    assert sorted(r for group in groups for r in group) == list(range(plan.world))
    return groups


@pytest.mark.parametrize("name", ORDERS)
@pytest.mark.parametrize("stages", [2, 3, 5])
def test_the_ranks_of_a_pipeline_share_the_stages_out(name, stages):
    virtual = next(v for v in (1, 2) if ORDERS[name].takes(v))
    held = [stages_of(place, stages, virtual, name) for place in range(stages)]
    assert sorted(stage for of_rank in held for stage in of_rank) == list(range(stages * virtual))


def test_the_ends_of_a_v_shaped_pipeline_meet_on_one_rank():
    plan = Plan(pp=4, vp=2, order="zbv")
    assert [plan.stages_of(rank) for rank in range(4)] == [(0, 7), (1, 6), (2, 5), (3, 4)]
    assert [Plan(pp=2, vp=3).stages_of(rank) for rank in range(2)] == [(0, 2, 4), (1, 3, 5)]


def test_batch_arithmetic():
    plan = Plan(tp=2, dp=4, global_batch=16, seq=32, microbatch=2)
    assert (plan.world, plan.rank_batch, plan.passes, plan.tokens) == (8, 4, 2, 512)
    assert replace(plan, microbatch=0).passes == 1
    assert Plan(pp=2, global_batch=6).passes == 6
    assert plan.alone() == Plan(global_batch=16, seq=32)
    kept = {"global_batch": 24, "seq": 96, "capacity": 1.5, "clip": 0.25}  # what changes the loss or the step
    for name in kept:
        words = {other: value for other, value in kept.items() if other != name}
        assert Plan(tp=2, dp=4, sp=True, microbatch=2, recompute="full", **words).alone() == Plan(**words)
    assert Plan(dp=8, sharding="fsdp").shard_ranks == 8
    assert Plan(dp=8, sharding="fsdp", shard=4).shard_ranks == 4
    assert Plan(dp=8).shard_ranks == 1


def test_a_rank_of_context_parallelism_has_a_chunk_from_the_front_and_one_from_the_back():
    assert [cp_positions(place, 3, 12).tolist() for place in range(3)] == [[0, 1, 10, 11], [2, 3, 8, 9], [4, 5, 6, 7]]
    assert cp_positions(0, 1, 5).tolist() == [0, 1, 2, 3, 4]
    plan = Plan(tp=2, cp=3, dp=2, seq=12)
    assert [plan.positions(rank).tolist() for rank in (0, 1, 2, 3, 4, 6)] == [
        *[[0, 1, 10, 11]] * 2, *[[2, 3, 8, 9]] * 2, [4, 5, 6, 7], [0, 1, 10, 11],
    ]  # fmt: skip


def test_ranks_that_share_states_are_counted_over_all_that_have_copies():
    plan = Plan(tp=2, cp=3, dp=4, sharding="zero1", shard=2, seq=12)
    assert (plan.copies, plan.copy_axes, plan.shard_ranks, plan.holders) == (12, ("cp", "dp"), 2, 6)
    assert plan.copy_numbers(np.arange(24)).tolist() == [number for number in range(12) for _ in range(2)]
    assert replace(plan, sharding="ddp", shard=0).holders == 1
    assert Plan(dp=4).copy_axes == ("dp",)
    travels = Plan(tp=2, ep=4, etp=1, dp=6, sharding="fsdp", global_batch=6)
    assert (travels.sizes["edp"], travels.expert_tp, travels.exchanges) == (3, 1, True)
    assert (travels.sharers(travels=True), travels.sharers(travels=False)) == (3, 6)
    assert replace(travels, sharding="ddp").sharers(travels=True) == 1
    assert [(each.ring, each.exchanges) for each in (plan, replace(plan, cp_comm="all_gather"))] == [(3, False), (1, False)]


def test_the_axis_that_is_made_smaller_is_the_one_that_leaves_most_ranks():
    told = "plan: tp * cp * dp * pp must be at most the 11 NPUs of board, got 12; take dp=2, or a larger topology"
    with refused(told):
        check_world(Plan(tp=4, dp=3, global_batch=6), TINY, 11, "board")
    with refused("plan: tp * cp * dp * pp must be at most the 11 NPUs of board, got 16; take cp=2, or a larger topology"):
        check_world(Plan(tp=4, cp=4, global_batch=6), TINY, 11, "board")


OPS_REFUSED = {
    "plan: recompute must be none, selective or full with software=megatron, got 'ops'": (
        Plan(recompute="ops"),
        Stack(MEGATRON),
    ),
    "plan: cp must be 1 with recompute=ops, got 2; take recompute=selective or full, or cp=1": (
        Plan(recompute="ops", cp=2),
        Stack(),
    ),
    "plan: tp must be 1 with recompute=ops, got 2; take recompute=selective or full, or tp=1": (
        Plan(recompute="ops", tp=2, cp=2),
        Stack(),
    ),
    "plan: order must be one of whole backwards with recompute=ops, got 'zbv'; take order=1f1b": (
        Plan(recompute="ops", pp=2, vp=2, order="zbv"),
        Stack(),
    ),
}


@pytest.mark.parametrize("line", OPS_REFUSED)
def test_outputs_of_single_operators_are_kept_where_it_is_known_which(line):
    plan, stack = OPS_REFUSED[line]
    with refused(line):
        check_fits_model(plan, TINY, stack)
    check_fits_model(Plan(recompute="ops", dp=2, pp=2), TINY)


RUNS_REFUSED = {
    "plan: shard must be 0 or 4 with software=megatron, got 2": (Plan(dp=4, sharding="zero1", shard=2), Stack(MEGATRON)),
    "plan: order must be 1f1b or interleaved with software=megatron, got 'gpipe'": (Plan(pp=2, order="gpipe"), Stack(MEGATRON)),
    "plan: sharding must be ddp or zero1 with software=megatron, got 'fsdp'": (Plan(dp=2, sharding="fsdp"), Stack(MEGATRON)),
    "plan: sp must be on where the stack says tp=overlapped, got 'off'; Megatron-LM overlaps no all_reduce": (
        Plan(tp=2),
        Stack(MEGATRON, tp="overlapped"),
    ),
    "plan: dropout must be 0 with software=pytorch, got 0.1; its models have no dropout": (Plan(dropout=0.1), Stack()),
    "plan: imbalance must be 0 with software=pytorch, got 0.2; its routers choose the experts": (Plan(imbalance=0.2), Stack()),
    "plan: layers must be 1 or more in each stage with software=pytorch, got 0; take less pp or vp": (
        Plan(pp=9, layers=(0, *[1] * 7, 1)),
        Stack(),
    ),
}


@pytest.mark.parametrize("line", RUNS_REFUSED)
def test_what_a_software_cannot_run_is_one_line(line):
    plan, stack = RUNS_REFUSED[line]
    with refused(line):
        check_runs(plan, TINY, stack)


def test_what_a_software_can_run_is_not_refused():
    for plan, stack in (
        (Plan(dp=4, sharding="zero1", shard=4), Stack(MEGATRON)),
        (Plan(dp=4, sharding="zero1", shard=2), Stack()),
        (Plan(tp=2, sp=True), Stack(MEGATRON, tp="overlapped")),
        (Plan(dp=2), Stack(MEGATRON, tp="overlapped")),
        (Plan(dropout=0.1, imbalance=0.2), Stack(MEGATRON)),
        (Plan(pp=2, vp=2, order="zbv", dp=2, sharding="zero1"), Stack()),
        (Plan(pp=2, dp=2, sharding="fsdp"), Stack()),
    ):
        check_runs(plan, TINY, stack)
