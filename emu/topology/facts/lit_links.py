"""Links that optical switches light in turns: what they carry at one time, and how long they take one after another.

Letters: L links, K some of them, Q the most switches that one of them needs.
"""

import numpy as np

from emu.arrays import F64, I64, Bool, column, ramps
from emu.topology.topology import Circuits, Topology


def lit_rates(topology: Topology, links: I64, owner: I64, owners: int) -> F64:
    """Return [owners] the largest bandwidth (B/s) that the links of each owner have at one time.

    Each optical switch has the state in which the links of the owner are fastest. A link counts for the first switch that the
    owner needs in several states.

    Args:
        topology: The topology.
        links: [K] rows of `topology.links`.
        owner: [K] the owner of each of them, 0..owners-1.
        owners: The number of owners.
    """
    rate = topology.links.bandwidth_Bps[links]
    if topology.circuits is None or not len(links):
        return column(np.bincount(owner, rate, owners), np.float64)
    switch, state = _needs(topology, topology.circuits, links)
    shared = _in_several_states(switch, state, owner)
    row, first = np.arange(len(links)), shared.argmax(axis=1)
    waits = shared[row, first]
    own = np.stack((owner, switch[row, first], state[row, first]), axis=1)[waits]
    states, at = np.unique(own, axis=0, return_inverse=True)
    switches, of = np.unique(states[:, :2], axis=0, return_inverse=True)
    most = np.zeros(len(switches))
    np.maximum.at(most, of.ravel(), np.bincount(at.ravel(), rate[waits], len(states)))
    at_all_times = np.bincount(owner[~waits], rate[~waits], owners)
    return column(at_all_times + np.bincount(switches[:, 0], most, owners), np.float64)


def time_of_links(topology: Topology, busy_s: F64) -> float:
    """Return the least time (s) in which each link is busy as long as is given, [L].

    An optical switch lights the links of one state after those of another. The time in which it turns is left out.
    """
    longest = float(busy_s.max(initial=0.0))
    links = np.flatnonzero(busy_s)
    if topology.circuits is None or not len(links):
        return longest
    switch, state = _needs(topology, topology.circuits, links)
    row, at = np.nonzero(switch >= 0)
    states, of = np.unique(np.stack((switch[row, at], state[row, at]), axis=1), axis=0, return_inverse=True)
    lasts = np.zeros(len(states))
    np.maximum.at(lasts, of.ravel(), busy_s[links][row])
    _, own = np.unique(states[:, 0], return_inverse=True)
    return max(longest, float(np.bincount(own, lasts).max(initial=0.0)))


def _needs(topology: Topology, circuits: Circuits, links: I64) -> tuple[I64, I64]:
    """Return [K, Q] the optical switches that links need (-1: none), and [K, Q] their states.

    Of several links between two nodes each has a key of its own, as routes take one by the key.
    """
    src, dst = (column(end, np.int64) for end in (topology.links.src, topology.links.dst))
    order = np.lexsort((dst, src))
    begins = np.flatnonzero((np.diff(src[order], prepend=-1) != 0) | (np.diff(dst[order], prepend=-1) != 0))
    key = np.empty(len(src), np.int64)
    key[order] = ramps(np.zeros_like(begins), np.diff(begins, append=len(src)))
    return circuits.needs(src[links], dst[links], key[links])


def _in_several_states(switch: I64, state: I64, owner: I64) -> Bool:
    """Return [K, Q] whether the owner of each link has links that need this switch in another state, too."""
    row, at = np.nonzero(switch >= 0)
    asked = state[row, at]
    pairs, of = np.unique(np.stack((owner[row], switch[row, at]), axis=1), axis=0, return_inverse=True)
    low, high = np.full(len(pairs), asked.max(initial=0)), np.full(len(pairs), asked.min(initial=0))
    np.minimum.at(low, of.ravel(), asked)
    np.maximum.at(high, of.ravel(), asked)
    found = np.zeros(switch.shape, np.bool_)
    found[row, at] = (low < high)[of.ravel()]
    return found
