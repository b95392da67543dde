"""Colours and sizes that all pictures of topologies share."""

from dataclasses import dataclass

import numpy as np
from scipy.spatial import KDTree

from emu.arrays import F64
from emu.topology.topology import Topology
from launch.show.picture.groups import switch_names

TIMES = "\N{MULTIPLICATION SIGN}"
NPU, FRAME = "#22313f", "#dde3ea"
_TIERS = (  # Okabe and Ito's, safe for colour-blind readers; then Tol's muted ones
    *("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9"),
    *("#882255", "#999933", "#44AA99", "#332288"),
)
_SWITCHES = ("#7a1f3d", "#1f5c4f", "#4b3a8e", "#8a5a0b", "#2f6690", "#5b5b5b")
_SMALLEST_PT, _LARGEST_PT = 3.0, 28.0


@dataclass(frozen=True, slots=True)
class Palette:
    """The colours of a topology's tiers and of its kinds of switches."""

    tiers: dict[int, str]  # colour of each dimension
    switches: dict[str, str]  # colour of each kind, in order of appearance


def palette(topology: Topology) -> Palette:
    """Return a colour for each dimension that has links, and for each kind of switch."""
    dimensions, names = np.unique(topology.links.dimension), dict.fromkeys(switch_names(topology))
    return Palette(
        {int(dimension): _TIERS[i % len(_TIERS)] for i, dimension in enumerate(dimensions)},
        {name: _SWITCHES[i % len(_SWITCHES)] for i, name in enumerate(names)},
    )


def node_size_pt(at: F64, points: float) -> float:
    """Return the width of nodes in points: about half a gap, but small enough that the nearest two do not overlap.

    Args:
        at: [nodes, 2] places of nodes.
        points: Points in a unit of the drawing.
    """
    if len(at) < 2:
        return _LARGEST_PT
    gaps = KDTree(at).query(at, k=2)[0][:, 1]
    return float(np.clip(points * min(0.55 * np.quantile(gaps, 0.2), 0.95 * gaps.min()), _SMALLEST_PT, _LARGEST_PT))


def least_gap(at: F64, first: int) -> float:
    """Return the least distance between a node from number `first` on and any other node; 10.0 where there is none."""
    if len(at) < 2 or first >= len(at):
        return 10.0
    return float(KDTree(at).query(at[first:], k=2)[0][:, 1].min())
