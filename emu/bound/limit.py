"""How long a collective must take on a topology at least, whatever its schedule: the limit that a time is held against.

An operation moves blocks; a limit is so many seconds for each byte of a block, and a latency that comes on top. Some bounds
are of every schedule; fewer are possible where switches add or copy, so that schedules without helpers have their own.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import numpy as np

from emu.bound.cuts import Cut, best_of, densest, least_cut, parting
from emu.bound.flows import exchange
from emu.bound.latency import crossing_fs, least_latency_fs, message_fs
from emu.bound.network import Network, network
from emu.bound.prices import NEAR, by_prices
from emu.bound.sets import ALL_PAIRS, Groups, groups, tried
from emu.bound.symmetry import Symmetry, symmetry
from emu.bound.trees import all_reduce_by_trees, size_of
from emu.collective.operation import Operation
from emu.topology.topology import Topology
from emu.units import seconds

_FLOW_WORK = 2**22  # arcs of all maximum flows together, or blocks looked at; a second or two
_MOST_PATHS = 2**14  # variables of the linear program of an exchange; a second
_MOST_PRICED = 2**20  # arcs that searches from a rank of each kind pass, for one price list; two seconds for all
_MOST_TREES = 2**13  # of that of trees

# How a bound was found, and what limits.
CUT = "cut"  # some set of nodes cannot send what the others need any faster: the worst of all sets
TRIED = "tried cuts"  # the same, the worst of some sets: the least time may be more
MESSAGES = "messages"  # a byte is not summed up and spread among n ranks, or groups of them, by fewer than 2 (n - 1) messages
PATHS = "paths"  # what all pairs exchange does not fit the links any faster, along any paths
LATENCY = "latency"  # of the quickest path between two ranks


@dataclass(frozen=True, slots=True)
class Term:
    """One bound: so much for each byte of a block, and a latency on top."""

    s_per_byte: float
    latency_fs: int
    by: str


@dataclass(frozen=True, slots=True)
class Limit:
    """What no schedule can beat; and what trees reach in an all_reduce, which is no bound."""

    terms: tuple[Term, ...]  # each holds; () = nothing has to be sent
    trees_s_per_byte: float | None = None  # of the best in-trees and out-trees at once; None: not looked for
    in_a_row_s_per_byte: float | None = None  # of the best reduce_scatter, then the best all_gather

    def least_s(self, block_bytes: int) -> tuple[float, str]:
        """The least time where no block is smaller than `block_bytes`, and by which bound."""
        if not block_bytes or not self.terms:
            return 0.0, ""
        times = [(block_bytes * term.s_per_byte + seconds(term.latency_fs), term.by) for term in self.terms]
        return max(times, key=lambda found: found[0])


@lru_cache(maxsize=256)
def limit_of(topology: Topology, op: Operation, npus: tuple[int, ...], *, helpers: bool) -> Limit:
    """The limit of an operation.

    Args:
        topology: Where no needed pair is unjoined.
        op: What is done.
        npus: [N] of each rank.
        helpers: Whether switches may add and copy; else only ranks do.
    """
    if op.n_ranks < 2:
        return Limit(())
    net = network(topology, npus)
    alike = symmetry(net, topology)
    terms = (Term(0.0, least_latency_fs(net, op), LATENCY), *_terms(net, alike, op, topology.dims, helpers=helpers))
    return Limit(terms, *(_by_trees(net, alike) if op.name == "all_reduce" else ()))


def _terms(net: Network, alike: Symmetry, op: Operation, dims: tuple[int, ...], *, helpers: bool) -> Iterator[Term]:
    if op.name == ALL_PAIRS:
        yield _exchange(net, alike, op, dims, helpers=helpers)
    else:
        yield _of_cut(net, *_cut(net, alike, op, dims), helpers=helpers)
    if op.name == "all_reduce" and not helpers:
        yield Term(net.seconds(_messages(net, alike, dims)), message_fs(net, helpers=False), MESSAGES)


def _of_cut(net: Network, cut: Cut, by: str, *, helpers: bool) -> Term:
    return Term(net.seconds(cut.ratio), crossing_fs(net, cut.inside, helpers=helpers), by)


def _exchange(net: Network, alike: Symmetry, op: Operation, dims: tuple[int, ...], *, helpers: bool) -> Term:
    """What limits all paths at once; a cut where they are too many to search, or links that look alike are not."""
    searched, least_fs = len(alike.ranks) * len(net.src), message_fs(net, helpers=helpers)
    if searched <= _MOST_PATHS:
        return Term(net.seconds(exchange(net, alike)), least_fs, PATHS)
    along = by_prices(net, alike) if searched <= _MOST_PRICED else 0.0
    cut, by = _cut(net, alike, op, dims)
    if cut.ratio > along * (1 + 2 * NEAR):
        return _of_cut(net, cut, by, helpers=helpers)
    return Term(net.seconds(along), least_fs, PATHS)


def _cut(net: Network, alike: Symmetry, op: Operation, dims: tuple[int, ...]) -> tuple[Cut, str]:
    """The cut that limits most, and whether it is the worst of all."""
    if not _searchable(net, alike, op):
        return tried(net, alike, op, dims, most_sets=_FLOW_WORK // (len(net.src) + _held(op))), TRIED
    root, back = net.ranks[op.root], net.back()
    found = {
        "all_gather": lambda: densest(net, alike.ranks),
        "reduce_scatter": lambda: _turned(densest(back, alike.ranks)),
        "gather": lambda: densest(net, np.array([root])),
        "scatter": lambda: _turned(densest(back, np.array([root]))),
        "broadcast": lambda: _least(net, root),
        "reduce": lambda: _turned(_least(back, root)),
        "all_reduce": lambda: best_of([_least(net, root), _turned(_least(back, root))]),
    }
    return found[op.name](), CUT


def _held(op: Operation) -> int:
    """What one set takes to look at, but for its flow."""
    return op.n_ranks if op.name == ALL_PAIRS else len(op.have) + len(op.want)


def _searchable(net: Network, alike: Symmetry, op: Operation) -> bool:
    """Whether all cuts can be searched, for this operation and in as much time as a bound is worth."""
    flows = {"all_gather": len(alike.ranks), "reduce_scatter": len(alike.ranks), "gather": 1, "scatter": 1}
    flows |= {"broadcast": op.n_ranks, "reduce": op.n_ranks, "all_reduce": 2 * op.n_ranks}
    return op.name in flows and flows[op.name] * len(net.src) <= _FLOW_WORK


def _least(net: Network, source: int) -> Cut:
    """The cut that least capacity leaves, between the source and any other rank."""
    return best_of([least_cut(net, int(source), int(rank)) for rank in net.ranks if rank != source])


def _turned(cut: Cut) -> Cut:
    """A cut of the network turned round, as one of the network itself."""
    return Cut(~cut.inside, cut.ratio)


def _messages(net: Network, alike: Symmetry, dims: tuple[int, ...]) -> Fraction:
    """Blocks per unit of capacity that an all_reduce takes, because of how many messages it needs.

    Until one of k participants has the sum of a byte, k - 1 messages with it were received; then each other lacks one more.
    They leave a participant, and come to one, where the participants are the ranks or any groups of them.
    Source: Harary and Schwenk, The communication problem on graphs and digraphs, J. Franklin Institute 297 (1974).
    """
    n, ways = len(net.ranks), (net,) if net.both_ways else (net, net.back())
    found = [Fraction(2 * (n - 1), int(way.leaving[net.ranks].sum())) for way in ways]
    for each in groups(net, alike, dims):
        if len(ways) * len(each.first) * len(net.src) <= _FLOW_WORK:
            found += [Fraction(2 * (len(each.kind) - 1), _leaving(way, each)) for way in ways]
    return max(found)


def _leaving(net: Network, each: Groups) -> int:
    """The capacity out of all groups together."""
    nodes = np.full(net.n_nodes, -1)
    nodes[net.ranks] = each.of
    cuts = [parting(net, nodes == one) for one in each.first]
    return sum(int(count) * net.out_of(cut.inside) for cut, count in zip(cuts, each.alike, strict=True))


def _by_trees(net: Network, alike: Symmetry) -> tuple[float | None, float | None]:
    """What the best trees take, and the best reduce_scatter and all_gather one after the other."""
    small = size_of(net, alike) <= _MOST_TREES
    trees = net.seconds(all_reduce_by_trees(net, alike)) if small else None
    if len(alike.ranks) * len(net.src) > _FLOW_WORK:
        return trees, None
    gather = densest(net, alike.ranks).ratio
    both = gather + (gather if net.both_ways else densest(net.back(), alike.ranks).ratio)
    return trees, net.seconds(both / len(net.ranks))
