"""The GPUs of a ring in order: nodes in a line, each passed twice, end bundles looped (InfiniteHBD 4.2, Fig. 2).

A node's bundles to its left and to its right cut its circle of GPUs in two strands. Equal lanes meet, so a ring that leaves a
node by upper lanes enters the next at the upper lanes' GPU and leaves it by the lower lanes. Letters: G groups of m nodes, n
nodes of R bundles.
"""

import numpy as np

from emu.arrays import I64
from topologies.infinitehbd.ocstrx_bundles import LOOPBACK, bundle
from topologies.infinitehbd.ocstrx_plan import OcstrxPlan
from topologies.infinitehbd.orchestration import deploy


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
