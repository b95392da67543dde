"""UB-Mesh beyond the SuperPod: SuperPods under a Clos of the data centre's network (UB-Mesh 3.3.4).

Each rack is joined to it by the NICs of its CPU board (solution (b)) or by UB switches (solution (a)).
"""

from typing import Any

from emu.topology.catalogue import Dims, Invariants, topology
from emu.topology.topology import Topology
from topologies.ub_mesh.build import mesh_invariants, with_switches
from topologies.ub_mesh.mesh_routes.strategy import BASELINE, Routing
from topologies.ub_mesh.parts import SOURCE, UPLINKS, DcnSettings, Lane, MeshPlan, RackSettings, check

_DIMS = (8, 8, 4, 4, 8, 8)


def _plan(dims: tuple[int, ...], inside: RackSettings, beyond: DcnSettings, routing: str, lane: Lane) -> tuple[MeshPlan, str]:
    """Return the plan of SuperPods with a DCN, after its check, and its routing."""
    return check(MeshPlan("ub-mesh:dcn", dims, inside, lane, uplinks=UPLINKS, beyond=beyond), 6), routing


def _invariants(**settings: Any) -> Invariants:
    """Return the invariants of the topology by closed forms."""
    return mesh_invariants(*_plan(**settings))


@topology(
    "ub-mesh:dcn",
    source=f"{SOURCE}, 3.3.4",
    examples=(
        "dims=2x2x1x2x2x2",
        "dims=3x1x2x1x2x3,planes=2,via=ub,routing=borrow",
        "dims=2x2x2x1x2x2,planes=1,nic_rate=400Gb/s,routing=detour",
        "dims=2x1x1x3x3x2,via=ub,lane_rate=50Gb/s",
    ),
    invariants=_invariants,
    full=("", "via=ub"),
)
def dcn(dims: Dims = _DIMS, *, inside: RackSettings, beyond: DcnSettings, routing: Routing = BASELINE, lane: Lane) -> Topology:
    """Join SuperPods by a Clos of two tiers that a rack reaches by 8 NICs: 65,536 NPUs, 64 leaves, 128 spines."""
    return with_switches(*_plan(dims, inside, beyond, routing, lane))
