"""Rows of the HPN paper that count: by the links and nodes of built topologies, never by a bill of parts."""

from collections.abc import Callable, Mapping
from types import MappingProxyType

import numpy as np

from emu.arrays import I64
from emu.topology.removal import remove_parts
from emu.topology.topology import Topology
from launch.papers.networks import above, build_once, out_of

PAPER, POD, SEGMENT, DCN, CORE = "hpn:pod:backup=8", "hpn:pod", "hpn:segment", "hpn:dcn-plus", "hpn"
_EIGHT, _CLOS, _RAILS = "hpn:pod:dims=8x128x8", "hpn:clos", "hpn:rail-only"
_BELOW = {"ToR": "NIC to ToR", "Agg": "ToR to Agg", "Core": "Agg to Core"}
_HOSTS, _GPUS = 289, 8  # more than 288 hosts (9.1), and the GPUs of a host
_UNDER_ONE_TO_ONE, _UNDER_15 = 64, 120  # ports of an Agg to ToRs without oversubscription, and with 15:1
_BITS = 8 / 1e12  # terabits of a byte


def switches_of_kind(topology: Topology, kind: str) -> I64:
    """Return the switches of a kind: ToR, Agg or Core."""
    return above(topology, _BELOW[kind])


def _links_of_first(topology: Topology, kind: str, to: I64) -> tuple[float, int]:
    """Return the links from a kind's first switch to some nodes: the bytes per second of all together, and their number."""
    return out_of(topology, int(switches_of_kind(topology, kind)[0]), to)


def _up(word: str) -> tuple[float, int]:
    """Return the links from a ToR of the topology `word` to Aggs: the bytes per second of all together, and their number."""
    return _links_of_first(build_once(word), "ToR", switches_of_kind(build_once(word), "Agg"))


def _down(word: str) -> tuple[float, int]:
    """Return the links from a ToR of the topology `word` to NICs: the bytes per second of all together, and their number."""
    return _links_of_first(build_once(word), "ToR", np.arange(build_once(word).n_npus))


def _nic(word: str) -> tuple[float, int]:
    """Return the links from a GPU of the topology `word` to ToRs: the bytes per second of all together, and their number."""
    return out_of(build_once(word), 0, switches_of_kind(build_once(word), "ToR"))


def _agg(word: str, kind: str) -> int:
    """Return the number of links from an Agg to another kind of switch."""
    return _links_of_first(build_once(word), "Agg", switches_of_kind(build_once(word), kind))[1]


def _spans(word: str, size: int) -> int:
    """Return the number of segments in which the hosts of a job are."""
    return len(np.unique(build_once(word).place(_HOSTS * _GPUS) // size))


def _where_an_agg_has(word: str, ports: int) -> float:
    """Return the number of GPUs; 0 where an Agg has another number of ports down."""
    return float(build_once(word).n_npus * (_agg(word, "ToR") == ports))


def _after_a_link() -> float:
    """Return the share of a host's bandwidth, in per cent, that it loses with one link of one of its NICs."""
    whole, tors = build_once(SEGMENT), switches_of_kind(build_once(SEGMENT), "ToR")
    gone = np.flatnonzero((whole.links.src == 0) & (whole.links.dst == tors[0]))
    rates = [sum(out_of(each, npu, tors)[0] for npu in range(_GPUS)) for each in (whole, remove_parts(whole, links=gone))]
    return 100 * (1 - rates[1] / rates[0])


def _nvlink() -> str:
    """Return the bandwidth of NVLink as a multiple of the NIC's, for NVLink of 200 and of 450 GB/s each way."""
    nic = _nic(SEGMENT)[0]
    return ";".join(f"{build_once(f'{SEGMENT}:nvlink={rate}GB/s').links.bandwidth_Bps.max() / nic:.0f}" for rate in (200, 450))


COUNTS: Mapping[str, Callable[[], float | str]] = MappingProxyType(
    {
        "hpn-tor-cap": lambda: (_up(PAPER)[0] + _down(PAPER)[0]) * _BITS,
        "hpn-tor-os": lambda: _down(POD)[0] / _up(POD)[0],
        "hpn-seg": lambda: float(build_once(SEGMENT).n_npus),
        "hpn-seg-bk": lambda: float(build_once(f"{SEGMENT}:backup=8").n_npus - build_once(SEGMENT).n_npus),
        "hpn-seg-tor": lambda: float(len(switches_of_kind(build_once(SEGMENT), "ToR"))),
        "hpn-pod": lambda: float(build_once(POD).n_npus),
        "hpn-agg-os": lambda: _agg(CORE, "ToR") / _agg(CORE, "Core"),
        "hpn-875": lambda: 100 * (2 * _agg(CORE, "ToR") / (_agg(CORE, "ToR") + _agg(CORE, "Core")) - 1),
        "hpn-aggs": lambda: len(switches_of_kind(build_once(POD), "Agg")) / _nic(POD)[1],
        "hpn-host": lambda: _GPUS * _nic(POD)[0] * _BITS,
        "hpn-nvlink": _nvlink,
        "hpn-t1-HPN": lambda: f"O({_up(POD)[1]})",
        "hpn-t1-ft-n": lambda: float(build_once("fat-tree:radix=48,tiers=3").n_npus),
        "hpn-t2-t1-clos": lambda: _down(POD)[0] / _nic(POD)[0],
        "hpn-t2-t1-dual": lambda: float(_down(POD)[1]),
        "hpn-t2-t1-rail": lambda: float(build_once(SEGMENT).n_npus),
        "hpn-t2-t2-clos": lambda: float(build_once(_CLOS).n_npus),
        "hpn-t2-t2-dual": lambda: _where_an_agg_has(_CLOS, _UNDER_ONE_TO_ONE),
        "hpn-t2-t2-plane": lambda: _where_an_agg_has(_EIGHT, _UNDER_ONE_TO_ONE),
        "hpn-t2-t2-os": lambda: _where_an_agg_has(POD, _UNDER_15),
        "hpn-t4-planes": lambda: len(switches_of_kind(build_once(_RAILS), "Agg")) / _up(_RAILS)[1],
        "hpn-t4-any": lambda: len(switches_of_kind(build_once(POD), "Agg")) / _up(POD)[1],
        "hpn-t4-gpus": lambda: float(build_once(_RAILS).n_npus),
        "hpn-dcn-seg": lambda: float(_down(DCN)[1]),
        "hpn-dcn-pod": lambda: build_once(DCN).n_npus / build_once(DCN).dims[0],
        "hpn-dcn-all": lambda: float(build_once(DCN).n_npus),
        "hpn-dcn-bis": lambda: float(_links_of_first(build_once(DCN), "ToR", switches_of_kind(build_once(DCN), "Agg")[:1])[1]),
        "hpn-2300-dcn": lambda: float(_spans(DCN, _down(DCN)[1])),
        "hpn-2300-hpn": lambda: float(_spans(POD, build_once(SEGMENT).n_npus)),
        "hpn-448": lambda: float(build_once(f"{SEGMENT}:dims=56x8").n_npus),
        "hpn-256": lambda: float(build_once(f"{SEGMENT}:dims=32x8").n_npus),
        "hpn-625": _after_a_link,
    }
)
