"""The graph, which is the engine's input (tasks with sizes, hops and predecessors), and the timeline, its output.

A schedule on a placement and a whole training step are both graphs. The timeline has the integer ticks (of 1 fs) at which each
task started, left and ended. An error about one task is worded in the terms of the code that made the graph. Letters: V tasks,
L links, H hops, E predecessor edges.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import accumulate
from typing import Any, Literal

import numpy as np

from emu.arrays import F64, I32, I64, Bool, ascending, digest
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
        return digest(getattr(self, name) for name in self.__slots__)


def joined_column(graphs: Sequence[Graph], name: str) -> Any:
    """Return one column of several graphs, joined in order; offsets (`hop_start`, `pred_start`) are shifted accordingly."""
    parts = [getattr(graph, name) for graph in graphs]
    if name not in ("hop_start", "pred_start"):
        return np.concatenate(parts)
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
