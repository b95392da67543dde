"""Routes of least cost on any links: of fewest links unless links have costs, and of those the fastest.

P asked pairs, L links, D destinations. A way is as fast as its narrowest link. Cheapest first, widest second keeps Dijkstra's
search right (Sobrinho, Algebra and algorithms for QoS path computation and hop-by-hop routing in the Internet, 2002).
"""

from dataclasses import dataclass, replace
from functools import partial

import numpy as np
from numpy.typing import ArrayLike

from emu.arrays import I64, Bool, column
from emu.topology.parts.routing import between_npus, either, mix
from emu.topology.path.ends import Ends
from emu.topology.topology import Links, Router, Routes

UNREACHED = 2**38  # a cost
_CHUNK_WORK = 2**22  # destinations times links or nodes that are held at a time


def shortest(links: Links, n_nodes: int, relays: ArrayLike | None = None, cost: ArrayLike | None = None) -> "Ways":
    """A router over ways of least cost; where several links lead on equally well, a hash of the key takes one: ECMP.

    Args:
        links: Of which every route is made.
        n_nodes: Numbered 0..n_nodes-1.
        relays: [n_nodes] whether a node passes on what is not for it; unless given, all do.
        cost: [L] whole numbers of 1 or more, which alone decide. Unless given, ways with the fewest links, and of those the
            ones that are the fastest by their narrowest link.
    """
    passes = np.ones(n_nodes, np.bool_) if relays is None else column(relays, np.bool_)
    known, place = np.unique(links.bandwidth_Bps if cost is None else np.zeros(len(links)), return_inverse=True)
    narrow, rates = column(len(known) - 1 - place, np.int64), max(1, len(known))
    each = column(np.ones(len(links)) if cost is None else cost, np.int64)
    ends = (Ends.of(column(end, np.int64), n_nodes) for end in (links.src, links.dst))
    return Ways(links, passes, each, narrow, rates, *ends)


def or_shortest(own: Router, links: Links, n_nodes: int, n_npus: int) -> Router:
    """`own` between NPUs; from or to a switch, where a collective's helper is, a shortest path."""
    return between_npus(own, partial(_shortest, links, n_nodes), n_npus)


def _shortest(links: Links, n_nodes: int, src: I64, dst: I64, key: I64) -> Routes:
    """Indexed when it is asked: of most topologies it never is. One link of a pair alone is its shortest path."""
    ends = column(links.src, np.int64) * n_nodes + links.dst
    order = np.argsort(ends, kind="stable")
    first, last = (np.searchsorted(ends[order], src * n_nodes + dst, side) for side in ("left", "right"))
    one = last - first == 1
    direct = Routes(np.arange(int(one.sum()) + 1), column(order[first[one]], np.int32))
    if one.all():
        return direct
    return either(one, direct, shortest(links, n_nodes)(src[~one], dst[~one], key[~one]))


@dataclass(frozen=True, eq=False, slots=True)
class Ways:
    """A router over the best ways. A way's grade is its cost times `rates`, and on top how many rates are above its own."""

    links: Links
    passes: Bool  # [nodes]
    cost: I64  # [L]
    narrow: I64  # [L] how many of the rates that are told apart are above the link's
    rates: int  # that are told apart
    out: Ends
    into: Ends

    def __call__(self, src: I64, dst: I64, key: I64) -> Routes:
        """The links from each src to each dst; none where there is no way."""
        return _route(self, src, dst, key)

    def back(self) -> "Ways":
        """The same with every link turned round."""
        turned = replace(self.links, src=self.links.dst, dst=self.links.src)
        return replace(self, links=turned, out=self.into, into=self.out)

    def grades(self, targets: I64) -> I64:
        """[D, nodes] the grade of the best way from each node to each target; at least `UNREACHED * rates`: there is none."""
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
        """The links on the best ways out of some nodes, and the place of each one's node among them.

        Args:
            grades: As `grades` found them.
            row: Of `grades`, for each node.
            here: The nodes.
            narrow: Of the whole way that each node is on.
        """
        link, place = self.out.at(here)
        head, widest = self.links.dst[link], narrow[place]
        rest = grades[row[place], head]
        least = ((grades[row, here] // self.rates)[place] - self.cost[link]) * self.rates
        on = (least <= rest) & (rest <= least + widest) & (self.narrow[link] <= widest)
        on &= self.passes[head] | (rest == 0)
        return link[on], place[on]


def distances(links: Links, n_nodes: int, targets: I64, passes: Bool) -> I64:
    """[D, nodes] links on the way from each node to each target; `UNREACHED` where there is none."""
    ways = shortest(links, n_nodes, passes)
    return column(ways.grades(targets) // ways.rates, np.int64).reshape(len(targets), n_nodes)


def _route(ways: Ways, src: I64, dst: I64, key: I64) -> Routes:
    targets, row = np.unique(dst, return_inverse=True)
    size = max(1, _CHUNK_WORK // max(1, len(ways.links), len(ways.passes)))
    hops = np.zeros(len(src), np.int64)
    walked: list[tuple[I64, I64, I64]] = []  # pair, which of its hops, link
    for first in range(0, len(targets), size):
        pair = np.flatnonzero((row >= first) & (row < first + size))
        grades = ways.grades(targets[first : first + size])
        walked += _walk(ways, grades, (pair, row[pair] - first, src[pair], dst[pair], mix(src[pair], dst[pair], key[pair])))
    if not walked:
        return Routes(column(np.zeros(len(src) + 1), np.int64), column([], np.int32))
    pair, hop, link = (np.concatenate(parts) for parts in zip(*walked, strict=True))
    np.add.at(hops, pair, 1)
    in_order = np.lexsort((hop, pair))
    return Routes(column(np.concatenate(([0], np.cumsum(hops))), np.int64), column(link[in_order], np.int32))


def _walk(ways: Ways, grades: I64, asked: tuple[I64, I64, I64, I64, I64]) -> list[tuple[I64, I64, I64]]:
    """All pairs a link further at a time, until each is there; a pair that nothing joins takes no step."""
    pair, row, here, there, flow = asked
    narrow = grades[row, here] % ways.rates
    walked, hop = [], 0
    going = (grades[row, here] < UNREACHED * ways.rates) & (here != there)
    while going.any():
        pair, row, here, there, flow, narrow = (c[going] for c in (pair, row, here, there, flow, narrow))
        choice, place = ways.best(grades, row, here, narrow)
        choices = np.bincount(place, minlength=len(here))
        link = choice[np.cumsum(choices) - choices + mix(flow, here) % choices]
        walked.append((pair, np.full(len(pair), hop), link))
        here, hop = ways.links.dst[link].astype(np.int64), hop + 1
        going = here != there
    return walked
