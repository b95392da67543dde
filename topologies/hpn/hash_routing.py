"""Routes of HPN: a message picks a port of the NIC and an uplink of the ToR.

All other links follow, as planes share no switch (6.1).

Cables are numbered: those of NVLink by NPU, then NIC ports by NPU and port, then uplinks by ToR, then by Agg. Letter: P pairs.

Also here, as a model of its own, is the choice of a host among its paths: source ports on disjoint paths, and counters of
bytes. Source: HPN 6.1 and appendix B. A host knows the switches' hash (RePaC, Zhang et al., USENIX ATC 2021). So it can find
source ports whose connections part at the ToR, which has U uplinks; routes give the channels of a pair such connections in
turn. Then each message goes to the connection with the fewest bytes under way. In a schedule a message names its channel
itself.
"""

from collections.abc import Callable, Sequence
from fractions import Fraction
from math import comb

import numpy as np

from emu.arrays import I64, Bool, column
from emu.errors import must_be
from emu.topology.builders.route_parts import join, link_if, mix
from emu.topology.topology import CHANNELS, Routes
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
    disjoint = plan.paths == "disjoint"
    own, turn = mix(src, dst, key // CHANNELS if disjoint else key), place if disjoint else np.zeros_like(key)

    def pick(where: int, count: int) -> I64:
        if plan.hash == "polarised":
            return (own + turn // 2) % count
        return (mix(own, np.full_like(own, where)) + turn // (2 if where == _TOR else 1)) % count

    return pick


def route(plan: HpnPlan, src: I64, dst: I64, key: I64) -> Routes:
    """Return the links of each pair.

    Every second channel of a pair takes the NIC's other port, and a hash picks all else (ECMP).
    """
    rails, place = plan.sizes[3], mix(src, dst) % 2 + key % CHANNELS
    port, pick = place % 2, _picker(plan, src, dst, key, place)
    host, there = src // rails, dst // rails
    inside = host == there
    crosses = ~inside & (src % rails != dst % rails) & plan.relays
    mate = np.where(crosses, host * rails + dst % rails, src)
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
    """Return the links of each stage between the ToRs of two NICs, and the port of the second NIC that they lead to."""
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
    across = position if plan.fixed else position // plan.share * plan.share + pick(_CORE, plan.share)
    landing = np.where(leaves, across % plan.aggs, agg)
    first = 3 * plan.npus + plan.tors * plan.uplinks
    up, down = (
        first + (g * plan.aggs + p % plan.aggs) * plan.up + p // plan.aggs for g, p in ((group, position), (goal, across))
    )
    return [link_if(leaves, 2 * up), link_if(leaves, 2 * down + 1)], landing


FIRST_PORT = 49152  # first of the ports that a host may use freely (RFC 6335)


def random_hash(flow: int, uplinks: int, ports: int = 2**14) -> I64:
    """Return [ports] the uplink of each source port under a pseudo-random hash.

    Args:
        flow: A number that stands for the addresses and the destination port.
        uplinks: U.
        ports: The number of source ports from `FIRST_PORT` on.
    """
    return mix(np.full(ports, flow), FIRST_PORT + np.arange(ports)) % uplinks


def linear_hash(flow: int, uplinks: int, ports: int = 2**14) -> I64:
    """Return [ports] the uplink of each source port under a hash that gives the next source port the next uplink."""
    return (int(mix(flow)[0]) + np.arange(ports)) % uplinks


def establish(uplink_of_port: I64, wanted: int) -> I64:
    """Return [wanted] the lowest source ports whose connections take different uplinks (algorithm 1, FindPaths).

    Args:
        uplink_of_port: [ports] the uplink that the ToR's hash gives each source port from `FIRST_PORT` on.
        wanted: The number of connections.

    Raises:
        InputError: The ports lead to fewer uplinks.
    """
    _, first = np.unique(uplink_of_port, return_index=True)
    if not 1 <= wanted <= len(first):
        what = f"1..{len(first)}, the uplinks that {len(uplink_of_port)} source ports meet"
        raise must_be("hpn", "connections on disjoint paths", what, wanted)
    return column(FIRST_PORT + np.sort(first)[:wanted], np.int64)


def expected_tries(uplinks: int, wanted: int) -> Fraction:
    """Return the mean number of source ports to try with a random hash until they lead to `wanted` different uplinks."""
    return sum((Fraction(uplinks, uplinks - met) for met in range(wanted)), Fraction(0))


def drain(rates: Sequence[float], messages: int, gap: float, *, counters: bool) -> float:
    """Return the time at which the last of equal messages has left, if one message is posted every `gap` of time.

    Args:
        rates: The number of messages that each connection carries in a unit of time.
        messages: The number of messages.
        gap: The time between posts.
        counters: Whether a message goes to the connection with the fewest bytes under way, WQE (algorithm 2); else connections
            take messages in turn.

    Raises:
        InputError: A rate is 0 or below.
    """
    if min(rates, default=0) <= 0:
        raise must_be("hpn", "the rates of connections", "one or more, each above 0", tuple(rates))
    ends: list[list[float]] = [[] for _ in rates]
    done = [0] * len(rates)
    for message in range(messages):
        now, to = message * gap, message % len(rates)
        if counters:
            to = _least_load(ends, done, now)
        ends[to].append(max(now, ends[to][-1] if ends[to] else 0.0) + 1 / rates[to])
    return max((e[-1] for e in ends if e), default=0.0)


def _least_load(ends: Sequence[Sequence[float]], done: list[int], now: float) -> int:
    """Return the first connection with the fewest messages that are posted and not complete yet."""
    for i, of in enumerate(ends):
        while done[i] < len(of) and of[done[i]] <= now:
            done[i] += 1
    return min(range(len(ends)), key=lambda i: len(ends[i]) - done[i])


def imbalance(flows: int) -> Fraction:
    """Return the expected load of the fuller of a NIC's two ports over the mean, if a hash picks the port of each equal flow.

    Source: Fig. 12a, 13a.

    Raises:
        InputError: There is no flow.
    """
    if flows < 1:
        raise must_be("hpn", "flows", "1 or more", flows)
    fuller = sum(comb(flows, k) * max(k, flows - k) for k in range(flows + 1))
    return Fraction(2 * fuller, flows * 2**flows)
