"""The choice of nodes for the TP groups of a job around faults: InfiniteHBD's Algorithms 1-5 (4.3, appendix D), vectorised.

They are corrected where the print cannot run: Algorithm 3's innermost loop and Algorithm 4's last call are a level too deep,
the number of sub-lines is n p/d (not n d/p), and every probe of the search begins with the given faults. Letter: G groups.

The bundles of OCSTrx of a node, the ends of their two external paths, and the state that lights each (InfiniteHBD 4.1, 4.2).

Bundle b joins GPU b by its upper lanes and GPU b+1 by its lower ones. In state 0 it loops them to each other; in state 1 or 2
it sends both out by one path. So two of its paths are never lit at once. K of the R bundles are OCSTrx, the rest copper.

The GPUs of a ring in order: nodes in a line, each passed twice, end bundles looped (InfiniteHBD 4.2, Fig. 2).

A node's bundles to its left and to its right cut its circle of GPUs in two strands. Equal lanes meet, so a ring that leaves a
node by upper lanes enters the next at the upper lanes' GPU and leaves it by the lower lanes. Letters: G groups of m nodes.
"""

from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike

from emu.arrays import I64, Bool
from emu.errors import InputError, must_be
from emu.topology.usable_npus import usable_in_healthy_units
from topologies.infinitehbd.ocstrx_plan import OcstrxPlan

LOOPBACK = 0


def bundle(plan: OcstrxPlan, away: ArrayLike) -> tuple[I64, I64]:
    """Return the bundle of transceivers of a node, and its state, that activate the fibre to another node; (-1, -1): none does.

    The fibres of a side are paired, nearest first, so that a node can use any fibre of one side with any of the other. If K is
    odd, the two farthest share the last bundle.

    Args:
        plan: The plan.
        away: The distance to the other node up the line; below 0: down the line.
    """
    signed = np.asarray(away, np.int64)
    nth, up = np.searchsorted(plan.reach, np.abs(signed)), signed > 0
    joined = np.isin(np.abs(signed), plan.reach)
    shared = (nth == plan.k - 1) & (plan.k % 2 == 1)
    own = nth // 2 + np.where(up, plan.gpus // 2, 0)
    state = 1 + np.where(shared, up, nth % 2)
    return np.where(joined, np.where(shared, plan.gpus - 1, own), -1), np.where(joined, state, -1)


def bundles(plan: OcstrxPlan) -> I64:
    """Return [K] the numbers of a node's bundles that are OCSTrx; the other bundles are copper."""
    away = np.array(plan.reach)
    return np.unique(bundle(plan, np.concatenate((away, -away)))[0])


def blocked_distance(plan: OcstrxPlan) -> int:
    """Return the distance, in nodes, at which a node can have a neighbour on only one side; 0 if there is none.

    The fibres to the two nodes at this distance, one up and one down the line, belong to one bundle of transceivers, and a
    bundle lights one of them. This is the largest distance, if k is odd.
    """
    return plan.reach[-1] if plan.k % 2 else 0


def fibres(plan: OcstrxPlan) -> I64:
    """Return [F, 2] the two positions on the line that each fibre joins, in use or not.

    These are all fibres of the K-hop ring or line.
    """
    at, away = (grid.ravel() for grid in np.meshgrid(np.arange(plan.nodes), plan.reach, indexing="ij"))
    there = at + away
    kept = there < plan.nodes
    return np.stack((at, there % plan.nodes), axis=-1)[kept | plan.closed]


def states(plan: OcstrxPlan, src: ArrayLike, dst: ArrayLike) -> tuple[tuple[I64, I64], tuple[I64, I64]]:
    """Return the bundles and states that join two positions of the line, at `src` and at `dst`; -1 if no fibre joins them.

    A place needs a reconfiguration between two rounds that take one bundle in two states.

    Args:
        plan: The sizes.
        src: [P] the first position of each pair on the line; positions are numbers of nodes if a ToR has one node.
        dst: [P] the second position of each pair.
    """
    away = np.asarray(dst, np.int64) - np.asarray(src, np.int64)
    if plan.closed:
        away = np.where(np.abs(away) > plan.reach[-1], away - np.sign(away) * plan.nodes, away)
    return bundle(plan, away), bundle(plan, -away)


def deploy(plan: OcstrxPlan) -> I64:
    """Return [n] the node at each position of the line: the first nodes of all ToRs, then the second ones (Algorithm 3)."""
    return np.arange(plan.nodes).reshape(-1, plan.tor).T.ravel()


def components(plan: OcstrxPlan, sound: Bool, apart: int = 0) -> tuple[I64, I64]:
    """Return the positions of working nodes in the order of the line, and the connected component of each.

    K failed nodes in a row end a component.

    Args:
        plan: The sizes.
        sound: [n] whether the node at each position works.
        apart: The number of sub-lines, from the first on, that are components of their own; all later ones form one.
    """
    at = np.flatnonzero(sound)
    if plan.closed and not apart:  # begin after a gap, so that a component over the end of the numbering is whole
        broken = np.diff(at, append=at[:1] + plan.nodes) > plan.k
        at = np.roll(at, -1 - np.argmax(broken)) if broken.any() else at
    gap = np.diff(at) % plan.nodes
    cut = (gap > plan.k) | (np.diff(np.minimum(at // plan.subline, apart)) != 0)
    if plan.m > 2:
        far = ~cut & (gap == blocked_distance(plan))
        cut[:-1] |= far[:-1] & far[1:]
    return at, np.concatenate((np.zeros(min(1, len(at)), np.int64), np.cumsum(cut)))


def groups(plan: OcstrxPlan, sound: Bool, constraints: int) -> I64:
    """Return [G, m] the nodes of each group, in the order of the line, under a number of constraints (Algorithms 2 and 4).

    The first constraints keep groups within a sub-line, one sub-line each. Further ones count all nodes of a ToR with a fault
    as faulty, one domain each, so that groups of the sub-lines are aligned.

    Args:
        plan: The sizes.
        sound: [n] whether each node is sound.
        constraints: At most the number of sub-lines and domains.
    """
    apart = min(plan.sublines, constraints)
    aligned = (constraints - apart) * plan.subline
    tors = sound.reshape(-1, plan.tor).copy()
    tors[:aligned] &= tors[:aligned].all(axis=1, keepdims=True)
    order = deploy(plan)
    at, part = components(plan, tors.ravel()[order], apart)
    first = np.searchsorted(part, part)
    whole = np.bincount(part)[part] // plan.m * plan.m
    return order[at[np.arange(len(at)) - first < whole]].reshape(-1, plan.m)


def orchestrate(plan: OcstrxPlan, faulty: I64, job: int) -> I64:
    """Return [G, m] the nodes of each TP group of a job, with as few ToR crossings as possible (Algorithm 5).

    Every p consecutive groups make a CP group. Groups that share all their ToRs come first, then the others, by ToR.

    Args:
        plan: The sizes.
        faulty: The faulty nodes.
        job: GPUs; 0: as many as there is room for.

    Raises:
        InputError: A node does not exist, there is no room for the job, or its size is no multiple of t.
    """
    sound = _working_nodes(plan, faulty)
    most = plan.tp * len(groups(plan, sound, 0))
    if not most:
        what = f"such that {plan.m} nodes in a row are left for a ring of tp={plan.tp}"
        raise must_be(plan.name, "faulty", what, f"{len(faulty)} of {plan.nodes} nodes")
    if job % plan.tp or job > most:
        what = f"a multiple of tp={plan.tp} up to {most}, for which {plan.nodes - len(faulty)} working nodes have room"
        raise must_be(plan.name, "job", what, job)
    wanted = (job or most) // plan.tp
    return _in_order(plan, groups(plan, sound, search(plan, sound, wanted)[0]))[:wanted]


def search(plan: OcstrxPlan, sound: Bool, wanted: int) -> tuple[int, int]:
    """Return the largest number of constraints that still leaves room for `wanted` groups, and the number of tries.

    Args:
        plan: The sizes.
        sound: [n] whether each node works.
        wanted: The number of groups, for which there is room without constraints.
    """
    low, high, tried = 0, plan.sublines + plan.dims[0], 0
    while low < high:
        middle, tried = (low + high + 1) // 2, tried + 1
        fits = len(groups(plan, sound, middle)) >= wanted
        low, high = (middle, high) if fits else (low, middle - 1)
    return low, tried


def usable_gpus(plan: OcstrxPlan, group: int, faulty: Bool) -> I64:
    """Return [E] the number of GPUs that TP groups of `group` GPUs can use in each state, with rings lit around its faults.

    A group within a node needs the whole node, whose GPUs are joined by loopback.

    Raises:
        InputError: A group has several nodes and a part of one.
    """
    if group < plan.gpus:
        return usable_in_healthy_units(plan.name, plan.gpus, group, faulty)
    if group % plan.gpus:
        raise must_be(plan.name, "NPUs of a group", f"a multiple of {plan.gpus}, the GPUs of a node, or fewer", group)
    asked = replace(plan, tp=group)
    sound = np.logical_not(faulty.reshape(len(faulty), plan.nodes, plan.gpus).any(axis=2))
    return np.array([group * len(groups(asked, sound[i], 0)) for i in range(len(sound))])


def _in_order(plan: OcstrxPlan, found: I64) -> I64:
    """Return groups of nodes in the order in which jobs use them: groups that share all their ToRs first."""
    _, which, alike = np.unique(found // plan.tor, axis=0, return_inverse=True, return_counts=True)
    return found[np.lexsort((found[:, 0], alike[which.ravel()] < plan.tor))]


def _working_nodes(plan: OcstrxPlan, faulty: I64) -> Bool:
    """Return [nodes] whether each node works."""
    if len(faulty) and max(faulty) >= plan.nodes:
        raise InputError(f"{plan.name}: faulty must be nodes of 0..{plan.nodes - 1}, got {max(faulty)}")
    sound = np.ones(plan.nodes, np.bool_)
    sound[faulty] = False
    return sound


def cross_tor(plan: OcstrxPlan, found: I64) -> float:
    """Return the share of the edges of CP rings that leave a ToR (InfiniteHBD 6.4).

    An edge joins nodes with equal places in their TP groups.
    """
    rings = found[: len(found) // plan.tor * plan.tor].reshape(-1, plan.tor, plan.m) // plan.tor
    leaves = rings != np.roll(rings, 1, axis=1)
    return float(leaves.mean()) if leaves.size else 0.0


def bundle_states(plan: OcstrxPlan, groups: I64) -> tuple[tuple[I64, I64], tuple[I64, I64]]:
    """Return the bundle and state [G, m - 1] towards the left neighbour, and towards the right neighbour, in each group.

    Each joins two neighbouring nodes of a group.
    """
    place = np.empty(plan.nodes, np.int64)
    place[deploy(plan)] = np.arange(plan.nodes)
    away = np.diff(place[groups], axis=1) % plan.nodes
    return bundle(plan, -away), bundle(plan, away)


def settings(plan: OcstrxPlan, groups: I64) -> I64:
    """Return [n, R] the state of every bundle of every node; copper and unused bundles are looped."""
    found = np.full((plan.nodes, plan.gpus), LOOPBACK, np.int64)
    for nodes, (which, state) in zip((groups[:, 1:], groups[:, :-1]), bundle_states(plan, groups), strict=True):
        found[nodes, which] = state
    return found


def rings(plan: OcstrxPlan, groups: I64) -> tuple[I64, I64]:
    """Return the GPUs of all rings in order, and the bundle by which the ring leaves each; -1 if it leaves the node.

    Nodes without a group come last, each a ring of its own.

    Args:
        plan: The sizes.
        groups: [G, m] nodes.
    """
    alone = np.setdiff1d(np.arange(plan.nodes), groups)
    node, start, step, length = (np.concatenate(c) for c in zip(_strands(plan, groups), _circles(plan, alone), strict=True))
    of = np.repeat(np.arange(len(node)), length)
    nth = np.arange(len(of)) - (np.cumsum(length) - length)[of]
    gpu = (start[of] + step[of] * nth) % plan.gpus
    by = np.where(step[of] > 0, gpu, (gpu - 1) % plan.gpus)
    leaves = (nth == length[of] - 1) & (of < len(node) - len(alone)) & (plan.m > 1)
    return node[of] * plan.gpus + gpu, np.where(leaves, -1, by)


Strands = tuple[I64, I64, I64, I64]  # node, first GPU, 1 up or -1 down, number of GPUs


def _circles(plan: OcstrxPlan, nodes: I64) -> Strands:
    """Return rings of one node each: their strands begin and end in the same node."""
    ones = np.ones(len(nodes), np.int64)
    return nodes, 0 * ones, ones, plan.gpus * ones


def _strands(plan: OcstrxPlan, groups: I64) -> Strands:
    """Return 2m - 2 strands for each group of m nodes.

    They lead over the nodes from left to right, and back over the nodes between the two ends.
    """
    if plan.m == 1:
        return _circles(plan, groups.ravel())
    left, right = (which for which, _ in bundle_states(plan, groups))
    x, y = left[:, :-1], right[:, 1:]  # [G, m - 2] of the nodes between
    odd = np.arange(1, plan.m - 1) % 2 == 1  # nodes that a ring enters by upper lanes and leaves by lower
    there = np.where(odd, x, x + 1), np.where(odd, (x - y) % plan.gpus, (y - x) % plan.gpus)
    back = np.where(odd, y, y + 1), plan.gpus - there[1]
    way = np.broadcast_to(1 - 2 * odd, x.shape)
    upper, last = plan.m % 2 == 0, left[:, -1:]
    ends = right[:, :1] + 1, last + 1 - upper
    whole = np.full_like(last, plan.gpus)
    columns = (
        (groups, groups[:, -2:0:-1]),
        (ends[0], there[0], ends[1], back[0][:, ::-1]),
        (np.ones_like(last), way, np.full_like(last, 1 - 2 * upper), way[:, ::-1]),
        (whole, there[1], whole, back[1][:, ::-1]),
    )
    node, start, step, length = (np.concatenate(c, axis=1).ravel() for c in columns)
    return node, start, step, length
