"""All_gathers by translations: trees are grown for rank 0 in time, and every rank sends what the translations make of them.

Where translations of a grid map links onto links, all links of an orbit carry as much at any time. So only the hops of rank 0
are matched to blocks, and its rows are the schedule. Letters: N ranks, J hops of rank 0, L links.
"""

from dataclasses import dataclass

import numpy as np

from emu.arrays import I64
from emu.collective.schedule import Schedule, Sends, Translations
from emu.synthesis.grid_links import GridLinks, grid_links
from emu.synthesis.hops import HopNetwork
from emu.synthesis.matching import MatchedHops, match
from emu.synthesis.splitting import Tick
from emu.topology.topology import Topology


@dataclass(frozen=True, eq=False, slots=True)
class GridHops:
    """The hops of rank 0 under the translations of a grid."""

    links: GridLinks
    to: I64  # [J] the rank that each hop leads to
    channel: I64  # [J]
    head_s: list[float]  # [J]
    taken: list[list[tuple[int, float]]]  # [J] orbits of links that a hop crosses, each with seconds for a byte

    @property
    def dims(self) -> tuple[int, ...]:
        """The dims of the grid."""
        return self.links.dims

    @property
    def n_ranks(self) -> int:
        """The number of ranks, N."""
        return int(np.prod(self.dims))

    def along_axes(self) -> "GridHops | None":
        """Return the hops that lead along one axis of the grid; None if these are all, or leave a rank out."""
        kept = np.flatnonzero(self.links.is_along_axis(self.to))
        if len(kept) == len(self.to) or not self.links.reaches_all(self.to[kept]):
            return None
        head_s, taken = [self.head_s[hop] for hop in kept], [self.taken[hop] for hop in kept]
        return GridHops(self.links, self.to[kept], self.channel[kept], head_s, taken)


def grid_hops(topology: Topology, hops: HopNetwork) -> GridHops | None:
    """Return the hops of rank 0 if translations of a grid of all NPUs map links onto links; None if none do."""
    n = hops.n_ranks
    if n != topology.n_npus or not np.array_equal(hops.npus, np.arange(n)):
        return None
    links = grid_links(topology)
    return None if links is None else _of_rank_0(hops, links)


def _of_rank_0(hops: HopNetwork, links: GridLinks) -> GridHops:
    """Return the hops of rank 0, with the load that they put on the orbits of links if every rank sends at the same time."""
    own, orbit = np.flatnonzero(hops.src == 0), links.orbit
    members, n = np.bincount(orbit), hops.n_ranks
    rate_of = hops.capacity_Bps[np.unique(orbit, return_index=True)[1]]
    taken = list[list[tuple[int, float]]]()
    for hop in own.tolist():
        crossed, times = np.unique(orbit[hops.links_of(hop)], return_counts=True)
        seconds = times * n / members[crossed] / rate_of[crossed]
        taken.append(list(zip(crossed.tolist(), seconds.tolist(), strict=True)))
    return GridHops(links, hops.dst[own], hops.channel[own], hops.head_s[own].tolist(), taken)


def grid_schedule(grid: GridHops, units: int, unit_bytes: float, tick: Tick) -> Schedule:
    """Return the all_gather in which every rank sends what translations make of the sends of rank 0.

    Each unit of each block is sent as early as the links allow.

    Args:
        grid: The hops of rank 0.
        units: Units of a block.
        unit_bytes: Bytes of a unit.
        tick: It is called now and then.
    """
    n = grid.n_ranks
    moves = Translations(grid.dims, n, 1)
    every = range(len(grid.to))
    ahead = [moves.rank(np.arange(n), to).tolist() for to in grid.to.tolist()]
    asked = MatchedHops([every] * n, ahead, grid.channel.tolist(), grid.head_s, grid.taken)
    found = match(asked, [0] * units, unit_bytes, tick)
    slot = moves.opposite(found.rank) * units + found.tree  # where the sender is rank 0
    order = np.argsort(found.level, kind="stable")
    parts = np.split(order, np.flatnonzero(np.diff(found.level[order])) + 1)
    rounds = (Sends(0, grid.to[found.hop[now]], slot[now], channel=grid.channel[found.hop[now]]) for now in parts)
    return Schedule.build(n, n * units, rounds, translate=grid.dims)
