"""A timeline of many ranks has the lanes of one rank a role and stage, and of the busiest links, unless all are asked for."""

import json
from dataclasses import replace

import pytest

from emu.collective.choice import Choice
from emu.model.plan.plan_text import parse_plan
from emu.study.training.estimate import EstimateRequest, estimate_and_times
from emu.study.training.step.step import time_trace
from emu.topology.catalogue import build_topology
from emu.trace.replay.delay import Delay
from emu.trace.replay.replay import TraceLayout, brief_replay
from emu.trace.report.report import rank_times
from launch.data.devices import find_device
from launch.show import lanes as lanes_module
from launch.show.lanes import few_lanes, representatives

BOARD, H100 = build_topology("ub-mesh:board"), find_device("h100", "bfloat16")
REQUEST = EstimateRequest("llama-tiny", parse_plan("tp=2,pp=2,dp=2", global_batch=8, seq=32))


@pytest.fixture(scope="module")
def timed():
    """With every message."""
    return time_trace(TraceLayout(estimate_and_times(REQUEST, BOARD, H100)[1].trace, Choice(), BOARD, H100, "float32"))


def owners(timed):
    return list(dict.fromkeys(lane.owner for lane in few_lanes(timed)))


def test_a_small_run_has_the_lanes_of_every_rank(timed):
    assert owners(timed) == [*(f"rank {rank}" for rank in range(8)), "links"]


def test_of_many_ranks_those_that_stand_for_a_stage_have_lanes(timed, monkeypatch):
    monkeypatch.setattr(lanes_module, "MOST_RANKS", 4)
    told = timed.report.rank
    first = {0: 0, 1: 4} | {told // 4: told}
    assert owners(timed) == [*(f"rank {rank}, stage {stage} (4 alike)" for stage, rank in first.items()), "links"]
    assert sum(each.alike for each in representatives(timed)) == 8


def test_of_many_links_the_busiest_have_lanes(timed, monkeypatch):
    monkeypatch.setattr(lanes_module, "MOST_LINKS", 3)
    numbers = [int(lane.stream.split(":")[0].removeprefix("link ")) for lane in few_lanes(timed) if lane.owner == "links"]
    assert len(numbers) == 3
    assert min(timed.link_busy[numbers]) == sorted(timed.link_busy[sorted(set(timed.replayed.link.tolist()))])[-3]


def test_links_have_no_lanes_where_a_delay_stands_for_their_messages(timed):
    laying = TraceLayout(timed.trace, Choice(), BOARD, H100, "float32")
    replayed, timeline = brief_replay(laying, worth=1)
    assert any(isinstance(piece, Delay) for piece in replayed.pieces)
    assert owners(replace(timed, replayed=replayed, timeline=timeline)) == [f"rank {rank}" for rank in range(8)]


def test_the_rank_that_is_told_is_told_apart_as_the_report_has_it(timed):
    (parts,) = rank_times(timed.trace, timed.replayed, timed.timeline, timed.report, [timed.report.rank])
    assert parts.compute_fs == timed.report.compute_fs
    assert parts.exposed_fs == timed.report.exposed_comm_by_axis_fs


def test_every_rank_is_written_where_it_is_asked_for(emu, tmp_path, monkeypatch):
    monkeypatch.setattr(lanes_module, "MOST_RANKS", 4)
    plan = ("--plan", "tp=2,pp=2,dp=2", "--global-batch", "8", "--seq", "32", "--topology", "ub-mesh:board")
    tracks = []
    for more in ((), ("--every-rank",)):
        path = tmp_path / "t.json"
        assert emu("estimate", "--model", "llama-tiny", *plan, "--timeline", str(path), *more).code == 0
        events = json.loads(path.read_text())["traceEvents"]
        tracks.append(sum(e["name"] == "process_name" and e["args"]["name"].startswith("rank") for e in events))
    assert tracks == [2, 8]
