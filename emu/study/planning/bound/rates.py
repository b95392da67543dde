"""The largest rates at which NPUs send and receive, and the least times of requests that follow from them.

A rate is of a whole NPU, or of the links by which the members of some groups reach one another. A *port* of an NPU is one link
to another NPU, or all of its links to switches of one tier, as a router may take any of them. The messages of a rank to its
group leave it by the ports of their routes, and come by such ports. So a group whose members sit in one row of a mesh is served
by the links of that row alone, and by no algorithm faster.

G groups, N members of each, J NPUs of the job, L links.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from emu.arrays import F64, I32, I64, column
from emu.bound.limit import least_between_fs
from emu.errors import InputError
from emu.topology.placement import place
from emu.topology.topology import CHANNELS, Topology, cached_by_topology
from emu.units import seconds

_MOST_NPUS = 1024  # of a job, whose pairs are all routed; two seconds
_KEYS = (0, 1, CHANNELS + 2, 2 * CHANNELS + 3)  # by which each pair is routed: communicators and channels
_TOGETHER = 2**18  # pairs that are routed at one time


class RequestTime(NamedTuple):
    """The least time of a request, in seconds."""

    left_s: float  # until a message has left its sender
    there_s: float  # until all ranks have left a collective, or a message is delivered
    is_told: bool = True  # the time is final: no better one will be known


class Rates(NamedTuple):
    """The largest rates of an NPU of a topology, out and in, in bytes per second, and the least latency in seconds."""

    out: float
    into: float
    alpha_s: float = 0.0

    @staticmethod
    def of(topology: Topology) -> "Rates":
        """Return the rates of the NPU with the most links, and the least latency of a way out of an NPU and into one."""
        links = topology.links
        out, into = (np.bincount(node, links.bandwidth_Bps, topology.n_nodes) for node in (links.src, links.dst))
        n = topology.n_npus
        alpha_fs = int(least_between_fs(links.latency_fs, links.src < n, links.dst < n, default=0)) + topology.message_fs
        return Rates(float(out[:n].max()), float(into[:n].max()), seconds(alpha_fs))

    def least_s(self, operation: str, elements: int, item: int, ranks: int) -> float:
        """Return the least time of an operation for a rank, in seconds; the ranks share its elements evenly."""
        size, own = elements * item, -(-elements // ranks) * item
        cut = dict.fromkeys(("all_gather", "reduce_scatter", "all_to_all"), size - own)
        moved = {**cut, "all_reduce": size}.get(operation, 0)
        return self.alpha_s + moved / max(self.out, self.into) if moved and ranks > 1 else 0.0

    def message(self, size: int) -> RequestTime:
        """Return the least time of a message."""
        return RequestTime(size / self.out, self.alpha_s + size / min(self.out, self.into))


class _Side(NamedTuple):
    """The ports by which messages leave NPUs, or by which they come."""

    port: I64  # [J, J] of each NPU for the messages to, or from, each other
    rate: F64  # of each port, in bytes per second
    whole: float  # the largest rate of all ports of an NPU

    def most(self, rows: I64) -> float:
        """Return the largest rate of a member of groups [G, N] for what it sends to the others, or gets from them."""
        found = 0.0
        for some in np.array_split(rows, max(1, rows.shape[0] * rows.shape[1] ** 2 // _TOGETHER)):
            ports = np.sort(self.port[some[:, :, None], some[:, None, :]], axis=-1)
            again = np.zeros(ports.shape, np.bool_)
            again[..., 1:] = ports[..., 1:] == ports[..., :-1]
            found = max(found, float(np.where(again, 0.0, self.rate[ports]).sum(axis=-1).max(initial=0.0)))
        return min(found, self.whole)


@dataclass(frozen=True, eq=False, slots=True)
class Ports:
    """The ports of the NPUs of a job, for the messages between any two of them."""

    at: I64  # [n_nodes] index of each NPU of the job
    out: _Side
    into: _Side

    def rates(self, npus: I64, anywhere: Rates) -> Rates:
        """Return the largest rates of a member of groups, for messages within its group.

        Args:
            npus: [G, N] the NPUs of the groups.
            anywhere: The rates of any NPU; these are returned for groups of one member.
        """
        if npus.shape[1] < 2:
            return anywhere
        rows = self.at[npus]
        return Rates(self.out.most(rows), self.into.most(rows), anywhere.alpha_s)


@cached_by_topology(2)
def ports_of(topology: Topology, n: int) -> Ports | None:
    """Return the ports of a job of n ranks.

    None is returned where they are not known: switches add, and ranks send to them, or turn; or there are too many NPUs.
    """
    if topology.adds or topology.circuits or not 1 < n <= _MOST_NPUS:
        return None
    npus = column(place(topology, n), np.int64)
    try:
        first, last = _end_links(topology, npus)
    except InputError:  # some pair has no route
        return None
    at = np.full(topology.n_nodes, -1)
    at[npus] = np.arange(n)
    links = topology.links
    return Ports(at, _side(topology, links.src, links.dst, first), _side(topology, links.dst, links.src, last))


def _end_links(topology: Topology, npus: I64) -> tuple[I64, I64]:
    """Return [keys, J, J] the first and the last link of the route between each two NPUs; -1 between an NPU and itself."""
    n = len(npus)
    first, last = (np.full((len(_KEYS), n * n), -1) for _ in range(2))
    pairs = np.flatnonzero(~np.eye(n, dtype=np.bool_).ravel())
    for some in np.array_split(pairs, -(-len(pairs) // _TOGETHER)):
        for k, key in enumerate(_KEYS):
            found = topology.routes(npus[some // n], npus[some % n], np.full(len(some), key))
            first[k, some], last[k, some] = found.link[found.start[:-1]], found.link[found.start[1:] - 1]
    return first.reshape(-1, n, n), last.reshape(-1, n, n)


def _side(topology: Topology, near: I32, far: I32, end: I64) -> _Side:
    """Return one side of ports, by the nodes of links that are near an NPU, and far from it, and the end links of routes."""
    links, tiers = topology.links, topology.n_nodes + int(topology.links.dimension.max(initial=0)) + 1
    to = np.where(far < topology.n_npus, far, topology.n_nodes + links.dimension)
    names, port_of = np.unique(near.astype(np.int64) * tiers + to, return_inverse=True)
    none, varied = len(names), len(names) + 1
    whole = np.bincount(near, links.bandwidth_Bps, topology.n_nodes)[: topology.n_npus].max()
    rate = np.concatenate((np.bincount(port_of, links.bandwidth_Bps, len(names)), (0.0, whole)))
    port = np.where(end < 0, none, port_of[end])
    return _Side(np.where((port == port[0]).all(axis=0), port[0], varied), rate, float(whole))
