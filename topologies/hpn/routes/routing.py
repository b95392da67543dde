"""A message's way: the NIC's port and the ToR's uplink are picked, all else follows, as planes share no switch (HPN 6.1).

P asked pairs. Cable numbers: NVLink's by NPU, then NIC ports by NPU and port, then uplinks by ToR, then by Agg.
"""

import numpy as np

from emu.arrays import I64, Bool
from emu.topology.routing import join, mix
from emu.topology.topology import Routes
from topologies.hpn.plan import Plan

_TOR, _AGG, _CORE, _DOWN, _PARALLEL = range(5)  # which hash: a switch's own, of the same words


def route(plan: Plan, src: I64, dst: I64, key: I64) -> Routes:
    """The links of each pair; of a pair's keys every second takes the other port of the NIC, the rest is a hash (ECMP)."""
    rails, flow = plan.sizes[3], mix(src, dst, key)
    port = (key + mix(src, dst)) % 2
    host, there = src // rails, dst // rails
    inside = host == there
    crosses = ~inside & (src % rails != dst % rails) & plan.relays
    mate = np.where(crosses, host * rails + dst % rails, src)
    over, arrival = _over(plan, flow, (mate, dst, port), ~inside)
    nics = plan.npus
    return join(
        [
            np.where(inside | (mate != src), 2 * src, -1),
            np.where(inside | (mate != src), 2 * np.where(inside, dst, mate) + 1, -1),
            np.where(inside, -1, 2 * (nics + 2 * mate + port)),
            *over,
            np.where(inside, -1, 2 * (nics + 2 * dst + arrival) + 1),
        ]
    )


def _over(plan: Plan, flow: I64, ends: tuple[I64, I64, I64], outside: Bool) -> tuple[list[I64], I64]:
    """The stages between the ToRs of two NICs, and the port of the second that they lead to."""
    src, dst, port = ends
    tor, twin = plan.tor_of(src, port), plan.tor_of(dst, port)
    rises = outside & (tor != twin)
    if not rises.any():
        return [], port
    any_port = rises & (plan.joins == "all")
    arrival = np.where(any_port, _pick(flow, _DOWN, 2), port)
    goal = plan.tor_of(dst, arrival)
    uplink = _pick(flow, _TOR, plan.uplinks)
    agg, group = uplink // plan.parallel, plan.group_of(tor)
    leaves = rises & (group != plan.group_of(goal))
    climb, landing = _core(plan, flow, (group, plan.group_of(goal), agg), leaves)
    lane = landing * plan.parallel + _pick(flow, _PARALLEL, plan.parallel)
    first = 3 * plan.npus
    up, down = 2 * (first + tor * plan.uplinks + uplink), 2 * (first + goal * plan.uplinks + lane) + 1
    return [np.where(rises, up, -1), *climb, np.where(rises, down, -1)], arrival


def _core(plan: Plan, flow: I64, at: tuple[I64, I64, I64], leaves: Bool) -> tuple[list[I64], I64]:
    """The two stages through a Core, and the Agg that each pair comes down from.

    Uplink w of Agg a is position w * aggs + a of its group; a Core has the same `share` positions of every pod.
    """
    group, goal, agg = at
    if not leaves.any():
        return [], agg
    position = _pick(flow, _AGG, plan.up) * plan.aggs + agg
    across = position if plan.fixed else position // plan.share * plan.share + _pick(flow, _CORE, plan.share)
    landing = np.where(leaves, across % plan.aggs, agg)
    first = 3 * plan.npus + plan.tors * plan.uplinks
    up, down = (
        first + (g * plan.aggs + p % plan.aggs) * plan.up + p // plan.aggs for g, p in ((group, position), (goal, across))
    )
    return [np.where(leaves, 2 * up, -1), np.where(leaves, 2 * down + 1, -1)], landing


def _pick(flow: I64, which: int, count: int) -> I64:
    return mix(flow, np.full_like(flow, which)) % count
