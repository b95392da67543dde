"""Random strongly connected networks in which every message crosses a direct link or one switch: routes leave no choice."""

import numpy as np

from emu.arrays import column
from emu.topology.paths.shortest_paths import shortest
from emu.topology.topology import Links, Topology

Row = tuple[int, int, float, int]  # src, dst, bandwidth, latency


def made(n_npus: int, n_nodes: int, rows: list[Row], name: str = "made") -> Topology:
    """Return a topology of NPUs, nodes and rows of links, in which only switches relay."""
    src, dst, rate, latency = zip(*rows, strict=True)
    types = (np.int32, np.int32, np.float64, np.int64, np.int16)
    columns = (src, dst, rate, latency, [0] * len(src))
    links = Links(*(column(c, t) for c, t in zip(columns, types, strict=True)))
    return Topology(name, n_npus, n_nodes, links, shortest(links, n_nodes, np.arange(n_nodes) >= n_npus))


def drawn(seed: int, most: int = 8, *, even: bool = True) -> Topology:
    """Return a network of 2 to `most` NPUs and up to 3 switches, with links of unequal rates.

    Args:
        seed: The seed of the draw.
        most: The largest number of NPUs.
        even: Whether a link to a switch has a link back of the same rate; if not, some switches let out more than they let in.
    """
    random = np.random.default_rng(seed)
    n = int(random.integers(2, most + 1))
    members = list[set[int]]()
    for _ in range(int(random.integers(0, 4))):
        some = set(random.permutation(n)[: int(random.integers(2, n + 1))].tolist())
        if all(len(some & other) < 2 for other in members):
            members.append(some)
    rows = list[Row]()
    for switch, some in enumerate(members, n):
        for npu in sorted(some):
            rate, back = random.integers(1, 9, 2) * 12.5e9
            rows += [(npu, switch, rate, 300_000_000), (switch, npu, rate if even else back, 300_000_000)]
    order = random.permutation(n)
    pairs = [*zip(order, np.roll(order, 1), strict=True), *random.integers(0, n, (int(random.integers(0, 3 * n)), 2))]
    for a, b in sorted({(int(a), int(b)) for a, b in pairs}):  # no parallel links: a router takes the wider of two
        if a != b and not any({a, b} <= some for some in members):
            rows.append((a, b, float(random.integers(1, 9) * 12.5e9), int(random.integers(0, 9)) * 100_000_000))
    return made(n, n + len(members), rows, f"drawn {seed}")
