"""Replay: a trace on a fabric as one graph, with every rank's computations and every group's collectives.

`emu run` times its trace in the same way. In a `brief_replay`, a collective becomes one delay, which saves tasks, if a timeline
proves that this changes nothing.
R roles, N ranks, X events of all ranks, rank after rank; P members of a collective.
"""

from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property, partial
from types import MappingProxyType

import numpy as np

from emu.arrays import F64, I32, I64, column
from emu.collective.choice import Choice
from emu.collective.schedule import MAX_ROWS
from emu.equivalence import Orbits
from emu.errors import InputError
from emu.fabric.engine.graph_check import order_tasks
from emu.fabric.graph import TaskError, Timeline, name_tasks
from emu.fabric.job_symmetry import orbits_of_job
from emu.fabric.lower import LoweredSchedule, delay_entries, lower_placed
from emu.fabric.lowering.classes import JobOrbits
from emu.fabric.lowering.placed_schedule import PlacedSchedule
from emu.fabric.run import run_graph
from emu.topology.placement import place
from emu.topology.topology import Topology
from emu.trace.device.device import Device
from emu.trace.matching.call_batch import CallBatch, batches_of, communicators
from emu.trace.matching.matcher import matched_calls
from emu.trace.replay.delay import Delay, Entries, delays_of, links_were_exclusive, staggered_instances
from emu.trace.replay.event_builder import EventBuilder
from emu.trace.replay.placed_request import place_request
from emu.trace.replay.replay_graph import ReplayGraph, Service, event_name, services_of
from emu.trace.replay.switch_turns import TurnOrder, add_turns
from emu.trace.steps import computes, order_of
from emu.trace.trace import Trace
from emu.trace.trace_file import check_trace


class SizeError(InputError):
    """The error that a trace has more tasks than memory should hold."""


@dataclass(frozen=True, eq=False)
class TraceLayout:
    """A trace on a fabric before it becomes a graph: its calls in batches, and their lowered schedules.

    In the graph a computation waits for the computation before it on its stream. A request waits for the last computation of
    its stream at the time of issue, and for the request before it of its group; a message waits for the one before it of its
    peer and tag. Both wait for the events that the trace names. Streams of a rank run side by side. Set-up (step 0) is left
    out, with all waits for its events. Ranks are on the first NPUs, in the topology's own order.

    Args:
        trace: A trace of all ranks.
        choice: The choice of algorithms for the collectives.
        topology: The topology on which the ranks run.
        device: The times of computations.
        dtype: The dtype as which float32 is timed, in computation, memory traffic and messages.
        speed: [N] the share of the device's speed at which each rank computes; None: all ranks have full speed.
    """

    trace: Trace
    choice: Choice
    topology: Topology
    device: Device
    dtype: str
    speed: F64 | None = None

    @cached_property
    def placement(self) -> I64:
        """The node of each rank, [N].

        Raises:
            InputError: There are more ranks than NPUs.
        """
        return column(place(self.topology, self.trace.n_ranks), np.int64)

    @cached_property
    def first_event(self) -> I64:
        """[N + 1] where the events of each rank begin among the X."""
        sizes = [len(self.trace.events_of(rank)) for rank in range(self.trace.n_ranks)]
        return np.cumsum([0, *sizes]).astype(np.int64)

    @cached_property
    def shares(self) -> F64:
        """[N] the share of the device's full speed at which each rank computes."""
        return column(np.ones(self.trace.n_ranks) if self.speed is None else self.speed, np.float64)

    @cached_property
    def numbers(self) -> list[int]:
        """The communicator of each group."""
        return communicators(self.trace.groups)

    @cached_property
    def batches(self) -> list[CallBatch]:
        """The calls of the trace, in batches.

        Raises:
            InputError: The trace is impossible, its dtype is unknown, or its requests do not match.
        """
        check_trace(self.trace)
        calls = matched_calls(self.trace, self.dtype)
        return batches_of(calls, self.trace.groups, self.numbers, self.choice, apart=self.topology.circuits is not None)

    @cached_property
    def placed(self) -> list[PlacedSchedule]:
        """The placed schedule of each batch; equal batches share one."""
        placed: dict[object, PlacedSchedule] = {}
        for batch in self.batches:
            key = batch.what, batch.ranks.tobytes()
            if key not in placed:
                placed[key] = place_request(batch.what, self.topology, self.placement[batch.ranks], turns=False)
        return [placed[batch.what, batch.ranks.tobytes()] for batch in self.batches]

    @cached_property
    def _request_events(self) -> list[I64]:
        """The events of the requests of each batch, [calls, members]."""
        return [self.first_event[batch.ranks] + batch.rows for batch in self.batches]

    def job_orbits(self) -> JobOrbits | None:
        """Return the orbits of nodes and links under the symmetries of the trace, or None if no rank represents another.

        Ranks of one orbit play one role at one speed, and their groups have equal communicators.
        """
        role, groups = self.trace.role_of_rank.tolist(), self.trace.group_of
        each = zip(role, self.shares.tolist(), groups, strict=True)
        words = [(r, share, *(self.numbers[g] for g in of_rank)) for r, share, of_rank in each]
        kinds = {word: i for i, word in enumerate(dict.fromkeys(words))}
        kind = np.array([kinds[word] for word in words])
        kind_at = np.full(self.topology.n_nodes, -1)
        kind_at[self.placement] = kind
        same_work = partial(_keeps_kinds, kind_at)
        return orbits_of_job(self.topology, self.placement, list(dict.fromkeys(self.placed)), same_work)

    def pieces(self, job_orbits: JobOrbits | None) -> dict[PlacedSchedule, LoweredSchedule]:
        """Return the lowered schedule of each different placed request."""
        launch_fs = self.device.request_overhead_fs
        return {placed: delay_entries(lower_placed(placed, job_orbits), launch_fs) for placed in dict.fromkeys(self.placed)}

    def delays(self, pieces: Mapping[PlacedSchedule, LoweredSchedule], worth: int) -> dict[int, Delay]:
        """Return delays that can replace batches, by batch number; none if they save fewer than `worth` tasks."""
        if self.topology.circuits is not None or self.topology.chooses:  # a choice depends on what else runs
            return {}
        together = {placed for batch, placed in zip(self.batches, self.placed, strict=True) if batch.what.served is not None}
        of_laid = delays_of(pieces, together)
        found = {i: of_laid[placed] for i, placed in enumerate(self.placed) if placed in of_laid}
        less = sum(delay.piece.graph.n_tasks - len(delay.length_fs) for delay in found.values())
        return found if less >= worth else {}

    def build_graph(
        self,
        job_orbits: JobOrbits | None,
        pieces: Mapping[PlacedSchedule, LoweredSchedule] | None = None,
        delays: Mapping[int, Delay] = MappingProxyType({}),
    ) -> ReplayGraph:
        """Return the graph of the whole trace, with tasks only for the ranks that represent all.

        Args:
            job_orbits: The ranks that stand for all; None: every rank has its own tasks.
            pieces: The lowered schedule of each placed one, if known.
            delays: The delays that stand for some batches, by number; the other batches become messages.
        """
        pieces = self.pieces(job_orbits) if pieces is None else pieces
        found = self._graph(job_orbits, pieces, delays)
        if self.topology.circuits is None:
            return found
        start_fs = replay_timeline(self, found).start_fs
        entered = start_fs[found.begins]
        order = TurnOrder(np.array([entered[events].max() for events in self._request_events], dtype=np.int64))
        turned = self._graph(job_orbits, pieces, delays, order)
        with suppress(TaskError):  # a task that waits for itself
            order_tasks(turned.graph)
            return turned
        return self._graph(job_orbits, pieces, delays, order._replace(start_fs=start_fs))

    def _graph(
        self,
        job_orbits: JobOrbits | None,
        pieces: Mapping[PlacedSchedule, LoweredSchedule],
        delays: Mapping[int, Delay],
        order: TurnOrder | None = None,
    ) -> ReplayGraph:
        """Return the graph of `build_graph`, with turns of optical switches if their order is given."""
        ranks, of_links = self._orbits(job_orbits)
        self._check_size(job_orbits, ranks, delays)
        builder = EventBuilder(self._capacity(of_links), np.arange(self.first_event[-1] + 1))
        self._compute(builder, ranks)
        met = list(self._add_calls(builder, pieces, delays))
        firsts = column([first for _, first in met], np.int64)
        add_turns(builder, self.topology, self.placed, firsts, order)
        instance, call = self._call_numbers()
        return ReplayGraph(
            entries=self._wait(builder, ranks, delays, instance),  # before the graph is taken, which has the waits
            graph=builder.graph(), first_event=self.first_event, begins=column(builder.begins, np.int32),
            ends=column(builder.ends, np.int32), instance=instance, call=call,
            pieces=tuple(piece for piece, _ in met), firsts=firsts, services=self._services,
            assumptions=self.device.assumptions, timed_ranks=len(ranks.first), link=column(of_links.number, np.int64),
        )  # fmt: skip

    def _orbits(self, job_orbits: JobOrbits | None) -> tuple[Orbits, Orbits]:
        """Return the orbits of ranks and of links; without a symmetry, each is its own orbit."""
        if job_orbits is None:
            return Orbits.each(self.trace.n_ranks), Orbits.each(len(self.topology.links))
        return Orbits.by_value(job_orbits.nodes.number[self.placement]), job_orbits.links

    def _capacity(self, of_links: Orbits) -> F64:
        """Return the bandwidth in bytes per second of the link that stands for each orbit."""
        return column(self.topology.capacity_Bps[of_links.first], np.float64)

    @cached_property
    def _services(self) -> tuple[Service, ...]:
        """The requests with their sizes and the algorithms that serve them; each different one once."""
        return services_of((batch.what, request) for batch in self.batches for request in batch.requests)

    def _call_numbers(self) -> tuple[I32, I32]:
        """Return the columns of instances and calls of a `ReplayGraph`."""
        instance, call = (np.full(self.first_event[-1], -1, np.int32) for _ in range(2))
        calls = np.cumsum([0, *map(len, self._request_events)])
        for number, events in enumerate(self._request_events):
            instance[events], call[events] = number, calls[number] + np.arange(len(events))[:, None]
        return instance, call

    def _check_size(self, job_orbits: JobOrbits | None, ranks: Orbits, delays: Mapping[int, Delay]) -> None:
        messages = {
            placed: len(placed.classes.messages.src) * len(placed.copies(job_orbits).first)
            for placed in dict.fromkeys(self.placed)
        }
        timed = [int((computes(e) & (e.step > 0)).sum()) for e in self.trace.events]
        total = sum(len(delays[i].length_fs) if i in delays else messages[placed] for i, placed in enumerate(self.placed))
        total += sum(timed[r] for r in self.trace.role_of_rank[ranks.first])
        if total > MAX_ROWS:
            standing = "" if job_orbits is None else f" of {len(ranks.first)} ranks, which stand for all"
            raise SizeError(
                f"trace: the computations and messages{standing} must be at most 2**24, got {total}; take fewer ranks or steps"
            )

    def _compute(self, builder: EventBuilder, ranks: Orbits) -> None:
        """Add the computations of the representing ranks; other ranks share these tasks."""
        timed = [np.flatnonzero(computes(e) & (e.step > 0)) for e in self.trace.events]
        taken = [self.device.ticks(e, self.dtype)[rows] for e, rows in zip(self.trace.events, timed, strict=True)]
        roles, tasks = self.trace.role_of_rank.tolist(), []
        for rank in ranks.first.tolist():
            ticks, share, rows = taken[roles[rank]], self.shares[rank], timed[roles[rank]]
            slowed = ticks if share == 1 else column(np.rint(ticks / share), np.int64)
            tasks.append(builder.compute(self.first_event[rank] + rows, slowed, rank, rows))
        for rank, stands in enumerate(ranks.number.tolist()):
            events = self.first_event[rank] + timed[roles[rank]]
            builder.begins[events] = builder.ends[events] = tasks[stands]

    def _add_calls(
        self, builder: EventBuilder, pieces: Mapping[PlacedSchedule, LoweredSchedule], delays: Mapping[int, Delay]
    ) -> Iterator[tuple[LoweredSchedule | Delay, int]]:
        """Add the calls of each batch, and yield its messages or its delay, with the number of the first task."""
        for number, (batch, placed, events) in enumerate(zip(self.batches, self.placed, self._request_events, strict=True)):
            if number in delays:
                yield delays[number], builder.hold(delays[number], events.ravel())
            else:
                [first] = builder.send(pieces[placed], events.reshape(1, -1), batch.ranks.ravel(), batch.rows.reshape(1, -1))
                yield pieces[placed], int(first)

    def _wait(self, builder: EventBuilder, ranks: Orbits, delays: Iterable[int], instance: I32) -> Entries:
        """Add the waits of the representing ranks, and return how they enter delays."""
        edges = [order_of(e) for e in self.trace.events]
        by_delay, own, waits = np.isin(instance, list(delays)), [np.empty(0, np.int64)], []
        for rank in ranks.first.tolist():
            first, end = self.first_event[rank : rank + 2].tolist()
            event, waited = edges[int(self.trace.role_of_rank[rank])]
            waits.append(builder.follow(event + first, waited + first, builder.ends))
            own.append(first + np.flatnonzero(by_delay[first:end]))
        return Entries.of(np.concatenate(own), *map(np.concatenate, zip(*waits, strict=True)))


def _keeps_kinds(kind_at: I64, node: I64) -> bool:
    """Return whether a permutation of nodes maps each rank to a rank of the same kind."""
    return bool(np.array_equal(kind_at[node], kind_at))


WORTH = 2**17  # tasks that delays must save
_TRIES = 3  # attempts with delays, before every collective becomes messages


def brief_replay(layout: TraceLayout, worth: int = WORTH) -> tuple[ReplayGraph, Timeline]:
    """Return a graph of the trace with few tasks, and its timeline, which equals that of the full graph.

    Args:
        layout: The trace on its fabric.
        worth: The number of tasks that delays must save; if they save fewer, all collectives become messages.

    Raises:
        InputError: an event that ends beyond the clock.
        SizeError: The trace has more than 2**24 computations and messages of ranks that no symmetry makes equal.
    """
    job_orbits = layout.job_orbits()
    pieces = layout.pieces(job_orbits)
    delays = layout.delays(pieces, worth)
    for _ in range(_TRIES):
        if not delays:
            break
        replayed = layout.build_graph(job_orbits, pieces, delays)
        timeline = replay_timeline(layout, replayed)
        late = staggered_instances(replayed.entries, replayed.begins, replayed.instance, timeline)
        placed = [(delay, int(replayed.firsts[i])) for i, delay in delays.items()]
        if not late and links_were_exclusive(placed, replayed.graph, timeline):
            return replayed, timeline
        delays = {i: delay for i, delay in delays.items() if i not in late} if late else {}
    replayed = layout.build_graph(job_orbits, pieces)
    return replayed, replay_timeline(layout, replayed)


def replay_timeline(layout: TraceLayout, replayed: ReplayGraph) -> Timeline:
    """Return the start and the end of each task of a replayed trace.

    Raises:
        InputError: an event that ends beyond the clock.
    """
    with name_tasks("trace", partial(event_name, layout.trace, replayed)):
        return run_graph(replayed.graph)
