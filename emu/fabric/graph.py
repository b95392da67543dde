"""The graph, which is the engine's input (tasks with sizes, hops and predecessors), and the timeline, its output.

A schedule on a placement and a whole training step are both graphs. The timeline has the integer ticks (of 1 fs) at which each
task started, left and ended. An error about one task is worded in the terms of the code that made the graph. Letters: V tasks,
L links, H hops, E predecessor edges.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import accumulate
from typing import Any, Literal

import numpy as np

from emu.arrays import F64, I32, I64, Bool, ascending, column, digest, ramps
from emu.errors import InputError
from emu.units import seconds


@dataclass(frozen=True, eq=False, slots=True)
class Timeline:
    """The result of `run_graph`: the times of all tasks, in ticks, and the bytes that each link carried.

    `how` is the method of the engine that was used.
    """

    start_fs: I64  # [V] when the task started
    left_fs: I64  # [V] when its last byte had left
    end_fs: I64  # [V] when it was delivered, or done
    carried_bytes: F64  # [L] bytes each link carried
    how: Literal["sweep", "quotient", "solver", "packets"]  # the method; quotient: one task stood for several, see `time_alone`
    way: I32 | None = None  # [V] the way that each message chose, by its number; -1: it chose none; None: no message chooses

    @property
    def end_s(self) -> float:
        """The time in seconds at which the last task ended; 0 for an empty graph."""
        return seconds(int(self.end_fs.max(initial=0)))

    @property
    def rounding_s(self) -> float:
        """An upper bound, in seconds, of the error by which rounding to whole ticks can shorten the timeline.

        A message leaves at the nearest tick, up to half a tick too early. Messages that leave at one instant share their links,
        so that all of them together gain no more. A floating-point step for each instant comes on top.
        """
        instants = len(ascending(self.left_fs))
        return instants * seconds(1) / 2 + (instants + 4) * float(np.spacing(self.end_s))

    def busy_s(self, capacity_Bps: F64) -> F64:
        """Return [L] the seconds that each link would need at its full bandwidth for the bytes that it carried."""
        return np.asarray(self.carried_bytes / capacity_Bps)


@dataclass(frozen=True, eq=False, slots=True)
class CandidateWays:
    """The sets of ways among which messages choose when they start. S sets, W ways of all sets, K links of all ways."""

    set_of: I32  # [V] the set of each task; -1: it does not choose
    set_start: I64  # [S + 1] where the ways of each set begin
    way_start: I64  # [W + 1] where the links of each way begin
    link: I32  # [K] the links of each way in order
    alpha_fs: I64  # [W] the latency of the head of a message on each way

    @staticmethod
    def joined(each: "Sequence[tuple[int, CandidateWays | None]]") -> "CandidateWays | None":
        """Return the ways of several graphs in order, each given with the number of its tasks; None if no message chooses."""
        known = [ways for _, ways in each if ways is not None]
        if not known:
            return None
        first, tasks = 0, list[I32]()
        for count, ways in each:
            own = np.full(count, -1, np.int32) if ways is None else ways.set_of
            tasks.append(np.where(own >= 0, own + first, -1).astype(np.int32))
            first += 0 if ways is None else len(ways.set_start) - 1
        sets, starts = (_joined_offsets([getattr(ways, name) for ways in known]) for name in ("set_start", "way_start"))
        links, alpha_fs = (np.concatenate([getattr(ways, name) for ways in known]) for name in ("link", "alpha_fs"))
        return CandidateWays(np.concatenate(tasks), sets, starts, links, alpha_fs)


@dataclass(frozen=True, eq=False, slots=True)
class Graph:
    """The tasks of a run and the waits between them, as columns; the input of the engine.

    A task with hops is a message. It may start once all its predecessors allow it. Its `size_bytes` then flow over its links at
    the max-min fair rate. The task has *left* when its last byte has left, and it *ends* (is delivered) `alpha_fs` later. A
    task without hops is a computation, a delay or a join. It leaves and ends `alpha_fs` after its start.
    """

    capacity_Bps: F64  # [L] bandwidth of each directed link
    size_bytes: I64  # [V] bytes of a message; 0 without hops
    alpha_fs: I64  # [V] ticks: latency of the head, or the duration of a task without hops
    ready_fs: I64  # [V] ticks: not before this
    hop_start: I64  # [V + 1] where the hops of each task begin
    hop_link: I32  # [H] link of each hop
    hop_weight: I32  # [H] number of times that the task's rate counts on that link (above 1 only in a quotient)
    pred_start: I64  # [V + 1] where the predecessors of each task begin
    pred: I32  # [E] the task that must come first
    pred_left: Bool  # [E] True: until it has left; False: until it has ended
    owner: I32  # [V] the participant that a report charges it to: the sender, the computing rank; -1: nobody
    origin: I32  # [V] the row of its schedule or the event of its trace that it comes from; -1: a join
    ways: CandidateWays | None = None  # of messages that choose, whose hops are those of the first way; None: none chooses

    @staticmethod
    def free(capacity_Bps: F64, alpha_fs: I64, owner: I32, origin: I32) -> "Graph":
        """Return a graph whose tasks cross no link and wait for no other task, such as delays and computations.

        Args:
            capacity_Bps: [L] the bandwidth of each link.
            alpha_fs: [V] the ticks that each task takes.
            owner: [V] the participant that a report charges each task to; -1: nobody.
            origin: [V] the row of its schedule or the event of its trace that each task comes from; -1: none.
        """
        zero, start = np.zeros(len(alpha_fs), np.int64), np.zeros(len(alpha_fs) + 1, np.int64)
        none = np.empty(0, np.int32)
        return Graph(capacity_Bps, zero, alpha_fs, zero, start, none, none, start, none, none != 0, owner, origin)

    @property
    def n_tasks(self) -> int:
        """The number of tasks, V."""
        return len(self.size_bytes)

    @property
    def n_links(self) -> int:
        """The number of links, L."""
        return len(self.capacity_Bps)

    @property
    def hop_task(self) -> I64:
        """[H] the task to which each hop belongs; hops are the links of all messages, one message after another."""
        return np.repeat(np.arange(self.n_tasks), np.diff(self.hop_start))

    def digest(self) -> str:
        """Return a hash of all columns; graphs with equal columns have equal digests."""
        ways = () if self.ways is None else (getattr(self.ways, name) for name in self.ways.__slots__)
        return digest((*(getattr(self, name) for name in COLUMNS), *ways))

    def on_ways(self, way: I32 | None) -> "Graph":
        """Return the graph in which each message keeps to the way that it chose in a run, so that none chooses.

        Args:
            way: [V] the way of each message, by its number; -1: its own hops. None: no message chose, and nothing changes.
        """
        if self.ways is None or way is None:
            return self
        chose, ways = way >= 0, self.ways
        first = np.where(chose, ways.way_start[way] + len(self.hop_link), self.hop_start[:-1])
        hops = np.where(chose, np.diff(ways.way_start)[way], np.diff(self.hop_start))
        at = ramps(first, hops)
        link = np.concatenate((self.hop_link, ways.link))[at]
        weight = np.concatenate((self.hop_weight, np.ones(len(ways.link), np.int32)))[at]
        return replace(
            self,
            alpha_fs=column(np.where(chose, ways.alpha_fs[way], self.alpha_fs), np.int64),
            hop_start=column(np.concatenate(([0], np.cumsum(hops))), np.int64),
            hop_link=column(link, np.int32),
            hop_weight=column(weight, np.int32),
            ways=None,
        )


COLUMNS = tuple(name for name in Graph.__slots__ if name != "ways")


def joined_column(graphs: Sequence[Graph], name: str) -> Any:
    """Return one column of several graphs, joined in order; offsets (`hop_start`, `pred_start`) are shifted accordingly."""
    parts = [getattr(graph, name) for graph in graphs]
    return _joined_offsets(parts) if name in ("hop_start", "pred_start") else np.concatenate(parts)


def joined_ways(graphs: Sequence[Graph]) -> CandidateWays | None:
    """Return the ways among which messages of several graphs choose, joined in order; None if no message chooses."""
    return CandidateWays.joined([(graph.n_tasks, graph.ways) for graph in graphs])


def _joined_offsets(parts: Sequence[I64]) -> I64:
    """Return the offsets of rows that are joined in order, from the offsets of each part."""
    firsts = accumulate((int(own[-1]) for own in parts), initial=0)
    return np.concatenate([parts[0][:1], *(own[1:] + first for own, first in zip(parts, firsts, strict=False))])


class TaskError(InputError):
    """An error about one task of a graph; `{}` in its text stands for the name of that task."""

    def __init__(self, subject: str, said: str, task: int) -> None:
        super().__init__(subject, said, task)
        self.said, self.task = said, task

    def __str__(self) -> str:
        return f"{self.args[0]}: {self.said.format(f'task {self.task}')}"


@contextmanager
def name_tasks(subject: str, name: Callable[[int], str]) -> Iterator[None]:
    """Replace task numbers by task names in the errors that are raised within the context.

    Args:
        subject: The beginning of the message: what the graph was made from.
        name: A function that returns the name of a task from its number.

    Raises:
        InputError: An error about a task was raised in the context.
    """
    try:
        yield
    except TaskError as error:
        raise InputError(f"{subject}: {error.said.format(name(error.task))}") from None
