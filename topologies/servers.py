"""Clusters as most users have them: servers of GPUs on NVLink, a NIC for each GPU, and switches between the servers.

Rail-optimised (RailX, arXiv:2507.18889, 2.2.1 and Fig. 2): GPU i of every server is on rail switch i, of V; with R ports down a
rail switch, a segment has R x V GPUs. There may be spines above. Without them (Rail-Only, arXiv:2307.12169) a message to
another rail first goes over NVLink to the GPU of that rail. A NIC is its GPU's port here, not a node.
"""

from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, NamedTuple

import numpy as np

from emu.arrays import I64, Bool, column
from emu.topology.builders.route_parts import join, mix
from emu.topology.builders.wiring import Cables, SwitchAdding, wire
from emu.topology.catalogue import Bandwidth, Count, Invariants, Latency, one_of, topology
from emu.topology.paths.shortest_paths import or_shortest
from emu.topology.placement import in_units
from emu.topology.topology import Box, Drawing, Routes, Topology, check_link_count
from emu.units import format_bandwidth, format_time, seconds

_SOURCE = "RailX (arXiv:2507.18889), 2.2.1 and Fig. 2; Wang et al., Rail-Only (arXiv:2307.12169)"
_NVLINK = 450e9  # bytes per second, one direction: 18 NVLinks of 25 GB/s (DGX H100)
_NIC = 50e9  # 400 Gb/s
_LATENCY = 300_000_000  # ticks: 300 ns, RailX 6.4's for a hop between nodes

Network = Annotated[str, one_of("spine", "rails", "switch")]


@dataclass(frozen=True)
class Hops(SwitchAdding):
    """The settings of hops: their latencies, and whether NVSwitches add."""

    latency: Latency = _LATENCY  # latency of a hop within a server
    nic_latency: Latency = _LATENCY  # latency of a hop between servers


class _Cluster(NamedTuple):
    """The sizes of a cluster.

    GPUs, servers, rail switches and spines are numbered in this order; a GPU is server * gpus + rail.
    """

    nodes: int
    gpus: int
    nvlink: float
    nic: float
    network: str
    spines: int = 1
    taper: int = 1
    hops: Hops = Hops()

    @property
    def npus(self) -> int:
        """The number of GPUs of all servers."""
        return self.nodes * self.gpus

    @property
    def rails(self) -> int:
        """The number of switches that have NICs."""
        return 1 if self.network == "switch" else self.gpus

    @property
    def above(self) -> int:
        """The number of spines."""
        return self.spines if self.network == "spine" else 0

    @property
    def switches(self) -> int:
        """The number of switches: those of NVLink, of rails and of spines."""
        return self.nodes + self.rails + self.above

    @property
    def links(self) -> int:
        """The number of directed links."""
        return 4 * self.npus + 2 * self.rails * self.above


def _cluster_invariants(cluster: _Cluster) -> Invariants:
    """Return the invariants of servers."""
    n, nvlink, nic = cluster.npus, cluster.nvlink, cluster.nic
    between = {"spine": nic / cluster.taper, "rails": 0.0, "switch": nic}[cluster.network]
    cuts = [n // 2 * nic] * (cluster.nodes % 2 == 0) + [n // 2 * (nvlink + between)] * (cluster.gpus % 2 == 0)
    return Invariants(
        cluster.links,
        2,
        2 if min(cluster.nodes, cluster.rails) == 1 else 4,
        min(cuts) if cuts and min(cluster.nodes, cluster.gpus) > 1 else None,
        npus=n,
        switches=cluster.switches,
        injection_Bps=nvlink + nic,
    )


def _invariants(**settings: Any) -> Invariants:
    """Return the invariants of the topology by closed forms."""
    return _cluster_invariants(_Cluster(**settings))


def _build(name: str, cluster: _Cluster) -> Topology:
    """Return the topology of servers under the name of its variant."""
    check_link_count(name, cluster.links)
    links, cables = wire(name, _cables(cluster))
    n, nodes = cluster.npus, cluster.npus + cluster.switches
    bill = {"NPU": n, "server": cluster.nodes, "NIC": n, "rail switch" if cluster.rails > 1 else "switch": cluster.rails}
    bill |= {"spine switch": cluster.above} if cluster.above else {}
    wired = Topology(
        name,
        n,
        nodes,
        links,
        or_shortest(partial(_route, cluster), links, nodes, n),
        (cluster.nodes, cluster.gpus),
        {**bill, **cables},
        _assumptions(cluster),
        ("GPU to NVSwitch", "NIC to rail" if cluster.rails > 1 else "NIC to switch", "rail to spine"),
        draw=partial(_draw, cluster),
        symmetry=partial(_shifts, cluster) if cluster.above < 2 else None,  # of several spines a hash takes one
        relays=np.ones(nodes, np.bool_) if cluster.network == "rails" else None,
        grouper=partial(in_units, name, cluster.gpus),
    )
    return cluster.hops.of(wired, _nvlink_switches(cluster))


def _nvlink_switches(cluster: _Cluster) -> Bool:
    """Return [nodes] whether each node is an NVLink switch: one for each server, numbered after the GPUs."""
    node = np.arange(cluster.npus + cluster.switches)
    return column((node >= cluster.npus) & (node < cluster.npus + cluster.nodes), np.bool_)


def _cables(cluster: _Cluster) -> list[Cables]:
    """Return the NVLinks, the cables of NICs, and the links up to spines."""
    n, npu = cluster.npus, np.arange(cluster.npus)
    rail = n + cluster.nodes + np.arange(cluster.rails)
    spine = n + cluster.nodes + cluster.rails + np.arange(cluster.above)
    up = cluster.nodes * cluster.nic / cluster.taper / cluster.spines
    inside = Cables("link of NVLink", npu, n + npu // cluster.gpus, cluster.nvlink, cluster.hops.latency, 0)
    nics = Cables("cable of a NIC", npu, rail[npu % cluster.rails], cluster.nic, cluster.hops.nic_latency, 1)
    rises = Cables("link to a spine", rail[:, None], spine, up, cluster.hops.nic_latency, 2)
    return [inside, nics, *([rises] if cluster.above else [])]


def _assumptions(cluster: _Cluster) -> tuple[str, ...]:
    """Return the sentences that say what the topology assumes."""
    near, far = (format_time(seconds(latency)) for latency in (cluster.hops.latency, cluster.hops.nic_latency))
    which = "the spine" if cluster.spines == 1 else f"one of {cluster.spines} spines, by a hash"
    across = {
        "spine": f"a message to another rail goes through {which}; rails have 1 port up for {cluster.taper} down",
        "rails": "a message to another rail goes over NVLink to the GPU of its server that is on it, which relays",
        "switch": "all NICs are on one switch",
    }
    return (
        f"a GPU has {format_bandwidth(cluster.nvlink)} of NVLink and {format_bandwidth(cluster.nic)} of its own NIC, one way",
        f"a hop takes {near} within a server and {far} between servers",
        across[cluster.network],
    )


def _route(cluster: _Cluster, src: I64, dst: I64, key: I64) -> Routes:
    """Return routes: cable c of NVLink is GPU c's, cable N + c its NIC's, cable 2N + rail * spines + spine a rail's."""
    n, gpus, spines = cluster.npus, cluster.gpus, cluster.spines
    inside = src // gpus == dst // gpus
    crosses = ~inside & (src % gpus != dst % gpus) & (cluster.network != "switch")
    mate = np.where(crosses & (cluster.network == "rails"), src // gpus * gpus + dst % gpus, src)
    rises = crosses & (cluster.network == "spine")
    near = inside | (mate != src)
    first, last = (2 * n + npu % gpus * spines + mix(src, dst, key) % spines for npu in (src, dst))
    return join(
        [
            np.where(near, 2 * src, -1),
            np.where(near, 2 * np.where(inside, dst, mate) + 1, -1),
            np.where(inside, -1, 2 * (n + mate)),
            np.where(rises, 2 * first, -1),
            np.where(rises, 2 * last + 1, -1),
            np.where(inside, -1, 2 * (n + dst) + 1),
        ]
    )


def _shifts(cluster: _Cluster) -> list[I64]:
    """Return two symmetries [nodes]: every server goes to the next; every GPU goes to the next of its server, with its rail.

    Spines stay.
    """
    npu, server = np.arange(cluster.npus).reshape(cluster.nodes, cluster.gpus), np.arange(cluster.nodes)
    rail, above = np.arange(cluster.rails), np.arange(cluster.above)
    shifted = (
        (np.roll(npu, -1, axis=0).ravel(), np.roll(server, -1), rail, above),
        (np.roll(npu, -1, axis=1).ravel(), server, np.roll(rail, -1), above),
    )
    first = np.cumsum([0, cluster.npus, cluster.nodes, cluster.rails])
    return [np.concatenate([base + part for base, part in zip(first, parts, strict=True)]) for parts in shifted]


def _draw(cluster: _Cluster) -> Drawing:
    """Return a drawing with servers side by side, each with its NVSwitch below, rails above them and spines on top."""
    nodes, gpus, rails, spines = cluster.nodes, cluster.gpus, cluster.rails, cluster.above
    pitch = gpus + 1.4
    server, gpu = np.divmod(np.arange(nodes * gpus), gpus)
    wide = nodes * pitch - 1.4
    rise = max(2.0, wide / 9)
    spread = [(np.arange(count) + 0.5) * wide / max(count, 1) - 0.5 for count in (rails, spines)]
    at = [
        np.stack((server * pitch + gpu, np.zeros(nodes * gpus)), axis=-1),
        np.stack((np.arange(nodes) * pitch + (gpus - 1) / 2, np.full(nodes, -1.3)), axis=-1),
        np.stack((spread[0], np.full(rails, rise)), axis=-1),
        np.stack((spread[1], np.full(spines, 2 * rise)), axis=-1),
    ]
    boxes = tuple(Box(f"server {i}", (i * gpus, (i + 1) * gpus)) for i in range(nodes))
    return Drawing(np.concatenate(at), boxes)


@topology(
    "servers",
    source=_SOURCE,
    examples=(
        "",
        "nodes=2,gpus=4,network=rails",
        "nodes=3,gpus=2,network=switch",
        "nodes=4,gpus=4,taper=2",
        "nodes=3,gpus=1",
    ),
    invariants=_invariants,
)
def servers(
    nodes: Count = 4,
    gpus: Count = 8,
    nvlink: Bandwidth = _NVLINK,
    nic: Bandwidth = _NIC,
    network: Network = "spine",
    taper: Count = 1,
    *,
    hops: Hops,
) -> Topology:
    """Join servers of 8 GPUs on NVLink by a 400 Gb/s NIC for each GPU on the switch of its rail, and a spine above the rails.

    Args:
        nodes: Servers.
        gpus: V: GPUs of a server, and rails.
        nvlink: Bandwidth of a GPU over all its NVLinks.
        nic: Bandwidth of a GPU's NIC.
        network: `spine`: rails under a spine; `rails`: rails alone, NVLink takes messages to other rails; `switch`: one switch.
        taper: Ports down for each port up of a rail switch.
        hops: Latencies, and what NVSwitches do.
    """
    return _build("servers", _Cluster(nodes, gpus, nvlink, nic, network, 1, taper, hops))


def _segment_invariants(radix: int, gpus: int, spines: int, nvlink: float, nic: float, **_: object) -> Invariants:
    """Return the invariants of the segment topology by closed forms."""
    return _cluster_invariants(_Cluster(radix, gpus, nvlink, nic, "spine", spines))


@topology(
    "rail-optimised",
    source=_SOURCE,
    examples=("radix=8", "radix=4,gpus=4,spines=2", "radix=2,gpus=2,spines=1"),
    full=("radix=64",),
    invariants=_segment_invariants,
)
def rail_optimised(
    radix: Count = 64,
    gpus: Count = 8,
    spines: Count = 4,
    nvlink: Bandwidth = _NVLINK,
    nic: Bandwidth = _NIC,
    latency: Latency = _LATENCY,
) -> Topology:
    """Join R servers of V GPUs by V rail switches with R ports down: a segment as large as its rail switches allow.

    Args:
        radix: R: ports down of a rail switch, and servers.
        gpus: V: GPUs of a server, and rail switches.
        spines: Spines above the rails, which together have as many ports up as down.
        nvlink: Bandwidth of a GPU over all its NVLinks.
        nic: Bandwidth of a GPU's NIC.
        latency: Latency of a hop.
    """
    return _build(
        "rail-optimised", _Cluster(radix, gpus, nvlink, nic, "spine", spines, 1, Hops(latency=latency, nic_latency=latency))
    )
