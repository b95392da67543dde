"""Figures of the RailX paper, drawn again."""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from launch.papers.figure import Curve, Figure
from launch.papers.railx.counts import availability, largest
from launch.papers.railx.exchanged import BY_K, OTHERS, Drawn
from launch.papers.railx.timed import SEQUENCES, SIZES, ports_of_cp, reduced


def _latencies(title: str, drawn: Sequence[Drawn]) -> Figure:
    curves = [Curve(each.name, each.loads(), [each.latency(load) for load in each.loads()]) for each in drawn]
    return Figure(title, "flits that a chip offers in a cycle", "cycles of a packet", curves, low=0)


def _all_to_all(_: Any) -> Sequence[Figure]:
    compared = (BY_K[4], *OTHERS)
    found = [each.through() for each in compared]
    most = Figure(
        "RailX figure 14: all_to_all of large messages among 1,296 chips, links shared max-min fairly",
        "",
        "flits a cycle and chip",
        (Curve("ours", range(3), found), Curve("RailX as printed (6.3)", (0,), (0.8,), printed=True)),
        words=[each.name for each in compared],
    )
    return [
        _latencies("RailX figure 14a: packets among 1,296 chips of 8 ports each", compared),
        _latencies("RailX figure 14b: links in a node have k times the bandwidth of those between", [*BY_K.values()]),
        most,
    ]


def _reduced(_: Any) -> Sequence[Figure]:
    return [
        Figure(
            f"RailX figure 15: all_reduce on {p}x{p} nodes of 4x4 chips, 4 ports of 100 GB/s a chip",
            "bytes of a chip",
            "seconds",
            [Curve(name, SIZES, times) for name, times in by.items()],
            log="xy",
        )
        for p, by in reduced().items()
    ]


def _split(_: Any) -> Figure:
    curves = [
        Curve(name, SEQUENCES, [ports_of_cp(seq, overlapped=over) for seq in SEQUENCES])
        for name, over in (("all of DP waited for", False), ("a third of DP hidden", True))
    ]
    title = "RailX figure 16: ports of 10 that context parallelism gets, the rest for data parallelism (Llama 3 405B)"
    return Figure(title, "tokens of a sequence", "ports of CP", curves, log="x")


def _available(_: Any) -> Sequence[Figure]:
    faults, rates = range(0, 21, 2), (0.0005, 0.001, 0.002, 0.004)
    sizes = (
        Curve("mean of 20 draws", faults, [largest(64, each) for each in faults]),
        Curve("worst case, (R/2 - a)^2 of 2a faults", faults, [(64 - each / 2) ** 2 for each in faults]),
    )
    left = [
        Curve(f"R={2 * side}", [100 * rate for rate in rates], [availability(side, rate, 20) for rate in rates])
        for side in (32, 64)
    ]
    return [
        Figure("RailX figure 17a: the largest job on 64x64 nodes", "faulty nodes", "nodes of the job", sizes),
        Figure(
            "RailX figure 17b: availability, the mean of 20 draws", "nodes that fail, %", "% of nodes in the largest job", left
        ),
    ]


FIGURES: Mapping[str, Callable[[Any], Figure | Sequence[Figure]]] = MappingProxyType(
    {"14": _all_to_all, "15": _reduced, "16": _split, "17": _available}
)
