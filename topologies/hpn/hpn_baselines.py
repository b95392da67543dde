"""The networks with which HPN is compared: the Clos it could have been, Aggs of one rail, and DCN+ (6.1, 10, appendix C)."""

from emu.topology.catalogue import Count, Dims
from topologies.hpn.host_plan import AGGS, HpnPlan, HpnRates, plan_of
from topologies.hpn.registration import HashSettings, HpnHashSettings, register_variant

_CLOS = (4, 128, 8)  # segments, hosts, rails: 64 ports down of an Agg, Table 2's 4K
_RAIL_ONLY = (120, 128, 8)  # 122,880 GPUs (Table 4)
_DCN = (32, 4, 16, 8)  # pods, segments, hosts and their GPUs (appendix C)
_DCN_AGGS, _DCN_PARALLEL, _DCN_UP = 8, 8, 64
_EXAMPLES = ("dims=2x2x2,aggs=2", "dims=3x2x4,aggs=3", "dims=2x3x1,aggs=2,hash=independent", "dims=2x4x8,aggs=4")


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
        "dims=3x2x2x4,aggs=2,parallel=2,up=3,hash=independent",
        "dims=1x4x2x8,aggs=2,parallel=4",
        "dims=2x2x2x2,aggs=2,parallel=2,up=4,paths=disjoint",
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
