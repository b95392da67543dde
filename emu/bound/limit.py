"""The limit of a collective on a topology: a time that no schedule can beat.

An operation moves blocks. A bound is a number of seconds for each byte of a block, plus a latency that no schedule avoids: from
a rank that has a block to one that wants it, over the quickest path. Some bounds hold for every schedule. Switches that add or
copy can beat other bounds, so that schedules without helpers have their own, higher limit.
Letters: N ranks, V nodes, D searches, S sources.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple

import numpy as np

from emu.arrays import I32, I64, Bool, even_sample, ramps
from emu.bound.cuts import (
    ALL_PAIRS,
    NetworkCut,
    cut_from,
    densest_cut,
    groups,
    largest_cut,
    reverse_cut,
    sampled_cut,
    separating_cut,
)
from emu.bound.network import Network, NetworkKinds, best_simple_price, count_price_lists, network, network_kinds
from emu.collective.operation import Operation
from emu.equivalence import Orbits
from emu.topology.paths.shortest_paths import least_weights
from emu.topology.topology import Topology
from emu.units import seconds

_MOST_PATHS = 2**14  # largest number of variables of an exchange's linear program, which then takes a second
_MOST_PRICED = 2**20  # largest number of arcs visited for one price list; all lists then take two seconds
_MOST_TREES = 2**13  # largest number of variables of the linear program of trees

# Names of bounds: what limits the time.
CUT = "cut"  # the capacity out of a set of nodes, the worst of all sets
TRIED = "tried cuts"  # the capacity out of a set of nodes, the worst of the sets that were tried
MESSAGES = "messages"  # to sum up a byte and spread it among n ranks, or n groups, takes 2 (n - 1) messages or more
CROSSED = "crossed links"  # the links, or links of a dimension, that an exchange crosses even on the shortest paths
PATHS = "paths"  # the capacity of links for an exchange on any paths
LATENCY = "latency"  # the latency of the quickest path between two ranks

# Searches that a smaller effort leaves out.
ALL_SETS = "cuts around all sets of nodes"
ALL_PATHS = "all paths of an exchange"
TREES = "the best trees"


@dataclass(frozen=True, slots=True)
class Effort:
    """The amount of computation that the search for bounds may spend."""

    flows: int  # number of maximum flows
    arcs: int  # arcs of all these flows together, or blocks that are counted
    programs: bool  # whether linear programs may run


QUICK_EFFORT = Effort(8, 2**21, programs=False)  # milliseconds, a part of a second where there are a million links
FULL_EFFORT = Effort(2**16, 2**22, programs=True)  # seconds


@dataclass(frozen=True, slots=True)
class Term:
    """One lower bound of a collective's time: seconds for each byte of a block, plus a latency in ticks."""

    s_per_byte: float
    latency_fs: int
    by: str  # name of the bound


@dataclass(frozen=True, slots=True)
class Limit:
    """The lower bounds of a collective's time; for all_reduce also times that trees can reach, which are not bounds.

    Each of `terms` is a bound, so that the largest counts. `left_out` names the searches that more effort would add.
    """

    terms: tuple[Term, ...]  # all of them hold; (): nothing has to be sent
    trees_s_per_byte: float | None = None  # time of the best in-trees and out-trees at once; None: not searched
    in_a_row_s_per_byte: float | None = None  # time of the best reduce_scatter, then the best all_gather
    left_out: tuple[str, ...] = ()  # searches that more effort would add

    def least_s(self, block_bytes: int) -> tuple[float, str]:
        """Return the lower bound in seconds for blocks of at least `block_bytes` bytes, and the name of the bound."""
        if not block_bytes or not self.terms:
            return 0.0, ""
        times = [(block_bytes * term.s_per_byte + seconds(term.latency_fs), term.by) for term in self.terms]
        return max(times, key=lambda found: found[0])


class _LimitSearch(NamedTuple):
    """One search for a limit: the network, the operation and the effort."""

    net: Network
    net_kinds: NetworkKinds
    op: Operation
    dims: tuple[int, ...]
    helpers: bool
    effort: Effort

    def affords(self, flows: int) -> bool:
        """Return whether a number of maximum flows is within the allowed effort."""
        return flows <= self.effort.flows and flows * len(self.net.src) <= self.effort.arcs


@lru_cache(maxsize=256)
def limit_of(
    topology: Topology, op: Operation, npus: tuple[int, ...], *, helpers: bool, effort: Effort = QUICK_EFFORT
) -> Limit:
    """Return the limit of an operation.

    Args:
        topology: A topology in which a route joins every pair that the operation needs.
        op: The operation.
        npus: [N] the NPU of each rank.
        helpers: Whether switches may add and copy; else only ranks do.
        effort: The work that the search may take. Every bound holds whatever the effort; more effort may find a higher one.
    """
    if op.n_ranks < 2:
        return Limit(())
    net, net_kinds = _network_of(topology, npus)
    search = _LimitSearch(net, net_kinds, op, topology.dims, helpers, effort)
    terms = (Term(0.0, least_latency_fs(net, search.net_kinds, op), LATENCY), *_terms(search))
    in_a_row, trees = (_in_a_row(search), _trees(search)) if op.name == "all_reduce" else (None, None)
    return Limit(terms, trees, in_a_row, tuple(_skipped_searches(search)))


@lru_cache(maxsize=16)
def _network_of(topology: Topology, npus: tuple[int, ...]) -> tuple[Network, NetworkKinds]:
    """Return the network of some NPUs and the kinds of its ranks and arcs; both are independent of the operation."""
    net = network(topology, npus)
    return net, network_kinds(net, topology)


def _terms(search: _LimitSearch) -> Iterator[Term]:
    """Yield the lower bounds of a search: the best cut, and for some operations an exchange or the number of messages."""
    net, op, helpers = search.net, search.op, search.helpers
    cut, by = _strongest_cut(search)
    yield Term(net.seconds(cut.ratio), crossing_fs(net, cut.inside, helpers=helpers), by)
    if op.name == ALL_PAIRS:
        yield from _exchange_bounds(search)
    if op.name == "all_reduce" and not helpers:
        yield Term(net.seconds(_message_bound(search)), message_fs(net, helpers=False), MESSAGES)


def _exchange_bounds(search: _LimitSearch) -> Iterator[Term]:
    """Yield the bounds of an all_to_all by the capacity of all links: on shortest paths, and on any paths.

    A bound whose search is beyond the effort is left out.
    """
    net, net_kinds, least_fs = search.net, search.net_kinds, message_fs(search.net, helpers=search.helpers)
    if _search_work(search) * count_price_lists(net) <= search.effort.arcs:
        yield Term(net.seconds(best_simple_price(net, net_kinds)), least_fs, CROSSED)
    if search.effort.programs and _search_work(search) <= _MOST_PATHS:
        from emu.bound.linear_programs import exchange  # it loads scipy, as each of these programs does

        yield Term(net.seconds(exchange(net, net_kinds)), least_fs, PATHS)
    elif search.effort.programs and _search_work(search) <= _MOST_PRICED:
        from emu.bound.linear_programs import by_prices

        yield Term(net.seconds(by_prices(net, net_kinds)), least_fs, PATHS)


def _search_work(search: _LimitSearch) -> int:
    """Return the number of arcs that searches for cuts visit if one rank of each kind (see `NetworkKinds`) starts one."""
    return len(search.net_kinds.ranks) * len(search.net.src)


def _strongest_cut(search: _LimitSearch) -> tuple[NetworkCut, str]:
    """Return the cut that gives the strongest bound, and a name that says whether all sets were searched."""
    net, net_kinds, op, effort = search.net, search.net_kinds, search.op, search.effort
    if not search.affords(_flows(search)):
        most_sets = min(effort.flows, effort.arcs // (len(net.src) + _count_work(op)))
        return sampled_cut(net, net_kinds, op, search.dims, most_sets=most_sets), TRIED
    root, back = net.ranks[op.root], net.back()
    found = {
        "all_gather": lambda: densest_cut(net, net_kinds.ranks),
        "reduce_scatter": lambda: reverse_cut(densest_cut(back, net_kinds.ranks)),
        "gather": lambda: densest_cut(net, np.array([root])),
        "scatter": lambda: reverse_cut(densest_cut(back, np.array([root]))),
        "broadcast": lambda: cut_from(net, root),
        "reduce": lambda: reverse_cut(cut_from(back, root)),
        "all_reduce": lambda: largest_cut([cut_from(net, root), reverse_cut(cut_from(back, root))]),
    }
    return found[op.name](), CUT


def _count_work(op: Operation) -> int:
    """Return the cost, in blocks, of counting what one set of nodes has to send."""
    return op.n_ranks if op.name == ALL_PAIRS else len(op.have) + len(op.want)


def _flows(search: _LimitSearch) -> int:
    """Return the number of maximum flows that an exact search over all cuts needs; very large if it is impossible."""
    n, kinds = search.op.n_ranks, len(search.net_kinds.ranks)
    known = {"all_gather": kinds, "reduce_scatter": kinds, "gather": 1, "scatter": 1}
    known |= {"broadcast": n, "reduce": n, "all_reduce": 2 * n}
    return known.get(search.op.name, FULL_EFFORT.flows + 1)


def _message_bound(search: _LimitSearch) -> Fraction:
    """Return the time of an all_reduce from the number of its messages, in blocks per unit of capacity.

    Until one of k participants has the sum of a byte, k - 1 messages with that byte were received. Then each of the others
    lacks one more message. Every message leaves a participant and reaches one, where participants are the ranks or any groups
    of them. Source: Harary and Schwenk, The communication problem on graphs and digraphs, J. Franklin Institute 297 (1974).
    """
    net = search.net
    n, ways = len(net.ranks), (net,) if net.both_ways else (net, net.back())
    found = [Fraction(2 * (n - 1), int(way.leaving[net.ranks].sum())) for way in ways]
    for group, kinds in groups(net, search.net_kinds, search.dims):
        if search.affords(len(ways) * len(kinds.first)):
            found += [Fraction(2 * (len(kinds.number) - 1), _capacity_out(way, group, kinds)) for way in ways]
    return max(found)


def _capacity_out(net: Network, group: I64, kinds: Orbits) -> int:
    """Return the capacity out of all groups together, given [V] the group of each node."""
    cuts = [separating_cut(net, group == one) for one in kinds.first]
    return sum(int(count) * net.out_of(cut.inside) for cut, count in zip(cuts, kinds.size, strict=True))


def _in_a_row(search: _LimitSearch) -> float | None:
    """Return the seconds per byte of the best reduce_scatter followed by the best all_gather; None: beyond the effort."""
    net, net_kinds = search.net, search.net_kinds
    if not search.affords(len(net_kinds.ranks)):
        return None
    gather = densest_cut(net, net_kinds.ranks).ratio
    both = gather + (gather if net.both_ways else densest_cut(net.back(), net_kinds.ranks).ratio)
    return net.seconds(both / len(net.ranks))


def _trees(search: _LimitSearch) -> float | None:
    """Return the time for each byte of the best trees; None: beyond the effort."""
    if not search.effort.programs or _size_of_trees(search) > _MOST_TREES:
        return None
    from emu.bound.linear_programs import all_reduce_by_trees

    return search.net.seconds(all_reduce_by_trees(search.net, search.net_kinds))


def _size_of_trees(search: _LimitSearch) -> int:
    """Return about how many variables the linear program of trees has."""
    net = search.net
    n_hops = len(net.src) if net.has_rank.all() else len(net.ranks) * (len(net.ranks) - 1)
    return len(search.net_kinds.ranks) * (2 * n_hops + len(net.src))


def _skipped_searches(search: _LimitSearch) -> Iterator[str]:
    """Yield the names of the searches that were skipped to save effort."""
    if search.effort == FULL_EFFORT:
        return
    every = search._replace(effort=FULL_EFFORT)
    if every.affords(_flows(search)) and not search.affords(_flows(search)):
        yield ALL_SETS
    if search.op.name == ALL_PAIRS and _search_work(search) <= _MOST_PRICED:
        yield ALL_PATHS
    if search.op.name == "all_reduce" and _size_of_trees(search) <= _MOST_TREES:
        yield TREES


_WORK = 2**18  # arcs that all searches together may visit, about
# Operations in which each rank has data for each other rank.
_ALL_TO_ALL = frozenset({ALL_PAIRS, "all_reduce", "all_gather", "reduce_scatter"})


def least_latency_fs(net: Network, net_kinds: NetworkKinds, op: Operation) -> int:
    """Return the latency that no schedule of the operation can avoid, in ticks.

    Where there are many paths, a sample of them is looked at.
    """
    most = max(1, _WORK // max(1, len(net.src)))
    if op.name in _ALL_TO_ALL:
        sources = net_kinds.ranks[even_sample(len(net_kinds.ranks), most)]
        return int(_least_latencies_fs(net, sources[:, None])[:, net.ranks].max())
    have, want = op.have, op.want
    if len(np.unique(want[:, 0])) < len(np.unique(have[:, 0])):
        net, have, want = net.back(), want, have
    holders = np.unique(have[:, 0])
    asked = holders[even_sample(len(holders), most)]
    source, sink = _pairs(have[np.isin(have[:, 0], asked)], want)
    found = _least_latencies_fs(net, net.ranks[asked][:, None])[np.searchsorted(asked, source), net.ranks[sink]]
    return int(found.max(initial=0))


def _pairs(have: I32, want: I32) -> tuple[I64, I64]:
    """Return pairs of ranks between which data must go.

    For each block and two ranks of which one has it and the other wants it.
    """
    want = want[np.argsort(want[:, 1], kind="stable")]
    first, last = (np.searchsorted(want[:, 1], have[:, 1], side) for side in ("left", "right"))
    return np.repeat(have[:, 0], last - first).astype(np.int64), want[ramps(first, last - first), 0].astype(np.int64)


def crossing_fs(net: Network, inside: Bool, *, helpers: bool) -> int:
    """Return the least latency of a message from a set of nodes [V] to a rank outside it, in ticks.

    Args:
        net: The network.
        inside: A set with at least one rank, and not with all.
        helpers: Whether switches send what they have added or copied; else only ranks send.
    """
    has_rank = net.has_rank
    may_send = has_rank | (np.arange(net.n_nodes) >= net.n_npus) if helpers else has_rank
    found = _least_latencies_fs(net, np.flatnonzero(inside & may_send)[None])
    return int(found[0, has_rank & ~inside].min())


def message_fs(net: Network, *, helpers: bool) -> int:
    """Return the least latency of any message to a rank, in ticks; see `crossing_fs` for `helpers`."""
    has_rank = net.has_rank
    away, here = has_rank[net.src], has_rank[net.dst]
    if helpers:
        return int(net.latency_fs[here].min())
    return int(least_between_fs(net.latency_fs, away, here))


def least_between_fs(latency_fs: I64, leaves: Bool, comes: Bool, default: float = np.inf) -> float:
    """Return the least latency between two ends: over one direct arc, or over one arc into switches and one out.

    Args:
        latency_fs: [A] the latency of each arc.
        leaves: [A] whether the arc leaves an end, such as a rank.
        comes: [A] whether it comes to one.
        default: The value that is returned where no arcs join ends.
    """
    direct, up, down = (latency_fs[of] for of in (leaves & comes, leaves & ~comes, ~leaves & comes))
    ways = [sum(int(part.min()) for part in way) for way in ((direct,), (up, down)) if all(map(len, way))]
    return min(ways, default=default)


def _least_latencies_fs(net: Network, sources: I64) -> I64:
    """Return [D, V] the ticks of the quickest path to each node from the nearest of the sources [D, S] of each search."""
    found = least_weights((net.src, net.dst), net.latency_fs, net.n_nodes, sources)
    reached, ticks = np.isfinite(found), np.full(found.shape, np.iinfo(np.int64).max)
    ticks[reached] = found[reached]
    return ticks
