"""The ideal fabrics on which claims are made: ports or links with one rate and one latency for each class of links.

They are made from the schedule itself. Letters: P pairs, C classes of links.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np

from emu.arrays import I64, Bool, column
from emu.collective.claim import Fabric
from emu.collective.schedule import Schedule
from emu.errors import must_be
from emu.topology.topology import Links, Router, Routes, Topology

_CHANNELS = 2**15
LinkClass = Callable[[I64, I64], I64]  # (src[P], dst[P]) -> the class of each pair of participants


def ideal(
    schedule: Schedule,
    fabric: Fabric,
    *,
    bandwidth_Bps: float | Sequence[float],
    latency_fs: int | Sequence[int],
    link_class: LinkClass | None = None,
) -> Topology:
    """Return the ideal fabric of a claim; participant p is node p, and a route's key is its channel.

    Args:
        schedule: The schedule whose participants and channels get ports or links.
        fabric: See `Claim`.
        bandwidth_Bps: [C] of each port or link of a class; one number means one class.
        latency_fs: [C] ticks of each route.
        link_class: The class of each pair, 0..C-1; None: all pairs are in class 0.

    Raises:
        InputError: The fabric is unknown, or a class has no rate or no latency.
    """
    if fabric not in ("rank", "channel", "link", "pair"):
        raise must_be("ideal", "fabric", "rank, channel, link or pair", fabric)
    rate, latency = np.array(bandwidth_Bps, np.float64, ndmin=1), np.array(latency_fs, np.int64, ndmin=1)
    if len(rate) != len(latency):
        raise must_be("ideal", "latencies", f"{len(rate)}, one a class, as the rates are", len(latency))
    full = schedule.expand()
    src, dst, channel = (column(c[full.src != full.dst], np.int64) for c in (full.src, full.dst, full.channel))
    n, build = full.n_participants, _ports if fabric in ("rank", "channel") else _direct
    keys = _Keys(len(rate), fabric in ("channel", "link"), link_class)
    tails, heads, kind, router = build(src, dst, keys.of(src, dst, channel), n, keys)
    links = Links(
        column(tails, np.int32),
        column(heads, np.int32),
        column(rate[kind], np.float64),
        column(np.where(tails < n, latency[kind], 0), np.int64),  # once a route: on the port out, or on the link
        column(kind, np.int16),
    )
    return Topology(f"ideal {fabric}", n, n + 1, links, router)


@dataclass(frozen=True, slots=True)
class _Keys:
    """The rule that says which port of a participant, or which link of a pair, a message takes.

    There is one port or link for each class, or for each channel and class.
    """

    n_classes: int
    by_channel: bool
    link_class: LinkClass | None

    @property
    def span(self) -> int:
        """A number above every key."""
        return _CHANNELS * self.n_classes

    def of(self, src: I64, dst: I64, channel: I64) -> I64:
        """Return the key of each message; its remainder modulo the number of classes is its class."""
        kind = np.zeros_like(src) if self.link_class is None else np.asarray(self.link_class(src, dst), np.int64)
        if len(kind) and not 0 <= kind.min() <= kind.max() < self.n_classes:
            wrong = kind[(kind < 0) | (kind >= self.n_classes)][0]
            raise must_be("ideal", "a link class", f"0..{self.n_classes - 1}", wrong, "give each a rate and a latency")
        return channel * self.by_channel * self.n_classes + kind


def _ports(src: I64, dst: I64, key: I64, hub: int, keys: _Keys) -> tuple[I64, I64, I64, Router]:
    """Return the links and the router of a fabric with one port out of and one port into each (participant, key).

    Node P joins all ports.
    """
    out, into = np.unique(src * keys.span + key), np.unique(dst * keys.span + key)

    def router(src: I64, dst: I64, channel: I64) -> Routes:
        key = keys.of(src, dst, channel)
        first, leaves = _find(out, src * keys.span + key)
        second, arrives = _find(into, dst * keys.span + key)
        there = leaves & arrives
        links = np.stack((first, len(out) + second), axis=-1)[there]
        return Routes(np.concatenate(([0], np.cumsum(2 * there))), column(links, np.int32))

    tails = np.concatenate((out // keys.span, np.full(len(into), hub)))
    heads = np.concatenate((np.full(len(out), hub), into // keys.span))
    return tails, heads, np.concatenate((out, into)) % keys.n_classes, router


def _direct(src: I64, dst: I64, key: I64, n: int, keys: _Keys) -> tuple[I64, I64, I64, Router]:
    """Return the links and the router of a fabric with one link for each (src, dst, key)."""
    known = np.unique((src * n + dst) * keys.span + key)

    def router(src: I64, dst: I64, channel: I64) -> Routes:
        link, there = _find(known, (src * n + dst) * keys.span + keys.of(src, dst, channel))
        return Routes(np.concatenate(([0], np.cumsum(there))), column(link[there], np.int32))

    pair = known // keys.span
    return pair // n, pair % n, known % keys.n_classes, router


def _find(known: I64, wanted: I64) -> tuple[I64, Bool]:
    """Return the index of each wanted number among the known ones, and whether it is there."""
    if len(known) == 0:
        return np.zeros_like(wanted), np.zeros(len(wanted), np.bool_)
    at = np.minimum(np.searchsorted(known, wanted), len(known) - 1)
    return at, column(known[at] == wanted, np.bool_)
