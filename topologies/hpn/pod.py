"""HPN's backend network: a segment, a pod of segments, pods under Cores (3, 5, 6, 7)."""

from functools import partial
from typing import Annotated

from emu.errors import must_be
from emu.topology.catalogue import Count, Dims, Kind, topology
from emu.topology.topology import Topology
from topologies.hpn.plan import AGGS, UP, Rates, known_of, plan_of
from topologies.hpn.wiring import build

_SOURCE = "Qian et al., Alibaba HPN (SIGCOMM 2024), "
_SEGMENT = (128, 8)  # active hosts; GPUs of a host, each with a rail (5.1, 5.2)
_POD = (15, *_SEGMENT)  # segments (6.2)
_CLUSTER = (2, *_POD)  # pods; how many the paper does not say


def _read_spares(text: str, name: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 19):
        raise must_be("topology", name, "a whole number of 0 or more", text)
    return int(text)


def _read_way(text: str, name: str) -> str:
    if text not in {"nvlink", "agg"}:
        raise must_be("topology", name, "nvlink or agg", text)
    return text


Spares = Annotated[int, Kind(_read_spares, str)]
Way = Annotated[str, Kind(_read_way, str)]

_segment = partial(plan_of, "hpn:segment", _SEGMENT, "plane")
_pod = partial(plan_of, "hpn:pod", _POD, "plane")
_cluster = partial(plan_of, "hpn", _CLUSTER, "plane")


@topology(
    "hpn:segment",
    source=f"{_SOURCE}5",
    examples=("dims=4x2", "dims=2x4,backup=1", "dims=3x3,nvlink=450GB/s", "dims=8x8"),
    invariants=partial(known_of, _segment),
    full=("", "backup=8"),
)
def segment(dims: Dims = _SEGMENT, backup: Spares = 0, *, rates: Rates) -> Topology:
    """Hosts x rails under two ToRs a rail: 1024 GPUs one switch apart, an NVLink and a switch to another rail.

    Args:
        dims: Active hosts x GPUs of a host, each of which has a rail.
        backup: Hosts that stand by.
        rates: Of its links.
    """
    return build(_segment(dims=dims, backup=backup, rates=rates))


@topology(
    "hpn:pod",
    source=f"{_SOURCE}6",
    examples=(
        "dims=2x2x2,aggs=2",
        "dims=3x4x2,aggs=3,cross_rail=agg",
        "dims=2x3x4,aggs=4,backup=1",
        "dims=2x2x1,aggs=2",
        "dims=2x4x8,aggs=4",
    ),
    invariants=partial(known_of, _pod),
    full=("", "backup=8"),
)
def pod(
    dims: Dims = _POD,
    aggs: Count = AGGS,
    backup: Spares = 0,
    cross_rail: Way = "nvlink",
    *,
    rates: Rates,
) -> Topology:
    """Segments x hosts x rails in two planes that share no switch, each of 60 Aggs: 15,360 GPUs in two tiers.

    Args:
        dims: Segments x active hosts of a segment x GPUs of a host, each of which has a rail.
        aggs: Of a plane, and so uplinks of a ToR, each of two ports.
        backup: Hosts of a segment that stand by.
        cross_rail: How a message gets to another rail: `nvlink`, over the GPU of its host that is on it; `agg`.
        rates: Of its links.
    """
    return build(_pod(dims=dims, aggs=aggs, backup=backup, cross_rail=cross_rail, rates=rates))


@topology(
    "hpn",
    source=f"{_SOURCE}7",
    examples=(
        "dims=2x2x2x2,aggs=2,up=2",
        "dims=3x2x2x2,aggs=4,up=3,cross_rail=agg",
        "dims=2x1x3x4,aggs=3",
        "dims=2x2x2x8,aggs=2",
    ),
    invariants=partial(known_of, _cluster),
    full=("", "dims=7x15x128x8"),
)
def cluster(
    dims: Dims = _CLUSTER,
    aggs: Count = AGGS,
    up: Count = UP,
    backup: Spares = 0,
    cross_rail: Way = "nvlink",
    *,
    rates: Rates,
) -> Topology:
    """Pods under a Core tier of two planes, an Agg's 120 ports down for 8 up: 15:1, for what may cross pods at leisure.

    Args:
        dims: Pods x segments of a pod x active hosts of a segment x GPUs of a host, each of which has a rail.
        aggs: Of a plane of a pod, and so uplinks of a ToR, each of two ports.
        up: Uplinks of an Agg.
        backup: Hosts of a segment that stand by.
        cross_rail: How a message gets to another rail: `nvlink`, over the GPU of its host that is on it; `agg`.
        rates: Of its links.
    """
    return build(_cluster(dims=dims, aggs=aggs, up=up, backup=backup, cross_rail=cross_rail, rates=rates))
