"""Traces are written as GOAL with their collectives as messages, which are timed as the collectives are."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import emu
from emu.collective.choice import Choice
from emu.errors import InputError
from emu.fabric.run import run_graph
from emu.topology.builders.wiring import star
from emu.topology.catalogue import build_topology
from emu.trace.device.device import measured_device
from emu.trace.formats.goal.goal_ops import GoalOps, Op
from emu.trace.formats.goal.goal_text import goal_text, parse_text
from emu.trace.formats.goal.goal_trace import read_goal
from emu.trace.formats.goal.lowered_trace import lowered, write_goal
from emu.trace.formats.goal.meeting_points import bypass
from emu.trace.replay.replay import TraceLayout
from emu.trace.trace import Group
from tests.trace.laid import DEVICE, star_of, trace_of

COLUMNS = ("first", "kind", "size", "peer", "tag", "cpu", "nic", "waiting", "waited", "at_start")


def group_of(words, n, *rows):
    """Return a trace of n equal ranks on one group."""
    return trace_of(words.events(*rows), role_of_rank=(0,) * n, groups=(Group("world", tuple(range(n))),))


def on(trace, algorithm="ring", topology=None, operation="all_reduce"):
    return TraceLayout(trace, Choice({operation: algorithm}), topology or star_of(trace.n_ranks), DEVICE, "float32")


def end_fs(layout):
    return int(run_graph(layout.build_graph(None).graph).end_fs.max())


def again(layout, path):
    """Return the layout of what was written and read back."""
    write_goal(layout, path)
    return TraceLayout(read_goal(path), Choice({}), layout.topology, measured_device("cpu"), "as-ran")


@pytest.mark.parametrize("algorithm", ["ring", "direct", "double-tree", "halving-doubling"])
def test_text_is_read_back_equal(words, algorithm):
    ops = lowered(on(group_of(words, 8, words.compute(3), words.collective(8000), words.mark([1])), algorithm))
    back = parse_text(goal_text(ops), "x")
    for name in COLUMNS:
        assert np.array_equal(np.sort(getattr(back, name)), np.sort(getattr(ops, name))), name
    assert {*zip(back.waiting.tolist(), back.waited.tolist(), strict=True)} == {
        *zip(ops.waiting.tolist(), ops.waited.tolist(), strict=True)
    }


def test_a_ring_is_its_messages(words):
    """Each of four ranks sends three shares of the sum and then three sums, each once it has what it sends."""
    ops = lowered(on(group_of(words, 4, words.collective(4000))))
    own = slice(*ops.first[:2].tolist())
    sends = np.flatnonzero(ops.kind[own] == Op.SEND)
    assert (ops.size[own][sends].tolist(), ops.peer[own][sends].tolist()) == ([4000] * 6, [1] * 6)
    assert ops.kind[own].tolist().count(Op.RECV) == 6
    assert not (ops.kind == Op.CALC).any()
    recvs = np.flatnonzero(ops.kind[own] == Op.RECV)
    for turn in range(1, 6):
        assert {sends[turn - 1], recvs[turn - 1]} == {*ops.waited[ops.waiting == sends[turn]].tolist()}


@pytest.mark.parametrize("algorithm", ["ring", "direct", "double-tree", "halving-doubling"])
def test_what_is_read_back_takes_the_time_of_the_schedule(words, tmp_path, algorithm):
    topology = star("star", 8, 1e9, 500_000_000)
    layout = on(group_of(words, 8, words.collective(2**18)), algorithm, topology)
    read = again(layout, tmp_path / "x.goal")
    assert end_fs(read) == end_fs(layout)
    assert read.trace.events[0].name.count("send") > 0


@pytest.mark.parametrize("seed", range(20))
def test_only_joins_of_several_waits_on_both_sides_stay(seed):
    """Operations wait for the same operations, over any number of joins, without those that were left out."""
    rng = np.random.default_rng(seed)
    n = 14
    pairs = {(later, int(before)) for later in range(1, n) for before in rng.integers(0, later, rng.integers(0, 4))}
    waiting, waited = np.array(sorted(pairs)).T
    zeros = np.zeros(n, np.int64)
    ops = GoalOps(np.array([0, n]), zeros, np.arange(n), *[zeros] * 5, waiting, waited, np.zeros(len(waiting), np.bool_))
    joins = rng.random(n) < 0.6
    left = bypass(ops, joins)
    assert reached(left, joins[left.size], left.size) == reached(ops, joins, np.arange(n))
    for ends in (left.waiting, left.waited):
        assert (np.bincount(ends, minlength=len(left.size))[joins[left.size]] > 1).all()


def reached(ops, joins, names):
    """Return the pairs of names of operations that are no joins of which one waits for the other, over joins alone."""
    waits = np.zeros((len(names), len(names)), np.bool_)
    waits[ops.waiting, ops.waited] = True
    for join in np.flatnonzero(joins):
        waits |= np.outer(waits[:, join], waits[join])
    return {(int(names[a]), int(names[b])) for a, b in np.argwhere(waits) if not joins[a] and not joins[b]}


def test_computations_run_beside_messages_and_wait_for_them(words, tmp_path):
    """A step of two all_reduces, of which the first is beside a computation; then both ends of a message."""
    rows = (
        *(words.compute(3), words.collective(2**20), words.compute(1), words.compute(2, waits=[1]), words.mark()),
        *(words.collective(2**18, instance=1), words.compute(1), words.mark([5])),
    )
    layout = on(group_of(words, 4, *rows))
    read = again(layout, tmp_path / "x.goal")
    assert end_fs(read) == end_fs(layout) > 6 * 10**12


def test_messages_of_a_pipeline(words, tmp_path):
    first = words.events(words.compute(2), words.send(10**6, 1), words.compute(1), words.recv(10**5, 1, tag=3), words.mark([3]))
    second = words.events(words.recv(10**6, 0), words.compute(3, waits=[0]), words.send(10**5, 0, tag=3), words.mark([2]))
    layout = on(trace_of(first, second, role_of_rank=(0, 1)))
    assert end_fs(again(layout, tmp_path / "x.goal")) == end_fs(layout) > 9 * 10**12


def test_no_cpu_waits_for_bytes_of_another(words):
    """Computations wait for operations on the cpu of the messages: LogGOPSim counts their bytes on that cpu alone."""
    rows = words.collective(4000), words.compute(1, waits=[0]), words.mark([0])
    ops = lowered(on(group_of(words, 4, *rows)))
    receives = ops.kind[ops.waited] == Op.RECV
    assert receives.any()
    assert (ops.cpu[ops.waiting] == ops.cpu[ops.waited])[receives].all()


def test_both_ends_of_a_message_are_on_one_cpu(words):
    """Two ranks number their groups in another order: LogGOPSim counts a message's bytes on the cpu that its sender names."""
    roles = (words.events(words.collective(4000, group=0)), words.events(words.collective(4000, group=1)))
    groups, group_of = (Group("tp", (0, 1)), Group("dp", (0, 1))), ((0, 1), (1, 0))
    ops = lowered(on(trace_of(*roles, role_of_rank=(0, 1), groups=groups, group_of=group_of)))
    sends, recvs = ops.kind == Op.SEND, ops.kind == Op.RECV
    assert sends.sum() == recvs.sum() > 0
    assert len({*ops.cpu[sends].tolist(), *ops.cpu[recvs].tolist()}) == 1


def test_an_estimated_step_is_written_by_its_name(tmp_path):
    path = tmp_path / "step.goal"
    topology = "switch:n=4,bandwidth=10GB/s,latency=1us"
    answer = emu.estimate(model="gpt-tiny", plan="tp=2,dp=2", topology=topology, global_batch=4, seq=64)
    answer.save_trace(path)
    assert path.read_text().startswith("num_ranks 4\n\nrank 0 {\nl1: ")
    step = emu.replay(path, topology=topology).rows[0]
    events = max(len(of) for of in emu.load_trace(path).events)
    assert step.step_time_s == pytest.approx(answer.rows[0].step_time_s, abs=events * 0.5e-9)  # a calc is whole nanoseconds


def test_switches_that_add_are_refused(words, tmp_path):
    layout = on(group_of(words, 2, words.collective(4000)), "in-switch", build_topology("nvl:72"))
    with pytest.raises(InputError, match=r"--trace: GOAL has ranks alone, and on .* its switches turn or add; take another"):
        write_goal(layout, Path(tmp_path / "x.goal"))


UNEVEN = """num_ranks 3

rank 0 {
l1: calc 70
l2: calc 5 cpu 3
l2 irequires l1
l3: send 8b to 2 tag 4 cpu 1 nic 2
l3 requires l1
l3 requires l2
}

rank 1 {
}

rank 2 {
l1: recv 8b from 0 tag 4
l2: send 9b to 1 tag 0 nic 1
l2 requires l1
}
"""


def test_an_operation_is_written_with_what_is_not_0_alone():
    ops = parse_text(UNEVEN, "x")
    assert goal_text(ops) == UNEVEN
    assert (ops.first.tolist(), ops.n_ranks, ops.rank.tolist()) == ([0, 3, 3, 5], 3, [0, 0, 0, 2, 2])
    assert (ops.cpu.tolist(), ops.nic.tolist()) == ([0, 3, 1, 0, 0], [0, 0, 2, 0, 1])
    assert [*zip(ops.waiting.tolist(), ops.waited.tolist(), ops.at_start.tolist(), strict=True)] == [
        (1, 0, True), (2, 0, False), (2, 1, False), (4, 3, False),
    ]  # fmt: skip


def test_operations_that_are_taken_keep_the_waits_among_them():
    few = parse_text(UNEVEN, "x").take(np.array([0, 2, 4]))
    assert (few.first.tolist(), few.size.tolist(), few.peer.tolist()) == ([0, 2, 2, 3], [70, 8, 9], [0, 2, 1])
    assert (few.waiting.tolist(), few.waited.tolist(), few.at_start.tolist()) == ([1], [0], [False])
    assert [few.place(op) for op in range(3)] == ["line 4", "line 7", "line 17"]
    bare = replace(few, line=0 * few.line)
    assert [bare.place(op) for op in range(3)] == ["operation 0 of rank 0", "operation 1 of rank 0", "operation 0 of rank 2"]


@pytest.mark.parametrize(
    ("line", "name", "most"),
    [
        ("calc {}", "size", 2**62),
        ("send {}b to 1", "size", 2**62),
        ("send 8b to 1 tag {}", "tag", 2**32 - 1),
        ("calc 8 cpu {}", "cpu", 256),
        ("send 8b to 1 nic {}", "nic", 256),
        ("send 8b to {}", "peer", 2),
    ],
)
def test_the_largest_number_that_each_word_may_have_is_one_below_its_limit(line, name, most):
    text = f"num_ranks 2\nrank 0 {{{{\n{line}\n}}}}\n"
    ops = parse_text(text.format(most - 1), "x")
    assert getattr(ops, name).tolist() == [most - 1]
    with pytest.raises(InputError, match=f"^goal: 'x' line 3: {name} must be 0 or more and below {most}, got {most}$"):
        parse_text(text.format(most), "x")


def test_groups_have_cpus_behind_those_of_all_streams_of_all_roles(words):
    """One role computes on streams 0 and 2, the other on 0 alone: requests of both are on cpu 3, which is free."""
    one = words.events(words.compute(1), words.compute(2, stream=2, waits=(0,)), words.collective(4000, waits=(1,)))
    other = words.events(words.compute(1), words.collective(4000, waits=(0,)))
    for roles, streams in (((one, other), (0, 2)), ((other, one), (0, 2))):
        ops = lowered(on(trace_of(*roles, role_of_rank=(0, 1), groups=(Group("world", (0, 1)),))))
        assert set(ops.cpu[ops.kind != Op.CALC].tolist()) == {3}
        assert set(ops.cpu[(ops.kind == Op.CALC) & (ops.size > 0)].tolist()) == set(streams)
