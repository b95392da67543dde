"""Bodies: a request as one message, which shares the links that it crosses with other requests.

The body has the bytes of one flow over the busiest link, and takes as long as that link is busy; a delay for the rest of the
time follows. The weight of a body on a link is the number of such flows. Alone a body takes the time of its request.
Q distinct requests, L links of the topology, K kinds of requests, S representative links.
"""

from collections.abc import Hashable, Iterable, Sequence
from enum import IntEnum
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from emu.arrays import F64, I32, I64, Bool, column, distinct, ramps
from emu.equivalence import Orbits
from emu.study.isolated_request import IsolatedRequest
from emu.units import TICKS_PER_S, seconds

_PARTS = 64  # of a flow that a weight counts, so that it can be whole
_MOST = 256  # links that are looked at, those that carry most


class Bodies(NamedTuple):
    """The messages of all requests as columns of a `Graph`.

    One of each request, then one for the rest after its sender has left.
    """

    capacity_Bps: F64  # [S, then one a request that shares]
    size_bytes: I64  # [2 Q]
    alpha_fs: I64  # [2 Q]
    hop_start: I64  # [2 Q + 1]
    hop_link: I32
    hop_weight: I32

    @property
    def has_tail(self) -> Bool:
        """[Q] whether a request continues after its sender has left it."""
        half = len(self.alpha_fs) // 2
        return (self.alpha_fs[half:] > 0) | (self.size_bytes[half:] > 0)

    def of(self, requests: I64) -> tuple[I64, I64, I64, I32, I32]:
        """Return the columns of a `Graph` for one message of each of `requests`.

        A request that is named twice has two messages.
        """
        hops = np.diff(self.hop_start)[requests]
        start, at = np.concatenate(([0], np.cumsum(hops))), ramps(self.hop_start[requests], hops)
        return self.size_bytes[requests], self.alpha_fs[requests], start, self.hop_link[at], self.hop_weight[at]


def busy_s(isolated: Sequence[IsolatedRequest], counts: I64, n_links: int) -> F64:
    """Return [n_links] the seconds that each link needs at full rate for all requests of a step.

    Args:
        isolated: [Q] the time of each request alone.
        counts: [Q] how often each request is made.
        n_links: The number of links of the topology.
    """
    total = np.zeros(n_links)
    for n, each in zip(counts.tolist(), isolated, strict=True):
        total[each.link] += n * each.busy_s
    return total


class Sharing(IntEnum):
    """How much of its links a request is assumed to need while it runs: nothing, what its messages need (FLOWS), or all."""

    NOTHING = 0  # of others: it lasts as long as alone, and each rank leaves it when ranks do on average
    FLOWS = 1  # as much as its messages keep a link busy
    ALL = 2  # each link that it crosses, all the time: with another one there, both last as long as one after another


def bodies_of(
    isolated: Sequence[IsolatedRequest],
    kinds: Sequence[Hashable],
    counts: I64,
    capacity_Bps: F64,
    sharing: Sharing = Sharing.FLOWS,
) -> Bodies:
    """Return the message that stands for each request.

    Args:
        isolated: [Q] the time of each request alone.
        kinds: [Q] a key for each request; requests with equal keys run one after another, so that they never share a link.
        counts: [Q] how often each request is made in a step.
        capacity_Bps: [L] the bandwidth of each link.
        sharing: How much of a link each request needs while it runs: nothing, as much as its messages use, or all.
    """
    representative = _representative_links(isolated, kinds, busy_s(isolated, counts, len(capacity_Bps)))
    if sharing == Sharing.NOTHING:
        isolated, representative = [each.left_on_average for each in isolated], representative[:0]
    if sharing == Sharing.ALL:
        isolated = [each._replace(tail=0) for each in isolated]
    crossed = _busy_seconds(representative, isolated, len(capacity_Bps))
    body = _whole_body if sharing == Sharing.ALL else _body
    parts = [body(each, on, capacity_Bps, representative) for each, on in zip(isolated, crossed, strict=True)]
    hops, none = _hops_of(parts, len(representative)), np.empty(0, np.int64)
    hops += [of if part.late_bytes else (none, none) for part, of in zip(parts, hops, strict=True)]
    return Bodies(
        np.concatenate((_PARTS * capacity_Bps[representative], [part.rate_Bps for part in parts if part.rate_Bps > 0])),
        np.array([*(part.size_bytes for part in parts), *(part.late_bytes for part in parts)], dtype=np.int64),
        np.array([*(part.alpha_fs for part in parts), *(part.late_fs for part in parts)], dtype=np.int64),
        np.cumsum([0, *(len(link) for link, _ in hops)]),
        column(np.concatenate([none, *(link for link, _ in hops)]), np.int32),
        column(np.concatenate([none, *(weight for _, weight in hops)]), np.int32),
    )


class _Body(NamedTuple):
    """One message that stands for a whole request in the graph of a composed step.

    The sender is free once `size_bytes` have left it. A tail of bytes and ticks follows for which the receivers still wait.
    """

    size_bytes: int
    alpha_fs: int  # ticks that do not depend on the bytes
    rate_Bps: float  # the bandwidth that the message has alone; 0: it shares no link, and is only a delay
    link: I64  # the representative links that the message crosses
    weight: I64  # its weight on each of these links
    late_bytes: int  # bytes over the same links after the sender, or a rank of a rooted operation on average, has left
    late_fs: int  # ticks of the request after these bytes


def _hops_of(parts: Sequence[_Body], n_links: int) -> list[tuple[I64, I64]]:
    """Return the links and the weights of each body: on representative links, and on one of its own if it shares any.

    Args:
        parts: The bodies.
        n_links: The number of representative links, after which the bodies' own links are numbered.
    """
    found = list[tuple[I64, I64]]()
    for part in parts:
        own = np.array([[n_links], [1]])[:, : int(part.rate_Bps > 0)]  # a link that no other has
        found.append((np.append(part.link, own[0]), np.append(part.weight, own[1])))
        n_links += part.rate_Bps > 0
    return found


def _body(isolated: IsolatedRequest, busy: F64, capacity_Bps: F64, representative: I64) -> _Body:
    """Return the message of one request.

    A request that shares no link is a delay. If ranks leave it before its end it has a link to itself, so that a report can
    tell it from a join.

    Args:
        isolated: The time of the request alone.
        busy: [S] the seconds that the request keeps each representative link busy.
        capacity_Bps: [L] the bandwidth of each link.
        representative: [S] the representative links.
    """
    link, until = np.flatnonzero(busy), isolated.ticks - isolated.tail
    if not len(link) and not isolated.tail:
        return _Body(0, until, 0.0, link, link, 0, 0)
    worst = int(isolated.busy_s.argmax())
    lasts_fs = max(1, round(float(isolated.busy_s[worst]) * TICKS_PER_S))
    whole = max(1, round(float(isolated.busy_s[worst]) * float(capacity_Bps[isolated.link[worst]]) / isolated.flows))
    ticks = min(lasts_fs, until)
    size = max(1, round(whole * ticks / lasts_fs))
    after = min(lasts_fs - ticks, isolated.tail) if len(link) else 0  # a link to itself would be shared with the next like it
    late = round((whole - size) * after / max(1, lasts_fs - ticks))
    weight = np.maximum(1, np.floor(_PARTS * busy[link] * capacity_Bps[representative[link]] / whole)).astype(np.int64)
    return _Body(size, until - ticks, size / seconds(ticks), link, weight, late, isolated.tail - after)


def _whole_body(isolated: IsolatedRequest, busy: F64, capacity_Bps: F64, representative: I64) -> _Body:
    """Return the body of a request that needs all of its links all the time; see `_body` for the arguments."""
    link, ticks = np.flatnonzero(busy), isolated.ticks
    if not len(link) or ticks <= 0:
        return _body(isolated, busy, capacity_Bps, representative)
    rate = float(capacity_Bps[isolated.link[int(isolated.busy_s.argmax())]])
    size = max(1, round(rate * seconds(ticks)))
    weight = np.maximum(1, np.floor(_PARTS * capacity_Bps[representative[link]] / rate)).astype(np.int64)
    return _Body(size, 0, size / seconds(ticks), link, weight, 0, 0)


def _busy_seconds(links: I64, isolated: Sequence[IsolatedRequest], n_links: int) -> F64:
    """Return [Q, S] the seconds for which each of Q requests keeps each of S links busy."""
    place = np.full(n_links, -1)
    place[links] = np.arange(len(links))
    found = np.zeros((len(isolated), len(links)))
    for i, each in enumerate(isolated):
        at = place[each.link]
        found[i, at[at >= 0]] = each.busy_s[at >= 0]
    return found


def _representative_links(isolated: Sequence[IsolatedRequest], kinds: Sequence[Hashable], total_s: F64) -> I64:
    """Return [S] representative links: one for each set of links that the same kinds of requests cross.

    A link is left out if another link has at least its load by every request. A kind counts twice if one of its requests
    continues after ranks have left it, because the next of the kind may begin before its end.

    Args:
        isolated: [Q] the time of each request alone.
        kinds: [Q] the kind of each request.
        total_s: [L] the seconds for which all requests together keep each link busy.
    """
    n_kinds, by_kind = np.zeros(len(total_s), np.int64), dict[Hashable, list[IsolatedRequest]]()
    for each, kind in zip(isolated, kinds, strict=True):
        by_kind.setdefault(kind, []).append(each)
    crossed = [distinct(np.concatenate([each.link for each in alike]), len(total_s))[0] for alike in by_kind.values()]
    for links, alike in zip(crossed, by_kind.values(), strict=True):
        n_kinds[links] += 1 + any(each.goes_on for each in alike)
    shared = np.flatnonzero(n_kinds > 1)
    by_total = shared[np.argsort(-total_s[shared], kind="stable")]
    first = Orbits.by_value(crossing_codes(crossed, len(total_s))[by_total]).in_order().first
    found = by_total[first[:_MOST]]
    return column(found[undominated(_busy_seconds(found, isolated, len(total_s)).T)], np.int64)


def crossing_codes(crossed: Iterable[I64], n_links: int) -> NDArray[np.uint64]:
    """Return [n_links] a code for each link; links have equal codes if the same sets of `crossed` contain them."""
    random, code = np.random.default_rng(0), np.zeros(n_links, np.uint64)
    for links in crossed:
        code[links] += random.integers(1, 2**63, dtype=np.uint64)
    return code


def undominated(rows: F64 | Bool) -> list[int]:
    """Return the numbers of the rows that no earlier kept row dominates (is as large or larger in every entry)."""
    kept = list[int]()
    for i, row in enumerate(rows):
        if not (rows[kept] >= row).all(axis=1).any():
            kept.append(i)
    return kept
