"""A collective that has its links to itself, and whose members enter together, is a delay of each group.

It then takes as long as when nothing else runs. Whether it was so is looked at afterwards, in the timeline that rests on it.

G groups of P participants, O groups that stand for all, L links, M messages; Q entries of members, W that they wait for.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple, TypeVar

import numpy as np

from emu.arrays import I32, I64, Bool
from emu.fabric.build import Builder
from emu.fabric.graph import Graph
from emu.fabric.lower import Piece
from emu.fabric.run import run
from emu.fabric.timeline import Timeline
from emu.topology.orbits import components

K = TypeVar("K")


@dataclass(frozen=True, eq=False, slots=True)
class Delay:
    """A collective that all members of a group leave at one time, if they enter it at one time."""

    piece: Piece
    alone: Timeline  # of all groups, which enter at 0
    number: I64  # [G P] which of the O is each participant's group, or stands for it
    head_fs: int  # until the first message of each member starts
    length_fs: I64  # [O] until all members leave

    @property
    def message_number(self) -> I64:
        """[V] which of the O each task of the piece belongs to; joins to none that counts."""
        return np.asarray(self.number[self.piece.graph.owner])

    def add(self, builder: Builder) -> tuple[I64, I64]:
        """[O] the task with which members enter, and [O] that with which they leave, one after another."""
        length = self.length_fs - self.head_fs
        if not self.head_fs:
            both = builder.tasks(length)
            return both, both
        begins, ends = builder.tasks(np.full_like(length, self.head_fs)), builder.tasks(length)
        builder.wait(ends, begins)
        return begins, ends

    def links(self) -> tuple[I64, I64]:
        """Links, and which of the O crosses each."""
        graph = self.piece.graph
        task = np.repeat(np.arange(graph.n_tasks), np.diff(graph.hop_start))
        both = np.unique(np.stack((graph.hop_link.astype(np.int64), self.message_number[task])), axis=1)
        return both[0], both[1]


def delay_of(piece: Piece) -> Delay | None:
    """What stands for a collective; nothing where members leave apart, begin apart, or groups share a link."""
    n, size = piece.schedule.n_ranks, piece.schedule.n_participants
    alone = run(piece.graph)
    alike = piece.alike.reshape(-1, size)[:, :n]
    _, stands, number = np.unique(alike.min(axis=1), return_index=True, return_inverse=True)
    leaves, begins = alone.end_fs[piece.exit.reshape(-1, size)[:, :n]], _begins(piece, alone)[alike]
    found = Delay(piece, alone, np.repeat(number, size), int(begins.flat[0]), leaves[stands, 0])
    together = (leaves == leaves[:, :1]).all() and (begins == found.head_fs).all()
    links = found.links()[0]
    return found if together and len(np.unique(links)) == len(links) else None


def _begins(piece: Piece, alone: Timeline) -> I64:
    """When the first message of participants starts, by the number of those who stand for one another; -1: none does."""
    begins = np.full(int(piece.alike.max(initial=0)) + 1, np.iinfo(np.int64).max)
    for end in (piece.graph.owner[: len(piece.receiver)], piece.receiver):
        np.minimum.at(begins, piece.alike[end], alone.start_fs[: len(end)])
    return np.where(begins == np.iinfo(np.int64).max, -1, begins)


def delays_of(pieces: Mapping[K, Piece], collectives: Iterable[K]) -> dict[K, Delay]:
    """What stands for those collectives among all pieces that share no link with what other groups send message by message."""
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
        shared = [key for key in found if _others(crossings[key], least, most)]
        found = {key: delay for key, delay in found.items() if key not in shared}
    return found


def _crossings_of(piece: Piece, groups: dict[bytes, int]) -> I64:
    """[2, any] links, and the number of each group that crosses them; groups of other nodes are added."""
    size = piece.schedule.n_participants
    number = np.array([groups.setdefault(row.tobytes(), len(groups)) for row in piece.laid.nodes], np.int64)
    task = np.repeat(np.arange(piece.graph.n_tasks), np.diff(piece.graph.hop_start))
    return np.unique(np.stack((piece.graph.hop_link, number[piece.graph.owner[task] // size])), axis=1)


def _others(crossing: I64, least: I64, most: I64) -> bool:
    """Whether any link is crossed by another group than the one beside it; [links of the graph] of all, least and most."""
    link, group = crossing
    return bool(((most[link] >= 0) & ((least[link] != group) | (most[link] != group))).any())


class Entries(NamedTuple):
    """How members come to enter what all of them enter by one task."""

    event: I64  # [Q] of all ranks
    number: I64  # [W] which of the Q waits
    pred: I64  # [W] for the end of what

    @staticmethod
    def of(event: I64, waiting: I64, pred: I64) -> "Entries":
        """Return those of some events, of all that wait for a task each."""
        number = np.full(max(event.max(initial=-1), waiting.max(initial=-1)) + 1, -1)
        number[event] = np.arange(len(event))
        known = number[waiting] >= 0
        return Entries(event, number[waiting[known]], pred[known])

    @staticmethod
    def joined(parts: Sequence["Entries"]) -> "Entries":
        """Return those of several ranks, one after another."""
        first = np.cumsum([0, *(len(part.event) for part in parts)]).tolist()
        moved = (part._replace(number=part.number + low) for part, low in zip(parts, first, strict=False))
        return Entries(*(np.concatenate(c).astype(np.int64) for c in zip(*moved, strict=True)))

    def came(self, timeline: Timeline) -> I64:
        """Return [Q] when each member could enter."""
        came = np.zeros(len(self.event), np.int64)
        np.maximum.at(came, self.number, timeline.end_fs[self.pred])
        return came


NO_ENTRIES = Entries(*(np.empty(0, np.int64),) * 3)


def staggered_instances(entries: Entries, begins: I32, instance: I32, timeline: Timeline) -> set[int]:
    """Return the instances that some member could have entered before another; columns as of a `Replayed`."""
    apart = entries.came(timeline) < timeline.start_fs[begins[entries.event]]
    return set(instance[entries.event[apart]].tolist())


def links_were_exclusive(placed: Sequence[tuple[Delay, int]], graph: Graph, timeline: Timeline) -> bool:
    """Whether nothing else crossed a link that a delay stands for while it lasted.

    Args:
        placed: Each with its first task.
        graph: All tasks.
        timeline: When they ran.
    """
    firsts: defaultdict[Delay, list[int]] = defaultdict(list)
    for delay, first in placed:
        firsts[delay].append(first)
    where, crossed = _hanging_together(firsts, graph.n_links)
    parts = [_crossings(graph, timeline, where, crossed)]
    for delay, at in firsts.items():
        link, of = delay.links()
        tasks = np.add.outer(at, np.arange(len(delay.length_fs)))
        room = np.broadcast_to(where[link[_first_of_each(of)]], tasks.shape)
        columns = room, timeline.start_fs[tasks], timeline.end_fs[tasks], np.ones_like(room)
        parts.append(np.stack([c.ravel() for c in columns]))
    return _apart(*np.concatenate(parts, axis=1))


def _hanging_together(delays: Iterable[Delay], n_links: int) -> tuple[I64, Bool]:
    """[L] a number that links have in common which one group crosses, or several that share some; whether any delay does."""
    one, other, crossed = [np.empty(0, np.int64)], [np.empty(0, np.int64)], np.zeros(n_links, np.bool_)
    for link, of in (delay.links() for delay in delays):
        one.append(link)
        other.append(link[_first_of_each(of)][of])
        crossed[link] = True
    return components(n_links, np.concatenate(one), np.concatenate(other)), crossed


def _first_of_each(of: I64) -> I64:
    """[O] where each number comes first."""
    return np.unique(of, return_index=True)[1]


def _crossings(graph: Graph, timeline: Timeline, where: I64, crossed: Bool) -> I64:
    """[4, any] where messages cross such links, from when to when, and 0: others may cross them too."""
    hop = np.flatnonzero(crossed[graph.hop_link])
    task = np.searchsorted(graph.hop_start, hop, side="right") - 1
    return np.stack((where[graph.hop_link[hop]], timeline.start_fs[task], timeline.left_fs[task], np.zeros_like(hop)))


def _apart(where: I64, start: I64, end: I64, alone: I64) -> bool:
    """Whether no stretch of time that must be alone where it is meets another one there."""
    times, number = np.unique(np.concatenate((start, end)), return_inverse=True)
    start, end = (c + where * len(times) for c in np.split(number, 2))  # each place has its time after the one before
    order = np.lexsort((end, start))
    start, end, only = start[order], end[order], alone[order] > 0
    until, only_until = (np.maximum.accumulate(np.append(0, ends))[:-1] for ends in (end, np.where(only, end, 0)))
    return bool((start >= np.where(only, until, only_until)).all())
