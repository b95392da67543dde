"""The run of a graph by packets."""

from dataclasses import dataclass, replace

import numpy as np

from emu.arrays import I64, column
from emu.errors import RunError
from emu.fabric.engine.graph_check import check_graph, order_tasks
from emu.fabric.engine.packets.network import Network
from emu.fabric.engine.packets.packet_layout import (
    EVENTS, FREE, LOSSY, PAUSES, CREDITS, HASH, IN_TURN, RANDOM, ADAPTIVE, N_DONE, N_EVENTS, N_FREE, N_HOPS, N_REG, NONE, PACKET, PORT, QUEUE, SEED, TASK, TOO_LATE, PacketEngine, Rules,
)
from emu.fabric.engine.packets.packet_loop import DONE, FULL, advance_packets
from emu.fabric.engine.packets.packet_tasks import begin_tasks
from emu.fabric.engine.packets.ways import Ways, path_ways
from emu.fabric.engine.solver.event_loop import link_bytes, successors
from emu.fabric.engine.state_layout import align_records, columns
from emu.fabric.graph import Graph, Timeline
from emu.topology.topology import Links
from emu.units import TICKS_PER_S

_LOSSLESS = {"none": LOSSY, "pause": PAUSES, "credits": CREDITS}
_CHOICE = {"hash": HASH, "in-turn": IN_TURN, "random": RANDOM, "adaptive": ADAPTIVE}


def rules_of(network: Network) -> Rules:
    payload = network.cell_bytes or network.payload_bytes
    return Rules(
        n_lanes=network.lanes,
        payload=payload,
        packet_payload=network.payload_bytes,
        header=network.header_bytes,
        cuts_through=int(network.forwarding == "cut-through"),
        switch=network.switch_fs,
        packets_per_ack=network.packets_per_ack,
        ack=network.ack_bytes,
        lossless=_LOSSLESS[network.lossless],
        queue=network.queue_bytes,
        pause_above=network.pause_above_bytes,
        resume_below=network.resume_below_bytes,
        choice=_CHOICE[network.route],
        steps=column(network.adaptive_steps_bytes, np.int64),
    )


def lay_out(graph: Graph, links: Links, network: Network, seed: int, ways: Ways) -> PacketEngine:
    v, n_queues = graph.n_tasks, graph.n_links * network.lanes
    rules = rules_of(network)
    tasks, ports, queues = align_records(v, TASK), align_records(graph.n_links, PORT), align_records(n_queues, QUEUE)
    size = graph.size_bytes
    tasks["start"], tasks["to_send"], tasks["to_leave"], tasks["to_come"] = graph.ready_fs, size, size, size
    tasks["waits"] = np.diff(graph.pred_start)
    tasks["next"] = NONE
    ports["fs_per_byte"], ports["latency"], ports["back"] = TICKS_PER_S / graph.capacity_Bps, links.latency_fs, links.latency_fs
    ports["wire_first"], ports["task"] = NONE, NONE
    queues["first"], queues["own_first"], queues["ring"], queues["blocker"] = NONE, NONE, NONE, NONE
    queues["credit"] = network.credit_bytes
    packets, reg = new_packets(1024), np.zeros(N_REG, np.int64)
    reg[FREE], reg[N_FREE], reg[SEED], reg[TOO_LATE] = 0, 1024, 2**62 + 12345 + 7919 * seed, NONE
    crossed = np.repeat(links.latency_fs[graph.hop_link], 1)
    sums = np.concatenate(([0], np.cumsum(crossed)))
    extra = graph.alpha_fs - (sums[graph.hop_start[1:]] - sums[graph.hop_start[:-1]])
    g = columns(graph)
    next_start, next_task = successors_of(graph)
    entry_start = ways.entries
    n_entries = int(entry_start[-1])
    widest = int(np.diff(ways.group_start).max(initial=1))
    order = np.arange(len(ways.group_queue)) - np.repeat(ways.group_start[:-1], np.diff(ways.group_start))
    return PacketEngine(
        packets=packets, ports=ports, queues=queues, tasks=tasks, graph=g, rules=rules, extra=column(extra, np.int64),
        next_start=column(next_start, np.int64), next_task=column(next_task, np.int32),
        group=ways.group, following=ways.following, group_start=ways.group_start, group_queue=ways.group_queue,
        group_turn=np.zeros(len(ways.group_start), np.int32), group_order=order.astype(np.int32),
        next_state=ways.next_state, first_state=ways.first_state,
        back_state=ways.back_state if network.packets_per_ack else column(np.full(v, NONE), np.int32),
        entry_start=column(entry_start, np.int64), entry_next=np.full(n_entries, NONE, np.int32),
        entry_task=column(np.repeat(np.arange(v), np.diff(entry_start)), np.int32),
        start_time=np.zeros(v, np.int64), start_task=np.zeros(v, np.int32), recent=np.full(64, NONE, np.int32),
        event_time=np.zeros(1024, np.int64), event_tag=np.zeros(1024, np.int64),
        kicked=np.zeros(widest + 8, np.int32), reg=reg,
    )


def successors_of(graph: Graph):
    from emu.fabric.engine.state_layout import TASK as SOLVED
    return successors(align_records(graph.n_tasks, SOLVED), columns(graph))


def new_packets(n: int, first: int = 0):
    packets = align_records(n, PACKET)
    packets["next"] = np.arange(first + 1, first + n + 1)
    return packets


def grow(engine: PacketEngine) -> PacketEngine:
    reg, n = engine.reg, len(engine.packets)
    packets = align_records(2 * n, PACKET)
    packets[:n] = engine.packets
    packets["next"][n:] = np.arange(n + 1, 2 * n + 1)
    packets["next"][-1] = reg[FREE]
    reg[FREE] = n
    reg[N_FREE] += n
    wide = [np.concatenate((a, np.zeros_like(a))) for a in (engine.event_time, engine.event_tag)]
    return engine._replace(packets=packets, event_time=wide[0], event_tag=wide[1])


def run_packets(graph: Graph, links: Links, network: Network, seed: int = 0, ways: Ways | None = None):
    check_graph(graph)
    order_tasks(graph)
    engine = lay_out(graph, links, network, seed, ways or path_ways(graph, links, network.lanes))
    begin_tasks(engine)
    while (why := advance_packets(engine, 1 << 24)) != DONE:
        if why == FULL:
            engine = grow(engine)
    if engine.reg[N_DONE] < graph.n_tasks:
        raise RunError("deadlock")
    return engine
