"""The critical path of a step: its parts add up to it on traces drawn at random, and are those of cases by hand."""

import pytest

from emu.fabric.run import run_graph
from emu.topology.catalogue import build_topology
from emu.trace.report.critical_path import PathKind, critical_path, critical_path_fs
from emu.trace.report.report import report
from emu.trace.trace import Group
from tests.trace.laid import MS_OF_FLOATS, replayed, trace_of
from tests.trace.report.test_report import MESH, drawn

MS = 10**12


def path_of(trace, topology=None):
    laid = replayed(trace, topology)
    timeline = run_graph(laid.graph)
    told = report(trace, laid, timeline)
    return critical_path_fs(trace, laid, timeline, told), (trace, laid, timeline, told)


def in_ms(found):
    return {part: ticks / MS for part, ticks in found.items()}


def computation(stage=None):
    return PathKind("computation", None, stage, None)


def sums(axis="world", stage=None, waits_for=None):
    return PathKind("all_reduce", axis, stage, waits_for)


@pytest.mark.parametrize("seed", range(40))
def test_the_parts_add_up_to_the_step_and_each_is_no_more_than_there_is(words, seed):
    trace = drawn(words, seed)
    found, (_, laid, timeline, told) = path_of(trace, MESH)
    assert sum(found.values()) == told.step_time_fs > 0
    assert min(found.values()) > 0
    assert found == critical_path_fs(trace, laid, timeline, told)
    computed = sum(int(told.computes_fs[rank]) for rank in range(trace.n_ranks))
    asked = {e.name[i] for e in trace.events for i in range(len(e)) if e.group[i] >= 0}
    assert found.get(computation(), 0) <= computed + told.step_time_fs * (told.step > 1)
    assert {part.what for part in found} <= {"computation", *asked}
    parts = critical_path(trace, laid, timeline, told)
    assert [p.time_s for p in parts] == sorted((t / 1e15 for t in found.values()), reverse=True)


def test_what_hides_behind_computation_is_not_on_the_path(words):
    rows = words.compute(3), words.collective(2 * MS_OF_FLOATS), words.compute(5), words.mark([1])
    assert in_ms(path_of(trace_of(words.events(*rows)))[0]) == {computation(): 8}


def test_what_is_waited_for_is_on_the_path(words):
    rows = words.compute(3), words.collective(4 * MS_OF_FLOATS), words.compute(1), words.compute(2, waits=[1]), words.mark()
    assert in_ms(path_of(trace_of(words.events(*rows)))[0]) == {computation(): 5, sums(): 4}


def test_a_collective_that_waits_for_a_slow_rank_says_so_and_goes_on_there(words):
    fast = words.events(words.compute(2), words.collective(4 * MS_OF_FLOATS), words.mark([1]))
    slow = words.events(words.compute(5), words.collective(4 * MS_OF_FLOATS), words.mark([1]))
    found, (*rest, told) = path_of(trace_of(fast, slow, role_of_rank=(0, 1)))
    assert told.rank == 0
    assert in_ms(found) == {computation(): 5, sums(waits_for=1): 4}
    parts = critical_path(*rest, told)
    assert [(p.what, p.axis, p.waits_for_rank, p.time_s) for p in parts] == [
        ("computation", None, None, 0.005),
        ("all_reduce", "world", 1, 0.004),
    ]
    found, _ = path_of(trace_of(slow, fast, role_of_rank=(0, 1)))
    assert in_ms(found) == {computation(): 5, sums(): 4}  # rank 0 itself is the slow one


def test_the_path_goes_from_axis_to_axis(words):
    """tp of 2 ms on ranks 0 and 1, then dp of 3 ms with rank 2, which computes for 9 ms before."""
    groups, group_of = (Group("tp", (0, 1)), Group("dp", (0, 2))), ((0, 1), (0,), (1,))
    tp, dp = words.collective(2 * MS_OF_FLOATS), {"group": 1}
    both = words.compute(1), tp, words.compute(1, waits=[1]), words.collective(3 * MS_OF_FLOATS, **dp), words.mark([3])
    of_tp = words.compute(4), tp, words.mark([1])
    for late, expected in ((9, {computation(): 9, sums("dp", waits_for=2): 3}), (1, None)):
        of_dp = words.compute(late), words.collective(3 * MS_OF_FLOATS), words.mark([1])
        roles = [words.events(*rows) for rows in (both, of_tp, of_dp)]
        found, _ = path_of(trace_of(*roles, role_of_rank=range(3), groups=groups, group_of=group_of), MESH)
        assert in_ms(found) == (expected or {computation(): 4 + 1, sums("tp", waits_for=1): 2, sums("dp"): 3})


def test_stages_of_a_pipeline_are_told_apart(words):
    """Stage 0 computes for 4 ms and sends for 2; stage 1 computes for 5 and sums with nobody."""
    pipeline = Group("pp", (0, 1))
    first = words.events(words.compute(4), words.send(2 * MS_OF_FLOATS, peer=1), words.mark([1]))
    second = words.events(words.recv(2 * MS_OF_FLOATS, peer=0), words.compute(5, waits=[0]), words.mark())
    found, _ = path_of(trace_of(first, second, role_of_rank=(0, 1), groups=(pipeline,)))
    assert in_ms(found) == {computation(0): 4, PathKind("message", "pp", 1, None): 2, computation(1): 5}


def test_the_path_ends_where_the_step_began(words):
    """A request of 9 ms of step 1 that nobody waits for there is waited for in step 2."""
    rows = words.compute(1), words.collective(9 * MS_OF_FLOATS), words.compute(2), words.mark()
    more = words.compute(1, step=2, waits=[1]), words.collective(2 * MS_OF_FLOATS, step=2, instance=1), words.mark([5], step=2)
    found, (*_, told) = path_of(trace_of(words.events(*rows, *more)))
    assert told.step == 2
    assert told.step_times_fs == (10 * MS, 3 * MS)
    assert in_ms(found) == {computation(): 1, sums(): 2}


def test_a_step_of_no_time_has_no_path(words):
    rows = words.collective(9 * MS_OF_FLOATS), words.mark(), words.compute(2, step=2), words.mark(step=2)
    more = words.collective(0, step=3, instance=1), words.mark(step=3)
    trace = trace_of(words.events(*rows, *more))
    found, (*_, told) = path_of(trace)
    assert (told.step, told.step_time_fs, found) == (3, 0, {})


def test_ranks_that_enter_together_wait_for_nobody(words):
    """The path goes from rank 0 to rank 1, which sends, and stays there."""
    rows = words.compute(3), words.collective(4 * MS_OF_FLOATS, name="broadcast", root=1), words.mark([1])
    found, _ = path_of(trace_of(words.events(*rows)))
    assert in_ms(found) == {computation(): 3, PathKind("broadcast", "world", None, None): 4}


def test_of_those_that_release_a_task_together_the_path_takes_the_one_of_its_rank(words):
    """Both stages compute for 4 ms, then stage 1 broadcasts; the message is stage 1's, and so is what it waits for."""
    word = words.collective(2 * MS_OF_FLOATS, name="broadcast", root=1)
    first = words.events(words.compute(4), word, words.compute(1, waits=[1]), words.mark())
    second = words.events(words.compute(4), word)
    found, _ = path_of(trace_of(first, second, role_of_rank=(0, 1), groups=(Group("pp", (0, 1)),)))
    assert in_ms(found) == {computation(1): 4, PathKind("broadcast", "pp", 0, None): 2, computation(0): 1}


def test_collectives_are_of_the_stage_of_their_ranks(words):
    """Ranks 1 and 3 are stage 1, whose sum of 3 ms follows 6 ms of computation; stage 0 is done after 2 + 1."""
    groups = Group("pp", (0, 1)), Group("pp", (2, 3)), Group("tp", (0, 2)), Group("tp", (1, 3))
    roles = [
        words.events(words.compute(ms), words.collective(size * MS_OF_FLOATS, group=1), words.mark([1]))
        for ms, size in ((2, 1), (6, 3))
    ]
    trace = trace_of(*roles, role_of_rank=(0, 1, 0, 1), groups=groups, group_of=((0, 2), (0, 3), (1, 2), (1, 3)))
    assert in_ms(path_of(trace, MESH)[0]) == {computation(1): 6, sums("tp", stage=1): 3}


def test_a_rank_that_others_stand_for_is_the_first_of_them(words):
    """The second of two rows of four ranks is slow; one of each row is timed, and rank 4 is the first of the slow."""
    groups = tuple(Group("dp", (i, i + 4)) for i in range(4))
    roles = [words.events(words.compute(ms), words.collective(4 * MS_OF_FLOATS), words.mark([1])) for ms in (2, 5)]
    trace = trace_of(*roles, role_of_rank=(0,) * 4 + (1,) * 4, groups=groups, group_of=tuple((i % 4,) for i in range(8)))
    found, (_, laid, _, told) = path_of(trace, build_topology("torus:dims=2x4,bandwidth=1GB/s,latency=0s"))
    assert laid.timed_ranks == 2
    assert told.rank == 0
    assert set(found) == {computation(), sums("dp", waits_for=4)}


def test_a_step_that_begins_amid_a_collective_does_not_say_what_it_waits_for(words):
    """Rank 1 enters at 2 ms, after rank 0; step 1 ends on rank 2 at 5 ms, while what rank 1 sends goes on to 10 ms."""
    both = Group("tp", (0, 1))
    word = words.collective(8 * MS_OF_FLOATS, name="broadcast", root=1, step=2)
    first, second = ((words.compute(ms), words.mark(), word, words.mark([2], step=2)) for ms in (1, 2))
    third = words.compute(5), words.mark(), words.mark(step=2)
    roles = [words.events(*rows) for rows in (first, second, third)]
    trace = trace_of(*roles, role_of_rank=range(3), groups=(both,), group_of=((0,), (0,), ()))
    found, (*_, told) = path_of(trace, MESH)
    assert told.step_times_fs == (5 * MS, 5 * MS)
    assert (told.step, in_ms(found)) == (2, {PathKind("broadcast", "tp", None, None): 5})
