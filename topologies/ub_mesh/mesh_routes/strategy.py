"""The setting `route` of routes between two NPUs: shortest, detour and borrow (UB-Mesh 6.3), multipath (5.1), and spreads.

Routes inside a board or a rack are source-routed, so that the sender's channel picks one of the paths of a pair (4.1). Channel
0 goes along X, then Y, and so do all channels of the shortest-path strategy. With the other strategies, channels take the
pair's further paths in turn, so that a message over as many channels as there are paths puts an equal part on each. A spray
splits each message evenly over the paths of multipath, detour or borrow; by least-loaded, a message takes the one of them with
the least on it when it starts. Letters: P pairs, H hops at most.

The module also computes the time until all NPUs have a direct notice of a failed link (UB-Mesh 4.2 and Figure 12); both ends of
the link notice the failure at once.
"""

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from functools import partial
from math import lcm
from typing import Annotated, NamedTuple

import numpy as np

from emu.arrays import I64, column
from emu.errors import must_be
from emu.topology.builders.route_parts import join
from emu.topology.catalogue import one_of
from emu.topology.fault_injection.machine_state import detour
from emu.topology.paths.spray import ways_by_number
from emu.topology.topology import CHANNELS, LEAST_LOADED, FailedParts, Reaction, Router, Routes, Spray, Topology
from emu.units import format_time, seconds
from topologies.ub_mesh.mesh_routes.apr import MeshPaths, mesh_paths


class Strategy(NamedTuple):
    """A routing strategy of UB-Mesh: how many extra hops its paths may have, and which paths it uses."""

    detours: int  # hops that a path may have more than the shortest
    by_channel: bool  # whether the channels of a pair take its paths in turn
    borrow: bool = False  # whether racks of a pod are joined over HRS too
    sprays: bool = False  # whether each message is split over the paths
    chooses: bool = False  # whether each message takes the one of the paths that has the least on it when it starts

    def spread(self, counts: Collection[int], ways: Callable[[I64, I64], tuple[I64, Routes]]) -> Spray | None:
        """Return the rule by which messages are spread over all paths of a pair; None if a channel takes one of them.

        Args:
            counts: The numbers of paths that pairs have.
            ways: The ways of a `Spray`.
        """
        return Spray(lcm(*counts), ways, max(counts), self.chooses) if self.sprays or self.chooses else None


STRATEGIES = {
    "shortest": Strategy(0, by_channel=False),
    "multipath": Strategy(0, by_channel=True),
    "detour": Strategy(1, by_channel=True),
    "borrow": Strategy(1, by_channel=True, borrow=True),
    "spray": Strategy(0, by_channel=True, sprays=True),
    "spray-detour": Strategy(1, by_channel=True, sprays=True),
    "spray-borrow": Strategy(1, by_channel=True, borrow=True, sprays=True),
    LEAST_LOADED: Strategy(0, by_channel=True, chooses=True),
    f"{LEAST_LOADED}-detour": Strategy(1, by_channel=True, chooses=True),
    f"{LEAST_LOADED}-borrow": Strategy(1, by_channel=True, borrow=True, chooses=True),
}
BASELINE = "shortest"  # the paper's "baseline routing strategy", against which 6.3 measures detour and borrow


Route = Annotated[str, one_of(*STRATEGIES)]


def without_hrs(name: str, route: str) -> str:
    """Return the name of a strategy, after the check that a topology without HRS can use it.

    Raises:
        InputError: The strategy is borrow.
    """
    if STRATEGIES[route].borrow:
        what = " or ".join(name for name, strategy in STRATEGIES.items() if not strategy.borrow)
        raise must_be(name, "route", what, route, "HRS to borrow from are in ub-mesh:superpod")
    return route


def mesh_router(links: Router, dims: tuple[int, ...], route: str) -> tuple[Router, Spray | None]:
    """Return the router of one full mesh, and the rule of its spray if it has one.

    Args:
        links: A router along the last dimension first, whose links are used.
        dims: The dims of the mesh.
        route: One of `strategy.STRATEGIES`.
    """
    strategy = STRATEGIES[route]
    if not strategy.by_channel:
        return links, None
    known = mesh_paths(dims, strategy.detours)
    router, counts = partial(_route, links, known), np.diff(known.start)
    ways = ways_by_number(lambda src, dst: known.between(src, dst)[1], router)
    return router, strategy.spread(counts.tolist(), ways)


def _route(links: Router, known: MeshPaths, src: I64, dst: I64, key: I64) -> Routes:
    """Return the routes of pairs within a mesh; the channel of a message selects its path."""
    nodes, lanes = walk_paths(known, src, dst, key)
    here, there = nodes[:, :-1], nodes[:, 1:]
    hops = here != there
    link = np.full(here.shape, -1)
    link[hops] = links(here[hops], there[hops], np.zeros(hops.sum(), np.int64)).link
    return lane_routes(link, lanes)


def walk_paths(known: MeshPaths, src: I64, dst: I64, key: I64) -> tuple[I64, I64]:
    """Return [P, H + 1] the nodes of the path that each key's channel takes, the last repeated, and [P, H] virtual lanes."""
    first, count = known.between(src, dst)
    return known.walk(src, first + key % CHANNELS % count)


def lane_routes(link: I64, lane: I64) -> Routes:
    """Return routes from the link of each hop [P, H], -1 for no hop, and its virtual lane [P, H]."""
    return replace(join([link]), virtual=column(lane[link >= 0], np.int16))


_LEAST = (
    "over X and Y by the way with the least on it when they start, of ways of a hop more at most, of which no two share a link"
)


def inside_words(route: str) -> str:
    """Return the assumption on messages inside a rack, in words."""
    ways = {
        "shortest": "X, then Y",
        "multipath": "X, then Y on even channels and Y, then X on odd ones",
        "spray": "X, then Y, and Y, then X, half of each message either way",
        LEAST_LOADED: "X, then Y, or Y, then X, where there is less to send when they start",
        f"{LEAST_LOADED}-detour": _LEAST,
        f"{LEAST_LOADED}-borrow": _LEAST,
    }.get(
        route,
        "over X and Y in equal parts of each message on all ways of a hop more at most, of which no two share a link"
        if STRATEGIES[route].sprays
        else "X, then Y on channel 0, on the others further ways in turn, of a hop more at most, of which no two share a link",
    )
    return f"inside a rack messages go {ways}, cut through by the NPUs between; its LRS carry none of them"


_NEVER = np.iinfo(np.int64).max


def notify_and_reroute(whole: Topology, broken: FailedParts, ranks: int, was: FailedParts) -> Reaction:
    """Return the reaction to failed parts: other routes, and backup NPUs for failed NPUs (UB-Mesh 3.3.2, 4.1, 4.2).

    Both ends of each link that has failed or is back send a notice to the NPUs of all ranks directly. Only those whose paths
    change must hear of it, so that the time is an upper limit. The neighbours of a failed NPU send the notices in its place.
    The paper does not print the time that a node needs to act on a notice, or the backup NPU to take over.
    """
    left, links = detour(whole, broken, ranks), whole.links
    used = left.topology.place(ranks, [node for node in broken.nodes if node < whole.n_npus])
    cables, nodes = list[tuple[int, int]](), list[int]()
    for changed in (broken.beyond(was), was.beyond(broken)):
        cables += changed.cables
        nodes += changed.nodes
    beside = [links.dst[(links.src == node) & ~np.isin(links.dst, broken.nodes)].tolist() for node in nodes]
    took = max((_notice_time(left.topology, ends, used) for ends in (*cables, *beside) if ends), default=0)
    told = f"all have heard in {format_time(seconds(took))} at most by direct notification (4.2), and take other paths"
    return replace(left, took_fs=took, told=told)


def _notice_time(left: Topology, ends: Sequence[int], nodes: I64) -> int:
    """Return the ticks until the last of the given nodes has a notice from an end of the failed part."""
    src, dst = np.repeat(column(ends, np.int64), len(nodes)), np.tile(nodes, len(ends))
    found = left.router(src, dst, np.zeros_like(src))
    pair, delay = np.repeat(np.arange(len(src)), found.hops), np.zeros(len(src), np.int64)
    np.add.at(delay, pair, left.links.latency_fs[found.link])
    delay[(found.hops == 0) & (src != dst)] = _NEVER
    first = delay.reshape(len(ends), len(nodes)).min(axis=0)
    return int(first[first < _NEVER].max(initial=0))
