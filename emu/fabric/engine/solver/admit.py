"""The admission of new tasks into a run: their waits, the room of links for their flows, and what they carry.

Letters: V tasks, E predecessor edges, H hops.
"""

import numpy as np

from emu.arrays import F64, I32, I64
from emu.compiled.function import compiled, compiled_making_arrays
from emu.fabric.engine.state_layout import FLOWING, LEFT, LINKS, TASKS, U32, Columns


@compiled
def count_waits(tasks: TASKS, first: int, g: Columns) -> None:
    """Count, for each task from `first` on that has not left, its predecessors that have not left; the others set its start."""
    for v in range(first, len(tasks)):
        if tasks[v].state == LEFT:
            continue
        for i in range(g.pred_start[v], g.pred_start[v + 1]):
            p = g.pred[i]
            if tasks[p].state != LEFT:
                tasks[v].state += 1
                continue
            delay = 0 if g.pred_left[i] or g.hop_start[p] == g.hop_start[p + 1] else g.alpha[p]
            tasks[v].start = max(tasks[v].start, tasks[p].left + delay)


@compiled_making_arrays
def successors(tasks: TASKS, g: Columns) -> tuple[I64, I32]:
    """Return, for each task that has not left, the tasks that wait for it: where they begin, and their numbers.

    A number is ~v where v waits only until the last byte has left.
    """
    start = np.zeros(len(tasks) + 2, np.int64)  # [p + 1]: first where the successors of p begin, later where they end
    for p in g.pred:
        start[p + 2] += tasks[p].state != LEFT
    for v in range(len(tasks)):
        start[v + 2] += start[v + 1]
    after = np.empty(start[-1], np.int32)
    for v in range(len(tasks)):
        for i in range(g.pred_start[v], g.pred_start[v + 1]):
            p = g.pred[i]
            if tasks[p].state != LEFT:
                after[start[p + 1]] = ~v if g.pred_left[i] else v
                start[p + 1] += 1
    return start[:-1], after


@compiled_making_arrays
def place_members(tasks: TASKS, links: LINKS, g: Columns) -> U32:
    """Return room for all flows that have still to cross each link, with the flows that cross it now in front."""
    room = np.zeros(len(links) + 1, np.int64)
    for v in range(len(tasks)):
        if tasks[v].state != LEFT:
            for h in range(g.hop_start[v], g.hop_start[v + 1]):
                room[g.hop_link[h] + 1] += 1
    room = np.cumsum(room)
    members = np.empty(room[-1], np.uint32)
    for link in range(len(links)):
        links[link].first, links[link].length = room[link], 0
    for v in range(len(tasks)):
        if tasks[v].state == FLOWING:
            for h in range(g.hop_start[v], g.hop_start[v + 1]):
                k = links[g.hop_link[h]]
                members[k.first + k.length] = v
                k.length += 1
    return members


@compiled_making_arrays
def link_bytes(g: Columns, n_links: int) -> F64:
    """Return the bytes [L] that each link carries."""
    total = np.zeros(n_links)
    for v in range(len(g.size)):
        for h in range(g.hop_start[v], g.hop_start[v + 1]):
            total[g.hop_link[h]] += float(g.hop_weight[h]) * g.size[v]
    return total
