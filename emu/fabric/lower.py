"""Lowering: a schedule on a placement becomes a graph of tasks, each a message with its route and its predecessors.

Every schedule takes one path. Its rows become classes of tasks. The classes are placed on the nodes of one group, or of several
equal groups. Each class then becomes one task in every copy that stands for others; without a symmetry each copy stands for
itself alone. Letters: K slots, G groups, P participants of each, M messages of a copy, D copies.
"""

from dataclasses import dataclass, replace
from functools import cached_property, partial
from threading import Lock

import numpy as np
from cachetools import LRUCache, cached
from numpy.typing import ArrayLike

from emu.arrays import I32, I64, column
from emu.collective.schedule import MAX_ROWS, RowsError, Schedule
from emu.collective.transform import on_grid
from emu.equivalence import Orbits
from emu.errors import InputError, must_be
from emu.fabric.graph import Graph
from emu.fabric.lowering.classes import JobOrbits, Joins, classes_of, invariant
from emu.fabric.lowering.graph_columns import graph_of
from emu.fabric.lowering.message_routes import MessageRoutes, routes_of_pairs, shared_routes, sure_routes
from emu.fabric.lowering.placed_schedule import PlacedSchedule
from emu.topology.topology import CHANNELS, Circuits, Topology
from emu.units import TICKS_PER_S


@dataclass(frozen=True, eq=False, slots=True)
class FabricJob:
    """A schedule to be carried by a fabric, for one group or for several equal groups.

    Args:
        schedule: Any schedule. If the times of all ranks follow from the rows of rank 0, only these are used, else every row.
        slot_bytes: [K] bytes of each slot; a slot of 0 bytes is not sent.
        topology: The topology; its links are the links of the graph.
        placement: [P] or [G, P] the node of each participant, helpers after the ranks.
        key: The number of the communicator. A topology that spreads routes uses it; the groups of one axis share it, so that
            groups that are translations of one another take corresponding routes.
        send_overhead_fs: Ticks that a sender spends on each message of a queue (src, channel) before the message may leave, one
            after another in the order of rows: the o of LogGP (Alexandrov et al. 1995).
        name: The name of the schedule in errors.
    """

    schedule: Schedule
    slot_bytes: I64
    topology: Topology
    placement: ArrayLike
    key: int = 0
    send_overhead_fs: int = 0
    name: str = "schedule"

    @property
    def nodes(self) -> I64:
        """[G, P] the node of each of the P participants of each of the G groups."""
        return np.atleast_2d(np.asarray(self.placement, np.int64))


_KEPT = 2**21  # rows of all schedules that are kept
_MOST_BYTES = 2**62  # bytes of all slots together, so that the slots of a message can be added


@dataclass(frozen=True, eq=False)
class LoweredSchedule:
    """A schedule as a graph of tasks: first its messages and the joins for local rows, then the other tasks.

    Participants are counted group after group. If one participant stands for another, the tasks of both are the same tasks.
    """

    placed: PlacedSchedule
    copies: Orbits
    graph: Graph
    entry: I32  # [G P] the join that all messages of a participant wait for; or [0]
    exit: I32  # [G P] the join that ends when a participant has received everything and all it sends has left; or [0]
    orbit: I64  # [G P] a number that participants share if one represents the other

    @property
    def schedule(self) -> Schedule:
        """The schedule from whose rows the tasks are made."""
        return self.placed.schedule

    @property
    def uses_symmetry(self) -> bool:
        """True if some participants represent others, so that the graph has fewer tasks than the schedule has messages."""
        return len(self.copies.first) < len(self.copies.number)

    @cached_property
    def receiver(self) -> I32:
        """[M D] the participant that receives each of the M messages of each of the D copies."""
        dst = column(self.placed.classes.messages.dst, np.int64)
        return column(self.placed.participants_in(dst, self.copies.first), np.int32)

    @cached_property
    def route_keys(self) -> I64:
        """[V] the key of the route of each message; 0 for the other tasks."""
        keys = np.zeros(self.graph.n_tasks, np.int64)
        channel = self.placed.classes.messages.channel
        keys[: len(channel) * len(self.copies.first)] = np.repeat(self.placed.key * CHANNELS + channel, len(self.copies.first))
        return keys


class UnevenError(RowsError):
    """The error of a schedule with too many rows, all of which are necessary because its slots have different sizes."""

    def __init__(self, name: str, needed: str) -> None:
        super().__init__(name, needed)
        self.name, self.needed = name, needed

    def __str__(self) -> str:
        return f"{self.name}: not all ranks send slots of the same sizes, {self.needed}; take a size that cuts evenly"


def lower(job: FabricJob, joins: Joins = Joins.EXITS) -> LoweredSchedule:
    """Return the graph of tasks of a schedule on a placement, for all ranks; see `place_schedule` for `joins`.

    Raises:
        InputError: See `place_schedule` and `lower_placed`.
    """
    return lower_placed(place_schedule(job, joins))


def place_schedule(job: FabricJob, joins: Joins = Joins.EXITS, *, turns: bool = True) -> PlacedSchedule:
    """Return a schedule placed on the nodes of one group, or of several equal groups.

    Args:
        job: The schedule, its bytes and its nodes.
        joins: The joins that each participant gets; with entries, a message waits until both its ends have entered.
        turns: Whether its tasks include the turns of optical switches; False: they come with those between schedules.

    Raises:
        InputError: The sizes or the nodes do not fit the schedule.
    """
    nodes, circuits = job.nodes, job.topology.circuits
    check_lowered(job.schedule, job.slot_bytes, nodes)
    plan = _rows_needed(job, nodes)
    needs = partial(_needs, circuits, nodes, job.key) if circuits and turns else None
    if circuits and len(nodes) > 1:
        raise must_be("lower", "groups", f"one at a time where the optical switches of {job.topology.name} turn", len(nodes))
    classes = classes_of(plan, job.slot_bytes, joins=joins, delayed=job.send_overhead_fs > 0, needs=needs)
    return PlacedSchedule(plan, classes, job.topology, nodes, job.key, job.send_overhead_fs, job.name)


def _needs(circuits: Circuits, nodes: I64, key: int, src: I64, dst: I64, channel: I64) -> tuple[I64, I64]:
    """Return the optical switches that messages of a job's only group need, and the state that each must have."""
    return circuits.needs(nodes[0, src], nodes[0, dst], key * CHANNELS + channel)


def lower_placed(placed: PlacedSchedule, job_orbits: JobOrbits | None = None) -> LoweredSchedule:
    """Return the tasks of a placed schedule, for those copies that represent all others.

    Args:
        placed: The placed schedule.
        job_orbits: The symmetry of the job, which the schedule and its routes keep. None: each copy stands for itself.

    Raises:
        RowsError: There are more than 2**24 messages of copies that no symmetry makes equal.
        InputError: No route joins a pair.
    """
    copies = placed.copies(job_orbits)
    size, classes = len(copies.first), placed.classes
    _check_count(placed, size)
    graph = graph_of(placed, copies, _routes(placed, copies, job_orbits))
    number, copy = placed.participants
    ends = (tasks[number] * size + copies.number[copy] if len(tasks) else tasks for tasks in classes.tasks[2:])
    entry, leave = (column(end, np.int32) for end in ends)
    return LoweredSchedule(placed, copies, graph, entry, leave, column(number * size + copies.number[copy], np.int64))


def delay_entries(piece: LoweredSchedule, launch_fs: int) -> LoweredSchedule:
    """Return a lowered schedule in which each participant enters `launch_fs` ticks later, as after a kernel launch."""
    if not launch_fs:
        return piece
    alpha = piece.graph.alpha_fs.copy()
    alpha[piece.entry] = launch_fs
    return replace(piece, graph=replace(piece.graph, alpha_fs=column(alpha, np.int64)))


def busiest_fs(placed: PlacedSchedule, job_orbits: JobOrbits | None = None) -> float:
    """Return a lower bound of the schedule's ticks: the time that the busiest link needs for all its messages.

    The arguments are those of `lower_placed`.
    """
    copies = placed.copies(job_orbits)
    chooses = placed.topology.chooses
    routes = sure_routes(placed.topology, placed.route_pairs(copies.first)) if chooses else _routes(placed, copies, job_orbits)
    crossing = np.repeat(np.repeat(placed.classes.pair_bytes, len(copies.first)), np.diff(routes.start)) * routes.weight
    carried = np.bincount(routes.link, crossing, len(routes.capacity_Bps))
    return float((carried / routes.capacity_Bps).max(initial=0.0)) * TICKS_PER_S


def _routes(placed: PlacedSchedule, copies: Orbits, job_orbits: JobOrbits | None) -> MessageRoutes:
    """Return the routes of a placed schedule's pairs, over links, or over orbits of links if `job_orbits` is given."""
    if job_orbits is None:
        return routes_of_pairs(placed.topology, placed.route_pairs(copies.first))
    routes = job_orbits.routes.get(placed) or shared_routes(
        placed.topology, placed.route_pairs(copies.first), copies, job_orbits.links
    )
    if routes is None:
        raise InputError(
            f"{placed.name}: the routes of {placed.topology.name} do not keep the symmetry that it was to be timed by"
        )
    return routes


def check_lowered(schedule: Schedule, slot_bytes: I64, nodes: I64) -> None:
    """Check that the sizes of slots and the nodes of participants fit a schedule.

    Raises:
        InputError: There is not one size for each slot or one node for each participant, or a size is below 0 or too large.
    """
    if len(slot_bytes) != schedule.n_slots:
        raise must_be("lower", "slot_bytes", f"of {schedule.n_slots} slots", len(slot_bytes))
    if slot_bytes.min(initial=0) < 0:
        raise must_be("lower", "slot_bytes", "0 or more", slot_bytes.min())
    most = int(slot_bytes.max(initial=0)) * len(slot_bytes)
    if most > _MOST_BYTES and slot_bytes.sum(dtype=np.float64) > _MOST_BYTES:
        raise InputError(f"schedule: its {len(slot_bytes)} slots hold more than 2**62 B (4 EiB) together; take a smaller size")
    if nodes.shape[1] != schedule.n_participants:
        what = f"a node for each of {schedule.n_ranks} ranks and {schedule.helpers} helpers"
        raise must_be("lower", "placement", what, nodes.shape[1])


def expanded_schedule(job: FabricJob, why: str = "", mend: str = "") -> Schedule:
    """Return the job's schedule with every row stored.

    Args:
        job: The job.
        why: Why the caller needs every row, for the error, if the job itself does not.
        mend: What to leave out in that case.

    Raises:
        RowsError: There are more than 2**24 rows; the message says why they are needed. It is an `UnevenError` if a size that
            divides evenly would help.
    """
    schedule, rows = job.schedule, job.schedule.n_rows_of_all
    if not schedule.by_rank:
        return schedule
    if rows <= MAX_ROWS:
        return _expanded(schedule)
    needed = f"so that each of {rows} rows must be timed, at most 2**24"
    if job.send_overhead_fs:
        why, mend = "a sender spends its overhead on one message after another", "leave it out"
    elif job.topology.circuits:
        raise RowsError(f"{job.name}: the optical switches of {job.topology.name} turn, {needed}; take fewer ranks")
    elif not invariant(job.slot_bytes, schedule.translations):
        raise UnevenError(job.name, needed)
    raise RowsError(f"{job.name}: {why}, {needed}; {mend}, or take fewer ranks")


@cached(LRUCache(_KEPT, getsizeof=lambda found: found.n_rows + 1), lock=Lock())
def _expanded(schedule: Schedule) -> Schedule:
    """Return the schedule with every row stored. The result is cached.

    The classes of tasks, which are computed once for each schedule object, are kept with it.
    """
    return schedule.expand()


def _rows_needed(job: FabricJob, nodes: I64) -> Schedule:
    """Return the schedule with rows of rank 0 alone if these give the times of all ranks, else with all rows.

    If the groups are a grid of the topology, the result has the translations of that grid.
    """
    schedule = job.schedule
    if not schedule.by_rank:
        return schedule
    if job.send_overhead_fs or job.topology.circuits or not invariant(job.slot_bytes, schedule.translations):
        return expanded_schedule(job)
    return _on_grid(schedule, _extent(job.topology, nodes[0]))


@cached(LRUCache(_KEPT, getsizeof=lambda found: found.n_rows + 1), lock=Lock())
def _on_grid(schedule: Schedule, dims: tuple[int, ...]) -> Schedule:
    """Return `on_grid(schedule, dims)`: the schedule with the translations of a grid. The result is cached.

    The classes of tasks, which are computed once for each schedule object, are kept with it.
    """
    return on_grid(schedule, dims)


def _extent(topology: Topology, npus: I64) -> tuple[int, ...]:
    """Return the number of different coordinates of a group along each dimension of the topology."""
    if not topology.dims or npus.max() >= topology.n_npus:
        return ()
    return tuple(len(np.unique(digit)) for digit in np.unravel_index(npus, topology.dims))


def _check_count(placed: PlacedSchedule, copies: int) -> None:
    """Check that the copies of a placed schedule have at most 2**24 messages together."""
    messages = len(placed.classes.messages.src) * copies
    if messages > MAX_ROWS:
        standing = f"{copies} {'ranks' if placed.by_rank else 'groups'}"
        raise RowsError(
            f"{placed.name}: {messages} messages of {standing} that no symmetry of the topology makes equal, at most 2**24; "
            "take fewer ranks, or a topology that looks alike from all of them"
        )
