"""The ports of the NPUs of a job: the links by which the messages of a group's members leave and come.

A *port* of an NPU is one link to another NPU, or all of its links to switches of one tier, as a router may take any of them.
The messages of a rank to its group leave it by the ports of their routes, and come by such ports. So a group whose members are
in one row of a mesh is served by the links of that row alone, and by no algorithm faster. G groups, N members of each, J NPUs
of the job, L links.
"""

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from emu.arrays import F64, I32, I64, Bool, column
from emu.errors import InputError
from emu.study.planning.request_times.rates import Rates
from emu.topology.placement import place
from emu.topology.topology import CHANNELS, Topology, cached_by_topology

_MOST_NPUS = 1024  # of a job, whose pairs are all routed; some seconds
# Keys by which each pair is routed: where routes take turns by channel, or are drawn by a hash, these see all that leave apart.
_KEYS = (*range(16), *(number * CHANNELS + number for number in range(1, 9)))
_TOGETHER = 2**17  # pairs that are routed at one time
_SEED = 1  # of the numbers of links, whose sum names a route: other links have another sum


class _Side(NamedTuple):
    """The ports of all NPUs in one direction: those by which messages leave, or those by which they arrive."""

    of_link: I64  # [L] the port of each link
    rate: F64  # bytes per second of each port; then 0 for no port; then the largest sum over the ports of one of the J NPUs
    port: I64  # [J, J] the port by which each NPU sends to, or gets from, each other

    @staticmethod
    def of(topology: Topology, near: I32, far: I32, npus: I64) -> "_Side":
        """Return the ports of one direction before any route is known.

        Args:
            topology: The topology.
            near: [L] the ends of links that may be NPUs of the job: their sources for messages that leave.
            far: [L] the other ends.
            npus: [J] the NPUs of the job.
        """
        tier = topology.links.dimension.astype(np.int64)
        to = np.where(far < topology.n_npus, far, topology.n_nodes + tier)
        most = int(to.max(initial=0)) + 1
        names, of_link = np.unique(near.astype(np.int64) * most + to, return_inverse=True)
        rate = np.bincount(of_link, topology.links.bandwidth_Bps, len(names))
        whole = np.bincount(near, topology.links.bandwidth_Bps, topology.n_nodes)[npus].max()
        return _Side(of_link, np.concatenate((rate, (0.0, whole))), np.full((len(npus), len(npus)), len(names)))

    def most(self, rows: I64) -> float:
        """Return the largest rate (in this direction) of any member of groups [G, N] within its group."""
        found = 0.0
        for some in np.array_split(rows, -(-rows.size * rows.shape[1] // _TOGETHER)):
            ports = np.sort(self.port[some[:, :, None], some[:, None, :]], axis=-1)
            again = np.zeros(ports.shape, np.bool_)
            again[..., 1:] = ports[..., 1:] == ports[..., :-1]
            found = max(found, float(np.where(again, 0.0, self.rate[ports]).sum(axis=-1).max(initial=0.0)))
        return min(found, float(self.rate[-1]))


@dataclass(frozen=True, eq=False, slots=True)
class Ports:
    """The ports of the NPUs of a job, for messages between any two of them, out of the one and into the other.

    `varies` says whether the route of a pair depends on the key of the message.
    """

    at: I64  # [n_nodes] index of each NPU of the job
    out: _Side
    into: _Side
    varies: Bool  # [J, J] whether messages from each to each other take different routes by their key

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

    def routes_vary(self, npus: I64) -> bool:
        """Return whether some messages within groups [G, N] take routes that depend on the communicator."""
        return any(bool(self.varies[np.ix_(rows, rows)].any()) for rows in self.at[npus])

    def add(self, topology: Topology, npus: I64) -> None:
        """Find the ports of the routes from the given NPUs to all NPUs of the job.

        Raises:
            InputError: a pair of NPUs has no route.
        """
        every = np.flatnonzero(self.at >= 0)
        src, dst = (side.ravel() for side in np.meshgrid(npus, every, indexing="ij"))
        src, dst = src[src != dst], dst[src != dst]
        here, ends, names = (self.at[src], self.at[dst]), [np.empty((len(_KEYS), len(src)), np.int64) for _ in range(2)], []
        number = np.random.default_rng(_SEED).integers(0, 2**40, len(topology.links))
        for k, key in enumerate(_KEYS):
            ways = topology.routes(src, dst, np.full(len(src), key))
            ends[0][k] = self.out.of_link[ways.link[ways.start[:-1]]]
            ends[1][k] = self.into.of_link[ways.link[ways.start[1:] - 1]]
            names.append(np.add.reduceat(number[ways.link], ways.start[:-1]))
        self.varies[here] = (np.array(names) != names[0]).any(axis=0)
        for side, at, port in zip((self.out, self.into), (here, here[::-1]), ends, strict=True):
            side.port[at] = np.where((port == port[0]).all(axis=0), port[0], len(side.rate) - 1)


@cached_by_topology(2)
def ports_of(topology: Topology, n: int) -> Ports | None:
    """Return the ports of a job of n ranks.

    None is returned where they are not known: ranks may send to switches that add, switches turn, messages are sprayed, or
    there are too many NPUs.
    """
    if topology.adds or topology.circuits or topology.spray or not 1 < n <= _MOST_NPUS:
        return None
    npus, at, links = column(place(topology, n), np.int64), np.full(topology.n_nodes, -1), topology.links
    at[npus] = np.arange(n)
    sides = _Side.of(topology, links.src, links.dst, npus), _Side.of(topology, links.dst, links.src, npus)
    found = Ports(at, *sides, np.zeros((n, n), np.bool_))
    try:
        for some in np.array_split(npus, -(-n * n // _TOGETHER)):
            found.add(topology, some)
    except InputError:  # some pair has no route
        return None
    return found
