"""A topology with failed parts is another topology: the routes that are whole stay, the others find a way round."""

from dataclasses import replace
from functools import partial

import numpy as np
from numpy.typing import ArrayLike

from emu.arrays import I64, Bool, column
from emu.errors import must_be
from emu.topology.path.shortest import shortest
from emu.topology.topology import Links, Router, Routes, Topology


def without(topology: Topology, *, nodes: ArrayLike = (), links: ArrayLike = (), npus_relay: bool | None = None) -> Topology:
    """The topology without some nodes (with all their links) and links; nodes keep their numbers.

    A route that is whole stays as it was; another becomes a shortest one over what is left. A failed NPU has no link, so
    that a route to it is refused.

    Args:
        topology: Whose own router is asked first.
        nodes: NPUs or switches.
        links: Rows of `topology.links`; the way back of a cable is a row of its own.
        npus_relay: Whether a way round may lead through an NPU; unless given, only where there are no switches.

    Raises:
        InputError: a node or a link that is not there.
    """
    dead_nodes = _marked(topology.name, "node", nodes, topology.n_nodes)
    dead = _marked(topology.name, "link", links, len(topology.links))
    dead |= dead_nodes[topology.links.src] | dead_nodes[topology.links.dst]
    left = Links(*(getattr(topology.links, name)[~dead] for name in Links.__slots__))
    relaying = topology.n_nodes == topology.n_npus if npus_relay is None else npus_relay
    relays = (np.arange(topology.n_nodes) >= topology.n_npus) | relaying
    cost = None if topology.cost is None else topology.cost[~dead]
    detour = shortest(left, topology.n_nodes, relays, cost)
    router = partial(_route, topology.router, detour, dead, column(np.cumsum(~dead) - 1, np.int64))
    return replace(topology, name=f"{topology.name} with faults", links=left, router=router, symmetry=None, cost=cost)


def _marked(where: str, what: str, given: ArrayLike, count: int) -> Bool:
    numbers = column(given, np.int64)
    if len(numbers) and not 0 <= numbers.min() <= numbers.max() < count:
        raise must_be(where, f"a failed {what}", f"one of 0..{count - 1}", f"{numbers.min()}..{numbers.max()}")
    marks = np.zeros(count, np.bool_)
    marks[numbers] = True
    return marks


def _route(own: Router, detour: Router, dead: Bool, number: I64, src: I64, dst: I64, key: I64) -> Routes:
    """Each pair's own route where that is whole, else its detour; links by their new numbers."""
    before = own(src, dst, key)
    pair = np.repeat(np.arange(len(src)), before.hops)
    broken = np.bincount(pair[dead[before.link]], minlength=len(src)) > 0
    around = detour(src[broken], dst[broken], key[broken])
    hops = before.hops.copy()
    hops[broken] = around.hops
    is_around = np.repeat(broken, hops)
    link = np.empty(hops.sum(), np.int32)
    link[~is_around] = number[before.link[~broken[pair]]]
    link[is_around] = around.link
    return Routes(column(np.concatenate(([0], np.cumsum(hops))), np.int64), column(link, np.int32))
