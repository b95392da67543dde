"""Collectives as delays: a collective without shared links, entered by all members at one time, becomes one delay.

The delay is as long as the collective takes when nothing else runs. The timeline that follows is then checked: if the
conditions did not hold, the collective becomes messages.

G groups of P participants, O groups that stand for all, L links, M messages; Q entries of members, W tasks that they wait for.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import numpy as np

from emu.arrays import I32, I64, Bool, ascending
from emu.equivalence import Orbits, components
from emu.fabric.build import Builder
from emu.fabric.graph import Graph, Timeline
from emu.fabric.lower import LoweredSchedule
from emu.fabric.run import run_graph

K = TypeVar("K")


@dataclass(frozen=True, eq=False, slots=True)
class Delay:
    """A collective that takes a fixed time, because all members enter and leave it at one time.

    It replaces the messages in a graph. `number` is the class of each participant's group: groups of a class take equal times,
    `length_fs`.
    """

    piece: LoweredSchedule
    alone: Timeline  # the timeline of all groups when they enter at 0 and nothing else runs
    number: I64  # [G P] the index among the O groups of each participant's group, or of the one that stands for it
    head_fs: int  # time until the first message of each member starts
    length_fs: I64  # [O] time until all members leave

    @property
    def message_number(self) -> I64:
        """[V] for each message of the collective, the number of its group's class.

        Groups of a class leave at the same time. The number of a join has no meaning.
        """
        return np.asarray(self.number[self.piece.graph.owner])

    def add(self, builder: Builder) -> tuple[I64, I64]:
        """Add the delays of all O classes of groups to a graph.

        Returns:
            [O] the tasks by which members enter. [O] the tasks by which they leave.
        """
        length = self.length_fs - self.head_fs
        if not self.head_fs:
            both = builder.tasks(length)
            return both, both
        begins, ends = builder.tasks(np.full_like(length, self.head_fs)), builder.tasks(length)
        builder.wait(ends, begins)
        return begins, ends

    def links(self) -> tuple[I64, I64]:
        """Return links, and for each the index among the O groups of a group that crosses it."""
        graph = self.piece.graph
        both = np.unique(np.stack((graph.hop_link.astype(np.int64), self.message_number[graph.hop_task])), axis=1)
        return both[0], both[1]


def members_of(piece: LoweredSchedule) -> I64:
    """Return [groups, ranks] the participant number of each rank in a lowered schedule; the others are helpers."""
    return np.arange(piece.orbit.size).reshape(-1, piece.schedule.n_participants)[:, : piece.schedule.n_ranks]


def delay_of(piece: LoweredSchedule) -> Delay | None:
    """Return the delay of a collective; None where members start or leave at different times, or groups share a link."""
    alone, members = run_graph(piece.graph), members_of(piece)
    orbit = piece.orbit[members]
    number, stands, _ = Orbits.by_value(orbit.min(axis=1))
    leaves, begins = alone.end_fs[piece.exit[members]], _begins(piece, alone)[orbit]
    found = Delay(piece, alone, np.repeat(number, piece.schedule.n_participants), int(begins.flat[0]), leaves[stands, 0])
    together = (leaves == leaves[:, :1]).all() and (begins == found.head_fs).all()
    links = found.links()[0]
    return found if together and len(ascending(links)) == len(links) else None


def _begins(piece: LoweredSchedule, alone: Timeline) -> I64:
    """Return the start of the first message of each class of equivalent participants; -1 for a class that sends none."""
    begins = np.full(int(piece.orbit.max(initial=0)) + 1, np.iinfo(np.int64).max)
    for end in (piece.graph.owner[: len(piece.receiver)], piece.receiver):
        np.minimum.at(begins, piece.orbit[end], alone.start_fs[: len(end)])
    return np.where(begins == np.iinfo(np.int64).max, -1, begins)


def delays_of(pieces: Mapping[K, LoweredSchedule], collectives: Iterable[K]) -> dict[K, Delay]:
    """Return the delays of the collectives that share no link with messages of other groups.

    Args:
        pieces: All lowered schedules of the graph, by any key.
        collectives: The keys of those that are collectives.
    """
    found = {key: delay for key in collectives if (delay := delay_of(pieces[key])) is not None}
    groups: dict[bytes, int] = {}
    crossings = {key: _crossings_of(piece, groups) for key, piece in pieces.items()}
    shared = list(found)
    while found and shared:
        others = [crossing for key, crossing in crossings.items() if key not in found]
        link, group = np.concatenate([np.empty((2, 0), np.int64), *others], axis=1)
        least, most = (np.full(next(iter(pieces.values())).graph.n_links, of) for of in (len(groups), -1))
        np.minimum.at(least, link, group)
        np.maximum.at(most, link, group)
        shared = [key for key in found if _shares_link(crossings[key], least, most)]
        found = {key: delay for key, delay in found.items() if key not in shared}
    return found


def _crossings_of(piece: LoweredSchedule, groups: dict[bytes, int]) -> I64:
    """Return [2, any] links and the number of the group that crosses each; new groups are added to `groups`."""
    size = piece.schedule.n_participants
    number = np.array([groups.setdefault(row.tobytes(), len(groups)) for row in piece.placed.nodes], np.int64)
    owner = piece.graph.owner[piece.graph.hop_task]
    return np.unique(np.stack((piece.graph.hop_link, number[owner // size])), axis=1)


def _shares_link(crossing: I64, least: I64, most: I64) -> bool:
    """Return True if another group crosses a link of `crossing`, by the least and the most group number of each link."""
    link, group = crossing
    return bool(((most[link] >= 0) & ((least[link] != group) | (most[link] != group))).any())


class Entries(NamedTuple):
    """The times at which members enter calls that all members enter by one task.

    Entry number `number` waits for the end of task `pred`.
    """

    event: I64  # [Q] index among the events of all ranks
    number: I64  # [W] the index among the Q entries that waits
    pred: I64  # [W] the task for whose end it waits

    @staticmethod
    def of(event: I64, waiting: I64, pred: I64) -> "Entries":
        """Return the tasks for which each member of a delay or of a body waits before it enters, by event.

        Args:
            event: [Q] the events.
            waiting: [any] events that wait for a task each; those that are not in `event` are dropped.
            pred: [any] the tasks for which they wait.
        """
        number = np.full(max(event.max(initial=-1), waiting.max(initial=-1)) + 1, -1)
        number[event] = np.arange(len(event))
        known = number[waiting] >= 0
        return Entries(event, number[waiting[known]], pred[known])

    def entry_times(self, timeline: Timeline) -> I64:
        """Return [Q] the tick from which the member of each entry could enter its call."""
        came = np.zeros(len(self.event), np.int64)
        np.maximum.at(came, self.number, timeline.end_fs[self.pred])
        return came


def staggered_instances(entries: Entries, begins: I32, instance: I32, timeline: Timeline) -> set[int]:
    """Return the numbers of the delays that some member entered before another; the columns are those of a `ReplayGraph`."""
    apart = entries.entry_times(timeline) < timeline.start_fs[begins[entries.event]]
    return set(instance[entries.event[apart]].tolist())


def links_were_exclusive(placed: Sequence[tuple[Delay, int]], graph: Graph, timeline: Timeline) -> bool:
    """Return True if nothing else crossed a link of a delay while the delay lasted.

    Args:
        placed: Each delay with its first task.
        graph: The graph of all tasks.
        timeline: The times of all tasks.
    """
    firsts: defaultdict[Delay, list[int]] = defaultdict(list)
    for delay, first in placed:
        firsts[delay].append(first)
    where, crossed = _connected_links(firsts, graph.n_links)
    parts = [_crossings(graph, timeline, where, crossed)]
    for delay, at in firsts.items():
        link, of = delay.links()
        tasks = np.add.outer(at, np.arange(len(delay.length_fs)))
        room = np.broadcast_to(where[link[Orbits.by_value(of).first]], tasks.shape)
        columns = room, timeline.start_fs[tasks], timeline.end_fs[tasks], np.ones_like(room)
        parts.append(np.stack([c.ravel() for c in columns]))
    return _exclusive(*np.concatenate(parts, axis=1))


def _connected_links(delays: Iterable[Delay], n_links: int) -> tuple[I64, Bool]:
    """Return [L] a number for each link, equal for links that groups connect, and [L] which links any delay crosses.

    Links are connected if one group crosses them, or several groups that share a link.
    """
    one, other, crossed = [np.empty(0, np.int64)], [np.empty(0, np.int64)], np.zeros(n_links, np.bool_)
    for link, of in (delay.links() for delay in delays):
        one.append(link)
        other.append(link[Orbits.by_value(of).first][of])
        crossed[link] = True
    return components(n_links, np.concatenate(one), np.concatenate(other)), crossed


def _crossings(graph: Graph, timeline: Timeline, where: I64, crossed: Bool) -> I64:
    """Return [4, any] the link, the times and the group of each message on links that delays cross.

    Each message has a column for each such link. Its place is the link's number in `where`, and it may overlap other messages.

    Args:
        graph: The graph of all tasks.
        timeline: The times of all tasks.
        where: [L] a number for each link, equal for links that groups connect.
        crossed: [L] whether any delay crosses each link.
    """
    hop = np.flatnonzero(crossed[graph.hop_link])
    task = np.searchsorted(graph.hop_start, hop, side="right") - 1
    return np.stack((where[graph.hop_link[hop]], timeline.start_fs[task], timeline.left_fs[task], np.zeros_like(hop)))


def _exclusive(where: I64, start: I64, end: I64, alone: I64) -> bool:
    """Return whether no interval that must be exclusive overlaps another interval on the same link.

    Args:
        where: [any] the link of each interval.
        start: [any] its start.
        end: [any] its end.
        alone: [any] 1 for an interval that must be exclusive.
    """
    times, number = np.unique(np.concatenate((start, end)), return_inverse=True)
    start, end = (c + where * len(times) for c in np.split(number, 2))  # each place has its time after the one before
    order = np.lexsort((end, start))
    start, end, only = start[order], end[order], alone[order] > 0
    until, only_until = (np.maximum.accumulate(np.append(0, ends))[:-1] for ends in (end, np.where(only, end, 0)))
    return bool((start >= np.where(only, until, only_until)).all())
