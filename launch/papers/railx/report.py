"""The rows of RailX's cost tables, from built topologies and the paper's prices; and the paper with its rows and figures."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from emu.study.cost.cost import Cost, cost
from emu.topology.catalogue import build_topology
from emu.topology.topology import Topology
from launch.data.prices import find_book
from launch.papers.paper import AnswerFunction, Curve, Figure, Paper, from_nothing, register
from launch.papers.railx.counts import COUNTS, availability, mean_largest_job
from launch.papers.railx.times import SEQUENCES, SIZES, TIMES, all_reduce_times, ports_of_cp
from launch.papers.railx.traffic import BY_K, OTHERS, ChipFabric
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


_BOOK, _REFERENCE = "railx", "2FT"
_LINES: Mapping[str, str] = MappingProxyType(  # 36 ports of 400 Gb/s a chip; switches have 64 ports, optical ones 128
    {
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
)
_OPTICAL = "OCS"
_WITHOUT_SWITCHES = "Tor"  # its cubes are joined by the cables and modules of TorOCS
_SIDES = MappingProxyType({"Rx4": 4, "Rx7": 7})  # sides of the meshes; a chip has 9 x 4 ports
_THOUSANDS = MappingProxyType({"aot": ("optical transceiver", "optical module"), "pcc": ("DAC cable",)})


def _row(paper: "RailXPaper", target: Target) -> Answer:
    """Answer a row of the cost tables."""
    name, what = target.given["of"], target.given["what"]
    return Answer(float(paper.value(name, what)), (_LINES[name],))


def _tables_agree(_: "RailXPaper", target: Target) -> Answer:
    """Answer whether two tables of the paper print the same numbers."""
    three, six = (target.given[table].split() for table in ("three", "six"))
    words = ("cost, /inject, GBW and /GBW as both tables print them",)
    return Answer("same" if three == six else "other", words, holds=three == six)


def _below(what: str) -> AnswerFunction:
    """Return the function that answers with the cost in per cent of the fat tree's, for the larger of both systems."""
    return lambda paper, _: 100 * max(paper.value(name, what) for name in _SIDES)


@register
@dataclass(eq=False)
class RailXPaper(Paper):
    """The RailX paper; a network is built for the first row that needs it."""

    costs: dict[str, Cost] = field(default_factory=dict)
    title = "RailX"
    source = (
        "Feng et al., RailX: a flexible, scalable, and low-cost network architecture for hyper-scale LLM training systems "
        "(arXiv:2507.18889)."
    )
    example = "--table 6"
    figures = FIGURES
    answers = MappingProxyType(
        {
            "rx-t6-": _row,
            "rx-t3-": _row,
            "rx-t3-agree": _tables_agree,
            "rx-10pct": _below("inj"),
            "rx-50pct": _below("cgb"),
            "rx-1.3b": lambda paper, _: paper.cost("Rx7").dollars / 1e9,
            "rx-half-hx": lambda paper, _: paper.value("Rx4", "cgb") / paper.value("Hx4", "cgb"),
            **{name: from_nothing(way) for name, way in {**COUNTS, **TIMES}.items()},
        }
    )

    def assumptions(self) -> list[str]:
        """Return the assumptions of all rows."""
        return [
            f"parts are counted on the built topologies; prices are from {find_book(_BOOK).source}",
            "the injection of a chip is 36 ports of 400 Gb/s, also inside the nodes of RailX (k=1)",
            "global bandwidth is what half of the chips can send to the other half; for RailX it is equation 3 as printed",
            "times are of schedules on a built RailX, where a link in a node is k n times as fast as a port",
        ]

    def value(self, name: str, what: str) -> float:
        """Return the value of a line of the cost table in one of its columns."""
        if what == "sw":
            return self._count(name, ("switch", _OPTICAL))
        if what in _THOUSANDS:
            return self._count(name, _THOUSANDS[what]) / 1000
        if what == "cost":
            return self.cost(name).dollars / 1e6
        if what == "gbw":
            return 100 * self._global(name)
        return self._rate(name, what) / self._rate(_REFERENCE, what)

    def _global(self, name: str) -> float:
        """Return the share of injection that half of the chips can send to the others at once."""
        found = self.cost(name)
        return 2 * 9 / _SIDES[name] / 36 if name in _SIDES else _present(found.global_GBps) / found.injection_GBps

    def _rate(self, name: str, what: str) -> float:
        """Return the dollars for each GB/s of injection, or of global bandwidth."""
        each = self.cost(name).dollars_per_injection_GBps
        return each / self._global(name) if what == "cgb" else each

    def cost(self, name: str) -> Cost:
        """Return the cost of a line of the table."""
        if name not in self.costs:
            self.costs[name] = cost(_built(name), find_book(_BOOK), across=name not in _SIDES)
        return self.costs[name]

    def _count(self, name: str, parts: tuple[str, ...]) -> int:
        """Return the number of parts of some kinds."""
        found = self.cost(name).parts
        return sum(found[part][0] for part in parts if part in found)


def _built(name: str) -> Topology:
    """Return the built topology of a line; switches are taken out of the bill where the line has none."""
    topology = build_topology(_LINES[name])
    if name != _WITHOUT_SWITCHES:
        return topology
    return replace(topology, bill={part: count for part, count in topology.bill.items() if part != _OPTICAL})


def _present(value: float | None) -> float:
    """Return the value, which must not be None."""
    assert value is not None
    return value
