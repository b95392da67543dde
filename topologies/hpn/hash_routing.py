"""Routes of HPN: a message picks a port of the NIC and an uplink of the ToR.

Cable numbers: NVLink's by NPU, then NIC ports by NPU and port, then uplinks by ToR, then by Agg. Letter: P pairs.
"""

from collections.abc import Callable
from functools import partial
from math import prod

import numpy as np

from emu.arrays import I64, Bool
from emu.topology.builders.route_parts import join, link_if, mix
from emu.topology.paths.spray import ways_by_number
from emu.topology.topology import CHANNELS, LEAST_LOADED, Routes, Spray
from topologies.hpn.host_plan import HpnPlan

_TOR, _AGG, _CORE, _DOWN = range(4)  # where a hash decides

_Pick = Callable[[int, int], I64]  # (where a hash decides, number of equal paths) -> [P] one of them


def _picker(plan: HpnPlan, src: I64, dst: I64, key: I64, place: I64) -> _Pick:
    """Return the function by which messages choose among equal paths, from the switches' hash of the five-tuple.

    A host that knows the hash finds source ports with which one connection after another takes the next uplink of a ToR. The
    hash is then that of the fields that connections have in common, to which the number of the connection is added. At the
    Aggs, where the ToRs of both ports meet, connections also take paths in turn if the hash of the Aggs differs from that of
    the ToRs. If it is the same hash, its value decides there, too.

    Args:
        plan: The sizes and settings of the network.
        src: [P] the source of each message.
        dst: [P] its destination.
        key: [P] its key.
        place: [P] the number of its connection among those of the pair.
    """
    disjoint = plan.disjoint
    own, turn = mix(src, dst, key // CHANNELS if disjoint else key), place if disjoint else np.zeros_like(key)

    def pick(where: int, count: int) -> I64:
        if plan.polarised:
            return (own + turn // 2) % count
        return (mix(own, np.full_like(own, where)) + turn // (2 if where == _TOR else 1)) % count

    return pick


def route(plan: HpnPlan, src: I64, dst: I64, key: I64) -> Routes:
    """Return the links of each pair.

    Every second channel of a pair takes the NIC's other port, and a hash picks all else (ECMP).
    """
    place = mix(src, dst) % 2 + key % CHANNELS
    return _lay(plan, src, dst, place % 2, _picker(plan, src, dst, key, place))


def spray_of(plan: HpnPlan) -> Spray | None:
    """Return the rule by which messages are spread over all equal paths of their pair; None if a hash takes one."""
    if plan.route not in ("spray", LEAST_LOADED):
        return None
    most, ways = 2 * prod(_radices(plan)), ways_by_number(partial(_count_paths, plan), partial(_route_by_number, plan))
    return Spray(most, ways, most, plan.route == LEAST_LOADED)


def _radices(plan: HpnPlan) -> tuple[int, int, int, int]:
    """Return how many equal links a message chooses from at a ToR, down from an Agg, up from an Agg, and from a Core."""
    if not plan.tier2:
        return (1, 1, 1, 1)
    cores = (plan.up, 1 if plan.fixed else plan.ports_a_pod) if plan.tier3 else (1, 1)
    return (plan.uplinks, plan.parallel * (1 + (plan.joins == "all")), *cores)


def _count_paths(plan: HpnPlan, src: I64, dst: I64) -> I64:
    """Return [P] the number of equal paths of each pair: over both ports of a NIC, and over all switches."""
    inside, mate = _relay(plan, src, dst)
    tor, goal = plan.tor_of(mate, 0), plan.tor_of(dst, 0)
    tor_ways, down_ways, agg_ways, core_ways = _radices(plan)
    above = np.where(plan.group_of(tor) != plan.group_of(goal), agg_ways * core_ways, 1)
    return np.where(inside, 1, 2 * np.where(tor != goal, tor_ways * down_ways * above, 1))


def _route_by_number(plan: HpnPlan, src: I64, dst: I64, way: I64) -> Routes:
    """Return the route of each pair along its path number `way`; paths of consecutive numbers take the two ports in turn."""
    rest, port = np.divmod(way, 2)
    digits = {}
    for where, count in zip((_TOR, _DOWN, _AGG, _CORE), _radices(plan), strict=True):
        rest, digits[where] = np.divmod(rest, count)
    return _lay(plan, src, dst, port, lambda where, count: digits[where] % count)


def _relay(plan: HpnPlan, src: I64, dst: I64) -> tuple[Bool, I64]:
    """Return [P] whether a pair is in one host, and [P] the GPU whose NIC its messages leave by."""
    rails = plan.sizes[3]
    inside: Bool = src // rails == dst // rails
    crosses = ~inside & (src % rails != dst % rails) & plan.relays
    return inside, np.where(crosses, src // rails * rails + dst % rails, src)


def _lay(plan: HpnPlan, src: I64, dst: I64, port: I64, pick: _Pick) -> Routes:
    """Return the links of each pair, from the port by which each leaves and its choice among equal paths."""
    inside, mate = _relay(plan, src, dst)
    over, arrival = _upper_stages(plan, pick, (mate, dst, port), ~inside)
    near, nics = inside | (mate != src), plan.npus
    return join(
        [
            link_if(near, 2 * src),
            link_if(near, 2 * np.where(inside, dst, mate) + 1),
            link_if(~inside, 2 * (nics + 2 * mate + port)),
            *over,
            link_if(~inside, 2 * (nics + 2 * dst + arrival) + 1),
        ]
    )


def _upper_stages(plan: HpnPlan, pick: _Pick, ends: tuple[I64, I64, I64], outside: Bool) -> tuple[list[I64], I64]:
    """Return the links of each stage between the ToRs of two NICs, and the port of the second NIC that they reach."""
    src, dst, port = ends
    tor, twin = plan.tor_of(src, port), plan.tor_of(dst, port)
    rises = outside & (tor != twin)
    if not rises.any():
        return [], port
    either = plan.joins == "all"
    down = pick(_DOWN, plan.parallel * (1 + either))  # cables of the Agg to one ToR, then to the other of the pair
    arrival = np.where(rises & either, down // plan.parallel, port)
    goal = plan.tor_of(dst, arrival)
    uplink = pick(_TOR, plan.uplinks)
    agg, group = uplink // plan.parallel, plan.group_of(tor)
    leaves = rises & (group != plan.group_of(goal))
    climb, landing = _core(plan, pick, (group, plan.group_of(goal), agg), leaves)
    first = 3 * plan.npus
    up = first + tor * plan.uplinks + uplink
    back = first + goal * plan.uplinks + landing * plan.parallel + down % plan.parallel
    return [link_if(rises, 2 * up), *climb, link_if(rises, 2 * back + 1)], arrival


def _core(plan: HpnPlan, pick: _Pick, at: tuple[I64, I64, I64], leaves: Bool) -> tuple[list[I64], I64]:
    """Return the links of the two stages through a Core, and the Agg from which each pair comes down.

    Uplink w of Agg a is position w * aggs + a of its group; a Core has the same `share` positions of every pod.
    """
    group, goal, agg = at
    if not leaves.any():
        return [], agg
    position = pick(_AGG, plan.up) * plan.aggs + agg
    across = position if plan.fixed else position // plan.ports_a_pod * plan.ports_a_pod + pick(_CORE, plan.ports_a_pod)
    landing = np.where(leaves, across % plan.aggs, agg)
    first = 3 * plan.npus + plan.tors * plan.uplinks
    up, down = (
        first + (g * plan.aggs + p % plan.aggs) * plan.up + p // plan.aggs for g, p in ((group, position), (goal, across))
    )
    return [link_if(leaves, 2 * up), link_if(leaves, 2 * down + 1)], landing
