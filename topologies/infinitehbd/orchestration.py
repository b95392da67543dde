"""The choice of nodes for the TP groups of a job around faults: InfiniteHBD's Algorithms 1-5 (4.3, appendix D), vectorised.

They are corrected where the print cannot run: Algorithm 3's innermost loop and Algorithm 4's last call are a level too deep,
the number of sub-lines is n p/d (not n d/p), and every probe of the search begins with the given faults. Letters: G groups of m
nodes, n nodes, E states.
"""

from dataclasses import replace

import numpy as np

from emu.arrays import I64, Bool, column
from emu.errors import InputError, must_be
from emu.topology.gang_rule import within_units
from emu.topology.usable_npus import usable_in_healthy_units
from topologies.infinitehbd.ocstrx_bundles import blocked_distance
from topologies.infinitehbd.ocstrx_plan import OcstrxPlan


def deploy(plan: OcstrxPlan) -> I64:
    """Return [n] the node at each position of the line: the first nodes of all ToRs, then the second ones (Algorithm 3)."""
    return np.arange(plan.nodes).reshape(-1, plan.tor).T.ravel()


def components(plan: OcstrxPlan, sound: Bool, separate_sublines: int = 0) -> tuple[I64, I64]:
    """Return the positions of working nodes in the order of the line, and the connected component of each.

    A gap of more than K positions ends a component: K nodes in a row do not work.

    Args:
        plan: The sizes.
        sound: [n] whether the node at each position works.
        separate_sublines: The number of sub-lines, from the first on, between which components end; all later ones form one
            part.
    """
    at = np.flatnonzero(sound)
    if plan.closed and not separate_sublines:  # begin after a gap, so that a component over the end of the numbering is whole
        broken = np.diff(at, append=at[:1] + plan.nodes) > plan.k
        at = np.roll(at, -1 - np.argmax(broken)) if broken.any() else at
    gap = np.diff(at) % plan.nodes
    cut = (gap > plan.k) | (np.diff(np.minimum(at // plan.subline, separate_sublines)) != 0)
    if plan.m > 2:
        far = ~cut & (gap == blocked_distance(plan))
        cut[:-1] |= far[:-1] & far[1:]
    return at, np.concatenate((np.zeros(min(1, len(at)), np.int64), np.cumsum(cut)))


def choose_groups(plan: OcstrxPlan, sound: Bool, constraints: int) -> I64:
    """Return [G, m] the nodes of each group, in the order of the line, under a number of constraints (Algorithms 2 and 4).

    The first constraints keep groups within a sub-line, one sub-line each. Further ones count all nodes of a ToR with a fault
    as faulty, one domain each, so that groups of the sub-lines are aligned.

    Args:
        plan: The sizes.
        sound: [n] whether each node is sound.
        constraints: At most the number of sub-lines and domains.
    """
    separate = min(plan.sublines, constraints)
    aligned = (constraints - separate) * plan.subline
    tors = sound.reshape(-1, plan.tor).copy()
    tors[:aligned] &= tors[:aligned].all(axis=1, keepdims=True)
    order = deploy(plan)
    at, part = components(plan, tors.ravel()[order], separate)
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
    most = plan.tp * len(choose_groups(plan, sound, constraints=0))
    if not most:
        what = f"such that {plan.m} nodes in a row are left for a ring of tp={plan.tp}"
        raise must_be(plan.name, "faulty", what, f"{len(faulty)} of {plan.nodes} nodes")
    if job % plan.tp or job > most:
        what = f"a multiple of tp={plan.tp} up to {most}, for which {plan.nodes - len(faulty)} working nodes have room"
        raise must_be(plan.name, "job", what, job)
    wanted = (job or most) // plan.tp
    return _in_order(plan, choose_groups(plan, sound, search(plan, sound, wanted)[0]))[:wanted]


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
        fits = len(choose_groups(plan, sound, middle)) >= wanted
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
    return np.array([group * len(choose_groups(asked, sound[i], constraints=0)) for i in range(len(sound))])


def gang_gpus(plan: OcstrxPlan, size: int, group: int, free: Bool) -> I64:
    """Return the GPUs of a job whose TP groups are rings around all nodes that are busy or faulty; none without room.

    Rings are those of the shortest part of the line that has room for all of them, else those of the longest parts. A job
    smaller than a node stays within one, and several can share it.

    Args:
        plan: The sizes.
        size: The GPUs of the job.
        group: The GPUs of a TP group.
        free: [GPUs] the GPUs that work and have no job.
    """
    if group < plan.gpus:
        return within_units(plan.gpus)(size, group, free)
    asked = replace(plan, tp=-(-group // plan.gpus) * plan.gpus)
    sound = np.asarray(free.reshape(plan.nodes, plan.gpus).all(axis=1))
    groups, count = choose_groups(asked, sound, constraints=0), -(-size // group)
    if len(groups) < count:
        return column([], np.int64)
    groups = groups[_closest(asked, sound, groups, count)]
    gpus = (groups[:, :, None] * plan.gpus + np.arange(plan.gpus)).reshape(count, -1)
    return column(gpus[:, :group].ravel()[:size], np.int64)


def _closest(plan: OcstrxPlan, sound: Bool, groups: I64, count: int) -> I64:
    """Return the indices of `count` groups: of the shortest part of the line with room, else of the longest parts."""
    order = deploy(plan)
    at, part = components(plan, sound[order])
    of = np.full(plan.nodes, -1)
    of[order[at]] = part
    which, size = np.unique(of[groups[:, 0]], return_inverse=True, return_counts=True)[1:]
    length = size[which.ravel()]
    room = np.flatnonzero(length >= count)
    if len(room):
        first = room[np.argmin(length[room])]
        return np.flatnonzero(which.ravel() == which.ravel()[first])[:count]
    return np.argsort(-length, kind="stable")[:count]


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
