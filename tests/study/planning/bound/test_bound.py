"""A bound is below every estimate, and near enough to it to be of use."""

import random
from dataclasses import replace

import networkx as nx
import pytest

from emu.dtypes import item_bytes
from emu.errors import InputError
from emu.model.generate.generate import memory_by_part
from emu.model.memory.layer_memory import LayerMemory
from emu.model.model import find_model
from emu.model.plan.plan_text import parse_plan
from emu.model.plan.stage_layers import part_names
from emu.model.stack.software import CHUNKED, MEGATRON, OVERLAPPED, PYTORCH
from emu.model.stack.stack import Stack
from emu.study.planning.bound.memory_floors import MemoryFloors
from emu.study.planning.plan_request import Candidate
from emu.study.planning.request_times.rates import Rates
from emu.topology.description.networkx_graph import topology_of
from tests.study.planning.spaces import asked, candidates, of, step_s, tightest_s, times

SPACES = [
    (asked("llama-tiny", 8, 8, 128), "ub-mesh:board"),
    (asked("llama-tiny", 8, 8, 128, "pytorch"), "servers:nodes=2,gpus=4"),
    (asked("gpt-moe-tiny", 8, 8, 128), "fat-tree:radix=4"),
    (replace(asked("gpt-moe-tiny", 8, 8, 128), stack=Stack(MEGATRON, dp=OVERLAPPED, ep=OVERLAPPED)), "fat-tree:radix=4"),
    (replace(asked("llama-tiny", 8, 8, 128), stack=Stack(MEGATRON, dp=CHUNKED)), "servers:nodes=2,gpus=4"),
    (
        replace(asked("llama-tiny", 8, 8, 128), stack=Stack(MEGATRON, dp=OVERLAPPED, fp8="delayed", fp8_gather="yes")),
        "servers:nodes=2,gpus=4",
    ),
    (replace(asked("llama-tiny", 8, 8, 128), stack=Stack(fp8="tensor", fp8_gather="yes")), "servers:nodes=2,gpus=4"),
]
LARGE = [
    (asked("llama-tiny", 16, 32, 128, "pytorch"), "ub-mesh:rack"),
    (asked("deepseek-tiny", 16, 32, 128), "servers:nodes=2"),
    (asked("gpt-moe-tiny", 16, 16, 128, "pytorch"), "ub-mesh:rack"),
    (asked("gpt-tiny", 16, 16, 128), "torus:dims=4x4,bandwidth=50GB/s,latency=500ns"),
    (replace(asked("llama-tiny", 16, 16, 128), stack=Stack(MEGATRON, dp=OVERLAPPED, tp=OVERLAPPED)), "servers:nodes=2"),
]


def shares(request, line, n, *, composed, seed=7):
    """Bounds by time, of plans at random: anywhere, and where they are."""
    placed, taken = of(request, line), []
    for each in random.Random(seed).sample(candidates(request), n):
        try:
            took_s = step_s(request, each, line, composed=composed)
        except InputError:  # no such step can be generated
            continue
        assert (
            placed.quick.by_sequence_s(each.plan) <= placed.quick.by_own_passes_s(each.plan) <= placed.anywhere_s(each.plan)[0]
        )
        assert placed.reduced_s(each.plan) <= placed.by_ports_s(each) * (1 + 1e-12)
        ports_s, least_s = placed.by_ports_s(each), tightest_s(placed, each, times(request, line))
        assert placed.anywhere_s(each.plan)[0] <= ports_s <= least_s * (1 + 1e-12)  # two sums of equal times
        assert least_s <= took_s
        taken.append((placed.anywhere_s(each.plan)[0] / took_s, tightest_s(placed, each, times(request, line)) / took_s))
    return zip(*taken, strict=True)


@pytest.mark.parametrize(("request_", "line"), SPACES)
def test_no_step_takes_less_than_its_bounds(request_, line):
    anywhere, there = shares(request_, line, 4, composed=True)
    assert len(anywhere) > 1
    assert all(least <= own for least, own in zip(anywhere, there, strict=True))
    assert max(there) <= 1
    assert max(anywhere) > 0.3
    assert max(there) > 0.9
    assert max(next(shares(request_, line, 1, composed=False))) <= 1


def test_gradients_that_are_sharded_may_go_beside_what_is_computed():
    request, line = asked("llama-tiny", 8, 8, 128, "pytorch"), "servers:nodes=2,gpus=4"
    words = "tp=2,cp=2,pp=2,sp,sharding=fsdp,recompute=selective,cp_comm=all_gather,microbatch=1"
    each = Candidate(0, parse_plan(words, global_batch=8, seq=128), ("tp", "cp", "pp"))
    taken_s, placed = step_s(request, each, line, composed=True), of(request, line)
    assert placed.anywhere_s(each.plan)[0] <= taken_s
    assert tightest_s(placed, each, times(request, line)) <= taken_s


@pytest.mark.parametrize(
    ("software", "words", "axes", "least"),
    [
        ("megatron", "cp=8", ("cp",), 0.99),
        ("megatron", "cp=4,tp=2", ("tp", "cp"), 0.99),
        ("megatron", "cp=2,pp=2,dp=2,microbatch=2", ("cp", "dp", "pp"), 0.9),
        ("pytorch", "cp=8", ("cp",), 0.75),  # gradients go beside, and are not counted
        ("pytorch", "cp=4,tp=2", ("cp", "tp"), 0.75),
    ],
)
def test_what_goes_round_a_ring_of_context_parallelism_is_counted(software, words, axes, least):
    """On links so slow that a step is hardly more than its messages, those of a ring are most of its bound, too."""
    request, line = asked("llama-tiny", 8, 8, 512, software), "switch:n=8,bandwidth=0.5GB/s,latency=1us"
    each = Candidate(0, parse_plan(words, global_batch=8, seq=512), axes)
    took_s, placed = step_s(request, each, line, composed=True), of(request, line)
    assert placed.anywhere_s(each.plan)[0] <= tightest_s(placed, each, times(request, line)) <= took_s
    assert tightest_s(placed, each, times(request, line)) > least * took_s


ODD = """architecture = "llama"
layers = 2
hidden = 64
heads = 8
kv_heads = 4
ffn = 192
vocab = 250
max_seq = 512
"""


def test_the_bound_of_a_vocabulary_that_is_filled_up_is_of_the_whole(tmp_path):
    (tmp_path / "odd.toml").write_text(ODD)
    request, line = asked(str(tmp_path / "odd.toml"), 4, 4, 512), "ub-mesh:board"
    model, placed, floors = find_model(request.model), of(request, line), MemoryFloors(find_model(request.model), request.stack)
    for words, axes in (("tp=4", ("tp",)), ("tp=4,sp,recompute=full,microbatch=1", ("tp",)), ("tp=4,microbatch=2", ("tp",))):
        each = Candidate(0, parse_plan(words, global_batch=4, seq=512), axes)
        took_s, held = step_s(request, each, line, composed=True), sum(memory_by_part(model, each.plan, request.stack).values())
        assert (
            placed.quick.by_sequence_s(each.plan) <= placed.quick.by_own_passes_s(each.plan) <= placed.anywhere_s(each.plan)[0]
        )
        assert placed.anywhere_s(each.plan)[0] <= tightest_s(placed, each, times(request, line)) <= took_s
        assert tightest_s(placed, each, times(request, line)) > 0.98 * took_s  # of 512 words, as the step is
        assert 0.5 * held < floors.bytes(each.plan) <= held


def test_no_more_is_timed_than_what_shows_that_a_placement_loses():
    request, line = SPACES[0]
    each = next(each for each in candidates(request) if each.plan.tp == each.plan.dp == each.plan.pp == 2 and each.plan.sp)
    asked_for, of_all = [], times(request, line)

    def counted(number, wanted):
        asked_for.extend(wanted)
        return of_all(number, wanted)

    whole_s = tightest_s(of(request, line), each, counted)
    every = len(asked_for)
    asked_for.clear()
    [(first_s, is_final)] = of(request, line).tighter([each], counted)
    assert of(request, line).anywhere_s(each.plan)[0] < first_s < whole_s
    assert not is_final
    assert 0 < len(asked_for) < every


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(("request_", "line"), SPACES + LARGE)
def test_no_step_of_two_thousand_takes_less_than_its_bounds(request_, line, seed):
    """5 times 40 plans of each of ten spaces: python -m pytest -m slow tests/study/planning/bound -k two_thousand."""
    anywhere, there = shares(request_, line, 40, composed=True, seed=seed)
    assert len(anywhere) == 40  # all of them can be composed
    assert all(least <= own for least, own in zip(anywhere, there, strict=True))
    assert max(there) <= 1
    assert max(next(shares(request_, line, 6, composed=False, seed=seed))) <= 1


@pytest.mark.parametrize(("request_", "line"), SPACES)
def test_no_rank_holds_less_than_its_floor(request_, line):
    model, floors = find_model(request_.model), MemoryFloors(find_model(request_.model), request_.stack)
    every = [each.plan for each in candidates(request_)]
    plans = random.Random(7).sample(every, min(60, len(every)))
    found = [floors.bytes(plan) / sum(memory_by_part(model, plan, request_.stack).values()) for plan in plans]
    assert max(found) <= 1
    assert max(found) > 0.5


def test_an_operation_takes_a_rank_what_it_must_send_or_receive():
    rates = Rates(100.0, 50.0, 1.0)
    assert rates.least_s("all_gather", 16, 2, 4) == 1.0 + 24 / 100
    assert rates.least_s("all_reduce", 16, 2, 4) == 1.0 + 32 / 100
    assert rates.least_s("all_reduce", 16, 2, 1) == 0
    assert rates.least_s("broadcast", 16, 2, 4) == 0


@pytest.mark.parametrize("fast", range(3))
def test_rates_are_those_of_the_fastest_npu_whichever_it_is(fast):
    """Three NPUs around a switch: one has links of 8 GB/s out and 16 in, the others 1 and 2."""
    graph = nx.DiGraph(latency="1us")
    graph.add_nodes_from(range(3), kind="npu")
    graph.add_node("switch", kind="switch")
    for npu in range(3):
        graph.add_edge(npu, "switch", bandwidth="8GB/s" if npu == fast else "1GB/s")
        graph.add_edge("switch", npu, bandwidth="16GB/s" if npu == fast else "2GB/s")
    rates = Rates.of(topology_of(graph))
    assert (rates.out, rates.into) == (8e9, 16e9)


@pytest.mark.parametrize(("out", "into", "left"), [(100.0, 50.0, 2.0), (50.0, 100.0, 4.0)])
def test_a_message_leaves_as_fast_as_an_npu_sends_and_comes_as_fast_as_the_slower_way(out, into, left):
    assert Rates(out, into, 1.0).message(200) == (left, 1.0 + 4.0, True)


def test_the_floor_of_one_rank_is_what_its_parameters_take_and_what_a_forward_keeps():
    """2 bytes of bfloat16, 4 of the gradient, which Megatron-LM keeps all the time, 12 of the optimizer."""
    model, plan = find_model("llama-tiny"), parse_plan("dp=1", global_batch=1, seq=8)
    kept = sum(LayerMemory(model, plan, Stack(MEGATRON), name).kept for name in part_names(plan, model, 0))
    assert MemoryFloors(model, Stack(MEGATRON)).bytes(plan) == 18 * model.parameters() + kept


@pytest.mark.parametrize("words", ["dp=2", "tp=2", "dp=2,sharding=fsdp"])
def test_with_two_microbatches_the_second_forward_is_kept_beside_the_gradients_of_the_first(words):
    model, stack = find_model("llama-tiny"), Stack(PYTORCH)
    one, two = (parse_plan(f"{words},microbatch=1", global_batch=n, seq=1024) for n in ((2, 4) if "dp" in words else (1, 2)))
    more = MemoryFloors(model, stack).bytes(two) - MemoryFloors(model, stack).bytes(one)
    dtype = stack.gathered if two.shards_weights else stack.precision.gradient
    assert (one.passes, two.passes) == (1, 2)
    assert more == item_bytes(dtype) * model.parameters(two.tp)


@pytest.mark.parametrize(("words", "batch"), [("vp=16", 128), ("vp=24", 128), ("vp=16", 512), ("order=gpipe", 4096)])
def test_gradients_that_fsdp_has_scattered_are_not_in_the_floor(words, batch):
    """In a pipeline of few microbatches the later stages of a place have scattered theirs before its first has any."""
    model, stack = find_model("nemotron4-340b"), Stack(PYTORCH)
    words = f"tp=4,sp,dp=64,pp=2,{words},sharding=fsdp,microbatch=1,recompute=full"
    plan = parse_plan(words, global_batch=batch, seq=4096)
    holds = sum(memory_by_part(model, plan, stack).values())
    assert 0.2 * holds < MemoryFloors(model, stack).bytes(plan) <= holds


@pytest.mark.parametrize("model", ["mixtral-tiny", "deepseek-tiny", "qwen3-moe-tiny"])
def test_no_rank_with_experts_holds_less_than_its_floor(model):
    """Each expert gets the token rows that come to it, not as many as a rank gives."""
    request_ = asked(model, 16, 64, 128, "pytorch")
    plans, floors = (
        list(dict.fromkeys(each.plan for each in candidates(request_))),
        MemoryFloors(find_model(model), request_.stack),
    )
    for plan in random.Random(3).sample(plans, 25):
        assert floors.bytes(plan) <= sum(memory_by_part(floors.model, plan, request_.stack).values())
