"""The time of a request that has the fabric to itself, with all groups of its axis at one time.

L links that a request crosses, G groups of P members each.
"""

from collections.abc import Hashable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np

from emu.arrays import F64, I64, Bool, column
from emu.collective.choice import Request
from emu.collective.operation import ROOTED
from emu.fabric.build import Builder
from emu.fabric.graph import Graph
from emu.fabric.ideal import link_clusters_of
from emu.fabric.job_symmetry import orbits_of_job
from emu.fabric.lower import LoweredSchedule, delay_entries, lower_placed
from emu.fabric.lowering.classes import JobOrbits
from emu.fabric.lowering.placed_schedule import PlacedSchedule
from emu.fabric.rounds import group_message_count, rounds_of
from emu.fabric.run import run_graph
from emu.topology.topology import Topology
from emu.trace.matching.call_batch import BatchKey
from emu.trace.replay.placed_request import place_request
from emu.trace.replay.switch_turns import SwitchStates, TurnOrder, add_turns, switch_states
from emu.units import TICKS_PER_S

LIGHT = 2**15  # tasks up to which a request of each size is timed by itself
HEAVY = 2**17  # messages that would be timed, above which several rounds take the middle of their bounds
ROUNDS = 512  # at most, which do
WITHIN = 0.02  # of the middle of two bounds that both must be, so that it is taken


class RequestPart(NamedTuple):
    """The groups of one request that one algorithm serves, and that algorithm."""

    what: BatchKey
    ranks: I64  # [groups, members]
    request: Request  # the request of the first of these groups


class IsolatedRequest(NamedTuple):
    """The time of a request that has the fabric to itself, in ticks, and the seconds for which it keeps each link busy.

    `tail` is the part of the time after its sender (or the mean rank) has left, `apart` the ticks between the first and the
    last rank that leaves.
    """

    ticks: int  # ticks until the last rank has left it
    tail: int  # of these, the ticks after a message's sender, or the mean rank of a rooted operation, has left
    link: I64  # [L] the numbers of the links, ascending
    busy_s: F64  # [L] seconds that each link needs at full rate for what it carries
    flows: float  # messages that cross the busiest link at one time, 1 or more
    tasks: int
    apart: int = 0  # ticks from when the first rank has left it to when the last has, or takes a message
    apart_mean: int = 0  # ticks from when ranks have left it on average to when the last has
    messages: int = 0  # messages of all groups
    switches: SwitchStates | None = None  # the optical switches that it needs; None: the topology has none that turn

    @property
    def goes_on(self) -> bool:
        """True if the busiest link is still busy after the senders (or the average rank of a rooted operation) have left."""
        return bool(len(self.busy_s)) and float(self.busy_s.max()) * TICKS_PER_S > self.ticks - self.tail + 1

    @property
    def left_on_average(self) -> "IsolatedRequest":
        """The request with the time at which ranks leave on average, instead of the time at which the last rank leaves."""
        ticks = self.ticks - self.apart_mean
        return self._replace(ticks=ticks, tail=min(self.tail, max(ticks - 1, 0)), apart=0, apart_mean=0)

    def between(self, other: "IsolatedRequest", part: float) -> "IsolatedRequest":
        """Return the time of a request of a size between two, interpolated: `part` 0 is this request, 1 the other."""

        def at(name: str) -> Any:
            return getattr(self, name) + part * (getattr(other, name) - getattr(self, name))

        ticks = {name: round(at(name)) for name in ("ticks", "tail", "apart", "apart_mean")}
        return self._replace(**ticks, busy_s=at("busy_s"), flows=at("flows"))


class _ClusterTime(NamedTuple):
    """The time of one link cluster: groups that share its K links with one another and with no other group.

    `left` and `mean` are ticks until ranks have left, `first` until the first of them has.
    """

    ticks: int
    left: float  # ticks until those ranks have left that need not wait for the end
    groups: int
    busy_s: F64  # [K]
    flows: F64  # [K] messages that cross each link at one time
    tasks: int
    first: int  # ticks until the first rank has left it, or takes a message
    mean: float  # ticks until ranks have left it, on average


ClusterTimes = dict[Hashable, _ClusterTime]  # by what is sent and over which ways


def time_isolated(
    parts: Sequence[RequestPart], topology: Topology, placement: I64, launch_fs: int, known: ClusterTimes
) -> IsolatedRequest:
    """Return the time of a request that all its groups make at one time and without other requests.

    Only one orbit of the topology's symmetry is timed, or one of several equal clusters of links.

    Args:
        parts: The parts of the request, by algorithm.
        topology: The topology on which it runs.
        placement: [ranks] the NPU of each rank.
        launch_fs: Ticks that each rank takes to enter the request.
        known: Clusters that were timed before on this topology with this launch time; new ones are added.

    Raises:
        InputError: As `place_request` and `lower_placed`.
    """
    what, laid = parts[0].what, [each for part in parts for each in _placed(part, topology, placement)]
    domain = orbits_of_job(topology, np.concatenate([placement[part.ranks].ravel() for part in parts]), laid)
    if domain is None and not topology.circuits:
        isolated = _time_clusters(parts, laid, launch_fs, known)
    else:
        every, together = np.arange(len(topology.links)), np.zeros(sum(len(each.nodes) for each in laid), np.int64)
        number = every if domain is None else domain.links.number
        isolated = _request_time(_timed(laid, together, [number], what, domain, launch_fs), [every], what)
    states = switch_states(topology.circuits, laid) if topology.circuits else None
    return isolated._replace(messages=group_message_count(laid), switches=states)


def _placed(part: RequestPart, topology: Topology, placement: I64) -> list[PlacedSchedule]:
    """Return the placed schedules of a part: one of all its groups, or one of each where optical switches turn."""
    nodes = placement[part.ranks]
    apart = len(nodes) if topology.circuits else 1
    return [place_request(part.what, topology, each, turns=False) for each in np.array_split(nodes, apart)]


def _time_clusters(
    parts: Sequence[RequestPart], laid: Sequence[PlacedSchedule], launch_fs: int, known: ClusterTimes
) -> IsolatedRequest:
    """Return the time of placed schedules that run at one time, computed from one link cluster of each kind."""
    what = parts[0].what
    if (bounded := _bounded(laid, what, launch_fs, LIGHT, 1)) is not None:
        return bounded
    cluster, found = link_clusters_of(laid)
    sent = tuple((*part.what[1:], each.schedule.translate) for part, each in zip(parts, laid, strict=True))
    keys = [(kind, sent) for kind, _ in found]
    new: dict[Hashable, int] = {key: i for i, key in reversed(list(enumerate(keys))) if key not in known}
    if new:
        wanted, links = np.isin(cluster, list(new.values())), [found[i][1] for i in sorted(new.values())]
        heavy = group_message_count(_with_groups(laid, wanted)) > HEAVY
        if heavy and (bounded := _bounded(laid, what, launch_fs, HEAVY, ROUNDS)) is not None:
            return bounded
        of_group = np.unique(cluster[wanted], return_inverse=True)[1]
        timed = _timed(_with_groups(laid, wanted), of_group, links, what, None, launch_fs)
        known |= zip(sorted(new, key=lambda key: new[key]), timed, strict=True)
    return _request_time([known[key] for key in keys], [link for _, link in found], what)


def _bounded(laid: Sequence[PlacedSchedule], what: BatchKey, launch_fs: int, light: int, rounds: int) -> IsolatedRequest | None:
    """Return the time of a request with many messages in few rounds, as the middle between two bounds.

    None is returned if the request has at most `light` messages, more than `rounds` rounds, or bounds that lie far apart.
    """
    messages = group_message_count(laid)
    if messages <= light or what.served is None or what.name in ROOTED:
        return None
    known = rounds_of(laid, rounds)
    if known is None or known.apart > WITHIN:
        return None
    link = np.flatnonzero(known.busy_s)
    return IsolatedRequest(launch_fs + round(known.middle_fs), 0, link, known.busy_s[link], known.flows, messages)


def _with_groups(laid: Sequence[PlacedSchedule], wanted: Bool) -> list[PlacedSchedule]:
    """Return the placed schedules with only those groups for which `wanted` is true.

    Groups are numbered schedule after schedule.
    """
    own = np.split(wanted, np.cumsum([len(each.nodes) for each in laid])[:-1])
    return [replace(each, nodes=each.nodes[which]) for each, which in zip(laid, own, strict=True) if which.any()]


def _timed(
    laid: Sequence[PlacedSchedule], cluster: I64, links: Sequence[I64], what: BatchKey, domain: JobOrbits | None, launch_fs: int
) -> list[_ClusterTime]:
    """Return the time of each link cluster, computed from one graph of all groups.

    Args:
        laid: The placed schedules.
        cluster: [G] the cluster of each group.
        links: For each cluster, its links, or orbits of links.
        what: The request.
        domain: The symmetry of the topology; None: none is used.
        launch_fs: Ticks that each rank takes to enter the request.
    """
    graph, group, exits = _side_by_side([delay_entries(lower_placed(each, domain), launch_fs) for each in laid])
    timeline, hops = run_graph(graph), np.diff(graph.hop_start)
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
    flows = np.divide(crossing_s / laid[0].topology.parts, busy_s, out=np.zeros_like(busy_s), where=busy_s > 0)
    counts = (of.tolist() for of in (ticks, leaves, groups))
    rest = (of.tolist() for of in (tasks, first, mean))
    return list(map(_ClusterTime, *counts, [busy_s[link] for link in links], [flows[link] for link in links], *rest))


def _side_by_side(pieces: Sequence[LoweredSchedule]) -> tuple[Graph, I64, I64]:
    """Return several lowered schedules as one graph, in which all start at tick 0.

    Where optical switches turn, groups take turns on them in this order.

    Returns:
        The graph, the group of each participant, and the task with which each participant leaves.
    """
    laid = [piece.placed for piece in pieces]
    shapes = [each.nodes.shape for each in laid]
    of_group = np.repeat(np.arange(sum(n for n, _ in shapes)), np.repeat([size for _, size in shapes], [n for n, _ in shapes]))
    topology = laid[0].topology
    if len(pieces) == 1 and topology.circuits is None:
        return pieces[0].graph, of_group, pieces[0].exit.astype(np.int64)
    builder, nobody = Builder(pieces[0].graph.capacity_Bps), [np.full(piece.orbit.size, -1) for piece in pieces]
    who = np.split(np.arange(len(of_group)), np.cumsum([piece.orbit.size for piece in pieces])[:-1])
    firsts = [builder.piece(piece, own, none) for piece, own, none in zip(pieces, who, nobody, strict=True)]
    add_turns(builder, topology, laid, column(firsts, np.int64), TurnOrder(np.zeros(len(laid), np.int64)))
    exits = np.concatenate([first + piece.exit for first, piece in zip(firsts, pieces, strict=True)])
    return builder.graph(), of_group, exits.astype(np.int64)


def _request_time(ran: Sequence[_ClusterTime], links: Sequence[I64], what: BatchKey) -> IsolatedRequest:
    """Return the time of a request from the times of its link clusters, which run at the same time on different links.

    Args:
        ran: The time of each cluster.
        links: The links of each cluster.
        what: The request.
    """
    link = np.concatenate(links)
    busy_s, flows = (np.concatenate(c) for c in ([each.busy_s for each in ran], [each.flows for each in ran]))
    by = np.argsort(link)
    by = by[busy_s[by] > 0]
    link, busy_s, flows = link[by], busy_s[by], flows[by]
    ticks, tasks, left = max(each.ticks for each in ran), sum(each.tasks for each in ran), max(each.left for each in ran)
    if not len(link):
        return IsolatedRequest(ticks, 0, link, busy_s, 1.0, tasks)
    if what.name in ROOTED:
        left = sum(each.left * each.groups for each in ran) / sum(each.groups for each in ran)
    mean = sum(each.mean * each.groups for each in ran) / sum(each.groups for each in ran)
    apart = ticks - min(each.first for each in ran), ticks - round(mean)
    return IsolatedRequest(ticks, ticks - round(left), link, busy_s, max(1.0, float(flows[busy_s.argmax()])), tasks, *apart)
