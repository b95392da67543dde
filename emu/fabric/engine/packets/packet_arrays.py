"""The arrays of a packet run: they are allocated before the first event and replaced by larger ones when full.

Letters: V tasks, L links, Q queues.
"""

from math import ceil, log2
from typing import Any

import numpy as np
from numpy.typing import NDArray

from emu.arrays import I32, I64, column
from emu.errors import must_be
from emu.fabric.engine.packets.packet_layout import (
    ADAPTIVE,
    CREDITS,
    ENTROPY,
    FREE,
    FREE_EVENT,
    HASH,
    IN_TURN,
    LEAST,
    LOSSY,
    N_FREE,
    N_FREE_EVENTS,
    N_SCALARS,
    NEXT_SAMPLE,
    NONE,
    PACKET,
    PAUSES,
    PLACE,
    PORT,
    QUEUE,
    RANDOM,
    SAMPLE_FS,
    SEED,
    SENT_TASK,
    SHIFT,
    SPREAD,
    TOO_LATE,
    PacketEngine,
    Rules,
)
from emu.fabric.engine.packets.packet_network import BY_ENTROPY, ONE_PATH, PacketNetwork, has_timers
from emu.fabric.engine.packets.sender_arrays import (
    control_of,
    first_links,
    largest_windows,
    latencies,
    longest_round_trip,
    marks_of,
    rooms_of,
    senders_of,
)
from emu.fabric.engine.packets.ways import Ways
from emu.fabric.engine.solver.event_loop import successors
from emu.fabric.engine.state_layout import TASK, align_records, columns
from emu.fabric.graph import Graph, TaskError
from emu.topology.topology import Topology
from emu.units import MAX_TICKS, TICKS_PER_S, format_time, seconds

_LOSSLESS = {"none": LOSSY, "pause": PAUSES, "credits": CREDITS, "trim": LOSSY, "drop": LOSSY}
_CHOICE = {"hash": HASH, "in-turn": IN_TURN, "random": RANDOM, "adaptive": ADAPTIVE, "least-loaded": LEAST}
_CHOICE |= dict.fromkeys(BY_ENTROPY, ENTROPY)
_ROOM = 1024  # packets and events at first; doubled when they are too few
_SAMPLES = 2**21  # numbers
LOGGED_PAUSES = 2**14  # pauses in the log
_FIRST_SAMPLE_FS = 10**8  # 100 ns; doubled when there is no room for more


def _rules(graph: Graph, network: PacketNetwork, n_lanes: int, round_trip: int) -> Rules:
    """Return the settings of a network in the form that the compiled code needs."""
    return Rules(
        **_loss_rules(network),
        n_lanes=n_lanes,
        is_strict=int(network.lane_order == "strict"),
        payload=network.unit_bytes,
        wire=network.wire_bytes(network.unit_bytes),
        packet_payload=network.payload_bytes,
        header=network.header_bytes,
        cuts_through=int(network.forwarding == "cut-through"),
        switch=network.switch_fs,
        packets_per_ack=network.packets_per_ack,
        queues_all=int(network.host_queue == "fifo"),
        burst=_burst(graph, network, round_trip),
        sleepers=_sleepers(graph, network),
        controls_first=int(network.controls_first),
        acks_in_order=int(network.acks == "in-order"),
        ack=network.ack_bytes,
        choice=_CHOICE[network.route],
        entropies=network.entropies,
        avoids=int(network.route == "entropy-avoid"),
        steps=column(network.adaptive_steps_bytes, np.int64),
    )


def _loss_rules(network: PacketNetwork) -> dict[str, int]:
    """Return the rules on full queues and on what is sent again, by name."""
    return {
        "lossless": _LOSSLESS[network.lossless],
        "trims": int(network.lossless == "trim"),
        "drops": int(network.lossless == "drop"),
        "has_timers": int(has_timers(network)),
        "goes_back": int(network.recovery == "go-back-n"),
        "timeout": network.timeout_fs,
        "reorder": network.reorder_packets,
        "pause_above": network.pause_above_bytes,
        "resume_below": network.resume_below_bytes,
    }


def _burst(graph: Graph, network: PacketNetwork, round_trip: int) -> int:
    """Return the number of packets that a host queues at one time, at most; 0 where messages take turns."""
    if network.host_queue != "fifo":
        return 0
    return 1 + int(largest_windows(network, round_trip * first_links(graph)).max(initial=0)) // network.unit_bytes


def _sleepers(graph: Graph, network: PacketNetwork) -> int:
    """Return the number of senders that may have an event that wakes them, at most."""
    return graph.n_tasks * ((network.congestion == "dcqcn") + has_timers(network))


def lay_out(graph: Graph, topology: Topology, network: PacketNetwork, seed: int, ways: Ways) -> PacketEngine:
    """Return the arrays of a run before its first event.

    Raises:
        InputError: Packets are trimmed or dropped, and a queue has no room for one; a timeout is too short; or a message takes
            less than its links do.
    """
    control = control_of(graph, topology, network)
    rules = _rules(graph, network, ways.n_lanes, control.period)
    queues = _queues(graph, ways.n_lanes, network, control.period)
    _check_losses(rules, queues[_queues_on_ways(ways)], longest_round_trip(graph, topology, network, network.unit_bytes))
    return PacketEngine(
        packets=_packets(_ROOM, 0, NONE),
        ports=_ports(graph, topology),
        queues=queues,
        tasks=_tasks(graph, ways, has_acks=network.acks != "none"),
        graph=columns(graph),
        rules=rules,
        senders=senders_of(graph, control, network),
        ways=ways._replace(step=ways.step.copy()),  # messages that choose paths write them here
        extra=_extra(graph, topology),
        **_choices(topology, ways, network),
        **_successors(graph),
        **_turns(ways),
        **_windows(graph, network),
        **_entries(graph, ways),
        **_starts(graph.n_tasks),
        **_wheel(graph.n_links, 2 * rules.sleepers),
        **_logs(graph.n_links * ways.n_lanes),
        scalars=_registers(seed, graph, topology, network),
    )


def _queues_on_ways(ways: Ways) -> NDArray[np.integer]:
    """Return the queues that packets may come to."""
    return np.concatenate((ways.step[ways.step >= 0] >> 1, ways.group_queue))


def _check_losses(rules: Rules, queues: NDArray[np.void], round_trip: float) -> None:
    """Check that a packet or cell fits into each queue on its way, and that senders wait for answers, if packets may be lost.

    Raises:
        InputError: It does not fit, so that it would be lost and sent again forever; or a sender would take packets for lost
            that are on their way.
    """
    if not len(queues):
        return
    room = int(queues["room"].min())
    if (rules.trims or rules.drops) and room < rules.wire:
        lost = "trimmed" if rules.trims else "dropped"
        what = f"at least a packet or cell with its headers, {rules.wire} B, where packets are {lost}"
        raise must_be("network", "the room of a queue", what, f"{room} B", "take a larger queue or a smaller cell")
    if rules.has_timers and rules.timeout < round_trip:
        what = f"at least the longest round trip without load, {format_time(seconds(int(round_trip)))}"
        raise must_be("network", "timeout", what, format_time(seconds(rules.timeout)))


def _successors(graph: Graph) -> dict[str, Any]:
    """Return, for each task, the tasks that wait for it, as offsets and a list."""
    start, task = successors(align_records(graph.n_tasks, TASK), columns(graph))
    return {"next_start": column(start, np.int64), "next_task": column(task, np.int32)}


def _turns(ways: Ways) -> dict[str, Any]:
    """Return the turns of the choices of each set of queues, before the first."""
    return {
        "group_turn": np.zeros(len(ways.group_start), np.int32),
        "group_order": _position_in_row(ways.group_start),
        "kicked": np.zeros(int(np.diff(ways.group_start).max(initial=1)) + 8, np.int32),
    }


def _choices(topology: Topology, ways: Ways, network: PacketNetwork) -> dict[str, Any]:
    """Return the arrays by which messages, or packets by their values, choose paths; those that nothing needs are short."""
    has_choice = len(ways.choice_state) > 0
    places = align_records(2 * topology.n_nodes * has_choice, PLACE)
    places["seen"] = NONE
    to_carry = np.zeros(len(topology.links) * has_choice, np.int64)
    return {"places": places, "to_carry": to_carry, **_spreads(len(ways.first_state), network)}


def _spreads(n_tasks: int, network: PacketNetwork) -> dict[str, Any]:
    """Return the arrays of entropy values before the first packet; they have one entry if packets have none."""
    n_messages = n_tasks if network.route in BY_ENTROPY else 1
    n_values = n_messages * network.entropies if network.route == "entropy-avoid" else 1
    return {"spreads": align_records(n_messages, SPREAD), "penalty": np.zeros(n_values, np.uint8)}


def _entries(graph: Graph, ways: Ways) -> dict[str, Any]:
    """Return the arrays of messages that wait at queues, as circular lists that are still empty."""
    start = ways.entries
    return {
        "entry_start": start,
        "entry_next": np.full(int(start[-1]), NONE, np.int32),
        "entry_task": column(np.repeat(np.arange(graph.n_tasks), np.diff(start)), np.int32),
    }


def _starts(n_tasks: int) -> dict[str, Any]:
    """Return the arrays of the engine's heap of tasks by their start, by name; the heap is empty and has room for all tasks."""
    return {
        "start_time": np.zeros(n_tasks, np.int64),
        "start_task": np.zeros(n_tasks, np.int32),
        "recent": np.full(64, NONE, np.int32),
    }


def n_buckets(n_links: int) -> int:
    """Return the number of buckets of the wheel: a power of 2."""
    return int(max(1024, 1 << (8 * n_links - 1).bit_length()))


def _wheel(n_links: int, sleepers: int) -> dict[str, Any]:
    """Return the wheel of events, empty, with about four buckets for each event of a link, and room for events of senders."""
    buckets, n_events = n_buckets(n_links), 2 * n_links + _ROOM + sleepers
    return {
        "event_time": np.zeros(n_events, np.int64),
        "event_what": np.zeros(n_events, np.int64),
        "event_next": np.arange(1, n_events + 1, dtype=np.int32),
        "wheel_first": np.full(buckets, NONE, np.int32),
        "wheel_last": np.full(buckets, NONE, np.int32),
        "wheel_bits": np.zeros(buckets // 64, np.int64),
    }


def _shift(graph: Graph, topology: Topology, network: PacketNetwork, buckets: int) -> int:
    """Return the binary logarithm of a bucket's ticks, chosen so that all planned events fit the wheel.

    A packet is planned to come after it has left the port, over the link and the switch; cut through, it leaves at most as much
    later as it takes to come.
    """
    slowest_fs = TICKS_PER_S / float(graph.capacity_Bps.min(initial=1e15))
    latency = int(topology.links.latency_fs.max(initial=0)) + network.switch_fs
    wire = max(network.wire_bytes(network.unit_bytes), network.ack_bytes)
    horizon = 3 * (wire * slowest_fs + latency) + 1
    return min(62, max(0, ceil(log2(horizon / (buckets - 1)))))


def _logs(n_queues: int) -> dict[str, Any]:
    """Return room for the lengths of queues over time, and for pauses."""
    n_samples = max(4, min(512, _SAMPLES // max(1, n_queues)) // 2 * 2)  # even, for two become one
    return {"samples": np.zeros(n_queues * n_samples, np.int32), "pause_log": np.zeros(4 * LOGGED_PAUSES, np.int64)}


def _registers(seed: int, graph: Graph, topology: Topology, network: PacketNetwork) -> I64:
    """Return the scalars of the engine, such as its counts, before its first event."""
    scalars = np.zeros(N_SCALARS, np.int64)
    scalars[FREE], scalars[N_FREE], scalars[TOO_LATE] = 0, _ROOM, NONE
    scalars[FREE_EVENT], scalars[N_FREE_EVENTS] = 2 * graph.n_links, _ROOM + 2 * _sleepers(graph, network)
    scalars[SHIFT] = _shift(graph, topology, network, n_buckets(graph.n_links))
    scalars[SEED] = np.random.default_rng(seed).integers(1, MAX_TICKS)
    scalars[SAMPLE_FS], scalars[NEXT_SAMPLE] = _FIRST_SAMPLE_FS, _FIRST_SAMPLE_FS
    return scalars


def _packets(n: int, first: int, behind: int) -> NDArray[np.void]:
    """Return n free packets, numbered from `first`; the last is followed by the packet `behind`."""
    packets = align_records(n, PACKET)
    packets["next"] = np.arange(first + 1, first + n + 1)
    packets["next"][-1] = behind
    return packets


def _ports(graph: Graph, topology: Topology) -> NDArray[np.void]:
    """Return [L] the records of the ports, none of which sends yet."""
    ports = align_records(graph.n_links, PORT)
    ports["fs_per_byte"] = TICKS_PER_S / graph.capacity_Bps
    ports["latency"] = topology.links.latency_fs
    ports["wire_first"] = NONE
    return ports


def _queues(graph: Graph, n_lanes: int, network: PacketNetwork, round_trip: int) -> NDArray[np.void]:
    """Return [Q] the records of the queues, all empty; the queue of a bundle of links has the credits of all its links.

    Room and marks that are set in round trips are what the queue's own link passes in these.
    """
    round_trip_bytes = round_trip * (graph.capacity_Bps / TICKS_PER_S)
    queues = align_records(graph.n_links * n_lanes, QUEUE)
    for name in ("first", "own_first", "circle", "blocker"):
        queues[name] = NONE
    queues["room"] = np.repeat(rooms_of(network, round_trip_bytes), n_lanes)
    for name, length in zip(("mark_from", "mark_to"), marks_of(network, round_trip_bytes), strict=True):
        queues[name] = np.repeat(length, n_lanes)
    bundled = np.maximum(1, np.rint(graph.capacity_Bps / network.credit_link_Bps)) if network.credit_link_Bps else 1
    queues["credit"] = np.repeat(network.credit_bytes * np.broadcast_to(bundled, graph.n_links), n_lanes)
    return queues


def _tasks(graph: Graph, ways: Ways, *, has_acks: bool) -> NDArray[np.void]:
    """Return [V] the records of the tasks, none of which has started."""
    tasks = align_records(graph.n_tasks, SENT_TASK)
    tasks["start"], tasks["waits"], tasks["next"] = graph.ready_fs, np.diff(graph.pred_start), NONE
    tasks["lost_at"] = NONE
    tasks["first_state"], tasks["back_state"] = ways.first_state, ways.back_state if has_acks else NONE
    for name in ("to_send", "to_leave", "to_come"):
        tasks[name] = graph.size_bytes
    return tasks


def _extra(graph: Graph, topology: Topology) -> I64:
    """Return [V] the ticks that software adds to each message beyond the latencies of its links.

    Raises:
        InputError: A message takes less time than the latencies of its links.
    """
    extra = graph.alpha_fs - latencies(graph, topology)
    if (extra < 0).any():
        raise TaskError("packets", "{} takes less than the latencies of its links", int(np.argmax(extra < 0)))
    return column(extra, np.int64)


def _windows(graph: Graph, network: PacketNetwork) -> dict[str, Any]:
    """Return, by name, the bit arrays that mark the packets of a message that arrived out of order.

    They are empty if each message has one path.
    """
    packets = -(-graph.size_bytes // network.unit_bytes)
    words = -(-np.minimum(packets, network.reorder_packets) // 64) * (network.route not in ONE_PATH)
    start = column(np.concatenate(([0], np.cumsum(words))), np.int64)
    return {"window_start": start, "came": np.zeros(int(start[-1]), np.int64)}


def _position_in_row(start: I64) -> I32:
    """Return, for each entry of rows that are stored one after another, its position in its own row, counted from 0."""
    sizes = np.diff(start)
    return np.asarray(np.arange(int(start[-1])) - np.repeat(start[:-1], sizes), np.int32)


def grow(engine: PacketEngine) -> PacketEngine:
    """Return the engine with room for twice as many packets and events."""
    scalars, n = engine.scalars, len(engine.packets)
    packets = _packets(2 * n, 0, int(scalars[FREE]))
    packets[:n] = engine.packets
    scalars[FREE], scalars[N_FREE] = n, scalars[N_FREE] + n
    return engine._replace(packets=packets, **_more_events(engine))


def _more_events(engine: PacketEngine) -> dict[str, Any]:
    """Return the arrays of events with twice as many entries, of which the new half is free."""
    scalars, n, more = engine.scalars, len(engine.event_time), len(engine.event_time)
    follows = np.concatenate((engine.event_next, np.arange(n + 1, n + more + 1, dtype=np.int32)))
    follows[-1] = scalars[FREE_EVENT]
    scalars[FREE_EVENT], scalars[N_FREE_EVENTS] = n, scalars[N_FREE_EVENTS] + more
    longer = {
        name: np.concatenate((old, np.zeros_like(old)))
        for name, old in (("event_time", engine.event_time), ("event_what", engine.event_what))
    }
    return {**longer, "event_next": follows}
