"""The work of a port: it takes packets from its queues, sends them, and sends pauses and credits back."""

import numpy as np

from emu.compiled.function import compiled
from emu.fabric.engine.packets.congestion import DCQCN, has_windows, may_send
from emu.fabric.engine.packets.event_wheel import add_event, draw_number, free_packet, horizon, take_packet
from emu.fabric.engine.packets.packet_layout import (
    AGAIN,
    ASKS,
    AT_END,
    CAME,
    CREDIT,
    CREDITS,
    DATA,
    LEAST,
    MARKED,
    N_HOPS,
    N_OVER,
    N_PAUSES,
    N_TRIMMED,
    NONE,
    PAUSE,
    PAUSES,
    RESUME,
    SENT,
    TOO_LATE,
    TRIMMED,
    VALUE,
    WAKE,
    PacketEngine,
)
from emu.fabric.engine.packets.packet_routing import next_value
from emu.fabric.engine.packets.rate_control import pace_packet
from emu.fabric.engine.state_layout import NEVER


@compiled
def make_packet(e: PacketEngine, entry: int, q: int, now: int) -> int:
    """Return the next packet of a message, which an entry of the ring of queue `q` stands for."""
    v, p = e.entry_task[entry], take_packet(e)
    t, k, r = e.tasks[v], e.packets[p], e.rules
    k.task, k.kind, k.flags, k.number, k.ingress, k.sent, k.tail = v, DATA, 0, t.n_sent, NONE, now, now
    k.payload = min(t.to_send, r.payload)
    k.bytes = k.payload + r.header * ((k.payload + r.packet_payload - 1) // r.packet_payload)
    step = e.ways.step[t.first_state]
    k.state = NONE if step & 1 else t.first_state + 1
    if step < 0:
        k.state = e.ways.next_state[e.ways.following[t.first_state] + entry - e.entry_start[v]]
    t.to_send -= k.payload
    k.flags = (AGAIN if t.n_sent < t.again_until else 0) | (next_value(e, v) * VALUE)
    t.n_sent += 1
    if has_windows(e.senders):
        e.senders.flows[v].in_flight += k.payload
        k.flags |= 0 if t.to_send > 0 and may_send(e.senders, v, e.rules.payload) else ASKS
    elif e.senders.control.kind == DCQCN:
        pace_packet(e.senders.pacing, v, k.bytes, now)
    t.heard = now
    e.queues[q].bytes += k.bytes
    return p


@compiled
def is_due(e: PacketEngine, v: int, now: int) -> bool:
    """Return whether a message may send its next packet by its rate; if not, an event will wake it then."""
    if e.senders.control.kind != DCQCN:
        return True
    w = e.senders.pacing.paces[v]
    if now >= w.due:
        return True
    if w.sleeps == 0:
        w.sleeps = 1
        add_event(e, min(w.due, now + horizon(e)), WAKE, v)
    return False


@compiled
def has_packet(e: PacketEngine, v: int) -> bool:
    """Return whether a message has a packet that its window lets it send."""
    t = e.tasks[v]
    return bool(t.to_send > 0 and t.is_stuck == 0 and may_send(e.senders, v, min(t.to_send, e.rules.payload)))


@compiled
def draw(e: PacketEngine, q: int, now: int) -> int:
    """Return a new packet of the messages that start at queue `q`, in round-robin order; NONE if none may send."""
    k = e.queues[q]
    while k.circle >= 0:
        entry = e.entry_next[k.circle]
        v = e.entry_task[entry]
        if has_packet(e, v) and is_due(e, v, now):
            k.circle = entry
            return make_packet(e, entry, q, now)
        if entry == k.circle:
            k.circle = NONE
        else:
            e.entry_next[k.circle] = e.entry_next[entry]
        e.entry_next[entry] = NONE
    return NONE


@compiled
def take(e: PacketEngine, q: int, now: int) -> int:
    """Return the packet that queue `q` sends next: acknowledgements of this node first, then other packets and messages."""
    k = e.queues[q]
    if k.is_paused or (k.own_first < 0 and k.first < 0 and k.circle < 0):
        return NONE
    if k.own_first >= 0:
        p = k.own_first
        if e.rules.lossless == CREDITS and k.credit < e.packets[p].bytes:
            return NONE
        k.own_first = e.packets[p].next
        return int(p)
    may_begin = e.rules.lossless != CREDITS or k.credit >= e.rules.wire
    if may_begin and k.circle >= 0 and (k.first < 0 or k.turn == 0):
        p = draw(e, q, now)
        if p >= 0:
            k.turn = 1
            return p
    p = k.first
    if p < 0 or (e.rules.lossless == CREDITS and k.credit < e.packets[p].bytes):
        return NONE
    k.first, k.turn = e.packets[p].next, 0
    return int(p)


@compiled
def mark(e: PacketEngine, q: int, own_bytes: int, p: int) -> None:
    """Mark packet `p` if queue `q` behind it is long: never below one length, always above another, at random between.

    Args:
        e: The engine.
        q: The queue from which the packet is sent.
        own_bytes: The bytes of the packet that the length of the queue still has.
        p: The packet.
    """
    k = e.queues[q]
    over, between = k.bytes - own_bytes - k.mark_from, k.mark_to - k.mark_from
    if over > 0 and (over >= between or draw_number(e, between) < over):
        e.packets[p].flags |= MARKED


@compiled
def is_beyond(e: PacketEngine, link: int, p: int, now: int) -> bool:
    """Return whether the packet, or the credit that it returns, would arrive after the end of the clock."""
    port, k = e.ports[link], e.packets[p]
    back = 0 if k.ingress < 0 else e.ports[k.ingress // e.rules.n_lanes].latency
    lasts = k.bytes * port.fs_per_byte + (2.0 * port.latency + back + e.rules.switch)
    return bool(lasts >= float(NEVER - max(now, k.tail)))


@compiled
def put_on_wire(e: PacketEngine, link: int, p: int) -> None:
    """Append packet `p` to the packets that travel over a link; they arrive in the order in which they were appended."""
    port = e.ports[link]
    if port.wire_first < 0:
        port.wire_first = p
        add_event(e, e.packets[p].due, CAME, link)
    else:
        e.packets[port.wire_last].next = p
    port.wire_last = p


@compiled
def transmit(e: PacketEngine, q: int, p: int, now: int) -> None:
    """Let the port of queue `q` start to send packet `p`."""
    link = q // e.rules.n_lanes
    port, k = e.ports[link], e.packets[p]
    if is_beyond(e, link, p, now):
        e.scalars[TOO_LATE] = k.task
        return
    finish = now + int(np.rint(k.bytes * port.fs_per_byte))
    if e.rules.cuts_through:
        finish = max(finish, k.tail + (e.rules.switch if k.ingress >= 0 else 0))  # its last byte crosses the node, too
    due = now + port.latency if e.rules.cuts_through and k.state >= 0 else finish + port.latency
    port.is_busy, port.ingress, port.bytes, port.queue = 1, k.ingress, k.bytes, q
    port.task, port.payload = k.task if k.ingress < 0 and k.kind == DATA else NONE, k.payload
    port.carried += k.bytes
    if e.rules.cuts_through and k.kind == DATA and k.ingress >= 0:
        mark(e, q, k.bytes, p)  # its header is gone before its last byte is
    e.scalars[N_HOPS] += k.kind == DATA
    if e.rules.choice == LEAST and k.kind in (DATA, TRIMMED):
        e.to_carry[link] -= k.payload
    k.due, k.tail, k.ingress, k.next = due, finish + port.latency, q, NONE
    if e.rules.lossless == CREDITS:
        e.queues[q].credit -= k.bytes
    add_event(e, finish, SENT, link)
    put_on_wire(e, link, p)


@compiled
def send(e: PacketEngine, link: int, now: int) -> None:
    """Let the port of a link send the next packet, if it is idle and has one; its lanes take turns, or the first goes first."""
    port, n = e.ports[link], e.rules.n_lanes
    if port.is_busy:
        return
    first = 0 if e.rules.is_strict else port.lane + 1
    for i in range(n):
        lane = first + i
        lane -= n if lane >= n else 0
        p = take(e, link * n + lane, now)
        if p >= 0:
            port.lane = lane
            transmit(e, link * n + lane, p, now)
            return


@compiled
def enqueue_own(e: PacketEngine, q: int, p: int) -> None:
    """Append packet `p`, an acknowledgement that this node itself makes, to queue `q`."""
    k = e.queues[q]
    e.packets[p].next = NONE
    if k.own_first < 0:
        k.own_first = p
    else:
        e.packets[k.own_last].next = p
    k.own_last = p
    k.bytes += e.packets[p].bytes


@compiled
def drop(e: PacketEngine, q: int, p: int) -> None:
    """Lose a packet that finds queue `q` full; its message keeps the count of what was lost."""
    k = e.packets[p]
    t = e.tasks[k.task]
    t.lost, t.lost_number, t.lost_at = t.lost + k.payload, max(t.lost_number, k.number), q
    if k.flags & AGAIN:
        t.is_stuck = 1
    if k.ingress >= 0:
        e.queues[k.ingress].held -= k.bytes
    else:
        t.kept += k.payload
    e.scalars[N_TRIMMED] += 1
    free_packet(e, p)


@compiled
def exchange(e: PacketEngine, p: int, other: int) -> None:
    """Exchange what two packet numbers stand for; the places of the numbers in queues stay."""
    a, b = e.packets[p], e.packets[other]
    a.due, b.due = b.due, a.due
    a.tail, b.tail = b.tail, a.tail
    a.sent, b.sent = b.sent, a.sent
    a.payload, b.payload = b.payload, a.payload
    a.task, b.task = b.task, a.task
    a.state, b.state = b.state, a.state
    a.ingress, b.ingress = b.ingress, a.ingress
    a.bytes, b.bytes = b.bytes, a.bytes
    a.number, b.number = b.number, a.number
    a.kind, b.kind = b.kind, a.kind
    a.flags, b.flags = b.flags, a.flags


@compiled
def trim(e: PacketEngine, q: int, p: int) -> None:
    """Trim packet `p`, which finds queue `q` full, or at random the last packet of the queue, whose place it then takes.

    Afterwards `p` stands for the header of the one that is trimmed.
    """
    k, packet = e.queues[q], e.packets[p]
    if k.first >= 0 and e.packets[k.last].kind == DATA and draw_number(e, 2) == 0:
        k.bytes += packet.bytes - e.packets[k.last].bytes
        exchange(e, p, k.last)
    packet.kind, packet.bytes = TRIMMED, e.rules.ack
    packet.flags |= AT_END if packet.state < 0 else 0
    if packet.ingress < 0:
        e.tasks[packet.task].kept += packet.payload
    e.scalars[N_TRIMMED] += 1


@compiled
def enqueue(e: PacketEngine, q: int, p: int) -> None:
    """Append a packet from another node to queue `q`; if it does not fit, trim or drop it where the network does."""
    k, packet = e.queues[q], e.packets[p]
    if packet.kind == DATA and k.bytes + packet.bytes > k.room:
        if e.rules.drops:
            drop(e, q, p)
            return
        if e.rules.trims:
            trim(e, q, p)
    if packet.kind != DATA and e.rules.controls_first:
        enqueue_own(e, q, p)
        return
    packet.next = NONE
    if k.first < 0:
        k.first = p
    else:
        e.packets[k.last].next = p
    k.last = p
    k.bytes += packet.bytes
    k.most = max(k.most, k.bytes)
    e.scalars[N_OVER] += k.bytes > k.room


@compiled
def hold(e: PacketEngine, ingress: int, to: int, n_bytes: int, now: int) -> None:
    """Count the bytes of a packet that waits in a node, and pause the port before it if too many bytes wait.

    Args:
        e: The engine.
        ingress: The queue of the port from which the packet came; that one is paused.
        to: The queue in which the packet waits.
        n_bytes: The bytes of the packet.
        now: The tick.
    """
    k = e.queues[ingress]
    k.held += n_bytes
    if e.rules.lossless == PAUSES and k.held > e.rules.pause_above and k.pauses == 0:
        k.pauses, p = 1, take_packet(e)
        e.packets[p].ingress, e.packets[p].state = ingress, to
        add_event(e, now + e.ports[ingress // e.rules.n_lanes].latency, PAUSE, p)


@compiled
def return_credit(e: PacketEngine, ingress: int, n_bytes: int, now: int) -> None:
    """Send the credit of a packet that has left a node back to the port that sent it."""
    p = take_packet(e)
    e.packets[p].ingress, e.packets[p].bytes = ingress, n_bytes
    add_event(e, now + e.ports[ingress // e.rules.n_lanes].latency, CREDIT, p)


@compiled
def give_back(e: PacketEngine, ingress: int, n_bytes: int, now: int) -> None:
    """Subtract the bytes of a packet that has left a node, and return its credit or end the pause of the port before."""
    k = e.queues[ingress]
    k.held -= n_bytes
    if e.rules.lossless == CREDITS:
        return_credit(e, ingress, n_bytes, now)
    elif k.pauses and k.held < e.rules.resume_below:
        k.pauses = 0
        add_event(e, now + e.ports[ingress // e.rules.n_lanes].latency, RESUME, ingress)


@compiled
def get_credit(e: PacketEngine, p: int) -> int:
    """Add a returned credit to its queue, and return the number of that queue."""
    q = e.packets[p].ingress
    e.queues[q].credit += e.packets[p].bytes
    free_packet(e, p)
    return int(q)


@compiled
def pause(e: PacketEngine, p: int, now: int) -> None:
    """Pause a queue from `now` on, as frame `p` asks, which names the queue and the one that caused the pause."""
    k = e.queues[e.packets[p].ingress]
    k.is_paused, k.paused_since, k.blocker = 1, now, e.packets[p].state
    free_packet(e, p)


@compiled
def resume(e: PacketEngine, q: int, now: int) -> None:
    """End the pause of queue `q`, and write the pause into the log if there is room."""
    k, at = e.queues[q], 4 * e.scalars[N_PAUSES]
    k.is_paused = 0
    k.paused_for += now - k.paused_since
    e.scalars[N_PAUSES] += 1
    if at < len(e.pause_log):
        e.pause_log[at], e.pause_log[at + 1], e.pause_log[at + 2], e.pause_log[at + 3] = q, k.paused_since, now, k.blocker
