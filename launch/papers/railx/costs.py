"""The lines of RailX's cost tables, from built topologies and the paper's prices."""

from collections.abc import Mapping
from dataclasses import replace
from functools import cache

from emu.study.cost import Cost, cost
from emu.topology.catalogue import build_topology
from launch.data.prices import find_book

BOOK, REFERENCE = "railx", "2FT"
LINES: Mapping[str, str] = {  # 36 ports of 400 Gb/s a chip; switches have 64 ports, optical ones 128
    "2FT": "fat-tree:radix=64,tiers=2,planes=36",
    "Tap13": "fat-tree:radix=64,taper=3,planes=36",
    "Tap49": "fat-tree:radix=64,tiers=3,taper=7,planes=36",
    "Hx4": "hammingmesh:boards=32x32,side=4,planes=9",
    "Hx7": "hammingmesh:boards=32x32,side=7,planes=9",
    "Hx7-2ft": "hammingmesh:boards=64x64,side=7,planes=9",
    "TorOCS": "tpuv4:cubes=4x4x4,planes=6",
    "Tor": "tpuv4:cubes=4x4x4,planes=6",
    "RO": "rail-only:dims=64x64,planes=18",
    # 36 rails do not join 64 nodes of a row all to all. Of the splits that join 64, this has the widest middle.
    "Rx4": "railx:split:m=4,n=9,rails=K16@15+C4@21/K16@15+C4@21,k=1",
    "Rx7": "railx:hyperx:m=7,n=9,k=1",
}
_OPTICAL = "OCS"
_WITHOUT_SWITCHES = "Tor"  # its cubes are joined by the cables and modules of TorOCS
_PARTS: Mapping[str, tuple[tuple[str, ...], int]] = {  # by column the parts, and how many of them count as one
    "sw": (("switch", _OPTICAL), 1),
    "aot": (("optical transceiver", "optical module"), 1000),
    "pcc": (("DAC cable",), 1000),
}


@cache
def line_cost(name: str) -> Cost:
    """Return the cost of a line of the cost table; switches are taken out of the bill where the line has none."""
    topology = build_topology(LINES[name])
    if name == _WITHOUT_SWITCHES:
        topology = replace(topology, bill={part: count for part, count in topology.bill.items() if part != _OPTICAL})
    return cost(topology, find_book(BOOK), across=True)


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
    return _rate(name, what) / _rate(REFERENCE, what)


def _global(name: str) -> float:
    """Return the share of injection that half of the chips can send to the others at once."""
    found = line_cost(name)
    assert found.global_GBps is not None
    return found.global_GBps / found.injection_GBps


def _rate(name: str, what: str) -> float:
    """Return the dollars for each GB/s of injection, or of global bandwidth."""
    each = line_cost(name).dollars_per_injection_GBps
    return each / _global(name) if what == "cgb" else each
