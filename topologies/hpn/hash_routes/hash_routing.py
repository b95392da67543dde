"""Routes of HPN: a message picks the NIC's port and the ToR's uplink; all else follows, as planes share no switch (6.1).

Cable numbers: NVLink's by NPU, then NIC ports by NPU and port, then uplinks by ToR, then by Agg. Letter: P pairs.
"""

from typing import NamedTuple

import numpy as np

from emu.arrays import I64, Bool
from emu.topology.builders.route_parts import join, mix
from emu.topology.topology import CHANNELS, Routes
from topologies.hpn.host_plan import HpnPlan

_TOR, _AGG, _CORE, _DOWN = range(4)  # where a hash decides


class _Hash(NamedTuple):
    """The hash of messages' five-tuples by switches; the host may have chosen the source port."""

    own: I64  # [P] hash of the five-tuple; where connections take turns, of the fields that they share
    place: I64  # [P] the connection's turn, which takes port after port of the NIC; 0 where there are no turns
    alike: bool  # whether all switches have the same hash

    def pick(self, where: int, count: int) -> I64:
        """Return [P] one of `count` equal paths.

        A host that knows the hash finds source ports with which one connection after another takes the next uplink of a ToR. At
        the Aggs, where the ToRs of both ports meet, connections go on in turn if the Aggs' hash differs from the ToRs'. If it
        is the same hash, its value decides here, too.
        """
        if self.alike:
            return (self.own + self.place // 2) % count
        return (mix(self.own, np.full_like(self.own, where)) + self.place // (2 if where == _TOR else 1)) % count


def _hash(plan: HpnPlan, src: I64, dst: I64, key: I64, place: I64) -> _Hash:
    """Return the hash of messages: one for each connection on disjoint paths, or one for each channel."""
    alike = plan.hash == "polarised"
    if plan.paths == "disjoint":
        return _Hash(mix(src, dst, key // CHANNELS), place, alike)
    return _Hash(mix(src, dst, key), np.zeros_like(key), alike)


def route(plan: HpnPlan, src: I64, dst: I64, key: I64) -> Routes:
    """Return the links of each pair; every second channel of a pair takes the NIC's other port, the rest is a hash (ECMP)."""
    rails, place = plan.sizes[3], mix(src, dst) % 2 + key % CHANNELS
    port, hashed = place % 2, _hash(plan, src, dst, key, place)
    host, there = src // rails, dst // rails
    inside = host == there
    crosses = ~inside & (src % rails != dst % rails) & plan.relays
    mate = np.where(crosses, host * rails + dst % rails, src)
    over, arrival = _upper_stages(plan, hashed, (mate, dst, port), ~inside)
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


def _upper_stages(plan: HpnPlan, hashed: _Hash, ends: tuple[I64, I64, I64], outside: Bool) -> tuple[list[I64], I64]:
    """Return the stages between the ToRs of two NICs, and the port of the second NIC that they lead to."""
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


def _core(plan: HpnPlan, hashed: _Hash, at: tuple[I64, I64, I64], leaves: Bool) -> tuple[list[I64], I64]:
    """Return the two stages through a Core, and the Agg from which each pair comes down.

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
