"""Graphs, events and calls that are refused, each with its message."""

import pickle
from dataclasses import replace

import numpy as np
import pytest

from emu.errors import InputError, RunError
from emu.fabric.engine.graph_check import check_graph, order_tasks
from emu.fabric.engine.solver.state import State
from emu.fabric.graph import Graph, TaskError, name_tasks
from emu.fabric.run import CapacityEvent, run_graph
from tests.fabric.reference import GB, Task, graph_of, messages

ONE = Task(size=1, hops=((0, 1),))


def spoilt(**columns: list[int]) -> Graph:
    graph = graph_of([GB, GB], [ONE, replace(ONE, hops=((0, 1), (1, 1)), preds=((0, False),))])
    return replace(graph, **{name: np.array(values, getattr(graph, name).dtype) for name, values in columns.items()})


@pytest.mark.parametrize(
    ("graph", "message"),
    [
        (spoilt(capacity_Bps=[1, 0]), "graph: capacity_Bps of link 1 must be above 0 and finite, got 0.0"),
        (spoilt(size_bytes=[1, -1]), "graph: size_bytes of task 1 must be 0 or more, got -1"),
        (spoilt(alpha_fs=[-2, 1]), "graph: alpha_fs of task 0 must be 0 or more, got -2"),
        (spoilt(ready_fs=[0, -1]), "graph: ready_fs of task 1 must be 0 or more, got -1"),
        (spoilt(hop_link=[0, 0, 2]), "graph: hop_link of task 1 must be a link, 0 to 1, got 2"),
        (spoilt(hop_link=[0, 1, 1]), "graph: task 1 crosses a link twice; cross it once with the sum of the weights"),
        (spoilt(hop_weight=[1, 0, 1]), "graph: hop_weight of task 1 must be 1 or more, got 0"),
        (spoilt(pred=[2]), "graph: pred of task 1 must be a task, 0 to 1, got 2"),
        (spoilt(pred=[1]), "graph: task 1 waits for itself, at once or over others; remove one of these waits"),
        (spoilt(alpha_fs=[0]), "graph: the length of alpha_fs must be V = 2, got 1"),
        (spoilt(hop_start=[0, 1]), "graph: the length of hop_start must be V + 1 = 3, got 2"),
        (spoilt(pred_start=[0, 1, 0]), "graph: pred_start must be offsets from 0 that never fall, got [0, 1, 0]"),
        (spoilt(hop_weight=[1]), "graph: the length of hop_weight must be hop_start[-1] = 3, got 1"),
        (graph_of([GB], [Task(size=3)]), "graph: size_bytes of task 0 must be 0 without hops, got 3"),
    ],
)
def test_a_graph_that_cannot_run_is_refused_by_the_first_thing_wrong(graph: Graph, message: str) -> None:
    with pytest.raises(InputError) as error:
        run_graph(graph)
    assert str(error.value) == message


def test_a_long_cycle_among_ordered_tasks_is_found() -> None:
    tasks = [Task(preds=(((v - 1) % 5, False),)) for v in range(5)]
    with pytest.raises(InputError, match=r"graph: task \d waits for itself"):
        run_graph(graph_of([GB], [Task(), *(replace(t, preds=tuple((p + 1, b) for p, b in t.preds)) for t in tasks)]))


def test_predecessors_may_stand_behind_what_waits_for_them() -> None:
    tasks = [Task(alpha=1, preds=((2, False),)), Task(alpha=1), Task(alpha=1, preds=((1, False),))]
    assert run_graph(graph_of([GB], tasks)).end_fs.tolist() == [3, 1, 2]


@pytest.mark.parametrize(
    ("tasks", "said"),
    [
        ([Task(alpha=2**62), Task(alpha=2**62, preds=((0, False),))], "task 1 starts at 4612 s, takes 4612 s"),
        (
            [Task(size=1, alpha=2**63 - 2, hops=((0, 1),))],
            "task 0 starts at 0 s, takes 1 B over links of 1 GB/s, which it may share, and 9223 s",
        ),
        ([Task(size=0, alpha=2**63 - 2, ready=2, hops=((0, 1),))], "task 0 starts at 0.002 ps, takes 9223 s of latency"),
        (
            [Task(size=2**50, hops=((0, 2),))],
            "task 0 starts at 0 s, takes 1 PiB over links of 500 MB/s, which it may share, and 0 s of latency",
        ),
    ],
)
def test_what_ends_beyond_the_clock_is_refused_with_what_it_takes(tasks: list[Task], said: str) -> None:
    with pytest.raises(InputError) as error:
        run_graph(graph_of([GB], tasks))
    assert str(error.value).startswith(f"solver: {said}")
    mend = "send less, or over faster links" if " over " in said or "latency" in said else "have it take less"
    assert str(error.value).endswith(f", and so ends after 9223 s, the end of the clock (2**63 ticks of 1 fs); {mend}")


def test_an_error_about_a_task_is_named_by_who_made_the_graph() -> None:
    with pytest.raises(InputError) as error, name_tasks("trace", "event {}".format):
        run_graph(spoilt(alpha_fs=[0, -3]))
    assert type(error.value) is InputError
    assert str(error.value) == "trace: alpha_fs of event 1 must be 0 or more, got -3"
    with pytest.raises(InputError, match="capacity_Bps of link 1"), name_tasks("trace", "event {}".format):
        run_graph(spoilt(capacity_Bps=[1, 0]))


def test_an_error_about_a_task_passes_from_process_to_process() -> None:
    error = pickle.loads(pickle.dumps(TaskError("graph", "{} waits", 7)))
    assert (type(error), str(error), error.task) == (TaskError, "graph: task 7 waits", 7)


def test_a_link_that_stays_down_is_named_with_what_waits_for_it() -> None:
    with pytest.raises(RunError) as error:
        run_graph(graph_of([GB], messages([[0]])), [CapacityEvent(0, 5, 0)])
    expected = "solver: task 0 never leaves: link 0 has no capacity any more; raise it by a later event"
    assert str(error.value) == expected


@pytest.mark.parametrize(
    ("event", "message"),
    [
        (CapacityEvent(1, 5, 1), "capacity event: link must be 0 to 0, got 1"),
        (CapacityEvent(0, -5, 1), "capacity event: time_fs of link 0 must be 0 (now) or later, got -5"),
        (CapacityEvent(0, 5, -1), "capacity event: capacity_Bps of link 0 must be 0 or more, and finite, got -1"),
    ],
)
def test_a_capacity_event_that_cannot_be_is_refused(event: CapacityEvent, message: str) -> None:
    with pytest.raises(InputError) as error:
        run_graph(graph_of([GB], [ONE]), [event])
    assert str(error.value) == message


def test_two_capacities_at_one_time_are_refused() -> None:
    with pytest.raises(InputError, match="capacity event: link 0 is given two capacities at 5 fs; give one"):
        run_graph(graph_of([GB], [ONE]), [CapacityEvent(0, 5, 1), CapacityEvent(0, 5, 2)])


def test_a_state_refuses_other_links_a_past_and_an_unfinished_timeline() -> None:
    state = State(np.array([1e9]))
    with pytest.raises(InputError, match="graph: capacity_Bps must be that of the state it is added to"):
        state.add(graph_of([2 * GB], [ONE]))
    state.add(graph_of([GB], [replace(ONE, ready=50)]))
    state.advance(9)
    with pytest.raises(InputError, match=r"solver: until_fs must be 9 \(now\) or later, got 8"):
        state.advance(8)
    with pytest.raises(RunError, match="solver: task 0 has not left at 9 fs; advance further"):
        state.timeline()


def test_errors_of_added_tasks_name_them_by_their_number_in_the_state() -> None:
    state = State(np.array([1e9]))
    state.add(graph_of([GB], [ONE]))
    with pytest.raises(InputError, match="graph: size_bytes of task 1 must be 0 or more, got -4"):
        state.add(graph_of([GB], [replace(ONE, size=-4)]))
    with pytest.raises(InputError, match="graph: task 1 waits for itself"):
        state.add(graph_of([GB], [replace(ONE, preds=((1, False),))]))


def test_a_graph_that_fits_passes_the_check() -> None:
    graph = spoilt()
    check_graph(graph)
    assert order_tasks(graph).tolist() == []
