"""Where all that takes time is in a bound, it is the time of the step, or hardly less."""

from dataclasses import replace

import networkx as nx
import pytest

from emu.model.plan.plan_text import parse_plan
from emu.model.stack.software import MEGATRON, OVERLAPPED, PYTORCH
from emu.model.stack.stack import Stack
from emu.study.planning.bound import pipeline_chart
from emu.study.planning.bound.outline import Outline
from emu.study.planning.bound.pipeline_chart import chart_s
from emu.study.planning.plan_request import Candidate
from emu.study.planning.request_times.least_times import LeastTimes
from emu.study.planning.request_times.rates import LeastTime, Rates, ranks_of
from emu.topology.description.networkx_graph import topology_of
from tests.study.planning.spaces import asked, of, step_s, tightest_s, times

LATER = Stack(MEGATRON, dp=OVERLAPPED)
OWN, ZERO = Stack(MEGATRON), Stack(PYTORCH)
DENSE, SPARSE = "llama-tiny", "gpt-moe-tiny"
UNEVEN = "dp=2,pp=3,layers=1,5,2,microbatch=1"  # 8 layers
WAVY = "dp=2,pp=2,vp=2,layers=3,1,2,2,microbatch=1,sharding=zero1"
# A model, its stack, a global batch, a plan, and shares of the step: of the quick bound, anywhere, and in its placement.
NO_MESSAGES = [
    (DENSE, OWN, 9, "tp=2,dp=3", 0.91, 0.995, 0.995),
    (DENSE, OWN, 12, "tp=4,sp,dp=3,sharding=zero1,recompute=full,microbatch=2", 0.96, 0.999, 0.999),
    (DENSE, OWN, 10, UNEVEN, 0.94, 0.95, 0.98),
    (DENSE, OWN, 8, WAVY, 0.93, 0.95, 0.998),
    (DENSE, OWN, 5, "tp=2,pp=4,microbatch=1,recompute=selective", 0.9, 0.998, 0.998),
    (DENSE, LATER, 10, f"{UNEVEN},sharding=zero1", 0.95, 0.955, 0.99),
    (DENSE, LATER, 9, "dp=3,microbatch=1", 0.91, 0.995, 0.995),
    (DENSE, LATER, 8, WAVY, 0.93, 0.955, 0.998),
    (SPARSE, OWN, 8, "tp=2,ep=4,dp=4", 0.37, 0.994, 0.994),  # quickly, by the most frequent kind of layer
    (SPARSE, LATER, 6, "tp=2,ep=2,etp=1,dp=2,pp=2,microbatch=1", 0.39, 0.99, 0.996),
    (DENSE, ZERO, 9, "tp=2,dp=3", 0.93, 0.985, 0.985),
    (DENSE, ZERO, 9, "dp=3,sharding=fsdp", 0.93, 0.985, 0.985),
    (DENSE, ZERO, 12, "dp=6,sharding=fsdp,shard=3,microbatch=1", 0.92, 0.97, 0.97),
    (DENSE, ZERO, 10, f"{UNEVEN},sharding=zero1", 0.94, 0.957, 0.957),
    (DENSE, ZERO, 5, "tp=2,sp,pp=4,microbatch=1,order=gpipe,recompute=full", 0.91, 0.995, 0.995),
    (DENSE, ZERO, 12, "dp=2,pp=3,vp=2,microbatch=1,order=zero-bubble,layers=1,1,2,2,1,1", 0.87, 0.96, 0.96),
    (SPARSE, ZERO, 8, "ep=4,dp=4", 0.35, 0.957, 0.957),
]
MESSAGES = [
    (DENSE, OWN, 9, "tp=2,dp=3", 0.64, 0.92, 0.9999),
    (DENSE, OWN, 12, "tp=4,sp,dp=3,sharding=zero1,recompute=full,microbatch=2", 0.9, 0.998, 0.999),
    (DENSE, OWN, 8, WAVY, 0.005, 0.75, 0.95),
    (DENSE, LATER, 9, "dp=3,microbatch=1", 0.003, 0.003, 0.9999),
    (DENSE, LATER, 8, "dp=4,sharding=zero1,microbatch=1", 0.002, 0.002, 0.9999),  # weights before, gradients after
    (DENSE, LATER, 8, "dp=2,pp=2,sharding=zero1,microbatch=1", 0.007, 0.14, 0.88),
    (SPARSE, OWN, 8, "tp=2,ep=4,dp=4", 0.19, 0.89, 0.9999),
    (DENSE, ZERO, 5, "tp=2,sp,pp=4,microbatch=1,order=gpipe,recompute=full", 0.75, 0.93, 0.93),
    (DENSE, ZERO, 9, "dp=3,sharding=fsdp", 0.003, 0.5, 0.76),
]


@pytest.mark.parametrize(("model", "stack", "batch", "words", "quick", "anywhere", "there"), NO_MESSAGES)
def test_on_a_network_that_costs_nothing_a_bound_has_all_computations_of_a_step(
    model, stack, batch, words, quick, anywhere, there
):
    assert near(model, stack, batch, words, "900TB/s") >= (quick, anywhere, there)


@pytest.mark.parametrize(("model", "stack", "batch", "words", "quick", "anywhere", "there"), MESSAGES)
def test_on_a_network_that_takes_nearly_all_of_a_step_a_bound_has_its_messages(
    model, stack, batch, words, quick, anywhere, there
):
    assert near(model, stack, batch, words, "50MB/s") >= (quick, anywhere, there)


@pytest.mark.parametrize("stack", [OWN, ZERO], ids=["megatron", "pytorch"])
def test_the_quickest_bound_of_a_large_model_is_near_that_of_its_own_passes(stack):
    """Passes of one long sequence are about as fast as the largest ones, by which the quickest bound counts."""
    plan = parse_plan("tp=2,dp=2,microbatch=1", global_batch=8, seq=8192)
    placed = of(replace(asked("llama3-8b", plan.world, 8, 8192), stack=stack), "switch:n=16,bandwidth=900TB/s,latency=0s")
    assert 0.8 * placed.quick.by_own_passes_s(plan) <= placed.quick.by_sequence_s(plan) <= placed.quick.by_own_passes_s(plan)


class Shares(tuple):
    """Shares of a step, each of which is to be at least another; none is above 1."""

    def __ge__(self, least):
        return all(low <= own <= 1 for own, low in zip(self, least, strict=True))


def near(model, stack, batch, words, bandwidth):
    """The shares of a step that its bounds are: of its own passes, anywhere, and where it is."""
    plan, line = parse_plan(words, global_batch=batch, seq=192), f"switch:n=16,bandwidth={bandwidth},latency=0s"
    request = replace(asked(model, plan.world, batch, 192), stack=stack)
    each = Candidate(0, plan, tuple(axis for axis in ("tp", "dp", "pp") if getattr(plan, axis) > 1))
    placed, took_s = of(request, line), step_s(request, each, line, composed=True)
    found = placed.quick.by_own_passes_s(plan), placed.anywhere_s(plan)[0], tightest_s(placed, each, times(request, line))
    return Shares(bound_s / took_s for bound_s in found)


@pytest.mark.parametrize(
    ("operation", "elements", "moved"),
    [
        ("all_gather", 10, 20 - 8),  # of 10 elements of 2 bytes the largest share of three ranks is 4
        ("reduce_scatter", 10, 20 - 8),
        ("all_to_all", 10, 20 - 8),
        ("all_reduce", 10, 20),
        ("all_gather", 9, 18 - 6),
        ("reduce", 10, None),
    ],
)
def test_a_rank_moves_what_is_not_its_own_in_the_faster_direction(operation, elements, moved):
    for rates in (Rates(4.0, 5.0, 7.0), Rates(5.0, 4.0, 7.0)):
        assert rates.least_s(operation, elements, 2, 3) == (0 if moved is None else 7.0 + moved / 5)
        assert rates.least_s(operation, 0, 2, 3) == 0


def test_the_least_latency_is_that_of_the_quickest_way_out_and_in_and_of_a_message():
    """Up 3 and 5 us, down 2 and 11 us, and 13 us between two NPUs at once; a message takes 1 us more."""
    graph = nx.DiGraph(bandwidth="1GB/s")
    graph.add_nodes_from(range(2), kind="npu")
    graph.add_node("switch", kind="switch")
    for npu, up, down in ((0, "3us", "11us"), (1, "5us", "2us")):
        graph.add_edge(npu, "switch", latency=up)
        graph.add_edge("switch", npu, latency=down)
    indirect = topology_of(graph)
    assert Rates.of(indirect).alpha_s == pytest.approx(5e-6)
    assert Rates.of(replace(indirect, message_fs=10**9)).alpha_s == pytest.approx(6e-6)
    graph.add_edge(0, 1, latency="4us")
    assert Rates.of(topology_of(graph)).alpha_s == pytest.approx(4e-6)


def test_the_ranks_of_several_axes_are_their_product():
    sizes = {"tp": 2, "etp": 3, "ep": 5, "dp": 7}
    assert [ranks_of(sizes, axis) for axis in ("tp", "etp+ep", "ep+etp", "embedding", "tp+embedding")] == [2, 15, 15, 1, 1]


def test_a_chart_of_too_many_turns_bounds_nothing(monkeypatch):
    """Two places of two stages have 32 forwards and backwards of four microbatches."""
    plan = parse_plan(WAVY, global_batch=8, seq=192)
    request = replace(asked(DENSE, 4, 8, 192), stack=LATER)
    placed = of(request, "switch:n=16,bandwidth=1GB/s,latency=0s")
    outline, least = Outline.of(placed.paths, plan), LeastTimes(Rates(1e9, 1e9), plan)
    monkeypatch.setattr(pipeline_chart, "MOST_TURNS", 31)
    assert chart_s(placed.paths, outline, least) == 0
    monkeypatch.setattr(pipeline_chart, "MOST_TURNS", 32)
    assert chart_s(placed.paths, outline, least) > outline.seconds(least) * 0.9
    assert chart_s(placed.paths, outline, LeastTimes(Rates(1.0, 1.0), plan)) == 0  # beyond the clock


class Ways(LeastTimes):
    """Least times by which collectives take nothing, and each message between places a time of its own, in seconds."""

    def collective(self, place, ask):
        return LeastTime(0.0, 0.0)

    def messages(self, to, size):
        left, there = {1: ((3, 5, 7), (11, 13, 17)), -1: ((19, 23, 29), (31, 37, 41))}[to]
        return [LeastTime(a * 1e-6, b * 1e-6) for a, b in zip(left, there, strict=True)]


@pytest.mark.parametrize(("stack", "waits"), [(OWN, True), (ZERO, False)])
@pytest.mark.parametrize("passes", [1, 7])
def test_the_bound_of_a_pipeline_is_the_way_there_the_work_of_the_slowest_place_and_the_way_back(stack, waits, passes):
    """One microbatch goes there and back; of seven, the place of 5 of 8 layers works without a break."""
    plan = parse_plan("pp=3,layers=1,5,2,microbatch=1", global_batch=passes, seq=192)
    request = replace(asked(DENSE, 3, passes, 192), stack=stack)
    outline = Outline.of(of(request, "switch:n=16,bandwidth=1GB/s,latency=0s").paths, plan)
    least = Ways(Rates(1.0, 1.0), plan)
    forward, first, later = outline.spans(least).sum(axis=1).T
    begun, ended, _ = outline.ends_s(least)[0]
    there, back = (0.0, 11e-6, 24e-6), (0.0, 37e-6, 78e-6)  # from place 0 to each, and from each to place 0
    if passes == 1:
        taken = begun + sum(forward) + there[2] + sum(first) + back[2] + ended
    else:
        sends = (passes * (5 + 23) - 23) * 1e-6 if waits else 0.0
        taken = begun + forward[0] + there[1] + passes * forward[1] + first[1] + (passes - 1) * later[1] + sends
        taken += min(first[0], later[0]) + back[1] + ended
    assert outline.seconds(least) == pytest.approx(taken, rel=1e-8)
