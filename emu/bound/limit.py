"""How long a collective must take on a topology at least, whatever its schedule: the limit that a time is held against.

An operation moves blocks; a limit is so many seconds for each byte of a block, and a latency that comes on top. Some bounds
are of every schedule; fewer are possible where switches add or copy, so that schedules without helpers have their own.
"""

import importlib
from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from types import ModuleType
from typing import NamedTuple

import numpy as np

from emu.bound.crossed import count, crossed
from emu.bound.cuts import Cut, best_of, densest, least_cut, parting
from emu.bound.latency import crossing_fs, least_latency_fs, message_fs
from emu.bound.network import Network, network
from emu.bound.sets import ALL_PAIRS, Groups, groups, tried
from emu.bound.symmetry import Symmetry, symmetry
from emu.collective.operation import Operation
from emu.topology.topology import Topology
from emu.units import seconds

_MOST_PATHS = 2**14  # variables of the linear program of an exchange; a second
_MOST_PRICED = 2**20  # arcs that searches from a rank of each kind pass, for one price list; two seconds for all
_MOST_TREES = 2**13  # of that of trees

# How a bound was found, and what limits.
CUT = "cut"  # some set of nodes cannot send what the others need any faster: the worst of all sets
TRIED = "tried cuts"  # the same, the worst of some sets: the least time may be more
MESSAGES = "messages"  # a byte is not summed up and spread among n ranks, or groups of them, by fewer than 2 (n - 1) messages
CROSSED = "crossed links"  # what all pairs exchange crosses so many links, or links of a dimension, along the shortest paths
PATHS = "paths"  # what all pairs exchange does not fit the links any faster, along any paths
LATENCY = "latency"  # of the quickest path between two ranks

# What may be left out.
ALL_SETS = "cuts around all sets of nodes"
ALL_PATHS = "all paths of an exchange"
TREES = "the best trees"


@dataclass(frozen=True, slots=True)
class Effort:
    """How much the search of a bound may take."""

    flows: int  # maximum flows
    arcs: int  # of all of them together, or blocks looked at
    programs: bool  # whether linear programs may run


QUICK = Effort(8, 2**21, programs=False)  # milliseconds, a part of a second where there are a million links
ALL = Effort(2**16, 2**22, programs=True)  # seconds


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
    left_out: tuple[str, ...] = ()  # what more effort would look at

    def least_s(self, block_bytes: int) -> tuple[float, str]:
        """The least time where no block is smaller than `block_bytes`, and by which bound."""
        if not block_bytes or not self.terms:
            return 0.0, ""
        times = [(block_bytes * term.s_per_byte + seconds(term.latency_fs), term.by) for term in self.terms]
        return max(times, key=lambda found: found[0])


class _Asked(NamedTuple):
    """Of what the limit is asked, and how hard to look for it."""

    net: Network
    alike: Symmetry
    op: Operation
    dims: tuple[int, ...]
    helpers: bool
    effort: Effort

    def affords(self, flows: int) -> bool:
        """Whether so many maximum flows are within the effort."""
        return flows <= self.effort.flows and flows * len(self.net.src) <= self.effort.arcs


@lru_cache(maxsize=256)
def limit_of(topology: Topology, op: Operation, npus: tuple[int, ...], *, helpers: bool, effort: Effort = QUICK) -> Limit:
    """The limit of an operation.

    Args:
        topology: Where no needed pair is unjoined.
        op: What is done.
        npus: [N] of each rank.
        helpers: Whether switches may add and copy; else only ranks do.
        effort: What the search may take; each bound holds whatever it is, more of them may say more.
    """
    if op.n_ranks < 2:
        return Limit(())
    net, alike = _network_of(topology, npus)
    asked = _Asked(net, alike, op, topology.dims, helpers, effort)
    terms = (Term(0.0, least_latency_fs(net, asked.alike, op), LATENCY), *_terms(asked))
    in_a_row, trees = (_in_a_row(asked), _trees(asked)) if op.name == "all_reduce" else (None, None)
    return Limit(terms, trees, in_a_row, tuple(_left_out(asked)))


@lru_cache(maxsize=16)
def _network_of(topology: Topology, npus: tuple[int, ...]) -> tuple[Network, Symmetry]:
    """The same for every operation."""
    net = network(topology, npus)
    return net, symmetry(net, topology)


def _terms(asked: _Asked) -> Iterator[Term]:
    net, op, helpers = asked.net, asked.op, asked.helpers
    cut, by = _cut(asked)
    yield Term(net.seconds(cut.ratio), crossing_fs(net, cut.inside, helpers=helpers), by)
    if op.name == ALL_PAIRS:
        yield from _exchange(asked)
    if op.name == "all_reduce" and not helpers:
        yield Term(net.seconds(_messages(asked)), message_fs(net, helpers=False), MESSAGES)


def _exchange(asked: _Asked) -> Iterator[Term]:
    """What limits all paths at once."""
    net, alike, least_fs = asked.net, asked.alike, message_fs(asked.net, helpers=asked.helpers)
    if _searched(asked) * count(net) <= asked.effort.arcs:
        yield Term(net.seconds(crossed(net, alike)), least_fs, CROSSED)
    if asked.effort.programs and _searched(asked) <= _MOST_PATHS:
        yield Term(net.seconds(_program("flows").exchange(net, alike)), least_fs, PATHS)
    elif asked.effort.programs and _searched(asked) <= _MOST_PRICED:
        yield Term(net.seconds(_program("prices").by_prices(net, alike)), least_fs, PATHS)


def _program(name: str) -> ModuleType:
    """A file of linear programs; not imported above, because it loads scipy."""
    return importlib.import_module(f"emu.bound.programs.{name}")


def _searched(asked: _Asked) -> int:
    """Arcs that searches from a rank of each kind pass."""
    return len(asked.alike.ranks) * len(asked.net.src)


def _cut(asked: _Asked) -> tuple[Cut, str]:
    """The cut that limits most, and whether it is the worst of all."""
    net, alike, op, effort = asked.net, asked.alike, asked.op, asked.effort
    if not asked.affords(_flows(asked)):
        most_sets = min(effort.flows, effort.arcs // (len(net.src) + _held(op)))
        return tried(net, alike, op, asked.dims, most_sets=most_sets), TRIED
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


def _flows(asked: _Asked) -> int:
    """How many maximum flows search all cuts; more than any effort affords where that cannot be done."""
    n, kinds = asked.op.n_ranks, len(asked.alike.ranks)
    known = {"all_gather": kinds, "reduce_scatter": kinds, "gather": 1, "scatter": 1}
    known |= {"broadcast": n, "reduce": n, "all_reduce": 2 * n}
    return known.get(asked.op.name, ALL.flows + 1)


def _least(net: Network, source: int) -> Cut:
    """The cut that least capacity leaves, between the source and any other rank."""
    return best_of([least_cut(net, int(source), int(rank)) for rank in net.ranks if rank != source])


def _turned(cut: Cut) -> Cut:
    """A cut of the network turned round, as one of the network itself."""
    return Cut(~cut.inside, cut.ratio)


def _messages(asked: _Asked) -> Fraction:
    """Blocks per unit of capacity that an all_reduce takes, because of how many messages it needs.

    Until one of k participants has the sum of a byte, k - 1 messages with it were received; then each other lacks one more.
    They leave a participant, and come to one, where the participants are the ranks or any groups of them.
    Source: Harary and Schwenk, The communication problem on graphs and digraphs, J. Franklin Institute 297 (1974).
    """
    net = asked.net
    n, ways = len(net.ranks), (net,) if net.both_ways else (net, net.back())
    found = [Fraction(2 * (n - 1), int(way.leaving[net.ranks].sum())) for way in ways]
    for each in groups(net, asked.alike, asked.dims):
        if asked.affords(len(ways) * len(each.first)):
            found += [Fraction(2 * (len(each.kind) - 1), _leaving(way, each)) for way in ways]
    return max(found)


def _leaving(net: Network, each: Groups) -> int:
    """The capacity out of all groups together."""
    nodes = np.full(net.n_nodes, -1)
    nodes[net.ranks] = each.of
    cuts = [parting(net, nodes == one) for one in each.first]
    return sum(int(count) * net.out_of(cut.inside) for cut, count in zip(cuts, each.alike, strict=True))


def _in_a_row(asked: _Asked) -> float | None:
    """What the best reduce_scatter and the best all_gather take one after the other, a byte."""
    net, alike = asked.net, asked.alike
    if not asked.affords(len(alike.ranks)):
        return None
    gather = densest(net, alike.ranks).ratio
    both = gather + (gather if net.both_ways else densest(net.back(), alike.ranks).ratio)
    return net.seconds(both / len(net.ranks))


def _trees(asked: _Asked) -> float | None:
    """What the best trees take, a byte."""
    if not asked.effort.programs or _size_of_trees(asked) > _MOST_TREES:
        return None
    return asked.net.seconds(_program("trees").all_reduce_by_trees(asked.net, asked.alike))


def _size_of_trees(asked: _Asked) -> int:
    """How many variables the linear program of trees has, about."""
    net = asked.net
    n_hops = len(net.src) if net.has_rank.all() else len(net.ranks) * (len(net.ranks) - 1)
    return len(asked.alike.ranks) * (2 * n_hops + len(net.src))


def _left_out(asked: _Asked) -> Iterator[str]:
    """What was not looked at, and would be with all effort."""
    if asked.effort == ALL:
        return
    every = asked._replace(effort=ALL)
    if every.affords(_flows(asked)) and not asked.affords(_flows(asked)):
        yield ALL_SETS
    if asked.op.name == ALL_PAIRS and _searched(asked) <= _MOST_PRICED:
        yield ALL_PATHS
    if asked.op.name == "all_reduce" and _size_of_trees(asked) <= _MOST_TREES:
        yield TREES
