"""Rows of the UB-Mesh paper that are counted (NPUs, switches and lanes of its built topologies), and figure 21.

Figure 21 is the price of other systems as a multiple of UB-Mesh's, here at public prices.
"""

from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import Any

import numpy as np

from emu.arrays import I64, Bool
from emu.study.cost.network_cost import cost
from emu.study.cost.price_book import PriceBook
from emu.topology.topology import Topology
from launch.data.presets import DEFAULT, find_book
from launch.papers.networks import build_once, npus, parts
from launch.papers.targets import Answer, Target

SUPERPOD, CLOS = "ub-mesh:superpod", "ub-mesh:clos"
_LANE = 14e9  # bytes per second of a lane: 112 Gb/s, the topologies' default


def tier(topology: Topology, word: str) -> Bool:
    """Return [L] whether each link belongs to a tier whose name contains `word`."""
    return np.isin(topology.links.dimension, [i for i, name in enumerate(topology.tiers) if word in name])


def tier_rate(word: str, tier_word: str) -> float:
    """Return the sum of the bandwidths of all links of a tier, both directions, in bytes per second.

    Args:
        word: The topology with its settings, as `--topology` takes it.
        tier_word: The name of the tier.
    """
    return float(build_once(word).links.bandwidth_Bps[tier(build_once(word), tier_word)].sum())


def lanes(topology: Topology, of: Bool | slice = slice(None)) -> I64:
    """Return [nodes] the number of UB lanes out of each node.

    Args:
        topology: The topology.
        of: The links that count; by default all.
    """
    links = topology.links
    out = np.bincount(links.src[of], links.bandwidth_Bps[of] / _LANE, topology.n_nodes)
    return np.rint(out).astype(np.int64)


# Means of counts that should be equal: where they differ the mean shows this, as it is seldom a whole number.


def npu_lanes(word: str) -> float:
    """Return the number of UB lanes of an NPU, as the mean over all NPUs of a topology.

    Args:
        word: The topology with its settings, as `--topology` takes it.
    """
    return float(lanes(build_once(word))[: npus(word)].mean())


def npu_lanes_up(word: str) -> float:
    """Return the number of UB lanes from an NPU to switches."""
    topology = build_once(word)
    up = (topology.links.src < topology.n_npus) & (topology.links.dst >= topology.n_npus)
    return float(lanes(topology, up)[: topology.n_npus].mean())


def lrs_lanes(word: str, per_plane: float, for_cpus: float) -> float:
    """Return the number of UB lanes that each LRS for NPUs uses.

    Args:
        word: The topology, in which LRS follow the NPUs.
        per_plane: The number of LRS of a plane.
        for_cpus: The number of LRS of a plane that serve CPUs, which are its last.
    """
    first = npus(word)
    of = lanes(build_once(word))[first : first + parts(word, "LRS")].reshape(-1, int(per_plane))
    return float(of[:, : int(per_plane - for_cpus)].mean())


def rack_lanes_to_hrs(word: str) -> float:
    """Return the number of UB lanes from a rack to HRS, from its NPUs and its LRS."""
    topology, first, last = build_once(word), npus(word), npus(word) + parts(word, "LRS")
    out = lanes(topology, tier(topology, "HRS") & (topology.links.src < last))
    racks = parts(word, "backup NPU")
    return float(sum(own.reshape(racks, -1).sum(1) for own in (out[first:last], out[:first])).mean())


WORDS = (npus, parts, tier_rate, npu_lanes, npu_lanes_up, lrs_lanes, rack_lanes_to_hrs)


_RACKS, _NPUS, _HRS_LANES, _X4 = 128, 64, 512, 4
_CABLE = "link leaf to spine x4"


@cache
def _book() -> PriceBook:
    """Return Emu's own price book."""
    return find_book(DEFAULT)


def _network(word: str) -> float:
    """Return the dollars of a topology without its NPUs, at the lowest prices."""
    return cost(build_once(word), _book()).dollars


def _dollars_of_racks(word: str, lanes: int) -> float:
    """Return the dollars of 128 racks and their spines, with a number of lanes out of a rack for each NPU."""
    section, out = _book().of(build_once(word)), _RACKS * _NPUS * lanes
    switch, cable = (price.low.dollars for price in map(section.price, ("HRS", _CABLE)) if price is not None)
    return _RACKS * _network(word) + out // _HRS_LANES * switch + out // _X4 * cable


COMPARED: Mapping[str, Callable[[], float]] = {
    "2D-FM + x16 Clos": partial(_network, "ub-mesh:superpod-clos"),
    "1D-FM + x16 Clos": partial(_dollars_of_racks, "ub-mesh:rack-1d-fm-a", 16),
    "1D-FM + x32 Clos": partial(_dollars_of_racks, "ub-mesh:rack-1d-fm-b", 32),
    "x64T Clos": partial(_network, CLOS),
}
NETWORK_SHARE = 0.67  # share of the Clos's price (6.4)


def ratios(share: float) -> dict[str, float]:
    """Return the price of each system as a multiple of UB-Mesh's.

    Args:
        share: The network's share of the price of the Clos; the rest costs the same in every system.
    """
    rest = _network(CLOS) * (1 - share) / share
    return {name: (network() + rest) / (_network(SUPERPOD) + rest) for name, network in COMPARED.items()}


def capex_ratio(_: Any, target: Target) -> Answer:
    """Return the price of a system as a multiple of UB-Mesh's."""
    found = ratios(NETWORK_SHARE)
    name = [*found][int(target.id.rpartition("-")[2]) - 1]
    told = f"{name}; {', '.join(f'{each} {ratio:.2f}' for each, ratio in found.items())}"
    words = f"the lowest prices of the book {_book().name}: Shou et al., InfiniteHBD (SIGCOMM 2025), Table 8, by bandwidth"
    rest = f"NPUs, CPUs and all else cost what is left where {100 * NETWORK_SHARE:g} % of the Clos is network (6.4)"
    cables = "cables between the racks of a pod are active copper: 4 x 4 racks are what it reaches (3.3.3); optics lead to HRS"
    return Answer(found[name], (told, words, rest, cables, "the third has no name in the text: racks of 1D-FM-B, by x32"))
