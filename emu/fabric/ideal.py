"""The ideal fabrics that claims are made on, from a schedule itself: ports or links of one rate and one latency.

P participants, R distinct (src, dst, channel).
"""

import numpy as np

from emu.arrays import I64, Bool, column
from emu.collective.claim import Fabric
from emu.collective.schedule import Schedule
from emu.errors import must_be
from emu.topology.topology import Links, Router, Routes, Topology

_CHANNELS = 2**15


def ideal(schedule: Schedule, fabric: Fabric, *, bandwidth_Bps: float, latency_fs: int) -> Topology:
    """The fabric that a claim names; participant p is node p, and a route's key is its channel.

    Args:
        schedule: Whose participants and channels have the ports or links.
        fabric: See `Claim`.
        bandwidth_Bps: Of each port or link.
        latency_fs: Ticks of each route.

    Raises:
        InputError: an unknown fabric.
    """
    if fabric not in ("rank", "channel", "link", "pair"):
        raise must_be("ideal", "fabric", "rank, channel, link or pair", fabric)
    full = schedule.expand()
    src, dst, channel = (column(c[full.src != full.dst], np.int64) for c in (full.src, full.dst, full.channel))
    n, by_channel = full.n_participants, fabric in ("channel", "link")
    build = _ports if fabric in ("rank", "channel") else _direct
    tails, heads, router = build(src, dst, channel * by_channel, n, by_channel)
    links = Links(
        column(tails, np.int32),
        column(heads, np.int32),
        column(np.full(len(tails), bandwidth_Bps), np.float64),
        column(np.where(tails < n, latency_fs, 0), np.int64),  # once a route: on the port out, or on the link
        column(np.zeros(len(tails)), np.int16),
    )
    return Topology(f"ideal {fabric}", n, n + 1, links, router)


def _ports(src: I64, dst: I64, channel: I64, hub: int, by_channel: bool) -> tuple[I64, I64, Router]:
    """One port out of, and one into, each (participant, channel); node P joins them."""
    out, into = np.unique(src * _CHANNELS + channel), np.unique(dst * _CHANNELS + channel)

    def router(src: I64, dst: I64, key: I64) -> Routes:
        first, leaves = _find(out, src * _CHANNELS + key * by_channel)
        second, arrives = _find(into, dst * _CHANNELS + key * by_channel)
        there = leaves & arrives
        links = np.stack((first, len(out) + second), axis=-1)[there]
        return Routes(np.concatenate(([0], np.cumsum(2 * there))), column(links, np.int32))

    tails = np.concatenate((out // _CHANNELS, np.full(len(into), hub)))
    heads = np.concatenate((np.full(len(out), hub), into // _CHANNELS))
    return tails, heads, router


def _direct(src: I64, dst: I64, channel: I64, n: int, by_channel: bool) -> tuple[I64, I64, Router]:
    """One link for each (src, dst, channel)."""
    known = np.unique((src * n + dst) * _CHANNELS + channel)

    def router(src: I64, dst: I64, key: I64) -> Routes:
        link, there = _find(known, (src * n + dst) * _CHANNELS + key * by_channel)
        return Routes(np.concatenate(([0], np.cumsum(there))), column(link[there], np.int32))

    pair = known // _CHANNELS
    return pair // n, pair % n, router


def _find(known: I64, wanted: I64) -> tuple[I64, Bool]:
    """Where each wanted number is among the known ones, and whether it is."""
    if len(known) == 0:
        return np.zeros_like(wanted), np.zeros(len(wanted), np.bool_)
    at = np.minimum(np.searchsorted(known, wanted), len(known) - 1)
    return at, column(known[at] == wanted, np.bool_)
