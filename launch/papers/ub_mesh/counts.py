"""Rows of the UB-Mesh paper that are counted: the NPUs, switches and lanes of its built topologies."""

from collections.abc import Mapping
from types import MappingProxyType

import numpy as np

from emu.arrays import I64, Bool
from emu.topology.topology import Topology
from launch.papers.networks import build_once
from launch.papers.paper import AnswerFunction

RACK, POD, SUPERPOD, CLOS = "ub-mesh:rack-full", "ub-mesh:pod", "ub-mesh:superpod", "ub-mesh:clos"
_LANE = 14e9  # bytes per second of a lane: 112 Gb/s, the topologies' default


def tier(topology: Topology, word: str) -> Bool:
    """Return [L] whether a link is of a tier whose name has this word."""
    return np.isin(topology.links.dimension, [i for i, name in enumerate(topology.tiers) if word in name])


def lanes(topology: Topology, of: Bool | slice = slice(None)) -> I64:
    """Return [nodes] the lanes out of each node over some of the links."""
    links = topology.links
    out = np.bincount(links.src[of], links.bandwidth_Bps[of] / _LANE, topology.n_nodes)
    return np.rint(out).astype(np.int64)


def mean_count(counts: I64) -> float:
    """Return the mean of counts that should be equal; where they differ, it shows this, as it is seldom a whole number."""
    return float(counts.mean())


def switches(topology: Topology) -> slice:
    """Return the nodes of LRS, which follow the NPUs."""
    return slice(topology.n_npus, topology.n_npus + topology.bill["LRS"])


def lrs_of_npus(topology: Topology, per_plane: int, for_cpus: int = 2) -> I64:
    """Return [LRS] the lanes out of the LRS of each plane, without those LRS that serve CPUs.

    Args:
        topology: The topology.
        per_plane: The LRS of a plane.
        for_cpus: The LRS of a plane that serve CPUs, which are its last.
    """
    of = lanes(topology)[switches(topology)].reshape(-1, per_plane)
    return np.asarray(of[:, : per_plane - for_cpus].ravel())


def rack_lanes_to_hrs(topology: Topology) -> I64:
    """Return [racks] the lanes from each rack to HRS."""
    racks, up = topology.bill["backup NPU"], tier(topology, "HRS")
    out = lanes(topology, up & (topology.links.src < switches(topology).stop))
    lrs = out[switches(topology)]
    return np.asarray(lrs.reshape(racks, -1).sum(1) + out[: topology.n_npus].reshape(racks, -1).sum(1))


def _saved_lanes() -> float:
    """Return the share of optical lanes that UB-Mesh saves against the Clos, in per cent."""
    ub, clos = (
        build_once(word).links.bandwidth_Bps[tier(build_once(word), of)].sum()
        for word, of in ((SUPERPOD, "HRS"), (CLOS, "spine"))
    )
    return 100 * (1 - float(ub / clos))


def _up() -> float:
    """Return the lanes of an NPU to switches."""
    rack = build_once(RACK)
    of_npus = (rack.links.src < rack.n_npus) & (rack.links.dst >= rack.n_npus)
    return mean_count(lanes(rack, of_npus)[: rack.n_npus])


_PLANES = 4
COUNTS: Mapping[str, AnswerFunction] = MappingProxyType(
    {
        "ub-npu-rack": lambda *_: float(build_once(RACK).n_npus),
        "ub-pod": lambda *_: float(build_once(POD).n_npus),
        "ub-sp": lambda *_: build_once(SUPERPOD).n_npus / build_once(RACK).n_npus,
        "ub-lrs-plane": lambda *_: build_once(RACK).bill["LRS"] / _PLANES,
        "ub-lrs-rack": lambda *_: float(build_once(RACK).bill["LRS"]),
        "ub-up": lambda *_: _up(),
        "ub-lanes": lambda *_: mean_count(lanes(build_once(SUPERPOD))[: build_once(SUPERPOD).n_npus]),
        "ub-rack-links": lambda *_: mean_count(rack_lanes_to_hrs(build_once(SUPERPOD))),
        "ub-lrs-x72": lambda *_: mean_count(lrs_of_npus(build_once(SUPERPOD), build_once(RACK).bill["LRS"] // _PLANES)),
        "ub-hrs-ub": lambda *_: float(build_once(SUPERPOD).bill["HRS"]),
        "ub-hrs-clos": lambda *_: float(build_once(CLOS).bill["HRS"]),
        "ub-lrs-all": lambda *_: f"{build_once(SUPERPOD).bill['LRS']};{build_once(CLOS).bill['LRS']}",
        "ub-hrs98": lambda *_: 100 * (1 - build_once(SUPERPOD).bill["HRS"] / build_once(CLOS).bill["HRS"]),
        "ub-opt93": lambda *_: _saved_lanes(),
    }
)
