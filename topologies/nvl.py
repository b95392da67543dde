"""NVIDIA's NVLink domains: GPUs under NVSwitches in a server, in one rack, in two, in eight.

Racks are those of InfiniteHBD's Table 8 (900 GB/s a GPU), servers those of Flex-SiPAC's 6.A (450 GB/s). 18 NVLinks join a GPU
to switch chips, and each message is spread over all of them. So the chips over the same GPUs are one node here and their
NVLinks one link, unless `chips=apart` makes each chip a node.
"""

from dataclasses import replace
from functools import partial
from math import ceil
from typing import Annotated, Any

import numpy as np

from emu.errors import must_be
from emu.topology.builders.clos import Tier, clos, clos_invariants, count
from emu.topology.builders.wiring import Cables, SwitchAdding, fabric
from emu.topology.catalogue import HOP_LATENCY, Bandwidth, Count, Invariants, Latency, one_of, topology
from emu.topology.topology import Drawing, Topology, frames
from emu.units import format_bandwidth, format_time, seconds

_RACKS = "Shou et al., InfiniteHBD (SIGCOMM 2025), Table 8"
_SERVERS = "Wu et al., Flexible silicon photonic architecture for accelerating distributed deep learning (2024), 6.A"
_NVLINKS = 18  # NVLinks of a GPU, in both generations
_RACK_RATE = 900e9  # bytes per second out of a GPU (Table 8)
_SERVER_RATE = 450e9  # 18 NVLinks of 25 GB/s one way
_HALF = 36  # GPUs under one switch of the lower tier where there are two, and in a rack of NVL-36x2
_DAC_PER_NVLINK = 4  # copper cables of 25 GB/s one way (Table 8): 50 GB/s in each direction
_DAC_PER_ACC = 8  # copper cables that continue an active cable of 200 GB/s: it makes Table 8's 6480 of 5184 and 162 ACC
_ACC_NVLINKS = 4  # in one active cable of 200 GB/s
_MODULE_NVLINKS = 4  # in one optical module of 200 GB/s (Table 8)
_MODULES = 8  # optical modules a GPU (Table 8: 4608 for 576), half of them at leaves, half at spines
_FULL = 9  # modules with which a leaf sends up all that its GPUs send
_MOST_SERVERS = 32  # 256 GPUs (Flex-SiPAC 6.A)
_SERVER_CHIPS, _SERVER_GPUS, _SERVER_OUT = 4, 8, 72  # NVSwitches, GPUs and NVLinks out of a server (Flex-SiPAC 6.A)
_CHIP_PORTS = 64  # ports of a third-generation NVSwitch (NVIDIA's data sheet)


Chips = Annotated[str, one_of("merged", "apart")]


def _nodes(chips: str, count: int) -> int:
    """Return the number of nodes for the NVSwitches over the same GPUs: `count` if `chips=apart`, else 1."""
    return count if chips == "apart" else 1


def _bundle(nvlinks: float) -> str:
    """Return the name of a link that bundles a number of NVLinks."""
    return f"link x{nvlinks:g}"


def _first_tier(gpus: int, nodes: int, bandwidth: float, latency: int) -> Tier:
    """Return the tier of `nodes` switches, each above all of the same GPUs."""
    return Tier(gpus, nodes, bandwidth / nodes, latency, name="GPU to NVSwitch", kind=_bundle(_NVLINKS / nodes))


def _assumptions(chips: str, bandwidth: float, latency: int, *more: str) -> tuple[str, ...]:
    """Return sentences on the assumptions of the topology."""
    merged = "a message is spread over all NVLinks of a GPU, so NVSwitches over the same GPUs are one node"
    apart = "a message takes one NVSwitch, by a hash, and so a part of its GPU's rate (NVLink spreads it over all)"
    return (
        f"a GPU has {format_bandwidth(bandwidth)} one way",
        f"a hop takes {format_time(seconds(latency))} (no latency is published)",
        merged if chips == "merged" else apart,
        "NVSwitches can add what they pass on (NVLink SHARP), so in-switch reduction competes",
        *more,
    )


def _dac(gpus: int) -> int:
    """Return the number of copper cables (DAC) in a rack."""
    return gpus * _NVLINKS * _DAC_PER_NVLINK


def _rack_known(gpus: int, n_chips: int, chips: str, bandwidth: float, latency: int, **_: object) -> Invariants:
    """Return the numbers that a rack of one tier must have, by closed forms."""
    return clos_invariants([_first_tier(gpus, _nodes(chips, n_chips), bandwidth, latency)])


def _rack(name: str, gpus: int, n_chips: int, chips: str, bandwidth: float, latency: int) -> Topology:
    """Return the topology of a rack of one tier."""
    bill = {"NVLink switch": n_chips, "DAC cable": _dac(gpus)}
    tiers = [_first_tier(gpus, _nodes(chips, n_chips), bandwidth, latency)]
    return replace(clos(name, tiers, bill, _assumptions(chips, bandwidth, latency)), adds=True)


_EXAMPLES = ("", "chips=apart", "bandwidth=450GB/s,latency=1us")


@topology("nvl:36", source=_RACKS, examples=_EXAMPLES, invariants=partial(_rack_known, 36, 9))
def nvl_36(chips: Chips = "merged", bandwidth: Bandwidth = _RACK_RATE, latency: Latency = HOP_LATENCY) -> Topology:
    """Join 36 GPUs of a rack by 9 NVLink switches, 2 NVLinks to each: all pairs of GPUs are equally fast."""
    return _rack("nvl:36", 36, 9, chips, bandwidth, latency)


@topology("nvl:72", source=_RACKS, examples=_EXAMPLES, invariants=partial(_rack_known, 72, 18))
def nvl_72(chips: Chips = "merged", bandwidth: Bandwidth = _RACK_RATE, latency: Latency = HOP_LATENCY) -> Topology:
    """Join 72 GPUs of a rack by 18 NVLink switches, an NVLink to each: all pairs of GPUs are equally fast."""
    return _rack("nvl:72", 72, 18, chips, bandwidth, latency)


def _pair_known(chips: str, bandwidth: float, **_: object) -> Invariants:
    """Return the invariants of two racks whose NVSwitches are joined."""
    ways, npus = _nodes(chips, _NVLINKS), 2 * _HALF
    return Invariants(
        2 * ways * (npus + 1),
        ways,
        3,
        _HALF * bandwidth,
        npus=npus,
        switches=2 * ways,
        injection_Bps=bandwidth,
        paths=ways,
    )


@topology("nvl:36x2", source=_RACKS, examples=_EXAMPLES, invariants=_pair_known)
def nvl_36x2(chips: Chips = "merged", bandwidth: Bandwidth = _RACK_RATE, latency: Latency = HOP_LATENCY) -> Topology:
    """Join two racks of 36 GPUs under 18 NVLink switches each; every switch is joined to its twin by half of its ports."""
    ways, npus = _nodes(chips, _NVLINKS), 2 * _HALF
    npu, way = np.arange(npus), np.arange(ways)
    under = npus + npu[:, None] // _HALF * ways + way
    kinds = [
        Cables(_bundle(_NVLINKS / ways), npu[:, None], under, bandwidth / ways, latency, 0),
        Cables(_bundle(_HALF * _NVLINKS / ways), npus + way, npus + ways + way, _HALF * bandwidth / ways, latency, 1),
    ]
    active = _HALF * _NVLINKS // _ACC_NVLINKS
    bill = {"NVLink switch": 2 * _NVLINKS, "DAC cable": _dac(npus) + active * _DAC_PER_ACC, "ACC cable": active}
    closing = f"inside the racks each ACC goes on as {_DAC_PER_ACC} DAC: it is what makes Table 8's 6480 of {_dac(npus)}"
    return fabric(
        "nvl:36x2",
        npus,
        kinds,
        None,
        bill=bill,
        dims=(2, _HALF),
        assumptions=_assumptions(chips, bandwidth, latency, closing),
        tiers=("GPU to NVSwitch", "rack to rack"),
        draw=partial(_draw_pair, ways),
        adds=True,
    )


def _draw_pair(ways: int) -> Drawing:
    """Return a drawing with the GPUs of a rack in four rows, and its switches in a column on the side of the other rack."""
    npu = np.arange(_HALF)
    gpus = np.stack((npu % 4, npu // 4), axis=-1).astype(np.float64)
    switches = np.stack((np.full(ways, 5.0), (np.arange(ways) + 0.5) * 9 / ways - 0.5), axis=-1)
    mirrored = [side * (-1.0, 1.0) + (13.0, 0.0) for side in (gpus, switches)]
    return Drawing(np.concatenate((gpus, mirrored[0], switches, mirrored[1])), frames("rack", _HALF, 2))


def _eight_tiers(racks: int, modules: int, chips: str, bandwidth: float, latency: int) -> list[Tier]:
    """Return the tiers of a system of several racks.

    The two halves of a rack have switches of their own, and each plane has one spine for each rack.
    """
    if modules > _FULL:
        what = f"at most {_FULL}, which carry all that a leaf's GPUs send"
        raise must_be("nvl:576", "modules", what, modules)
    planes, spines = _nodes(chips, _NVLINKS), _nodes(chips, racks)
    nvlinks = _HALF * _NVLINKS * modules / _FULL / planes / spines
    return [
        _first_tier(_HALF, planes, bandwidth, latency),
        Tier(2 * racks, spines, bandwidth * nvlinks / _NVLINKS, latency, name="leaf to spine", kind=_bundle(nvlinks)),
    ]


def _eight_known(**settings: Any) -> Invariants:
    """Return the invariants of eight racks."""
    return clos_invariants(_eight_tiers(**settings))


def _eight_bill(racks: int, modules: int) -> dict[str, int]:
    """Return the bill of parts of several racks, in which every NVSwitch counts, whether or not it is a node of its own.

    Args:
        racks: The number of racks.
        modules: The optical modules for each GPU: half of them at the lower switches, half at the upper ones.
    """
    wiring = count(_eight_tiers(racks, modules, "apart", 1.0, 0))
    leaves, up = wiring.nodes[1], _HALF * modules / _FULL
    return {
        "NVLink switch": wiring.switches,
        "DAC cable": wiring.cables[0] * _DAC_PER_NVLINK,
        "optical module": 2 * ceil(leaves * up / _MODULE_NVLINKS),
    }


@topology(
    "nvl:576",
    source=_RACKS,
    examples=("racks=1", "racks=2", "racks=2,chips=apart", "racks=1,modules=9"),
    full=("", "chips=apart", "modules=9"),
    invariants=_eight_known,
)
def nvl_576(
    racks: Count = 8,
    modules: Count = _MODULES,
    chips: Chips = "merged",
    bandwidth: Bandwidth = _RACK_RATE,
    latency: Latency = HOP_LATENCY,
) -> Topology:
    """Join eight racks of 72 GPUs by two tiers of NVLink switches: a rack brings 36 leaves of 36 GPUs and 18 spines.

    Args:
        racks: Racks of 72 GPUs.
        modules: Optical modules of a GPU. The 8 of Table 8 carry 8/9 of what the GPUs send; with 9 the tiers do not block.
        chips: Whether switches over the same GPUs are one node.
        bandwidth: Bandwidth of a GPU.
        latency: Latency of a hop.
    """
    tiers = _eight_tiers(racks, modules, chips, bandwidth, latency)
    bill = _eight_bill(racks, modules)
    leaves, spines = 2 * _NVLINKS * racks, _NVLINKS * racks
    up = bandwidth * modules / _FULL
    sentences = (
        f"{leaves} leaves of {_HALF} GPUs and {spines} spines, a leaf's NVLinks spread evenly over the spines of its plane:"
        " it is what makes Table 8's 432 switches of 72 NVLinks",
        f"{modules} optical modules of {_MODULE_NVLINKS} NVLinks a GPU, half of them at leaves and half at spines, carry"
        f" {format_bandwidth(up)} of its {format_bandwidth(bandwidth)} up: Table 8 has 8, and 6.5 calls the tiers"
        " non-blocking, which takes modules=9",
    )
    return replace(clos("nvl:576", tiers, bill, _assumptions(chips, bandwidth, latency, *sentences)), adds=True)


@topology("dgx-h100", source=_SERVERS, examples=_EXAMPLES, invariants=partial(_rack_known, _SERVER_GPUS, _SERVER_CHIPS))
def dgx_h100(
    chips: Chips = "merged", bandwidth: Bandwidth = _SERVER_RATE, latency: Latency = HOP_LATENCY, *, adding: SwitchAdding
) -> Topology:
    """Join the 8 GPUs of a server by 4 NVSwitches, 18 NVLinks a GPU."""
    tiers = [_first_tier(_SERVER_GPUS, _nodes(chips, _SERVER_CHIPS), bandwidth, latency)]
    uneven = "a GPU has 4.5 of its 18 NVLinks on each NVSwitch: the mean, as 18 does not divide by 4"
    sentences = _assumptions(chips, bandwidth, latency, *([uneven] if chips == "apart" else []))
    server = clos("dgx-h100", tiers, {"NVSwitch": _SERVER_CHIPS}, sentences)
    return adding.of(server, server.n_npus, server.n_nodes)


def _servers_tiers(servers: int, bandwidth: float, latency: int) -> list[Tier]:
    """Return the tiers of servers under upper NVSwitches."""
    if servers > _MOST_SERVERS:
        what = f"at most {_MOST_SERVERS}, as NVLink reaches no further"
        raise must_be("dgx-h100:superpod", "servers", what, servers, "above, take servers:nodes=64 or rail-optimised:radix=64")
    up = bandwidth * _SERVER_OUT / _NVLINKS
    kind = _bundle(_SERVER_OUT)
    return [
        _first_tier(_SERVER_GPUS, 1, bandwidth, latency),
        Tier(servers, 1, up, latency, name="server to upper NVSwitch", kind=kind),
    ]


def _servers_known(**settings: Any) -> Invariants:
    """Return the invariants of servers under upper NVSwitches."""
    return clos_invariants(_servers_tiers(**settings))


@topology(
    "dgx-h100:superpod",
    source=_SERVERS,
    examples=("servers=4", "servers=2", "servers=3", "servers=8,bandwidth=240GB/s"),
    full=("",),
    invariants=_servers_known,
)
def superpod(servers: Count = 32, bandwidth: Bandwidth = _SERVER_RATE, latency: Latency = HOP_LATENCY) -> Topology:
    """Join up to 32 servers of 8 GPUs by a second tier of NVSwitches, 72 NVLinks up from a server: half of its GPUs' 144."""
    tiers = _servers_tiers(servers, bandwidth, latency)
    upper = ceil(servers * _SERVER_OUT / _CHIP_PORTS)
    sentence = f"{upper} NVSwitches of {_CHIP_PORTS} NVLinks close the upper tier (their number is not published)"
    bill = {"NVSwitch": _SERVER_CHIPS * servers + upper}
    return replace(clos("dgx-h100:superpod", tiers, bill, _assumptions("merged", bandwidth, latency, sentence)), adds=True)
