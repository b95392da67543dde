"""A step composed of requests timed once, against the whole graph of all its ranks."""

import re
from dataclasses import fields, replace

import numpy as np
import pytest

from emu.errors import InputError
from emu.fabric.build import Builder
from emu.fabric.packet_fabric import FLUID_ASSUMED
from emu.fabric.run import run_graph
from emu.model.generate.generate import roles_by_place
from emu.model.model import MODELS
from emu.model.plan.plan_text import parse_plan
from emu.model.stack.software import MEGATRON
from emu.model.stack.stack import SOFTWARE, Stack
from emu.study.isolated_request import IsolatedRequest, time_isolated
from emu.study.training.composed import composed_graph
from emu.study.training.composed import distinct_times as timing
from emu.study.training.composed.bodies import Sharing, bodies_of
from emu.study.training.composed.representatives import representatives_of_plan
from emu.study.training.composed.requests_by_place import requests_by_place
from emu.study.training.composed.step_on_fabric import COMPOSED_ASSUMED
from emu.study.training.estimate import EstimateRequest, estimate
from emu.study.training.step_choice.algorithm_search import TimingEffort
from emu.topology.catalogue import build_topology
from emu.trace.trace import Kind
from emu.units import TICKS_PER_S
from tests.study.training.composed.composed_and_whole import H100, both_ways

MS = TICKS_PER_S // 1000


def both(line, words, model="llama-tiny", software="pytorch", **batch):
    """Return the figures of a composed step and of the whole graph."""
    few, whole = both_ways(line, words, model, f"software={software}", **batch)
    return few.step(), whole.step()


def same(few, whole, names):
    for name in names:
        assert getattr(few, name) == pytest.approx(getattr(whole, name), rel=1e-3), name


@pytest.mark.parametrize(
    ("line", "words", "model"),
    [
        ("ub-mesh:rack", "tp=4,sp,pp=2,dp=4", "llama-tiny"),
        ("servers:nodes=4", "tp=4,pp=2,dp=4,vp=2", "llama-tiny"),
        ("ub-mesh:rack", "tp=2,ep=4,dp=8,pp=2", "gpt-moe-tiny"),
    ],
)
def test_where_axes_do_not_meet_on_a_link_a_composed_step_is_that_of_all_ranks(line, words, model):
    few, whole = both(line, words, model, global_batch=16, seq=64)
    same(few, whole, ("step_time_s", "compute_s", "idle_s", "total_comm_s", "exposed_comm_by_axis_s"))
    assert few.ranks == whole.ranks == 32
    assert few.rank == whole.rank
    served = [{op: set(names.split(", ")) for op, names in step.algorithms.items()} for step in (few, whole)]
    assert served[0] == served[1]
    path = [[(p.what, p.axis, p.stage) for p in step.critical_path[:3]] for step in (few, whole)]
    assert path[0] == path[1]
    assert [link.busy for link in few.busiest_links] == pytest.approx([link.busy for link in whole.busiest_links], rel=1e-3)


@pytest.mark.parametrize("software", [*SOFTWARE])
@pytest.mark.parametrize(("line", "words"), [("ub-mesh:rack", "tp=4,sp,cp=4,dp=2"), ("servers:nodes=4", "tp=2,cp=2,dp=4,pp=2")])
def test_keys_and_values_go_round_their_rings_in_a_composed_step_too(line, words, software):
    """PyTorch's ranks send to one member each by an all_to_all, Megatron-LM's by messages."""
    few, whole = both(line, words, software=software, global_batch=16, seq=256)
    assert few.step_time_s == pytest.approx(whole.step_time_s, rel=3e-3)  # PyTorch's ranks see other halves of the keys
    assert few.compute_s == pytest.approx(whole.compute_s, rel=1e-2)
    assert few.exposed_comm_by_axis_s["cp"] == pytest.approx(whole.exposed_comm_by_axis_s["cp"], rel=1e-2)
    assert few.exposed_comm_by_axis_s["cp"] > 0


def test_where_two_axes_share_nics_a_composed_step_tells_what_that_costs():
    few, whole = both("fat-tree:radix=8", "tp=2,sp,dp=8,sharding=fsdp", global_batch=32, seq=128)
    assert few.step_time_s == pytest.approx(whole.step_time_s, rel=0.05)
    assert few.exposed_comm_by_axis_s["tp"] == pytest.approx(whole.exposed_comm_by_axis_s["tp"], rel=0.1)


def test_requests_take_the_ways_that_a_fat_tree_gives_their_axis():
    """A hash of the communicator's number spreads them: by the number of another axis this step would be 4 % shorter."""
    words, batch = "cp=4,dp=4,pp=2", {"global_batch": 16, "seq": 2048}
    few, whole = both("fat-tree:radix=8", words, "llama3-8b", software="megatron", **batch)
    assert few.step_time_s == pytest.approx(whole.step_time_s, rel=0.01)


def test_a_composed_step_is_as_long_where_messages_are_sprayed():
    few, whole = both("fat-tree:radix=8,taper=3,route=spray", "tp=2,sp,dp=8", global_batch=32, seq=128)
    assert few.step_time_s == pytest.approx(whole.step_time_s, rel=0.02)


def test_a_step_of_more_events_than_a_graph_should_have_is_composed():
    request = EstimateRequest("llama-tiny", parse_plan("tp=2,dp=2,pp=2", global_batch=8, seq=64), algorithms=("auto",))
    board = build_topology("ub-mesh:board")
    whole = estimate(request, board, H100)
    few = estimate(request, board, H100, effort=TimingEffort(10))
    assert (few.engine, few.timed_ranks, few.ranks) == ("composed", 2, 8)
    assert whole.engine != "composed"
    assert whole.timed_ranks > 2
    assert few.tasks < whole.tasks
    assert few.step_time_s == pytest.approx(whole.step_time_s, rel=1e-3)
    assert COMPOSED_ASSUMED in few.assumptions
    assert set(FLUID_ASSUMED) < set(few.assumptions) & set(whole.assumptions)
    assert COMPOSED_ASSUMED not in whole.assumptions
    other = {
        "engine",
        "timed_ranks",
        "tasks",
        "wall_s",
        "wall_fabric_s",
        "assumptions",
        "busiest_links",
        "critical_path",
        "algorithms",
    }
    assert few.between_s[0] < few.step_time_s < few.between_s[1]
    assert whole.between_s is None
    assert 0 < few.wall_fabric_s <= few.wall_s
    other.add("between_s")
    for name in {f.name for f in fields(whole)} - other:
        value = getattr(whole, name)
        about = isinstance(value, float) or name.endswith("axis_s")
        assert getattr(few, name) == (pytest.approx(value, rel=1e-3) if about else value), name


def once(ms, *busy_ms, flows=1):
    busy = np.array(busy_ms) / 1000
    crossed = np.flatnonzero(busy)
    return IsolatedRequest(round(ms * MS), 0, crossed, busy[crossed], flows, 1)


def ends_of(asked, kinds):
    """When each ends, in ms, where all begin at once."""
    bodies = bodies_of(asked, kinds, np.ones(len(asked), np.int64), np.full(2, 1e9))
    builder = Builder(bodies.capacity_Bps)
    builder.messages(*bodies.of(np.arange(len(asked))))
    return (run_graph(builder.graph()).end_fs / MS).tolist()


def test_requests_share_a_link_that_both_cross_flow_by_flow():
    alone, beside = once(4, 4, 0), once(4, 0, 4)
    assert ends_of([alone, beside], "ab") == pytest.approx([4, 4])
    assert ends_of([alone, alone], "ab") == pytest.approx([8, 8])
    assert ends_of([alone, alone], "aa") == pytest.approx([4, 4])  # of one kind: one after another, the graph says so
    assert ends_of([alone, once(4, 4, 0, flows=3)], "ab") == pytest.approx([8, 16 / 3], rel=0.01)
    assert ends_of([alone, once(4, 2, 4)], "ab") == pytest.approx([6, 6], rel=0.01)


def test_what_of_a_request_keeps_no_link_busy_is_not_made_longer_by_another():
    assert ends_of([once(4, 1), once(4, 4)], "ab") == pytest.approx([5, 5], rel=0.01)


def test_what_goes_on_once_a_rank_has_left_meets_the_next_of_its_kind():
    """Ranks that take 4 ms leave after 1 on average: the next begins then, and both keep the link busy for 8 ms."""
    broadcast = IsolatedRequest(4 * MS, 3 * MS, np.array([0]), np.array([4 / 1000]), 1.0, 1)
    bodies = bodies_of([broadcast, broadcast], "aa", np.ones(2, np.int64), np.full(2, 1e9))
    builder = Builder(bodies.capacity_Bps)
    first, after, second, last = builder.messages(*bodies.of(np.array([0, 2, 1, 3])))
    for task, pred in ((after, first), (second, first), (last, second)):
        builder.wait(np.array([task]), np.array([pred]))
    ends = run_graph(builder.graph()).end_fs / MS
    assert ends[first] == pytest.approx(1)
    assert ends.max() == pytest.approx(8, rel=0.02)


def test_a_request_that_shares_nothing_has_a_tail_where_its_sender_leaves_before_its_end():
    """The sender is gone after 1 of 4 ms; a request that all leave at its end is a delay of its whole time."""
    leaves, stays = (IsolatedRequest(4 * MS, tail, np.array([0]), np.array([4 / 1000]), 1.0, 1) for tail in (3 * MS, 0))
    bodies = bodies_of([leaves, stays], "ab", np.ones(2, np.int64), np.full(2, 1e9), Sharing.NOTHING)
    assert bodies.has_tail.tolist() == [True, False]
    builder = Builder(bodies.capacity_Bps)
    first, whole, tail = builder.messages(*bodies.of(np.array([0, 1, 2])))
    builder.wait(np.array([tail]), np.array([first]))
    ends = run_graph(builder.graph()).end_fs / MS
    assert ends[[first, whole, tail]].tolist() == pytest.approx([1, 4, 4])


@pytest.mark.parametrize(("sharing", "ends"), [(Sharing.NOTHING, [4, 4]), (Sharing.FLOWS, [5, 5]), (Sharing.ALL, [8, 8])])
def test_requests_that_overlap_ask_less_or_more_of_a_link(sharing, ends):
    asked = [once(4, 4), once(4, 1)]
    bodies = bodies_of(asked, "ab", np.ones(2, np.int64), np.full(2, 1e9), sharing)
    builder = Builder(bodies.capacity_Bps)
    builder.messages(*bodies.of(np.arange(2)))
    assert (run_graph(builder.graph()).end_fs / MS).tolist() == pytest.approx(ends, rel=0.01)


def test_places_that_do_not_meet_are_refused():
    plan = parse_plan("pp=2", global_batch=4, seq=64)
    roles, alone = (roles_by_place(MODELS.find("llama-tiny"), of, Stack()) for of in (plan, parse_plan("pp=1")))
    with pytest.raises(
        InputError, match=r"^trace: all_reduce 0 on group 'pp' must be requested by places \(0, 1\), got \(0,\)$"
    ):
        requests_by_place(representatives_of_plan([roles[0], alone[0]], plan))


def test_messages_within_a_place_that_are_no_ring_are_refused_with_what_to_take_instead():
    plan, stack = parse_plan("cp=4,pp=2", global_batch=4, seq=64), Stack(MEGATRON)
    roles = roles_by_place(MODELS.find("llama-tiny"), plan, stack)
    with pytest.raises(InputError, match=r"^compose: messages must be between ranks .*, got 'some on cp'; take fewer ranks"):
        requests_by_place(replace(representatives_of_plan(roles, plan), rings=False))


def test_a_request_of_the_same_npus_is_timed_once_for_all_steps_on_a_topology(monkeypatch):
    board, timed = build_topology("ub-mesh:board"), []
    monkeypatch.setattr(timing, "time_isolated", lambda *asked: timed.append(asked) or time_isolated(*asked))
    steps = [("tp=2,dp=2,pp=2", 8), ("tp=2,dp=2,pp=2", 16), ("tp=4,dp=2", 8)]
    requests = [EstimateRequest("llama-tiny", parse_plan(words, global_batch=n, seq=64)) for words, n in steps]
    first, second, third = (estimate(request, board, H100, effort=TimingEffort(0)) and len(timed) for request in requests)
    assert 0 < first == second < third
    monkeypatch.undo()
    anew = estimate(requests[1], build_topology("ub-mesh:board"), H100, effort=TimingEffort(0))
    assert anew.step_time_s == estimate(requests[1], board, H100, effort=TimingEffort(0)).step_time_s


def test_a_computation_of_a_composed_step_is_named_by_its_place_its_event_and_its_step(monkeypatch):
    """Errors name tasks so; ranks of the trace are the places of the pipeline."""
    found = []
    real = composed_graph.compose
    monkeypatch.setattr(composed_graph, "compose", lambda *asked, **more: found.append(real(*asked, **more)) or found[-1])
    both_ways("servers:nodes=4", "tp=4,pp=2,dp=4,vp=2", global_batch=16, seq=64)
    composed = found[-1]
    trace, first = composed.requests_by_place.trace, composed.requests_by_place.first_event
    names = 0
    for place in range(trace.n_ranks):
        events = trace.events_of(place)
        for row in np.flatnonzero(events.kind == Kind.COMPUTE).tolist()[::17]:
            task = int(composed.begins[composed.start[int(first[place]) + row]])
            assert composed.event_name(task) == f"event {row} of rank {place} ({events.name[row]} of step {events.step[row]})"
            names += 1
    assert names > 10
    bodies = [composed.event_name(int(task)) for task in composed.firsts[:20]]
    assert all(re.fullmatch(r"(a message of )?event \d+ of rank [01] \(\w+ of step 1\)", name) for name in bodies), bodies
