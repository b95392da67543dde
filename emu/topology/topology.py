"""The network of a machine as a value: directed links as columns, and a router that computes routes on demand.

NPUs are numbered 0..n_npus-1, switches after them. Results that are cached for a topology are freed together with it.
Letters: L links, P pairs, H hops.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import wraps
from math import prod
from typing import Any, Concatenate, ParamSpec, TypeVar
from weakref import WeakKeyDictionary

import numpy as np
from cachetools import LRUCache
from numpy.typing import ArrayLike

from emu.arrays import F64, I16, I32, I64, Bool, column, digest
from emu.errors import InputError, must_be
from emu.notebook_view import html_of
from emu.units import seconds

MAX_LINKS = 2**24
CHANNELS = 2**16  # a key is communicator * CHANNELS + channel, so that a channel's low bits are the key's
LEAST_LOADED = "least-loaded"  # the setting by which a message takes the way with the least on it when it starts
_MOST_WAYS = 2**14  # ways of a pair over which its messages are sprayed at most
_MOST_PARTS = 2**31 - 1  # parts of a sprayed message: 32 bits count them


@dataclass(frozen=True, eq=False, slots=True)
class Links:
    """Directed links as columns, one row for each; a full-duplex cable is two rows."""

    src: I32  # [L] node that the link leaves
    dst: I32  # [L] node that the link enters
    bandwidth_Bps: F64  # [L] bandwidth of this direction
    latency_fs: I64  # [L] ticks of one hop
    dimension: I16  # [L] the dimension, tier or plane that the link belongs to

    @staticmethod
    def of(src: I32 | I64, *others: ArrayLike) -> "Links":
        """Return links from their columns, in the order of the fields; a single value stands for an equal column."""
        types: tuple[Any, ...] = (np.int32, np.int32, np.float64, np.int64, np.int16)
        return Links(*(column(np.broadcast_to(c, len(src)), t) for c, t in zip((src, *others), types, strict=True)))

    def __len__(self) -> int:
        return len(self.src)

    @property
    def latency_s(self) -> F64:
        """[L] the latency of each link in seconds."""
        return np.array([seconds(t) for t in self.latency_fs], dtype=np.float64)


@dataclass(frozen=True, eq=False, slots=True)
class Routes:
    """The links that the messages of each pair cross, in order, in compressed sparse rows (CSR)."""

    start: I64  # [P + 1] where the hops of each pair begin
    link: I32  # [H] link of each hop
    virtual: I16 | None = None  # [H] the virtual channel of each hop, where the system's routing names them

    @staticmethod
    def laid(hops: I64, link: ArrayLike, virtual: ArrayLike | None = None) -> "Routes":
        """Return routes from the number of hops of each pair [P] and the links of all pairs in order, [H]."""
        start = column(np.concatenate(([0], np.cumsum(hops))), np.int64)
        return Routes(start, column(link, np.int32), None if virtual is None else column(virtual, np.int16))

    def of(self, pair: int) -> I32:
        """Return the links that the route of pair number `pair` crosses, in order."""
        return self.link[self.start[pair] : self.start[pair + 1]]

    @property
    def hops(self) -> I64:
        """[P] the number of links that each pair's route crosses."""
        return np.diff(self.start)


Router = Callable[[I64, I64, I64], Routes]  # (src[P], dst[P], key[P]) -> Routes; a key is a communicator and a channel
DeclaredSymmetries = Callable[[], Sequence[I64]]  # permutations [n_nodes] of nodes that keep the links and the routes
UsableCounter = Callable[[int, Bool], I64]  # (NPUs of a group, [E, n_npus] faulty or not) -> [E] NPUs in groups that work
GangPlacer = Callable[[int, int, Bool], I64]  # (NPUs of a job, of a group, [n_npus] free) -> the NPUs that it holds; none
Placer = Callable[[int, I64], I64]  # (ranks, faulty NPUs) -> the NPU of each rank, as many as the system's rules allow


@dataclass(frozen=True, slots=True)
class Circuits:
    """Optical switches that must be in a certain state while a message crosses them, and the time to change the state.

    P messages, Q the most switches that one of them crosses. The arguments of `needs` are those of a `Router`.
    """

    needs: Callable[[I64, I64, I64], tuple[I64, I64]]  # (src, dst, key) -> [P, Q] switches, -1 for none; [P, Q] their states
    switching_fs: int  # ticks in which a switch changes its state


@dataclass(frozen=True, eq=False, slots=True)
class Spray:
    """The rule by which messages between two NPUs are spread over the equal paths (ways) of their pair, without a hash.

    Either each message is split evenly over all of them: if k of the n ways of a pair cross a link, the link carries k / n of
    the message, which is k `parts` / n parts, a whole number. Or each is whole, and takes the way with the least on it when it
    starts.
    """

    parts: int  # equal parts into which a message is cut
    ways: Callable[[I64, I64], tuple[I64, Routes]]  # (src, dst) -> [P] ways of each pair; their routes, pair after pair
    most: int  # the most ways of a pair
    is_chosen: bool = False  # whether a message is whole, and takes the way that has the least on it


@dataclass(frozen=True, slots=True)
class FailedParts:
    """The nodes and cables of a machine that do not work, by their numbers in the whole machine."""

    nodes: tuple[int, ...] = ()  # NPUs and switches
    cables: tuple[tuple[int, int], ...] = ()  # pairs of nodes: all links between them, both ways; none of a failed node

    def beyond(self, other: "FailedParts") -> "FailedParts":
        """Return the nodes and cables that have failed in `self` and still work in `other`.

        A cable of a node that has failed in `other` does not work there.
        """
        nodes = tuple(node for node in self.nodes if node not in other.nodes)
        cables = (pair for pair in self.cables if pair not in other.cables and not set(pair) & set(other.nodes))
        return FailedParts(nodes, tuple(cables))

    def marks(self, src: ArrayLike, dst: ArrayLike) -> Bool:
        """Return [L] whether each link from `src` to `dst` has failed, because its cable or one of its nodes has."""
        low, high = np.minimum(src, dst).astype(np.int64), np.maximum(src, dst)
        n = 1 + max((node for pair in self.cables for node in pair), default=0)
        cut = np.isin(np.where(high < n, low * n + high, -1), [min(pair) * n + max(pair) for pair in self.cables])
        return np.asarray(cut | np.isin(src, self.nodes) | np.isin(dst, self.nodes))


@dataclass(frozen=True, eq=False, slots=True)
class Reaction:
    """The reaction of a system to failed nodes and cables: the machine after it, the ticks it takes, and a sentence on it."""

    topology: "Topology"  # the topology after the reaction
    took_fs: int  # ticks that the reaction takes; nothing is sent meanwhile
    told: str  # what the system does, and the source of the times
    of: I64 | None = None  # [n_nodes] the node of the whole machine that each node is; None: the same number


FaultHandler = Callable[
    ["Topology", FailedParts, int, FailedParts], Reaction
]  # (whole machine, failed parts, ranks of the job, parts that had failed before); an InputError where it is impossible


@dataclass(frozen=True, slots=True)
class Box:
    """A frame round some nodes in a drawing, with a label: a rack, a segment, a plane."""

    label: str
    nodes: tuple[int, int]  # the first node, and one past the last


def frames(label: str, size: int, count: int, first: int = 0) -> tuple[Box, ...]:
    """Return frames round `count` runs of `size` nodes, one after another, each with the label and its number."""
    return tuple(Box(f"{label} {i}" if label else "", (first + i * size, first + (i + 1) * size)) for i in range(count))


@dataclass(frozen=True, eq=False, slots=True)
class Drawing:
    """The position of each node in a drawing of a topology, and the frames round groups of nodes."""

    at: F64  # [n_nodes, 2] coordinates, in units of about the gap between NPUs
    boxes: tuple[Box, ...] = ()  # outer frames first


@dataclass(frozen=True, eq=False, repr=False, slots=True, weakref_slot=True)
class Topology:
    """The network of a machine: links, routes, dims and bill of parts.

    A change (an optical switch that turns, a fault) makes another Topology. The router is a pure function of (src, dst, key),
    so that a repeated run takes the same links.
    """

    name: str
    n_npus: int
    n_nodes: int  # NPUs and switches
    links: Links
    router: Router
    dims: tuple[int, ...] = ()  # shape of the NPU numbering, last fastest (C order); () = one dimension
    bill: Mapping[str, int] = field(default_factory=dict)  # bill of parts, e.g. {"NPU": 64, "link x4": 448}
    assumptions: tuple[str, ...] = ()  # assumptions where its source is silent, a sentence each
    tiers: tuple[str, ...] = ()  # names of the links of each dimension, e.g. ("board", "rack", "NPU to LRS")
    placer: Placer | None = None  # the system's own rules of placement; None: the first NPUs that work
    draw: Callable[[], Drawing] | None = None  # makes its drawing; None: the drawing follows from dims and links
    adds: bool = False  # whether its switches can add what they pass on, as NVLink's and some InfiniteBand switches can
    adders: Bool | None = None  # [n_nodes] switches that add for NPUs on their own links, if software asks; None: all
    circuits: Circuits | None = None  # optical switches that turn during a run; None: none
    spray: Spray | None = None  # spreads messages over several ways; None: each takes the one of its router
    symmetry: DeclaredSymmetries | None = None  # gives its symmetries; None: none are declared, and none are used
    cost: I64 | None = None  # [L] cost of each link, where costs decide routes; None: the number of links decides
    names: Callable[[int], str] | None = None  # gives the name of a node; None: nodes have numbers only
    relays: Bool | None = None  # [n_nodes] nodes that relay; None: switches, or NPUs where there are no switches
    lost: Callable[[int, int], str] | None = None  # says why no route leads from a node to another; None: unknown
    message_fs: int = 0  # ticks that software takes for each message, on top of the latencies of its links
    adding_fs: int = 0  # further ticks for each message to or from a switch that adds
    usable_counter: UsableCounter | None = None  # counts NPUs that groups can use if some fail; None: all that can be placed
    gangs: GangPlacer | None = None  # places a job beside others; None: on any NPUs, or in boxes of a grid whose NPUs relay
    backups: bool = False  # whether its placer gives ranks backups in place of faulty NPUs
    fault_handler: FaultHandler | None = None  # gives the system's reaction to failed parts; None: routes lead round them
    routing: tuple[object, ...] = ()  # settings of its router that the name does not include
    network: Mapping[str, str] = field(default_factory=dict)  # of packets: `kind` and its settings; {}: unnamed
    shares: tuple[float, ...] = ()  # share of the wire's rate that links have, by dimension, the last for the rest; (): 1

    def __repr__(self) -> str:
        return f"<Topology {self.name}: {self.n_npus} NPUs, {self.n_nodes - self.n_npus} switches, {len(self.links)} links>"

    def _repr_html_(self) -> str:
        """Return a picture of the topology and its facts for a notebook, as HTML."""
        return html_of(self)

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
        if self.spray is not None:
            _check_spray(self.name, self.spray, self.symmetry)
        _check_network(self.name, self.network)

    def routes(self, src: I64, dst: I64, key: I64) -> Routes:
        """Return the links from each src to each dst; only these pairs are computed.

        Args:
            src: [P] NPUs (or switches, for helpers).
            dst: [P] other nodes.
            key: [P] a number that spreads equal pairs over equal paths: communicator * CHANNELS + channel.

        Raises:
            InputError: A node does not exist, no route joins a pair, or a pair is a node and itself.
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
    def chooses(self) -> bool:
        """True if a message between NPUs takes the one of several ways that has the least on it when the message starts."""
        return self.spray is not None and self.spray.is_chosen

    @property
    def parts(self) -> int:
        """The number of equal parts into which each message is cut; 1: it is not cut.

        It is so large that each link carries a whole number of parts.
        """
        return 1 if self.spray is None or self.spray.is_chosen else self.spray.parts

    @property
    def capacity_Bps(self) -> F64:  # noqa: N802  units keep their case
        """[L] the capacity of each link as graphs have it: its bandwidth times `parts`.

        The weights of hops count the parts of a message that cross a link.
        """
        rate = column(self.links.bandwidth_Bps, np.float64)
        return rate if self.parts == 1 else column(rate * self.parts, np.float64)

    @property
    def passes(self) -> Bool:
        """Marks [n_nodes] of the nodes that relay messages for other nodes."""
        if self.relays is not None:
            return self.relays
        return column(np.arange(self.n_nodes) >= (self.n_npus if self.n_nodes > self.n_npus else 0), np.bool_)

    def node_name(self, node: int) -> str:
        """Return the name of a node for messages: its own name if it has one, else such as `NPU 3` or `switch 64`."""
        if self.names is not None:
            return self.names(node)
        return f"{'NPU' if node < self.n_npus else 'switch'} {node}"

    def place(self, n_ranks: int, faulty: ArrayLike = ()) -> I64:
        """Return [n_ranks] the NPU of each rank, by the placement rules of the system, when some NPUs are faulty.

        Raises:
            InputError: A faulty NPU does not exist, or there is room for fewer ranks; the message says for how many.
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
        """Return a digest that differs where links, costs of messages, the name or the routing differ.

        The last two fix the router.
        """
        return _digest_of(self)


def _check_spray(name: str, spray: Spray, symmetry: DeclaredSymmetries | None) -> None:
    """Check that a spray has at most 2**14 equal paths for a pair and 2**31 - 1 parts of a message, so that 32 bits count them.

    Raises:
        InputError: It has more; or messages choose their way, and symmetries are declared, which a choice does not keep.
    """
    if spray.is_chosen and symmetry is not None:
        raise must_be(name, "symmetry", "none where messages choose their way", "some", "of equal ways the first is taken")
    limits = ((spray.most, _MOST_WAYS, "over", "ways of a pair"), (spray.parts, _MOST_PARTS, "in", "parts of a message"))
    for got, most, how, what in limits:
        if got > most:
            mend = "take the topology without a spray, or with fewer equal ways"
            raise must_be(name, "a spray", f"{how} at most {most} {what}", got, mend)


def _check_network(name: str, network: Mapping[str, str]) -> None:
    """Check that a network of packets, if there is one, has its kind.

    Raises:
        InputError: It has none.
    """
    if network and "kind" not in network:
        raise must_be(name, "network", "given with its kind, such as kind = 'roce'", ", ".join(network))


def check_link_count(name: str, count: int) -> None:
    """Check that a topology has at most 2**24 links, before memory for them is allocated.

    Raises:
        InputError: There are more than 2**24.
    """
    if count > MAX_LINKS:
        raise must_be(name, "links", "at most 2**24", count, "take fewer NPUs")


P = ParamSpec("P")
R = TypeVar("R")
Of = Callable[Concatenate[Topology, P], R]


def cached_by_topology(most: int) -> Callable[[Of[P, R]], Of[P, R]]:
    """Return a decorator that caches the last `most` results of a function for each topology, while the topology lives.

    A result must not refer to the topology.
    """

    def keeping(found: Of[P, R]) -> Of[P, R]:
        by_topology: WeakKeyDictionary[Topology, LRUCache[object, R]] = WeakKeyDictionary()

        @wraps(found)
        def of(topology: Topology, /, *args: P.args, **words: P.kwargs) -> R:
            if topology not in by_topology:
                by_topology[topology] = LRUCache(most)
            results, key = by_topology[topology], (args, *words.items())
            if key not in results:
                results[key] = found(topology, *args, **words)
            return results[key]

        return of

    return keeping


@cached_by_topology(1)
def _digest_of(topology: Topology) -> str:
    """Return the digest of a topology; the time grows with the number of links."""
    links = (getattr(topology.links, n) for n in Links.__slots__)
    switching_fs = None if topology.circuits is None else topology.circuits.switching_fs
    sizes = (topology.name, topology.n_npus, topology.n_nodes, topology.dims, topology.routing)
    costs = (topology.cost, topology.relays, topology.message_fs, topology.adding_fs, topology.adds, switching_fs)
    sprays = () if topology.spray is None else ("choice" if topology.chooses else "spray", topology.spray.parts)
    adders = () if topology.adders is None else ("adders", topology.adders)
    return digest((*sizes, *links, *costs, *sprays, *adders))
