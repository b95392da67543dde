"""The rows of RailX's cost tables, worked out again from what is built and the paper's prices."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

from emu.study.cost.cost import Cost, cost
from emu.topology.catalogue import build_topology
from launch.data.prices import find_book
from launch.papers.targets import Answer, Row, Target, judged, read_targets

TABLES = ("3", "6")
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
_LEFT_OUT = MappingProxyType({"Tor": (_OPTICAL,)})  # the same cables and modules join the faces of its cubes
_NOT_BUILT = "a part of a tree of four tiers, which whole has 2,097,152 hosts; trees that are filled in part are not built"
_HYPERX = "it takes a HyperX of 64 nodes a row, which needs 63 rails; r = 36 rails join 37 nodes"
_SWITCHES = "185.7 is 44.5 and 4,032 switches of 35 K$, those of the Hx7Mesh; the table prints 288"
_ROUNDED = "it follows from the global bandwidth as printed, 7.1 %; 1/14 is 7.14"
_WHY: Mapping[str, str] = MappingProxyType(  # the paper's own figures contradict these
    {
        "rx-t6-Tap13-inj": "0.63 follows from the printed cost, and 1.90 a global bandwidth agrees with that",
        "rx-t6-Hx7-cgb": _ROUNDED,
        "rx-t3-Hx7-2ft-cgb": _ROUNDED,
        "rx-t6-TorOCS-cost": _SWITCHES,
        "rx-t6-TorOCS-inj": _SWITCHES,
        "rx-t6-TorOCS-cgb": f"{_SWITCHES}; with these it would be 5.36",
        "rx-t6-Tor-cost": "44.5 follows from the printed counts",
        "rx-t6-Tor-cgb": "1.29 follows from the printed counts",
    }
)
_THOUSANDS = MappingProxyType({"aot": ("optical transceiver", "optical module"), "pcc": ("DAC cable",)})


@dataclass(eq=False)
class Paper:
    """What is known of the networks so far; one is built when the first row asks for it."""

    targets: list[Target] = field(default_factory=lambda: read_targets(_TARGETS))
    costs: dict[str, Cost] = field(default_factory=dict)

    def rows(self, table: str) -> Iterator[Row]:
        """Of a table, in the order of the paper's data."""
        for target in self.of(table):
            yield judged(target, self.answer(target))

    def of(self, table: str) -> list[Target]:
        """Its rows as printed."""
        return [target for target in self.targets if target.table == table]

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
        why = [f"not by the paper's own figures: {_WHY[target.id]}"] if target.id in _WHY else []
        return Answer(float(self._value(name, what)), (_LINES[name], *why))

    def _value(self, name: str, what: str) -> float:
        if what == "sw":
            return self._count(name, ("switch", _OPTICAL))
        if what in _THOUSANDS:
            return self._count(name, _THOUSANDS[what]) / 1000
        if what == "cost":
            return self._dollars(name) / 1e6
        if what == "gbw":
            return 100 * self._across(name) / self._cost(name).injection_GBps
        each, first = ((self._per_chip(network) / self._rate(network, what)) for network in (name, _REFERENCE))
        return each / first

    def _rate(self, name: str, what: str) -> float:
        """What dollars are divided by: injection, or global bandwidth."""
        return self._across(name) if what == "cgb" else self._cost(name).injection_GBps

    def _across(self, name: str) -> float:
        found = self._cost(name).global_GBps
        assert found is not None
        return found

    def _cost(self, name: str) -> Cost:
        if name not in self.costs:
            across = not name.startswith("Rx")
            self.costs[name] = cost(build_topology(_LINES[name]), find_book(_BOOK), across=across)
        return self.costs[name]

    def _count(self, name: str, parts: tuple[str, ...]) -> int:
        found = self._cost(name).parts
        return sum(found[part][0] for part in parts if part in found and part not in _LEFT_OUT.get(name, ()))

    def _dollars(self, name: str) -> float:
        """Without the parts that are left out."""
        found = self._cost(name).parts
        return sum(count * price.dollars for part, (count, price) in found.items() if part not in _LEFT_OUT.get(name, ()))

    def _per_chip(self, name: str) -> float:
        return self._dollars(name) / self._cost(name).npus
