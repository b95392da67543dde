"""The structure as a picture: a symbol a group, and what each line stands for."""

import numpy as np
import pytest
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch

from emu.topology.catalogue import build_topology
from launch.show.picture.group_drawing import arrange, paint_groups
from launch.show.picture.groups import group_nodes

TIMES = "\N{MULTIPLICATION SIGN}"


def _painted(line):
    topology = build_topology(line)
    merged, axes = group_nodes(topology), Figure().add_subplot()
    paint_groups(axes, merged, arrange(merged), 50.0, topology)
    symbols = [patch for patch in axes.patches if isinstance(patch, FancyBboxPatch)]
    return merged, symbols, [text.get_text() for text in axes.texts]


@pytest.mark.parametrize(
    "line", ["fat-tree:radix=64,tiers=3", "hpn", "ub-mesh:pod", "ub-mesh:superpod", "dragonfly:p=8,a=16,h=8"]
)
def test_symbols_do_not_lie_on_one_another(line):
    merged, symbols, _ = _painted(line)
    assert len(symbols) == len(merged.names)
    low = np.array([(s.get_x(), s.get_y()) for s in symbols])
    high = low + [(s.get_width(), s.get_height()) for s in symbols]
    over = (low[:, None] < high).all(axis=-1) & (low < high[:, None]).all(axis=-1)
    assert over.sum() == len(symbols)  # each with itself


def test_a_bundle_says_how_many_cables_it_is_and_what_they_carry():
    _, _, words = _painted("fat-tree:radix=64,tiers=3")
    assert words.count(f"{TIMES} 65,536\n3.277 PB/s") == 3
    assert f"tier 2 {TIMES} 2,048\n32 cables down each\n32 cables up each" in words
    _, _, words = _painted("hpn:pod")
    assert words.count(f"{TIMES} 480\n24 TB/s") == 8
    assert words.count(f"{TIMES} 5,280\n264 TB/s") == 2


def test_of_many_bundles_one_of_each_kind_says_so():
    merged, _, words = _painted("ub-mesh:pod")
    assert len(merged.bundled) == 2 * 48
    assert words.count(f"{TIMES} 32\n1.792 TB/s") == 2  # along a row of racks, and along a column
