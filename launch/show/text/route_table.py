"""The routes between two nodes in words: the channels that take each route, its links and its bandwidth."""

from collections.abc import Sequence

from emu.errors import must_be
from emu.registry import unknown
from emu.topology.paths.pair_paths import CHANNELS_ASKED, PairPath, paths_between
from emu.topology.topology import Topology
from emu.units import format_bandwidth, format_time, seconds
from launch.show.text.table import table

_MOST_CHANNELS = 6  # channels that are listed


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
    named = {topology.call(node): node for node in range(topology.n_nodes)}
    if word not in named:
        raise unknown("node", word, named)
    return named[word]


def routes_table(topology: Topology, src: int, dst: int) -> str:
    """Return a table of the routes between two nodes, below a line that says how many are taken."""
    ways = paths_between(topology, src, dst)
    count = sum(bool(way.channels) for way in ways)
    taken = "1 way is taken" if count == 1 else f"{count} ways are taken"
    title = f"{topology.call(src)} to {topology.call(dst)} on {topology.name}: {taken} by {CHANNELS_ASKED} channels"
    head = ("channels", "share", "links", "rates", "latency", "way")
    return f"{title}\n\n{table(head, [_cells(topology, way) for way in ways])}"


def _cells(topology: Topology, way: PairPath) -> tuple[str, ...]:
    """Return the row of one route in the table: its channels, their share, its links, rates, latency and nodes, as texts."""
    hops, links = list(way.links), topology.links
    rates = list(dict.fromkeys(map(format_bandwidth, links.bandwidth_Bps[hops].tolist())))
    latency_s = seconds(int(links.latency_fs[hops].sum()))
    through = " > ".join(map(topology.call, way.nodes))
    return (
        _channels(way.channels),
        f"{len(way.channels) / CHANNELS_ASKED:.3f}",
        " ".join(map(str, hops)),
        ", ".join(rates),
        format_time(latency_s),
        through,
    )


def _channels(channels: Sequence[int]) -> str:
    """Return the channels that take a route in words."""
    if not channels:
        return "as short, not taken"
    shown = " ".join(map(str, channels[:_MOST_CHANNELS]))
    return f"{shown} ..." if len(channels) > _MOST_CHANNELS else shown


def routes_as_json(topology: Topology, src: int, dst: int) -> dict[str, object]:
    """Return the routes as JSON fields; bandwidths and latencies are of each link in order."""
    return {
        "topology": topology.name,
        "from": topology.call(src),
        "to": topology.call(dst),
        "channels_asked": CHANNELS_ASKED,
        "ways": [
            {
                "nodes": [topology.call(node) for node in way.nodes],
                "links": way.links,
                "bandwidth_Bps": topology.links.bandwidth_Bps[list(way.links)],
                "latency_s": [seconds(int(t)) for t in topology.links.latency_fs[list(way.links)]],
                "channels": way.channels,
                "share": len(way.channels) / CHANNELS_ASKED,
            }
            for way in paths_between(topology, src, dst)
        ],
    }
