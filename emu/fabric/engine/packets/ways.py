"""The paths that packets of each message may take: one path, or all the shortest paths to its destination.

A state is a place on a way: the queue that a packet goes to from there, or a set of queues and the state behind each. A path is
a chain of states with one queue each. All the shortest paths to a node share its states: one for each node on the way. So a
message costs two numbers, whether it has one way or a thousand; packets of all messages that meet at a switch share its turns.

Letters: V tasks, L links, S states, G sets of queues, H hops.
"""

from collections import Counter
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from emu.arrays import I16, I32, I64, Bool, ascending, column
from emu.compiled.function import I32_OUT
from emu.errors import InputError, must_be
from emu.fabric.engine.packets.packet_network import MOST_LANES
from emu.fabric.graph import Graph
from emu.topology.topology import Links, Routes, Spray, Topology

NO_STATE = -1
MOST_QUEUES = 2**30


class Ways(NamedTuple):
    """The possible paths of all messages of a graph and of their acknowledgements, as a table of states.

    A state is a node on the way of a packet: it gives the next queue and state, or a set of equal queues to choose from.
    """

    n_lanes: int  # of a link; queue: link * n_lanes + lane
    step: I32_OUT  # [S] 2 * queue, + 1 if the destination is behind it, else the next state is; below 0: ~ a set of queues
    following: I64  # [S] where the states behind the queues of a set begin in `next_state`; empty where there are no sets
    next_state: I32  # a state; NO_STATE: the destination
    group_start: I64  # [G + 1]
    group_queue: I32  # the queues of each set
    first_state: I32  # [V] of each message; NO_STATE: a task without hops
    back_state: I32  # [V] of its acknowledgements; NO_STATE: it has none
    choice_state: I32  # [V] of each message that chooses a path when it starts: where paths begin; its first state is its own

    @property
    def entries(self) -> I64:
        """[V + 1] the offset of each message in the list of queues at which messages start."""
        has_way = self.first_state >= 0
        step = self.step[self.first_state[has_way]]
        sizes = np.zeros(len(has_way), np.int64)
        sizes[has_way] = np.where(step < 0, np.append(np.diff(self.group_start), 0)[~np.minimum(step, -1)], 1)
        return column(np.concatenate(([0], np.cumsum(np.where(has_way, sizes, 0)))), np.int64)


def path_ways(graph: Graph, links: Links, n_lanes: int = 1, back: Routes | None = None, lane: I16 | None = None) -> Ways:
    """Return the paths of messages where each message has one path: the hops of its task.

    Args:
        graph: The graph.
        links: [L] its links.
        n_lanes: The number of lanes of a link.
        back: [V] the paths of acknowledgements, and their lanes, if not the first; by default there are no acknowledgements.
        lane: [H] the lane of each hop; by default the first.
    """
    if back is None:
        back = Routes.laid(np.zeros(graph.n_tasks, np.int64), [])
    n_hops = len(graph.hop_link)
    link = np.concatenate((graph.hop_link, back.link))
    queue = link.astype(np.int64) * n_lanes
    queue[:n_hops] += 0 if lane is None else lane
    queue[n_hops:] += 0 if back.virtual is None else back.virtual
    start = np.concatenate((graph.hop_start, n_hops + back.start[1:]))
    step = 2 * queue
    step[start[1:][np.diff(start) > 0] - 1] += 1
    states = column(np.where(np.diff(start) > 0, start[:-1], NO_STATE), np.int32)
    none, no_states = column([], np.int32), column([], np.int64)
    first, last = states[: graph.n_tasks], states[graph.n_tasks :]
    return Ways(n_lanes, column(step, np.int32), no_states, none, column([0], np.int64), none, first, last, none)


def routed_ways(graph: Graph, topology: Topology, n_lanes: int, key: I64, *, has_acks: bool) -> Ways:
    """Return the paths of messages where each message has one path, on the lanes that the topology's routes name.

    Where routes name lanes, an acknowledgement takes the topology's own route back, so that all packets keep to routes that the
    topology declares free of deadlock. Else all use the first lane, and an acknowledgement takes the message's path backwards.

    Args:
        graph: The graph.
        topology: Its topology.
        n_lanes: The fewest lanes of a link.
        key: [V] the key of each message's route.
        has_acks: Whether there are acknowledgements.

    Raises:
        InputError: A message does not take the route of its key where routes name lanes; or there is no way back.
    """
    src, dst = message_ends(graph, topology.links)
    there = _own_routes(topology, src, dst, key)
    if there.virtual is None:
        return path_ways(graph, topology.links, n_lanes, backwards(graph, topology.links) if has_acks else None)
    if not np.array_equal(there.start, graph.hop_start) or not np.array_equal(there.link, graph.hop_link):
        raise InputError(
            f"packets: a message does not take the route of its key on {topology.name}; give the keys of the routes"
        )
    back = _own_routes(topology, dst, src, key) if has_acks else None
    named = [routes.virtual for routes in (there, back) if routes is not None and routes.virtual is not None]
    most = max(n_lanes, *(int(lanes.max(initial=0)) + 1 for lanes in named))
    return path_ways(graph, topology.links, most, back, there.virtual)


def in_lanes(ways: Ways, lane_set: I64, n_sets: int) -> Ways:
    """Return paths on which each message and its acknowledgements keep to one set of the lanes of each port.

    Args:
        ways: Paths where each message has one path.
        lane_set: [V] the number of the set of each message; set 0 has the first lanes of a port.
        n_sets: The number of sets, each with as many lanes as `ways` has.

    Raises:
        InputError: A port would have more lanes than it can have.
    """
    n_lanes = ways.n_lanes * n_sets
    if n_lanes > MOST_LANES:
        raise must_be("packets", "lanes of a port", f"at most {MOST_LANES}", n_lanes, "take fewer jobs or priorities")
    first, of = np.concatenate((ways.first_state, ways.back_state)), np.tile(lane_set, 2)
    order = np.argsort(first, kind="stable")[int((first < 0).sum()) :]
    begins = np.searchsorted(first[order], np.arange(len(ways.step)), "right") - 1
    link, lane = np.divmod(ways.step.astype(np.int64) >> 1, ways.n_lanes)
    queue = link * n_lanes + of[order][begins] * ways.n_lanes + lane
    if int(queue.max(initial=0)) >= MOST_QUEUES:
        raise must_be("packets", "links times lanes", f"at most {MOST_QUEUES}", int(queue.max()) + 1)
    return ways._replace(n_lanes=n_lanes, step=column(2 * queue + (ways.step & 1), np.int32))


def message_ends(graph: Graph, links: Links) -> tuple[I64, I64]:
    """Return [V] the nodes where each message begins and ends; NO_STATE for a task without hops."""
    is_message = np.diff(graph.hop_start) > 0
    src, dst = np.full(graph.n_tasks, NO_STATE), np.full(graph.n_tasks, NO_STATE)
    src[is_message] = links.src[graph.hop_link[graph.hop_start[:-1][is_message]]]
    dst[is_message] = links.dst[graph.hop_link[graph.hop_start[1:][is_message] - 1]]
    return src, dst


def _own_routes(topology: Topology, src: I64, dst: I64, key: I64) -> Routes:
    """Return [V] the route that the topology gives each message; empty for a task without hops."""
    is_message, hops = src >= 0, np.zeros(len(src), np.int64)
    found = topology.routes(src[is_message], dst[is_message], key[is_message])
    hops[is_message] = found.hops
    return Routes.laid(hops, found.link, found.virtual)


def reverse_links(links: Links) -> I64:
    """Return [L] the link in the opposite direction of each link; -1 if there is none. Equal links are paired in order."""
    n_nodes = 1 + int(max(links.src.max(initial=0), links.dst.max(initial=0)))
    there = links.src.astype(np.int64) * n_nodes + links.dst
    back = links.dst.astype(np.int64) * n_nodes + links.src
    by_there, by_back = np.argsort(there, kind="stable"), np.argsort(back, kind="stable")
    rank = np.empty(len(links), np.int64)
    rank[by_back] = np.arange(len(links)) - np.searchsorted(back[by_back], back[by_back])
    place = np.searchsorted(there[by_there], back) + rank
    found = by_there[np.minimum(place, max(0, len(links) - 1))]
    return np.where((place < len(links)) & (there[found] == back), found, -1)


def backwards(graph: Graph, links: Links) -> Routes:
    """Return the path of each task in the opposite direction.

    Raises:
        InputError: A link that a message crosses has no link back.
    """
    hops = np.diff(graph.hop_start)
    ends = np.repeat(graph.hop_start[1:], hops)
    place = ends - 1 - (np.arange(len(graph.hop_link)) - np.repeat(graph.hop_start[:-1], hops))
    back = reverse_links(links)[graph.hop_link[place]]
    if (back < 0).any():
        link = int(graph.hop_link[place[int(np.argmax(back < 0))]])
        ends_of = f"from node {links.src[link]} to node {links.dst[link]}"
        raise InputError(f"network: link {link} {ends_of} has no link back for acknowledgements; take a network without them")
    return Routes(graph.hop_start, column(back, np.int32))


def shortest_ways(graph: Graph, links: Links, passes: Bool, n_lanes: int = 1, *, is_chosen: bool = False) -> Ways:
    """Return the paths of messages where each message may take all the shortest paths (fewest links) between its ends.

    Args:
        graph: The graph.
        links: [L] its links.
        passes: [n_nodes] the nodes that pass on packets for others.
        n_lanes: The number of lanes of a link; all packets take the first.
        is_chosen: Whether a message chooses one of these paths when it starts, for all its packets.
    """
    src, dst = message_ends(graph, links)
    is_message = src >= 0
    ends = ascending(np.concatenate((src[is_message], dst[is_message])))
    table = _Table(links, passes, n_lanes)
    base = np.full(len(passes), NO_STATE)
    for node in ends.tolist():
        base[node] = table.add(node)
    ways = table.ways()
    first = column(np.where(is_message, base[dst] + src, NO_STATE), np.int32)
    ways = ways._replace(first_state=first, back_state=column(np.where(is_message, base[src] + dst, NO_STATE), np.int32))
    return _with_own_states(ways, table.hops(first)) if is_chosen else ways


def check_equal_ways(graph: Graph, topology: Topology, spray: Spray, ways: Ways) -> None:
    """Check that the ways of a spread are all the shortest paths, among which packets choose.

    Args:
        graph: The graph.
        topology: The topology of its links.
        spray: The rule by which the topology spreads messages over ways.
        ways: The shortest paths of all messages, each of which chooses one.

    Raises:
        InputError: A message has other ways.
    """
    src, dst = message_ends(graph, topology.links)
    own = np.flatnonzero((src >= 0) & (np.maximum(src, dst) < topology.n_npus))
    _, rows = np.unique(src[own] * topology.n_nodes + dst[own], return_index=True)
    own = own[rows]
    counts, found = spray.ways(src[own], dst[own])
    for number, (state, low) in enumerate(zip(ways.choice_state[own].tolist(), np.cumsum(counts) - counts, strict=True)):
        lengths = ascending(found.hops[low : low + counts[number]])
        if len(lengths) > 1 or _paths(ways, state) != (int(lengths[0]), int(counts[number])):
            pair = f"from node {src[own[number]]} to node {dst[own[number]]}"
            raise InputError(
                f"packets: {topology.name} has other ways {pair} than the shortest paths, of which packets take one; take the "
                "fluid fabric, or the topology with another route="
            )


def _paths(ways: Ways, first: int) -> tuple[int, int]:
    """Return the number of links of the paths that begin in a state, all of one length, and the number of the paths."""
    length, here = 0, {first: 1}
    while NO_STATE not in here:
        after = Counter[int]()
        for state, count in here.items():
            group = ~int(ways.step[state])
            begin, size = int(ways.following[state]), int(ways.group_start[group + 1] - ways.group_start[group])
            for behind in ways.next_state[begin : begin + size].tolist():
                after[behind] += count
        length, here = length + 1, after
    return length, here[NO_STATE]


def _with_own_states(ways: Ways, hops: I64) -> Ways:
    """Return the ways of messages that choose a path: each has states of its own, which are filled when it starts.

    Args:
        ways: All paths that each may choose from.
        hops: [V] the links of a path.
    """
    start = np.concatenate(([0], np.cumsum(hops)))
    own = np.where(hops > 0, len(ways.step) + start[:-1], NO_STATE)
    return ways._replace(
        step=column(np.concatenate((ways.step, np.zeros(int(start[-1]), np.int32))), np.int32),
        first_state=column(own, np.int32),
        choice_state=ways.first_state,
    )


class _Table:
    """A table of the states of the shortest paths to some nodes, built one node at a time."""

    def __init__(self, links: Links, passes: Bool, n_lanes: int) -> None:
        self.links, self.passes, self.n_lanes = links, passes, n_lanes
        self.groups: dict[bytes, int] = {b"": 0}
        self.queues: list[I64] = [np.empty(0, np.int64)]
        self.group: list[I64] = []
        self.following: list[I64] = []
        self.next_state: list[I64] = []
        self.away: list[I64] = [np.empty(0, np.int64)]
        self.n_states = self.n_next = 0

    def add(self, to: int) -> int:
        """Add the states of the shortest paths to node `to`, and return the number of the first: the state of node 0."""
        n_nodes, base = len(self.passes), self.n_states
        away = _distances(self.links, self.passes, to)
        nearer = np.flatnonzero((away[self.links.dst] + 1 == away[self.links.src]) & self._may_continue(to))
        nearer = nearer[np.argsort(self.links.src[nearer], kind="stable")]
        bounds = np.searchsorted(self.links.src[nearer], np.arange(n_nodes + 1))
        queues, lists = nearer * self.n_lanes, bounds.tolist()
        self.away.append(away)
        self.group.append(np.array([self._group(queues[a:b]) for a, b in pairwise(lists)]))
        self.following.append(self.n_next + bounds[:-1])
        heads = self.links.dst[nearer]
        self.next_state.append(np.where(heads == to, NO_STATE, base + heads))
        self.n_states, self.n_next = base + n_nodes, self.n_next + len(nearer)
        return base

    def _may_continue(self, to: int) -> Bool:
        """Return [L] whether a link ends at node `to`, or at a node that passes packets on."""
        return np.asarray((self.links.dst == to) | self.passes[self.links.dst])

    def _group(self, queues: I64) -> int:
        """Return the number of a set of equal queues among which a packet chooses; a new set gets the next number."""
        key = queues.tobytes()
        if key not in self.groups:
            self.groups[key] = len(self.queues)
            self.queues.append(queues)
        return self.groups[key]

    def hops(self, state: I32) -> I64:
        """Return the number of links from each of some states to its destination; 0 for NO_STATE."""
        away = np.append(np.concatenate(self.away), 0)
        return np.asarray(away[state])

    def ways(self) -> Ways:
        """Return the states of the table as `Ways` without messages."""
        none = np.empty(0, np.int32)
        sizes = [len(own) for own in self.queues]
        return Ways(
            self.n_lanes,
            column(~np.concatenate([none, *self.group]), np.int32),
            column(np.concatenate([none, *self.following]), np.int64),
            column(np.concatenate([none, *self.next_state]), np.int32),
            column(np.concatenate(([0], np.cumsum(sizes))), np.int64),
            column(np.concatenate(self.queues), np.int32),
            none,
            none,
            none,
        )


def _distances(links: Links, passes: Bool, to: int) -> I64:
    """Return [n_nodes] the number of links from each node to node `to`; a large number if no path leads to it."""
    away = np.full(len(passes), len(passes) + 2)
    away[to], reached, n = 0, np.array([to]), 0
    while len(reached):
        n += 1
        entered = np.zeros(len(passes), bool)
        entered[reached] = True
        src = links.src[entered[links.dst]]
        reached = ascending(src[away[src] > n])
        away[reached] = n
        reached = reached[passes[reached]]
    return away
