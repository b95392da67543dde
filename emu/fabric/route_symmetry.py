"""The test that routes keep the symmetries of a job: the route of each pair's image is the image of its route.

Letters: R pairs of a copy, D copies, L links.
"""

import numpy as np

from emu.arrays import I64, column
from emu.equivalence import Orbits
from emu.fabric.lowering.message_routes import RoutePairs
from emu.fabric.lowering.placed_schedule import PlacedSchedule
from emu.topology.paths.spray import shares_kept
from emu.topology.topology import Topology

SymmetryImage = tuple[I64, I64]  # where a symmetry brings every node, and every link
_MOST_ROUTED_PAIRS = 2**19  # up to this many pairs of all copies, each is routed, which is a proof
_MOST_COMPARED_HOPS = 2**21  # up to this many hops, the routes of all copies are compared


def routes_keep_symmetries(
    placed: PlacedSchedule, copies: Orbits, images: tuple[SymmetryImage, ...], products: tuple[SymmetryImage, ...]
) -> bool:
    """Return whether symmetries map the routes of a placed schedule onto routes.

    Where all copies have few enough pairs or hops, the routes of all are compared, which is a proof. Otherwise the routes of
    the copies that stand for all are compared, under each symmetry and some products of symmetries.

    Args:
        placed: The placed schedule, which the symmetries map onto itself.
        copies: The orbits of its copies.
        images: The symmetries.
        products: Some products of powers of the symmetries.
    """
    n_copies = len(copies.number)
    if placed.topology.spray is None and len(placed.classes.pairs[0]) * n_copies <= _MOST_ROUTED_PAIRS:
        proved = _all_hops_kept(placed, n_copies, images)
        if proved is not None:
            return proved
    hops = _hops_kept(placed.topology, placed.route_pairs(copies.first), (*images, *products))
    if hops is None or hops * n_copies > _MOST_COMPARED_HOPS * len(copies.first):
        return hops is not None
    return _hops_kept(placed.topology, placed.route_pairs(np.arange(n_copies)), images) is not None


def _all_hops_kept(placed: PlacedSchedule, n_copies: int, images: tuple[SymmetryImage, ...]) -> bool | None:
    """Return whether symmetries map the routes of all pairs onto routes; None if a pair's image is not that of another copy.

    Each pair is routed once only, as its image is the same pair of another copy. What holds for symmetries holds for their
    products.
    """
    src, dst, key = placed.route_pairs(np.arange(n_copies))
    found = placed.topology.router(src, dst, key)
    hops, first = found.hops, n_copies * np.arange(len(placed.classes.pairs[0]))[:, None]
    for node, link in images:
        at = (first + placed.copy_images(node)).ravel()
        if not (np.array_equal(src[at], node[src]) and np.array_equal(dst[at], node[dst])):
            return None
        if not np.array_equal(hops[at], hops):
            return False
        there = np.arange(len(found.link)) + np.repeat(found.start[at] - found.start[:-1], hops)
        if not np.array_equal(found.link[there], link[found.link]):
            return False
    return True


def _hops_kept(topology: Topology, pairs: RoutePairs, images: tuple[SymmetryImage, ...]) -> int | None:
    """Return the number of hops of the routes of pairs; None if a symmetry does not map them onto routes."""
    src, dst, key = pairs
    if topology.spray is not None:
        hops = [shares_kept(topology, topology.spray, pairs, *image) for image in images]
        return None if None in hops else hops[0]
    found = topology.router(*pairs)
    for node, link in images:
        mapped = topology.router(column(node[src], np.int64), column(node[dst], np.int64), key)
        if not (np.array_equal(mapped.start, found.start) and np.array_equal(mapped.link, link[found.link])):
            return None
    return len(found.link)
