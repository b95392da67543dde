"""The choice of the next queue of a packet: in turn, by the lengths of queues, at random, or by a hash of its message."""

from emu.compiled.function import compiled
from emu.fabric.engine.packets.event_wheel import draw_number
from emu.fabric.engine.packets.packet_layout import ADAPTIVE, DATA, HASH, IN_TURN, NONE, PacketEngine
from emu.fabric.engine.state_layout import NEVER


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
