"""The schedules that are tried for one collective: families of variants, each in the order of their pieces.

A reduce_scatter takes forests that lead to their roots, an all_reduce one of these and then one that leads from them. On a grid
of translations the second half is made first, and its dual is the first half.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from math import lcm

import numpy as np

from emu.collective.operation import Operation
from emu.collective.schedule import Schedule
from emu.collective.transform import concatenate, dual
from emu.synthesis.adding.adding_hops import adding_hops, adding_switches
from emu.synthesis.adding.steiner_program import steiner_forests
from emu.synthesis.both_ways import divide
from emu.synthesis.capacities import best_time, capacity_network
from emu.synthesis.forest import Forest, forest_in, grow_forest
from emu.synthesis.hop_rates import forest_by_rates
from emu.synthesis.hops import HopNetwork
from emu.synthesis.matching import matched_schedule
from emu.synthesis.ordering import lanes, streams
from emu.synthesis.splitting import Tick
from emu.synthesis.translation import grid_hops, grid_schedule
from emu.topology.topology import Topology

SYNTHESIS_OPERATIONS = ("all_gather", "reduce_scatter", "all_reduce", "broadcast", "reduce", "all_to_all")
_INWARD = {
    "all_gather": (False,),
    "broadcast": (False,),
    "reduce_scatter": (True,),
    "reduce": (True,),
    "all_reduce": (True, False),
}
_ROOTED = frozenset({"broadcast", "reduce"})
_MOST_TREES = 2**9  # trees of all roots together, at most, if there are not more roots
_MOST_ROWS = 2**21  # of a schedule
_MOST_DIVIDED = 128  # trees of an all_reduce whose links are divided by a linear program
_MOST_MATCHED = 2**21  # units of rank 0's trees, times the ranks and the hops of rank 0
_SMALL = 16  # latencies of a hop; blocks of less time are small
_FEW_HOPS = 2**10  # hops of trees that are ordered in no time
_FEW = 2**15  # ranks times hops, of which a matching takes no time

MATCHED, LANES, STREAMS, HOP_STREAMS, BOTH_WAYS = "matched", "lanes", "streams", "streams by hops", "both ways"
GRID, GRID_AXES, IN_SWITCHES = "translated", "translated along axes", "in switches"


@dataclass(frozen=True, slots=True)
class Variant:
    """How a schedule was made."""

    how: str  # by which kind of order
    trees: int  # of all roots
    units: int  # parts of a block, each of which takes a tree
    pieces: int  # of a unit
    depth: int  # hops from a root to the farthest rank; 0: not counted


Build = Callable[[], Schedule | None]  # None: it would be too large
Family = Iterator[tuple[Variant, Build]]


@dataclass(eq=False, slots=True)
class VariantFamilies:
    """The families of schedules of one operation on the hops of its ranks."""

    topology: Topology
    hops: HopNetwork
    op: Operation
    block_bytes: float
    tick: Tick
    forests: dict[bool, tuple[Forest, ...]] = field(default_factory=dict, init=False)  # False: by capacities; True: by rates

    @property
    def roots(self) -> list[int]:
        """The ranks that spread, or get, a block."""
        return [self.op.root] if self.op.name in _ROOTED else list(range(self.op.n_ranks))

    @property
    def root_bytes(self) -> float:
        """The bytes of the block of a root; the block of an all_reduce is divided over all roots."""
        return self.block_bytes / (self.op.n_ranks if self.op.name == "all_reduce" else 1)

    def all(self) -> Iterator[Family]:
        """Yield the families that are tried; those that take the least work come first."""
        return (self.family(how) for how in self._tried())

    def _tried(self) -> Iterator[str]:
        """Yield the kinds of order that are tried."""
        if self.op.n_ranks > 1 and len(adding_switches(self.topology)):
            yield IN_SWITCHES
        if self.op.n_ranks > 1 and self.op.name not in _ROOTED:
            yield from (GRID, GRID_AXES)
        if self.hops.grid is not None:  # the hops of the other ranks are not there
            return
        if self.is_small or len(self.hops.src) * self.op.n_ranks <= _FEW:
            yield MATCHED
        if self.op.n_ranks < 2:
            return
        if self.is_direct or self.is_small or len(self.roots) * self.op.n_ranks <= _FEW_HOPS:
            yield LANES
        yield STREAMS
        if not self.is_direct:
            yield HOP_STREAMS
        if self.op.name == "all_reduce":
            yield BOTH_WAYS

    def family(self, how: str) -> Family:
        """Return the schedules of one kind of order, with more and more units or pieces."""
        if self.op.n_ranks < 2:
            return iter([(Variant(MATCHED, 0, 1, 1, 0), self._nothing)])
        if how in (GRID, GRID_AXES):
            return self._on_grid(how)
        made = {MATCHED: self._matched, BOTH_WAYS: self._both_ways, IN_SWITCHES: self._in_switches}
        if how in made:
            return made[how]()
        return self._ordered(how, 1 if how == LANES or self.is_small else 8)

    @property
    def is_small(self) -> bool:
        """True if a block takes little time on a hop beside the latency of the hop."""
        return bool((self.root_bytes / self.hops.rate_Bps < _SMALL * self.hops.head_s).any())

    @property
    def is_direct(self) -> bool:
        """True if every hop is one link, which no other pair of ranks shares."""
        return len(self.hops.link) == len(self.hops.src)

    def _nothing(self) -> Schedule:
        """Return the schedule of one rank, which sends nothing."""
        return Schedule.build(1, 1, ())

    def _on_grid(self, how: str) -> Family:
        """Yield schedules by translations, over all hops or those along axes, with more and more units of a block."""
        grid = grid_hops(self.topology, self.hops)
        grid = grid.along_axes() if grid is not None and how == GRID_AXES else grid
        units = 1
        while grid is not None and units * grid.n_ranks * len(grid.to) <= _MOST_MATCHED:

            def build(units: int = units) -> Schedule:
                half = grid_schedule(grid, units, self.root_bytes / units, self.tick)
                parts = [dual(half) if inward else half for inward in _INWARD[self.op.name]]
                return parts[0] if len(parts) == 1 else concatenate(*parts)

            yield Variant(how, units * grid.n_ranks, units, 1, 0), build
            units *= 2

    def _matched(self) -> Family:
        """Yield schedules by matching in time, with more and more units of a block."""
        for units in (1, 2, 4):

            def build(units: int = units) -> Schedule | None:
                given = self.roots, units, self.root_bytes / units, self.tick
                return _joined([matched_schedule(self.hops, *given, inward=inward) for inward in _INWARD[self.op.name]])

            yield Variant(MATCHED, units * len(self.roots), units, 1, 0), build

    def _ordered(self, how: str, first: int) -> Family:
        """Yield schedules of packed forests, from a number of pieces on, each with twice as many as the one before."""
        forests, pieces = self._forests(by_rates=how == HOP_STREAMS), first
        if not forests:
            return
        trees, units = len(forests[0].root), len(forests[0].root) // len(self.roots)
        while trees * (self.op.n_ranks - 1) * pieces * len(forests) <= _MOST_ROWS or pieces == first:

            def build(pieces: int = pieces) -> Schedule | None:
                if how != LANES:
                    return streams(forests, self.hops, pieces)
                carried = self.root_bytes * len(self.roots) / trees
                return _joined([lanes(each, self.hops, carried, pieces, self.tick) for each in forests])

            yield Variant(how, trees, units, pieces, max(each.depth for each in forests)), build
            pieces *= 2

    def _forests(self, *, by_rates: bool) -> tuple[Forest, ...]:
        """Return the packed forests of the operation, with equally many units; empty if they would take too large a program.

        Args:
            by_rates: Whether they are packed in the rates of hops, in place of the capacities of links.
        """
        if by_rates not in self.forests:
            shares = np.zeros(self.op.n_ranks, np.int64)
            shares[self.roots] = 1
            most = max(1, _MOST_TREES // len(self.roots) // (1 if len(self.roots) > 1 else 32))
            grow = forest_by_rates if by_rates else grow_forest
            ways = _INWARD[self.op.name]
            found = [grow(self.hops, shares, min(most, 32), self.tick, inward=inward) for inward in ways]
            self.forests[by_rates] = _alike([forest for forest in found if forest is not None])
        return self.forests[by_rates]

    def _both_ways(self) -> Family:
        """Yield schedules of an all_reduce by forests to the roots and from them at the same time, in more and more pieces."""
        net = capacity_network(self.hops)
        every = np.ones(self.op.n_ranks, np.int64)
        in_a_row = float(best_time(net, every) + best_time(net.back(), every)) / self.op.n_ranks
        divided = divide(net, _MOST_DIVIDED, in_a_row, self.tick)
        if divided is None:
            return
        turned = np.ascontiguousarray(divided.inward.T), divided.given
        forests = (
            forest_in(self.hops, net.back(), turned, self.tick, inward=True),
            forest_in(self.hops, net, (divided.outward, divided.given), self.tick, inward=False),
        )
        yield from self._in_pieces(BOTH_WAYS, forests, self.hops)

    def _in_switches(self) -> Family:
        """Yield schedules whose trees pass switches that copy and add, in more and more pieces."""
        hops = adding_hops(self.topology, tuple(self.hops.npus.tolist()))
        if hops is None:
            return
        roots = [range(hops.n_ranks)] if self.op.name == "all_reduce" else [[root] for root in self.roots]
        most = max(1, _MOST_TREES // len(roots) // (1 if len(roots) > 1 else 4))
        found = steiner_forests(hops, roots, _INWARD[self.op.name], min(most, 128), self.tick)
        if found is not None:
            yield from self._in_pieces(IN_SWITCHES, found[1], found[0])

    def _in_pieces(self, how: str, forests: tuple[Forest, ...], hops: HopNetwork) -> Family:
        """Yield the streams of forests with the same roots, in more and more pieces."""
        trees, pieces = len(forests[0].root), 1 if self.is_small else 8
        blocks = 1 if self.op.name == "all_reduce" else len(self.roots)
        while len(forests) * trees * (self.op.n_ranks - 1) * pieces <= _MOST_ROWS:

            def build(pieces: int = pieces) -> Schedule:
                return streams(forests, hops, pieces)

            yield Variant(how, trees, trees // blocks, pieces, max(each.depth for each in forests)), build
            pieces *= 2


def _alike(forests: list[Forest]) -> tuple[Forest, ...]:
    """Return one or two forests with equally many units: trees are repeated."""
    trees = [len(each.root) for each in forests]
    return tuple(each.scaled(lcm(*trees) // len(each.root)) for each in forests)


def _joined(parts: list[Schedule | None]) -> Schedule | None:
    """Return one or two schedules as one, one after the other; None if one of them is missing."""
    there = [part for part in parts if part is not None]
    if len(there) < len(parts):
        return None
    return there[0] if len(there) == 1 else concatenate(there[0], there[1])
