"""HPN's backend network: a segment, a pod of segments, pods under Cores (3, 5, 6, 7)."""

from emu.topology.catalogue import Count, Dims
from topologies.hpn.host_plan import AGGS, UP, HpnPlan, HpnRates, plan_of
from topologies.hpn.registration import HostSettings, Spares, register_variant

_SEGMENT = (128, 8)  # active hosts; GPUs of a host, each with a rail (5.1, 5.2)
_POD = (15, *_SEGMENT)  # segments (6.2)
_CLUSTER = (2, *_POD)  # pods; the paper does not say how many


@register_variant(
    "hpn:segment",
    "5",
    ("dims=4x2", "dims=2x4,backup=1", "dims=3x3,nvlink=450GB/s", "dims=8x8"),
    ("", "backup=8"),
)
def segment(dims: Dims = _SEGMENT, backup: Spares = 0, *, rates: HpnRates) -> HpnPlan:
    """Join hosts x rails by two ToRs a rail: 1024 GPUs one switch apart, an NVLink and a switch to another rail.

    Args:
        dims: Active hosts x GPUs of a host, each of which has a rail.
        backup: Backup hosts.
        rates: Rates of links.
    """
    return plan_of("hpn:segment", _SEGMENT, "plane", dims=dims, backup=backup, rates=rates)


@register_variant(
    "hpn:pod",
    "6",
    (
        "dims=2x2x2,aggs=2",
        "dims=3x4x2,aggs=3,cross_rail=agg",
        "dims=2x3x4,aggs=4,backup=1",
        "dims=2x2x1,aggs=2,paths=hashed",
        "dims=2x4x8,aggs=4",
    ),
    ("", "backup=8"),
)
def pod(dims: Dims = _POD, aggs: Count = AGGS, *, hosts: HostSettings, rates: HpnRates) -> HpnPlan:
    """Join segments x hosts x rails in two planes that share no switch, each of 60 Aggs: 15,360 GPUs in two tiers.

    Args:
        dims: Segments x active hosts of a segment x GPUs of a host, each of which has a rail.
        aggs: Aggs of a plane, and uplinks of a ToR, each of two ports.
        hosts: Backup hosts, and the paths of messages.
        rates: Rates of links.
    """
    return plan_of("hpn:pod", _POD, "plane", dims=dims, aggs=aggs, rates=rates, **vars(hosts))


@register_variant(
    "hpn",
    "7",
    (
        "dims=2x2x2x2,aggs=2,up=2",
        "dims=3x2x2x2,aggs=4,up=3,cross_rail=agg",
        "dims=2x1x3x4,aggs=3,hash=independent",
        "dims=2x2x2x8,aggs=2",
    ),
    ("", "dims=7x15x128x8"),
)
def cluster(dims: Dims = _CLUSTER, aggs: Count = AGGS, up: Count = UP, *, hosts: HostSettings, rates: HpnRates) -> HpnPlan:
    """Join pods by a Core tier of two planes, with an Agg's 120 ports down for 8 up: 15:1, for traffic that is not urgent.

    Args:
        dims: Pods x segments of a pod x active hosts of a segment x GPUs of a host, each of which has a rail.
        aggs: Aggs of a plane of a pod, and uplinks of a ToR, each of two ports.
        up: Uplinks of an Agg.
        hosts: Backup hosts, and the paths of messages.
        rates: Rates of links.
    """
    return plan_of("hpn", _CLUSTER, "plane", dims=dims, aggs=aggs, up=up, rates=rates, **vars(hosts))
