"""The bundles of OCSTrx of a node, the ends of their two external paths, and the state that lights each (InfiniteHBD 4.1, 4.2).

Bundle b joins GPU b by its upper lanes and GPU b+1 by its lower ones. In state 0 it loops them to each other; in state 1 or 2
it sends both out by one path. So two of its paths are never lit at once. K of the R bundles are OCSTrx, the rest copper.
Letters: P pairs of positions, F fibres.
"""

import numpy as np
from numpy.typing import ArrayLike

from emu.arrays import I64
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

    These are all fibres of the K-hop ring or line: from each position one to each distance of `plan.reach`.
    """
    at, away = (grid.ravel() for grid in np.meshgrid(np.arange(plan.nodes), plan.reach, indexing="ij"))
    there = at + away
    kept = there < plan.nodes
    return np.stack((at, there % plan.nodes), axis=-1)[kept | plan.closed]


def states(plan: OcstrxPlan, src: ArrayLike, dst: ArrayLike) -> tuple[tuple[I64, I64], tuple[I64, I64]]:
    """Return the bundles and states that join two positions of the line, at `src` and at `dst`; -1 if no fibre joins them.

    A node needs a reconfiguration between two rounds that take one bundle in two states.

    Args:
        plan: The sizes.
        src: [P] the first position of each pair on the line; positions are numbers of nodes if a ToR has one node.
        dst: [P] the second position of each pair.
    """
    away = np.asarray(dst, np.int64) - np.asarray(src, np.int64)
    if plan.closed:
        away = np.where(np.abs(away) > plan.reach[-1], away - np.sign(away) * plan.nodes, away)
    return bundle(plan, away), bundle(plan, -away)
