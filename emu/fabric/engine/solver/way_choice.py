"""The choice of a way: a message takes, of the ways of its set, the one whose links need the least time for what is on them.

What is on a link are the bytes that the messages that flow over it still have to send, those that chose it at this tick
included. A way needs the sum of the times of its links. Of ways that are equal up to rounding the first is taken. The packet
engine chooses by the same sum. Letter: L links.
"""

import numpy as np

from emu.compiled.function import I64_OUT, compiled, compiled_making_arrays
from emu.fabric.engine.state_layout import FLOWING, Columns, SolverArrays, WayColumns

CLEARLY_LESS = 1 - 2.0**-20  # the share of another way's time below which a way has less on it; sums differ by rounding


@compiled
def bytes_on(e: SolverArrays, link: int, now: int) -> float:
    """Return the bytes that messages still have to send over a link at the present tick."""
    w = e.ways
    if w.known_at[link] != now:
        k, total = e.links[link], 0.0
        for i in range(k.first, k.first + k.length):
            f = e.tasks[e.members[i]]
            if f.state == FLOWING:
                total += max(0.0, f.remaining - f.rate * (now - f.since))
        w.to_send[link], w.known_at[link] = total, now
    return float(w.to_send[link])


@compiled
def ticks_on(e: SolverArrays, way: int, now: int) -> float:
    """Return the ticks that the links of a way need for what is on them, in sum; infinite over a link without capacity."""
    total = 0.0
    for h in range(e.ways.way_start[way], e.ways.way_start[way + 1]):
        link = e.graph.hop_link[h]
        capacity = e.links[link].capacity
        total += bytes_on(e, link, now) / capacity if capacity > 0 else np.inf
    return total


@compiled
def choose_way(e: SolverArrays, v: int, now: int) -> None:
    """Let a message that starts take the way of its set with the least on it, and add its bytes to what is on its links."""
    w, of = e.ways, e.ways.set_of[v]
    if of >= 0:
        best, least = w.set_start[of], np.inf
        for way in range(w.set_start[of], w.set_start[of + 1]):
            ticks = ticks_on(e, way, now)
            if ticks < least * CLEARLY_LESS:
                best, least = way, ticks
        w.chosen[v], w.alpha[v] = best, w.way_alpha[best]
        w.hop_start[v], w.hop_end[v] = w.way_start[best], w.way_start[best + 1]
    for h in range(e.graph.hop_start[v], e.graph.hop_end[v]):
        link = e.graph.hop_link[h]
        w.to_send[link] = bytes_on(e, link, now) + e.graph.size[v]


@compiled_making_arrays
def add_room_for_ways(room: I64_OUT, g: Columns, w: WayColumns) -> None:
    """Add, to the room [L + 1] of each link at the place after its number, the messages one of whose ways crosses it."""
    users, seen = np.zeros(len(w.set_start), np.int64), np.full(len(room), -1)
    for v in range(len(w.set_of)):
        if w.set_of[v] >= 0:
            users[w.set_of[v]] += 1
    for of in range(len(w.set_start) - 1):
        for h in range(w.way_start[w.set_start[of]], w.way_start[w.set_start[of + 1]]):
            link = g.hop_link[h]
            if seen[link] != of:
                seen[link] = of
                room[link + 1] += users[of]
