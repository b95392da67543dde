"""The event queue of the packet engine (a wheel of time buckets), its list of free packets, and its random numbers.

All events lie within a horizon, which the slowest link gives, so that a bucket of the wheel has those of one short interval.
Each bucket is a list in the order of time, and of addition among events of one instant. A link has one event of each of its two
kinds at most, whose places are fixed; other events take free places. A word of bits for 64 buckets says which have events.
"""

from emu.compiled.function import compiled
from emu.fabric.engine.packets.packet_layout import (
    CAME,
    EVENTS,
    FREE,
    FREE_EVENT,
    KICKS,
    KINDS,
    N_FREE,
    N_FREE_EVENTS,
    NONE,
    SEED,
    SENT,
    SHIFT,
    PacketEngine,
)


@compiled
def event_place(e: PacketEngine, kind: int, what: int) -> int:
    """Return the index of a new event in the arrays of events.

    Each port has one index for the end of its sending, and one for the next arrival from its link; other events take a free
    one.

    Args:
        e: The engine.
        kind: The kind of the event, such as SENT or CAME.
        what: The object of the event: a port, a queue or a packet, by its number.
    """
    if kind == SENT:
        return what
    if kind == CAME:
        return len(e.ports) + what
    place = e.scalars[FREE_EVENT]
    e.scalars[FREE_EVENT] = e.event_next[place]
    e.scalars[N_FREE_EVENTS] -= 1
    return int(place)


@compiled
def horizon(e: PacketEngine) -> int:
    """Return the ticks for which an event may lie ahead: half of the time that the wheel has room for."""
    return int((len(e.wheel_first) >> 1) << e.scalars[SHIFT])


@compiled
def add_event(e: PacketEngine, time: int, kind: int, what: int) -> None:
    """Add an event to the wheel, after all events of the same time."""
    place, b = event_place(e, kind, what), (time >> e.scalars[SHIFT]) & (len(e.wheel_first) - 1)
    e.event_time[place], e.event_what[place], e.event_next[place] = time, what * KINDS + kind, NONE
    e.scalars[EVENTS] += 1
    if e.wheel_first[b] < 0:
        e.wheel_first[b] = e.wheel_last[b] = place
        e.wheel_bits[b >> 6] |= 1 << (b & 63)
    elif e.event_time[e.wheel_last[b]] <= time:
        e.event_next[e.wheel_last[b]] = place
        e.wheel_last[b] = place
    elif e.event_time[e.wheel_first[b]] > time:
        e.event_next[place], e.wheel_first[b] = e.wheel_first[b], place
    else:
        before = e.wheel_first[b]
        while e.event_time[e.event_next[before]] <= time:
            before = e.event_next[before]
        e.event_next[place], e.event_next[before] = e.event_next[before], place


@compiled
def lowest_bit(bits: int) -> int:
    """Return the position, counted from 0, of the lowest bit that is 1 in a 64-bit number other than 0."""
    n = 0
    if bits & 0xFFFFFFFF == 0:
        bits, n = bits >> 32, n + 32
    if bits & 0xFFFF == 0:
        bits, n = bits >> 16, n + 16
    if bits & 0xFF == 0:
        bits, n = bits >> 8, n + 8
    if bits & 0xF == 0:
        bits, n = bits >> 4, n + 4
    if bits & 0x3 == 0:
        bits, n = bits >> 2, n + 2
    return n if bits & 1 else n + 1


@compiled
def first_bucket(e: PacketEngine, now: int) -> int:
    """Return the bucket of the earliest event, given that no event is before `now`; NONE if there is no event."""
    if e.scalars[EVENTS] == 0:
        return NONE
    b = (now >> e.scalars[SHIFT]) & (len(e.wheel_first) - 1)
    word = b >> 6
    bits = (e.wheel_bits[word] >> (b & 63)) << (b & 63)
    while bits == 0:
        word += 1
        word = 0 if word == len(e.wheel_bits) else word
        bits = e.wheel_bits[word]
    return int(word * 64 + lowest_bit(bits))


@compiled
def remove_first(e: PacketEngine, b: int) -> int:
    """Remove the first event of bucket `b`, and return its kind and its object as one number."""
    place = e.wheel_first[b]
    e.wheel_first[b] = e.event_next[place]
    e.scalars[EVENTS] -= 1
    if e.wheel_first[b] < 0:
        e.wheel_bits[b >> 6] ^= 1 << (b & 63)
    if place >= 2 * len(e.ports):
        e.event_next[place] = e.scalars[FREE_EVENT]
        e.scalars[FREE_EVENT] = place
        e.scalars[N_FREE_EVENTS] += 1
    return int(e.event_what[place])


@compiled
def take_packet(e: PacketEngine) -> int:
    """Remove a packet from the list of free packets, and return its number; the list must not be empty."""
    p = e.scalars[FREE]
    e.scalars[FREE] = e.packets[p].next
    e.scalars[N_FREE] -= 1
    return int(p)


@compiled
def free_packet(e: PacketEngine, p: int) -> None:
    """Put packet `p` on the list of free packets."""
    e.packets[p].next = e.scalars[FREE]
    e.scalars[FREE] = p
    e.scalars[N_FREE] += 1


@compiled
def draw_number(e: PacketEngine, n: int) -> int:
    """Return a random number below n, and move the generator on (xorshift, Marsaglia 2003)."""
    x = e.scalars[SEED]
    x ^= x << 13
    x ^= (x >> 7) & 0x1FFFFFFFFFFFFFF
    x ^= x << 17
    e.scalars[SEED] = x
    return int((x & 0x7FFFFFFF) % n)


@compiled
def kick(e: PacketEngine, link: int) -> None:
    """Add a link to the list of links whose ports try to send once the events of this tick are done.

    A link that is in the list already is added once more.
    """
    e.kicked[e.scalars[KICKS]] = link
    e.scalars[KICKS] += 1
