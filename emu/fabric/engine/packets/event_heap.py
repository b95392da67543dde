"""The heap of the packet engine's events, the list of free packets, and random numbers.

An event is a time and a tag: its serial number, by which events of one instant are in order, the number of a link, a queue, a
packet or a task, and its kind.
"""

from emu.compiled.function import compiled
from emu.fabric.engine.packets.packet_layout import EVENTS, FREE, KICKS, KINDS, N_FREE, SEED, SERIAL, SERIALS, PacketEngine


@compiled
def add_event(e: PacketEngine, time: int, kind: int, what: int) -> None:
    """Add an event to the heap."""
    e.reg[SERIAL] = (e.reg[SERIAL] + 1) % SERIALS
    tag, n = (e.reg[SERIAL] << 32) | (what * KINDS + kind), e.reg[EVENTS]
    while n > 0:  # a new event has the highest serial number, so that it goes behind others of its time
        up = (n - 1) >> 1
        if e.event_time[up] <= time:
            break
        e.event_time[n], e.event_tag[n] = e.event_time[up], e.event_tag[up]
        n = up
    e.event_time[n], e.event_tag[n] = time, tag
    e.reg[EVENTS] += 1


@compiled
def remove_first(e: PacketEngine) -> None:
    """Remove the first event of the heap."""
    e.reg[EVENTS] -= 1
    n, at = e.reg[EVENTS], 0
    time, tag = e.event_time[n], e.event_tag[n]
    while 2 * at + 1 < n:
        child = 2 * at + 1
        if child + 1 < n and (
            e.event_time[child + 1] < e.event_time[child]
            or (e.event_time[child + 1] == e.event_time[child] and e.event_tag[child + 1] < e.event_tag[child])
        ):
            child += 1
        if e.event_time[child] > time or (e.event_time[child] == time and e.event_tag[child] > tag):
            break
        e.event_time[at], e.event_tag[at] = e.event_time[child], e.event_tag[child]
        at = child
    e.event_time[at], e.event_tag[at] = time, tag


@compiled
def take_packet(e: PacketEngine) -> int:
    """Return a free packet and take it off the list; the loop has seen to it that there is one."""
    p = e.reg[FREE]
    e.reg[FREE] = e.packets[p].next
    e.reg[N_FREE] -= 1
    return int(p)


@compiled
def free_packet(e: PacketEngine, p: int) -> None:
    """Put a packet on the list of free ones."""
    e.packets[p].next = e.reg[FREE]
    e.reg[FREE] = p
    e.reg[N_FREE] += 1


@compiled
def draw_number(e: PacketEngine, n: int) -> int:
    """Return a random number below n, and move the generator on (xorshift, Marsaglia 2003)."""
    x = e.reg[SEED]
    x ^= x << 13
    x ^= (x >> 7) & 0x1FFFFFFFFFFFFFF
    x ^= x << 17
    e.reg[SEED] = x
    return int((x & 0x7FFFFFFF) % n)


@compiled
def kick(e: PacketEngine, link: int) -> None:
    """Remember that a port may be able to send."""
    e.kicked[e.reg[KICKS]] = link
    e.reg[KICKS] += 1
