"""Small topologies: made link by link, and at random with a route from every node to every other."""

from collections.abc import Callable, Iterable

import numpy as np
import pytest

from emu.arrays import column
from emu.bound import limit
from emu.topology.paths.shortest_paths import shortest
from emu.topology.topology import Links, Topology

Rows = Iterable[tuple[int, int, float, int]]  # src, dst, bandwidth, latency
Made = Callable[[int, int, Rows], Topology]


def _made(n_npus: int, n_nodes: int, rows: Rows) -> Topology:
    src, dst, rate, latency = zip(*rows, strict=True)
    links = Links(
        column(src, np.int32),
        column(dst, np.int32),
        column(rate, np.float64),
        column(latency, np.int64),
        column(np.zeros(len(src)), np.int16),
    )
    return Topology("made", n_npus, n_nodes, links, shortest(links, n_nodes))


@pytest.fixture
def made() -> Made:
    """Return a function that makes a topology of NPUs, nodes and rows of links."""
    return _made


@pytest.fixture
def path() -> Callable[[int], Topology]:
    """Return a function that puts n NPUs in a row, each joined to the next by a link of 1 GB/s each way without latency."""
    return lambda n: _made(n, n, [(a, b, 1e9, 0) for i in range(n - 1) for a, b in ((i, i + 1), (i + 1, i))])


@pytest.fixture
def random_topology() -> Callable[[int], Topology]:
    """Return a function that draws up to 5 NPUs and 2 switches, on a cycle and on links from anywhere to anywhere."""

    def of(seed: int) -> Topology:
        random = np.random.default_rng(seed)
        n_npus, n_switches = int(random.integers(2, 6)), int(random.integers(0, 3))
        nodes = n_npus + n_switches
        order = random.permutation(nodes)
        some = random.integers(0, nodes, (int(random.integers(2, 20)), 2))
        ends = [*zip(order, np.roll(order, 1), strict=True), *(pair for pair in some if pair[0] != pair[1])]
        rate, latency = random.integers(1, 9, len(ends)) * 12.5e9, random.integers(0, 9, len(ends)) * 100
        rows = [(int(a), int(b), float(r), int(t)) for (a, b), r, t in zip(ends, rate, latency, strict=True)]
        return _made(n_npus, nodes, rows)

    return of


@pytest.fixture
def no_trees(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look for no trees: what they reach is no bound, and takes time to find."""
    monkeypatch.setattr(limit, "_MOST_TREES", 0)
