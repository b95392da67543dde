"""Fibres to the nodes at distances 1, 2, 4 ..., so that every partner of Binary Exchange is a neighbour (InfiniteHBD 7, G).

Bundles turn between rounds (Fast Switch, G.1). So all their paths are links here, and `circuits` returns the bundles and states
that a message needs. Cables: those of nodes, bundle by bundle; the two of each fibre, bit by bit, upper lanes and lower; those
to the DCN. Letters: n nodes of R GPUs in groups of 2^K, bits b < K; P pairs.
"""

from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from emu.arrays import I64, Bool, column
from emu.topology.builders.route_parts import join, link_if
from emu.topology.builders.wiring import Cables
from emu.topology.catalogue import Count, Invariants, Latency, topology
from emu.topology.gang_rule import in_blocks
from emu.topology.topology import Circuits, Routes, Topology, check_link_count
from emu.topology.usable_npus import usable_in_blocks
from emu.units import format_time, seconds
from topologies.infinitehbd.ocstrx_bundles import LOOPBACK, bundle, bundles, states
from topologies.infinitehbd.ocstrx_plan import TURN, OcstrxPlan, OcstrxRates
from topologies.infinitehbd.ring_line import SOURCE, with_dcn


def _plan_invariants(nodes: int, gpus: int, k: int, rates: OcstrxRates, **_: object) -> Invariants:
    """Return the invariants of a wiring.

    A GPU has two links in its node, one to the DCN, and one for each partner of its node on a bundle that the GPU is at.
    """
    plan = _plan(nodes, gpus, k, rates)
    bits = np.arange(2**k)[:, None] >> np.arange(k) & 1  # [nodes of a group, K] 1: the partner is down the line
    at = np.zeros((2**k, gpus), np.int64)
    for b in range(k):
        which = bundle(plan, np.where(bits[:, b], -(2**b), 2**b))[0]
        for lane in (0, 1):
            at[np.arange(2**k), (which + lane) % gpus] += 1
    links = 2 * (2 * nodes * gpus + nodes * k)
    return Invariants(links, (int(at.min()) + 3, int(at.max()) + 3), 2, shortest=False, npus=nodes * gpus, switches=1)


def _plan(nodes: int, gpus: int, k: int, rates: OcstrxRates) -> OcstrxPlan:
    """Return the plan of a line of nodes whose fibres lead to the nodes at distances 1, 2, 4, ..."""
    return OcstrxPlan("infinitehbd:binary", (1, nodes, 1, gpus), k, gpus, rates, powers=True)


@topology(
    "infinitehbd:binary",
    source=f"{SOURCE}7 and appendix G",
    examples=("nodes=16", "nodes=8,k=2", "nodes=8,k=3", "nodes=4,gpus=8,k=2", "nodes=8,gpus=3,k=3"),
    full=("nodes=1024,gpus=8,k=8", "nodes=32768"),
    invariants=_plan_invariants,
)
def binary(nodes: Count, gpus: Count = 4, k: Count = 4, reconfiguration: Latency = TURN, *, rates: OcstrxRates) -> Topology:
    """Join nodes 1, 2, 4 ... 2^(K-1) apart by fibres, for Binary Exchange in groups of 2^K nodes; bundles turn between rounds.

    Args:
        nodes: All nodes, a multiple of 2^K.
        gpus: R: GPUs of a node.
        k: K: bundles of OCSTrx of a node.
        reconfiguration: Time that a bundle takes to turn.
        rates: Rates of GPUs and links.
    """
    plan = _plan(nodes, gpus, k, rates)
    check_link_count(plan.name, 2 * (2 * plan.npus + nodes * k))
    looped = np.isin(np.arange(gpus), bundles(plan))
    return with_dcn(
        plan,
        _cables(plan),
        np.concatenate((np.tile(looped, nodes), np.full(nodes * k, 2))),
        _rules(plan, reconfiguration),
        router=partial(_route, plan),
        circuits=Circuits(partial(_needs, plan), reconfiguration),
        usable_counter=partial(usable_in_blocks, plan.name),
        gangs=in_blocks,
    )


def _rules(plan: OcstrxPlan, turn_fs: int) -> tuple[str, ...]:
    """Return sentences on how messages use fibres, and on what the topology leaves out."""
    return (
        f"all paths of a bundle are links here, but it lights one at a time and takes {format_time(seconds(turn_fs))} to turn "
        "(60-80 us, 5.1)",
        f"nodes of a group of {2**plan.k} whose numbers differ in one bit are joined, all others by the DCN; nothing is placed "
        "around faults",
        "within a node a message is relayed by the GPUs between, and so from and to the two GPUs of the bundle that is lit",
    )


def _cables(plan: OcstrxPlan) -> list[Cables]:
    """Return the links within nodes and over fibres."""
    node, gpu = np.arange(plan.nodes)[:, None], np.arange(plan.gpus)
    latency = plan.rates.latency
    kinds = [Cables("link", node * plan.gpus + gpu, node * plan.gpus + (gpu + 1) % plan.gpus, plan.edge, latency)]
    for b in range(plan.k):
        low = node[(node >> b & 1 == 0)][:, None]
        up, down = (bundle(plan, away)[0] + np.arange(2) for away in (2**b, -(2**b)))
        ends = low * plan.gpus + up % plan.gpus, (low + 2**b) * plan.gpus + down % plan.gpus
        kinds.append(Cables("link", *ends, plan.edge, latency))
    return kinds


class _Walk(NamedTuple):
    """The hops of P messages from GPU to GPU within a node."""

    node: I64
    gpu: I64  # GPU at which it begins
    up: Bool
    hops: I64

    def by(self, nth: ArrayLike, gpus: int) -> I64:
        """Return the bundle that the nth hop of each message crosses."""
        ahead = self.gpu[:, None] + np.where(self.up[:, None], nth, -1 - np.asarray(nth))
        return column(ahead.ravel() % gpus, np.int64).reshape(ahead.shape)

    def links(self, gpus: int) -> I64:
        """Return [P, R] the links by which each of P messages walks over the R GPUs of a node; -1 for no link."""
        nth = np.arange(gpus)
        link = 2 * (self.node[:, None] * gpus + self.by(nth, gpus)) + ~self.up[:, None]
        return link_if(nth < self.hops[:, None], link)

    def crosses(self, which: I64, gpus: int) -> Bool:
        """Return [P, K] whether each message crosses each of the given bundles."""
        begin = self.gpu[:, None]
        nth = np.where(self.up[:, None], which - begin, begin - 1 - which) % gpus
        return nth < self.hops[:, None]


class _HbdPaths(NamedTuple):
    """The paths of P messages through the high-bandwidth domain."""

    joined: Bool  # whether the nodes are two, and a fibre joins them
    within: Bool  # whether they are one; where neither, the message takes the DCN
    out: _Walk
    into: _Walk
    lower: Bool  # whether it takes the lower lanes of the bundle that is lit
    ends: tuple[tuple[I64, I64], tuple[I64, I64]]  # the bundle that is lit and its state, on either node


def _paths_over_fibres(plan: OcstrxPlan, src: I64, dst: I64, key: I64) -> _HbdPaths:
    """Return the paths of messages between GPUs over lit fibres.

    Of the two lanes of a bundle that is lit, a message takes the one with fewer GPUs on the way; within a node it goes the
    shorter way.
    """
    r = plan.gpus
    (node, g), (there, h) = np.divmod(src, r), np.divmod(dst, r)
    differ = node ^ there
    joined = (differ > 0) & (differ & (differ - 1) == 0) & (differ < 2**plan.k)
    ends = states(plan, node, np.where(joined, there, node + 1))
    (x, _), (y, _) = ends
    ahead, beyond, straight = (g - x - 1) % r, (h - y - 1) % r, (h - g) % r
    lower = ahead + beyond < r
    within = differ == 0
    up = (2 * straight < r) | ((2 * straight == r) & (key % 2 == 0))
    out = np.where(joined, np.where(lower, ahead, r - 1 - ahead), np.where(within, np.where(up, straight, r - straight), 0))
    into = np.where(joined, np.where(lower, beyond, r - 1 - beyond), 0)
    return _HbdPaths(
        joined,
        within,
        _Walk(node, g, np.where(joined, ~lower, up), out),
        _Walk(there, (y + lower) % r, lower, into),
        lower,
        ends,
    )


def _route(plan: OcstrxPlan, src: I64, dst: I64, key: I64) -> Routes:
    """Return routes to the lanes, over the fibre and on to the receiver.

    Over the DCN if there is no fibre, or an end is its switch.
    """
    way = _paths_over_fibres(plan, src, dst, key)
    differ, low = way.out.node ^ way.into.node, np.minimum(way.out.node, way.into.node)
    bit = np.frexp(np.where(way.joined, differ, 1))[1].astype(np.int64) - 1
    nth = bit * (plan.nodes // 2) + (low >> bit + 1 << bit | low & (1 << bit) - 1)
    fibre = 2 * (plan.npus + 2 * nth + way.lower) + (way.out.node != low)
    first = plan.npus + plan.nodes * plan.k
    far = ~way.joined & ~way.within
    return join(
        [
            way.out.links(plan.gpus),
            link_if(way.joined, fibre),
            way.into.links(plan.gpus),
            link_if(far & (src < plan.npus), 2 * (first + src)),
            link_if(far & (dst < plan.npus), 2 * (first + dst) + 1),
        ]
    )


def _needs(plan: OcstrxPlan, src: I64, dst: I64, key: I64) -> tuple[I64, I64]:
    """Return [P, 2K] the transceiver bundles that each message needs (-1: none), and [P, 2K] their states."""
    way, which = _paths_over_fibres(plan, src, dst, key), bundles(plan)
    switches, wanted = [], []
    for walk, (lit, state) in zip((way.out, way.into), way.ends, strict=True):
        on = way.joined[:, None] & (which == lit[:, None])
        met = on | walk.crosses(which, plan.gpus)
        switches.append(np.where(met, walk.node[:, None] * plan.gpus + which, -1))
        wanted.append(np.where(on, state[:, None], LOOPBACK))
    return np.concatenate(switches, axis=1), np.concatenate(wanted, axis=1)
