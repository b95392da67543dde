"""Planes of a topology: parts of its switches that meet the same NPUs and have no links to one another.

A NIC with a port to each of two switches has two planes; jobs that send over different planes share no links there. L links.
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from emu.arrays import I64, column
from emu.equivalence import components
from emu.errors import InputError, must_be
from emu.topology.removal import remove_parts
from emu.topology.topology import Router, Routes, Topology

NO_PLANE = -1


def planes_of(topology: Topology) -> I64:
    """Return [L] the plane of each link, counted from 0; NO_PLANE: its switches are the only ones that meet their NPUs."""
    links, n = topology.links, topology.n_npus
    above = (links.src >= n) & (links.dst >= n)
    part = components(topology.n_nodes, links.src[above], links.dst[above])
    met, plane = dict[bytes, int](), np.full(topology.n_nodes, NO_PLANE)
    is_down = (links.src >= n) & (links.dst < n)
    if not is_down.any():
        return np.full(len(links), NO_PLANE)
    down = np.unique(np.stack([part[links.src], links.dst])[:, is_down], axis=1)
    numbers, begins = np.unique(down[0], return_index=True)
    alike = [npus.tobytes() for npus in np.split(down[1], begins[1:])]
    parts = Counter(alike)
    for number, npus in zip(numbers.tolist(), alike, strict=True):
        if parts[npus] > 1:
            plane[part == number] = met[npus] = met.get(npus, NO_PLANE) + 1
    plane[:n] = NO_PLANE
    found: I64 = np.maximum(plane[links.src], plane[links.dst])
    return found


def within_planes(topology: Topology, planes: Sequence[int]) -> Topology:
    """Return a topology whose routes keep to some of its planes; its links stay as they are.

    A route that is on these planes stays as it was; another one becomes that of another key, or else a shortest path.

    Args:
        topology: The topology.
        planes: The numbers of the planes.

    Raises:
        InputError: There is no such plane, or messages are sprayed over all of them.
    """
    of = planes_of(topology)
    count = int(of.max(initial=NO_PLANE)) + 1
    if count < 2:
        raise InputError(f"jobs: {topology.name} has no planes; take one whose NICs have ports to several switches")
    wrong = [plane for plane in planes if not 0 <= plane < count]
    if wrong:
        raise must_be("jobs", "planes", f"0 to {count - 1}, the planes of {topology.name}", wrong[0])
    if topology.spray is not None:
        raise InputError(f"jobs: {topology.name} spreads messages over its planes; take it with another route=")
    kept = np.flatnonzero((of == NO_PLANE) | np.isin(of, planes))
    fewer = remove_parts(topology, links=np.setdiff1d(np.arange(len(of)), kept))
    router = _Renumbered(fewer.router, column(kept, np.int64))
    return replace(topology, router=router, symmetry=None, routing=(*topology.routing, "planes", *planes))


@dataclass(frozen=True, eq=False, slots=True)
class _Renumbered:
    """The router of a topology with fewer links, with the numbers that these links have in the whole topology."""

    router: Router
    number: I64  # [fewer] of each link in the whole topology

    def __call__(self, src: I64, dst: I64, key: I64) -> Routes:
        found = self.router(src, dst, key)
        return replace(found, link=column(self.number[found.link], np.int32))
