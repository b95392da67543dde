"""The time of each different request with the fabric to itself, where all groups of its axis in one place ask at once.

Q different requests, L links that a request crosses.
"""

from collections.abc import Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import NamedTuple

import numpy as np

from emu.arrays import F64, I64, Bool, digest
from emu.collective.operation import ROOTED
from emu.fabric.apart import clusters_of
from emu.fabric.build import Builder
from emu.fabric.graph import Graph
from emu.fabric.lower import Piece, launched, lowered
from emu.fabric.lowering.domain import Domain
from emu.fabric.lowering.laid import Laid
from emu.fabric.rounds import message_count, rounds_of
from emu.fabric.run import run
from emu.fabric.symmetric import domain_of
from emu.study.training.composed.asked import Different
from emu.study.training.composed.parts import Part
from emu.topology.kept import kept
from emu.topology.topology import Topology
from emu.trace.meet.batch import What
from emu.trace.replay.replay import lay_request
from emu.units import TICKS_PER_S

LIGHT = 2**15  # tasks up to which a request of each size is timed
HEAVY = 2**17  # messages that would be timed, above which several rounds take the middle of their bounds
ROUNDS = 512  # at most, which do
WITHIN = 0.02  # of the middle of two bounds that both must be, so that it is taken


class Once(NamedTuple):
    """The time of a request that has the fabric to itself, and the load that it puts on links."""

    ticks: int  # until the last rank has left it
    tail: int  # of these, those in which a message's sender, or a rank of a rooted operation on average, has left already
    link: I64  # [L] ascending
    busy_s: F64  # [L] that each takes at full rate for what it carries
    flows: float  # messages that cross the busiest of them at one time, 1 or more
    tasks: int
    apart: int = 0  # ticks from when the first rank has left it to when the last has, or takes a message
    apart_mean: int = 0  # ... from when ranks have on average
    messages: int = 0  # of all groups

    @property
    def goes_on(self) -> bool:
        """Return whether its busiest link is still busy when a sender, or the average rank of a rooted operation, has left."""
        return bool(len(self.busy_s)) and float(self.busy_s.max()) * TICKS_PER_S > self.ticks - self.tail + 1

    @property
    def left_on_average(self) -> "Once":
        """Return the same request with the time at which ranks leave on average."""
        ticks = self.ticks - self.apart_mean
        return self._replace(ticks=ticks, tail=min(self.tail, max(ticks - 1, 0)), apart=0, apart_mean=0)

    def between(self, other: "Once", part: float) -> "Once":
        """Return a request between this one and another of the same links, `part` of the way."""
        ticks = round(self.ticks + part * (other.ticks - self.ticks))
        busy_s = self.busy_s + part * (other.busy_s - self.busy_s)
        tail = round(self.tail + part * (other.tail - self.tail))
        flows = self.flows + part * (other.flows - self.flows)
        apart = round(self.apart + part * (other.apart - self.apart))
        mean = round(self.apart_mean + part * (other.apart_mean - self.apart_mean))
        return Once(ticks, tail, self.link, busy_s, flows, self.tasks, apart, mean, self.messages)


def time_each(
    requests: Sequence[Different], parts: Sequence[list[Part]], topology: Topology, placement: I64, launch_fs: int = 0
) -> list[Once]:
    """Return [Q] the time of each request.

    Of large requests that differ in their size alone, the smallest and the largest are timed. Between them the time is assumed
    to grow evenly, as latency plus bytes over a bandwidth does. If a rooted request has many tasks, one root is timed for all.

    Args:
        requests: [Q].
        parts: [Q] the same as a replay has them.
        topology: Where they run.
        placement: The NPU of each rank.
        launch_fs: As of `time_once`.

    Raises:
        InputError: as `time_once`.
    """
    found: dict[int, Once] = {}
    known: Known = {}
    for alike in _but_for_size(requests, parts):
        by_size: dict[int, Once] = {}
        sizes = sorted({requests[i].size_bytes for i in alike})
        for size in (sizes[0], sizes[-1], *sizes[1:-1]):
            own = [i for i in alike if requests[i].size_bytes == size]
            of_root = {requests[i].root: i for i in reversed(own)}
            first = of_root.pop(requests[own[0]].root)
            once = by_size[size] = _between(by_size, size) or _asked(parts[first], topology, placement, launch_fs, known)
            few = once.tasks * len(of_root) <= LIGHT
            others = {root: _asked(parts[i], topology, placement, launch_fs, known) for root, i in of_root.items() if few}
            found |= {i: others.get(requests[i].root, once) for i in own}
    return [found[i] for i in range(len(requests))]


def _between(known: Mapping[int, Once], size: int) -> Once | None:
    """Return the time of a size between the smallest and the largest, if both are known and large."""
    if len(known) < 2:
        return None
    low, high = min(known), max(known)
    least, most = known[low], known[high]
    if min(least.tasks, most.tasks) <= LIGHT or not np.array_equal(least.link, most.link):
        return None
    return least.between(most, (size - low) / (high - low))


def _but_for_size(requests: Sequence[Different], parts: Sequence[list[Part]]) -> Iterator[list[int]]:
    """Yield requests that differ in size and root alone; one whose members give blocks of their own comes by itself."""

    def alike(i: int) -> str:
        by, own = [part.what.served for part in parts[i]], i if requests[i].splits else -1
        return repr((requests[i].kind, requests[i].name, by, own))

    for _, several in groupby(sorted(range(len(requests)), key=alike), alike):
        yield list(several)


class _Ran(NamedTuple):
    """The time of groups that share links with one another and with no other; K links, those of a `Cluster`."""

    ticks: int
    left: float  # when those that need not wait for the end have left
    groups: int
    busy_s: F64  # [K]
    flows: F64  # [K] messages that cross each at one time
    tasks: int
    first: int  # when the first rank has left it, or takes a message
    mean: float  # when ranks have on average


Known = dict[Hashable, _Ran]  # by what is sent and over which ways


def _asked(parts: Sequence[Part], topology: Topology, placement: I64, launch_fs: int, known: Known) -> Once:
    """Return what `time_once` does, from memory if a step on the topology asked for it of the same NPUs before."""
    what = ((part.what, digest([placement[part.ranks]])) for part in parts)
    return _remembered(topology, tuple(what), launch_fs, _Untold(parts, placement, known))


@dataclass(frozen=True, slots=True)
class _Untold:
    """The arguments of `time_once` that are no part of a key, as the key implies them."""

    parts: Sequence[Part] = field(compare=False)
    placement: I64 = field(compare=False)
    known: Known = field(compare=False)


@kept(2**11)
def _remembered(topology: Topology, key: Hashable, launch_fs: int, of: _Untold) -> Once:
    return time_once(of.parts, topology, of.placement, launch_fs, of.known)


def time_once(parts: Sequence[Part], topology: Topology, placement: I64, launch_fs: int, known: Known) -> Once:
    """Time a request of all its groups at once; the topology's symmetry, or one of several equal clusters, stands for all.

    Args:
        parts: Those that are served alike.
        topology: Where it runs.
        placement: The NPU of each rank.
        launch_fs: Ticks that each rank takes to enter it.
        known: What has been timed on this topology with this launch; what is timed now is added.

    Raises:
        InputError: as `lay_request` and `lowered`.
    """
    laid = [lay_request(part.what, topology, placement[part.ranks]) for part in parts]
    return _time_laid(parts, laid, topology, placement, launch_fs, known)._replace(messages=message_count(laid))


def _time_laid(
    parts: Sequence[Part], laid: Sequence[Laid], topology: Topology, placement: I64, launch_fs: int, known: Known
) -> Once:
    what = parts[0].what
    domain = domain_of(topology, np.concatenate([placement[part.ranks].ravel() for part in parts]), laid)
    if domain is not None or topology.circuits:
        every, together = np.arange(len(topology.links)), np.zeros(sum(len(each.nodes) for each in laid), np.int64)
        number = every if domain is None else domain.links.number
        return _once(_timed(laid, together, [number], what, domain, launch_fs), [every], what)
    if (bounded := _bounded(laid, what, launch_fs, LIGHT, 1)) is not None:
        return bounded
    cluster, found = clusters_of(laid)
    sent = tuple((*part.what[1:], each.schedule.translate) for part, each in zip(parts, laid, strict=True))
    keys = [(each.kind, sent) for each in found]
    new: dict[Hashable, int] = {key: i for i, key in reversed(list(enumerate(keys))) if key not in known}
    if new:
        wanted, links = np.isin(cluster, list(new.values())), [found[i].link for i in sorted(new.values())]
        heavy = message_count(_only(laid, wanted)) > HEAVY
        if heavy and (bounded := _bounded(laid, what, launch_fs, HEAVY, ROUNDS)) is not None:
            return bounded
        of_group = np.unique(cluster[wanted], return_inverse=True)[1]
        timed = _timed(_only(laid, wanted), of_group, links, what, None, launch_fs)
        known |= zip(sorted(new, key=lambda key: new[key]), timed, strict=True)
    return _once([known[key] for key in keys], [each.link for each in found], what)


def _bounded(laid: Sequence[Laid], what: What, launch_fs: int, light: int, rounds: int) -> Once | None:
    """Return the time of more messages than `light` in at most so many rounds by two bounds; None: they are too far apart."""
    messages = message_count(laid)
    if messages <= light or what.served is None or what.name in ROOTED:
        return None
    known = rounds_of(laid, rounds)
    if known is None or known.apart > WITHIN:
        return None
    link = np.flatnonzero(known.busy_s)
    return Once(launch_fs + round(known.middle_fs), 0, link, known.busy_s[link], known.flows, messages)


def _only(laid: Sequence[Laid], wanted: Bool) -> list[Laid]:
    """Return some of the groups, schedule after schedule."""
    own = np.split(wanted, np.cumsum([len(each.nodes) for each in laid])[:-1])
    return [replace(each, nodes=each.nodes[which]) for each, which in zip(laid, own, strict=True) if which.any()]


def _timed(
    laid: Sequence[Laid], cluster: I64, links: Sequence[I64], what: What, domain: Domain | None, launch_fs: int
) -> list[_Ran]:
    """Time clusters of groups at once.

    Args:
        laid: All that is sent.
        cluster: [G] of each group.
        links: Of each cluster; those of the topology, or orbits of them.
        what: What is asked.
        domain: Of the topology, as of `lowered`.
        launch_fs: As of `time_once`.
    """
    graph, group, exits = _side_by_side([launched(lowered(each, domain), launch_fs) for each in laid])
    timeline, hops = run(graph), np.diff(graph.hop_start)
    sent = np.flatnonzero(hops)
    of_exit, of_sent = cluster[group], cluster[group[graph.owner[sent]]]
    groups, tasks = np.bincount(cluster), np.bincount(of_sent, minlength=len(links))
    ticks, left = (np.zeros(len(links), np.int64) for _ in range(2))
    first = np.full(len(links), np.iinfo(np.int64).max)
    np.maximum.at(ticks, of_exit, timeline.end_fs[exits])
    own = slice(1, None, 2) if what.served is None else slice(None)
    np.minimum.at(first, of_exit[own], timeline.end_fs[exits[own]])
    mean = np.bincount(of_exit[own], timeline.end_fs[exits[own]]) / np.bincount(of_exit[own])
    np.maximum.at(left, of_sent, timeline.left_fs[sent])
    leaves: F64 | I64 = left if what.served is None else ticks
    if what.name in ROOTED:
        leaves = np.bincount(of_exit, timeline.end_fs[exits]) / np.bincount(of_exit)
    busy_s, lasts_fs = timeline.busy_s(graph.capacity_Bps), np.repeat(timeline.left_fs - timeline.start_fs, hops)
    crossing_s = np.bincount(graph.hop_link, lasts_fs * graph.hop_weight / TICKS_PER_S, graph.n_links)
    flows = np.divide(crossing_s, busy_s, out=np.zeros_like(busy_s), where=busy_s > 0)
    counts = zip(ticks.tolist(), leaves.tolist(), groups.tolist(), links, tasks.tolist(), strict=True)
    ran = (_Ran(last, leave, size, busy_s[link], flows[link], n, 0, 0.0) for last, leave, size, link, n in counts)
    return [each._replace(first=f, mean=m) for each, f, m in zip(ran, first.tolist(), mean.tolist(), strict=True)]


def _side_by_side(pieces: Sequence[Piece]) -> tuple[Graph, I64, I64]:
    """Return one graph of several pieces, the group of each participant, and the join with which it leaves."""
    shapes = [piece.laid.nodes.shape for piece in pieces]
    of_group = np.repeat(np.arange(sum(n for n, _ in shapes)), np.repeat([size for _, size in shapes], [n for n, _ in shapes]))
    if len(pieces) == 1:
        return pieces[0].graph, of_group, pieces[0].exit.astype(np.int64)
    builder, nobody = Builder(pieces[0].graph.capacity_Bps), [np.full(piece.alike.size, -1) for piece in pieces]
    who = np.split(np.arange(len(of_group)), np.cumsum([piece.alike.size for piece in pieces])[:-1])
    firsts = [builder.piece(piece, own, none) for piece, own, none in zip(pieces, who, nobody, strict=True)]
    exits = np.concatenate([first + piece.exit for first, piece in zip(firsts, pieces, strict=True)])
    return builder.graph(), of_group, exits.astype(np.int64)


def _once(ran: Sequence[_Ran], links: Sequence[I64], what: What) -> Once:
    """Return the time of all clusters together, which run at the same time, each on its own links."""
    link = np.concatenate(links)
    busy_s, flows = (np.concatenate(c) for c in ([each.busy_s for each in ran], [each.flows for each in ran]))
    by = np.argsort(link)
    by = by[busy_s[by] > 0]
    link, busy_s, flows = link[by], busy_s[by], flows[by]
    ticks, tasks, left = max(each.ticks for each in ran), sum(each.tasks for each in ran), max(each.left for each in ran)
    if not len(link):
        return Once(ticks, 0, link, busy_s, 1.0, tasks)
    if what.name in ROOTED:
        left = sum(each.left * each.groups for each in ran) / sum(each.groups for each in ran)
    mean = sum(each.mean * each.groups for each in ran) / sum(each.groups for each in ran)
    apart = ticks - min(each.first for each in ran), ticks - round(mean)
    return Once(ticks, ticks - round(left), link, busy_s, max(1.0, float(flows[busy_s.argmax()])), tasks, *apart)
