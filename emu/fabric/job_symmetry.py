"""The symmetries of a job: those of its topology that also map the job onto itself, and the ranks that represent all.

Letter: N ranks of a job.
"""

from collections.abc import Callable, Sequence
from functools import reduce
from typing import NamedTuple
from weakref import WeakKeyDictionary

import numpy as np
from cachetools import LRUCache

from emu.arrays import I64, column, digest
from emu.equivalence import Orbits
from emu.fabric.lowering.classes import JobOrbits
from emu.fabric.lowering.message_routes import MessageRoutes, shared_routes
from emu.fabric.lowering.placed_schedule import PlacedSchedule
from emu.fabric.route_symmetry import SymmetryImage, routes_keep_symmetries
from emu.topology.symmetry_search import LinkImages
from emu.topology.topology import Router, Topology, cached_by_topology

_PRODUCTS = 2  # products of random powers of the symmetries for which routes are compared too
_MOST_CACHED = 64  # placed schedules of a topology whose routes are cached
_MOST_VERDICTS = 2**12  # sets of pairs for which it is known whether a router keeps symmetries
_VERDICTS: WeakKeyDictionary[Router, LRUCache[object, bool]] = WeakKeyDictionary()  # by router

PermutationTest = Callable[[I64], bool]  # says whether a permutation of nodes keeps something


def orbits_of_job(
    topology: Topology, npus: I64, placed: Sequence[PlacedSchedule], same_work: PermutationTest | None = None
) -> JobOrbits | None:
    """Return the orbits of nodes and links of a job; None if no symmetry makes one rank represent another.

    The candidates are the declared symmetries of the topology, or the least powers of them, that map everything in the job onto
    something in the job. `routes_keep_symmetries` says whether routes keep them.

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
        copies = placed.copies(job_orbits)
        kept = _keep_symmetries(placed, copies, *name)
        pairs = placed.route_pairs(copies.first)
        known[name] = shared_routes(placed.topology, pairs, copies, job_orbits.links) if kept else None
    routes = known[name]
    if routes is not None:
        job_orbits.routes[placed] = routes
    return routes is not None


def _keep_symmetries(placed: PlacedSchedule, copies: Orbits, powers: tuple[SymmetryPower, ...], pairs_name: str) -> bool:
    """Return whether the routes of a placed schedule keep symmetries.

    The result is cached by the router: topologies that differ in rates and latencies alone have one router.

    Args:
        placed: The placed schedule.
        copies: The orbits of its copies.
        powers: The symmetries.
        pairs_name: The digest of the schedule's pairs.
    """
    topology = placed.topology
    name = (_link_ends(topology), topology.symmetry, topology.spray, powers, pairs_name)
    known = _known_verdicts(topology.router)
    if name not in known:
        images, products, _, _ = _images_and_orbits(topology, powers)
        known[name] = routes_keep_symmetries(placed, copies, images, products)
    return known[name]


def _known_verdicts(router: Router) -> LRUCache[object, bool]:
    """Return the cache of a router's verdicts; it is a new one where nothing can be kept by the router, such as a method."""
    try:
        return _VERDICTS.setdefault(router, LRUCache(_MOST_VERDICTS))
    except TypeError:
        return LRUCache(_MOST_VERDICTS)


@cached_by_topology(1)
def _known_routes(topology: Topology) -> LRUCache[object, MessageRoutes | None]:
    """Return the cache of a topology's routes over orbits of links, by the powers of symmetries and the pairs.

    An entry has a number or two for each hop.
    """
    return LRUCache(_MOST_CACHED)


@cached_by_topology(1)
def _link_ends(topology: Topology) -> str:
    """Return a digest of the ends of all links of a topology."""
    return digest((topology.n_nodes, topology.links.src, topology.links.dst))


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
