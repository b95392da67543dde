"""HPN's backend network: a segment, a pod of segments, pods under Cores (3, 5, 6, 7).

The networks with which HPN is compared: the Clos it could have been, Aggs of one rail, and DCN+ (6.1, 10, appendix C).
"""

from emu.topology.catalogue import Count, Dims
from topologies.hpn.host_plan import AGGS, UP, HpnPlan, HpnRates, plan_of
from topologies.hpn.hpn_wiring import HashSettings, HostSettings, HpnHashSettings, Spares, register_variant

_CLOS = (4, 128, 8)  # segments, hosts, rails: 64 ports down of an Agg, Table 2's 4K
_RAIL_ONLY = (120, 128, 8)  # 122,880 GPUs (Table 4)
_DCN = (32, 4, 16, 8)  # pods, segments, hosts and their GPUs (appendix C)
_DCN_AGGS, _DCN_PARALLEL, _DCN_UP = 8, 8, 64
_EXAMPLES = ("dims=2x2x2,aggs=2", "dims=3x2x4,aggs=3", "dims=2x3x1,aggs=2,route=hash-independent", "dims=2x4x8,aggs=4")


@register_variant("hpn:clos", "6.1 and Fig. 12a", _EXAMPLES)
def clos(dims: Dims = _CLOS, aggs: Count = AGGS, *, ways: HashSettings, rates: HpnRates) -> HpnPlan:
    """Join all ToRs of a pod by every Agg, as a typical Clos: a hash picks the port at which a message arrives.

    Args:
        dims: Segments x hosts of a segment x GPUs of a host, each of which has a rail.
        aggs: Aggs of the pod, and uplinks of a ToR, each of two ports.
        ways: Settings of the choice among equal paths.
        rates: Rates of links.
    """
    return plan_of("hpn:clos", _CLOS, "all", dims=dims, aggs=aggs, rates=rates, **vars(ways))


@register_variant("hpn:rail-only", "10 and Table 4", _EXAMPLES)
def rail_only(dims: Dims = _RAIL_ONLY, aggs: Count = AGGS, *, ways: HpnHashSettings, rates: HpnRates) -> HpnPlan:
    """Join a pod by Aggs that serve one rail and one port each, in 16 planes: 122,880 GPUs, other rails over NVLink only.

    Args:
        dims: Segments x hosts of a segment x GPUs of a host, each of which has a rail.
        aggs: Aggs of a rail's plane, and uplinks of a ToR, each of two ports.
        ways: Settings of the choice among equal paths.
        rates: Rates of links.
    """
    return plan_of("hpn:rail-only", _RAIL_ONLY, "rail", dims=dims, aggs=aggs, rates=rates, **vars(ways))


@register_variant(
    "hpn:dcn-plus",
    "9 and appendix C",
    (
        "dims=2x2x2x2,aggs=2,parallel=1,up=2",
        "dims=1x2x3x4,aggs=2,parallel=2",
        "dims=3x2x2x4,aggs=2,parallel=2,up=3,route=hash-independent",
        "dims=1x4x2x8,aggs=2,parallel=4",
        "dims=2x2x2x2,aggs=2,parallel=1,up=2,route=spray",
        "dims=2x2x2x2,aggs=2,parallel=1,up=2,route=least-loaded",
        "dims=2x2x2x2,aggs=2,parallel=2,up=4,route=disjoint",
    ),
)
def dcn_plus(
    dims: Dims = _DCN,
    aggs: Count = _DCN_AGGS,
    parallel: Count = _DCN_PARALLEL,
    up: Count = _DCN_UP,
    *,
    ways: HashSettings,
    rates: HpnRates,
) -> HpnPlan:
    """Join all NICs of 16 hosts by one pair of ToRs, four pairs a pod, 32 pods: the three-tier Clos before HPN.

    Args:
        dims: Pods x segments of a pod x hosts of a segment x GPUs of a host.
        aggs: Aggs of a pod.
        parallel: Cables between a ToR and each Agg, of two ports each.
        up: Uplinks of an Agg.
        ways: Settings of the choice among equal paths.
        rates: Rates of links.
    """
    wide = f"{parallel} cables between a ToR and each Agg: appendix C prints one, with which 9's full bisection does not close"
    return plan_of(
        "hpn:dcn-plus",
        _DCN,
        "all",
        dims=dims,
        rates=rates,
        aggs=aggs,
        parallel=parallel,
        up=up,
        by_rail=False,
        fixed=False,
        notes=(wide,),
        **vars(ways),
    )


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
        "dims=2x2x1,aggs=2,route=hash",
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
        "dims=2x2x2x2,aggs=2,up=2,route=spray",
        "dims=3x2x2x2,aggs=4,up=3,cross_rail=agg",
        "dims=2x1x3x4,aggs=3,route=disjoint-independent",
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
