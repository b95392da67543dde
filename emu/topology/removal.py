"""A topology without its failed parts: intact routes stay, and the other pairs get new routes."""

from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import ArrayLike

from emu.arrays import I64, Bool, column
from emu.equivalence import components
from emu.errors import must_be
from emu.topology.builders.route_parts import interleave, mix
from emu.topology.paths.shortest_paths import shortest
from emu.topology.paths.spray import without_links
from emu.topology.topology import CHANNELS, Circuits, Links, Router, Routes, Topology

_TRIES = 32  # keys for which a pair's own route is tried, until one is intact
_MOST_ROUTES = 2**14  # routes that are computed at one time
_TOLD = 3  # failed parts that a name lists


def remove_parts(topology: Topology, *, nodes: ArrayLike = (), links: ArrayLike = ()) -> Topology:
    """Return the topology without failed nodes (and all their links) and without failed links; nodes keep their numbers.

    An intact route stays as it was. A broken route becomes the route of another key of the same pair, if one of the keys that
    are tried has an intact route: this is the topology's own routing, hashed again. Otherwise it becomes a shortest path over
    the remaining links, which passes through NPUs only if they relay in that routing (`Topology.passes`). If a routing avoids
    deadlock by virtual channels, only the intact routes keep that property: a shortest path is on channel 0. A failed NPU has
    no links, so that a route to it is refused.

    Args:
        topology: The topology whose own router is tried first.
        nodes: The failed NPUs and switches.
        links: The failed rows of `topology.links`; the other direction of a cable is a row of its own.

    Raises:
        InputError: There is no such node or link.
    """
    dead_nodes = _mark(topology.name, "node", nodes, topology.n_nodes)
    dead_links = _mark(topology.name, "link", links, len(topology.links))
    dead = dead_links | dead_nodes[topology.links.src] | dead_nodes[topology.links.dst]
    left = Links(*(getattr(topology.links, name)[~dead] for name in Links.__slots__))
    cost = None if topology.cost is None else topology.cost[~dead]
    detour = shortest(left, topology.n_nodes, topology.passes, cost)
    router = _DetourRouter(topology, detour, dead, dead_nodes, column(np.cumsum(~dead) - 1, np.int64))
    turned = topology.circuits and Circuits(partial(_needs, topology.circuits, router), topology.circuits.switching_fs)
    return replace(
        topology,
        name=topology.name + _failure_words(topology, np.flatnonzero(dead_nodes), np.flatnonzero(dead_links)),
        links=left,
        router=router,
        spray=topology.spray and without_links(topology, topology.spray, dead, router.number, detour),
        circuits=turned,
        symmetry=None,
        cost=cost,
        lost=partial(_why, left, topology.n_nodes, dead_nodes),
    )


def _mark(where: str, what: str, given: ArrayLike, count: int) -> Bool:
    """Return [count] a mask that is True at these numbers, after the check that each is within 0..count-1."""
    numbers = column(given, np.int64)
    if len(numbers) and not 0 <= numbers.min() <= numbers.max() < count:
        raise must_be(where, f"a failed {what}", f"one of 0..{count - 1}", f"{numbers.min()}..{numbers.max()}")
    marks = np.zeros(count, np.bool_)
    marks[numbers] = True
    return marks


def _failure_words(topology: Topology, nodes: I64, links: I64) -> str:
    """Return the suffix of a topology's name that lists its failed parts, or their number if there are many."""
    if not len(nodes) and not len(links):
        return ""
    if len(nodes) + len(links) > 2 * _TOLD:
        return f" without {len(nodes) + len(links)} parts"
    ends = ((int(topology.links.src[link]), int(topology.links.dst[link])) for link in links)
    cables = dict.fromkeys((min(pair), max(pair)) for pair in ends)
    parts = [
        *map(topology.node_name, nodes.tolist()),
        *(f"the link {topology.node_name(a)} to {topology.node_name(b)}" for a, b in cables),
    ]
    return f" without {', '.join(parts)}"


def _why(left: Links, n_nodes: int, dead: Bool, src: int, dst: int) -> str:
    """Return the reason why no route leads from one node to another."""
    failed = [str(node) for node in (src, dst) if dead[node]]
    if failed:
        return f"node {' and node '.join(failed)} failed"
    part = components(n_nodes, left.src, left.dst)
    if part[src] != part[dst]:
        return "no links join them"
    return "links join them only through nodes that pass nothing on in this topology's routing"


@dataclass(frozen=True, eq=False, slots=True)
class _DetourRouter:
    """The router of a topology with failed nodes or links.

    A pair keeps its route if all links of it work; else it takes another one.
    """

    topology: Topology  # the whole topology, before the faults
    detour: Router  # the router of shortest paths over what is left
    dead: Bool  # [L] whether each link has failed
    gone: Bool  # [n_nodes] whether each node has failed
    number: I64  # [L] new number of each link

    def __call__(self, src: I64, dst: I64, key: I64) -> Routes:
        asked, lost = self.own(src, dst, key)
        kept = self.topology.router(src[~lost], dst[~lost], asked[~lost])
        kept = replace(kept, link=column(self.number[kept.link], np.int32))
        return interleave(lost, self.detour(src[lost], dst[lost], key[lost]), kept)

    def own(self, src: I64, dst: I64, key: I64) -> tuple[I64, Bool]:
        """Return [P] the key whose original route each pair uses, and [P] whether the pair uses a shortest path instead."""
        asked, lost = key.copy(), self._broken(src, dst, key)
        npus = np.maximum(src, dst) < self.topology.n_npus
        hopeful = npus & ~self.gone[src] & ~self.gone[dst]
        attempt = 0
        while attempt < _TRIES and len(pair := np.flatnonzero(lost & hopeful)):
            some = np.arange(attempt, min(_TRIES, attempt + max(1, _MOST_ROUTES // len(pair))))  # few pairs ask for all at once
            a, b, own = (np.tile(each[pair], len(some)) for each in (src, dst, key))
            other = _other_key(a, b, own, np.repeat(some, len(pair)))
            broken = self._broken(a, b, other).reshape(len(some), -1)
            first = np.where(broken.all(axis=0), -1, (~broken).argmax(axis=0))
            lost[pair], asked[pair] = first < 0, other.reshape(len(some), -1)[first, np.arange(len(pair))]
            attempt += len(some)
        return asked, lost

    def _broken(self, src: I64, dst: I64, key: I64) -> Bool:
        """Return [P] whether the route that each pair has on the whole topology crosses a failed link."""
        found = self.topology.router(src, dst, key)
        pair = np.repeat(np.arange(len(src)), found.hops)
        broken: Bool = np.bincount(pair[self.dead[found.link]], minlength=len(src)) > 0
        return broken


def _other_key(src: I64, dst: I64, key: I64, attempt: I64) -> I64:
    """Return [P] a pseudo-random key for each pair: one of another channel of the same group.

    The first half of the tries keeps the lowest bit of the channel, by which topologies give channels the ports of an NPU in
    turn. So channels stay on their ports while these work.
    """
    drawn = mix(src, dst, key, attempt)
    channel = np.where(attempt < _TRIES // 2, 2 * drawn + key % 2, drawn)
    return column(key // CHANNELS * CHANNELS + channel % CHANNELS, np.int64)


def _needs(whole: Circuits, router: _DetourRouter, src: I64, dst: I64, key: I64) -> tuple[I64, I64]:
    """Return the optical switches on the route of each pair, and their states; a pair on a shortest path needs none."""
    asked, lost = router.own(src, dst, key)
    switch, state = whole.needs(src, dst, asked)
    return np.where(lost[:, None], -1, switch), state
