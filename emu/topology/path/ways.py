"""The ways of one pair of nodes, as a person asks for them: which are taken, by which channels, and which are as short."""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice

import numpy as np

from emu.arrays import I64
from emu.topology.path.shortest import UNREACHED, Ways, shortest
from emu.topology.topology import Topology

CHANNELS_ASKED = 64  # of how many channels the ways are told
_MOST_UNTAKEN = 8  # that are told of those that are as short and not taken


@dataclass(frozen=True, slots=True)
class Way:
    """One way from a node to another."""

    nodes: tuple[int, ...]  # [H + 1]
    links: tuple[int, ...]  # [H]
    channels: tuple[int, ...]  # that take it, of those asked; none: it is as short as a way can be, and not taken


def ways_between(topology: Topology, src: int, dst: int) -> tuple[Way, ...]:
    """The ways that the first channels of group 0 take, in their order, then others that are as short.

    Args:
        topology: Whose router is asked.
        src: Node.
        dst: Another.

    Raises:
        InputError: a node that is not there, or no way between them.
    """
    channels = np.arange(CHANNELS_ASKED)
    routes = topology.routes(np.full_like(channels, src), np.full_like(channels, dst), channels)
    taken: dict[tuple[int, ...], list[int]] = {}
    for channel in channels.tolist():
        taken.setdefault(tuple(routes.of(channel).tolist()), []).append(channel)
    others = islice((links for links in _cheapest(topology, src, dst) if links not in taken), _MOST_UNTAKEN)
    found = [*((links, tuple(by)) for links, by in taken.items()), *((links, ()) for links in others)]
    return tuple(Way((src, *topology.links.dst[list(links)].tolist()), links, by) for links, by in found)


def _cheapest(topology: Topology, src: int, dst: int) -> Iterator[tuple[int, ...]]:
    """The links of every way of least cost, whatever its rate."""
    cost = np.ones(len(topology.links)) if topology.cost is None else topology.cost
    ways = shortest(topology.links, topology.n_nodes, topology.passes, cost)
    grades = ways.grades(np.array([dst]))
    return _onward(ways, grades, src, dst) if grades[0, src] < UNREACHED else iter(())


def _onward(ways: Ways, grades: I64, here: int, dst: int) -> Iterator[tuple[int, ...]]:
    if here == dst:
        yield ()
        return
    zero = np.zeros(1, np.int64)
    for link in ways.best(grades, zero, np.array([here]), zero)[0].tolist():
        for rest in _onward(ways, grades, int(ways.links.dst[link]), dst):
            yield (link, *rest)
