"""The rows of RailX's cost tables, worked out again from what is built and the paper's prices."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType

from emu.study.cost.cost import Cost, cost
from emu.topology.catalogue import build_topology
from emu.topology.topology import Topology
from launch.data.prices import find_book
from launch.papers.paper import Paper as Printed
from launch.papers.targets import Answer, Target, read_targets

_TARGETS = Path(__file__).with_name("targets.csv")
_BOOK, _REFERENCE = "railx", "2FT"
_LINES: Mapping[str, str] = MappingProxyType(  # 36 ports of 400 Gb/s a chip; switches of 64 ports, optical ones of 128
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
_WITHOUT_SWITCHES = "Tor"  # the same cables and modules join the faces of its cubes
_NOT_BUILT = "a part of a tree of four tiers, which whole has 2,097,152 hosts; trees that are filled in part are not built"
_HYPERX = "it takes a HyperX of 64 nodes a row, which needs 63 rails; r = 36 rails join 37 nodes"
_THOUSANDS = MappingProxyType({"aot": ("optical transceiver", "optical module"), "pcc": ("DAC cable",)})


@dataclass(eq=False)
class Paper(Printed):
    """What is known of the networks so far; one is built when the first row asks for it."""

    targets: list[Target] = field(default_factory=lambda: read_targets(_TARGETS))
    costs: dict[str, Cost] = field(default_factory=dict)

    def assumptions(self) -> list[str]:
        """Of all rows."""
        return [
            f"parts are those of what is built, prices those of {find_book(_BOOK).source}",
            "injection is that of 36 ports of 400 Gb/s a chip; those of RailX's nodes too (k=1)",
            "global bandwidth is what half of the chips can send to the other half",
        ]

    def answer(self, target: Target) -> Answer:
        """What Emu says of a row; why not, where it says nothing."""
        name, what = target.given["of"], target.given["what"]
        if name not in _LINES:
            return Answer(None, (_NOT_BUILT,))
        if name.startswith("Rx") and what in ("gbw", "cgb"):
            return Answer(None, (_HYPERX,))
        return Answer(float(self._value(name, what)), (_LINES[name],))

    def _value(self, name: str, what: str) -> float:
        if what == "sw":
            return self._count(name, ("switch", _OPTICAL))
        if what in _THOUSANDS:
            return self._count(name, _THOUSANDS[what]) / 1000
        if what == "cost":
            return self.cost(name).dollars / 1e6
        if what == "gbw":
            return 100 * _present(self.cost(name).global_GBps) / self.cost(name).injection_GBps
        return self._rate(name, what) / self._rate(_REFERENCE, what)

    def _rate(self, name: str, what: str) -> float:
        """Dollars for each GB/s of injection, or of global bandwidth."""
        found = self.cost(name)
        return _present(found.dollars_per_global_GBps) if what == "cgb" else found.dollars_per_injection_GBps

    def cost(self, name: str) -> Cost:
        """Of a line of the table."""
        if name not in self.costs:
            self.costs[name] = cost(_built(name), find_book(_BOOK), across=not name.startswith("Rx"))
        return self.costs[name]

    def _count(self, name: str, parts: tuple[str, ...]) -> int:
        found = self.cost(name).parts
        return sum(found[part][0] for part in parts if part in found)


def _built(name: str) -> Topology:
    topology = build_topology(_LINES[name])
    if name != _WITHOUT_SWITCHES:
        return topology
    return replace(topology, bill={part: count for part, count in topology.bill.items() if part != _OPTICAL})


def _present(value: float | None) -> float:
    assert value is not None
    return value
