"""A message's way: the NIC's port and the ToR's uplink are picked, all else follows, as planes share no switch (HPN 6.1).

P asked pairs. Cable numbers: NVLink's by NPU, then NIC ports by NPU and port, then uplinks by ToR, then by Agg.
"""

from typing import NamedTuple

import numpy as np

from emu.arrays import I64, Bool
from emu.topology.parts.routing import join, mix
from emu.topology.topology import CHANNELS, Routes
from topologies.hpn.plan import Plan

_TOR, _AGG, _CORE, _DOWN = range(4)  # where a hash decides


class _Hash(NamedTuple):
    """What switches make of a message's five-tuple, the source port of which the host may have chosen."""

    own: I64  # [P] of the five-tuple; where connections take turns, of what they have in common
    place: I64  # [P] of the connection in that turn, which takes port after port of the NIC; 0 where there is none
    alike: bool  # the same in all switches

    def pick(self, where: int, count: int) -> I64:
        """[P] which of so many equal ways.

        A host that knows the hash finds source ports with which one connection after another takes the next uplink of a ToR.
        At the Aggs, where the ToRs of both ports meet, these go on in turn if their hash is another one; if it is the ToRs',
        what that decided decides here.
        """
        if self.alike:
            return (self.own + self.place // 2) % count
        return (mix(self.own, np.full_like(self.own, where)) + self.place // (2 if where == _TOR else 1)) % count


def _hash(plan: Plan, src: I64, dst: I64, key: I64, place: I64) -> _Hash:
    alike = plan.hash == "polarised"
    if plan.paths == "disjoint":
        return _Hash(mix(src, dst, key // CHANNELS), place, alike)
    return _Hash(mix(src, dst, key), np.zeros_like(key), alike)


def route(plan: Plan, src: I64, dst: I64, key: I64) -> Routes:
    """The links of each pair; of a pair's channels every second takes the other port of the NIC, the rest is a hash (ECMP)."""
    rails, place = plan.sizes[3], mix(src, dst) % 2 + key % CHANNELS
    port, hashed = place % 2, _hash(plan, src, dst, key, place)
    host, there = src // rails, dst // rails
    inside = host == there
    crosses = ~inside & (src % rails != dst % rails) & plan.relays
    mate = np.where(crosses, host * rails + dst % rails, src)
    over, arrival = _over(plan, hashed, (mate, dst, port), ~inside)
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


def _over(plan: Plan, hashed: _Hash, ends: tuple[I64, I64, I64], outside: Bool) -> tuple[list[I64], I64]:
    """The stages between the ToRs of two NICs, and the port of the second that they lead to."""
    src, dst, port = ends
    tor, twin = plan.tor_of(src, port), plan.tor_of(dst, port)
    rises = outside & (tor != twin)
    if not rises.any():
        return [], port
    either = plan.joins == "all"
    down = hashed.pick(_DOWN, plan.parallel * (1 + either))  # cables of the Agg to one ToR, then to the other of the pair
    arrival = np.where(rises & either, down // plan.parallel, port)
    goal = plan.tor_of(dst, arrival)
    uplink = hashed.pick(_TOR, plan.uplinks)
    agg, group = uplink // plan.parallel, plan.group_of(tor)
    leaves = rises & (group != plan.group_of(goal))
    climb, landing = _core(plan, hashed, (group, plan.group_of(goal), agg), leaves)
    first = 3 * plan.npus
    up = first + tor * plan.uplinks + uplink
    back = first + goal * plan.uplinks + landing * plan.parallel + down % plan.parallel
    return [np.where(rises, 2 * up, -1), *climb, np.where(rises, 2 * back + 1, -1)], arrival


def _core(plan: Plan, hashed: _Hash, at: tuple[I64, I64, I64], leaves: Bool) -> tuple[list[I64], I64]:
    """The two stages through a Core, and the Agg that each pair comes down from.

    Uplink w of Agg a is position w * aggs + a of its group; a Core has the same `share` positions of every pod.
    """
    group, goal, agg = at
    if not leaves.any():
        return [], agg
    position = hashed.pick(_AGG, plan.up) * plan.aggs + agg
    across = position if plan.fixed else position // plan.share * plan.share + hashed.pick(_CORE, plan.share)
    landing = np.where(leaves, across % plan.aggs, agg)
    first = 3 * plan.npus + plan.tors * plan.uplinks
    up, down = (
        first + (g * plan.aggs + p % plan.aggs) * plan.up + p // plan.aggs for g, p in ((group, position), (goal, across))
    )
    return [np.where(leaves, 2 * up, -1), np.where(leaves, 2 * down + 1, -1)], landing
