"""The choice of the next queue of a packet: in turn, by the lengths of queues, at random, or by a hash.

The hash is of its message, or of its message and an entropy value: a number that the sender writes into the packet, so that a
switch sends packets of one value the same way. A sender goes through all its values, in an order that it draws anew after each
round. It may count penalties: a value whose packet was marked, or trimmed before the last queue of its path, is skipped so many
times as it has penalties. This is the `bitmap` of htsim (ultraethernet/uet-htsim, commit 40ccb05, uec_mp.cpp).
"""

from emu.compiled.function import compiled
from emu.fabric.engine.packets.event_wheel import draw_number
from emu.fabric.engine.packets.packet_layout import (
    ADAPTIVE,
    AT_END,
    DATA,
    ENTROPY,
    HASH,
    IN_TURN,
    MARKED,
    NONE,
    VALUE,
    PacketEngine,
)
from emu.fabric.engine.state_layout import NEVER

FOR_MARK, FOR_TRIM, MOST_PENALTY = 1, 4, 15  # penalties of an entropy value


@compiled
def begin_spread(e: PacketEngine, v: int) -> None:
    """Draw the salt and the first order of the entropy values of message `v`."""
    e.spreads[v].salt, e.spreads[v].shuffle = draw_number(e, 1 << 30), draw_number(e, e.rules.entropies)


@compiled
def step_value(e: PacketEngine, v: int) -> int:
    """Return the next entropy value of message `v` in its order; after each round, draw a new order."""
    s = e.spreads[v]
    value = s.step ^ s.shuffle
    s.step += 1
    if s.step == e.rules.entropies:
        s.step, s.shuffle = 0, draw_number(e, e.rules.entropies)
    return int(value)


@compiled
def next_value(e: PacketEngine, v: int) -> int:
    """Return the entropy value of the next packet of message `v`.

    Values with penalties are skipped, and the first of them loses one. If all have penalties, none is skipped in the end.
    """
    if e.rules.choice != ENTROPY:
        return 0
    value, skipped, first = step_value(e, v), 0, v * e.rules.entropies
    while e.rules.avoids and e.penalty[first + value] > 0 and skipped < e.rules.entropies:
        if skipped == 0:
            e.penalty[first + value] -= 1
        value, skipped = step_value(e, v), skipped + 1
    return value


@compiled
def judge_value(e: PacketEngine, v: int, flags: int, is_trimmed: bool) -> None:
    """Add a penalty to the entropy value of a packet of message `v` whose acknowledgement, or loss notice, has these flags."""
    if not e.rules.avoids:
        return
    place = v * e.rules.entropies + flags // VALUE
    more = FOR_TRIM if is_trimmed and not flags & AT_END else FOR_MARK if flags & MARKED else 0
    e.penalty[place] = min(e.penalty[place] + more, MOST_PENALTY)


@compiled
def mix_bits(value: int) -> int:
    """Return a hash of 32 bits of a number of 0 or more."""
    x = (value ^ (value >> 32)) & 0xFFFFFFFF
    x = ((x ^ (x >> 16)) * 0x45D9F3B) & 0xFFFFFFFF
    x = ((x ^ (x >> 16)) * 0x45D9F3B) & 0xFFFFFFFF
    return int(x ^ (x >> 16))


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
def choose(e: PacketEngine, g: int, kind: int, v: int, value: int) -> int:
    """Return the index of the queue that a packet takes among a set of equal queues, by the rule of the network.

    The rule is a hash of the message, a hash of its entropy value, in turn, the queue with the fewest bytes, or random. Without
    entropy values, acknowledgements always take the hash of the message.

    Args:
        e: The engine.
        g: The set of queues.
        kind: The kind of the packet, such as DATA.
        v: The task of its message.
        value: Its entropy value.
    """
    n = e.ways.group_start[g + 1] - e.ways.group_start[g]
    if n == 1:
        return 0
    if e.rules.choice == ENTROPY:
        return int(mix_bits(mix_bits(e.spreads[v].salt + (value << 32)) + (g << 32)) % n)
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
    i = choose(e, g, k.kind, k.task, k.flags // VALUE)
    k.state = e.ways.next_state[e.ways.following[state] + i]
    return int(e.ways.group_queue[e.ways.group_start[g] + i])
