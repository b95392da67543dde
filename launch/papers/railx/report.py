"""The RailX paper as a registered `Paper`: its rows and figures."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from launch.data.presets import find_book
from launch.papers.paper import Curve, Figure, Paper, from_nothing, register
from launch.papers.railx.counts import BOOK, COUNTS, LINES, WORDS, availability, dollars, mean_largest_job, value
from launch.papers.railx.orderings import MAPPED, turned
from launch.papers.railx.times import FLAT, RING, SEQUENCES, TIMES, TREE, all_reduce_s, ports_of_cp, sizes_of
from launch.papers.railx.traffic import ALL_TO_ALL, BY_K, OTHERS, ChipFabric
from launch.papers.railx.training import TRAINING
from launch.papers.targets import Answer, Target


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
            [Curve(name, sizes_of(p), [all_reduce_s(name, p, size) for size in sizes_of(p)]) for name in (RING, FLAT, TREE)],
            log="xy",
        )
        for p in (4, 16, 64)
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


def _row(_: Any, target: Target) -> Answer:
    """Return a row of the cost tables."""
    name = target.given["of"]
    return Answer(float(value(name, target.given["what"])), (LINES[name],))


def _tables_agree(_: Any, target: Target) -> Answer:
    """Return whether two tables of the paper print the same numbers."""
    three, six = (target.given[table].split() for table in ("three", "six"))
    words = ("cost, /inject, GBW and /GBW as both tables print them",)
    return Answer("same" if three == six else "other", words, holds=three == six)


PAPER = register(
    Paper(
        Path(__file__).parent,
        title="RailX",
        source="Feng et al., RailX: a flexible, scalable, and low-cost network architecture for hyper-scale LLM training "
        "systems (arXiv:2507.18889).",
        example="--table 6",
        figures={"13": turned, "14": _all_to_all, "15": _all_reduce_times, "16": _split, "17": _available},
        answers={
            "rx-t6-": _row,
            "rx-t3-": _row,
            "rx-t3-agree": _tables_agree,
            **from_nothing({**COUNTS, **TIMES, **ALL_TO_ALL, **TRAINING, **MAPPED}),
        },
        arithmetic=("rx-t3-agree",),
        words=(*WORDS, value, dollars),
        assumptions=lambda: (
            f"parts are counted on the built topologies; prices are from {find_book(BOOK).source}",
            "the injection of a chip is 36 ports of 400 Gb/s, also inside the nodes of RailX (k=1)",
            "global bandwidth is what half of the chips can send to the other half, on what is built, also for RailX; the row "
            "rx-f14-best has the bandwidth of a timed all_to_all beside it",
            "times are of schedules on a built RailX, where a link in a node is k n times as fast as a port",
        ),
    )
)
