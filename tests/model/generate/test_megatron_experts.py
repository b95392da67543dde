"""Experts in Megatron-LM's list of requests, against closed forms: h hidden, s tokens, b sequences at once."""

from collections import Counter

import pytest

from emu.model.model import MODELS
from emu.model.plan.plan_text import parse_plan
from tests.model.counts import sequence_flops
from tests.model.generate.megatron_steps import B, H, L, S, asked, besides, flops, traced

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
    counts = {elements: n for (_, _, elements, dtype), n in found.items() if dtype == "int64"}
    assert counts == ({ep * etp * MOE.experts: L * passes} if ep * etp > 1 else {})  # of each expert, on every rank


@pytest.mark.parametrize("how", ["exposed", "overlapped"])
def test_rows_are_sorted_between_their_way_and_the_first_and_the_last_product(how):
    events = traced("dp=2,ep=2,microbatch=1", f"ep={how}", model=MOE).events_of(0)
    names = [name for name in events.name if name == "sorted" or ".experts." in name]
    assert len(names) == 2 * L * B // 2 * 5 + L * B // 2 * 2  # backward, the gradients of both weights too
    first = names.index("sorted")
    assert names[first : first + 5] == ["sorted", *(f"sparse.experts.{what}" for what in ("w1", "silu_gate", "w2")), "sorted"]
    last = len(names) - 1 - names[::-1].index("sorted")
    assert [each.rpartition(".")[2] for each in names[last - 6 : last + 1]].count("sorted") == 2


@pytest.mark.parametrize(("tp", "ep", "etp"), [(1, 2, 1), (1, 4, 1), (2, 2, 2), (2, 1, 1), (2, 4, 2)])
def test_rows_are_sorted_by_expert_where_a_rank_has_several(tp, ep, etp):
    """To them and back, in both directions: each time etp x k s b h / tp elements are read and written."""
    sp = ",sp" if tp > 1 else ""
    events = traced(f"tp={tp}{sp},dp=4,ep={ep},etp={etp},microbatch=1", model=MOE).events_of(0)
    moved = [int(events.bytes[i]) for i in range(len(events)) if events.name[i] == "sorted"]
    each, passes = 2 * 2 * etp * MOE.top_k * S // tp * H, B // 4
    assert moved == ([] if ep == MOE.experts else [each] * (4 * L * passes))


@pytest.mark.parametrize(("words", "beside"), [("dp=2,ep=2", "ep"), ("dp=4,ep=2,etp=2", "etp"), ("tp=2,sp,dp=4,ep=2", "etp")])
def test_of_what_travels_to_experts_and_back_only_what_is_next_to_them_runs_beside_them(words, beside):
    """Once there and once back, in both directions: their computation begins at once, the other exchange was waited for."""
    exposed, overlapped = (traced(f"{words},microbatch=1", f"ep={how}", MOE) for how in ("exposed", "overlapped"))
    assert asked(exposed) == asked(overlapped)
    passes = parse_plan(words, global_batch=B, seq=S, microbatch=1).passes
    assert besides(exposed, "ep", "etp") == {}
    assert Counter(axis for axis, *_ in besides(overlapped, "ep", "etp").elements()) == {beside: 4 * L * passes}


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
    assert flops(traced(words, model=model)) == B * sum(sequence_flops(model, S))


def test_gradients_of_experts_are_reduced_over_those_that_have_copies():
    """Gradients of dense weights are reduced over dp ranks, and those of experts over tp x dp / (ep x etp)."""
    here, own = MOE.parameters(2, 2, 1), 3 * 64 * 96 * 2 * L
    found = asked(traced("tp=2,sp,dp=4,ep=2,etp=1,sharding=zero1", model=MOE))
    (dense,), (experts,) = ([n for axis, what, n, _ in found if (axis, what) == (of, "reduce_scatter")] for of in ("dp", "edp"))
    assert (dense, experts) == (-(-(here - own) // 128) * 128, own)
    assert (found["dp", "all_gather", dense, "bfloat16"], found["edp", "all_gather", experts, "bfloat16"]) == (1, 1)
    assert [axis for axis, _, n, _ in found.elements() if n == 1] == ["dp", "tp"]  # all ranks, once


def test_squares_of_the_gradients_of_experts_are_added_up_apart_from_those_of_dense_weights():
    """optimizer/__init__.py: each norm reads its own gradients once, in float32; then all of them are read and scaled."""
    here, own = MOE.parameters(2, 2, 1), 3 * 64 * 96 * 2 * L
    events = traced("tp=2,sp,dp=4,ep=2,etp=1", model=MOE).events[0]
    moved = [int(events.bytes[row]) for row in range(len(events)) if events.name[row] == "gradients"]
    assert moved[-3:] == [4 * (here - own), 4 * own, 8 * here]


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


def test_a_stage_without_experts_takes_part_in_the_norm_of_those_of_the_others():
    """Each of 8 virtual stages has a layer, and every second layer has experts: all are on one rank of the pipeline."""
    trace = traced("ep=2,dp=2,pp=2,vp=4", model=MODELS.find("gpt-moe-tiny"))
    norms = [asked(trace, rank)["pp", "all_reduce", 1, "float32"] for rank in range(trace.n_ranks)]
    assert norms == [2] * trace.n_ranks  # of dense gradients and of those of experts
