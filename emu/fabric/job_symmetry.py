"""The symmetries of a job: those of its topology that also map the job onto itself, and the ranks that represent all.

Letter: N ranks of a job.
"""

from collections.abc import Callable, Sequence
from functools import reduce
from typing import NamedTuple

import numpy as np
from cachetools import LRUCache

from emu.arrays import I64, column
from emu.equivalence import Orbits
from emu.fabric.lowering.classes import JobOrbits
from emu.fabric.lowering.message_routes import MessageRoutes, RoutePairs, shared_routes
from emu.fabric.lowering.placed_schedule import PlacedSchedule
from emu.topology.paths.spray import shares_kept
from emu.topology.symmetry_search import LinkImages
from emu.topology.topology import Topology, cached_by_topology

SymmetryImage = tuple[I64, I64]  # where a symmetry brings every node, and every link
_PRODUCTS = 2  # products of random powers of the symmetries for which routes are compared too
_MOST_COMPARED_HOPS = 2**21  # up to this many hops, the routes of all copies are compared
_MOST_CACHED = 64  # placed schedules of a topology whose routes are cached

PermutationTest = Callable[[I64], bool]  # says whether a permutation of nodes keeps something


def orbits_of_job(
    topology: Topology, npus: I64, placed: Sequence[PlacedSchedule], same_work: PermutationTest | None = None
) -> JobOrbits | None:
    """Return the orbits of nodes and links of a job; None if no symmetry makes one rank represent another.

    The candidates are the declared symmetries of the topology, or the least powers of them, that map everything in the job onto
    something in the job. A test says whether routes keep them: on the copies that would stand for all, under each power and
    some products of powers. Where routes have few enough hops, all copies are tested, which is a proof.

    Args:
        topology: The topology on which the job runs.
        npus: [N] the NPU of each rank.
        placed: All placed schedules of the job.
        same_work: A function that says whether a permutation of nodes maps each rank to one that computes the same; None: no
            rank computes.
    """
    found = _candidate_orbits(topology, npus, placed, same_work)
    return found[0] if found is not None and all(_keeps_routes(each, *found) for each in placed) else None


def assumed_orbits_of_job(topology: Topology, npus: I64, placed: Sequence[PlacedSchedule]) -> JobOrbits | None:
    """Return the orbits that a job has if all its routes keep the symmetries, without a comparison of routes.

    The function is quick. `orbits_of_job` compares the routes, and returns the same orbits or None.
    """
    found = _candidate_orbits(topology, npus, placed)
    return None if found is None else found[0]


def _candidate_orbits(
    topology: Topology, npus: I64, placed: Sequence[PlacedSchedule], same_work: PermutationTest | None = None
) -> tuple[JobOrbits, tuple["SymmetryPower", ...]] | None:
    """Return the orbits of a job and the powers of symmetries that make it, before routes are compared.

    Each power keeps everything else of the job. None is returned if the topology declares no symmetry, if its circuits change,
    or if no power keeps the job.
    """
    if topology.symmetry is None or topology.circuits or not len(npus):
        return None
    tests = [*([same_work] if same_work else []), *(each.keeps for each in placed)]
    powers = powers_of(topology, npus, lambda node: all(keeps(node) for keeps in tests))
    if not powers:
        return None
    _, _, nodes, links = _images_and_orbits(topology, powers)
    return JobOrbits(nodes, links), powers


class SymmetryPower(NamedTuple):
    """A symmetry that a topology declares, applied a number of times."""

    which: int  # number of the declared symmetry
    k: int  # exponent
    length: int  # number of times after which the first rank is back at its place


def powers_of(topology: Topology, npus: I64, keeps: PermutationTest) -> tuple[SymmetryPower, ...]:
    """Return the least power of each declared symmetry for which `keeps` is true; symmetries without one are left out."""
    found = (_least_power(topology, which, int(npus[0]), keeps) for which in range(len(_declared(topology))))
    return tuple(power for power in found if power is not None)


def _least_power(topology: Topology, which: int, first: int, keeps: PermutationTest) -> SymmetryPower | None:
    """Return the least power of a symmetry that moves the first rank, maps links onto links and satisfies `keeps`."""
    length = _length(_declared(topology)[which], first)
    powers = (SymmetryPower(which, k, length // k) for k in range(1, length) if length % k == 0)
    return next((p for p in powers if keeps(_node(topology, which, p.k)) and image_of(topology, p) is not None), None)


# The functions below are cached: a step calls them for each of its many collectives.
@cached_by_topology(256)
def _node(topology: Topology, which: int, k: int) -> I64:
    """Return [n_nodes] the node onto which the k-th power of declared symmetry `which` maps each node."""
    return column(_power(_declared(topology)[which], k), np.int64)


def image_of(topology: Topology, power: SymmetryPower) -> SymmetryImage | None:
    """Return the images of all nodes and links under a power of a symmetry; None if some link is not mapped onto a link."""
    node, link = _node(topology, power.which, power.k), _link(topology, power.which, power.k)
    return None if link is None else (node, link)


@cached_by_topology(32)
def _link(topology: Topology, which: int, k: int) -> I64 | None:
    """Return [links] the link onto which the k-th power of a symmetry maps each link.

    The result is None if some link is not mapped onto a link.
    """
    return _link_images(topology).links_by(_node(topology, which, k))


@cached_by_topology(8)
def _images_and_orbits(
    topology: Topology, powers: tuple[SymmetryPower, ...]
) -> tuple[tuple[SymmetryImage, ...], tuple[SymmetryImage, ...], Orbits, Orbits]:
    """Return the images under some powers and under random products of them, and the orbits of nodes and of links."""
    found = (image_of(topology, power) for power in powers)
    images = tuple(each for each in found if each is not None)
    nodes, links = (Orbits.of(len(each[0]), list(each)) for each in zip(*images, strict=True))
    return images, tuple(_products(images, [power.length for power in powers])), nodes, links


def _keeps_routes(placed: PlacedSchedule, job_orbits: JobOrbits, powers: tuple[SymmetryPower, ...]) -> bool:
    """Return whether the routes of a placed schedule keep the symmetries of a job; if so, store the routes in `job_orbits`.

    The result is cached by the pairs, because a job sends many sizes between the same pairs.
    """
    known, name = _known_routes(placed.topology), (powers, placed.pairs_name)
    if name not in known:
        known[name] = _routes_kept(placed, job_orbits, powers)
    routes = known[name]
    if routes is not None:
        job_orbits.routes[placed] = routes
    return routes is not None


@cached_by_topology(1)
def _known_routes(topology: Topology) -> LRUCache[object, MessageRoutes | None]:
    """Return the cache of a topology's routes over orbits of links, by the powers of symmetries and the pairs.

    An entry has a number or two for each hop.
    """
    return LRUCache(_MOST_CACHED)


def _routes_kept(placed: PlacedSchedule, job_orbits: JobOrbits, powers: tuple[SymmetryPower, ...]) -> MessageRoutes | None:
    """Return a placed schedule's routes over orbits of links; None if the symmetries do not keep these routes."""
    topology, copies = placed.topology, placed.copies(job_orbits)
    images, products, _, _ = _images_and_orbits(topology, powers)
    pairs, share = placed.route_pairs(copies.first), len(copies.number) / max(1, len(copies.first))
    proved = _all_hops_kept(placed, len(copies.number), images) if _few_hops(topology, pairs, share) else None
    if proved is not None:
        return shared_routes(topology, pairs, copies, job_orbits.links) if proved else None
    hops = _hops_kept(topology, pairs, (*images, *products))
    routes = None if hops is None else shared_routes(topology, pairs, copies, job_orbits.links)
    if hops is None or routes is None or hops * share > _MOST_COMPARED_HOPS:
        return routes
    return routes if _hops_kept(topology, placed.route_pairs(np.arange(len(copies.number))), images) is not None else None


def _few_hops(topology: Topology, pairs: RoutePairs, share: float) -> bool:
    """Return whether no message is sprayed, and the routes of all copies have few enough hops to be compared.

    Args:
        topology: The topology.
        pairs: The pairs of some copies.
        share: The number of all copies for each of these.
    """
    return topology.spray is None and len(topology.router(*pairs).link) * share <= _MOST_COMPARED_HOPS


def _all_hops_kept(placed: PlacedSchedule, copies: int, images: tuple[SymmetryImage, ...]) -> bool | None:
    """Return whether symmetries map the routes of all pairs onto routes; None if they map a pair onto none of the pairs.

    Each pair is routed once only, as its image is another of the pairs. What holds for symmetries holds for their products.
    """
    topology, (src, dst, key) = placed.topology, placed.route_pairs(np.arange(copies))
    names, number = np.unique(key, return_inverse=True)
    codes = (src.astype(np.int64) * topology.n_nodes + dst) * len(names) + number
    order, found = np.argsort(codes), topology.router(src, dst, key)
    ascending_codes, hops, at = codes[order], found.hops, np.empty_like(order)
    for node, link in images:
        mapped = (node[src] * topology.n_nodes + node[dst]) * len(names) + number
        by_image = np.argsort(mapped)  # sorting both sides is ten times faster than searching one in the other
        if not np.array_equal(ascending_codes, mapped[by_image]):
            return None
        at[by_image] = order
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


@cached_by_topology(1)
def _link_images(topology: Topology) -> LinkImages:
    """Return the lookup tables that map links of a topology under its symmetries."""
    return LinkImages.of(topology.links, topology.n_nodes)


@cached_by_topology(1)
def _declared(topology: Topology) -> tuple[I64, ...]:
    """Return the declared symmetries of a topology, as permutations of nodes."""
    return tuple(column(node, np.int64) for node in (topology.symmetry() if topology.symmetry else ()))


def _length(node: I64, first: int) -> int:
    """Return how many times a permutation must be applied until it maps node `first` onto itself."""
    length, here = 1, node[first]
    while here != first:
        length, here = length + 1, node[here]
    return length


def _power(permutation: I64, k: int) -> I64:
    """Return a permutation applied k times; the identity for k = 0."""
    found, square = permutation if k % 2 else np.arange(len(permutation)), permutation
    while k := k // 2:
        square = square[square]
        found = square[found] if k % 2 else found
    return found


def _products(images: tuple[SymmetryImage, ...], lengths: list[int]) -> list[SymmetryImage]:
    """Return some products of random powers of all symmetries, as images; a fixed seed makes them the same in every run.

    Args:
        images: The symmetries, as images of nodes and links.
        lengths: For each symmetry, the number of times after which it brings the first rank back to its own NPU.
    """
    random, products = np.random.default_rng(0), []
    for _ in range(_PRODUCTS):
        powers = [[_power(c, k) for c in image] for image, k in zip(images, random.integers(1, lengths), strict=True)]
        node, link = (reduce(lambda done, power: power[done], chain) for chain in zip(*powers, strict=True))
        products.append((node, link))
    return products
