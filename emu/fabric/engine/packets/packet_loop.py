"""The compiled event loop of the packet engine, with routing, delivery and acknowledgements."""

from emu.compiled.function import compiled
from emu.fabric.engine.packets.congestion import FREE_FLOW, acked_bytes, lost_bytes, may_send
from emu.fabric.engine.packets.event_wheel import (
    add_event,
    draw_number,
    first_bucket,
    free_packet,
    kick,
    remove_first,
    take_packet,
)
from emu.fabric.engine.packets.packet_layout import (
    ACK,
    ADAPTIVE,
    CAME,
    CREDIT,
    CREDITS,
    DATA,
    HASH,
    IN_TURN,
    KICKS,
    KINDS,
    LEAST,
    MARKED,
    N_BEYOND,
    N_DISORDERED,
    N_EVENTS,
    N_FREE,
    N_FREE_EVENTS,
    N_SAMPLES,
    NACK,
    NEXT_SAMPLE,
    NONE,
    NOW,
    PASS,
    PAUSE,
    RESUME,
    SAMPLE_FS,
    SENT,
    STARTS,
    TOO_LATE,
    TRIMMED,
    PacketEngine,
)
from emu.fabric.engine.packets.packet_ports import (
    enqueue,
    enqueue_own,
    get_credit,
    give_back,
    hold,
    pause,
    resume,
    return_credit,
    send,
)
from emu.fabric.engine.packets.packet_tasks import add_load, arrive, join_rings, leave, start_next
from emu.fabric.engine.state_layout import NEVER

DONE, FULL, MORE = range(3)  # why the loop stopped
MOST_BYTES = 2**31 - 1


@compiled
def next_in_turn(e: PacketEngine, g: int, n: int) -> int:
    """Return the next choice of a set of queues in round-robin order; after each round, draw a new random order."""
    turn, first = e.group_turn[g], e.ways.group_start[g]
    if turn == 0:
        for i in range(n):
            other = i + draw_number(e, n - i)
            e.group_order[first + i], e.group_order[first + other] = e.group_order[first + other], e.group_order[first + i]
    e.group_turn[g] = turn + 1 if turn + 1 < n else 0
    return int(e.group_order[first + turn])


@compiled
def least_full(e: PacketEngine, g: int, n: int) -> int:
    """Return the choice of a set with the least class of queue; among equals, one at random."""
    first, best, found, least = e.ways.group_start[g], 0, 0, NEVER
    for i in range(n):
        size = e.queues[e.ways.group_queue[first + i]].bytes
        level = (size >= e.rules.steps[0]) + (size >= e.rules.steps[1]) + (size >= e.rules.steps[2])
        if level < least:
            best, found, least = i, 1, level
        elif level == least:
            found += 1
            best = i if draw_number(e, found) == 0 else best
    return best


@compiled
def choose(e: PacketEngine, g: int, kind: int, v: int) -> int:
    """Return the index of the queue that a packet takes among a set of equal queues, by the rule of the network.

    The rule is a hash of the message, in turn, the queue with the fewest bytes, or random. Acknowledgements always take the
    hash.

    Args:
        e: The engine.
        g: The set of queues.
        kind: The kind of the packet, such as DATA.
        v: The task of its message.
    """
    n = e.ways.group_start[g + 1] - e.ways.group_start[g]
    if n == 1:
        return 0
    if kind != DATA or e.rules.choice == HASH:
        return int(((v * 2654435761) >> 7) % n)
    if e.rules.choice == IN_TURN:
        return next_in_turn(e, g, n)
    if e.rules.choice == ADAPTIVE:
        return least_full(e, g, n)
    return draw_number(e, n)


@compiled
def route(e: PacketEngine, p: int, state: int) -> int:
    """Return the queue that packet `p` enters from a state of its route, and advance the packet to the next state."""
    step, k = e.ways.step[state], e.packets[p]
    if step >= 0:
        k.state = NONE if step & 1 else state + 1
        return int(step >> 1)
    g = ~step
    i = choose(e, g, k.kind, k.task)
    k.state = e.ways.next_state[e.ways.following[state] + i]
    return int(e.ways.group_queue[e.ways.group_start[g] + i])


@compiled
def answer(e: PacketEngine, v: int, kind: int, n_bytes: int, flags: int, sent: int) -> None:
    """Send an acknowledgement of received bytes, or a notice of lost bytes, back to the sender."""
    p = take_packet(e)
    k = e.packets[p]
    k.task, k.kind, k.flags, k.number, k.ingress, k.sent, k.tail = v, kind, flags & MARKED, 0, NONE, sent, e.scalars[NOW]
    k.payload, k.bytes = n_bytes, e.rules.ack
    q = route(e, p, e.tasks[v].back_state)
    enqueue_own(e, q, p)
    kick(e, q // e.rules.n_lanes)


@compiled
def is_next(e: PacketEngine, v: int, number: int) -> bool:
    """Return whether a packet is the next one in order at its receiver; if so, move on past it and past those that came early.

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
    if number > t.n_come:
        e.scalars[N_DISORDERED] += 1
        if number - t.n_come >= room:
            e.scalars[N_BEYOND] += 1
        else:
            place = number % room
            e.came[first + (place >> 6)] |= 1 << (place & 63)
        return False
    t.n_come += 1
    while room > 0:
        place = t.n_come % room
        word, bit = first + (place >> 6), 1 << (place & 63)
        if e.came[word] & bit == 0:
            break
        e.came[word] ^= bit
        t.n_come += 1
    return True


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
    return bool(e.senders.control.kind != FREE_FLOW and waiting > 0 and waiting >= e.senders.flows[v].in_flight)


@compiled
def receive(e: PacketEngine, v: int, payload: int, in_order: bool, flags: int, sent: int) -> None:
    """Count the payload of a packet at its destination, and send an acknowledgement if one is due."""
    t = e.tasks[v]
    t.n_unanswered += 1
    t.unanswered += payload
    arrive(e, v, payload, e.scalars[NOW])
    if t.back_state < 0:
        return
    is_due = t.n_unanswered >= e.rules.packets_per_ack and (in_order or e.rules.acks_in_order == 0)
    if is_due or flags or t.to_come == 0 or is_all_there(e, v):
        acknowledge(e, v, flags, sent)


@compiled
def be_told(e: PacketEngine, v: int, kind: int, n_bytes: int, flags: int, sent: int) -> None:
    """Process an acknowledgement or a loss notice at the sender, which sends lost bytes again."""
    now = e.scalars[NOW]
    if kind == NACK:
        e.tasks[v].to_send += n_bytes
        if e.rules.choice == LEAST:
            add_load(e, v, n_bytes)
    if e.senders.control.kind == FREE_FLOW:
        join_rings(e, v)
        return
    if kind == NACK:
        lost_bytes(e.senders, v, n_bytes, now)
    else:
        acked_bytes(e.senders, v, n_bytes, now - sent, flags & MARKED != 0, now)
    if e.tasks[v].to_send > 0 and may_send(e.senders, v, min(e.tasks[v].to_send, e.rules.payload)):
        join_rings(e, v)
    elif is_all_there(e, v):
        acknowledge(e, v, 0, sent)


@compiled
def deliver(e: PacketEngine, p: int, now: int) -> None:
    """Process packet `p` at its destination: payload is acknowledged, an acknowledgement opens the sender's window."""
    k = e.packets[p]
    v, kind, payload, number, flags, sent = k.task, k.kind, k.payload, k.number, k.flags, k.sent
    if e.rules.lossless == CREDITS:
        return_credit(e, k.ingress, k.bytes, now)
    free_packet(e, p)
    if kind == DATA:
        receive(e, v, payload, e.rules.trims != 0 or is_next(e, v, number), flags, sent)
    elif kind == TRIMMED:
        answer(e, v, NACK, payload, flags, sent)
    elif kind == NACK or e.senders.control.kind != FREE_FLOW:
        be_told(e, v, kind, payload, flags, sent)


@compiled
def pass_on(e: PacketEngine, p: int, now: int) -> None:
    """Put packet `p` into the next queue of its route."""
    k = e.packets[p]
    q = route(e, p, k.state)
    hold(e, k.ingress, q, k.bytes, now)
    enqueue(e, q, p)
    kick(e, q // e.rules.n_lanes)


@compiled
def come(e: PacketEngine, link: int, now: int) -> None:
    """Move the first packet on the wire of a link to the node at the end of the link."""
    port = e.ports[link]
    p = port.wire_first
    k = e.packets[p]
    port.wire_first = k.next
    if k.next >= 0:
        add_event(e, e.packets[k.next].due, CAME, link)
    if k.state < 0:
        deliver(e, p, now)
    elif e.rules.switch > 0:  # not on the wire, where a packet that ends here would wait behind it
        add_event(e, now + e.rules.switch, PASS, p)
    else:
        pass_on(e, p, now)


@compiled
def finish_sending(e: PacketEngine, link: int, now: int) -> None:
    """Free a port that has sent a packet, and let it send the next one."""
    port = e.ports[link]
    port.is_busy = 0
    e.queues[port.queue].bytes -= port.bytes
    if port.ingress >= 0:
        give_back(e, port.ingress, port.bytes, now)
    elif port.task >= 0:
        leave(e, port.task, port.payload, now)
    kick(e, link)


@compiled
def happen(e: PacketEngine, kind: int, what: int, now: int) -> None:
    """Process one event: `kind` says what happens, `what` is the number of its port, queue, packet or task."""
    if kind == SENT:
        finish_sending(e, what, now)
    elif kind == CAME:
        come(e, what, now)
    elif kind == PASS:
        pass_on(e, what, now)
    elif kind == PAUSE:
        pause(e, what, now)
    elif kind == RESUME:
        resume(e, what, now)
        kick(e, what // e.rules.n_lanes)
    elif kind == CREDIT:
        kick(e, get_credit(e, what) // e.rules.n_lanes)


@compiled
def put_off(e: PacketEngine) -> None:
    """Schedule the next sample one interval later, or never if that is beyond the clock."""
    at, interval = e.scalars[NEXT_SAMPLE], e.scalars[SAMPLE_FS]
    e.scalars[NEXT_SAMPLE] = NEVER if at >= NEVER - interval else at + interval


@compiled
def sample(e: PacketEngine, now: int) -> None:
    """Store the largest length of each queue (bytes) in each interval that is over; if memory is full, double the interval."""
    n = len(e.queues)
    while e.scalars[NEXT_SAMPLE] <= now:
        if (e.scalars[N_SAMPLES] + 1) * n > len(e.samples):
            e.scalars[N_SAMPLES] >>= 1
            put_off(e)
            e.scalars[SAMPLE_FS] *= 2
            for i in range(e.scalars[N_SAMPLES]):
                for q in range(n):
                    e.samples[i * n + q] = max(e.samples[2 * i * n + q], e.samples[(2 * i + 1) * n + q])
            continue
        first = e.scalars[N_SAMPLES] * n
        for q in range(n):
            e.samples[first + q] = min(max(e.queues[q].most, e.queues[q].bytes), MOST_BYTES)
            e.queues[q].most = e.queues[q].bytes
        e.scalars[N_SAMPLES] += 1
        put_off(e)


def end_samples(e: PacketEngine) -> None:
    """Store the most bytes of each queue in the last interval, which is not over when a run ends."""
    n = int(e.scalars[N_SAMPLES])
    sample(e, int(e.scalars[NEXT_SAMPLE]))
    if e.scalars[N_SAMPLES] <= n:  # intervals became longer, and the last one longer than it was
        sample(e, int(e.scalars[NEXT_SAMPLE]))


@compiled
def advance_packets(e: PacketEngine, most: int) -> int:
    """Process up to `most` events, and return the reason why the loop stopped."""
    margin = len(e.kicked)
    for _ in range(most):
        if e.scalars[N_FREE] < margin or e.scalars[N_FREE_EVENTS] < 2 * margin:
            return FULL
        bucket = first_bucket(e, e.scalars[NOW])
        starts = e.start_time[0] if e.scalars[STARTS] > 0 else NEVER
        comes = e.event_time[e.wheel_first[bucket]] if bucket >= 0 else NEVER
        now = min(starts, comes)
        if now == NEVER or e.scalars[TOO_LATE] >= 0:
            return DONE
        if now >= e.scalars[NEXT_SAMPLE]:
            sample(e, now)
        e.scalars[NOW] = now
        e.scalars[N_EVENTS] += 1
        if starts <= comes:
            start_next(e)
        else:
            what = remove_first(e, bucket)
            happen(e, what % KINDS, what // KINDS, now)
        for i in range(e.scalars[KICKS]):
            send(e, e.kicked[i], now)
        e.scalars[KICKS] = 0
    return MORE
