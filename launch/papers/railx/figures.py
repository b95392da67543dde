"""The figures of the RailX paper."""

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from launch.papers.figure import Curve, Figure
from launch.papers.railx.counts import availability, mean_largest_job
from launch.papers.railx.times import SEQUENCES, SIZES, all_reduce_times, ports_of_cp
from launch.papers.railx.traffic import BY_K, OTHERS, ChipFabric


def _latencies(title: str, drawn: Sequence[ChipFabric]) -> Figure:
    """Return a figure of the latency of packets by load."""
    curves = [Curve(each.name, each.loads(), [each.latency(load) for load in each.loads()]) for each in drawn]
    return Figure(title, "flits that a chip offers in a cycle", "cycles of a packet", curves, low=0)


def _all_to_all(_: Any) -> Sequence[Figure]:
    """Return the parts of figure 14."""
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


def _all_reduce_times(_: Any) -> Sequence[Figure]:
    """Return the parts of figure 15: the time of an all_reduce by size."""
    return [
        Figure(
            f"RailX figure 15: all_reduce on {p}x{p} nodes of 4x4 chips, 4 ports of 100 GB/s a chip",
            "bytes of a chip",
            "seconds",
            [Curve(name, SIZES, times) for name, times in by.items()],
            log="xy",
        )
        for p, by in all_reduce_times().items()
    ]


def _split(_: Any) -> Figure:
    """Return figure 16: the ports of context parallelism by the length of sequences."""
    curves = [
        Curve(name, SEQUENCES, [ports_of_cp(seq, overlapped=over) for seq in SEQUENCES])
        for name, over in (("all of DP waited for", False), ("a third of DP hidden", True))
    ]
    title = "RailX figure 16: ports of 10 that context parallelism gets, the rest for data parallelism (Llama 3 405B)"
    return Figure(title, "tokens of a sequence", "ports of CP", curves, log="x")


def _available(_: Any) -> Sequence[Figure]:
    """Return the parts of figure 17: the largest job, and availability."""
    faults, rates = range(0, 21, 2), (0.0005, 0.001, 0.002, 0.004)
    sizes = (
        Curve("mean of 20 draws", faults, [mean_largest_job(64, each) for each in faults]),
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
    {"14": _all_to_all, "15": _all_reduce_times, "16": _split, "17": _available}
)
