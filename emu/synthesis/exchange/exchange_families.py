"""The schedules that are tried for an all_to_all: blocks straight to their ranks, then parts on the paths of a program.

On a grid whose translations map links onto links, rank 0 stands for all; else, and if that stays far from the bound of prices,
every rank is a source.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from emu.collective.operation import Operation
from emu.collective.schedule import Schedule
from emu.synthesis.exchange.exchange_network import ExchangeNetwork, grid_network, whole_network
from emu.synthesis.exchange.path_program import BlockPaths, block_paths, quickest_paths, whole_parts
from emu.synthesis.exchange.path_schedule import ExchangeParts
from emu.synthesis.hops import HopNetwork
from emu.synthesis.splitting import Tick
from emu.synthesis.translation import grid_hops
from emu.synthesis.variants import Family, Variant
from emu.topology.topology import Topology

QUICKEST, PATH_LANES, PATH_STREAMS = "quickest paths", "paths in lanes", "paths in streams"
GRID_LANES, GRID_STREAMS = "translated paths in lanes", "translated paths in streams"
_MOST_ROWS = 2**21  # of a schedule
_MOST_STORED = 2**18  # of rank 0, of which translations make the others
_PARTS = (1, 2, 4, 8, 16)  # of a block
_CLOSE = 0.99  # of what shares of any size take, from which blocks are cut into no more parts
_MOST_PAIRS = 2**16  # pairs of ranks all of which are looked at, without translations
_LANE_LINKS = 2  # of a hop, at most, where one message after another fills links: a link, or one switch
_DEEP = 4  # first pieces of parts that pass other ranks, in streams


@dataclass(eq=False, slots=True)
class ExchangeFamilies:
    """The families of schedules of an all_to_all on the hops of its ranks."""

    topology: Topology
    hops: HopNetwork
    op: Operation
    block_bytes: float
    tick: Tick
    found: dict[bool, tuple[ExchangeNetwork, BlockPaths] | None] = field(default_factory=dict, init=False)

    def all(self) -> Iterator[Family]:
        """Yield the families that are tried; those that take the least work come first."""
        yield self.family(QUICKEST)
        if self.op.n_ranks > 1:
            yield from (self.family(how) for how in self._tried())

    def _tried(self) -> Iterator[str]:
        """Yield the kinds of order that are tried besides the quickest paths."""
        most_links = int(np.diff(self.hops.start).max())
        for in_lanes, in_streams in ((GRID_LANES, GRID_STREAMS), (PATH_LANES, PATH_STREAMS)):
            if in_lanes == PATH_LANES and self._is_whole_grid():
                return
            both = (in_lanes, in_streams) if most_links == 1 else (in_streams, in_lanes)
            yield from both if most_links <= _LANE_LINKS else (in_streams,)

    def _is_whole_grid(self) -> bool:
        """Return whether translations serve all hops of rank 0 on any channel, so that other sources add nothing."""
        net = self._network(grid=True)
        return net is not None and len(net.number) == (self.hops.src == 0).sum() and not self.hops.ways_differ

    def family(self, how: str) -> Family:
        """Return the schedules of one kind of order, with more and more pieces."""
        if how == QUICKEST:
            return self._quickest()
        return self._ordered(how, grid=how in (GRID_LANES, GRID_STREAMS), in_lanes=how in (GRID_LANES, PATH_LANES))

    def _network(self, *, grid: bool) -> ExchangeNetwork | None:
        """Return the network of the grid's translations, or that in which every rank is a source; None if there is none."""
        if not grid:
            few = self.op.n_ranks**2 <= _MOST_PAIRS and self.hops.grid is None
            return whole_network(self.hops) if few else None
        hops = grid_hops(self.topology, self.hops)
        return None if hops is None else grid_network(self.hops, hops)

    def _quickest(self) -> Family:
        """Yield the schedule in which every block takes the quickest path, all at the same time."""
        if self.op.n_ranks < 2:
            yield Variant(QUICKEST, 0, 1, 1, 0), lambda: Schedule.build(1, 1, ())
            return
        net = self._network(grid=True) or self._network(grid=False)
        if net is not None:
            paths = quickest_paths(net, self.hops.head_s[net.number])
            parts = ExchangeParts(net, self.hops, paths, np.ones(len(paths.block), np.int64))
            yield Variant(QUICKEST, len(paths.block), 1, 1, parts.depth), lambda: parts.streams(1)

    def _ordered(self, how: str, *, grid: bool, in_lanes: bool) -> Family:
        """Yield schedules of the parts of all blocks on the paths of the program, with more and more pieces."""
        if grid not in self.found:
            net = self._network(grid=grid)
            self.found[grid] = None if net is None else (net, block_paths(net, self.tick))
        if (known := self.found[grid]) is None:
            return
        net, paths = known
        parts = self._parts(net, paths)
        pieces = 1 if in_lanes or parts.depth == 1 else _DEEP
        most = _MOST_STORED if net.dims else _MOST_ROWS
        while parts.n_rows * pieces <= most:

            def build(pieces: int = pieces) -> Schedule:
                each = self.block_bytes / parts.parts
                return parts.lanes(each, pieces, self.tick) if in_lanes else parts.streams(pieces)

            yield Variant(how, len(parts.block), parts.parts, pieces, parts.depth), build
            pieces *= 2

    def _parts(self, net: ExchangeNetwork, paths: BlockPaths) -> ExchangeParts:
        """Return the blocks cut into as few parts as come close to what shares of any size take."""
        best = None
        for parts in _PARTS:
            self.tick()
            count, slowness = whole_parts(net, paths, parts)
            if best is None or slowness < best[1] * (1 - 1e-3):
                best = count, slowness
            if paths.slowness >= _CLOSE * slowness:
                break
        assert best is not None
        return ExchangeParts(net, self.hops, paths, best[0])
