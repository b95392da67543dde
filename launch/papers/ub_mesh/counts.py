"""Rows of the UB-Mesh paper that are counted: the NPUs, switches and lanes of its built topologies.

Figure 21 of the UB-Mesh paper: the price of other systems as a multiple of UB-Mesh's, at public prices.
"""

from collections.abc import Callable, Mapping
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from emu.arrays import I64, Bool
from emu.study.cost.cost import PriceBook, cost, read_book
from emu.topology.topology import Topology
from launch.papers.networks import build_once
from launch.papers.paper import AnswerFunction
from launch.papers.targets import Answer, Target

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


_BOOK = Path(__file__).with_name("prices.toml")
_RACKS, _NPUS, _HRS_LANES, _X4 = 128, 64, 512, 4
_CABLE = "link leaf to spine x4"


@cache
def _book() -> PriceBook:
    """Return the price book of the paper's folder."""
    return read_book(_BOOK, _BOOK.name)


def _network(word: str) -> float:
    """Return the dollars of a topology without its NPUs."""
    return cost(build_once(word), _book()).dollars


def _dollars_of_racks(word: str, lanes: int) -> float:
    """Return the dollars of 128 racks and their spines, with this number of lanes out of a rack for each NPU."""
    parts, out = _book().of(build_once(word)).parts, _RACKS * _NPUS * lanes
    return _RACKS * _network(word) + out // _HRS_LANES * parts["HRS"].dollars + out // _X4 * parts[_CABLE].dollars


COMPARED: Mapping[str, Callable[[], float]] = MappingProxyType(
    {
        "2D-FM + x16 Clos": lambda: _network("ub-mesh:superpod-clos"),
        "1D-FM + x16 Clos": lambda: _dollars_of_racks("ub-mesh:rack-1d-fm-a", 16),
        "1D-FM + x32 Clos": lambda: _dollars_of_racks("ub-mesh:rack-1d-fm-b", 32),
        "x64T Clos": lambda: _network(CLOS),
    }
)


NETWORK_SHARE = 0.67  # share of the Clos's price (6.4)


def ratios(share: float) -> dict[str, float]:
    """Return the price of each system as a multiple of UB-Mesh's.

    Args:
        share: The share of the Clos's price that is its network; the rest costs the same in every system.
    """
    rest = _network(CLOS) * (1 - share) / share
    return {name: (network() + rest) / (_network(SUPERPOD) + rest) for name, network in COMPARED.items()}


def _ratio(_: Any, target: Target) -> Answer:
    """Answer the price of a system as a multiple of UB-Mesh's."""
    found = ratios(NETWORK_SHARE)
    name = [*found][int(target.id.rpartition("-")[2]) - 1]
    told = f"{name}; {', '.join(f'{each} {ratio:.2f}' for each, ratio in found.items())}"
    words = f"prices of launch/papers/ub_mesh/{_BOOK.name}: {_book().source}"
    rest = f"NPUs, CPUs and all else cost what is left where {100 * NETWORK_SHARE:g} % of the Clos is network (6.4)"
    cables = "cables between the racks of a pod are active copper: 4 x 4 racks are what it reaches (3.3.3); optics lead to HRS"
    return Answer(found[name], (told, words, rest, cables, "the third has no name in the text: racks of 1D-FM-B, by x32"))


COSTS: Mapping[str, AnswerFunction] = MappingProxyType({f"ub-capex-{place}": _ratio for place in range(1, len(COMPARED) + 1)})
