"""Which line of a script its communication comes from, and what that costs."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from emu.cluster.fake.fake_run import trace_script
from emu.cluster.script_run import run_script
from emu.cluster.threads.threads import LocalCluster
from emu.collective.choice import Choice
from emu.model.plan.plan_text import parse_plan
from emu.study.choice.chooser import choice_on
from emu.study.measure.bench import bench
from emu.study.measure.request import BenchRequest
from emu.study.training.learn.program import Program, read_text
from emu.study.training.step.costly_requests import hints, with_costliest
from emu.study.training.step.step import CostlyRequest, time_trace
from emu.study.training.timed_step import time_step
from emu.topology.catalogue import build_topology
from emu.trace.replay.replay import TraceLayout
from emu.trace.trace_file import load, save
from launch.data.devices import find_device

SCRIPT = """
import torch, torch.distributed as dist
dist.init_process_group()
model = torch.nn.Linear(256, 256, bias=False)
optimizer = torch.optim.SGD(model.parameters())
for _ in range(3):
    model(torch.randn(8, 256)).sum().backward()
    dist.all_reduce(model.weight.grad)
    for _ in range(8):
        dist.all_gather([torch.empty(32) for _ in range(4)], torch.ones(32))
    optimizer.step()
"""
PIPELINE = Path(__file__).parents[3] / "scripts" / "pipeline.py"
BOARD = build_topology("full-mesh:n=4,bandwidth=50GB/s,latency=500ns")
H100 = find_device("h100", "float32")
CHOICE = choice_on(BOARD, ("all_reduce=ring", "all_gather=direct"), "float32")


def found(trace, time=time_trace, **how):
    timed = time(TraceLayout(trace, CHOICE, BOARD, H100, "float32"), **how)
    return with_costliest(timed.step(), timed)


@pytest.fixture
def script(tmp_path):
    path = tmp_path / "loop.py"
    path.write_text(SCRIPT)
    return path


def test_the_costliest_requests_are_told_by_line_with_what_another_algorithm_takes(script):
    step = found(run_script(script, (), 4)[0])
    reduced, gathered = step.costliest
    assert (reduced.line, gathered.line) == (f"{script}:8", f"{script}:10")
    assert (reduced.operation, reduced.times, reduced.size_bytes, reduced.algorithm) == ("all_reduce", 1, 256 * 256 * 4, "ring")
    assert (gathered.operation, gathered.times, gathered.size_bytes, gathered.ranks) == ("all_gather", 8, 4 * 32 * 4, 4)
    (alone,) = bench(BOARD, BenchRequest("all_reduce", "ring", (2**18,)))
    assert reduced.alone_s == reduced.time_s == alone.time_s
    assert (reduced.busbw_Bps, reduced.of_bound) == (alone.busbw_Bps, alone.of_bound)
    (other,) = bench(BOARD, BenchRequest("all_reduce", "auto", (2**18,)))
    assert reduced.next_s == other.time_s < reduced.alone_s
    assert reduced.time_s + gathered.time_s == pytest.approx(step.exposed_comm_s)


def test_an_algorithm_that_was_not_timed_is_not_the_next_best(script, monkeypatch):
    trace = run_script(script, (), 4)[0]
    every = found(trace).costliest
    monkeypatch.setattr("emu.study.measure.bench.LIGHT", 0)
    assert [each.next_s for each in found(trace).costliest] == [each.next_s for each in every]
    assert None not in {each.next_s for each in every}


def test_small_requests_in_a_loop_and_communication_that_nothing_hides_are_hinted_at(script):
    loop, exposed = found(run_script(script, (), 4)[0]).hints
    assert loop.startswith(f"{script}:10: 8 all_gather of 512 B each in a step")
    assert exposed.startswith("100 % of the communication is exposed")


def test_messages_of_microbatches_are_not_taken_for_requests_that_could_be_one():
    step = found(run_script(PIPELINE, ("2",), 4)[0])
    messages = next(each for each in step.costliest if each.operation == "message")
    assert (messages.times, messages.size_bytes) == (8, 4 * 32 * 4)  # activations and gradients of four microbatches
    assert not any("message" in hint for hint in step.hints)


def test_lines_are_kept_with_a_trace_and_known_without_data_and_where_a_step_is_composed(script, tmp_path):
    ran = run_script(script, (), 4)[0]
    save(ran, tmp_path / "t.trace")
    assert found(load(tmp_path / "t.trace")).costliest == found(ran).costliest
    traced = trace_script(script, (), 4)[0]
    assert found(traced).costliest == found(ran).costliest
    composed = found(traced, time_step, most_events=0)
    assert [each.line for each in composed.costliest] == [f"{script}:8", f"{script}:10"]
    assert [each.next_s for each in composed.costliest] == [each.next_s for each in found(ran).costliest]


def test_a_program_of_no_user_s_has_no_lines():
    program = Program("llama-tiny", parse_plan("dp=2", global_batch=2, seq=16), read_text(), 2, 0, 1e-3)
    step = found(LocalCluster().run_traced(2, Choice(), program)[1])
    assert step.costliest is None
    assert step.hints is None


def request(**told):
    """A request of a line of a program, with what is told of it."""
    usual = {
        "line": "a.py:1",
        "operation": "all_reduce",
        "axis": "dp",
        "ranks": 4,
        "times": 8,
        "size_bytes": 2**20,
        "time_s": 1.0,
    }
    names = ("algorithm", "alone_s", "busbw_Bps", "of_bound", "next_algorithm", "next_s")
    return CostlyRequest(**{**usual, **dict.fromkeys(names), **told})


@pytest.mark.parametrize(
    ("told", "hinted"),
    [
        ({}, True),
        ({"times": 7}, False),
        ({"size_bytes": 2**20 + 1}, False),
        ({"operation": "message"}, False),
        ({"times": 99}, True),
    ],
)
def test_eight_requests_of_a_line_that_are_small_are_worth_a_hint(told, hinted):
    hidden = SimpleNamespace(step_time_s=1.0, exposed_comm_s=0.0, total_comm_s=1.0)
    assert len(hints(hidden, [request(**told)])) == hinted


@pytest.mark.parametrize(
    ("exposed_s", "total_s", "hinted"),
    [(0.1, 0.1, True), (0.09, 0.09, False), (0.45, 0.5, True), (0.44, 0.5, False), (0, 0, False)],
)
def test_communication_is_worth_a_hint_where_it_is_a_tenth_of_the_step_and_hardly_hidden(exposed_s, total_s, hinted):
    told = hints(SimpleNamespace(step_time_s=1.0, exposed_comm_s=exposed_s, total_comm_s=total_s), [request(times=1)])
    assert len(told) == hinted
    if told:
        share = f"{100 * exposed_s / total_s:.0f} % of the communication is exposed, {100 * exposed_s:.0f} % of the step"
        assert told[0].startswith(share)
