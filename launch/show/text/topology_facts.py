"""A topology in words: the rows that `emu show topology` prints, and the links by dimension.

The routes between two nodes in words: the channels that take each route, its links and its bandwidth.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from emu.errors import must_be
from emu.registry import unknown
from emu.topology.facts.facts import Summary
from emu.topology.paths.shortest_paths import CHANNELS_ASKED, PairPath, paths_between
from emu.topology.topology import Topology
from emu.units import format_bandwidth, format_time, seconds
from launch.show.text.table import span_text, table

_MOST_CHANNELS = 6  # channels that are listed
_MOST_SPRAYED = 8  # ways of a sprayed pair that are listed: all have equal shares


def find_node(topology: Topology, word: str) -> int:
    """Return the number of a node from its number or its name.

    Raises:
        InputError: no node has this name.
    """
    is_number = word.isascii() and word.isdigit()
    if is_number and int(word) < topology.n_nodes:
        return int(word)
    if is_number or topology.names is None:
        raise must_be("show topology", "--route", f"numbers of 0..{topology.n_nodes - 1}, the nodes of {topology.name}", word)
    named = {topology.node_name(node): node for node in range(topology.n_nodes)}
    if word not in named:
        raise unknown("node", word, named)
    return named[word]


def routes_table(topology: Topology, src: int, dst: int) -> str:
    """Return a table of the routes between two nodes; of a sprayed pair the first eight, and the number of the others."""
    ways = paths_between(topology, src, dst)
    count = sum(bool(way.channels) for way in ways)
    taken = "1 way is taken" if count == 1 else f"{count} ways are taken"
    title = f"{topology.node_name(src)} to {topology.node_name(dst)} on {topology.name}: {taken} by {CHANNELS_ASKED} channels"
    head = ("channels", "share", "links", "rates", "latency", "way")
    is_sprayed = topology.spray is not None and max(src, dst) < topology.n_npus
    shown = ways[:_MOST_SPRAYED] if is_sprayed else ways
    rest = f"\n... and {len(ways) - len(shown)} more, with equal shares" if len(shown) < len(ways) else ""
    return f"{title}\n\n{table(head, [_cells(topology, way) for way in shown])}{rest}"


def _cells(topology: Topology, way: PairPath) -> tuple[str, ...]:
    """Return the table cells of one route: channels, share, links, rates, latency and nodes."""
    hops, links = list(way.links), topology.links
    return (
        _channels(way.channels),
        f"{way.share:.3f}",
        " ".join(map(str, hops)),
        ", ".join(dict.fromkeys(map(format_bandwidth, links.bandwidth_Bps[hops].tolist()))),
        format_time(seconds(int(links.latency_fs[hops].sum()))),
        " > ".join(map(topology.node_name, way.nodes)),
    )


def _channels(channels: Sequence[int]) -> str:
    """Return a phrase on the channels that take a route."""
    if not channels:
        return "as short, not taken"
    shown = " ".join(map(str, channels[:_MOST_CHANNELS]))
    return f"{shown} ..." if len(channels) > _MOST_CHANNELS else shown


def routes_as_json(topology: Topology, src: int, dst: int) -> dict[str, object]:
    """Return the routes as JSON fields; bandwidths and latencies are of each link in order."""
    return {
        "topology": topology.name,
        "from": topology.node_name(src),
        "to": topology.node_name(dst),
        "channels_asked": CHANNELS_ASKED,
        "ways": [
            {
                "nodes": [topology.node_name(node) for node in way.nodes],
                "links": way.links,
                "bandwidth_Bps": topology.links.bandwidth_Bps[list(way.links)],
                "latency_s": [seconds(int(t)) for t in topology.links.latency_fs[list(way.links)]],
                "channels": way.channels,
                "share": way.share,
            }
            for way in paths_between(topology, src, dst)
        ],
    }


@dataclass(frozen=True, slots=True)
class LinkClass:
    """The links of one dimension, with the range of their bandwidths and latencies."""

    dimension: int
    wiring: str  # "ring", "full mesh", "to switches", or "" for anything else
    size: int  # NPUs along the dimension
    links: int  # links, one way each
    bandwidth_Bps: tuple[float, float]  # least and most, one way
    latency_s: tuple[float, float]  # least and most
    name: str = ""  # name of the tier; "": the topology does not name its tiers

    @property
    def rate(self) -> str:
        """The bandwidth and latency as text, such as `50 GB/s, 500 ns`; ranges if links differ."""
        return f"{span_text(map(format_bandwidth, self.bandwidth_Bps))}, {span_text(map(format_time, self.latency_s))}"

    @property
    def title(self) -> str:
        """The name of the tier, else `NPU to switch` or `dimension 0, ring of 8`."""
        shape = f", {self.wiring} of {self.size}" if self.wiring else ""
        return self.name or ("NPU to switch" if self.wiring == "to switches" else f"dimension {self.dimension}{shape}")

    @property
    def label(self) -> str:
        """The links in words, such as `dimension 0, ring of 8: 128 links, 50 GB/s, 500 ns`."""
        return f"{self.title}: {self.links} links, {self.rate}"


def link_classes(topology: Topology) -> list[LinkClass]:
    """Return the links of each dimension that has any, summarised."""
    return [_link_class(topology, int(d)) for d in np.unique(topology.links.dimension)]


def _link_class(topology: Topology, dimension: int) -> LinkClass:
    """Return the class of the links of one dimension: their number, wiring, bandwidths and latencies."""
    links, n = topology.links, topology.n_npus
    rows = np.flatnonzero(links.dimension == dimension)
    size = topology.dims[dimension] if dimension < len(topology.dims) else n
    rates, times = links.bandwidth_Bps[rows], links.latency_fs[rows]
    rate_Bps, latency_s = (float(rates.min()), float(rates.max())), (seconds(int(times.min())), seconds(int(times.max())))
    to_switch = bool((links.src[rows] >= n).any() or (links.dst[rows] >= n).any())
    wiring = "to switches" if to_switch else _wiring(size, len(rows) / n)
    name = topology.tiers[dimension] if dimension < len(topology.tiers) else ""
    return LinkClass(dimension, wiring, size, len(rows), rate_Bps, latency_s, name)


def _wiring(size: int, ports: float) -> str:
    """Return "ring" or "full mesh", as the number of ports of an NPU along a dimension implies; "" for anything else."""
    if ports == 2:
        return "ring"
    return "full mesh" if ports == size - 1 else ""


def topology_rows(topology: Topology, facts: Summary) -> list[tuple[str, str]]:
    """Return the labels and values that describe a topology."""
    shape = f" ({' x '.join(map(str, topology.dims))})" if len(topology.dims) > 1 else ""
    return [
        ("topology", topology.name),
        ("NPUs", f"{facts.npus}{shape}"),
        ("switches", str(facts.switches)),
        ("links", f"{facts.links}, one way each"),
        *(("", c.label) for c in link_classes(topology)),
        ("degree", f"{span_text(map(str, facts.degree))} links out of an NPU"),
        ("diameter", _diameter(facts)),
        (
            "paths",
            f"{_count_text(facts.paths[0])} shortest between the NPUs farthest apart, {_count_text(facts.paths[1])} at most",
        ),
        ("injection", f"{span_text(map(format_bandwidth, facts.injection_Bps))} out of an NPU"),
        ("bisection", f"{format_bandwidth(facts.bisection_Bps)} one way ({facts.halves})"),
        ("bill", ", ".join(f"{number} {part}" for part, number in topology.bill.items())),
        *((("packets", network_text(topology.network)),) if topology.network else ()),
        *(("assumed", sentence) for sentence in topology.assumptions),
    ]


def network_text(network: Mapping[str, str]) -> str:
    """Return the network of packets that a topology names, such as `roce:route=in-turn,cell=8KiB`."""
    settings = [f"{name}={value}" for name, value in network.items() if name != "kind"]
    return ":".join((network["kind"], *([",".join(settings)] if settings else [])))


def _diameter(facts: Summary) -> str:
    """Return the diameter in words."""
    if facts.diameter is None:
        return "none: some NPUs cannot reach others"
    words = f"{facts.diameter} link{'' if facts.diameter == 1 else 's'}"
    return words if facts.diameter_exact else f"at least {words} (measured to 64 of the NPUs)"


def _count_text(count: int) -> str:
    """Return a count as digits, or rounded to three of them from 2**53 on."""
    return str(count) if count < 2**53 else f"{count:.3g}"
