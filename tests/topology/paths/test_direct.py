"""A link that joins two nodes alone is the shortest path between them, as the search over all links finds it."""

import numpy as np
import pytest

from emu.topology.catalogue import build_topology
from emu.topology.paths.shortest_paths import _shortest, shortest


@pytest.mark.parametrize("line", ["servers:nodes=4", "dgx-h100:superpod:servers=4", "fat-tree:radix=8", "ub-mesh:rack-clos"])
def test_a_link_of_a_pair_alone_is_the_path_that_a_search_finds(line):
    topology, random = build_topology(line), np.random.default_rng(1)
    links, n = topology.links, topology.n_nodes
    src, dst, key = random.integers(0, n, 400), random.integers(0, n, 400), random.integers(0, 50, 400)
    joined = random.integers(0, len(links), 200)
    src[:200], dst[:200] = links.src[joined], links.dst[joined]
    found, searched = _shortest(links, n, src, dst, key), shortest(links, n)(src, dst, key)
    assert np.array_equal(found.start, searched.start)
    assert np.array_equal(found.link, searched.link)
