"""The compiled event loop of the packet engine, and the lengths of queues over time."""

from emu.compiled.function import compiled
from emu.fabric.engine.packets.event_wheel import add_event, first_bucket, kick, remove_first
from emu.fabric.engine.packets.packet_delivery import deliver, time_out
from emu.fabric.engine.packets.packet_layout import (
    CAME,
    CREDIT,
    DATA,
    KICKS,
    KINDS,
    N_EVENTS,
    N_FREE,
    N_FREE_EVENTS,
    N_SAMPLES,
    NEXT_SAMPLE,
    NOW,
    PASS,
    PAUSE,
    RESUME,
    SAMPLE_FS,
    SENT,
    STARTS,
    TIMER,
    TOO_LATE,
    WAKE,
    PacketEngine,
)
from emu.fabric.engine.packets.packet_ports import enqueue, get_credit, give_back, hold, mark, pause, resume, send
from emu.fabric.engine.packets.packet_routing import route
from emu.fabric.engine.packets.packet_tasks import join_rings, leave, start_next
from emu.fabric.engine.state_layout import NEVER

DONE, FULL, MORE = range(3)  # why the loop stopped
MOST_BYTES = 2**31 - 1


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
    if port.ingress >= 0 and not e.rules.cuts_through and e.packets[port.wire_last].kind == DATA:
        mark(e, port.queue, 0, port.wire_last)
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
    elif kind == WAKE:
        e.senders.pacing.paces[what].sleeps = 0
        join_rings(e, what)
    elif kind == TIMER:
        time_out(e, what, now)


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
        if e.scalars[N_FREE] < margin + e.rules.burst or e.scalars[N_FREE_EVENTS] < 2 * margin + e.rules.sleepers:
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
