"""The main job: real steps, held against one process, then timed on topologies."""

from dataclasses import asdict, replace
from types import SimpleNamespace

import psutil
import pytest

from emu.collective.choice import Choice
from emu.errors import InputError
from emu.model.plan.plan import Plan
from emu.study.training.step.step import time_trace
from emu.study.training.train import TrainRequest, run_steps, time_steps, train
from emu.topology.catalogue import build_topology
from emu.trace.replay.replay import TraceLayout
from emu.units import seconds
from launch.data.devices import DEVICES
from tests.model.counts import sequence_flops
from tests.trace.walked import walked
from tests.two_layers import MODEL as TINY
from tests.two_layers import TWO_LAYERS

H100 = DEVICES["h100"]
PLAN = Plan(tp=2, dp=2, global_batch=8, seq=64)
REQUEST = TrainRequest(TWO_LAYERS, PLAN, steps=2)
SWITCH = "switch:n=4,bandwidth=50GB/s,latency=500ns"


def on(*topologies, request=REQUEST):
    return list(train(request, [build_topology(t) for t in topologies], H100))


SLOW = "switch:n=4,bandwidth=5GB/s,latency=5us"  # a tenth of the bandwidth and ten times the latency


@pytest.fixture(scope="module")
def learned():
    return run_steps(REQUEST, [build_topology(SWITCH)], H100)


@pytest.fixture(scope="module")
def pair(learned):
    """Time the same run on both switches."""
    return [time_steps(REQUEST, learned, build_topology(name), H100)[0] for name in (SWITCH, SLOW)]


@pytest.mark.parametrize("which", [0, 1])
def test_a_step_is_computation_exposed_communication_and_idling(learned, pair, which):
    one, name = pair[which], (SWITCH, SLOW)[which]
    done = time_trace(TraceLayout(learned.trace, Choice(), build_topology(name), H100, "bfloat16"))
    _, step, found, total, _ = walked(learned.trace, done.replayed, done.timeline, done.report.step)
    assert len(one.step_times_s) == 2
    assert sum(one.step_times_s) == pytest.approx(done.timeline.end_s, rel=1e-12)
    assert (one.step_time_s, one.total_comm_s) == (seconds(step), seconds(total))
    assert (one.compute_s, one.idle_s) == (seconds(found["compute"]), seconds(found["idle"]))
    assert one.exposed_comm_by_axis_s == {axis: seconds(found[axis]) for axis in ("dp", "tp")}
    assert one.exposed_comm_s == seconds(found["dp"] + found["tp"]) > 0


def test_computation_takes_no_less_than_its_flops_and_bytes_allow(pair):
    flops = PLAN.rank_batch * sum(sequence_flops(TINY, PLAN.seq, PLAN.tp))
    least_bytes = 2 * 7 * TINY.parameters(PLAN.tp)  # the optimizer's
    assert pair[0].compute_s > max(flops / (0.6 * 989e12), least_bytes / (0.8 * 3.35e12))


def test_rates_follow_from_the_step_time(pair):
    weights = 131_392 - 256 * 64  # all but the input embedding
    for one in pair:
        assert one.tokens_per_s == pytest.approx(8 * 64 / one.step_time_s)
        assert one.mfu == pytest.approx((6 * weights + 12 * 2 * 64 * 64) * 512 / one.step_time_s / (4 * 989e12))


def test_a_step_of_no_time_has_no_rate():
    """One rank runs on a device so fast that no operator takes a tick."""
    request, switch = replace(REQUEST, plan=Plan(global_batch=1, seq=4), steps=1), build_topology(SWITCH)
    at_once = replace(H100, peak_flops=dict.fromkeys(H100.peak_flops, 1e40), hbm_Bps=1e40, prologue_s=0)
    one = time_steps(request, run_steps(request, [switch], H100), switch, at_once)[0]
    assert (one.step_time_s, one.tokens_per_s, one.mfu) == (0, 0, 0)


def test_a_slower_fabric_changes_communication_and_nothing_else(pair):
    fast, slow = pair
    assert slow.exposed_comm_s > 9 * fast.exposed_comm_s
    assert slow.compute_s == fast.compute_s
    assert (slow.loss, slow.peak_memory_bytes) == (fast.loss, fast.peak_memory_bytes)


def test_every_run_gives_the_same_but_for_the_wall_clock(pair):
    def virtual(one):
        return {key: value for key, value in asdict(one).items() if not key.startswith("wall_")}

    assert virtual(on(SWITCH)[0]) == virtual(pair[0])


def test_a_wider_dtype_takes_longer(pair):
    (wide,) = on(SWITCH, request=replace(REQUEST, dtype="float32"))
    assert wide.compute_s > pair[0].compute_s
    assert wide.loss == pair[0].loss


def test_what_ran_and_what_was_assumed_is_named(pair):
    assert pair[0].algorithms["all_reduce"] == "ring"
    told = " ".join(pair[0].assumptions)
    for words in ("first of the 4 NPUs", "attention is not halved", "timed as bfloat16"):
        assert words in told


def test_auto_serves_each_topology_by_what_is_the_fastest_there(pair):
    automatic = on(SWITCH, SLOW, request=replace(REQUEST, algorithms=("auto",)))
    for one, ring in zip(automatic, pair, strict=True):
        assert one.exposed_comm_s < ring.exposed_comm_s
        assert one.algorithms["all_reduce"] != "ring"
        assert one.loss == pytest.approx(ring.loss, rel=1e-6)


def nothing_starts(*_):
    raise AssertionError("the run was started")


@pytest.mark.parametrize(
    ("change", "topology", "message"),
    [
        ({"model": "llama-tinny"}, SWITCH, r"no model is called 'llama-tinny'; did you mean llama-tiny"),
        (
            {"plan": replace(PLAN, tp=8, dp=1)},
            SWITCH,
            r"plan: tp \* cp \* dp \* pp must be at most the 4 NPUs of switch\S+, got 8; take tp=4, or a larger topology",
        ),
        (
            {"plan": Plan(tp=3)},
            SWITCH,
            r"plan: tp must be a divisor of the 8 heads of \S+, got 3; take tp=2 or 4",
        ),
        ({"steps": 0}, SWITCH, r"train: --steps must be 1 or more, got 0"),
        (
            {"algorithms": ("auto", "all_reduce=rign")},
            SWITCH,
            r"no all_reduce algorithm is called 'rign'; did you mean",
        ),
        ({"dtype": "bfloat61"}, SWITCH, r"no dtype of h100 is called 'bfloat61'; did you mean bfloat16"),
        ({"text": bytes(9)}, SWITCH, r"train: --data must be at least 65 bytes, one sequence, got 9"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_starts(change, topology, message):
    with pytest.raises(InputError, match=f"^{message}"):
        list(train(replace(REQUEST, **change), [build_topology(topology)], H100, nothing_starts))


def test_a_run_that_the_host_cannot_hold_is_refused_before_anything_starts(monkeypatch):
    monkeypatch.setattr(psutil, "virtual_memory", lambda: SimpleNamespace(available=2**30))
    big = TrainRequest("llama3-8b", PLAN)
    message = (
        r"^train: llama3-8b on 4 ranks \(tp=2,dp=2\) takes about \d+(\.\d+)? GiB of memory, and this host has 1 GiB free; take"
    )
    with pytest.raises(InputError, match=message):
        list(train(big, [build_topology(SWITCH)], H100, nothing_starts))
