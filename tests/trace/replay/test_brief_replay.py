"""A trace whose collectives are delays, against the same trace message by message: every event at the same tick."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emu.collective.choice import Choice
from emu.topology.catalogue import build_topology
from emu.trace.replay.delay import Delay, Entries, delay_of
from emu.trace.replay.replay import TraceLayout, brief_replay, replay_timeline
from emu.trace.report.activity import busy_shares
from emu.trace.report.critical_path import critical_path_fs
from emu.trace.report.report import report
from emu.trace.trace import Group
from tests.trace.conftest import Words
from tests.trace.laid import DEVICE, MS_OF_FLOATS, grid_trace, moments, trace_of

LINK = "bandwidth=1GB/s,latency=3us"
TORUS, RACK, SWITCH = f"torus:dims=4x4,{LINK}", "ub-mesh:pod:dims=2x2x2x2", f"switch:n=16,{LINK}"
MESH = "ub-mesh:pod:dims=4x4x1x1"


def both(trace, line, choice=None, device=DEVICE):
    """Assert that delays and single messages give equal times; return how many collectives are delays."""
    laying = TraceLayout(trace, Choice(choice or {}), build_topology(line), device, "float32")
    whole = laying.build_graph(laying.job_orbits())
    expected = whole, replay_timeline(laying, whole)
    found = brief_replay(laying, worth=0)
    assert moments(*found) == moments(*expected)
    told, of_whole = (report(trace, *each) for each in (found, expected))
    for name in ("step_times_fs", "rank", "compute_fs", "exposed_comm_by_axis_fs", "total_comm_fs"):
        assert getattr(told, name) == getattr(of_whole, name)
    assert sum(critical_path_fs(trace, *found, told).values()) == told.step_time_fs
    window = told.began_fs, told.ended_fs
    assert busy_shares(*found, *window) == pytest.approx(busy_shares(*expected, *window), rel=1e-12)
    assert found[0].services == whole.services
    return sum(isinstance(piece, Delay) for piece in found[0].pieces)


def step_of(words, *, dp_ms=2, waits=(2,), tp="all_gather"):
    """A layer by tensor parallelism, then gradients by data parallelism while another layer is computed, then its own."""
    return words.events(
        words.compute(3), words.collective(2 * MS_OF_FLOATS, name=tp, group=0), words.compute(1, waits=[1]),
        words.collective(dp_ms * MS_OF_FLOATS, name="all_reduce", group=1, waits=waits), words.compute(2),
        words.collective(3 * MS_OF_FLOATS, name=tp, group=0, instance=1), words.compute(1, waits=[3, 5]), words.mark(),
    )  # fmt: skip


@pytest.mark.parametrize("line", [TORUS, RACK])
def test_axes_with_links_of_their_own_are_delays_to_the_tick(words, line):
    choice = {"all_gather": "ring", "all_reduce": "ring"} if line == TORUS else {"all_gather": "direct", "all_reduce": "direct"}
    assert both(grid_trace(step_of(words)), line, choice) == 3


def test_an_overhead_of_each_call_stands_before_the_delay(words):
    device = DEVICE.__class__("npu", DEVICE.peak_flops, 1e12, request_overhead_s=5e-6, gemm_share=1, hbm_efficiency=1)
    assert both(grid_trace(step_of(words)), TORUS, device=device) == 3


def test_collectives_that_share_links_at_one_time_are_sent_message_by_message(words):
    assert both(grid_trace(step_of(words)), SWITCH) == 0
    assert both(grid_trace(step_of(words, waits=(2,), dp_ms=1)), SWITCH) == 0


def test_collectives_of_other_groups_one_after_another_may_share_links(words):
    rows = words.events(
        words.compute(3), words.collective(2 * MS_OF_FLOATS, group=0), words.compute(1, waits=[1]),
        words.collective(MS_OF_FLOATS, group=2, waits=[2]), words.mark([3]),
    )  # fmt: skip
    assert both(grid_trace(rows), SWITCH, {"all_reduce": "direct"}) == 2


def test_only_what_members_enter_apart_is_sent_message_by_message(words):
    """Rank 5 computes longer at first, so that all enter apart; they leave together, as each has a link to each other."""
    early, late = (
        words.events(
            words.compute(ms), words.collective(MS_OF_FLOATS, name="all_gather", group=0), words.compute(1, waits=[1]),
            words.collective(MS_OF_FLOATS, name="all_gather", group=0, instance=1), words.mark([3]),
        )
        for ms in (3, 4)
    )  # fmt: skip
    roles = (0,) * 5 + (1,) + (0,) * 2
    trace = trace_of(early, late, role_of_rank=roles, groups=[Group("tp", tuple(range(8)))], group_of=((0,),) * 8)
    assert both(trace, "ub-mesh:board", {"all_gather": "direct"}) == 1


def test_members_that_leave_apart_are_sent_message_by_message(words):
    rows = words.events(
        words.compute(1), words.collective(MS_OF_FLOATS, name="broadcast", group=0), words.compute(1, waits=[1]), words.mark()
    )
    assert both(grid_trace(rows), TORUS, {"broadcast": "binomial"}) == 0


def test_members_of_which_one_adds_all_up_leave_apart(words):
    rows = words.events(words.compute(1), words.collective(1, group=0), words.compute(1, waits=[1]), words.mark())
    assert both(grid_trace(rows), TORUS, {"all_reduce": "direct"}) == 0


@pytest.mark.parametrize(("group", "delays"), [(0, 1), (1, 2)])
def test_only_collectives_that_share_links_with_messages_are_sent_message_by_message(words, group, delays):
    """Messages go along rows, or along columns; three collectives do along both and along rows again."""
    size, turn = 8 * MS_OF_FLOATS, {"waits": [1], "instance": 1}
    peers = [(r % 4 if group == 0 else r // 4) for r in range(16)]
    roles = [
        words.events(
            words.send(size, peer=(p + 1) % 4, group=group), words.recv(size, peer=(p - 1) % 4, group=group),
            words.collective(MS_OF_FLOATS, group=0), words.collective(MS_OF_FLOATS, group=1),
            words.collective(MS_OF_FLOATS, group=0, **turn), words.mark([0, 1, 2, 3, 4]),
        )
        for p in peers
    ]  # fmt: skip
    assert both(grid_trace(*roles, role_of_rank=tuple(range(16))), TORUS, {"all_reduce": "ring"}) == delays


@pytest.mark.parametrize(("dims", "found"), [("4x4", True), ("16", False)])
def test_groups_that_share_links_with_one_another_are_no_delays(words, dims, found):
    """Columns have links of their own on a torus; on a ring of 16 they lie across one another."""
    trace = grid_trace(words.events(words.collective(MS_OF_FLOATS, group=1), words.mark([0])))
    torus = build_topology(f"torus:dims={dims},{LINK}")
    laying = TraceLayout(trace, Choice({"all_reduce": "ring"}), torus, DEVICE, "float32")
    (piece,) = laying.pieces(None).values()
    assert (delay_of(piece) is not None) == found


@settings(max_examples=40, deadline=None)
@given(st.data())
def test_any_trace_is_timed_to_the_tick(data):
    """Streams side by side, ranks that compute longer, all axes, on fabrics that keep them apart and one that does not."""
    words, plan, instance = Words(), [], [0, 0, 0]
    for _ in range(data.draw(st.integers(1, 8))):
        group, stream = data.draw(st.integers(-1, 2)), data.draw(st.integers(0, 1))
        waits = data.draw(st.lists(st.integers(0, max(0, len(plan) - 1)), max_size=2, unique=True)) if plan else []
        if group < 0:
            ms = data.draw(st.tuples(st.integers(0, 4), st.integers(0, 4)))
            plan.append([words.compute(each, waits=waits, stream=stream) for each in ms])
            continue
        name = data.draw(st.sampled_from(["all_reduce", "all_gather", "all_to_all", "reduce_scatter", "broadcast"]))
        count = 16 * data.draw(st.sampled_from([1, 3, 1000, 20_000])) + data.draw(st.integers(0, 1))
        more = {"name": name, "group": group, "instance": instance[group], "waits": waits, "stream": stream}
        plan.append([words.collective(count, **more)] * 2)
        instance[group] += 1
    roles = [words.events(*rows, words.mark()) for rows in (zip(*plan, strict=True))]
    slow = data.draw(st.sets(st.integers(0, 15), max_size=2)) or {0}
    trace = grid_trace(*roles, role_of_rank=tuple(int(rank in slow) for rank in range(16)))
    both(
        trace,
        data.draw(st.sampled_from([TORUS, RACK, MESH, SWITCH])),
        data.draw(st.sampled_from([{}, {"all_reduce": "direct"}])),
    )


@pytest.mark.parametrize("last", [5, 9])
def test_who_waits_and_enters_by_no_task_that_all_share_is_passed_over(last):
    """For events 2 and 4 the tasks that each waits for are known; others wait, too, before, between and after them."""
    found = Entries.of(np.array([2, 4]), np.array([1, 2, 3, 4, 4, last]), np.arange(10, 16))
    assert (found.event.tolist(), found.number.tolist(), found.pred.tolist()) == ([2, 4], [0, 1, 1], [11, 13, 14])
