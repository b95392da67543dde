"""The paths between one pair of nodes: those that are taken, by which channels, and others that are as short."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

import numpy as np

from emu.arrays import I64
from emu.topology.paths.shortest_paths import UNREACHED, ShortestPaths, shortest
from emu.topology.topology import Topology

CHANNELS_ASKED = 64  # number of channels whose paths are listed
_MOST_UNTAKEN = 8  # number of paths that are listed although no channel takes them


@dataclass(frozen=True, slots=True)
class PairPath:
    """One path from a node to another."""

    nodes: tuple[int, ...]  # [H + 1] nodes in order
    links: tuple[int, ...]  # [H] links in order
    channels: tuple[int, ...]  # channels that take it; none: it is a shortest path that no channel takes


def paths_between(topology: Topology, src: int, dst: int) -> tuple[PairPath, ...]:
    """Return the paths that the first channels of communicator 0 take, in their order, then others that are as short.

    Args:
        topology: The topology whose router is used.
        src: A node.
        dst: Another node.

    Raises:
        InputError: A node does not exist, or no path joins the two.
    """
    channels = np.arange(CHANNELS_ASKED)
    routes = topology.routes(np.full_like(channels, src), np.full_like(channels, dst), channels)
    taken: dict[tuple[int, ...], list[int]] = {}
    for channel in channels.tolist():
        taken.setdefault(tuple(routes.of(channel).tolist()), []).append(channel)
    others = islice((links for links in _cheapest(topology, src, dst) if links not in taken), _MOST_UNTAKEN)
    found = [*((links, tuple(by)) for links, by in taken.items()), *((links, ()) for links in others)]
    return tuple(PairPath((src, *topology.links.dst[list(links)].tolist()), links, by) for links, by in found)


def _cheapest(topology: Topology, src: int, dst: int) -> Iterator[tuple[int, ...]]:
    """Return an iterator over the links of every path of least cost, whatever its rate."""
    cost = np.ones(len(topology.links)) if topology.cost is None else topology.cost
    ways = shortest(topology.links, topology.n_nodes, topology.passes, cost)
    grades = ways.grades(np.array([dst]))
    return _onward(ways, grades, src, dst) if grades[0, src] < UNREACHED else iter(())


def _onward(ways: ShortestPaths, grades: I64, here: int, dst: int) -> Iterator[tuple[int, ...]]:
    """Yield the best paths from a node to a target, each as its links."""
    if here == dst:
        yield ()
        return
    zero = np.zeros(1, np.int64)
    for link in ways.best(grades, zero, np.array([here]), zero)[0].tolist():
        for rest in _onward(ways, grades, int(ways.links.dst[link]), dst):
            yield (link, *rest)
