"""The life of a task in the packet engine: it waits, starts, leaves and ends, and its end starts its successors."""

from emu.compiled.function import compiled
from emu.fabric.engine.packets.event_wheel import add_event, horizon, kick
from emu.fabric.engine.packets.packet_layout import (
    ENTROPY,
    LEAST,
    N_DONE,
    NONE,
    NOW,
    OVER,
    READY,
    SENDING,
    STARTS,
    TIMER,
    TOO_LATE,
    WAITING,
    PacketEngine,
)
from emu.fabric.engine.packets.packet_ports import enqueue, has_packet, make_packet
from emu.fabric.engine.packets.packet_routing import begin_spread
from emu.fabric.engine.solver.opening import push, replace_first
from emu.fabric.engine.state_layout import NEVER

LEFT, ENDED, BOTH = 1, 2, 3  # what successors are told


@compiled
def schedule(e: PacketEngine, v: int) -> None:
    """Put a message into the heap of starts, or chain it to a recent message with the same start."""
    t = e.tasks[v]
    t.how_far, t.next = READY, NONE
    slot = (t.start ^ (t.start >> 17)) % len(e.recent)
    head = e.recent[slot]
    if head >= 0 and e.tasks[head].how_far == READY and e.tasks[head].start == t.start:
        t.next, e.tasks[head].next = e.tasks[head].next, v
        return
    e.recent[slot] = v
    push(e.start_time, e.start_task, e.scalars[STARTS], t.start, v)
    e.scalars[STARTS] += 1


@compiled
def let_start(e: PacketEngine, v: int, finished: int) -> int:
    """Let a task start at its `start`, and return the first of a list of tasks that are over, linked by `next`.

    A message of one byte or more goes into the heap of starts. Another task is over, and is put in front of the list.
    """
    t = e.tasks[v]
    if e.graph.size[v] > 0:
        schedule(e, v)
        return finished
    is_message = e.graph.hop_start[v] < e.graph.hop_start[v + 1]
    if e.graph.alpha[v] >= NEVER - t.start:
        e.scalars[TOO_LATE] = v
        return finished
    t.end = t.start + e.graph.alpha[v]
    t.left = t.start if is_message else t.end
    t.how_far, t.next = OVER, finished
    e.scalars[N_DONE] += 1
    return v


@compiled
def notify_successors(e: PacketEngine, finished: int, what: int) -> None:
    """Report to the successors of a list of tasks that these tasks have left, ended or both."""
    while finished >= 0:
        v = finished
        finished = e.tasks[v].next
        for i in range(e.next_start[v], e.next_start[v + 1]):
            after, time, when = e.next_task[i], e.tasks[v].end, ENDED
            if after < 0:
                after, time, when = ~after, e.tasks[v].left, LEFT
            if what & when == 0:
                continue
            t = e.tasks[after]
            t.start = max(t.start, time)
            t.waits -= 1
            if t.waits == 0:
                finished = let_start(e, after, finished)
        what = BOTH


@compiled
def begin_tasks(e: PacketEngine) -> None:
    """Start all tasks that wait for no other task."""
    for v in range(len(e.tasks)):
        if e.graph.pred_start[v] == e.graph.pred_start[v + 1] and e.tasks[v].how_far == WAITING:
            notify_successors(e, let_start(e, v, NONE), BOTH)


@compiled
def leave(e: PacketEngine, v: int, payload: int, now: int) -> None:
    """Count bytes that have left the sender of message `v`; after the last byte, start tasks that wait for it."""
    t = e.tasks[v]
    before = t.to_leave
    t.to_leave -= payload
    if before > 0 >= t.to_leave:  # what is found lost later counts no more
        t.left, t.next = now, NONE
        notify_successors(e, v, LEFT)


@compiled
def return_bytes(e: PacketEngine, v: int, n_bytes: int, kept: int) -> None:
    """Give message `v` bytes to send again; if it has not left, all but the `kept`, which never left, must leave once more."""
    t = e.tasks[v]
    t.to_send, t.kept = t.to_send + n_bytes, t.kept - kept
    if t.to_leave > 0:
        t.to_leave += n_bytes - kept


@compiled
def arrive(e: PacketEngine, v: int, payload: int, now: int) -> None:
    """Count bytes that have arrived at the receiver of message `v`; the last byte ends the message."""
    t = e.tasks[v]
    t.to_come -= payload
    if t.to_come == 0 and e.extra[v] >= NEVER - now:
        e.scalars[TOO_LATE] = v
    elif t.to_come == 0:
        what = ENDED
        if t.to_leave > 0:  # only bytes that are there already were to leave again
            t.left, t.to_leave, what = now, 0, BOTH
        t.end, t.how_far, t.next, t.to_send = now + e.extra[v], OVER, NONE, 0
        e.scalars[N_DONE] += 1
        notify_successors(e, v, what)


@compiled
def queue_all(e: PacketEngine, v: int) -> None:
    """Put all packets of a message that its window allows into the queue of its host."""
    q = e.ways.step[e.tasks[v].first_state] >> 1
    while has_packet(e, v):
        p = make_packet(e, e.entry_start[v], q, e.scalars[NOW])
        e.queues[q].bytes -= e.packets[p].bytes  # until it is in the queue
        enqueue(e, q, p)
    kick(e, q // e.rules.n_lanes)


@compiled
def join_rings(e: PacketEngine, v: int) -> None:
    """Put a message into the circular lists of the queues at which it may start."""
    if e.rules.queues_all:
        queue_all(e, v)
        return
    step = e.ways.step[e.tasks[v].first_state]
    for i in range(e.entry_start[v + 1] - e.entry_start[v]):
        entry, q = e.entry_start[v] + i, step >> 1
        if step < 0:
            q = e.ways.group_queue[e.ways.group_start[~step] + i]
        if e.entry_next[entry] >= 0:
            continue
        k = e.queues[q]
        if k.circle < 0:
            e.entry_next[entry] = entry
        else:
            e.entry_next[entry], e.entry_next[k.circle] = e.entry_next[k.circle], entry
        k.circle = entry
        kick(e, q // e.rules.n_lanes)


@compiled
def add_load(e: PacketEngine, v: int, n_bytes: int) -> None:
    """Add bytes of a message that chose its path to what the links of the path have to carry."""
    at = e.tasks[v].first_state
    while True:
        e.to_carry[(e.ways.step[at] >> 1) // e.rules.n_lanes] += n_bytes
        if e.ways.step[at] & 1:
            return
        at += 1


@compiled
def reach(e: PacketEngine, v: int, place: int, before: int, queue: int, cost: float) -> bool:
    """Note a path to a place if it is the best one so far, and return whether the place was not seen before."""
    there = e.places[place]
    is_new = there.seen != v
    if is_new or cost < there.cost:
        there.cost, there.before, there.queue = cost, before, queue
    if is_new:
        there.seen, there.next = v, NONE
    return bool(is_new)


@compiled
def lay_path(e: PacketEngine, v: int, place: int, queue: int) -> None:
    """Write the path to a place, and over a last queue to the destination, into the states of a message."""
    n, at, begin = 1, place, len(e.places) // 2
    while at != begin:
        n, at = n + 1, e.places[at].before
    state = e.tasks[v].first_state + n - 1
    e.ways.step[state] = 2 * queue + 1
    while place != begin:
        state -= 1
        e.ways.step[state], place = 2 * e.places[place].queue, e.places[place].before


@compiled
def choose_path(e: PacketEngine, v: int) -> None:
    """Choose the path of a message on whose links there is least, in the ticks that they need for it; of equal ones the first.

    Nodes are looked at in the order of their distance, so that the best path to each is known when it is its turn.
    """
    first, begin = e.ways.choice_state[v], len(e.places) // 2
    reach(e, v, begin, NONE, NONE, 0.0)
    least, last_place, last_queue, place, tail = -1.0, begin, NONE, begin, begin
    while place >= 0:
        state = first + place - begin
        g = ~e.ways.step[state]
        for i in range(e.ways.group_start[g], e.ways.group_start[g + 1]):
            queue, after = e.ways.group_queue[i], e.ways.next_state[e.ways.following[state] + i - e.ways.group_start[g]]
            link = queue // e.rules.n_lanes
            cost = e.places[place].cost + e.to_carry[link] * e.ports[link].fs_per_byte
            if after >= 0:
                if reach(e, v, begin + after - first, place, queue, cost):
                    e.places[tail].next = begin + after - first
                    tail = begin + after - first
            elif least < 0 or cost < least:
                least, last_place, last_queue = cost, place, queue
        place = e.places[place].next
    lay_path(e, v, last_place, last_queue)
    add_load(e, v, e.graph.size[v])


@compiled
def start_next(e: PacketEngine) -> None:
    """Start the first message of the heap of starts."""
    v = e.start_task[0]
    t = e.tasks[v]
    if t.next >= 0:
        e.start_task[0] = t.next
    else:
        e.scalars[STARTS] -= 1
        last = e.scalars[STARTS]
        replace_first(e.start_time, e.start_task, last, e.start_time[last], e.start_task[last])
    t.how_far = SENDING
    if e.rules.choice == LEAST:
        choose_path(e, v)
    elif e.rules.choice == ENTROPY:
        begin_spread(e, v)
    if e.rules.has_timers:
        t.heard = e.scalars[NOW]
        add_event(e, t.heard + min(e.rules.timeout, horizon(e)), TIMER, v)
    join_rings(e, v)
