"""A run is about the step whose work communicates and is done most often."""

from dataclasses import replace

import numpy as np
import pytest

from emu.fabric.run import run_graph
from emu.trace.report.report import report
from emu.trace.steps import equal_steps, one_step
from emu.trace.trace import Group
from tests.trace.laid import MS_OF_FLOATS, replayed, told, trace_of

MS = 10**12


def rows_of(words, steps):
    """A role: of each step a list of (ms to compute, elements to sum), by its number from 1."""
    rows, calls = [], 0
    for number, works in enumerate(steps, 1):
        for ms, elements in works:
            rows.append(words.compute(ms, step=number))
            if elements:
                rows.append(words.collective(elements, step=number, instance=calls))
                calls += 1
        rows.append(words.mark([len(rows) - 1] if works else (), step=number))
    return rows


SMALL, LARGE, ALONE = [(1, 8)], [(3, 8)], [(7, 0)]


@pytest.mark.parametrize(
    ("steps", "groups"),
    [
        ([SMALL, LARGE, SMALL], [(1, 3), (2,)]),
        ([SMALL, LARGE, LARGE, SMALL, LARGE], [(2, 3, 5), (1, 4)]),
        ([SMALL, LARGE], [(2,), (1,)]),  # as often: the later
        ([SMALL, LARGE, LARGE, SMALL], [(1, 4), (2, 3)]),
        ([LARGE, ALONE, ALONE, ALONE], [(1,), (2, 3, 4)]),  # what does not communicate is beside
        ([ALONE, ALONE, [(2, 0)]], [(1, 2), (3,)]),
        ([SMALL, SMALL, []], [(1, 2), (3,)]),
    ],
)
def test_the_most_frequent_work_that_communicates_comes_first(words, steps, groups):
    assert list(equal_steps(trace_of(words.events(*rows_of(words, steps))))) == groups


def test_steps_that_differ_on_any_rank_are_not_equal(words):
    roles = [words.events(*rows_of(words, steps)) for steps in ([SMALL] * 3, [SMALL, LARGE, SMALL])]
    assert equal_steps(trace_of(*roles, role_of_rank=(0, 1))) == ((1, 3), (2,))


def test_the_order_of_work_and_every_amount_of_it_counts(words):
    first = rows_of(words, [[(1, 8), (2, 16)]])[:4]
    changes = [
        {"flops": 5.0}, {"bytes": 96}, {"name": "reduce"}, {"dtype": "bfloat16"}, {"root": 1}, {"stream": 1},
        {"splits": (3, 5), "name": "all_to_all"}, {"count": 5}, {"tag": 3}, {"batch": 2}, {"m": 2}, {"n": 2}, {"k": 2},
    ]  # fmt: skip
    for change in changes:
        row = 0 if "flops" in change or "stream" in change else 1
        other = [{**r, **(change if i == row else {}), "step": 2} for i, r in enumerate(first)]
        assert equal_steps(trace_of(words.events(*first, *other))) == ((2,), (1,)), change
    again = [{**r, "step": 2, "instance": r.get("instance", 0) + 2, "waits": (0,)} for r in first]
    assert equal_steps(trace_of(words.events(*first, *again))) == ((1, 2),)
    given, exchanged = ({"name": "all_to_all", "splits": splits} for splits in ((3, 5), (5, 3)))
    other = [{**r, **(exchanged if i == 1 else {}), "step": 2} for i, r in enumerate(first)]
    first_given = [{**r, **(given if i == 1 else {})} for i, r in enumerate(first)]
    assert equal_steps(trace_of(words.events(*first_given, *other))) == ((2,), (1,))
    ragged = [{**r, "name": "all_to_all"} if i in (1, 3) else r for i, r in enumerate(first)]
    one, other = ([{**r, **({"splits": (3, 5)} if i == at else {})} for i, r in enumerate(ragged)] for at in (1, 3))
    other = [{**r, "step": 2} for r in other]
    assert equal_steps(trace_of(words.events(*one, *other))) == ((2,), (1,))  # which of the requests has them counts
    turned = [{**first[i], "step": 2} for i in (2, 3, 0, 1)]
    assert equal_steps(trace_of(words.events(*first, *turned))) == ((2,), (1,))


@pytest.mark.parametrize(("times", "step"), [([5], 1), ([5, 2], 2), ([5, 2, 9], 1), ([5, 2, 9, 3], 4), ([2, 5, 2, 5], 3)])
def test_the_step_told_is_the_one_of_median_time_of_two_the_shorter(words, times, step):
    """Each step has the same work of 1 ms, with idle time before it so that it takes as long as is given."""
    trace = trace_of(words.events(*rows_of(words, [[(1, 0)]] * len(times))), role_of_rank=(0,), groups=(Group("world", (0,)),))
    laid = replayed(trace)
    ends = np.repeat(np.cumsum(times), 2) * MS
    found = report(trace, laid, replace(run_graph(laid.graph), start_fs=ends - MS, left_fs=ends, end_fs=ends))
    assert found.step_times_fs == tuple(t * MS for t in times)
    assert (found.step, found.step_time_fs, found.ended_fs) == (step, times[step - 1] * MS, sum(times[:step]) * MS)
    assert (found.compute_fs, found.idle_fs) == (MS, (times[step - 1] - 1) * MS)


def test_the_parts_are_those_of_the_step_told_and_not_of_the_last(words):
    """Requests of 3 ms that nobody waits for: each step but the first begins while the one before still communicates."""
    rows = []
    for step in (1, 2, 3):
        rows += [words.compute(1, step=step), words.collective(3 * MS_OF_FLOATS, step=step, instance=step - 1)]
    beside = [words.compute(50, step=4), words.mark(step=4)]
    found = told(trace_of(words.events(*rows, *beside)))
    assert [t // MS for t in found.step_times_fs] == [4, 3, 3, 43]
    assert (found.groups, found.step) == (((1, 2, 3), (4,)), 3)
    assert (found.compute_fs, found.exposed_comm_fs, found.idle_fs) == (3 * MS, 0, 0)  # step 4 computes meanwhile
    assert found.computes_fs.tolist() == [MS, MS]


def test_one_step_alone_waits_for_its_own_events_and_has_its_own_splits(words):
    rows = [
        words.compute(1),
        words.mark([0]),
        words.compute(2, step=2, waits=(0, 1)),
        words.collective(8, "all_to_all", step=2, splits=(3, 5), waits=(2,)),
        words.mark([0, 2, 3], step=2),
        words.collective(4, "all_to_all", step=3, splits=(4,), waits=(3,)),
    ]
    [events] = one_step(trace_of(words.events(*rows)), 2).events
    assert events.name == ("mm", "all_to_all", "step")
    assert events.step.tolist() == [1, 1, 1]
    waits = np.split(events.wait, events.wait_start[1:-1])
    assert [each.tolist() for each in waits] == [[], [0], [0, 1]]
    assert [each.tolist() for each in np.split(events.split, events.split_start[1:-1])] == [[], [3, 5], []]


def test_equal_steps_of_many_events_stay_in_the_order_of_issue(words):
    """Events of both steps come in turn; the second step of the other trace has two of its sixty turned."""

    def groups(*turned):
        order = [*range(60)]
        for i in turned:
            order[i : i + 2] = order[i + 1], order[i]
        rows = [words.compute(1 + amount, step=step) for pair in enumerate(order) for step, amount in enumerate(pair, 1)]
        return equal_steps(trace_of(words.events(*rows)))

    assert groups() == ((1, 2),)
    assert groups(37) == ((2,), (1,))


def test_one_step_alone_has_the_times_that_were_measured_of_it(words):
    rows = [words.compute(each, step=step) for each, step in ((1, 1), (2, 2), (3, 1), (4, 2))]
    events = replace(words.events(*rows), lasts_s=np.array([0.5, 0.25, 2.0, 8.0]))
    for step, lasts in ((1, [0.5, 2.0]), (2, [0.25, 8.0])):
        assert one_step(trace_of(events), step).events[0].lasts_s.tolist() == lasts
        assert one_step(trace_of(words.events(*rows)), step).events[0].lasts_s.tolist() == []
