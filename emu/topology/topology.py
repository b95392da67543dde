"""A machine's network as a value: directed links as columns, and a router that is asked lazily.

L links, P asked pairs, H hops. NPUs are numbered 0..n_npus-1, switches after them.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import prod

import numpy as np
from numpy.typing import ArrayLike

from emu.arrays import F64, I16, I32, I64, Bool, column, digest
from emu.errors import InputError, must_be
from emu.units import seconds

MAX_LINKS = 2**24
CHANNELS = 2**16  # a key is group * CHANNELS + channel, so that a channel's low bits stay the key's


@dataclass(frozen=True, eq=False, slots=True)
class Links:
    """Directed links, one row each; a full-duplex cable is two rows."""

    src: I32  # [L] node
    dst: I32  # [L] node
    bandwidth_Bps: F64  # [L] of this direction
    latency_fs: I64  # [L] ticks, of one hop
    dimension: I16  # [L] the dimension, tier or plane it belongs to

    def __len__(self) -> int:
        return len(self.src)

    @property
    def latency_s(self) -> F64:
        """[L] latency in seconds."""
        return np.array([seconds(t) for t in self.latency_fs], dtype=np.float64)


@dataclass(frozen=True, eq=False, slots=True)
class Routes:
    """The links that each asked pair's messages cross, in order, as CSR."""

    start: I64  # [P + 1]
    link: I32  # [H]
    virtual: I16 | None = None  # [H] the virtual channel of each hop, where the system's routing names them

    def of(self, pair: int) -> I32:
        """The links of one pair, in order."""
        return self.link[self.start[pair] : self.start[pair + 1]]

    @property
    def hops(self) -> I64:
        """[P] links a pair crosses."""
        return np.diff(self.start)


Router = Callable[[I64, I64, I64], Routes]  # (src[P], dst[P], key[P]) -> Routes; key tells equal pairs apart (channel, group)
Symmetry = Callable[[], Sequence[I64]]  # permutations [n_nodes] of the nodes that bring links to links and routes to routes
Grouper = Callable[[int, Bool], I64]  # (NPUs of a group, [E, n_npus] which are faulty) -> [E] NPUs in groups that work
Placer = Callable[[int, I64], I64]  # (ranks, faulty NPUs) -> the NPU of each rank, as many as the system's rules find room for


@dataclass(frozen=True, slots=True)
class Circuits:
    """Optical switches that must be in a certain state while a message crosses them, and how long one takes to turn."""

    needs: Callable[[I64, I64, I64], tuple[I64, I64]]  # (src, dst, key) -> [P, Q] switches, -1 for none; [P, Q] their states
    turn_fs: int


@dataclass(frozen=True, slots=True)
class Broken:
    """What of a machine has failed, by the numbers that it has whole."""

    nodes: tuple[int, ...] = ()  # NPUs and switches
    cables: tuple[tuple[int, int], ...] = ()  # pairs of nodes: all links between them, either way; not those of a failed node

    def beyond(self, other: "Broken") -> "Broken":
        """Return what has failed here and works there; a cable of a node that has failed there does not work there."""
        nodes = tuple(node for node in self.nodes if node not in other.nodes)
        cables = (pair for pair in self.cables if pair not in other.cables and not set(pair) & set(other.nodes))
        return Broken(nodes, tuple(cables))


@dataclass(frozen=True, eq=False, slots=True)
class Mended:
    """What a system makes of itself around what has failed, and what that takes."""

    topology: "Topology"  # as it then is
    took_fs: int  # ticks until it is so, from what it was before; nothing is sent meanwhile
    told: str  # what was done, and where the times are from
    of: I64 | None = None  # [n_nodes] which node of the whole machine each is; None: the same


Mender = Callable[
    ["Topology", Broken, int, Broken], Mended
]  # (the whole machine, what has failed, ranks of the job, what had failed before); or it cannot be: InputError


@dataclass(frozen=True, slots=True)
class Box:
    """A frame round some nodes of a drawing: a rack, a segment, a plane."""

    label: str
    nodes: tuple[int, int]  # first, and one past the last


@dataclass(frozen=True, eq=False, slots=True)
class Drawing:
    """Where each node of a topology is drawn, as its source's figures draw it."""

    at: F64  # [n_nodes, 2], in units of about the gap between NPUs
    boxes: tuple[Box, ...] = ()  # outer ones first


@dataclass(frozen=True, eq=False, slots=True, weakref_slot=True)
class Topology:
    """Links, dims, routes and bill of a machine; a value.

    Changing it (an optical switch that turns, a fault) is another Topology. The router is a pure function of
    (src, dst, key), so that what is timed twice takes the same links twice.
    """

    name: str
    n_npus: int
    n_nodes: int  # NPUs and switches
    links: Links
    router: Router
    dims: tuple[int, ...] = ()  # shape of the NPU numbering, last fastest (C order); () = one dimension
    bill: Mapping[str, int] = field(default_factory=dict)  # what one buys to build it, e.g. {"NPU": 64, "link x4": 448}
    assumptions: tuple[str, ...] = ()  # what its source does not say and this value takes, a sentence each
    tiers: tuple[str, ...] = ()  # what the links of each dimension are called, e.g. ("board", "rack", "NPU to LRS")
    placer: Placer | None = None  # the system's own rules of placement; None: the first NPUs that work
    draw: Callable[[], Drawing] | None = None  # None: from dims and links alone
    adds: bool = False  # whether its switches can add what they pass on, as NVLink's and some InfiniteBand ones can
    adders: Bool | None = None  # [n_nodes] which of them do, for NPUs on their own links, or would if software asked; None: all
    circuits: Circuits | None = None  # None: nothing turns during a run
    symmetry: Symmetry | None = None  # None: none is declared; the engine times by symmetry only what a topology declares
    cost: I64 | None = None  # [L] what a route over a link counts, where that decides and not how many links there are
    names: Callable[[int], str] | None = None  # what its description calls a node; None: nodes have numbers only
    relays: Bool | None = None  # [n_nodes] who passes on what is not for it; None: switches, and NPUs where there are only NPUs
    lost: Callable[[int, int], str] | None = None  # why nothing leads from a node to another; None: not known
    message_fs: int = 0  # ticks that the software takes for each message, besides the latencies of its links
    adding_fs: int = 0  # ... and of those to and from a switch that adds, besides
    grouper: Grouper | None = None  # how many NPUs groups can be made of where some fail; None: those that are placed
    mender: Mender | None = None  # what the system does about parts that fail; None: routes lead round them
    routing: tuple[object, ...] = ()  # what its router goes by, where the name does not say that
    shares: tuple[float, ...] = ()  # of its wires' bandwidth that its links have, by dimension, the last for the rest; (): all

    def __post_init__(self) -> None:
        if self.n_npus < 1 or min(self.dims, default=1) < 1:
            raise must_be(self.name, "NPUs", "1 or more", self.dims or self.n_npus)
        if self.dims and prod(self.dims) != self.n_npus:
            raise InputError(f"{self.name}: dims {self.dims} do not number {self.n_npus} NPUs")
        low = min((int(c.min()) for c in (self.links.src, self.links.dst) if len(c)), default=0)
        high = max((int(c.max()) for c in (self.links.src, self.links.dst) if len(c)), default=0)
        if low < 0 or high >= self.n_nodes or self.n_npus > self.n_nodes:
            raise InputError(f"{self.name}: links name nodes {low}..{high} of {self.n_nodes}, {self.n_npus} of them NPUs")
        bad = ~(np.isfinite(self.links.bandwidth_Bps) & (self.links.bandwidth_Bps > 0))
        if bad.any():
            raise InputError(f"{self.name}: link {np.argmax(bad)} must have a finite bandwidth above 0")
        if self.adders is not None and len(self.adders) != self.n_nodes:
            raise must_be(self.name, "adders", f"one for each of {self.n_nodes} nodes", len(self.adders))
        for name in ("message_fs", "adding_fs"):
            if getattr(self, name) < 0:
                raise must_be(self.name, name, "0 or more", getattr(self, name))
        if (self.links.latency_fs < 0).any():
            raise InputError(f"{self.name}: link {np.argmin(self.links.latency_fs)} must have a latency of 0 or more")

    def routes(self, src: I64, dst: I64, key: I64) -> Routes:
        """The links from each src to each dst; only what is asked is computed.

        Args:
            src: [P] NPUs (or switches, for helpers).
            dst: [P] others.
            key: [P] a number that spreads equal pairs over equal paths: group * CHANNELS + channel.

        Raises:
            InputError: a node that is not there, a pair that nothing joins, or a node and itself.
        """
        arrays = [column(a, np.int64) for a in (src, dst, key)]
        for nodes in arrays[:2]:
            if len(nodes) and not 0 <= nodes.min() <= nodes.max() < self.n_nodes:
                raise InputError(f"{self.name}: nodes must be 0..{self.n_nodes - 1}, got {nodes.min()}..{nodes.max()}")
        found = self.router(*arrays)
        unjoined = np.flatnonzero(found.hops == 0)
        if len(unjoined):
            a, b = (int(nodes[unjoined[0]]) for nodes in arrays[:2])
            why = f": {self.lost(a, b)}" if self.lost else ""
            raise InputError(f"{self.name}: no route from node {a} to node {b}{why}")
        return found

    @property
    def passes(self) -> Bool:
        """[n_nodes] whether each node passes on what is not for it, as its system's routing has it."""
        if self.relays is not None:
            return self.relays
        return column(np.arange(self.n_nodes) >= (self.n_npus if self.n_nodes > self.n_npus else 0), np.bool_)

    def call(self, node: int) -> str:
        """A node in words: by its own name where nodes have names, else NPU or switch and its number."""
        if self.names is not None:
            return self.names(node)
        return f"{'NPU' if node < self.n_npus else 'switch'} {node}"

    def place(self, n_ranks: int, faulty: ArrayLike = ()) -> I64:
        """[n_ranks] the NPU of each rank where some NPUs are faulty, by the system's own rules of placement.

        Raises:
            InputError: a faulty NPU that is not there, or fewer ranks find room; the message says how many do.
        """
        broken = np.unique(column(faulty, np.int64))
        if len(broken) and not 0 <= broken[0] <= broken[-1] < self.n_npus:
            raise must_be(self.name, "a faulty NPU", f"one of 0..{self.n_npus - 1}", f"{broken[0]}..{broken[-1]}")
        found = self.placer(n_ranks, broken) if self.placer else np.setdiff1d(np.arange(self.n_npus), broken)
        if len(found) < n_ranks:
            what = f"at most {len(found)} where {len(broken)} of {self.n_npus} NPUs are faulty"
            raise must_be(self.name, "ranks", what, n_ranks, "take fewer ranks or a larger topology")
        return column(found[:n_ranks], np.int64)

    def digest(self) -> str:
        """Return what differs where links, what is sent over them, or the name or the routing differ, which say the router."""
        links = (getattr(self.links, n) for n in Links.__slots__)
        turn_fs = None if self.circuits is None else self.circuits.turn_fs
        sizes = (self.name, self.n_npus, self.n_nodes, self.dims, self.routing)
        return digest((*sizes, *links, self.cost, self.relays, self.message_fs, self.adding_fs, self.adds, turn_fs))


def check_link_count(name: str, count: int) -> None:
    """Refuse more links than a value should hold, before the memory for them is asked for.

    Raises:
        InputError: more than 2**24.
    """
    if count > MAX_LINKS:
        raise must_be(name, "links", "at most 2**24", count, "take fewer NPUs")
