"""The solver as a state that can be stopped, changed and resumed at any moment of virtual time.

Changes to the state take effect at its present time, and `advance` moves that time on. Letters: V tasks, L links.
"""

from typing import TypeVar

import numpy as np

from emu.arrays import F64, I32, I64, Bool, column, ramps
from emu.errors import InputError, RunError, must_be
from emu.fabric.engine.graph_check import check_graph, order_tasks
from emu.fabric.engine.solver.event_loop import advance, begin, count_waits, let_go, link_bytes, place_members, successors
from emu.fabric.engine.solver.opening import open_link, transfer_tasks
from emu.fabric.engine.state_layout import (
    EVENTS,
    FLOWING,
    KEPT,
    LEFT,
    LINK,
    N_SCALARS,
    NEVER,
    NOW,
    OPENED,
    STARTS,
    TASK,
    TOO_LATE,
    TRIAL,
    SolverArrays,
    align_records,
    columns,
    way_columns,
)
from emu.fabric.graph import COLUMNS, Graph, TaskError, Timeline, joined_column
from emu.units import TICKS_PER_S, format_bandwidth, format_size, format_time, seconds

_Column = TypeVar("_Column", I32, I64)
_RECENT = 64
_WORK_A_CALL = 2**16  # messages that one call of compiled code starts or gives new rates: at most some tenths of a second
_CLOCK = "9223 s, the end of the clock (2**63 ticks of 1 fs)"


class State:
    """The state of a fabric at a moment of virtual time: the progress of its tasks, and the rates of its flows.

    Tasks that are added in several calls give the same bits as in one call, if each is added before it could start.
    """

    def __init__(self, capacity_Bps: F64) -> None:
        no_tasks, nobody = np.empty(0, np.int64), np.empty(0, np.int32)
        self._graph = Graph.free(column(capacity_Bps, np.float64), no_tasks, nobody, nobody)
        check_graph(self._graph)
        self._tasks, self._links = align_records(0, TASK), align_records(self._graph.n_links, LINK)
        self._links["capacity"], self._links["level"] = self._graph.capacity_Bps / TICKS_PER_S, np.inf
        self._links["next_left"], self._links["staying"] = NEVER, -1
        self._scalars = np.zeros(N_SCALARS, np.int64)
        self._scalars[TRIAL], self._scalars[TOO_LATE] = 1, -1
        self._floor = np.array([np.inf])
        self._changes: dict[int, dict[int, float]] = {}  # capacity by time and link
        n_links = self._graph.n_links
        self._opened, self._event_link = np.zeros(n_links, np.int32), np.zeros(n_links, np.int32)
        self._event_time, self._start_time = np.zeros(n_links, np.int64), np.zeros(0, np.int64)
        self._start_task, self._event_place = np.zeros(0, np.int32), np.full(n_links, -1, np.int32)
        self._kept_rate, self._kept_weight = np.empty(n_links * KEPT), np.empty(n_links * KEPT, np.int64)
        self._engine = self._lay_out()

    @property
    def now_fs(self) -> int:
        """The present time, in ticks: everything before it has happened."""
        return int(self._scalars[NOW])

    @property
    def next_fs(self) -> int:
        """The tick of the next event, as far as it is known at present; NEVER if there is none."""
        if self._scalars[OPENED]:
            return self.now_fs
        leaves = self._engine.event_time[0] if self._scalars[EVENTS] else NEVER
        starts = self._engine.start_time[0] if self._scalars[STARTS] else NEVER
        return int(min(leaves, starts, *self._changes))

    @property
    def graph(self) -> Graph:
        """The graph of all tasks that were added and not dropped."""
        return self._graph

    @property
    def start_fs(self) -> I64:
        """[V] the start of each task; of a task that has not started, the earliest start that is known at present."""
        return np.asarray(self._tasks["start"])

    @property
    def end_fs(self) -> I64:
        """[V] the end of each task, past or future; NEVER if it is not known yet."""
        arrives = np.where(np.diff(self._graph.hop_start) > 0, self._engine.graph.alpha, 0)
        return np.where(self.has_left, self._tasks["left"] + arrives, NEVER)

    def left_fs(self, tasks: I64) -> I64:
        """Return the tick at which each of some tasks has left; -1 if it is not known yet.

        For a task without bytes it is known before that tick.
        """
        of = self._tasks[tasks]
        return np.where(of["state"] == LEFT, of["left"], -1)

    def expected_fs(self, tasks: I64) -> I64:
        """Return the tick at which each task will leave if all present flows keep their rates; NEVER if that is not known.

        It is not known if a predecessor has not begun, or if its rate is 0.

        Args:
            tasks: The numbers of tasks without bytes and without a duration, such as joins.
        """
        graph = self._graph
        first, counts = graph.pred_start[tasks], graph.pred_start[tasks + 1] - graph.pred_start[tasks]
        edges = ramps(first, counts)
        preds = graph.pred[edges]
        of = self._tasks[preds]
        delivered = ~graph.pred_left[edges] & (graph.hop_start[preds + 1] > graph.hop_start[preds])
        is_known = ((of["state"] == LEFT) | (of["state"] == FLOWING)) & (of["left"] < NEVER)
        ends = np.where(is_known, of["left"] + np.where(delivered, graph.alpha_fs[preds], 0), NEVER)
        latest = np.full(len(tasks), -1)
        np.maximum.at(latest, np.repeat(np.arange(len(tasks)), counts), ends)
        return np.where(latest < 0, NEVER, latest)

    @property
    def has_left(self) -> Bool:
        """[V] whether the last byte of each task has left; for a task without bytes, whether its end is known."""
        return np.asarray(self._tasks["state"] == LEFT)

    @property
    def rate_Bps(self) -> F64:  # noqa: N802  units keep their case
        """[V] the rate at which each task flows at present; 0 if it does not flow."""
        return np.where(self._tasks["state"] == FLOWING, self._tasks["rate"], 0.0) * TICKS_PER_S

    def add(self, graph: Graph, held: I64 | None = None) -> int:
        """Add tasks to the state, and return the number of the first; they start at the present time or later.

        Args:
            graph: The tasks. Its `pred` may name any task of this state.
            held: [any] tasks, counted from the first of the graph, that also wait for `let_go`.

        Raises:
            InputError: The graph cannot be run, or has other links.
        """
        if not np.array_equal(graph.capacity_Bps, self._graph.capacity_Bps):
            raise InputError("graph: capacity_Bps must be that of the state it is added to; a change in time is set_capacity's")
        check_graph(graph, self._graph.n_tasks)
        order_tasks(graph, self._graph.n_tasks)
        return self.admit(graph, held)

    def admit(self, graph: Graph, held: I64 | None = None) -> int:
        """Add tasks that have passed `check_graph` and `order_tasks`, and return the number of the first."""
        first, before = self._graph.n_tasks, self._tasks
        if first:
            _check_fixed(graph, self._graph)
        self._tasks = align_records(first + graph.n_tasks, TASK)
        self._tasks[:first] = before
        self._tasks["start"][first:] = np.maximum(graph.ready_fs, self.now_fs)
        self._graph = joined = _join_graphs(self._graph, graph) if first else graph
        self._start_time = _longer(self._start_time, first + graph.n_tasks)
        self._start_task = _longer(self._start_task, first + graph.n_tasks)
        count_waits(self._tasks, first, columns(joined))
        if held is not None:
            self._tasks["state"][first + held] += 1
        self._engine = self._lay_out()
        begin(self._engine, first)
        self._refuse_late()
        return first

    def let_go(self, task: int) -> None:
        """Remove the hold from a task that was added with `held`, so that it can start."""
        let_go(self._engine, task)
        self._refuse_late()

    def forget(self) -> I64:
        """Drop the tasks that have ended and that no other task waits for, and give the others new numbers.

        Returns:
            [V] the new number of each task; -1: it is dropped, and no task that is added later may wait for it.
        """
        _check_fixed(self._graph)
        kept = ~self.has_left
        number = np.append(np.where(kept, np.cumsum(kept) - 1, -1), -1)  # the last is of -1
        tasks = self._tasks[kept]
        tasks["next"] = number[tasks["next"]]
        self._tasks = align_records(len(tasks), TASK)
        self._tasks[:] = tasks
        self._graph = _subgraph(self._graph, kept, number)
        self._start_time = self._start_time[: len(tasks)].copy()
        self._start_task = number[self._start_task[: len(tasks)]].astype(np.int32)
        self._engine = self._lay_out()
        return number[:-1]

    def moved(self, graph: Graph, held: I64 | None = None, anew: Bool | None = None) -> "State":
        """Return a copy of the state in which the same tasks continue over other links.

        A task that has left stays so. Bytes of a message that have passed need not pass again, except for a part of a byte. For
        a task without hops that has begun, the remaining time changes in the same proportion as the whole duration. Future
        changes of capacity are dropped.

        Args:
            graph: The tasks on the other links, with the same waits.
            held: [any] tasks that also wait for `let_go`.
            anew: [V] whether each task begins again from the start; such tasks may have other waits. None: no task does.

        Raises:
            RunError: The tasks are not the same.
        """
        _check_fixed(graph, self._graph)
        other, now_fs, n = State(graph.capacity_Bps), self.now_fs, len(self._tasks)
        other._tasks, other._graph = transfer_tasks(self._tasks, now_fs, self._graph, graph, anew)
        if held is not None:
            other._tasks["state"][held] += 1
        other._scalars[NOW] = now_fs
        other._start_time, other._start_task = np.zeros(n, np.int64), np.zeros(n, np.int32)
        count_waits(other._tasks, 0, columns(other._graph))
        other._engine = other._lay_out()
        begin(other._engine, 0)
        other._refuse_late()
        return other

    def set_capacity(self, link: int, time_fs: int, capacity_Bps: float) -> None:
        """Change the bandwidth of a link from a tick on; with 0 nothing flows.

        Raises:
            InputError: There is no such link, the tick is in the past, the capacity is below 0, or it is the second for that
                link and tick.
        """
        if not 0 <= link < self._graph.n_links:
            raise must_be("capacity event", "link", f"0 to {self._graph.n_links - 1}", link)
        if not self.now_fs <= time_fs < NEVER:
            raise must_be("capacity event", f"time_fs of link {link}", f"{self.now_fs} (now) or later", time_fs)
        if not 0 <= capacity_Bps < np.inf:
            raise must_be("capacity event", f"capacity_Bps of link {link}", "0 or more, and finite", capacity_Bps)
        if link in self._changes.setdefault(time_fs, {}):
            raise InputError(f"capacity event: link {link} is given two capacities at {time_fs} fs; give one")
        self._changes[time_fs][link] = capacity_Bps

    def advance(self, until_fs: int = NEVER) -> None:
        """Process all events before tick `until_fs`.

        Raises:
            InputError: The tick is in the past; or, as a TaskError, a task ends beyond the clock.
        """
        if until_fs < self.now_fs:
            raise must_be("solver", "until_fs", f"{self.now_fs} (now) or later", until_fs)
        for time in sorted(t for t in self._changes if t < until_fs):
            self._process(time)
            for link, capacity in self._changes.pop(time).items():
                self._links[link]["capacity"] = capacity / TICKS_PER_S
                open_link(self._engine, link, 0.0)
        self._process(until_fs)
        self._refuse_late()

    def _process(self, until_fs: int) -> None:
        """Process all events before a tick; between some of them Python can handle signals and run other threads."""
        while advance(self._engine, until_fs, _WORK_A_CALL):
            pass

    def timeline(self) -> Timeline:
        """Return the timeline of a state that was advanced to the end.

        Raises:
            TaskError: A task leaves beyond the clock.
            RunError: A task has not left, because of the clock or of a link without capacity.
        """
        graph, tasks = self._graph, self._tasks
        if not self.has_left.all():
            self._explain_unfinished()
        left = np.ascontiguousarray(tasks["left"])
        end = left + np.where(np.diff(graph.hop_start) > 0, self._engine.graph.alpha, 0)
        start, load = np.ascontiguousarray(tasks["start"]), link_bytes(self._engine.graph, graph.n_links)
        way = None if graph.ways is None else column(self._engine.ways.chosen, np.int32)
        return Timeline(start, left, end, load, "solver", way)

    def _explain_unfinished(self) -> None:
        """Raise the error that says why a task has not left.

        It can need more time, one of its links can have lost its capacity, or the clock ends first.
        """
        if self.now_fs < NEVER:
            task = int((~self.has_left).argmax())
            raise RunError(f"solver: task {task} has not left at {self.now_fs} fs; advance further")
        flowing = np.flatnonzero(self._tasks["state"] == FLOWING)
        still = flowing[self._tasks["rate"][flowing] == 0]
        if len(still):
            task, link = int(still[0]), int(self._tasks["limit"][still[0]])
            raise RunError(f"solver: task {task} never leaves: link {link} has no capacity any more; raise it by a later event")
        raise self._too_late(int(flowing[0]) if len(flowing) else int((~self.has_left).argmax()))

    def _refuse_late(self) -> None:
        """Check that no task ends beyond the clock."""
        if self._scalars[TOO_LATE] >= 0:
            raise self._too_late(int(self._scalars[TOO_LATE]))

    def _too_late(self, task: int) -> TaskError:
        """Return the error for a task that ends beyond the clock; the message says why it takes so long."""
        graph, start_s = self._graph.on_ways(self._engine.ways.chosen), seconds(self._tasks["start"][task])
        hops = slice(graph.hop_start[task], graph.hop_start[task + 1])
        rates = graph.capacity_Bps[graph.hop_link[hops]] / graph.hop_weight[hops]
        takes = [f"{format_time(seconds(graph.alpha_fs[task]))}{' of latency' if len(rates) else ''}"]
        if graph.size_bytes[task]:
            links = f"links of {format_bandwidth(rates.min())}, which it may share,"
            takes.insert(0, f"{format_size(graph.size_bytes[task])} over {links}")
        said = f"{{}} starts at {format_time(start_s)}, takes {' and '.join(takes)}, and so ends after {_CLOCK}"
        mend = "send less, or over faster links" if len(rates) else "have it take less"
        return TaskError("solver", f"{said}; {mend}", task)

    def _lay_out(self) -> SolverArrays:
        """Return the arrays of the compiled functions for the present tasks."""
        tasks, links = self._tasks, self._links
        graph, ways = way_columns(self._graph, columns(self._graph))
        n, n_links = len(tasks), len(links)
        next_start, next_task = successors(tasks, graph)
        after = column(next_start, np.int64), column(next_task, np.int32)
        late, fresh, flows = (np.empty(m, np.int32) for m in (n_links, n, n))
        lists = place_members(tasks, links, graph, ways), self._floor, self._opened, late, fresh, flows
        levels = np.empty(2 * n_links, np.float64), np.empty(2 * n_links, np.int32)
        frozen = np.empty(n, np.float64), np.empty(n, np.int32), self._kept_rate, self._kept_weight
        events = self._event_time, self._event_link, self._event_place, self._start_time, self._start_task
        recent = np.full(_RECENT, -1, np.int32)
        return SolverArrays(tasks, links, graph, ways, *(after + lists + levels + frozen + events), recent, self._scalars)


def _check_fixed(*graphs: Graph) -> None:
    """Check that no message chooses its way, for a state whose tasks change.

    Raises:
        InputError: A message does.
    """
    if any(graph.ways is not None for graph in graphs):
        raise InputError("solver: messages that choose their way must be added at one time, and stay until the end")


def _subgraph(graph: Graph, kept: Bool, number: I64) -> Graph:
    """Return the graph of some of the tasks; they wait for one another as before, and for none of the other tasks.

    Args:
        graph: The graph of all tasks.
        kept: [V] whether each task is in the new graph.
        number: [V] the new number of each task.
    """
    hops, edges = (np.repeat(kept, np.diff(start)) for start in (graph.hop_start, graph.pred_start))
    edges &= kept[graph.pred]
    waits = np.bincount(np.repeat(np.arange(len(kept)), np.diff(graph.pred_start))[edges], minlength=len(kept))
    hop_start, pred_start = (np.append(0, np.cumsum(n[kept])) for n in (np.diff(graph.hop_start), waits))
    size, alpha, ready, owner, origin = (
        getattr(graph, name)[kept] for name in ("size_bytes", "alpha_fs", "ready_fs", "owner", "origin")
    )
    hop = graph.hop_link[hops], graph.hop_weight[hops]
    pred = column(number[graph.pred[edges]], np.int32), graph.pred_left[edges]
    return Graph(graph.capacity_Bps, size, alpha, ready, hop_start, *hop, pred_start, *pred, owner, origin)


def _longer(values: _Column, n: int) -> _Column:
    """Return an array of length `n` that begins with the given values and continues with zeros."""
    longer = np.zeros(n, values.dtype)
    longer[: len(values)] = values
    return longer


def _join_graphs(a: Graph, b: Graph) -> Graph:
    """Return one graph with the tasks of `a` before those of `b`; `pred` of `b` already has the joint numbers."""
    return Graph(a.capacity_Bps, *(joined_column((a, b), name) for name in COLUMNS if name != "capacity_Bps"))
