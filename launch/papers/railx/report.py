"""The rows of RailX's cost tables, from built topologies and the paper's prices; and the paper with its rows and figures."""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from emu.study.cost.cost import Cost, cost
from emu.topology.catalogue import build_topology
from launch.data.prices import find_book
from launch.papers.paper import Curve, Figure, Paper, from_nothing, register
from launch.papers.railx.counts import COUNTS, WORDS, availability, mean_largest_job
from launch.papers.railx.times import FLAT, RING, SEQUENCES, TIMES, TREE, all_reduce_s, ports_of_cp, sizes_of
from launch.papers.railx.traffic import ALL_TO_ALL, BY_K, OTHERS, ChipFabric
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


_BOOK, _REFERENCE = "railx", "2FT"
_LINES: Mapping[str, str] = {  # 36 ports of 400 Gb/s a chip; switches have 64 ports, optical ones 128
    "2FT": "fat-tree:radix=64,tiers=2,planes=36",
    "Tap13": "fat-tree:radix=64,taper=3,planes=36",
    "Tap49": "fat-tree:radix=64,tiers=3,taper=7,planes=36",
    "Hx4": "hammingmesh:boards=32x32,side=4,planes=9",
    "Hx7": "hammingmesh:boards=32x32,side=7,planes=9",
    "Hx7-2ft": "hammingmesh:boards=64x64,side=7,planes=9",
    "TorOCS": "tpuv4:cubes=4x4x4,planes=6",
    "Tor": "tpuv4:cubes=4x4x4,planes=6",
    "RO": "rail-only:dims=64x64,planes=18",
    "Rx4": "railx:torus:m=4,n=9,nodes=64x64,k=1",
    "Rx7": "railx:torus:m=7,n=9,nodes=64x64,k=1",
}
_OPTICAL = "OCS"
_WITHOUT_SWITCHES = "Tor"  # its cubes are joined by the cables and modules of TorOCS
_SIDES: Mapping[str, int] = {"Rx4": 4, "Rx7": 7}  # sides of the meshes; a chip has 9 x 4 ports
_PARTS: Mapping[str, tuple[tuple[str, ...], int]] = {  # by column the parts, and how many of them count as one
    "sw": (("switch", _OPTICAL), 1),
    "aot": (("optical transceiver", "optical module"), 1000),
    "pcc": (("DAC cable",), 1000),
}


@cache
def line_cost(name: str) -> Cost:
    """Return the cost of a line of the cost table; switches are taken out of the bill where the line has none."""
    topology = build_topology(_LINES[name])
    if name == _WITHOUT_SWITCHES:
        topology = replace(topology, bill={part: count for part, count in topology.bill.items() if part != _OPTICAL})
    return cost(topology, find_book(_BOOK), across=name not in _SIDES)


def dollars(name: str) -> float:
    """Return the dollars of a line of the cost table."""
    return line_cost(name).dollars


def value(name: str, what: str) -> float:
    """Return the value of a line of the cost table in one of its columns."""
    found = line_cost(name)
    if what in _PARTS:
        parts, of = _PARTS[what]
        return sum(found.parts[part][0] for part in parts if part in found.parts) / of
    if what == "cost":
        return found.dollars / 1e6
    if what == "gbw":
        return 100 * _global(name)
    return _rate(name, what) / _rate(_REFERENCE, what)


def _global(name: str) -> float:
    """Return the share of injection that half of the chips can send to the others at once."""
    found = line_cost(name)
    if name in _SIDES:
        return 2 * 9 / _SIDES[name] / 36
    assert found.global_GBps is not None
    return found.global_GBps / found.injection_GBps


def _rate(name: str, what: str) -> float:
    """Return the dollars for each GB/s of injection, or of global bandwidth."""
    each = line_cost(name).dollars_per_injection_GBps
    return each / _global(name) if what == "cgb" else each


def _row(_: Any, target: Target) -> Answer:
    """Answer a row of the cost tables."""
    name = target.given["of"]
    return Answer(float(value(name, target.given["what"])), (_LINES[name],))


def _tables_agree(_: Any, target: Target) -> Answer:
    """Answer whether two tables of the paper print the same numbers."""
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
        figures={"14": _all_to_all, "15": _all_reduce_times, "16": _split, "17": _available},
        answers={
            "rx-t6-": _row,
            "rx-t3-": _row,
            "rx-t3-agree": _tables_agree,
            **from_nothing({**COUNTS, **TIMES, **ALL_TO_ALL}),
        },
        words=(*WORDS, value, dollars),
        assumptions=lambda: (
            f"parts are counted on the built topologies; prices are from {find_book(_BOOK).source}",
            "the injection of a chip is 36 ports of 400 Gb/s, also inside the nodes of RailX (k=1)",
            "global bandwidth is what half of the chips can send to the other half; for RailX it is equation 3 as printed",
            "times are of schedules on a built RailX, where a link in a node is k n times as fast as a port",
        ),
    )
)
