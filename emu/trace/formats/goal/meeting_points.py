"""Simplification of GOAL operations: joins that take no time are bypassed, and waits for starts become waits for ends.

Further functions make the sends of a queue leave in order, and post receives early if messages are buffered.
O operations, W waits, M messages.
"""

from collections import defaultdict
from dataclasses import replace

import numpy as np

from emu.arrays import I64, Bool
from emu.trace.formats.goal.goal_ops import GoalOps, Op


def bypass(ops: GoalOps, joins: Bool) -> GoalOps:
    """Return the operations without joins: an operation that waited for a join waits for all that the join waited for.

    A join that waits for several operations, and for which several wait, stays: without it there would be more waits.

    Args:
        ops: The operations, which wait for no start.
        joins: [O] whether an operation takes no time and may be left out.
    """
    left, ends = joins, np.stack((ops.waiting, ops.waited))
    for _ in range(len(joins) + 1):
        count = int(left.sum())
        for side in (0, 1):
            left, ends = _bypass_on(side, left, ends)
        if int(left.sum()) == count:
            break
    waits = replace(ops, waiting=ends[0], waited=ends[1], at_start=np.zeros(ends.shape[1], np.bool_))
    return waits.take(np.flatnonzero(~joins | left))


def _bypass_on(side: int, joins: Bool, ends: I64) -> tuple[Bool, I64]:
    """Return the remaining joins and waits after joins with at most one wait on a side are removed.

    Args:
        side: 0: a join waits for at most one operation; 1: at most one operation waits for it.
        joins: [O] the joins.
        ends: [2, W] the operation that waits, and the one that it waits for.
    """
    own, other = ends[side], ends[1 - side]
    gone = joins & (np.bincount(own, minlength=len(joins)) <= 1)
    to = np.append(np.where(gone, -1, np.arange(len(joins))), -1)  # what takes the place of each; -1: nothing
    at = gone[own]
    to[own[at]] = other[at]
    while (to[to] != to).any():
        to = to[to]
    moved = np.stack((own, to[other]) if side == 0 else (to[other], own))
    return joins & ~gone, np.unique(moved[:, ~at & (to[other] >= 0)], axis=1)


def wait_for_ends(ops: GoalOps) -> GoalOps:
    """Return the operations with each wait for the start of an operation replaced by waits for that operation's predecessors.

    Args:
        ops: The operations, each of which waits for earlier ones.
    """
    if not ops.at_start.any():
        return ops
    ranks = np.unique(ops.rank[ops.waiting[ops.at_start]])
    here = np.isin(ops.rank[ops.waiting], ranks)
    plain: defaultdict[int, set[int]] = defaultdict(set)
    starts: defaultdict[int, set[int]] = defaultdict(set)
    for later, before, start in zip(
        ops.waiting[here].tolist(), ops.waited[here].tolist(), ops.at_start[here].tolist(), strict=True
    ):
        (starts if start else plain)[later].add(before)
    for rank in ranks.tolist():
        _resolve(ops, range(*ops.first[rank : rank + 2].tolist()), plain, starts)
    found = np.array([(op, before) for op, several in plain.items() for before in several], np.int64).reshape(-1, 2)
    waiting, waited = (np.concatenate((old[~here], new)) for old, new in zip((ops.waiting, ops.waited), found.T, strict=True))
    return replace(ops, waiting=waiting, waited=waited, at_start=np.zeros(len(waiting), np.bool_))


def _resolve(ops: GoalOps, own: range, plain: dict[int, set[int]], starts: dict[int, set[int]]) -> None:
    """Add to `plain` the waits that replace waits for starts, for the operations of one rank.

    Instead of the start of an operation, another one then waits for all that had ended there: the operations that it waits for,
    and before a computation the previous one on its cpu.

    Args:
        ops: The operations, each after those that it waits for.
        own: The operations of the rank.
        plain: For each operation, those whose end it waits for.
        starts: For each operation, those whose start it waits for.
    """
    computes, cpu = (ops.kind == Op.CALC) & (ops.size > 0), ops.cpu
    last: dict[int, int] = {}  # computation of each cpu
    begins: dict[int, set[int]] = {}  # what has ended where an operation starts
    for op in own:
        for before in starts.get(op, ()):
            plain[op] |= begins[before]
        begins[op] = set(plain.get(op, ()))
        if computes[op]:
            before_it = last.get(int(cpu[op]))
            begins[op] |= set() if before_it is None else {before_it}
            last[int(cpu[op])] = op


def leave_in_turn(ops: GoalOps) -> GoalOps:
    """Return the operations with sends in order: each send waits until the previous one to its peer and tag has left.

    A send does not wait until the previous message has arrived.

    Args:
        ops: The operations, each of which waits for ends of earlier ones.
    """
    later, before = _followers(ops, Op.SEND)
    waiting, waited = np.unique(np.stack((np.append(ops.waiting, later), np.append(ops.waited, before))), axis=1)
    return replace(ops, waiting=waiting, waited=waited, at_start=np.zeros(len(waiting), np.bool_))


def _followers(ops: GoalOps, kind: Op) -> tuple[I64, I64]:
    """Return pairs of an operation of a kind and the previous one of its queue (cpu, or peer and tag)."""
    which = np.flatnonzero(ops.kind == kind)
    queue = np.stack((ops.rank, *_lane(ops)))[:, which]
    order = np.lexsort((which, *queue))
    follows = np.flatnonzero((queue[:, order[1:]] == queue[:, order[:-1]]).all(axis=0))
    return which[order[follows + 1]], which[order[follows]]


def is_circular(ops: GoalOps, messages: I64) -> bool:
    """Return whether operations would deadlock if a message flows only once both its ends are ready.

    Args:
        ops: The operations.
        messages: [2, M] the send and the receive of each message.
    """
    from scipy.sparse import coo_array
    from scipy.sparse.csgraph import connected_components

    (next_one, one), count = _followers(ops, Op.CALC), len(ops.kind)
    both = np.arange(count)
    both[messages[1]] = messages[0]
    later, before = (both[np.concatenate(c)] for c in ((ops.waiting, next_one), (ops.waited, one)))
    graph = coo_array((np.ones(len(later), np.bool_), (later, before)), shape=(count, count))
    return int(connected_components(graph, connection="strong")[0]) < count


def post_receives(ops: GoalOps, which: Bool) -> GoalOps:
    """Return the operations with the given receives posted from the start, so that they wait for nothing.

    An operation that waits for such a receive also waits for what the receive waited for; of each queue, whose operations end
    in order, for the last.

    Args:
        ops: The operations, each of which waits for ends of earlier ones; sends leave in turn.
        which: [O] which operations wait for nothing; receives alone.
    """
    if not which[ops.waiting].any():
        return ops
    queue = np.unique(np.stack((ops.rank, ops.kind, *_lane(ops))), axis=1, return_inverse=True)[1].ravel().tolist()
    waits: defaultdict[int, set[int]] = defaultdict(set)
    for later, before in zip(ops.waiting.tolist(), ops.waited.tolist(), strict=True):
        waits[later].add(before)
    posted, moved = which.tolist(), dict[int, set[int]]()
    for op in sorted(waits):
        known = waits[op].union(*(moved.get(before, ()) for before in waits[op]))
        waits[op] = {*{queue[before]: before for before in sorted(known)}.values()}
        if posted[op]:
            moved[op] = waits.pop(op)
    found = np.array([(op, before) for op, several in waits.items() for before in several], np.int64).reshape(-1, 2).T
    return replace(ops, waiting=found[0], waited=found[1], at_start=np.zeros(found.shape[1], np.bool_))


def _lane(ops: GoalOps) -> tuple[I64, I64]:
    """Return [O] the peer and the tag of a message; for a computation its cpu, and 0."""
    talks = ops.kind != Op.CALC
    return np.where(talks, ops.peer, ops.cpu), ops.tag * talks
