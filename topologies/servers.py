"""Clusters as most users have them: servers of GPUs on NVLink, a NIC for each GPU, and switches between the servers.

Rail-optimised (RailX, arXiv:2507.18889, 2.2.1 and Fig. 2): GPU i of every server is on rail switch i, of V; with R ports down a
rail switch, a segment has R x V GPUs. There may be spines above. Without them (Rail-Only, arXiv:2307.12169) a message to
another rail first goes over NVLink to the GPU of that rail. A NIC is its GPU's port here, not a node.
"""

from dataclasses import dataclass
from functools import partial
from typing import Annotated, Any, NamedTuple

import numpy as np

from emu.arrays import I64
from emu.equivalence import shift
from emu.errors import must_be
from emu.topology.builders.route_parts import join, link_if, mix
from emu.topology.builders.wiring import Cables, SwitchAdding, fabric
from emu.topology.catalogue import HOP_LATENCY, PORT_RATE, Bandwidth, Count, EqualWays, Invariants, Latency, one_of, planned
from emu.topology.gang_rule import within_units
from emu.topology.paths.spray import routed
from emu.topology.topology import LEAST_LOADED, Drawing, Routes, Topology, check_link_count, frames
from emu.topology.usable_npus import usable_within_units
from emu.units import format_bandwidth, format_time, seconds

_SOURCE = "RailX (arXiv:2507.18889), 2.2.1 and Fig. 2; Wang et al., Rail-Only (arXiv:2307.12169)"
_NVLINK = 450e9  # bytes per second, one direction: 18 NVLinks of 25 GB/s (DGX H100)

Network = Annotated[str, one_of("spine", "rails", "switch")]


@dataclass(frozen=True)
class Hops(SwitchAdding):
    """The settings of hops: their latencies, and whether NVSwitches add."""

    latency: Latency = HOP_LATENCY  # latency of a hop within a server
    nic_latency: Latency = HOP_LATENCY  # latency of a hop between servers


class _Cluster(NamedTuple):
    """The sizes of a cluster.

    GPUs, servers, rail switches and spines are numbered in this order; a GPU is server * gpus + rail.
    """

    name: str
    nodes: int
    gpus: int
    nvlink: float
    nic: float
    network: str
    spines: int = 1
    taper: int = 1
    hops: Hops = Hops()
    route: str = "hash"

    @property
    def npus(self) -> int:
        """The number of GPUs of all servers."""
        return self.nodes * self.gpus

    @property
    def rails(self) -> int:
        """The number of leaf switches, to which NICs are attached."""
        return 1 if self.network == "switch" else self.gpus

    @property
    def above(self) -> int:
        """The number of spine switches above the leaf switches."""
        return self.spines if self.network == "spine" else 0

    @property
    def switches(self) -> int:
        """The number of switches: one NVLink switch for each server, the switches of the rails, and the spines above them."""
        return self.nodes + self.rails + self.above

    @property
    def links(self) -> int:
        """The number of directed links."""
        return 4 * self.npus + 2 * self.rails * self.above


def _invariants(cluster: _Cluster) -> Invariants:
    """Return the invariants of servers by closed forms."""
    n, nvlink, nic = cluster.npus, cluster.nvlink, cluster.nic
    between = {"spine": nic / cluster.taper, "rails": 0.0, "switch": nic}[cluster.network]
    cuts = [n // 2 * nic] + [n // 2 * (nvlink + between)] * (cluster.gpus % 2 == 0)
    return Invariants(
        cluster.links,
        2,
        2 if min(cluster.nodes, cluster.rails) == 1 else 4,
        min(cuts) if cluster.nodes % 2 == 0 and cluster.gpus > 1 else None,
        npus=n,
        switches=cluster.switches,
        injection_Bps=nvlink + nic,
    )


def _build(cluster: _Cluster) -> Topology:
    """Return the topology of servers."""
    check_link_count(cluster.name, cluster.links)
    bill = {"server": cluster.nodes, "NIC": cluster.npus, "rail switch" if cluster.rails > 1 else "switch": cluster.rails}
    wired = fabric(
        cluster.name,
        cluster.npus,
        _cables(cluster),
        bill=bill | ({"spine switch": cluster.above} if cluster.above else {}),
        dims=(cluster.nodes, cluster.gpus),
        assumptions=_assumptions(cluster),
        tiers=("GPU to NVSwitch", "NIC to rail" if cluster.rails > 1 else "NIC to switch", "rail to spine"),
        draw=partial(_draw, cluster),
        symmetry=partial(_shifts, cluster) if _is_alike(cluster) else None,
        **_route_fields(cluster),
        relays=True if cluster.network == "rails" else None,
        usable_counter=partial(usable_within_units, cluster.name, cluster.gpus),
        gangs=within_units(cluster.gpus),
    )
    return cluster.hops.of(wired, cluster.npus, cluster.nodes)


def _is_alike(cluster: _Cluster) -> bool:
    """Return whether messages keep the symmetries of the servers, as they do unless a hash or a choice takes a spine."""
    return cluster.route == "spray" or (cluster.above < 2 and cluster.route != LEAST_LOADED)


def _route_fields(cluster: _Cluster) -> dict[str, Any]:
    """Return the fields of a topology that follow from how messages take the spines."""
    number, way, most = partial(_count_paths, cluster), partial(_route_by_number, cluster), max(1, cluster.above)
    return routed(cluster.route, partial(_route, cluster), number, way, most, most)


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
    """Return sentences on the assumptions of the topology."""
    near, far = (format_time(seconds(latency)) for latency in (cluster.hops.latency, cluster.hops.nic_latency))
    how = {
        "hash": "one of {} spines, by a hash",
        "disjoint": "one of {} spines, channels in turn",
        "spray": "all {} spines",
        "least-loaded": "the one of {} spines to which the least is to be sent when it starts",
    }
    which = "the spine" if cluster.spines == 1 else how[cluster.route].format(cluster.spines)
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
    return _route_by_number(cluster, src, dst, mix(src, dst, key))


def _count_paths(cluster: _Cluster, src: I64, dst: I64) -> I64:
    """Return [P] the number of equal paths of each pair: the number of spines if its messages cross one, else 1."""
    gpus = cluster.gpus
    crosses = (src // gpus != dst // gpus) & (src % gpus != dst % gpus) & (cluster.network == "spine")
    return np.where(crosses, cluster.spines, 1)


def _route_by_number(cluster: _Cluster, src: I64, dst: I64, way: I64) -> Routes:
    """Return the routes of pairs over the spine with number `way`, modulo the number of spines."""
    n, gpus, spines = cluster.npus, cluster.gpus, cluster.spines
    inside = src // gpus == dst // gpus
    crosses = ~inside & (src % gpus != dst % gpus) & (cluster.network != "switch")
    mate = np.where(crosses & (cluster.network == "rails"), src // gpus * gpus + dst % gpus, src)
    rises, goes = crosses & (cluster.network == "spine"), ~inside
    near = inside | (mate != src)
    first, last = (2 * n + npu % gpus * spines + way % spines for npu in (src, dst))
    return join(
        [
            link_if(near, 2 * src),
            link_if(near, 2 * np.where(inside, dst, mate) + 1),
            link_if(goes, 2 * (n + mate)),
            link_if(rises, 2 * first),
            link_if(rises, 2 * last + 1),
            link_if(goes, 2 * (n + dst) + 1),
        ]
    )


def _shifts(cluster: _Cluster) -> list[I64]:
    """Return two symmetries [nodes]: every server moves to the next; every GPU moves to the next of its server.

    Spines stay.
    """
    shapes = (cluster.nodes, cluster.gpus), (cluster.nodes,), (cluster.rails,), (cluster.above,)
    return [shift(*zip(shapes, axes, strict=True)) for axes in ((0, 0, None, None), (1, None, 0, None))]


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
    return Drawing(np.concatenate(at), frames("server", gpus, nodes))


@planned(
    "servers",
    _build,
    _invariants,
    source=_SOURCE,
    examples=(
        "",
        "nodes=2,gpus=4,network=rails",
        "nodes=3,gpus=2,network=switch",
        "nodes=4,gpus=4,taper=2",
        "nodes=3,gpus=1",
    ),
)
def servers(
    nodes: Count = 4,
    gpus: Count = 8,
    nvlink: Bandwidth = _NVLINK,
    nic: Bandwidth = PORT_RATE,
    network: Network = "spine",
    taper: Count = 1,
    *,
    hops: Hops,
) -> _Cluster:
    """Join servers of 8 GPUs on NVLink by a 400 Gb/s NIC for each GPU on the switch of its rail, and a spine above the rails.

    Args:
        nodes: Servers.
        gpus: V: GPUs of a server, and rails.
        nvlink: Bandwidth of a GPU over all its NVLinks.
        nic: Bandwidth of a GPU's NIC.
        network: `spine`: rails under a spine; `rails`: rails alone, NVLink takes messages to other rails; `switch`: one switch.
        taper: Ports down for each port up of a rail switch; 1 without a spine.
        hops: Latencies, and what NVSwitches do.

    Raises:
        InputError: There is a taper, but no spine.
    """
    if network != "spine" and taper != 1:
        raise must_be("servers", "taper", "1 where network is not spine", taper, "leave it out, or take network=spine")
    return _Cluster("servers", nodes, gpus, nvlink, nic, network, 1, taper, hops)


@planned(
    "rail-optimised",
    _build,
    _invariants,
    source=_SOURCE,
    examples=("radix=8", "radix=4,gpus=4,spines=2", "radix=2,gpus=2,spines=1", "radix=4,gpus=4,spines=3,route=spray"),
    full=("radix=64",),
)
def rail_optimised(
    radix: Count = 64,
    gpus: Count = 8,
    spines: Count = 4,
    nvlink: Bandwidth = _NVLINK,
    nic: Bandwidth = PORT_RATE,
    latency: Latency = HOP_LATENCY,
    route: EqualWays = "hash",
) -> _Cluster:
    """Join R servers of V GPUs by V rail switches with R ports down: a segment as large as its rail switches allow.

    Args:
        radix: R: ports down of a rail switch, and servers.
        gpus: V: GPUs of a server, and rail switches.
        spines: Spines above the rails, which together have as many ports up as down.
        nvlink: Bandwidth of a GPU over all its NVLinks.
        nic: Bandwidth of a GPU's NIC.
        latency: Latency of a hop.
        route: Which spines messages to another rail take: one by a hash, the channels of a pair in turn, or each message all.
    """
    hops = Hops(latency=latency, nic_latency=latency)
    return _Cluster("rail-optimised", radix, gpus, nvlink, nic, "spine", spines, 1, hops, route)
