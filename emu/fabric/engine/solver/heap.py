"""Binary heaps in two arrays: the keys, and the node that each key belongs to.

The caller of `push` and `replace_first` keeps the count. The heap of events finds a link by the link's place in the heap.
"""

from emu.compiled.function import F64_OUT, I32_OUT, I64_OUT, compiled
from emu.fabric.engine.state_layout import EVENTS, NEVER, Engine


@compiled
def push(keys: F64_OUT | I64_OUT, nodes: I32_OUT, n: int, key: float | int, node: int) -> None:
    """Add a node to a heap of n entries, which has the least key first."""
    while n > 0 and keys[(n - 1) >> 1] > key:
        up = (n - 1) >> 1
        keys[n], nodes[n] = keys[up], nodes[up]
        n = up
    keys[n], nodes[n] = key, node


@compiled
def replace_first(keys: F64_OUT | I64_OUT, nodes: I32_OUT, n: int, key: float | int, node: int) -> None:
    """Put a node in the place of the first node of a heap of n."""
    at = 0
    while 2 * at + 1 < n:
        child = 2 * at + 1
        child += child + 1 < n and keys[child + 1] < keys[child]
        if keys[child] >= key:
            break
        keys[at], nodes[at] = keys[child], nodes[child]
        at = child
    keys[at], nodes[at] = key, node


@compiled
def _seat(e: Engine, at: int, time: int, link: int) -> None:
    """Put an event of a link at a place of the heap."""
    e.event_time[at], e.event_link[at] = time, link
    e.event_place[link] = at


@compiled
def _sift(e: Engine, at: int, time: int, link: int) -> None:
    """Put an event at a place of the heap and move it up or down until the heap is in order."""
    n = e.reg[EVENTS]
    while at > 0 and e.event_time[(at - 1) >> 1] > time:
        _seat(e, at, e.event_time[(at - 1) >> 1], e.event_link[(at - 1) >> 1])
        at = (at - 1) >> 1
    while 2 * at + 1 < n:
        child = 2 * at + 1
        if child + 1 < n and e.event_time[child + 1] < e.event_time[child]:
            child += 1
        if e.event_time[child] >= time:
            break
        _seat(e, at, e.event_time[child], e.event_link[child])
        at = child
    _seat(e, at, time, link)


@compiled
def expect(e: Engine, link: int, time: int) -> None:
    """Set the time at which the first of the flows that a link limits leaves; NEVER: none does."""
    e.links[link].next_left = time
    at = e.event_place[link]
    if time == NEVER:
        if at < 0:
            return
        e.event_place[link] = -1
        e.reg[EVENTS] -= 1
        if at == e.reg[EVENTS]:
            return
        time, link = e.event_time[e.reg[EVENTS]], e.event_link[e.reg[EVENTS]]
    elif at < 0:
        at = e.reg[EVENTS]
        e.reg[EVENTS] += 1
    _sift(e, at, time, link)
