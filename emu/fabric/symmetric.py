"""A schedule alone on a topology: of messages that translations make equal, as few as can be are timed.

N ranks, D of them that stand for all, M messages of a rank, C classes of tasks, V = C D tasks, P pairs (receiver, channel) of
a rank.
"""

from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np

from emu.arrays import I32, I64, column
from emu.collective.schedule import MAX_ROWS, RowsError, Schedule
from emu.collective.transform import on_grid
from emu.collective.translation import Translations
from emu.fabric.graph import Graph
from emu.fabric.lower import check_lowered, lower
from emu.fabric.lowering.classes import Classes, classes_of, invariant
from emu.fabric.lowering.edges import Predecessors
from emu.fabric.lowering.names import message_name
from emu.fabric.lowering.shared import Asked, Domain, Hops, moves_of, shared_ways, ways
from emu.fabric.lowering.sort import gather_hops
from emu.fabric.lowering.spread import spread
from emu.fabric.named import named
from emu.fabric.run import run
from emu.fabric.timeline import Timeline
from emu.topology.topology import CHANNELS, Topology

_CHUNK = 2**20  # translated ranks that are held at a time


class Lowered(NamedTuple):
    """A schedule as tasks; of a quotient each stands for several, and each link for its orbit."""

    graph: Graph
    is_quotient: bool


class UnevenError(RowsError):
    """Slots of different sizes make every row of a schedule needed, and these are too many."""

    def __init__(self, name: str, needed: str) -> None:
        super().__init__(name, needed)
        self.name, self.needed = name, needed

    def __str__(self) -> str:
        return f"{self.name}: not all ranks send slots of the same sizes, {self.needed}; take a size that cuts evenly"


def time_alone(
    schedule: Schedule,
    slot_bytes: I64,
    topology: Topology,
    placement: I32,
    *,
    key: int = 0,
    send_overhead_fs: int = 0,
    name: str = "schedule",
) -> Timeline:
    """Time a schedule that has the fabric to itself, by its symmetry where it has one.

    Arguments are as of `lower`; `name` is what errors call the schedule.

    Raises:
        InputError: as `lower`, `lower_classes` and `every_row`; or a message that ends beyond the clock.
    """
    found = None if send_overhead_fs else lower_alone(schedule, slot_bytes, topology, placement, key=key, name=name)
    if found is not None:
        timeline = run_named(found.graph, on_grid(schedule, topology.dims), name)
        return replace(timeline, how="quotient") if found.is_quotient else timeline
    full = every_row(schedule, slot_bytes, topology, send_overhead_fs=send_overhead_fs, name=name)
    graph = lower(full, slot_bytes, topology, placement, key=key, send_overhead_fs=send_overhead_fs).graph
    return run_named(graph, full, name)


def run_named(graph: Graph, schedule: Schedule, name: str) -> Timeline:
    """Time what a schedule was lowered to.

    Raises:
        InputError: a task cannot be timed; the line begins with `name` and says of which message it is.
    """
    with named(name, partial(message_name, schedule, graph)):
        return run(graph)


def lower_alone(
    schedule: Schedule, slot_bytes: I64, topology: Topology, placement: I32, *, key: int = 0, name: str = "schedule"
) -> Lowered | None:
    """Turn a schedule into as few tasks as its symmetry allows; nothing where only its rows tell, so that `lower` must.

    That is so where no translations are declared, where they bring a slot to one of another size, or where optical switches
    turn. Arguments as of `time_alone`.

    Raises:
        InputError: as `lower` and `lower_classes`.
    """
    check_lowered(schedule, slot_bytes, placement)
    stored = on_grid(schedule, topology.dims)
    if topology.circuits or not stored.translate or not invariant(slot_bytes, stored.translations):
        return None
    return lower_classes(stored, slot_bytes, topology, placement, key, name)


def every_row(
    schedule: Schedule, slot_bytes: I64, topology: Topology, *, send_overhead_fs: int = 0, name: str = "schedule"
) -> Schedule:
    """The same schedule with every row stored, where its symmetry alone does not tell its times; arguments as of `time_alone`.

    Raises:
        RowsError: they are more than 2**24; the message says why they are needed. An `UnevenError` if other sizes mend that.
    """
    rows = schedule.n_rows_of_all
    if not schedule.translate or rows <= MAX_ROWS:
        return schedule.expand()
    needed = f"so that each of {rows} rows must be timed, at most 2**24"
    if send_overhead_fs:
        why = "a sender spends its overhead on one message after another"
        raise RowsError(f"{name}: {why}, {needed}; leave it out, or take fewer ranks")
    if topology.circuits:
        raise RowsError(f"{name}: the optical switches of {topology.name} turn, {needed}; take fewer ranks")
    if not invariant(slot_bytes, schedule.translations):
        raise UnevenError(name, needed)
    raise RowsError(f"{name}: perturbed starts are not symmetric, {needed}; leave the perturbations out, or take fewer ranks")


def lower_classes(
    schedule: Schedule, slot_bytes: I64, topology: Topology, placement: I32, key: int = 0, name: str = "schedule"
) -> Lowered:
    """Turn a schedule into tasks from the rows of rank 0 alone; the exact times are those of `lower`, without its exits.

    Where the topology has symmetries that are translations of the schedule, and routes that keep them, the tasks are those of
    one rank of each orbit.

    Args:
        schedule: With translations.
        slot_bytes: [K] that translations keep.
        topology: Without optical switches that turn.
        placement: [N] the node of each rank.
        key: As of `lower`.
        name: As of `time_alone`.

    Raises:
        RowsError: more than 2**24 messages that no symmetry makes equal.
        InputError: a pair that no route joins.
    """
    classes, translations = classes_of(schedule, slot_bytes), schedule.translations
    asking = _Asking.of(classes, translations, placement, key)
    moves = moves_of(topology, placement, translations)
    if moves:
        domain = Domain.of(moves, schedule.n_ranks)
        _check_count(classes, domain, name)
        hops = shared_ways(topology, asking.over, moves, domain)
        if hops is not None:
            return Lowered(_graph(classes, translations, domain, asking.pair, hops), True)
    domain = Domain.of((), schedule.n_ranks)
    _check_count(classes, domain, name)
    return Lowered(_graph(classes, translations, domain, asking.pair, ways(topology, asking.over(domain.ranks))), False)


def _check_count(classes: Classes, domain: Domain, name: str) -> None:
    messages = int(np.count_nonzero(classes.dst >= 0)) * len(domain.ranks)
    if messages > MAX_ROWS:
        raise RowsError(
            f"{name}: {messages} messages of {len(domain.ranks)} ranks that no symmetry of the topology makes equal, at most "
            "2**24; take fewer ranks, or a topology that looks alike from all of them"
        )


class _Asking(NamedTuple):
    """The routes that are needed."""

    translations: Translations
    placement: I64  # [N]
    dst: I64  # [P]
    key: I64  # [P]
    pair: I64  # [C] of each class; -1: a join

    @staticmethod
    def of(classes: Classes, translations: Translations, placement: I32, key: int) -> "_Asking":
        sends = np.flatnonzero(classes.dst >= 0)
        pairs, number = np.unique(classes.dst[sends].astype(np.int64) * CHANNELS + classes.channel[sends], return_inverse=True)
        pair = np.full(len(classes.dst), -1)
        pair[sends] = number
        dst, channel = np.divmod(pairs, CHANNELS)
        return _Asking(translations, column(placement, np.int64), dst, key * CHANNELS + channel, pair)

    def over(self, ranks: I64) -> Asked:
        """[P D] source, destination and key of each pair at each of some ranks [D]."""
        dst = self.translations.rank(self.dst[:, None], ranks)
        src, key = np.broadcast_arrays(ranks, self.key[:, None])
        return column(self.placement[src], np.int64), column(self.placement[dst], np.int64), column(key, np.int64)


def _graph(classes: Classes, translations: Translations, domain: Domain, pair: I64, hops: Hops) -> Graph:
    """A task of each class at each rank of a domain, those of a class one after another."""
    size, message = len(domain.ranks), (pair >= 0)[:, None]
    way = column(np.where(message, pair[:, None] * size + np.arange(size), -1), np.int32)
    alpha, owner = np.zeros(len(way), np.int64), np.where(message, domain.ranks, -1)
    alpha[way >= 0] = hops.alpha_fs[way[way >= 0]]
    hop_start, hop_link = gather_hops(way, hops.start, hops.link)
    weight = gather_hops(way, hops.start, hops.weight)[1]
    size_bytes, origin, ready = np.repeat(classes.size_bytes, size), np.repeat(classes.origin, size), np.zeros_like(alpha)
    pred = _predecessors(classes, translations, domain)
    where = column(owner, np.int32), column(origin, np.int32)
    return Graph(hops.capacity_Bps, size_bytes, alpha, ready, hop_start, hop_link, weight, *pred, *where)


def _predecessors(classes: Classes, translations: Translations, domain: Domain) -> Predecessors:
    away, kind = np.unique(classes.away, return_inverse=True)
    step = max(1, _CHUNK // len(domain.ranks))
    chunks = (away[i : i + step, None] for i in range(0, len(away), step))
    there = [np.empty((0, len(domain.ranks)), np.int32)]
    there += [domain.number[translations.rank(chunk, domain.ranks)] for chunk in chunks]
    table = np.concatenate(there)
    table.setflags(write=False)
    edges = (classes.start, classes.pred, classes.left, column(kind, np.int64))
    start, pred, left = spread(*edges, table, len(domain.ranks))
    return start, pred, left
