"""The work of hosts: packets at their destination, acknowledgements, marks and losses, and what senders do about them."""

from emu.compiled.function import compiled
from emu.fabric.engine.packets.congestion import DCQCN, acked_bytes, has_windows, lost_bytes, may_send, restart_window
from emu.fabric.engine.packets.event_wheel import add_event, free_packet, horizon, kick, take_packet
from emu.fabric.engine.packets.packet_layout import (
    ACK,
    AGAIN,
    ASKS,
    CREDITS,
    DATA,
    FLAGS,
    GIVEN_UP,
    HASH,
    LEAST,
    MARKED,
    N_BEYOND,
    N_DISORDERED,
    N_HOPS,
    N_RESENT,
    NACK,
    NONE,
    NOTICE,
    NOW,
    OVER,
    TIMER,
    TOO_LATE,
    TRIMMED,
    PacketEngine,
)
from emu.fabric.engine.packets.packet_ports import enqueue, enqueue_own, return_credit
from emu.fabric.engine.packets.packet_routing import judge_value, route
from emu.fabric.engine.packets.packet_tasks import add_load, arrive, join_rings, return_bytes
from emu.fabric.engine.packets.rate_control import cut_rate, is_notice_due

MOST_ROUNDS = 1000  # of a message that sends the same packets again; a queue pair of InfiniBand gives up after 7 timeouts
OLD, EARLY, NEXT, BEYOND = range(4)  # places of a packet at its receiver: there already, before its turn, in turn, too early


@compiled
def answer(e: PacketEngine, v: int, kind: int, n_bytes: int, flags: int, sent: int) -> None:
    """Send an acknowledgement of received bytes, or a notice of lost bytes, back to the sender."""
    p = take_packet(e)
    k = e.packets[p]
    k.task, k.kind, k.flags, k.number, k.ingress = v, kind, flags & ~(ASKS | AGAIN), e.tasks[v].n_come, NONE
    k.sent, k.tail = sent, e.scalars[NOW]
    k.payload, k.bytes = n_bytes, e.rules.ack
    q = route(e, p, e.tasks[v].back_state)
    if e.rules.queues_all:
        enqueue(e, q, p)
    else:
        enqueue_own(e, q, p)
    kick(e, q // e.rules.n_lanes)


@compiled
def mark_early(e: PacketEngine, first: int, place: int) -> bool:
    """Mark a packet that came early in the ring of bits that begins at `first`, and return whether it was not there before."""
    word, bit = first + (place >> 6), 1 << (place & 63)
    is_new = e.came[word] & bit == 0
    e.came[word] |= bit
    return bool(is_new)


@compiled
def place_number(e: PacketEngine, v: int, number: int) -> int:
    """Return the place of a packet at its receiver; if it is the next one, move on past it and past those that came early.

    A packet that comes early is marked in a ring of bits of its message. One that is too far ahead for the ring is only
    counted.

    Args:
        e: The engine.
        v: The task of the message.
        number: The number of the packet in the message.
    """
    t, first, room = e.tasks[v], 0, 0
    if e.rules.choice not in (HASH, LEAST):
        first, room = e.window_start[v], 64 * (e.window_start[v + 1] - e.window_start[v])
    if number < t.n_come:
        return OLD
    if number > t.n_come:
        e.scalars[N_DISORDERED] += 1
        if number - t.n_come >= min(room, e.rules.reorder):
            e.scalars[N_BEYOND] += 1
            return BEYOND
        return EARLY if mark_early(e, first, number % room) else OLD
    t.n_come += 1
    while room > 0:
        place = t.n_come % room
        word, bit = first + (place >> 6), 1 << (place & 63)
        if e.came[word] & bit == 0:
            break
        e.came[word] ^= bit
        t.n_come += 1
    return NEXT


@compiled
def acknowledge(e: PacketEngine, v: int, flags: int, sent: int) -> None:
    """Send an acknowledgement for all bytes that arrived since the last one."""
    t = e.tasks[v]
    answer(e, v, ACK, t.unanswered, flags, sent)
    t.n_unanswered, t.unanswered = 0, 0


@compiled
def is_all_there(e: PacketEngine, v: int) -> bool:
    """Return whether the sender can send no more before an acknowledgement, because all bytes in flight have arrived.

    A real sender asks for an answer by a probe or after a timeout.
    """
    waiting = e.tasks[v].unanswered
    return bool(has_windows(e.senders) and waiting > 0 and waiting >= e.senders.flows[v].in_flight)


@compiled
def receive(e: PacketEngine, v: int, payload: int, in_order: bool, flags: int, sent: int) -> None:
    """Count the payload of a packet at its destination, and send an acknowledgement if one is due."""
    t = e.tasks[v]
    is_first = t.to_come == e.graph.size[v] and e.rules.acks_in_order == 0  # whose round trip has no queues of its own message
    t.n_rounds = 0
    t.n_unanswered += 1
    t.unanswered += payload
    arrive(e, v, payload, e.scalars[NOW])
    if t.back_state < 0:
        return
    is_due = t.n_unanswered >= e.rules.packets_per_ack and (in_order or e.rules.acks_in_order == 0)
    if is_due or is_first or flags & FLAGS or t.to_come == 0 or is_all_there(e, v):
        acknowledge(e, v, flags, sent)


@compiled
def count_round(e: PacketEngine, v: int) -> None:
    """Count that a message sends the same packets again, and stop the run if it has done so too often."""
    e.tasks[v].n_rounds += 1
    if e.tasks[v].n_rounds > MOST_ROUNDS:
        e.scalars[TOO_LATE], e.scalars[GIVEN_UP] = v, 1


@compiled
def go_back(e: PacketEngine, v: int, number: int) -> None:
    """Let the sender of a message send again all packets from `number` on."""
    t = e.tasks[v]
    if t.how_far == OVER:
        return
    count_round(e, v)
    e.scalars[N_RESENT] += max(0, t.n_sent - number)
    return_bytes(e, v, e.graph.size[v] - number * e.rules.payload - t.to_send, t.kept)
    t.n_sent, t.heard = number, e.scalars[NOW]
    if has_windows(e.senders):
        e.senders.flows[v].in_flight = 0
    join_rings(e, v)


@compiled
def be_told(e: PacketEngine, v: int, kind: int, n_bytes: int, flags: int, sent: int) -> None:
    """Process an acknowledgement or a loss notice at the sender, which sends lost bytes again."""
    now = e.scalars[NOW]
    if kind == NACK:
        t = e.tasks[v]
        return_bytes(e, v, n_bytes, min(t.kept, n_bytes))
        t.again_until = max(t.again_until, t.n_sent) + (n_bytes + e.rules.payload - 1) // e.rules.payload
        if e.rules.choice == LEAST:
            add_load(e, v, n_bytes)
    if not has_windows(e.senders):
        join_rings(e, v)
        return
    if kind == NACK:
        lost_bytes(e.senders, v, n_bytes, now - sent, now)
    else:
        acked_bytes(e.senders, v, n_bytes, now - sent, flags & MARKED != 0, now)
    if e.tasks[v].to_send > 0 and may_send(e.senders, v, min(e.tasks[v].to_send, e.rules.payload)):
        join_rings(e, v)
    elif is_all_there(e, v):
        acknowledge(e, v, 0, sent)


@compiled
def take_in_order(e: PacketEngine, v: int, payload: int, number: int, flags: int, sent: int) -> None:
    """Process a packet where all is sent again from the first that is missing, which is asked for once."""
    t, place = e.tasks[v], place_number(e, v, number)
    if place == NEXT:
        t.is_nacked = 0
    if place in (NEXT, EARLY):
        receive(e, v, payload, place == NEXT, flags, sent)
    elif place == OLD and has_windows(e.senders):  # it is in flight for its sender, which went back
        answer(e, v, ACK, payload, 0, sent)
    elif place == BEYOND and t.is_nacked == 0:
        t.is_nacked, t.n_unanswered, t.unanswered = 1, 0, 0
        answer(e, v, NACK, 0, 0, sent)


@compiled
def take_payload(e: PacketEngine, v: int, payload: int, number: int, flags: int, sent: int) -> None:
    """Process a packet with payload at its destination, which tells the sender of marks and losses."""
    t = e.tasks[v]
    t.heard = e.scalars[NOW]
    if e.senders.control.kind == DCQCN and is_notice_due(e.senders.pacing, v, flags & MARKED != 0, e.scalars[NOW]):
        answer(e, v, NOTICE, 0, 0, sent)
    if e.rules.goes_back:
        take_in_order(e, v, payload, number, flags, sent)
        return
    if t.lost > 0 and number > t.lost_number and t.is_stuck == 0:
        answer(e, v, NACK, t.lost, 0, sent)
        t.lost = 0
    is_any = e.rules.trims != 0 or e.rules.drops != 0
    receive(e, v, payload, is_any or place_number(e, v, number) == NEXT, flags, sent)


@compiled
def time_out(e: PacketEngine, v: int, now: int) -> None:
    """Send again what a message lost, if its sender has heard nothing for too long; else look again later.

    If no packet has moved since it last did, none ever will: ports wait for one another.
    """
    t = e.tasks[v]
    if t.how_far == OVER:
        return
    if now - t.heard >= e.rules.timeout:
        if t.hops == e.scalars[N_HOPS]:
            return
        lost, t.lost, t.is_stuck, t.heard, t.hops = t.lost, 0, 0, now, e.scalars[N_HOPS]
        if e.rules.goes_back:
            go_back(e, v, t.n_come)
        elif lost > 0:
            count_round(e, v)
            if has_windows(e.senders):
                restart_window(e.senders, v)
            be_told(e, v, NACK, lost, 0, now)
    add_event(e, min(t.heard + e.rules.timeout, now + horizon(e)), TIMER, v)


@compiled
def deliver(e: PacketEngine, p: int, now: int) -> None:
    """Process packet `p` at its destination: payload is acknowledged, an acknowledgement opens the sender's window."""
    k = e.packets[p]
    v, kind, payload, number, flags, sent = k.task, k.kind, k.payload, k.number, k.flags, k.sent
    if e.rules.lossless == CREDITS:
        return_credit(e, k.ingress, k.bytes, now)
    free_packet(e, p)
    if kind == ACK or (kind == NACK and e.rules.trims):
        judge_value(e, v, flags, kind == NACK)
    if kind == DATA:
        take_payload(e, v, payload, number, flags, sent)
    elif kind == TRIMMED:
        answer(e, v, NACK, payload, flags, sent)
    elif kind == NOTICE:
        cut_rate(e.senders.pacing, v, now)
    elif kind == NACK and e.rules.goes_back:
        go_back(e, v, number)
    elif kind == NACK or has_windows(e.senders):
        be_told(e, v, kind, payload, flags, sent)
