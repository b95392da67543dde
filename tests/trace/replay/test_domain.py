"""A trace by the ranks that stand for all, against the same trace by every rank: every event at the same tick."""

from collections import Counter
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from emu.collective.choice import Choice
from emu.fabric.run import run_graph
from emu.topology.catalogue import build_topology
from emu.trace.matching.call_batch import communicators
from emu.trace.report.activity import busy_shares
from emu.trace.report.critical_path import critical_path_fs
from emu.trace.report.report import report
from emu.trace.trace import Group
from launch.show.lanes import lanes
from tests.trace.conftest import Words
from tests.trace.laid import COLUMNS, MS_OF_FLOATS, grid_trace, moments, replay, trace_of

LINK = "bandwidth=1GB/s,latency=3us"
TORUS, RACK, TREE = f"torus:dims=4x4,{LINK}", "ub-mesh:pod:dims=2x2x2x2", "fat-tree:radix=8"


def laid(trace, line, choice=None, **more):
    topology = build_topology(line)
    chosen = Choice(choice or {"all_reduce": "ring"})
    found = replay(trace, chosen, topology, **more)
    return found, run_graph(found.graph), topology


def _by_what(spent):
    found = Counter()
    for what, ticks in spent.items():
        found[what.what, what.axis] += ticks
    return found


def both(trace, line, choice=None):
    """By the ranks that stand for all, and by every rank, which are held equal; how many stand for all."""
    (few, timeline, topology), (every, whole, _) = (laid(trace, line, choice, every_rank=each) for each in (False, True))
    assert moments(few, timeline) == moments(every, whole)
    told, expected = (report(trace, *each) for each in ((few, timeline), (every, whole)))
    for name in ("step_times_fs", "rank", "compute_fs", "exposed_comm_by_axis_fs", "total_comm_fs"):
        assert getattr(told, name) == getattr(expected, name)
    spent = [_by_what(critical_path_fs(trace, *each)) for each in ((few, timeline, told), (every, whole, expected))]
    assert spent[0] == spent[1]
    window = told.began_fs, told.ended_fs
    shares = [busy_shares(*each, *window) for each in ((few, timeline), (every, whole))]
    assert shares[0] == pytest.approx(shares[1], rel=1e-12)
    drawn = [[(*a[:3], a.start.tolist(), a.end.tolist()) for a in lanes(trace, f, t, topology)]
             for f, t in ((few, timeline), (every, whole))]  # fmt: skip
    assert drawn[0] == drawn[1]
    assert every.timed_ranks == trace.n_ranks
    return few.timed_ranks


def step_of(words, tp="all_reduce", dp="all_reduce", ms=2):
    """A layer by tensor parallelism, then gradients by data parallelism while another layer is computed."""
    size = ms * MS_OF_FLOATS
    return words.events(
        words.compute(3), words.collective(size, name=tp, group=0), words.compute(1, waits=[1]),
        words.collective(size, name=dp, group=1), words.compute(2), words.mark([3]),
    )  # fmt: skip


@pytest.mark.parametrize(("line", "few"), [(TORUS, 1), (RACK, None), (f"switch:n=16,{LINK}", None), (TREE, 16)])
def test_a_step_of_two_axes_is_timed_to_the_tick_by_those_that_stand_for_all(words, line, few):
    timed = both(grid_trace(step_of(words)), line)
    assert timed < 16 or line == TREE
    assert few in (None, timed)


@pytest.mark.parametrize("served", ["direct", "double-tree", "halving-doubling"])
def test_algorithms_without_translations_leave_the_groups_that_are_alike(words, served):
    assert both(grid_trace(step_of(words)), TORUS, {"all_reduce": served}) <= 16


def test_stages_are_told_apart_and_each_is_timed_by_one_of_its_ranks(words):
    """Rows 0 and 1 are one stage, 2 and 3 the other, twice as busy: of shifts along rows all are left, across them none."""
    roles = step_of(words), step_of(words, ms=4)
    trace = grid_trace(*roles, role_of_rank=tuple(rank // 8 for rank in range(16)))
    groups = [g for g in trace.groups if g.axis != "dp"] + [Group("dp", tuple(half)) for half in COLUMNS.reshape(8, 2).tolist()]
    group_of = tuple((rank // 4, 5 + rank % 4 * 2 + rank // 8, 4) for rank in range(16))
    assert both(replace(trace, groups=tuple(groups), group_of=group_of), TORUS) == 4


def test_messages_round_a_ring_are_one_to_the_tick(words):
    right = [words.send(MS_OF_FLOATS, peer=(r + 1) % 4, group=0, tag=1) for r in range(4)]
    left = [words.recv(MS_OF_FLOATS, peer=(r - 1) % 4, group=0, tag=1) for r in range(4)]
    roles = [words.events(words.compute(1), right[r], left[r], words.mark([1, 2])) for r in range(4)]
    trace = grid_trace(*roles, role_of_rank=tuple(rank % 4 for rank in range(16)))
    assert both(trace, TORUS) == 4  # a rank's peer is a number, so that the four of a row are four roles


def test_who_computes_longer_than_all_others_leaves_no_symmetry(words):
    slow = words.events(words.compute(9), words.collective(MS_OF_FLOATS, group=0), words.mark([1]))
    rest = words.events(words.compute(1), words.collective(MS_OF_FLOATS, group=0), words.mark([1]))
    assert both(grid_trace(rest, slow, role_of_rank=(0,) * 5 + (1,) + (0,) * 10), TORUS) == 16


def test_set_up_and_what_nobody_waits_for_change_nothing(words):
    rows = (
        words.compute(1, step=0),
        words.collective(160, group=2, step=0),
        words.compute(2),
        words.collective(160, group=2, instance=1),
    )
    assert both(grid_trace(words.events(*rows)), TORUS) == 4  # a ring of all counts row by row: shifts across rows are left


@settings(max_examples=40)
@given(st.data())
def test_any_trace_of_equal_ranks_is_timed_to_the_tick(data):
    words, rows, instance = Words(), [], [0, 0, 0]
    for _ in range(data.draw(st.integers(1, 8))):
        group = data.draw(st.integers(-1, 2))
        waits = data.draw(st.lists(st.integers(0, max(0, len(rows) - 1)), max_size=2, unique=True)) if rows else []
        if group < 0:
            rows.append(words.compute(data.draw(st.integers(0, 4)), waits=waits))
            continue
        name = data.draw(st.sampled_from(["all_reduce", "all_gather", "all_to_all", "reduce_scatter"]))
        count = 16 * data.draw(st.integers(1, 20_000))
        rows.append(words.collective(count, name=name, group=group, instance=instance[group], waits=waits))
        instance[group] += 1
    trace = grid_trace(words.events(*rows, words.mark([])))
    both(trace, data.draw(st.sampled_from([TORUS, RACK])))


def test_groups_of_an_axis_that_share_no_rank_are_one_communicator():
    axes = [
        ("tp", (0, 1)),
        ("dp", (0, 2)),
        ("tp", (2, 3)),
        ("dp", (1, 3)),
        ("", (0, 1)),
        ("", (1, 2)),
        ("", (2, 3)),
        ("tp", (1, 0)),
    ]
    assert communicators([Group(*each) for each in axes]) == [0, 1, 0, 1, 2, 3, 2, 4]


def test_groups_of_one_axis_spread_alike_over_equal_paths(words):
    """Four groups of two ranks, each of which is another one shifted by a leaf: the same hash for all, so the same spine."""
    groups = [Group("dp", (r, r + 2)) for r in (0, 1, 4, 5)]
    rows = words.events(words.collective(MS_OF_FLOATS), words.mark([0]))
    trace = trace_of(rows, role_of_rank=(0,) * 8, groups=groups, group_of=tuple(((r % 2 + r // 4 * 2),) for r in range(8)))
    found, _, topology = laid(trace, "ub-mesh:pod:dims=2x2x2x1")
    (piece,) = found.pieces
    assert len(piece.orbit) == 8
    assert piece.uses_symmetry
    assert topology.symmetry is not None
