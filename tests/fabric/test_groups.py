"""A schedule on several groups at once, and by the rows of rank 0: to the tick what each group's every row comes to."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from emu.collective.algorithm import ALGORITHMS, algorithm
from emu.collective.schedule import RowsError, Schedule, Sends
from emu.errors import InputError
from emu.fabric.build import Builder
from emu.fabric.job_symmetry import orbits_of_job
from emu.fabric.lower import FabricJob, lower, lower_placed, place_schedule
from emu.fabric.lowering.classes import Joins
from emu.fabric.run import run_graph
from emu.topology.catalogue import build_topology
from emu.topology.placement import hubs, with_helpers
from emu.topology.topology import Circuits

LINK = "bandwidth=50GB/s,latency=500ns"
GRID = (4, 4)
ROWS, COLUMNS = np.arange(16).reshape(GRID), np.arange(16).reshape(GRID).T
NAMES = ("all_reduce/ring", "all_reduce/direct", "all_gather/bruck", "all_reduce/double-tree", "broadcast/binomial")


def fabric():
    return build_topology(f"torus:dims=4x4,{LINK}")


def stored(key, n=4):
    return algorithm(*key.split("/")).compact_schedule(n)


def started(piece, members, late):
    """The piece in a graph of its own, each participant of which enters when it does: its messages, and when all leave."""
    builder = Builder(piece.graph.capacity_Bps)
    arrive = builder.tasks(np.asarray(late, np.int64))
    first = builder.piece(piece, members.ravel(), np.arange(members.size))
    builder.wait(first + piece.entry, arrive)
    graph = builder.graph()
    timeline = run_graph(graph)
    m = slice(first, first + len(piece.receiver))
    columns = (timeline.start_fs[m], timeline.left_fs[m], timeline.end_fs[m], graph.owner[m], graph.size_bytes[m])
    return sorted(zip(*(c.tolist() for c in columns), strict=True)), timeline.end_fs[first + piece.exit].tolist()


@settings(max_examples=60)
@given(st.sampled_from([a for _, a in ALGORITHMS if any(a.shapes(6)) or any(a.shapes(4))]), st.randoms(use_true_random=False))
def test_the_rows_of_rank_0_tell_every_message_entry_and_exit_whoever_is_late(found, random):
    n = 6 if any(found.shapes(6)) else 4
    plan = found.compact_schedule(random.choice(list(found.shapes(n))))
    topology = build_topology(f"switch:n={n},{LINK}")
    assume(len(hubs(topology, np.arange(n), plan.helped)) == plan.helpers)  # not a tree of switches
    nodes = with_helpers(topology, np.arange(n), plan.helped)
    sizes = np.full(plan.n_slots, 10**5)
    late = [random.randrange(10**10) for _ in nodes]
    pieces = (lower(FabricJob(each, sizes, topology, nodes), joins=Joins.BOTH) for each in (plan, plan.expand()))
    by_class, by_row = (started(piece, nodes, late) for piece in pieces)
    assert by_class == by_row


@pytest.mark.parametrize("key", NAMES)
@pytest.mark.parametrize("groups", [ROWS, COLUMNS, ROWS[[2, 0]]])
def test_groups_at_once_are_timed_as_groups_one_by_one(key, groups):
    topology, plan = fabric(), stored(key)
    sizes = np.full(plan.n_slots, 10**6)
    together = lower(FabricJob(plan, sizes, topology, groups, key=5), joins=Joins.BOTH)
    late = np.arange(groups.size) * 10**9
    rows, leave = started(together, groups, late)
    each = [
        started(lower(FabricJob(plan, sizes, topology, group, key=5), joins=Joins.BOTH), group, late[at * 4 : at * 4 + 4])
        for at, group in enumerate(groups)
    ]
    assert rows == sorted(row for one, _ in each for row in one)
    assert leave == [end for _, ends in each for end in ends]


def test_groups_at_once_share_the_links_that_they_meet_on():
    topology, plan = build_topology(f"ring:n=4,{LINK}"), Schedule.build(2, 1, [Sends(0, 1, 0)])
    crossing, apart = np.array([[0, 2], [1, 3]]), np.array([[0, 1], [2, 3]])
    ends = [run_graph(lower(FabricJob(plan, np.array([10**6]), topology, groups)).graph).end_s for groups in (crossing, apart)]
    assert ends == pytest.approx([2 * 0.5e-6 + 2 * 20e-6, 0.5e-6 + 20e-6])  # both on the middle one of three links; none


@pytest.mark.parametrize("key", NAMES)
@pytest.mark.parametrize(("groups", "fewer"), [(ROWS, True), (COLUMNS, True), (np.arange(16)[None], False)])
def test_one_of_equal_groups_stands_for_all_to_the_tick(key, groups, fewer):
    """A schedule with translations leaves one rank; one without leaves the groups that its members' order tells apart."""
    topology, plan = fabric(), stored(key, groups.shape[1])
    laid = place_schedule(FabricJob(plan, np.full(plan.n_slots, 10**6), topology, groups), joins=Joins.BOTH)
    domain = orbits_of_job(topology, groups.ravel(), [laid])
    few, all_of_them = lower_placed(laid, domain), lower_placed(laid)
    (rows, leave), (every_row, every_leave) = (run_of(piece) for piece in (few, all_of_them))
    assert few.uses_symmetry or not fewer
    stands = len(all_of_them.receiver) // len(few.receiver)
    assert sorted(rows * stands) == every_row
    assert leave == every_leave


def run_of(piece):
    timeline, m = run_graph(piece.graph), len(piece.receiver)
    columns = (timeline.start_fs[:m], timeline.left_fs[:m], timeline.end_fs[:m], piece.graph.size_bytes[:m])
    return sorted(zip(*(c.tolist() for c in columns), strict=True)), timeline.end_fs[piece.exit].tolist()


def messages_of(piece, participant):
    """Return the messages that a participant sends or receives, or those that stand for them."""
    own, sender = piece.orbit[participant], piece.graph.owner[: len(piece.receiver)]
    return np.flatnonzero((piece.orbit[sender] == own) | (piece.orbit[piece.receiver] == own))


def test_who_stands_for_a_participant_sends_and_receives_what_it_does():
    topology, plan = fabric(), stored("all_reduce/double-tree")
    laid = place_schedule(FabricJob(plan, np.full(plan.n_slots, 10**6), topology, ROWS))
    few, every = lower_placed(laid, orbits_of_job(topology, np.arange(16), [laid])), lower_placed(laid)
    assert few.uses_symmetry
    for participant in range(16):
        sizes = [sorted(piece.graph.size_bytes[messages_of(piece, participant)].tolist()) for piece in (few, every)]
        assert sizes[0] == sizes[1] != []


def test_a_symmetry_that_brings_a_group_to_no_group_is_not_used():
    topology, plan = fabric(), stored("all_reduce/ring")
    crooked = ROWS.copy()
    crooked[0, 3], crooked[1, 3] = crooked[1, 3], crooked[0, 3]
    laid = place_schedule(FabricJob(plan, np.full(plan.n_slots, 10**6), topology, crooked))
    domain = orbits_of_job(topology, np.arange(16), [laid])
    few, every = lower_placed(laid, domain), lower_placed(laid)
    assert run_of(few)[1] == run_of(every)[1]
    assert len(np.unique(few.orbit)) > 4


def test_computing_otherwise_keeps_ranks_apart():
    topology, plan = fabric(), stored("all_reduce/ring")
    laid = place_schedule(FabricJob(plan, np.full(plan.n_slots, 10**6), topology, ROWS))
    stage = np.arange(16) // 8  # the upper two rows of the grid, and the lower
    domain = orbits_of_job(topology, np.arange(16), [laid], lambda node: np.array_equal(stage[node[:16]], stage))
    kept = domain.nodes.number[:16]
    assert len(np.unique(kept)) == 4  # a row is one; rows of a stage are not brought to one another by shifts of four rows
    assert all(len(set(stage[kept == k].tolist())) == 1 for k in np.unique(kept))


def test_groups_of_other_than_the_schedules_ranks_are_refused():
    plan = stored("all_reduce/ring")
    with pytest.raises(InputError, match="lower: placement must be a node for each of 4 ranks and 0 helpers, got 8"):
        place_schedule(FabricJob(plan, np.full(4, 8), fabric(), np.arange(16).reshape(2, 8)))


def test_groups_that_share_optical_switches_which_turn_are_refused_together():
    topology = replace(fabric(), circuits=Circuits(lambda *pair: (np.full((len(pair[0]), 1), -1),) * 2, 5))
    with pytest.raises(InputError, match=r"lower: groups must be one at a time where the optical switches of .* turn, got 4"):
        place_schedule(FabricJob(stored("all_reduce/ring"), np.full(4, 8), topology, ROWS))


def test_too_many_messages_of_groups_without_a_symmetry_are_refused(monkeypatch):
    monkeypatch.setattr("emu.fabric.lower.MAX_ROWS", 10)
    plan = Schedule.build(4, 1, [Sends(0, [1, 2, 3], 0)])
    with pytest.raises(RowsError, match="tree: 12 messages of 4 groups that no symmetry of the topology makes equal"):
        lower_placed(place_schedule(FabricJob(plan, np.array([8]), fabric(), ROWS, name="tree")))
