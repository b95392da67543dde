"""Routes of least cost over any links: by default the fewest links, and of these paths the fastest.

A path is as fast as its slowest link. With cost first and rate second, Dijkstra's search stays right (Sobrinho, Algebra and
algorithms for QoS path computation and hop-by-hop routing in the Internet, 2002). The module also has distances for any weights
of links (the search of Bellman and Ford, from the nodes that came nearer last), the links at each node for many nodes at one
time, and the paths between one pair of nodes: those that channels take, and others that are as short. Letters: P pairs, L
links, V nodes, D destinations or searches.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import islice

import numpy as np
from numpy.typing import ArrayLike

from emu.arrays import F64, I64, Bool, ascending, column, digest, ramps
from emu.memo import SizedMemo
from emu.topology.builders.route_parts import between_npus, gather, interleave, mix
from emu.topology.topology import Links, Router, Routes, Topology

UNREACHED = 2**38  # cost that stands for: there is no path
_CHUNK_WORK = 2**22  # destinations times links or nodes that are held at one time
_KEPT = 2**22  # grades that a router keeps for further pairs, 32 MiB
_CALL = 128  # numbers that the entry of a call takes beside its hops and pairs
_WALKED = 2**22  # hops and pairs of the calls whose routes a router keeps: a schedule is bounded and timed at several sizes


@dataclass(frozen=True, eq=False, slots=True)
class IncidentLinks:
    """An index of the links at each node, by the node that they leave or by the node that they enter."""

    order: I64  # [L] links, sorted by that end
    starts: I64  # [nodes + 1] where the links of each node begin in `order`

    @classmethod
    def of(cls, node: I64, n_nodes: int) -> "IncidentLinks":
        """Return the table of links, from the node [L] by which each link counts."""
        order = np.argsort(node, kind="stable")
        starts = np.searchsorted(node[order], np.arange(n_nodes + 1))
        return cls(column(order, np.int64), column(starts, np.int64))

    def at(self, nodes: I64) -> tuple[I64, I64]:
        """Return all links at the given nodes, and for each link the index of its node in `nodes`."""
        counts = self.starts[nodes + 1] - self.starts[nodes]
        return self.order[ramps(self.starts[nodes], counts)], np.repeat(np.arange(len(nodes)), counts)


def shortest(links: Links, n_nodes: int, relays: ArrayLike | None = None, cost: ArrayLike | None = None) -> "ShortestPaths":
    """Return a router over paths of least cost; if several links are equally good, a hash of the key picks one (ECMP).

    Args:
        links: The links of which every route is made.
        n_nodes: The number of nodes, 0..n_nodes-1.
        relays: [n_nodes] whether a node passes on messages that are not for it; None: all nodes do.
        cost: [L] whole numbers of 1 or more, which alone decide. None: paths with the fewest links, and of these the fastest by
            their slowest link.
    """
    passes = np.ones(n_nodes, np.bool_) if relays is None else column(relays, np.bool_)
    known, place = np.unique(links.bandwidth_Bps if cost is None else np.zeros(len(links)), return_inverse=True)
    narrow, rates = column(len(known) - 1 - place, np.int64), max(1, len(known))
    each = column(np.ones(len(links)) if cost is None else cost, np.int64)
    ends = (IncidentLinks.of(column(end, np.int64), n_nodes) for end in (links.src, links.dst))
    return ShortestPaths(links, passes, each, narrow, rates, *ends)


def or_shortest(own: Router, links: Links, n_nodes: int, n_npus: int) -> Router:
    """Return a router that uses `own` between NPUs, and shortest paths from or to switches, where helpers may be."""
    return between_npus(own, partial(_shortest, links, n_nodes), n_npus)


def _shortest(links: Links, n_nodes: int, src: I64, dst: I64, key: I64) -> Routes:
    """Return routes on shortest paths, from a table that is built for this call; pairs with a direct link need no table.

    If a single link joins the two nodes of a pair, it is their shortest path, and no table is built.
    """
    ends = column(links.src, np.int64) * n_nodes + links.dst
    order = np.argsort(ends, kind="stable")
    first, last = (np.searchsorted(ends[order], src * n_nodes + dst, side) for side in ("left", "right"))
    one = last - first == 1
    direct = Routes.laid(np.ones(one.sum(), np.int64), order[first[one]])
    if one.all():
        return direct
    return interleave(one, direct, shortest(links, n_nodes)(src[~one], dst[~one], key[~one]))


@dataclass(frozen=True, eq=False, slots=True)
class ShortestPaths:
    """A router over the best paths.

    The *grade* of a path orders paths by cost, then by rate: it is the cost times `rates`, plus the number of rates above its
    own.
    """

    links: Links
    passes: Bool  # [nodes] whether each node relays
    cost: I64  # [L] cost of each link
    narrow: I64  # [L] number of different rates above the link's
    rates: int  # number of different rates
    out: IncidentLinks  # links by the node that they leave
    into: IncidentLinks  # links by the node that they enter
    kept: dict[int, I64] = field(init=False, default_factory=dict)  # [nodes] grades of each target that has been asked for
    walked: SizedMemo[Routes] = field(init=False, default_factory=lambda: SizedMemo(_WALKED, _hops_and_pairs))

    def __call__(self, src: I64, dst: I64, key: I64) -> Routes:
        """Return the best path of each pair, picked by a hash of its ends and its key among equally good ones.

        A pair without a path has no links.
        """
        return self.walked.of(digest((src, dst, key)), lambda: self._routes(src, dst, key))

    def _routes(self, src: I64, dst: I64, key: I64) -> Routes:
        """Return the best path of each pair without a look into the cache."""
        targets, row = np.unique(dst, return_inverse=True)
        size = max(1, _CHUNK_WORK // max(1, len(self.links), len(self.passes)))
        walked = [(np.zeros(0, np.int64), np.zeros(0, np.int64))]  # pair and link
        for first in range(0, len(targets), size):
            pair = np.flatnonzero((row >= first) & (row < first + size))
            grades = self._kept_grades(targets[first : first + size])
            asked = (pair, row[pair] - first, src[pair], dst[pair], mix(src[pair], dst[pair], key[pair]))
            walked += _walk(self, grades, asked)
        return gather(len(src), walked)

    def back(self) -> "ShortestPaths":
        """Return the router over the same links with their directions reversed."""
        turned = replace(self.links, src=self.links.dst, dst=self.links.src)
        return replace(self, links=turned, out=self.into, into=self.out)

    def _kept_grades(self, targets: I64) -> I64:
        """Return the result of `grades` for these targets from a cache, because a step often has the same targets."""
        new = np.array([target for target in targets.tolist() if target not in self.kept], np.int64)
        if (len(self.kept) + len(new)) * len(self.passes) > _KEPT:
            return self.grades(targets)
        if len(new):
            self.kept.update(zip(new.tolist(), self.grades(new), strict=True))
        return np.stack([self.kept[target] for target in targets.tolist()])

    def grades(self, targets: I64) -> I64:
        """Return [D, nodes] the grade of the best path from each node to each target; the best path has the lowest grade.

        A grade is the path's cost times `rates`, plus the number of rates above that of its slowest link. A grade of
        `UNREACHED * rates` or more means that there is no path.
        """
        n = len(self.passes)
        found = np.full(len(targets) * n, UNREACHED * self.rates)
        waiting = np.zeros(len(found), np.bool_)
        settled = np.arange(len(targets)) * n + targets
        found[settled] = 0
        while len(settled):
            waiting[settled] = False
            here = settled[self.passes[settled % n] | (found[settled] == 0)]
            link, place = self.into.at(here % n)
            tail = (here // n * n)[place] + self.links.src[link]
            narrow = found[here] % self.rates
            grade = (found[here] - narrow)[place] + self.cost[link] * self.rates + np.maximum(narrow[place], self.narrow[link])
            better = grade < found[tail]
            np.minimum.at(found, tail[better], grade[better])
            waiting[tail[better]] = True
            left = np.flatnonzero(waiting)
            cost = found[left] // self.rates
            settled = left[cost == cost.min(initial=UNREACHED)]
        return found.reshape(len(targets), n)

    def best(self, grades: I64, row: I64, here: I64, narrow: I64) -> tuple[I64, I64]:
        """Return the links on the best paths out of the given nodes, and the index in `here` of each link's node.

        Args:
            grades: The result of `grades`.
            row: The row of `grades` for each node.
            here: The nodes.
            narrow: For each node, the number of rates above that of the whole path that it is on.
        """
        link, place = self.out.at(here)
        head, widest = self.links.dst[link], narrow[place]
        rest = grades[row[place], head]
        least = ((grades[row, here] // self.rates)[place] - self.cost[link]) * self.rates
        on = (least <= rest) & (rest <= least + widest) & (self.narrow[link] <= widest)
        on &= self.passes[head] | (rest == 0)
        return link[on], place[on]


def _hops_and_pairs(routes: Routes) -> int:
    """Return the number of array entries that stored routes take, for the limit of the cache."""
    return len(routes.link) + len(routes.start) + _CALL


def _walk(ways: ShortestPaths, grades: I64, asked: tuple[I64, I64, I64, I64, I64]) -> list[tuple[I64, I64]]:
    """Return the pair and the link of each hop of all pairs; each round adds one hop to every pair not yet at its target.

    A pair without a path has no hops. Pairs at one node on the way to one target choose among the same links.
    """
    pair, row, here, there, flow = asked
    narrow = grades[row, here] % ways.rates
    walked = []
    going = (grades[row, here] < UNREACHED * ways.rates) & (here != there)
    while going.any():
        pair, row, here, there, flow, narrow = (c[going] for c in (pair, row, here, there, flow, narrow))
        _, first, alike = np.unique(
            (row * len(ways.passes) + here) * ways.rates + narrow, return_index=True, return_inverse=True
        )
        choice, place = ways.best(grades, row[first], here[first], narrow[first])
        choices = np.bincount(place, minlength=len(first))
        link = choice[(np.cumsum(choices) - choices)[alike] + mix(flow, here) % choices[alike]]
        walked.append((pair, link))
        here = ways.links.dst[link].astype(np.int64)
        going = here != there
    return walked


def least_weights(
    ends: tuple[ArrayLike, ArrayLike], weight: ArrayLike, n_nodes: int, sources: Sequence[ArrayLike] | I64
) -> F64:
    """Return [D, V] the least sum of weights from the nearest source of each search to each node; infinite without a path.

    Args:
        ends: [L] and [L] the nodes that each link leaves and enters.
        weight: [L] 0 or more.
        n_nodes: V.
        sources: The nodes of each search, one or several.
    """
    out, dst, cost = IncidentLinks.of(column(ends[0], np.int64), n_nodes), column(ends[1], np.int64), column(weight, np.float64)
    found = np.full(len(sources) * n_nodes, np.inf)
    here: I64 = np.concatenate([row * n_nodes + column(of, np.int64) for row, of in enumerate(sources)])
    found[here] = 0
    while len(here):
        link, place = out.at(here % n_nodes)
        there = (here // n_nodes * n_nodes)[place] + dst[link]
        away = found[here][place] + cost[link]
        better = away < found[there]
        np.minimum.at(found, there[better], away[better])
        here = ascending(there[better])
    return found.reshape(len(sources), n_nodes)


CHANNELS_ASKED = 64  # number of channels whose paths are listed
_MOST_UNTAKEN = 8  # number of paths that are listed although no channel takes them


@dataclass(frozen=True, slots=True)
class PairPath:
    """A path from one node to another: its nodes and links, and the channels that take it with their share of the bytes."""

    nodes: tuple[int, ...]  # [H + 1] nodes in order
    links: tuple[int, ...]  # [H] links in order
    channels: tuple[int, ...]  # channels that take it; none: it is a shortest path that no channel takes
    share: float  # of the bytes of all these channels


def paths_between(topology: Topology, src: int, dst: int) -> tuple[PairPath, ...]:
    """Return the paths that the channels of communicator 0 take, in their order, then other paths of the same length.

    Where messages are sprayed, or choose their way, each channel takes all the ways of the pair, and these are returned; of
    messages that choose, shares are those of many where nothing else is sent.

    Args:
        topology: The topology whose router is used.
        src: A node.
        dst: Another node.

    Raises:
        InputError: A node does not exist, or no path joins the two.
    """
    channels = np.arange(CHANNELS_ASKED)
    routes = topology.routes(np.full_like(channels, src), np.full_like(channels, dst), channels)
    if topology.spray is not None and max(src, dst) < topology.n_npus:
        counts, ways = topology.spray.ways(np.array([src]), np.array([dst]))
        each = [tuple(ways.of(way).tolist()) for way in range(int(counts[0]))]
        return tuple(_path(topology, src, links, tuple(channels.tolist()), 1 / len(each)) for links in each)
    taken: dict[tuple[int, ...], list[int]] = {}
    for channel in channels.tolist():
        taken.setdefault(tuple(routes.of(channel).tolist()), []).append(channel)
    others = islice((links for links in _cheapest(topology, src, dst) if links not in taken), _MOST_UNTAKEN)
    found = [*((links, tuple(by)) for links, by in taken.items()), *((links, ()) for links in others)]
    return tuple(_path(topology, src, links, by, len(by) / CHANNELS_ASKED) for links, by in found)


def _path(topology: Topology, src: int, links: tuple[int, ...], channels: tuple[int, ...], share: float) -> PairPath:
    """Return a path from a node over links, with the channels that take it and the share of their bytes."""
    return PairPath((src, *topology.links.dst[list(links)].tolist()), links, channels, share)


def _cheapest(topology: Topology, src: int, dst: int) -> Iterator[tuple[int, ...]]:
    """Return an iterator over all paths of least cost, each as its links, whatever their bandwidth."""
    cost = np.ones(len(topology.links)) if topology.cost is None else topology.cost
    ways = shortest(topology.links, topology.n_nodes, topology.passes, cost)
    grades = ways.grades(np.array([dst]))
    return _onward(ways, grades, src, dst) if grades[0, src] < UNREACHED else iter(())


def _onward(ways: ShortestPaths, grades: I64, here: int, dst: int) -> Iterator[tuple[int, ...]]:
    """Yield the best paths from a node to a target, each as its links."""
    if here == dst:
        yield ()
        return
    zero = np.zeros(1, np.int64)
    for link in ways.best(grades, zero, np.array([here]), zero)[0].tolist():
        for rest in _onward(ways, grades, int(ways.links.dst[link]), dst):
            yield (link, *rest)
