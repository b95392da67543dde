"""Trees that grow in time: a link that is free is matched to a block that its sender has and its receiver lacks.

No trees are packed before, so that short ways are taken where messages are small. Source: Won et al., TACOS: Topology-aware
collective algorithm synthesizer for distributed machine learning, 2023, arXiv 2304.05301. Letters: N ranks, H hops, S sends.
"""

from collections.abc import Sequence
from heapq import heappop, heappush
from typing import NamedTuple

import numpy as np

from emu.arrays import I64
from emu.collective.schedule import Schedule, Sends
from emu.synthesis.hops import HopNetwork
from emu.synthesis.splitting import Tick

_MOST = 2**19  # waiting of a block for a hop, at most


class MatchedHops(NamedTuple):
    """The hops that are matched, and the times for which they take links or orbits of links."""

    out: Sequence[Sequence[int]]  # [N] the hops by which each rank sends
    ahead: Sequence[Sequence[int]]  # [H][N] the rank to which a hop leads from a rank
    channel: Sequence[int]  # [H] hops of one number are one queue
    head_s: Sequence[float]  # [H]
    taken: Sequence[Sequence[tuple[int, float]]]  # [H] the links that a hop crosses, each with seconds for a byte


class Match(NamedTuple):
    """The sends in the order in which they leave."""

    hop: I64  # [S]
    tree: I64  # [S]
    rank: I64  # [S] the sender
    level: I64  # [S] round


class _Growth:
    """Trees while they grow.

    Args:
        hops: The hops.
        roots: The root of each tree.
        unit_bytes: Bytes that a tree carries.
    """

    def __init__(self, hops: MatchedHops, roots: Sequence[int], unit_bytes: float) -> None:
        self.hops, n = hops, len(hops.out)
        self.taken = [[(link, unit_bytes * second) for link, second in each] for each in hops.taken]
        self.whole = [max(second for _, second in each) for each in self.taken]
        self.free = [0.0] * (1 + max(link for each in hops.taken for link, _ in each))
        self.level = [
            [-1] * n for _ in roots
        ]  # the round in which a rank gets what a tree carries; -1: none, as it is the root
        self.has = [[False] * n for _ in roots]
        self.last: dict[int, int] = {}  # the last round of each queue
        self.sent, self.missing = list[tuple[int, int, int, int]](), len(roots) * (n - 1)
        self.waiting: list[list[tuple[float, int, int]]] = [[] for _ in hops.ahead]  # of each hop: (ready, rank, tree)
        self.idle = [True] * len(hops.ahead)
        self.queue = list[tuple[float, int]]()
        for tree, root in enumerate(roots):
            self._reach(tree, root, 0.0)

    def _reach(self, tree: int, rank: int, now: float) -> None:
        """Note that a rank has what a tree carries from now on, and may send it over its hops."""
        self.has[tree][rank] = True
        for hop in self.hops.out[rank]:
            if not self.has[tree][self.hops.ahead[hop][rank]]:
                heappush(self.waiting[hop], (now, rank, tree))
                if self.idle[hop]:
                    self.idle[hop] = False
                    heappush(self.queue, (now, hop))

    def step(self) -> None:
        """Let the hop that is free first send what has waited longest, or wait for something to send."""
        now, hop = heappop(self.queue)
        waiting, ahead = self.waiting[hop], self.hops.ahead[hop]
        while waiting and self.has[waiting[0][2]][ahead[waiting[0][1]]]:
            heappop(waiting)
        if not waiting:
            self.idle[hop] = True
            return
        start = max(waiting[0][0], *(self.free[link] for link, _ in self.taken[hop]))
        if start <= now:
            self._send(now, hop, heappop(waiting))
            start = max(self.free[link] for link, _ in self.taken[hop])
        heappush(self.queue, (start, hop))

    def _send(self, now: float, hop: int, item: tuple[float, int, int]) -> None:
        """Send what a tree carries over a hop."""
        _, rank, tree = item
        for link, second in self.taken[hop]:
            self.free[link] = now + second
        queue, to = self.hops.channel[hop], self.hops.ahead[hop][rank]
        level = max(self.level[tree][rank], self.last.get(queue, -1)) + 1
        self.last[queue] = self.level[tree][to] = level
        self.sent.append((hop, tree, rank, level))
        self.missing -= 1
        self._reach(tree, to, now + self.whole[hop] + self.hops.head_s[hop])


def match(hops: MatchedHops, roots: Sequence[int], unit_bytes: float, tick: Tick) -> Match:
    """Return the sends by which each tree reaches every rank, each as early as its links allow.

    Args:
        hops: The hops, by which each rank can be reached from each root.
        roots: The root of each tree.
        unit_bytes: Bytes that a tree carries.
        tick: It is called now and then.
    """
    growth, count = _Growth(hops, roots, unit_bytes), 0
    while growth.missing:
        growth.step()
        count += 1
        if not count % 1024:
            tick()
    return Match(*(np.array(each, np.int64) for each in zip(*growth.sent, strict=True)))


def _selected(hops: HopNetwork) -> I64 | None:
    """Return the hops that are matched; if there are many, the first of each pair of ranks; None: there are too many."""
    n, which = hops.n_ranks, np.arange(len(hops.src))
    if n * len(which) > _MOST:
        which = np.unique(hops.src * n + hops.dst, return_index=True)[1]
    return which if n * len(which) <= _MOST else None


def _matched_hops(hops: HopNetwork, which: I64, *, inward: bool) -> MatchedHops:
    """Return some hops for `match`, turned round for an inward schedule."""
    n = hops.n_ranks
    src, dst = (each[which] for each in ((hops.dst, hops.src) if inward else (hops.src, hops.dst)))
    out: list[list[int]] = [[] for _ in range(n)]
    for number, rank in enumerate(src.tolist()):
        out[rank].append(number)
    rate = hops.capacity_Bps
    taken = [[(int(link), 1 / float(rate[link])) for link in hops.links_of(hop)] for hop in which.tolist()]
    return MatchedHops(out, [[to] * n for to in dst.tolist()], hops.queue[which].tolist(), hops.head_s[which].tolist(), taken)


def matched_schedule(
    hops: HopNetwork, roots: Sequence[int], units: int, unit_bytes: float, tick: Tick, *, inward: bool
) -> Schedule | None:
    """Return the schedule that `match` finds for units of the blocks of roots; None: there are too many hops to look at.

    Args:
        hops: The hops between ranks.
        roots: The ranks that spread, or get, a block.
        units: Units of a block.
        unit_bytes: Bytes of a unit.
        tick: It is called now and then.
        inward: Whether blocks are added up at the roots.
    """
    which = _selected(hops)
    if which is None:
        return None
    asked = _matched_hops(hops, which, inward=inward)
    found = match(asked, [root for root in roots for _ in range(units)], unit_bytes, tick)
    hop = which[found.hop]
    level = found.level.max() - found.level if inward else found.level
    order = np.argsort(level, kind="stable")
    rounds = (
        Sends(hops.src[hop[now]], hops.dst[hop[now]], found.tree[now], inward, hops.channel[hop[now]])
        for now in np.split(order, np.flatnonzero(np.diff(level[order])) + 1)
    )
    return Schedule.build(hops.n_ranks, len(roots) * units, rounds)
