"""Spanning trees packed into whole capacities between ranks, each grown arc by arc so that all the others still fit.

An arc is added to a tree if every set of ranks still lets in as much as the trees that have to enter it. How many equal trees
may take the arc is told by one maximum flow; if some may not, the tree is cut in two. Sources: Edmonds 1973; Tarjan, A good
algorithm for edge-disjoint branching, Inf. Process. Lett. 3 (1974); Bérczi and Frank, Packing arborescences, RIMS Kôkyûroku
Bessatsu B23 (2010). Letters: N ranks, k trees of a root.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from emu.arrays import I64, Bool
from emu.errors import RunError
from emu.synthesis.max_flow import ENDLESS, max_flow
from emu.synthesis.splitting import Tick


@dataclass(slots=True)
class Tree:
    """Equal trees: their root, their number, and their arcs in the order in which they were added."""

    root: int
    weight: int
    arcs: list[tuple[int, int]] = field(default_factory=list)  # (rank, rank); the first rank is in the tree already

    @property
    def ranks(self) -> list[int]:
        """The ranks of the tree in the order in which they were reached."""
        return [self.root, *(b for _, b in self.arcs)]


def pack(capacity: I64, given: I64, tick: Tick) -> list[Tree]:
    """Return spanning trees, `given[r]` of root r in all, that fit the capacities together.

    Args:
        capacity: [N, N] whole capacities in which they can be packed.
        given: [N] the number of trees of each root.
        tick: It is called before each flow.

    Raises:
        RunError: They do not fit.
    """
    packing = _Packing(capacity.copy(), given.copy(), tick)
    done = list[Tree]()
    for root in np.flatnonzero(given).tolist():
        packing.waiting[root] = 0
        growing = [Tree(root, int(given[root]))]
        while growing:
            tree = growing.pop()
            rest = packing.grow(tree, growing)
            growing += rest
            done.append(tree)
    return done


@dataclass(eq=False, slots=True)
class _Packing:
    """The capacities that are left, and the trees that have still to be grown."""

    left: I64  # [N, N]
    waiting: I64  # [N] trees of each root that have no arc yet
    tick: Tick

    def grow(self, tree: Tree, partial: list[Tree]) -> list[Tree]:
        """Grow a tree until it spans all ranks, and return what was cut off it: as many trees with fewer arcs.

        Args:
            tree: The tree; its weight gets smaller where fewer of its trees may take an arc.
            partial: Other trees that have arcs and do not span yet.

        Raises:
            RunError: No arc can be added.
        """
        n, cut_off = len(self.left), list[Tree]()
        inside = np.zeros(n, np.bool_)
        inside[tree.ranks] = True
        while len(tree.arcs) < n - 1:
            for a, b in self._frontier(tree, inside):
                amount = self._amount(tree, (a, b), [*partial, *cut_off])
                if amount:
                    break
            else:
                raise RunError(f"synthesize: no arc can be added to a tree of rank {tree.root}; please report it as a bug")
            if amount < tree.weight:
                cut_off.append(Tree(tree.root, tree.weight - amount, list(tree.arcs)))
                tree.weight = amount
            tree.arcs.append((a, b))
            self.left[a, b] -= amount
            inside[b] = True
        return cut_off

    def _frontier(self, tree: Tree, inside: Bool) -> Iterator[tuple[int, int]]:
        """Yield the arcs that lead out of a tree and have capacity left, from its first ranks on, the widest first."""
        for a in tree.ranks:
            out = np.flatnonzero((self.left[a] > 0) & ~inside)
            for b in out[np.argsort(-np.minimum(self.left[a, out], tree.weight), kind="stable")].tolist():
                yield a, b

    def _amount(self, tree: Tree, arc: tuple[int, int], partial: list[Tree]) -> int:
        """Return how many of equal trees may take an arc, so that all trees that do not span yet can still be grown."""
        self.tick()
        (a, b), n = arc, len(self.left)
        most = min(tree.weight, int(self.left[a, b]))
        size = n + len(partial)
        tied = np.zeros((size, size), np.int64)
        tied[:n, :n] = self.left
        tied[a, :n] += self.waiting
        for i, other in enumerate(partial, n):
            tied[a, i] = other.weight
            tied[i, other.ranks] = ENDLESS
        tied[a, a] = 0  # trees that wait at the source have to enter the set as well
        others = int(self.waiting.sum()) + sum(other.weight for other in partial)
        return max(0, min(most, max_flow(tied, a, b, others + most) - others))
