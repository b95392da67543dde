"""Links as the other axes of a step leave them to one axis, and the schedules that are made for these."""

from dataclasses import replace

import numpy as np
import pytest

from emu.collective.algorithm import compact_schedule
from emu.collective.choice import Request
from emu.collective.operation import operation
from emu.collective.proof import prove
from emu.model.plan.plan_text import parse_plan
from emu.study.choice.axis_synthesis import algorithms_beside
from emu.study.choice.chooser import choice_on, made_beside
from emu.study.choice.site import Requirement
from emu.study.training.composed.links_left import LinksLeft, _overlaps
from emu.study.training.composed.step_on_fabric import StepOnFabric
from emu.study.training.estimate import EstimateRequest, prepare
from emu.study.training.step_choice import beside
from emu.study.training.step_choice.algorithm_search import BESIDE, AlgorithmSearch
from emu.study.training.step_choice.beside import time_made
from emu.topology.catalogue import build_topology
from emu.trace.device.device import Device

MESH = "full-mesh:n=4,bandwidth=50GB/s,latency=500ns"
DEVICE = Device("a-device", {"bfloat16": 1e15, "float32": 1e15}, hbm_Bps=1e13)


def step_of(sharding: str, word: str = "synthesized") -> StepOnFabric:
    """Return a small step with tp and dp on four NPUs of one switch."""
    plan = parse_plan(f"dp=2,tp=2,sharding={sharding},microbatch=1", global_batch=2, seq=32)
    request = EstimateRequest("llama-tiny", plan, algorithms=(word,))
    return prepare(request, build_topology("switch:n=4,bandwidth=1GB/s,latency=500ns"), DEVICE).on_fabric(DEVICE)


def narrowed(share: float):
    """Return a mesh of four NPUs, and the same with a share of the link from NPU 0 to NPU 1."""
    topology = build_topology(MESH)
    links = topology.links
    one = (links.src == 0) & (links.dst == 1)
    left = replace(links, bandwidth_Bps=np.where(one, links.bandwidth_Bps * share, links.bandwidth_Bps))
    return topology, replace(topology, links=left, symmetry=None)


def test_the_time_in_which_calls_of_an_axis_run_is_counted_once():
    began, ended = np.array([0, 5, 20, 4, 12, 30, 7]), np.array([10, 12, 30, 8, 24, 40, 7])
    own = np.array([True, True, True, False, False, False, False])  # from 0 to 12, and from 20 to 30
    share, together = _overlaps(began, ended, own)
    assert together == 22
    assert share[~own].tolist() == [1.0, pytest.approx(4 / 12), 0.0, 0.0]
    none, never = _overlaps(began, ended, np.zeros(7, np.bool_))
    assert (none.tolist(), never) == ([0.0] * 7, 0)


def test_a_call_within_a_longer_one_does_not_end_the_time_in_which_its_axis_runs():
    """The call from 1 to 2 is a part of the calls from 0 to 10, and so is the time between it and the next, at 5."""
    began, ended = np.array([0, 1, 5, 2, 0]), np.array([10, 2, 8, 6, 20])
    share, together = _overlaps(began, ended, np.array([True, True, True, False, False]))
    assert together == 10
    assert share.tolist() == [1.0, 1.0, 1.0, 1.0, 0.5]


def test_a_link_that_others_fill_keeps_a_quarter_of_its_rate_and_links_are_no_longer_alike(monkeypatch):
    """A schedule that avoids a link altogether is no aim; the symmetries of the whole links hold no more."""
    step = step_of("ddp", "auto")
    shares = np.linspace(0, 1.5, len(step.topology.links))
    monkeypatch.setattr(LinksLeft, "taken", lambda *_: shares)
    left = LinksLeft(step).of("tp")
    rate = left.links.bandwidth_Bps / step.topology.links.bandwidth_Bps
    assert rate.tolist() == pytest.approx(np.maximum(1 - shares, 0.25).tolist(), abs=1 / 64)
    assert step.topology.symmetry is not None
    assert left.symmetry is None


def test_axes_whose_calls_never_run_beside_one_another_leave_all_links():
    left = LinksLeft(step_of("ddp"))
    assert left.of("tp") is None
    assert left.of("dp") is None


def test_what_calls_of_others_carry_meanwhile_is_taken_off_the_links_that_they_cross():
    step = step_of("fsdp")
    taken = LinksLeft(step).taken("tp")
    assert (taken > 0.05).sum() == len(step.topology.links)  # each NPU sends and receives for dp
    left = LinksLeft(step).of("tp")
    share = left.links.bandwidth_Bps / step.topology.links.bandwidth_Bps
    assert share.tolist() == pytest.approx((1 - taken).tolist(), abs=1 / 64)
    assert left.links.latency_fs.tolist() == step.topology.links.latency_fs.tolist()
    assert step.timed().topology is step.topology  # the step itself has whole links


@pytest.mark.parametrize("name", ["all_gather", "reduce_scatter"])
def test_a_schedule_spares_a_link_that_others_take_most_of(name):
    topology, left = narrowed(0.1)
    wanted = Requirement(name, 0, 2**22, 4)
    [served] = algorithms_beside(topology, left, ((0, 1, 2, 3),), wanted).values()
    made = compact_schedule(name, served.algorithm, 4)
    prove(made, operation(name, 4))
    sent = np.bincount(made.src * 4 + made.dst, minlength=16).reshape(4, 4)
    assert sent[0, 1] < 0.4 * sent[0, 2]


def test_where_others_take_nothing_of_the_links_of_an_axis_no_schedule_is_made_for_it():
    topology, left = narrowed(0.1)
    assert algorithms_beside(topology, left, ((2, 3),), Requirement("all_reduce", 0, 2**16, 4)) == {}
    request = Request("all_gather", (0, 1, 2, 3), elements=2**16, axis="tp")
    made, auto = (choice_on(topology, (word,), "float32").chooser for word in ("synthesized", "auto"))
    assert made_beside(auto, lambda _: left) is None
    assert made_beside(made, lambda _: None)(request) is None
    assert made_beside(made, lambda _: left)(request) != made(request)
    assert made_beside(made, lambda _: left)(request._replace(operation="gather")) is None


def test_the_shorter_step_of_both_is_taken(monkeypatch):
    step = step_of("fsdp")
    first = step.timed()
    assert time_made(step).report.step_time_s <= first.report.step_time_s
    for word in ("auto", "all_reduce=ring"):
        other = choice_on(step.topology, (word,), "bfloat16")
        monkeypatch.setattr(beside, "_choice_beside", lambda _, other=other: other)
        other_s = step.by(other).timed().report.step_time_s
        assert time_made(step).report.step_time_s == min(first.report.step_time_s, other_s)


def test_a_search_tries_schedules_for_what_others_leave():
    assert BESIDE in AlgorithmSearch(step_of("fsdp", "auto+synthesized")).others
    assert BESIDE not in AlgorithmSearch(step_of("fsdp", "auto")).others
