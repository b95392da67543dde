"""Rows of the RailX paper that are times: its equations on built rails and meshes, and figures 15 and 16."""

from collections.abc import Callable, Iterator, Mapping
from functools import cache, partial

import numpy as np

from emu.arrays import I64
from launch.papers.networks import collective_s
from launch.papers.paper import FormulaCase, check_formula
from launch.papers.targets import Answer

_B, _A, _LOCAL = 100e9, 300e-9, 10e-9  # bandwidth of a port; latencies between nodes and in a node (6.4)
_RATE = "bandwidth=100GB/s"
_ALIKE = "k=4,latency=300ns"  # equal links, as in equations 6 and 7: a step takes the longest hop


def _chips_of(m: int, nodes: int) -> I64:
    """Return the chip at each place of the grid of (m nodes) x (m nodes) chips, row by row."""
    return np.arange((m * nodes) ** 2).reshape(nodes, nodes, m, m).transpose(0, 2, 1, 3).ravel()


def _snake(m: int, nodes: int) -> I64:
    """Return the chips of the grid in a snake: every other row is reversed."""
    grid = _chips_of(m, nodes).reshape(m * nodes, -1)
    grid[1::2] = grid[1::2, ::-1].copy()
    return grid.ravel()


def _on_torus(m: int, nodes: int, settings: str = "k=4") -> str:
    """Return the torus with these meshes and nodes."""
    return f"railx:torus:m={m},n=1,nodes={nodes}x{nodes},{_RATE},{settings}"


def flat(m: int, nodes: int, size: int, settings: str = "k=4") -> float:
    """Return the seconds of an all_reduce by a 2D ring of all chips."""
    side = m * nodes
    return collective_s(_on_torus(m, nodes, settings), "all_reduce", "torus-in-step", (side, side), size, _chips_of(m, nodes))


def ring(m: int, nodes: int, size: int) -> float:
    """Return the seconds of an all_reduce by one ring of all chips, in both directions."""
    word = _on_torus(m, nodes, _ALIKE)
    return collective_s(word, "all_reduce", "bidirectional-ring", (m * nodes) ** 2, size, _snake(m, nodes))


def hierarchical(m: int, nodes: int, size: int, settings: str = "k=4") -> float:
    """Return the seconds of an all_reduce inside nodes, then by rings of nodes."""
    return collective_s(_on_torus(m, nodes, settings), "all_reduce", "railx-ring", (nodes, nodes, m, m), size)


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
        local = 4 * _LOCAL + (1 - 1 / 4) * size / (4 * _B)
        light = 4 * (p - 1) * (_A + _LOCAL) + (1 - 1 / p**2) * size / (4 * _B)
        yield f"s, m=2, k=4, p={p}, {size} bytes", hierarchical(2, p, size), local + light


def _eq9() -> Iterator[FormulaCase]:
    """Yield cases of equation 9: rings of nodes with the bandwidth n B / m, by nodes of one chip with n of 1 and 2."""
    for n in (1, 2):
        p, size = 6, 16 * 10**4 * 36
        word = f"railx:torus:m=1,n={n},nodes={p}x{p},{_RATE}"
        found = collective_s(word, "all_reduce", f"torus-in-step@{n}", (p, p), size)
        yield f"s, 2D, p={p}, n/m={n}", found, 4 * (p - 1) * _A + (1 - 1 / p**2) * size / (2 * n * _B)


def _eq12() -> Iterator[FormulaCase]:
    """Yield cases of equation 12: an all_gather among all nodes of a row at once."""
    for p in (3, 5, 7):
        size = 8 * 10**4 * p
        found = collective_s(f"railx:hyperx:m=1,n={p - 1},{_RATE}", "all_gather", "direct@2", p, size)
        yield f"s, p={p}, {size} bytes", found, _A + (p - 1) / p * size / (2 * (p - 1) * _B)


def _eq13() -> Iterator[FormulaCase]:
    """Yield the time of a byte in equation 13."""
    for p, m, n in _OF_13:
        unit = 16 * 2500 * (p * m) ** 2
        more = (direct(p, m, n, 2 * unit) - direct(p, m, n, unit)) / unit
        of_a_byte = (1 - 1 / m**2) / (4 * n * _B) + (1 - 1 / p**2) / (2 * m * n * _B)
        yield f"s a byte, p={p}, m={m}, n={n}", more, of_a_byte


def _eq13_latency() -> Iterator[FormulaCase]:
    """Yield the number of latencies in equation 13."""
    for p, m, n in _OF_13:
        times = [direct(p, m, n, 16 * (p * m) ** 2, f",optical={us}us") for us in (1, 100)]
        yield f"p={p}", (times[1] - times[0]) / 99e-6, 4


def _against_rings() -> Answer:
    """Answer whether rows at once are faster than rings for small sizes."""
    ratios = [hierarchical(2, p, 16 * (2 * p) ** 2) / direct(p, 2, n, 16 * (2 * p) ** 2) for p, _, n in _OF_13]
    words = f"rings take {', '.join(f'{ratio:.1f}' for ratio in ratios)} times as long for p = 3, 5, 9, of 64 bytes a chip"
    return Answer("all at once is faster", (words,), holds=1 < ratios[0] < ratios[1] < ratios[2])


def _crossover() -> Answer:
    """Answer from which k the hierarchical all_reduce is faster than a 2D ring: 2m / (m - 1), by the time of a byte."""
    found = {}
    for m, ks in ((2, (3, 4, 5)), (4, (2, 3, 4))):
        unit = 16 * 10**4 * (3 * m) ** 2
        for k in ks:
            by = [each(m, 3, 2 * unit, f"k={k}") - each(m, 3, unit, f"k={k}") for each in (hierarchical, flat)]
            found[m, k] = by[0] / by[1]
    holds = found[2, 3] > 1 > found[2, 5] and found[4, 2] > 1 > found[4, 4]
    words = ", ".join(f"m={m}, k={k}: {ratio:.3f}" for (m, k), ratio in found.items())
    return Answer("2m/(m-1)", (f"time of a byte, hierarchical over 2D ring: {words}",), holds=holds)


@cache
def all_reduce_times() -> dict[int, dict[str, list[float]]]:
    """Return the seconds of each algorithm at `SIZES`, by the nodes of a side; nodes are meshes of 4 x 4 (RailX, figure 15)."""
    by: dict[int, dict[str, list[float]]] = {}
    for p in (2, 4):
        of = 16 * (4 * p) ** 2
        sizes = [max(1, size // of) * of for size in SIZES]
        by[p] = {
            "1D ring": [ring(4, p, size) for size in sizes],
            "2D torus": [flat(4, p, size, _ALIKE) for size in sizes],
            "hierarchical 2D torus": [hierarchical(4, p, size) for size in sizes],
        }
    return by


SIZES = (2**14, 2**20, 2**24, 2**28, 2**30)
_OF_15 = (
    "4 x 4 chips of 4 ports in a node (m=4, n=1, k=4), 100 GB/s a port, 300 ns and 10 ns, for rings of chips 300 ns everywhere "
    "(equation 7); 2 x 2 and 4 x 4 nodes"
)


def _figure_15_text(at: int) -> str:
    """Return the times of one size in words."""
    rows = [
        f"{p}x{p} nodes {', '.join(f'{name} {1e6 * t[at]:.1f} us' for name, t in by.items())}"
        for p, by in all_reduce_times().items()
    ]
    return f"{SIZES[at]} bytes: {'; '.join(rows)}"


def _f15_best() -> Answer:
    """Answer whether the hierarchical 2D torus is the fastest at every size."""
    holds = all(
        by["hierarchical 2D torus"][at] <= min(t[at] for t in by.values()) * (1 + 1e-9)
        for by in all_reduce_times().values()
        for at in range(len(SIZES))
    )
    told = "the fastest at every size" if holds else "not everywhere"
    return Answer(told, (_figure_15_text(0), _figure_15_text(-1), _OF_15), holds=holds)


def _f15_large() -> Answer:
    """Answer how far the algorithms are apart at the largest size."""
    spread = [max(t[-1] for t in by.values()) / min(t[-1] for t in by.values()) for by in all_reduce_times().values()]
    told = f"slowest over fastest {', '.join(f'{s:.2f}' for s in spread)}"
    return Answer(told, (_figure_15_text(-1), _OF_15), holds=max(spread) <= 1.5)


def _f15_small() -> Answer:
    """Answer how the algorithms rank at the smallest size, and whether their distance grows with the system."""
    by = all_reduce_times()
    order = all(t["1D ring"][0] > t["2D torus"][0] > t["hierarchical 2D torus"][0] for t in by.values())
    gaps = [t["2D torus"][0] - t["hierarchical 2D torus"][0] for t in by.values()]
    told = f"gaps of {', '.join(f'{1e6 * gap:.1f} us' for gap in gaps)}"
    return Answer(told, (_figure_15_text(0), _OF_15), holds=order and gaps[0] < gaps[1])


# Bandwidth of one dimension for two uses (equation 11, figure 16)
Pair = tuple[float, float]


def _split_time(first: int, ports: int, loads: Pair, beside: Pair) -> float:
    """Return the time of two uses one after the other, of which the first has some of the ports and the second the rest."""
    return max(beside[0], loads[0] / first) + max(beside[1], loads[1] / (ports - first))


def split_ports(ports: int, loads: Pair, beside: Pair = (0.0, 0.0)) -> int:
    """Return how many ports the first of two uses gets in the fastest split; all splits are tried.

    Args:
        ports: The number of ports.
        loads: The load of each use; its time is the load over its ports.
        beside: The least time of each use, because other work takes so long.
    """
    return min(range(1, ports), key=lambda first: _split_time(first, ports, loads, beside))


def _time_by_climbing(ports: int, loads: Pair, beside: Pair) -> float:
    """Return the time of the split that is found by moving ports one by one as long as this helps, from both ends."""

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
    """Answer whether moving ports one by one finds the fastest split."""
    rng, equal = np.random.default_rng(0), 0
    for _ in range(400):
        loads, beside = (tuple(rng.random(2).tolist()) for _ in range(2))
        brute = _split_time(split_ports(10, loads, beside), 10, loads, beside)
        equal += _time_by_climbing(10, loads, beside) <= brute * (1 + 1e-12)
    words = "10 ports, loads and what they hide behind drawn at random"
    return Answer(f"equal in {equal} of 400", (words,), holds=equal == 400)


SEQUENCES = tuple(2**e for e in range(13, 21))


def ports_of_cp(seq: int, *, overlapped: bool = False) -> int:
    """Return how many of 10 ports context parallelism gets for Llama 3 405B, by table 4: T=8, C=8, P=16, 16 microbatches.

    Args:
        seq: The tokens of a sequence.
        overlapped: Whether a third of data parallelism is hidden.
    """
    hidden, kv, ffn, stage, batches = 16384, 8 / 128, 53248, 126 / 16, 16
    cp = seq * hidden * 2 * kv / 8 * 2 * batches * stage
    dp = ((2 + 2 * kv) * hidden**2 + 3 * hidden * ffn) / 8 * stage
    return split_ports(10, (cp, dp), (0.0, dp / 3 if overlapped else 0.0))


def _f16(what: str) -> Answer:
    """Answer one of the statements about figure 16."""
    plain, hidden = ([ports_of_cp(seq, overlapped=over) for seq in SEQUENCES] for over in (False, True))
    holds = {
        "short": plain[0] < 5,
        "grows": plain == sorted(plain) and plain[0] < plain[-1],
        "overlap": all(a <= b for a, b in zip(plain, hidden, strict=True)) and plain != hidden,
    }[what]
    words = f"ports of CP at sequences of 8K to 1M: {plain}, and {hidden} where DP hides behind a third of its load at a port"
    return Answer(str(plain if what != "overlap" else hidden), (words,), holds=holds)


_CASES: Mapping[str, tuple[Callable[[], Iterator[FormulaCase]], tuple[str, ...]]] = {  # by row, with notes
    "rx-eq6": (_eq6, ()),
    "rx-eq7": (
        _eq7,
        ("4(mp - 1) and 1 - 1 / (mp)^2, which the equation rounds to 4mp and 1; links in a node as those between nodes",),
    ),
    "rx-eq8": (_eq8, ("with hops inside nodes and the terms in 1/m^2 and 1/p^2, which the equation leaves out",)),
    "rx-eq9": (_eq9, ("equations 6 and 7 with n B / m; 4(p - 1) and 1 - 1 / p^2 are rounded to 4p and 1 there",)),
    "rx-eq12": (_eq12, ("B is that of the p - 1 rails of a node",)),
    "rx-eq13": (_eq13, ("with p for mp in its second term; for meshes of 4 x 4 light takes 9/8 of it, as one rail is nearer",)),
    "rx-eq13-lat": (_eq13_latency, ()),
}


def _check_cases(cases: Callable[[], Iterator[FormulaCase]], notes: tuple[str, ...]) -> Answer:
    """Answer whether the cases of a formula hold."""
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
