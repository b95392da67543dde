"""Rows of the RailX paper that are times: its equations on built rails and meshes, and figures 15 and 16."""

from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial

import numpy as np

from collectives.multi_ring import rings_all_reduce
from emu.arrays import I64
from launch.papers.networks import all_reduces_s, collective_s, plan_s
from launch.papers.paper import FormulaCase, check_formula
from launch.papers.targets import Answer

_B, _A, _LOCAL = 100e9, 300e-9, 10e-9  # bandwidth of a port; latencies between nodes and in a node (6.4)
_RATE = "bandwidth=100GB/s"


def _chips_of(m: int, nodes: int) -> I64:
    """Return the number of the chip at each position of the grid of (m nodes) x (m nodes) chips, row by row."""
    return np.arange((m * nodes) ** 2).reshape(nodes, nodes, m, m).transpose(0, 2, 1, 3).ravel()


def _loop(m: int) -> I64:
    """Return the chips of a node in the order of a ring over its mesh, whose side m is even."""
    grid = np.arange(m * m).reshape(m, m)
    grid[1::2, 1:] = grid[1::2, :0:-1].copy()
    return np.concatenate([grid[:, 1:].ravel(), grid[::-1, 0]])


def chip_rings(m: int, nodes: int) -> I64:
    """Return [4, chips] two rings through all chips of a torus that share no link, in both directions.

    Source: Bose et al., Lee distance and topological properties of k-ary n-cubes, IEEE Trans. Comput. 44 (1995).
    """
    side = m * nodes
    along, across = np.divmod(np.arange(side**2), side)
    chip, back = _chips_of(m, nodes).reshape(side, side), (across - along) % side
    return np.stack([way for ring in (chip[along, back], chip[back, along]) for way in (ring, ring[::-1])])


def _on_torus(m: int, nodes: int, settings: str = "k=4") -> str:
    """Return the topology of a torus with meshes of m x m chips and a number of nodes along each side."""
    return f"railx:torus:m={m},n=1,nodes={nodes}x{nodes},{_RATE},{settings}"


def flat(m: int, nodes: int, size: int, settings: str = "k=4") -> float:
    """Return the seconds of an all_reduce by a 2D ring of all chips."""
    side = m * nodes
    return collective_s(_on_torus(m, nodes, settings), "all_reduce", "torus-in-step", (side, side), size, _chips_of(m, nodes))


def ring(m: int, nodes: int, size: int) -> float:
    """Return the seconds of an all_reduce by rings through all chips, which use all four ports of a chip."""
    plan = rings_all_reduce(chip_rings(m, nodes).tolist(), [1] * 4)
    return plan_s(_on_torus(m, nodes), "all_reduce", plan, size)


def ring_bound(m: int, nodes: int, size: int) -> float:
    """Return a lower bound of `ring` in seconds, for rings that are too long to time."""
    order = chip_rings(m, nodes)[0]
    node = order // m**2
    hops = np.where(node == np.roll(node, -1), _LOCAL, _A)
    return float(max(2 * (hops.sum() - hops.max()), (1 - 1 / len(order)) * size / (2 * _B)))


def hierarchical(m: int, nodes: int, size: int, settings: str = "k=4") -> float:
    """Return the seconds of an all_reduce by a ring inside each node, then by rings of nodes (m is even)."""
    word, at = _on_torus(m, nodes, settings), np.add.outer(np.arange(nodes**2) * m**2, _loop(m)).ravel()
    return collective_s(word, "all_reduce", "railx-ring", (nodes, nodes, m**2), size, at)


def direct(p: int, m: int, n: int, size: int, settings: str = "") -> float:
    """Return the seconds of an all_reduce inside nodes, then among all nodes of a row at once.

    Args:
        p: The nodes of a row.
        m: The side of the mesh in a node.
        n: The ports of a chip along a dimension.
        size: The bytes of the all_reduce.
        settings: More settings of the topology.
    """
    return collective_s(f"railx:hyperx:m={m},n={n},{_RATE}{settings}", "all_reduce", "railx-hyperx", (p, p, m, m), size)


_OF_13 = ((3, 2, 1), (5, 2, 2), (9, 2, 4))  # p, m and n of equation 13


def _eq6() -> Iterator[FormulaCase]:
    """Yield cases of equation 6: an all_gather on a ring."""
    for p in (3, 5, 8):
        size = 8 * 10**4 * p
        found = collective_s(f"railx:torus:m=1,n=1,nodes={p}x2,{_RATE}", "all_gather", "bidirectional-ring", p, size)
        yield f"s, p={p}, {size} bytes", found, (p - 1) * _A + (p - 1) / p * size / (2 * _B)


def _eq7() -> Iterator[FormulaCase]:
    """Yield cases of equation 7: an all_reduce on a 2D ring of chips."""
    for m, p in ((1, 6), (2, 3), (4, 4)):
        side = m * p
        size = 16 * 10**4 * side**2
        whole = 4 * (side - 1) * _A + (1 - 1 / side**2) * size / (2 * _B)
        yield f"s, m={m}, p={p}, {size} bytes", flat(m, p, size, "k=1,latency=300ns"), whole


def _eq8() -> Iterator[FormulaCase]:
    """Yield cases of equation 8: a hierarchical all_reduce."""
    for p in (3, 5):
        size = 10**4 * (2 * p) ** 2
        local = 6 * _LOCAL + (1 - 1 / 4) * size / (4 * _B)
        light = 4 * (p - 1) * (_A + _LOCAL) + (1 - 1 / p**2) * size / (4 * _B)
        yield f"s, m=2, k=4, p={p}, {size} bytes", hierarchical(2, p, size), local + light


def _eq9() -> Iterator[FormulaCase]:
    """Yield cases of equation 9: rings of nodes with the bandwidth n B / m, first of nodes of one chip with n of 1 and 2.

    In a node of 2 x 2 chips, each chip has a ring of its own with the chips in its place, and the rings share the rails.
    """
    for n in (1, 2):
        p, size = 6, 16 * 10**4 * 36
        word = f"railx:torus:m=1,n={n},nodes={p}x{p},{_RATE}"
        found = collective_s(word, "all_reduce", f"torus-in-step@{n}", (p, p), size)
        yield f"s, 2D, p={p}, n/m={n}", found, 4 * (p - 1) * _A + (1 - 1 / p**2) * size / (2 * n * _B)
    m, p, size = 2, 3, 16 * 10**4 * 36
    chips = np.arange((m * p) ** 2).reshape(p, p, m**2)
    for n in (1, 2):
        word, rate, hop = f"railx:torus:m={m},n={n},nodes={p}x{p},{_RATE}", n * _B / m, _A + _LOCAL
        both = all_reduces_s(word, f"torus-in-step@{n}", (p, p), chips.reshape(p * p, m**2).T, size)
        rows = all_reduces_s(word, f"bidirectional-ring@{n}", p, chips.transpose(0, 2, 1).reshape(-1, p), size)
        yield f"s, 2D, m={m}, p={p}, n={n}", both, 4 * (p - 1) * hop + (1 - 1 / p**2) * size / (2 * rate)
        yield f"s, 1D, m={m}, p={p}, n={n}", rows, 2 * (p - 1) * hop + (1 - 1 / p) * size / rate


def _eq12() -> Iterator[FormulaCase]:
    """Yield cases of equation 12: an all_gather among all nodes of a row at once."""
    for p in (3, 5, 7):
        size = 8 * 10**4 * p
        found = collective_s(f"railx:hyperx:m=1,n={p - 1},{_RATE}", "all_gather", "direct@2", p, size)
        yield f"s, p={p}, {size} bytes", found, _A + (p - 1) / p * size / (2 * (p - 1) * _B)


def _eq13() -> Iterator[FormulaCase]:
    """Yield cases of the time of one byte in equation 13."""
    for p, m, n in _OF_13:
        unit = 16 * 2500 * (p * m) ** 2
        more = (direct(p, m, n, 2 * unit) - direct(p, m, n, unit)) / unit
        of_a_byte = (1 - 1 / m**2) / (4 * n * _B) + (1 - 1 / p**2) / (2 * m * n * _B)
        yield f"s a byte, p={p}, m={m}, n={n}", more, of_a_byte


def _eq13_latency() -> Iterator[FormulaCase]:
    """Yield cases of the number of latencies in equation 13."""
    for p, m, n in _OF_13:
        times = [direct(p, m, n, 16 * (p * m) ** 2, f",optical={us}us") for us in (1, 100)]
        yield f"p={p}", (times[1] - times[0]) / 99e-6, 4


def _against_rings() -> Answer:
    """Return whether rows at once are faster than rings for small sizes."""
    ratios = [hierarchical(2, p, 16 * (2 * p) ** 2) / direct(p, 2, n, 16 * (2 * p) ** 2) for p, _, n in _OF_13]
    words = f"rings take {', '.join(f'{ratio:.1f}' for ratio in ratios)} times as long for p = 3, 5, 9, of 64 bytes a chip"
    return Answer("all at once is faster", (words,), holds=1 < ratios[0] < ratios[1] < ratios[2])


def _crossover() -> Answer:
    """Return from which k on the hierarchical all_reduce moves one byte faster than the 2D ring.

    A byte takes a + b / k in the first, and nearly the same for any k in the second; two whole numbers k on built tori give a
    and b.
    """
    p, least, words = 8, {}, []
    for m in (2, 4):
        unit = 16 * 10**4 * (p * m) ** 2
        by = {k: _byte_s(hierarchical, m, p, unit, f"k={k}") for k in (2, 3, 4)}
        ring_s, b = _byte_s(flat, m, p, unit, "k=4"), 4 * (by[2] - by[4])
        least[m] = b / (ring_s - by[4] + b / 4)
        words.append(
            f"m={m}: times of a byte over the 2D ring's {', '.join(f'{s / ring_s:.3f} (k={k})' for k, s in by.items())}"
        )
    told = "k > " + ", ".join(f"{k:.2f} (m={m})" for m, k in least.items())
    words.append(f"{p} x {p} nodes; a byte takes a + b / k: k = 2 is too little, and the next whole number enough")
    return Answer(told, tuple(words), holds=max(least.values()) <= 2)


def _byte_s(run: Callable[..., float], m: int, nodes: int, unit: int, settings: str) -> float:
    """Return the seconds per additional byte of a collective."""
    return (run(m, nodes, 2 * unit, settings) - run(m, nodes, unit, settings)) / unit


SMALL, MIDDLE, LARGE = 2**14, 2**20, 2**30
SIZES = (SMALL, 2**17, MIDDLE, 2**22, 2**24, 2**27, LARGE)
SCALES = (2, 4, 8, 16, 32, 64)  # nodes of a side
_TIMED = 4  # the largest side whose rings of chips are timed; above it their rows are too many, and `ring_bound` is told
TREE, FLAT, RING = "hierarchical 2D torus", "2D torus", "1D ring"


@cache
def all_reduce_s(name: str, nodes: int, size: int) -> float:
    """Return the seconds of an all_reduce of figure 15, on a fabric of nodes of 4 x 4 chips.

    A ring of chips that is too long to be timed gets its bound.
    """
    if name == RING:
        return (ring if nodes <= _TIMED else ring_bound)(4, nodes, size)
    return (hierarchical if name == TREE else flat)(4, nodes, size)


def sizes_of(nodes: int) -> list[int]:
    """Return the sizes of figure 15 that can be divided evenly among the chips of a number of nodes, four numbers each."""
    return [size for size in SIZES if size % (16 * (4 * nodes) ** 2) == 0]


_OF_15 = (
    "one fabric for all: 4 x 4 chips of 4 ports in a node (m=4, n=1), 100 GB/s a port, k=4 inside, 300 ns an external and 10 "
    "ns an internal hop (6.4); a side of 2 to 64 nodes",
    "1D: two rings of all chips that share no link, each both ways, which take all four ports (6.4); of more than 4 x 4 nodes "
    "they have too many messages, and the least time by latencies and bandwidth is told",
)


def _figure_15_text(size: int) -> str:
    """Return the times of one size in words."""
    rows = [
        f"side {p}: " + ", ".join(f"{name} {1e6 * all_reduce_s(name, p, size):.2f}" for name in (RING, FLAT, TREE))
        for p in SCALES
        if size in sizes_of(p)
    ]
    return f"us of {size} bytes: {'; '.join(rows)}"


def _f15_best() -> Answer:
    """Return whether the hierarchical 2D torus is the fastest at every size."""
    slower = []
    for p in SCALES:
        for size in sizes_of(p):
            times = {name: 1e6 * all_reduce_s(name, p, size) for name in (RING, FLAT, TREE)}
            least = min(times, key=lambda name: times[name])
            if least != TREE:
                slower.append(f"{size} bytes on a side of {p}: {times[TREE]:.2f} us, {least} {times[least]:.2f}")
    told = f"slower in {len(slower)} of {sum(len(sizes_of(p)) for p in SCALES)}" if slower else "the fastest at every size"
    return Answer(told, (*slower, *_OF_15), holds=not slower)


def _f15_large() -> Answer:
    """Return the ratio of the slowest to the fastest algorithm at the largest size; it should be less than at the smallest."""
    spread, small = ([_spread(p, size) for p in SCALES if size in sizes_of(p)] for size in (LARGE, SMALL))
    told = f"slowest over fastest {', '.join(f'{s:.2f}' for s in spread)}"
    return Answer(told, (_figure_15_text(LARGE), *_OF_15), holds=max(spread) <= 1.3 < min(small))


def _spread(nodes: int, size: int) -> float:
    """Return the ratio of the slowest algorithm's time to the fastest algorithm's."""
    times = [all_reduce_s(name, nodes, size) for name in (RING, FLAT, TREE)]
    return max(times) / min(times)


def _f15_small() -> Answer:
    """Return how the algorithms rank at small sizes, and whether the lead of the hierarchical one grows with the system."""
    order, grows, words = True, True, []
    for size in (SMALL, MIDDLE):
        scales = [p for p in SCALES if size in sizes_of(p)]
        times = [[all_reduce_s(name, p, size) for name in (RING, FLAT, TREE)] for p in scales]
        order &= all(each == sorted(each, reverse=True) for each in times)
        leads = [1e6 * (two - tree) for _, two, tree in times]
        grows &= leads == sorted(leads) and leads[0] < leads[-1]
        words.append(f"leads of {', '.join(f'{lead:.2f} us' for lead in leads)} at {size} bytes")
    return Answer("; ".join(words), (_figure_15_text(SMALL), _figure_15_text(MIDDLE), *_OF_15), holds=order and grows)


# Bandwidth of one dimension for two uses (equation 11, figure 16)
Pair = tuple[float, float]


def _split_time(first: int, ports: int, loads: Pair, beside: Pair) -> float:
    """Return the time of two phases, one after the other, if one has `first` of the ports and the other the remaining ports."""
    return max(beside[0], loads[0] / first) + max(beside[1], loads[1] / (ports - first))


def split_ports(ports: int, loads: Pair, beside: Pair = (0.0, 0.0)) -> int:
    """Return the number of ports for the first of two uses in the fastest split, by trying all splits.

    One use comes after the other, so that the time of a split is the sum of their times.

    Args:
        ports: The number of ports.
        loads: The load of each use; its time is the load over its ports.
        beside: The least time of each use: that of other work which runs at the same time.
    """
    return min(range(1, ports), key=lambda first: _split_time(first, ports, loads, beside))


def _time_by_climbing(ports: int, loads: Pair, beside: Pair) -> float:
    """Return the time of the split that is found by moving single ports from both ends while that helps."""

    def at(first: int) -> float:
        return _split_time(first, ports, loads, beside)

    ends = []
    for first, step in ((1, 1), (ports - 1, -1)):
        best = first
        while 0 < best + step < ports and at(best + step) <= at(best):
            best += step
        ends.append(at(best))
    return min(ends)


def _argmin() -> Answer:
    """Return how often moving ports one by one finds the fastest split, and whether it always does."""
    rng, equal = np.random.default_rng(0), 0
    for _ in range(400):
        loads, beside = (tuple(rng.random(2).tolist()) for _ in range(2))
        brute = _split_time(split_ports(10, loads, beside), 10, loads, beside)
        equal += _time_by_climbing(10, loads, beside) <= brute * (1 + 1e-12)
    words = "10 ports, loads and what they hide behind drawn at random"
    return Answer(f"equal in {equal} of 400", (words,), holds=equal == 400)


SEQUENCES = tuple(2**e for e in range(13, 21))


def ports_of_cp(seq: int, *, overlapped: bool = False) -> int:
    """Return the number of 10 ports that context parallelism gets for Llama 3 405B (table 4: T=8, C=8, P=16, 16 microbatches).

    Args:
        seq: The tokens of a sequence.
        overlapped: Whether a third of data parallelism is hidden.
    """
    hidden, kv, ffn, stage, batches = 16384, 8 / 128, 53248, 126 / 16, 16
    cp = seq * hidden * 2 * kv / 8 * 2 * batches * stage
    dp = ((2 + 2 * kv) * hidden**2 + 3 * hidden * ffn) / 8 * stage
    return split_ports(10, (cp, dp), (0.0, dp / 3 if overlapped else 0.0))


def _f16(what: str) -> Answer:
    """Return the ports of CP at each length of a sequence, and whether a statement of the paper about figure 16 holds."""
    plain, hidden = ([ports_of_cp(seq, overlapped=over) for seq in SEQUENCES] for over in (False, True))
    holds = {
        "short": plain[0] < 5,
        "grows": plain == sorted(plain) and plain[0] < plain[-1],
        "overlap": all(a <= b for a, b in zip(plain, hidden, strict=True)) and plain != hidden,
    }[what]
    words = f"ports of CP at sequences of 8K to 1M: {plain}, and {hidden} where DP hides behind a third of its load at a port"
    return Answer(str(plain if what != "overlap" else hidden), (words,), holds=holds)


_ROUNDED = (
    "equations 6 and 7 with n B / m; 4(p - 1), 2(p - 1), 1 - 1 / p^2 and 1 - 1 / p are rounded to 4p, 2p, 1 and 1 there",
    "where m is 2, all 4 chips of each node at once, 1D in all rows at once, and a hop has 10 ns inside a node",
)


_CASES: Mapping[str, tuple[Callable[[], Iterator[FormulaCase]], tuple[str, ...]]] = {  # by row, with notes
    "rx-eq6": (_eq6, ()),
    "rx-eq7": (
        _eq7,
        ("4(mp - 1) and 1 - 1 / (mp)^2, which the equation rounds to 4mp and 1; links in a node as those between nodes",),
    ),
    "rx-eq8": (_eq8, ("with hops inside nodes and the terms in 1/m^2 and 1/p^2, which the equation leaves out",)),
    "rx-eq9": (_eq9, _ROUNDED),
    "rx-eq12": (_eq12, ("B is that of the p - 1 rails of a node",)),
    "rx-eq13": (_eq13, ("with p for mp in its second term; for meshes of 4 x 4 light takes 9/8 of it, as one rail is nearer",)),
    "rx-eq13-lat": (_eq13_latency, ()),
}


def _check_cases(cases: Callable[[], Iterator[FormulaCase]], notes: tuple[str, ...]) -> Answer:
    """Return Emu's value in the first case of a formula, and whether the formula holds in all cases."""
    return check_formula(cases(), *notes)


TIMES: Mapping[str, Callable[[], Answer]] = {
    **{row: partial(_check_cases, *of) for row, of in _CASES.items()},
    "rx-eq8-k": _crossover,
    "rx-eq11": _argmin,
    "rx-eq13-vs8": _against_rings,
    "rx-f15-1": _f15_best,
    "rx-f15-2": _f15_large,
    "rx-f15-3": _f15_small,
    "rx-f16-1": partial(_f16, "short"),
    "rx-f16-2": partial(_f16, "grows"),
    "rx-f16-3": partial(_f16, "overlap"),
}
