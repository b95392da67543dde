"""The choice of a host among its paths: source ports on disjoint paths, and counters of bytes, as a model of their own.

Source: HPN 6.1 and appendix B. A host knows the switches' hash (RePaC, Zhang et al., USENIX ATC 2021). So it can find source
ports whose connections part at the ToR, which has U uplinks; routes give the channels of a pair such connections in turn. Then
each message goes to the connection with the fewest bytes under way. In a schedule a message names its channel itself.
"""

from collections.abc import Sequence
from fractions import Fraction
from math import comb

import numpy as np

from emu.arrays import I64, column
from emu.errors import must_be
from emu.topology.builders.route_parts import mix

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
    """Return [ports] the uplink of each source port under a hash that the next source port moves by one."""
    return (int(mix(flow)[0]) + np.arange(ports)) % uplinks


def establish(uplink_of_port: I64, wanted: int) -> I64:
    """Return [wanted] the lowest source ports of connections on different paths (algorithm 1, FindPaths).

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
    """Return when the last of equal messages has left; one message is posted every `gap`, on connections of given rates.

    Args:
        rates: Messages that each connection carries in a unit of time.
        messages: The number of messages.
        gap: The time between posts.
        counters: Whether a message goes to the connection with the fewest bytes under way, WQE (algorithm 2); else in turn.

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
    """Return the first connection with the fewest messages that are posted and not yet complete."""
    for i, of in enumerate(ends):
        while done[i] < len(of) and of[done[i]] <= now:
            done[i] += 1
    return min(range(len(ends)), key=lambda i: len(ends[i]) - done[i])


def imbalance(flows: int) -> Fraction:
    """Return the expected load of the fuller of a NIC's two ports over the mean, where a hash picks a port for equal flows.

    Source: Fig. 12a, 13a.

    Raises:
        InputError: There is no flow.
    """
    if flows < 1:
        raise must_be("hpn", "flows", "1 or more", flows)
    fuller = sum(comb(flows, k) * max(k, flows - k) for k in range(flows + 1))
    return Fraction(2 * fuller, flows * 2**flows)
