"""InfiniteHBD's K-hop ring and K-hop line in one configuration of their OCSTrx: the rings of a job (4.2, 4.3)."""

from dataclasses import dataclass

from emu.topology.catalogue import Count, Dims, Invariants, Latency, planned
from emu.topology.topology import Topology
from topologies.infinitehbd.ocstrx_plan import TURN, All, Nodes, OcstrxPlan, OcstrxRates
from topologies.infinitehbd.ring_wiring import build

SOURCE = "Shou et al., InfiniteHBD (SIGCOMM 2025), "


@dataclass(frozen=True)
class RingSettings:
    """The settings of a system, and of the job that needs rings.

    Args:
        dims: Domains of aggregation switches x ToRs of a domain x nodes of a ToR x GPUs of a node: unless given 2,880 GPUs
            (6.1); with 2 nodes of 8 GPUs a ToR, 256 a domain, 6.4's traffic comes out.
        k: Bundles of OCSTrx of a node; a run of fewer faulty nodes is passed. 2 or 3 (6.1).
        tp: GPUs of a ring, a multiple of those of a node: TP-32 (6.4).
        faulty: Faulty nodes, such as 3+17-19.
        job: GPUs for which rings are wanted: fewer leave more choice, so that less traffic leaves the ToRs.
        reconfiguration: Time that OCSTrx take to light other rings: 60 to 80 us (5.1).
    """

    dims: Dims = (1, 360, 2, 4)
    k: Count = 3
    tp: Count = 32
    faulty: Nodes = ()
    job: All = 0
    reconfiguration: Latency = TURN


_Plan = tuple[OcstrxPlan, RingSettings]


def _invariants(lit: _Plan) -> Invariants:
    """Return the invariants: every GPU has a link to each side, whatever the rings are, and one to the DCN."""
    npus, rates = lit[0].npus, lit[0].rates
    return Invariants(4 * npus, 3, 2, npus=npus, switches=1, injection_Bps=rates.bandwidth + rates.dcn, paths=1)


def _build(lit: _Plan) -> Topology:
    """Return the topology of a plan and the settings of its rings."""
    plan, asked = lit
    return build(plan, asked.faulty, asked.job)


@planned(
    "infinitehbd",
    _build,
    _invariants,
    source=f"{SOURCE}4.2 and 6.1",
    examples=(
        "dims=1x8x2x4,tp=16",
        "dims=1x4x2x4,k=2,tp=8,faulty=3",
        "dims=1x3x3x8,tp=24,faulty=4",
        "dims=2x3x4x4,k=4,tp=16,faulty=2+5-6,job=32",
        "dims=1x7x1x2,k=2,tp=2",
        "dims=1x6x2x5,k=5,tp=60",
    ),
    full=("", "dims=8x128x2x4", "dims=4x128x2x8", "dims=128x128x2x4", "dims=64x128x2x8"),
)
def ring(asked: RingSettings, rates: OcstrxRates) -> _Plan:
    """Join nodes by fibres to those up to K away on either side, lit as rings of TP GPUs around faults: the K-hop ring."""
    return OcstrxPlan("infinitehbd", asked.dims, asked.k, asked.tp, rates, turn_fs=asked.reconfiguration), asked


@planned(
    "infinitehbd:line",
    _build,
    _invariants,
    source=f"{SOURCE}4.2",
    examples=("dims=1x8x2x4,k=2,tp=16", "dims=1x4x2x4,tp=8,faulty=0+7", "dims=1x5x1x8,k=4,tp=40"),
    full=("", "dims=4x128x2x8"),
)
def line(asked: RingSettings, rates: OcstrxRates) -> _Plan:
    """Join nodes as the K-hop ring does, but without the fibres from the last nodes to the first: the K-hop line."""
    plan = OcstrxPlan("infinitehbd:line", asked.dims, asked.k, asked.tp, rates, closed=False, turn_fs=asked.reconfiguration)
    return plan, asked
