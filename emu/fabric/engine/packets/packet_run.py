"""The run of a graph by packets: its arrays are laid out and grown, the compiled loop runs, and its result is read.

Letters: V tasks, L links, Q queues, T samples, M pauses.
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from emu.arrays import I32, I64, column
from emu.errors import InputError, RunError, must_be
from emu.fabric.engine.graph_check import check_graph, order_tasks
from emu.fabric.engine.packets.congestion import DCTCP, FLOW, FREE_FLOW, NSCC, WINDOW, Control
from emu.fabric.engine.packets.network import Network
from emu.fabric.engine.packets.packet_layout import (
    ADAPTIVE,
    CREDITS,
    FREE,
    HASH,
    IN_TURN,
    LOSSY,
    N_BEYOND,
    N_DISORDERED,
    N_DONE,
    N_EVENTS,
    N_FREE,
    N_HOPS,
    N_OVER,
    N_PAUSES,
    N_REG,
    N_SAMPLES,
    N_TRIMMED,
    NEXT_SAMPLE,
    NONE,
    PACKET,
    PAUSES,
    PORT,
    QUEUE,
    RANDOM,
    SAMPLE_FS,
    SEED,
    TASK,
    TOO_LATE,
    PacketEngine,
    Rules,
)
from emu.fabric.engine.packets.packet_loop import DONE, FULL, advance_packets
from emu.fabric.engine.packets.packet_tasks import begin_tasks
from emu.fabric.engine.packets.stall import describe_stall
from emu.fabric.engine.packets.ways import Ways, backwards, path_ways, shortest_ways
from emu.fabric.engine.solver.event_loop import successors
from emu.fabric.engine.state_layout import TASK as FLUID_TASK
from emu.fabric.engine.state_layout import align_records, columns
from emu.fabric.graph import Graph, TaskError, Timeline
from emu.topology.topology import Topology
from emu.units import MAX_TICKS, TICKS_PER_S

_LOSSLESS = {"none": LOSSY, "pause": PAUSES, "credits": CREDITS, "trim": LOSSY}
_CONGESTION = {"none": FREE_FLOW, "nscc": NSCC, "dctcp": DCTCP, "window": WINDOW}
_CHOICE = {"hash": HASH, "in-turn": IN_TURN, "random": RANDOM, "adaptive": ADAPTIVE}
_REFERENCE_FS = 12 * 10**9  # round trip and link of which NSCC's constants are: 12 us, 100 Gb/s
_REFERENCE_BYTES = 150_000
_TARGET = 0.75  # delay in round trips
_ROOM = 1024  # packets and events at first; doubled when they are too few
_SAMPLES = 2**21  # numbers
_PAUSES = 2**14  # pauses in the log
_EVENTS_PER_S = 5e6
_STRIDE = 2**22  # events between two looks at the budget
_FIRST_SAMPLE_FS = 10**8  # 100 ns; doubled when there is no room for more


@dataclass(frozen=True, eq=False, slots=True)
class PacketRun:
    """The result of a run by packets: the timeline, and what only packets know."""

    timeline: Timeline
    sample_fs: int  # length of the intervals of `queue_bytes`
    queue_bytes: I32  # [T, Q] the most bytes in each queue in each interval; queue: link * lanes + lane
    paused_fs: I64  # [Q] how long each queue was paused
    pauses: I64  # [M, 4] of the first pauses: the queue, since, until, and the queue whose packets caused it
    n_pauses: int
    n_events: int
    n_packet_hops: int  # packets or cells with payload, each on each link
    n_over: int  # packets that came to a queue that was full; a network without loss that is laid out well has none
    n_trimmed: int  # packets that found a queue full and were sent again
    n_disordered: int  # packets that came before one with a lower number
    n_beyond: int  # of these, packets that were further ahead than the receiver's window
    n_lost: int  # packets and credits that are still somewhere at the end: none, if nothing is lost

    def fullest(self, n: int) -> I64:
        """Return the n queues that had the most bytes at any time, the fullest first."""
        return np.argsort(-self.queue_bytes.max(axis=0, initial=0), kind="stable")[:n]


def run_packets(
    graph: Graph,
    topology: Topology,
    network: Network,
    seed: int = 0,
    ways: Ways | None = None,
    most_events: int = MAX_TICKS,
    progress: Callable[[int, int], None] | None = None,
) -> PacketRun:
    """Return the run of a graph, packet by packet.

    Args:
        graph: The graph; not a quotient, for packets meet on links that exist.
        topology: Its topology: its links are those of the graph.
        network: What ports, hosts and switches do with packets.
        seed: Decides all that is random.
        ways: The ways of its messages; by default their hops, or all the shortest ones if the network chooses between them.
        most_events: The budget; about 5 million events take a second.
        progress: A function that is told now and then how many tasks are over, and how many events have happened.

    Raises:
        InputError: The graph is invalid, or it does not fit the topology or the network.
        RunError: Packets wait for one another in a circle, or the budget is spent.
    """
    check_graph(graph)
    order_tasks(graph)
    _check_fit(graph, topology, network)
    _check_budget(graph, network, most_events)
    engine = _lay_out(graph, topology, network, seed, ways or ways_of(graph, topology, network))
    begin_tasks(engine)
    engine = _run(engine, most_events, progress)
    late = int(engine.reg[TOO_LATE])
    if late >= 0:
        raise TaskError("graph", "{} ends beyond 9223 s, the end of the clock (2**63 ticks of 1 fs)", late)
    if engine.reg[N_DONE] < graph.n_tasks:
        raise RunError(describe_stall(engine, topology))
    return _result(engine, graph)


def ways_of(graph: Graph, topology: Topology, network: Network) -> Ways:
    """Return the ways that a network gives to the messages of a graph."""
    if network.route == "hash":
        back = None if network.acks == "none" else backwards(graph, topology.links)
        return path_ways(graph, topology.links, network.lanes, back)
    return shortest_ways(graph, topology.links, topology.passes, network.lanes)


def _check_fit(graph: Graph, topology: Topology, network: Network) -> None:
    """Check that a graph has the links of the topology, each once a message, and messages that are not below a cell.

    Raises:
        InputError: It does not.
    """
    if graph.n_links != len(topology.links):
        raise must_be("packets", "links of the graph", f"the {len(topology.links)} of {topology.name}", graph.n_links)
    if (graph.hop_weight > 1).any():
        raise InputError("packets: the graph is a quotient, whose tasks stand for several; lower it without symmetry")
    largest = int(graph.size_bytes.max(initial=0))
    if network.cell_bytes > largest > 0:
        what = f"at most the largest message, {largest} B"
        raise must_be("network", "cell", what, f"{network.cell_bytes} B", "take a smaller cell")


def forecast_events(graph: Graph, network: Network) -> int:
    """Return about how many events a run will have: two for each packet on each link, and two for each acknowledgement."""
    packets = -(-graph.size_bytes // network.unit_bytes)
    answers = 0 if network.acks == "none" else -(-packets // network.packets_per_ack)
    return int((2 * (packets + answers) * np.diff(graph.hop_start)).sum())


def _check_budget(graph: Graph, network: Network, most_events: int) -> None:
    """Check, before a run begins, that it is likely to have no more events than it may.

    Raises:
        InputError: It is not.
    """
    events = forecast_events(graph, network)
    if events > most_events:
        lasts = f"which takes about {events / _EVENTS_PER_S:.0f} s"
        mend = f"a run has {events} events, {lasts}: allow that many, or take larger cells or a smaller size"
        raise must_be("packets", "events", f"{events} or more", most_events, mend)


def _run(engine: PacketEngine, most_events: int, progress: Callable[[int, int], None] | None) -> PacketEngine:
    """Run the loop until nothing is left to happen, and return the engine, whose arrays may have been replaced by larger ones.

    Raises:
        RunError: The budget is spent.
    """
    while (why := advance_packets(engine, min(_STRIDE, most_events))) != DONE:
        if why == FULL:
            engine = _grow(engine)
        if progress is not None:
            progress(int(engine.reg[N_DONE]), int(engine.reg[N_EVENTS]))
        if engine.reg[N_EVENTS] >= most_events:
            over, all_tasks = int(engine.reg[N_DONE]), len(engine.tasks)
            raise RunError(
                f"packets: the budget of {most_events} events is spent with {over} of {all_tasks} tasks over; "
                "raise it, take larger cells or smaller messages"
            )
    return engine


def _rules(network: Network, round_trip_bytes: float) -> Rules:
    """Return the settings of a network as the compiled code takes them."""
    return Rules(
        n_lanes=network.lanes,
        payload=network.unit_bytes,
        wire=network.wire_bytes(network.unit_bytes),
        packet_payload=network.payload_bytes,
        header=network.header_bytes,
        cuts_through=int(network.forwarding == "cut-through"),
        switch=network.switch_fs,
        packets_per_ack=network.packets_per_ack,
        trims=int(network.lossless == "trim"),
        controls_first=int(network.controls_first),
        acks_in_order=int(network.acks == "in-order"),
        ack=network.ack_bytes,
        lossless=_LOSSLESS[network.lossless],
        queue=int(network.queue_round_trips * round_trip_bytes) or network.queue_bytes,
        pause_above=network.pause_above_bytes,
        resume_below=network.resume_below_bytes,
        choice=_CHOICE[network.route],
        steps=column(network.adaptive_steps_bytes, np.int64),
    )


def _lay_out(graph: Graph, topology: Topology, network: Network, seed: int, ways: Ways) -> PacketEngine:
    """Return the arrays of a run before its first event."""
    n_queues, n_tasks = graph.n_links * network.lanes, graph.n_tasks
    next_start, next_task = successors(align_records(n_tasks, FLUID_TASK), columns(graph))
    entry_start, window_start = ways.entries, _windows(graph, network)
    control = control_of(graph, topology, network)
    no_acks = column(np.full(n_tasks, NONE), np.int32)
    return PacketEngine(
        packets=_packets(_ROOM, 0, NONE),
        ports=_ports(graph, topology),
        queues=_queues(n_queues, network),
        tasks=_tasks(graph),
        graph=columns(graph),
        rules=_rules(network, control.period * control.bytes_per_fs),
        control=control,
        flows=_flows(control, n_tasks),
        extra=_extra(graph, topology),
        next_start=column(next_start, np.int64),
        next_task=column(next_task, np.int32),
        group=ways.group,
        following=ways.following,
        group_start=ways.group_start,
        group_queue=ways.group_queue,
        group_turn=np.zeros(len(ways.group_start), np.int32),
        group_order=_places(ways.group_start),
        next_state=ways.next_state,
        first_state=ways.first_state,
        back_state=no_acks if network.acks == "none" else ways.back_state,
        window_start=window_start,
        came=np.zeros(int(window_start[-1]), np.int64),
        entry_start=entry_start,
        entry_next=np.full(int(entry_start[-1]), NONE, np.int32),
        entry_task=column(np.repeat(np.arange(n_tasks), np.diff(entry_start)), np.int32),
        start_time=np.zeros(n_tasks, np.int64),
        start_task=np.zeros(n_tasks, np.int32),
        recent=np.full(64, NONE, np.int32),
        event_time=np.zeros(_ROOM, np.int64),
        event_tag=np.zeros(_ROOM, np.int64),
        kicked=np.zeros(int(np.diff(ways.group_start).max(initial=1)) + 8, np.int32),
        samples=np.zeros(n_queues * max(4, min(512, _SAMPLES // max(1, n_queues))), np.int32),
        pause_log=np.zeros(4 * _PAUSES, np.int64),
        reg=_registers(seed),
    )


def control_of(graph: Graph, topology: Topology, network: Network) -> Control:
    """Return the settings of congestion control for the longest unloaded round trip of any message of a graph.

    Source: `initNsccParams` of htsim's uec.cpp (ultraethernet/uet-htsim, commit 40ccb05).
    """
    messages = np.diff(graph.hop_start) > 0
    first = graph.hop_link[graph.hop_start[:-1][messages]]
    fastest_Bps = float(graph.capacity_Bps[first].max(initial=1.0))
    hops, latency = np.diff(graph.hop_start)[messages], _latencies(graph, topology)[messages]
    both_ways = network.wire_bytes(network.payload_bytes) + network.ack_bytes
    trips = 2 * latency + hops * (both_ways * TICKS_PER_S / fastest_Bps)
    trip, per_fs = float(trips.max(initial=1.0)), fastest_Bps / TICKS_PER_S
    scale, target = trip * per_fs / _REFERENCE_BYTES, _TARGET * trip
    return Control(
        kind=_CONGESTION[network.congestion],
        unit=network.unit_bytes,
        least=network.unit_bytes,
        bytes_per_fs=per_fs,
        most_trips=network.window_round_trips,
        target=target,
        period=int(trip),
        proportional=4 * network.unit_bytes * scale * (target / _REFERENCE_FS) / target,
        slow=5 * network.unit_bytes * scale,
        constant=0.15 * network.unit_bytes * scale,
        fast=0.25 * scale,
        mark_from=int(network.mark_from_round_trips * trip * per_fs) or MAX_TICKS,
        mark_to=int(network.mark_to_round_trips * trip * per_fs) or MAX_TICKS,
    )


def _flows(control: Control, n_tasks: int) -> NDArray[np.void]:
    """Return [V] the senders' windows at their largest; one where there is no congestion control."""
    flows = align_records(1 if control.kind == FREE_FLOW else n_tasks, FLOW)
    flows["round_trip"] = control.period
    flows["window"] = max(control.most_trips * control.period * control.bytes_per_fs, control.least)
    return flows


def _latencies(graph: Graph, topology: Topology) -> I64:
    """Return [V] the latencies of the links of each message."""
    passed = np.concatenate(([0], np.cumsum(topology.links.latency_fs[graph.hop_link])))
    return np.asarray(passed[graph.hop_start[1:]] - passed[graph.hop_start[:-1]])


def _registers(seed: int) -> I64:
    """Return the scalars of a run before its first event."""
    reg = np.zeros(N_REG, np.int64)
    reg[FREE], reg[N_FREE], reg[TOO_LATE] = 0, _ROOM, NONE
    reg[SEED] = np.random.default_rng(seed).integers(1, MAX_TICKS)
    reg[SAMPLE_FS], reg[NEXT_SAMPLE] = _FIRST_SAMPLE_FS, _FIRST_SAMPLE_FS
    return reg


def _packets(n: int, first: int, behind: int) -> NDArray[np.void]:
    """Return n free packets, numbered from `first`; the last is followed by the packet `behind`."""
    packets = align_records(n, PACKET)
    packets["next"] = np.arange(first + 1, first + n + 1)
    packets["next"][-1] = behind
    return packets


def _ports(graph: Graph, topology: Topology) -> NDArray[np.void]:
    """Return [L] the ports, idle."""
    ports = align_records(graph.n_links, PORT)
    ports["fs_per_byte"] = TICKS_PER_S / graph.capacity_Bps
    ports["latency"] = topology.links.latency_fs
    ports["wire_first"] = NONE
    return ports


def _queues(n_queues: int, network: Network) -> NDArray[np.void]:
    """Return [Q] the queues, empty."""
    queues = align_records(n_queues, QUEUE)
    for name in ("first", "own_first", "ring", "blocker"):
        queues[name] = NONE
    queues["credit"] = network.credit_bytes
    return queues


def _tasks(graph: Graph) -> NDArray[np.void]:
    """Return [V] the tasks, none of which has begun."""
    tasks = align_records(graph.n_tasks, TASK)
    tasks["start"], tasks["waits"], tasks["next"] = graph.ready_fs, np.diff(graph.pred_start), NONE
    for name in ("to_send", "to_leave", "to_come"):
        tasks[name] = graph.size_bytes
    return tasks


def _extra(graph: Graph, topology: Topology) -> I64:
    """Return [V] the ticks of each message beyond the latencies of its links, which software takes for it.

    Raises:
        InputError: A message takes less than its links do.
    """
    extra = graph.alpha_fs - _latencies(graph, topology)
    if (extra < 0).any():
        raise TaskError("packets", "{} takes less than the latencies of its links", int(np.argmax(extra < 0)))
    return column(extra, np.int64)


def _windows(graph: Graph, network: Network) -> I64:
    """Return [V + 1] where the marks of packets that come before their turn begin; none where all take one path."""
    if network.route == "hash":
        return column(np.zeros(graph.n_tasks + 1), np.int64)
    packets = -(-graph.size_bytes // network.unit_bytes)
    words = -(-np.minimum(packets, network.reorder_packets) // 64)
    return column(np.concatenate(([0], np.cumsum(words))), np.int64)


def _places(start: I64) -> I32:
    """Return the place of each entry in its own row."""
    sizes = np.diff(start)
    return np.asarray(np.arange(int(start[-1])) - np.repeat(start[:-1], sizes), np.int32)


def _grow(engine: PacketEngine) -> PacketEngine:
    """Return the engine with room for twice as many packets and events."""
    reg, n = engine.reg, len(engine.packets)
    packets = _packets(2 * n, 0, int(reg[FREE]))
    packets[:n] = engine.packets
    reg[FREE], reg[N_FREE] = n, reg[N_FREE] + n
    time, tag = (np.concatenate((a, np.zeros_like(a))) for a in (engine.event_time, engine.event_tag))
    return engine._replace(packets=packets, event_time=time, event_tag=tag)


def _result(engine: PacketEngine, graph: Graph) -> PacketRun:
    """Return what a run that is over gave."""
    reg, tasks, n_queues = engine.reg, engine.tasks, len(engine.queues)
    carried = column(engine.ports["carried"], np.float64)
    start, left, end = (column(tasks[name], np.int64) for name in ("start", "left", "end"))
    kept = min(int(reg[N_PAUSES]), _PAUSES)
    return PacketRun(
        timeline=Timeline(start, left, end, carried, "packets"),
        sample_fs=int(reg[SAMPLE_FS]),
        queue_bytes=engine.samples[: int(reg[N_SAMPLES]) * n_queues].reshape(-1, n_queues),
        paused_fs=column(engine.queues["paused_for"], np.int64),
        pauses=engine.pause_log[: 4 * kept].reshape(-1, 4),
        n_pauses=int(reg[N_PAUSES]),
        n_events=int(reg[N_EVENTS]),
        n_packet_hops=int(reg[N_HOPS]),
        n_over=int(reg[N_OVER]),
        n_trimmed=int(reg[N_TRIMMED]),
        n_disordered=int(reg[N_DISORDERED]),
        n_beyond=int(reg[N_BEYOND]),
        n_lost=len(engine.packets) - int(reg[N_FREE]),
    )
