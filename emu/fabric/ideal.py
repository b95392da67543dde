"""The ideal fabrics that claims are made on, from a schedule itself: ports or links of one rate and latency a class.

P pairs, C classes of links.
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
LinkClass = Callable[[I64, I64], I64]  # of (src[P], dst[P]): the class of each pair of participants


def ideal(
    schedule: Schedule,
    fabric: Fabric,
    *,
    bandwidth_Bps: float | Sequence[float],
    latency_fs: int | Sequence[int],
    link_class: LinkClass | None = None,
) -> Topology:
    """The fabric that a claim names; participant p is node p, and a route's key is its channel.

    Args:
        schedule: Whose participants and channels have the ports or links.
        fabric: See `Claim`.
        bandwidth_Bps: [C] of each port or link of a class; one number is one class.
        latency_fs: [C] ticks of each route.
        link_class: 0..C-1 for each pair; None: all are of class 0.

    Raises:
        InputError: an unknown fabric, or a class without a rate or a latency.
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
    """Which of the ports of a participant, or of the links of a pair, a message takes: one a class, or a channel and class."""

    n_classes: int
    by_channel: bool
    link_class: LinkClass | None

    @property
    def span(self) -> int:
        """More than any key."""
        return _CHANNELS * self.n_classes

    def of(self, src: I64, dst: I64, channel: I64) -> I64:
        """The key of each; its remainder by the classes is its class."""
        kind = np.zeros_like(src) if self.link_class is None else np.asarray(self.link_class(src, dst), np.int64)
        if len(kind) and not 0 <= kind.min() <= kind.max() < self.n_classes:
            wrong = kind[(kind < 0) | (kind >= self.n_classes)][0]
            raise must_be("ideal", "a link class", f"0..{self.n_classes - 1}", wrong, "give each a rate and a latency")
        return channel * self.by_channel * self.n_classes + kind


def _ports(src: I64, dst: I64, key: I64, hub: int, keys: _Keys) -> tuple[I64, I64, I64, Router]:
    """One port out of, and one into, each (participant, key); node P joins them."""
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
    """One link for each (src, dst, key)."""
    known = np.unique((src * n + dst) * keys.span + key)

    def router(src: I64, dst: I64, channel: I64) -> Routes:
        link, there = _find(known, (src * n + dst) * keys.span + keys.of(src, dst, channel))
        return Routes(np.concatenate(([0], np.cumsum(there))), column(link[there], np.int32))

    pair = known // keys.span
    return pair // n, pair % n, known % keys.n_classes, router


def _find(known: I64, wanted: I64) -> tuple[I64, Bool]:
    """Where each wanted number is among the known ones, and whether it is."""
    if len(known) == 0:
        return np.zeros_like(wanted), np.zeros(len(wanted), np.bool_)
    at = np.minimum(np.searchsorted(known, wanted), len(known) - 1)
    return at, column(known[at] == wanted, np.bool_)
