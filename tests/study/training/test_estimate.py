"""A step that is estimated is the step that real ranks take; what does not fit a device is refused."""

from dataclasses import replace

import pytest

from emu.collective.choice import Choice
from emu.errors import InputError
from emu.model.plan.plan_text import parse_plan
from emu.model.stack.stack import Stack, parse_stack
from emu.study.choice.chooser import choice_on
from emu.study.training.estimate import EstimateRequest, estimate
from emu.study.training.learn.learn import on_threads
from emu.study.training.learn.program import Program, read_text
from emu.study.training.step.step import time_trace
from emu.topology.catalogue import build_topology
from emu.trace.replay.replay import TraceLayout
from launch.data.devices import find_device
from tests.model.generate.executed import EXECUTED
from tests.two_layers import TWO_LAYERS

BOARD = build_topology("ub-mesh:board")
SWITCH = build_topology("switch:n=8,bandwidth=450GB/s,latency=1us")
H100 = find_device("h100", "bfloat16")
BIG = {"global_batch": 64, "seq": 8192}


def asked(plan, model="llama-tiny", precision=None, **batch):
    stack = Stack() if precision is None else Stack(precision=precision)
    return EstimateRequest(model, parse_plan(plan, **batch), stack, ("auto",))


@pytest.mark.parametrize("plan", ["dp=1", "dp=2,tp=2", "tp=4,sp,clip=0"])
def test_an_estimated_step_takes_as_long_as_that_of_real_ranks(plan):
    request = asked(plan, TWO_LAYERS, EXECUTED, global_batch=8, seq=64)
    program = Program(request.model, request.plan, read_text(), 3, seed=0, learning_rate=1e-3)
    _, trace = on_threads(request.plan.world, Choice(), program)
    ran = time_trace(TraceLayout(trace, choice_on(BOARD, ("auto",), "float32"), BOARD, H100, "float32")).step()
    found = estimate(request, BOARD, H100)
    assert found.step_time_s == pytest.approx(ran.step_time_s, rel=0.02)
    assert found.exposed_comm_s == pytest.approx(ran.exposed_comm_s, rel=0.02)
    assert found.algorithms == {op: name for op, name in ran.algorithms.items() if op in found.algorithms}


def test_a_real_model_at_its_real_size_is_estimated_by_some_ranks_of_a_rack():
    found = estimate(asked("tp=8,sp,dp=8,microbatch=1", "llama3-8b", **BIG), build_topology("ub-mesh:rack"), H100)
    assert (found.ranks, found.timed_ranks) == (
        64,
        8,
    )  # the norm of gradients is one number, not one for each rank of tp
    assert found.compute_s + found.exposed_comm_s + found.idle_s == pytest.approx(found.step_time_s)
    assert 0.1 < found.mfu < 0.6  # of the peak; operators reach 0.6 of it at the most
    assert sum(found.memory_by_part_bytes.values()) == found.peak_memory_bytes < H100.memory_bytes


def test_a_slower_network_shows_in_communication_and_in_nothing_else():
    request = asked("tp=8,sp", "llama3-8b", global_batch=1, seq=4096)
    links = "switch:n=8,latency=1us,bandwidth="
    fast, slow = (estimate(request, build_topology(f"{links}{rate}"), H100) for rate in ("450GB/s", "45GB/s"))
    assert slow.compute_s == fast.compute_s
    assert slow.exposed_comm_s > 5 * fast.exposed_comm_s
    assert slow.mfu < fast.mfu


def test_a_model_that_does_not_fit_the_device_is_refused_unless_its_memory_is_not_known():
    with pytest.raises(InputError, match=r"^plan: llama3-70b by tp=8 takes \S+ GiB of a rank's memory"):
        estimate(asked("tp=8", "llama3-70b", global_batch=1, seq=2048), BOARD, H100)
    unknown = replace(H100, memory_bytes=0)
    assert estimate(asked("tp=8", "llama3-70b", global_batch=1, seq=2048), BOARD, unknown).step_time_s > 0


def under(words, plan, **batch):
    stack = parse_stack(words)
    found = estimate(
        EstimateRequest("llama3-8b", parse_plan(plan, **batch), stack, ("auto", "all_reduce=recursive-doubling")),
        SWITCH,
        H100,
    )
    assert found.step_time_s == pytest.approx(found.compute_s + found.exposed_comm_s + found.idle_s)
    return found


def test_the_more_of_a_stack_overlaps_the_less_is_exposed():
    """A stack hides tensor parallelism behind nothing, the backward or products, and gradients behind nothing or the rest."""
    batch = {"global_batch": 2, "seq": 2048}
    tp = [under(f"software=megatron,tp={how}", "tp=8,sp", **batch) for how in ("exposed", "backward", "overlapped")]
    exposed = [each.exposed_comm_by_axis_s["tp"] for each in tp]
    assert exposed[0] > 1.2 * exposed[1] > 1.2 * exposed[2]
    assert len({each.compute_s for each in tp}) == 1
    batch = {"global_batch": 8, "seq": 2048, "microbatch": 1}
    dp = [under(f"software=megatron,dp={how}", "tp=4,sp,dp=2,sharding=zero1", **batch) for how in ("exposed", "overlapped")]
    assert dp[0].exposed_comm_by_axis_s["dp"] > 1.5 * dp[1].exposed_comm_by_axis_s["dp"]


@pytest.mark.parametrize(("words", "exposed"), [("tp=4,sp,dp=2", 1.0), ("pp=4,dp=2", 1.0), ("pp=4,vp=4,dp=2", 0.25)])
def test_gradients_of_chunks_are_hidden_but_for_those_of_the_last(words, exposed):
    """The last chunk's backward ends the step, and its gradients come after it: of v chunks 1 / v."""
    batch = {"global_batch": 32, "seq": 2048, "microbatch": 1}
    whole, chunked = (under(f"software=megatron,dp={how}", words, **batch) for how in ("exposed", "chunked"))
    shares = [each.exposed_comm_by_axis_s["dp"] for each in (chunked, whole)]
    assert shares[0] / shares[1] == pytest.approx(exposed, abs=0.1)  # the first and the last stage have a matrix of words more


def test_launches_and_alphas_make_a_step_longer_by_their_number():
    batch = {"global_batch": 1, "seq": 512}
    plain, slow, far = (
        under(f"software=megatron,tp=exposed{w}", "tp=8,sp", **batch) for w in ("", ",launch=20us", ",alpha=5us")
    )
    requests = 32 * 10 + 2 + 3 + 3 + 2  # of layers, the embedding, the head, the loss; of norms and the norm
    assert slow.step_time_s - plain.step_time_s == pytest.approx(requests * 20e-6, rel=1e-6)
    assert slow.idle_s == plain.idle_s == 0
    assert far.step_time_s - plain.step_time_s >= requests * 5e-6
    assert any("5 us for each message" in told for told in far.assumptions)
    assert far.stack == "software=megatron,tp=exposed,alpha=5us"


@pytest.mark.parametrize(("plan", "own"), [("pp=4", "exposed"), ("pp=4,vp=2", "overlapped")])
def test_messages_of_a_pipeline_overlap_in_the_interleaved_order_unless_a_stack_says_so(plan, own):
    slow = build_topology("switch:n=4,bandwidth=1GB/s,latency=1us")

    def step_s(words):
        request = EstimateRequest("llama-tiny", parse_plan(plan, global_batch=8, seq=64), parse_stack(words), ("auto",))
        return estimate(request, slow, H100).step_time_s

    times = {how: step_s(f"software=megatron,pp={how}") for how in ("exposed", "overlapped")}
    assert times["overlapped"] < times["exposed"]
    assert step_s("software=megatron") == times[own]


ALL_EXPOSED = "software=megatron,tp=exposed,cp=exposed,pp=exposed"
ALL_OVERLAPPED = "software=megatron,tp=overlapped,cp=overlapped,ep=overlapped,dp=overlapped,pp=overlapped,attention=unfused"


@pytest.mark.parametrize("words", [ALL_EXPOSED, ALL_OVERLAPPED])
@pytest.mark.parametrize(
    ("name", "plan"),
    [
        ("gpt-tiny", "tp=2,sp,pp=2,vp=2,dp=2,sharding=zero1"),
        ("gpt-tiny", "cp=2,dp=2,pp=2,vp=2"),
        ("mixtral-tiny", "tp=2,sp,cp=2,dp=2,ep=4,etp=1,recompute=full"),
        ("gpt-moe-tiny", "dp=4,ep=2,pp=2,sharding=zero1,recompute=selective"),
    ],
)
def test_ranks_meet_wherever_their_stack_waits(name, plan, words):
    """No send waits for what waits for it, on any rank."""
    laid = parse_plan(plan, global_batch=16, seq=64)
    fabric = build_topology(f"switch:n={laid.world},bandwidth=50GB/s,latency=1us")
    ring = ("all_reduce=ring", "all_gather=ring", "reduce_scatter=ring")
    found = estimate(EstimateRequest(name, laid, parse_stack(words), ring), fabric, H100)
    assert found.step_time_s == pytest.approx(found.compute_s + found.exposed_comm_s + found.idle_s)
    assert (found.bubble_s > 0) == (laid.pp > 1)
    assert (found.hfu > found.mfu) == (laid.recompute != "none")


def test_the_report_says_what_its_memory_rests_on():
    batch = {"global_batch": 8, "seq": 512}
    held = asked("tp=8,sp", "llama3-8b", **batch)
    others = (replace(held, stack=parse_stack("software=megatron")), asked("ep=8,dp=8", "mixtral-8x7b", **batch))
    told = [estimate(request, BOARD, replace(H100, memory_bytes=0)).assumptions[-1] for request in (held, *others)]
    assert [each.partition("; ")[2].partition(" ")[0] for each in told] == ["tests", "no", "tests"]


@pytest.mark.parametrize("line", ["infinitehbd:lines:nodes=8,line=4", "infinitehbd:binary:nodes=16"])
def test_a_step_is_served_by_algorithms_for_which_no_switch_turns_two_ways_at_once(line):
    """Some algorithms need a switch in two states in one round: they are not chosen, whoever names them is told."""
    topology = build_topology(line)
    assert topology.circuits is not None
    request = asked("tp=2,dp=4", TWO_LAYERS, global_batch=8, seq=64)
    found = estimate(request, topology, H100)
    assert found.exposed_comm_s > 0
    named = [f"tp.{each}={name}" for each, name in found.algorithms_by_axis["tp"].items()]
    again = estimate(replace(request, algorithms=("auto", *named)), topology, H100)
    assert again.step_time_s == pytest.approx(found.step_time_s, rel=1e-9)
