"""What each different request of a step takes with the fabric to itself, all groups of its axis in one place at the same time.

Q different requests, L links that a request crosses.
"""

from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import groupby
from typing import NamedTuple

import numpy as np

from emu.arrays import F64, I64, digest
from emu.collective.algorithm import Choice, Request, Served
from emu.collective.operation import ROOTED, operation
from emu.fabric.build import Builder
from emu.fabric.graph import Graph
from emu.fabric.lower import Piece, launched, lowered
from emu.fabric.run import run
from emu.fabric.symmetric import domain_of
from emu.fabric.timeline import Timeline
from emu.study.training.asked import Different
from emu.topology.kept import kept
from emu.topology.topology import Topology
from emu.trace.batch import What
from emu.trace.replay import lay_request
from emu.trace.requests import MESSAGE
from emu.trace.split import packed_blocks
from emu.units import TICKS_PER_S

LIGHT = 2**15  # tasks up to which a request of each size is timed
CHOICES = 512  # groups of all requests, up to which each has a choice of its own


class Once(NamedTuple):
    """A request by itself."""

    ticks: int  # until the last rank has left it
    tail: int  # of these, those in which a message's sender, or a rank of a rooted operation on average, has left already
    link: I64  # [L] ascending
    busy_s: F64  # [L] that each takes at full rate for what it carries
    flows: float  # messages that cross the busiest of them at one time, 1 or more
    tasks: int

    def between(self, other: "Once", part: float) -> "Once":
        """So far on the way to another of the same links."""
        ticks = round(self.ticks + part * (other.ticks - self.ticks))
        busy_s = self.busy_s + part * (other.busy_s - self.busy_s)
        tail = round(self.tail + part * (other.tail - self.tail))
        return Once(ticks, tail, self.link, busy_s, self.flows + part * (other.flows - self.flows), self.tasks)


class Part(NamedTuple):
    """Groups that ask for a request and are served alike."""

    what: What
    ranks: I64  # [groups, members]
    request: Request  # of the first


def parts_of(requests: Sequence[Different], choice: Choice) -> list[list[Part]]:
    """[Q] each request as a replay has it, in parts of groups that are served alike.

    Where there are many groups, all of an axis are served as the first of them that asks.
    """
    each = sum(len(asked.ranks) for asked in requests if asked.name != MESSAGE) <= CHOICES
    found: dict[Hashable, Served] = {}

    def served(asked: Different, request: Request) -> Served:
        key = request if each else (asked.axis, *request._replace(ranks=()), asked.ranks.shape[1])
        return found.get(key) or found.setdefault(key, choice.served(request))

    return [_parts(asked, asked.ranks if each else asked.ranks[:1], served) for asked in requests]


def _parts(asked: Different, choosing: I64, served: Callable[[Different, Request], Served]) -> list[Part]:
    """By what serves each of the groups that choose."""
    n = asked.ranks.shape[1]
    if asked.name == MESSAGE:
        none = Request(MESSAGE, ())
        return [Part(What(asked.axis, None, MESSAGE, n, 0, asked.size_bytes, 0, b""), asked.ranks, none)]
    alike: dict[Served, list[int]] = {}
    asks = [Request(asked.name, tuple(ranks), asked.root, asked.elements, asked.dtype) for ranks in choosing.tolist()]
    for i, request in enumerate(asks):
        alike.setdefault(served(asked, request), []).append(i)
    amounts, parts = (asked.name, n, asked.root, asked.size_bytes, asked.elements, _blocks(asked)), []
    for by, groups in alike.items():
        ranks = asked.ranks if len(alike) == 1 else asked.ranks[groups]
        parts.append(Part(What(asked.axis, by, *amounts), ranks, asks[groups[0]]))
    return parts


def _blocks(asked: Different) -> bytes:
    """Each member gives what the first gives."""
    if not asked.splits:
        return b""
    n = asked.ranks.shape[1]
    return packed_blocks(asked.name, operation(asked.name, n, asked.root), [np.array(asked.splits)] * n, asked.elements)


def time_each(
    requests: Sequence[Different], parts: Sequence[list[Part]], topology: Topology, placement: I64, launch_fs: int = 0
) -> list[Once]:
    """[Q] what each takes.

    Of large ones that differ in nothing but their size, the smallest and the largest are timed; between them time is taken to
    grow evenly, as it does where it is latency and bytes over a bandwidth. One root is timed for all.

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
    for alike in _but_for_size(requests, parts):
        by_size: dict[int, Once] = {}
        sizes = sorted({requests[i].size_bytes for i in alike})
        for size in (sizes[0], sizes[-1], *sizes[1:-1]):
            first = next(i for i in alike if requests[i].size_bytes == size)
            by_size[size] = _between(by_size, size) or _known(parts[first], topology, placement, launch_fs)
        found |= {i: by_size[requests[i].size_bytes] for i in alike}
    return [found[i] for i in range(len(requests))]


def _between(known: Mapping[int, Once], size: int) -> Once | None:
    """What a size takes between the smallest and the largest, if these are known and large."""
    if len(known) < 2:
        return None
    low, high = min(known), max(known)
    least, most = known[low], known[high]
    if min(least.tasks, most.tasks) <= LIGHT or not np.array_equal(least.link, most.link):
        return None
    return least.between(most, (size - low) / (high - low))


def _but_for_size(requests: Sequence[Different], parts: Sequence[list[Part]]) -> Iterator[list[int]]:
    """Those that are alike but for size and root; each by itself where members give blocks of their own."""

    def alike(i: int) -> str:
        by, own = [part.what.served for part in parts[i]], i if requests[i].splits else -1
        return repr((requests[i].kind, requests[i].name, by, own))

    for _, several in groupby(sorted(range(len(requests)), key=alike), alike):
        yield list(several)


def _known(parts: Sequence[Part], topology: Topology, placement: I64, launch_fs: int) -> Once:
    """As `time_once`, where other steps on the topology may have asked for the same of the same NPUs."""
    what = ((part.what, digest([placement[part.ranks]])) for part in parts)
    return _remembered(topology, tuple(what), launch_fs, _Untold(parts, placement))


@dataclass(frozen=True, slots=True)
class _Untold:
    """What is no part of a key: it is told by others."""

    parts: Sequence[Part] = field(compare=False)
    placement: I64 = field(compare=False)


@kept(2**11)
def _remembered(topology: Topology, key: Hashable, launch_fs: int, of: _Untold) -> Once:
    return time_once(of.parts, topology, of.placement, launch_fs)


def time_once(parts: Sequence[Part], topology: Topology, placement: I64, launch_fs: int = 0) -> Once:
    """Time a request of all its groups at once.

    Args:
        parts: Those that are served alike.
        topology: Where it runs.
        placement: The NPU of each rank.
        launch_fs: Ticks that each rank takes to enter it.

    Raises:
        InputError: as `lay_request` and `lowered`.
    """
    laid = [lay_request(part.what, topology, placement[part.ranks]) for part in parts]
    domain = domain_of(topology, np.concatenate([placement[part.ranks].ravel() for part in parts]), laid)
    pieces = [launched(lowered(each, domain), launch_fs) for each in laid]
    graph, exits = _side_by_side(pieces)
    timeline = run(graph)
    left, what = int(timeline.end_fs.max(initial=0)), parts[0].what
    if what.served is None:
        left = int(timeline.left_fs[np.diff(graph.hop_start) > 0].max())
    elif what.name in ROOTED:
        left = round(float(timeline.end_fs[exits].mean()))
    number = np.arange(len(topology.links)) if domain is None else domain.links.number
    return once_of(graph, timeline, number, left)


def _side_by_side(pieces: Sequence[Piece]) -> tuple[Graph, I64]:
    """One graph of several, and the joins with which participants leave."""
    if len(pieces) == 1:
        return pieces[0].graph, pieces[0].exit.astype(np.int64)
    builder = Builder(pieces[0].graph.capacity_Bps)
    nobody = [np.full(piece.alike.size, -1) for piece in pieces]
    firsts = [builder.piece(piece, none, none) for piece, none in zip(pieces, nobody, strict=True)]
    return builder.graph(), np.concatenate([first + piece.exit for first, piece in zip(firsts, pieces, strict=True)])


def once_of(graph: Graph, timeline: Timeline, number: I64, left: int) -> Once:
    """What a request took, and what of each link.

    Args:
        graph: Its messages.
        timeline: When they ran.
        number: [links of the topology] which link of the graph stands for each.
        left: When those that need not wait for its end have left.
    """
    busy_s = timeline.busy_s(graph.capacity_Bps)
    link = np.flatnonzero(busy_s[number])
    end = int(timeline.end_fs.max(initial=0))
    if not len(link):
        return Once(end, 0, link, busy_s[:0], 1.0, graph.n_tasks)
    task = np.repeat(np.arange(graph.n_tasks), np.diff(graph.hop_start))
    on_worst = graph.hop_link == busy_s.argmax()
    crossing = ((timeline.left_fs - timeline.start_fs)[task] * graph.hop_weight)[on_worst].sum() / TICKS_PER_S
    return Once(end, end - left, link, busy_s[number[link]], max(1.0, float(crossing / busy_s.max())), graph.n_tasks)
