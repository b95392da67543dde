"""UB-Mesh's board and rack: NPUs in full meshes of copper, which relay for one another, and the back-planes of a rack.

Source: UB-Mesh 3.3.1, 3.3.2 and Table 3. X is a board of 8 NPUs, Y the 8 boards of a rack.
"""

from dataclasses import replace
from functools import partial
from typing import Any

from emu.topology.builders.grid import Dimension, grid
from emu.topology.catalogue import Dims, Invariants, topology
from emu.topology.topology import Topology
from topologies.ub_mesh.build import mesh_invariants, with_switches
from topologies.ub_mesh.mesh_routes.recovery import notify_and_reroute
from topologies.ub_mesh.mesh_routes.strategy import BASELINE, STRATEGIES, Routing, inside_words, mesh_router, without_hrs
from topologies.ub_mesh.parts import SOURCE, X4, Lane, MeshPlan, RackSettings, check, rates

_SOURCE = f"{SOURCE}, 3.3.1 and Table 3"
_SIDE = 8


def _mesh(name: str, n_dimensions: int, routing: str, lane: Lane) -> Topology:
    """Return the topology of a full mesh of NPUs, a board or a rack without its switches."""
    without_hrs(name, routing)
    npus = _SIDE**n_dimensions
    dimensions = [Dimension(_SIDE, "complete", lane.x4, lane.latency)] * n_dimensions
    bill = {"NPU": npus, f"link x{X4}": npus * n_dimensions * (_SIDE - 1) // 2}
    assumptions = (
        *rates(lane),
        f"links between NPUs are x{X4}: it is what closes an NPU's 72 lanes, of which 16 go to the back-plane",
        inside_words(routing),
    )
    mesh = grid(name, dimensions, bill=bill, assumptions=assumptions)
    return replace(mesh, router=mesh_router(mesh.router, mesh.dims, routing), mender=notify_and_reroute)


def _invariants(n_dimensions: int, routing: str, lane: Lane) -> Invariants:
    """Return the invariants of the topology by closed forms."""
    npus, degree = _SIDE**n_dimensions, n_dimensions * (_SIDE - 1)
    return Invariants(
        npus * degree, degree, n_dimensions, npus * _SIDE // 4 * lane.x4, shortest=not STRATEGIES[routing].detours
    )


_EXAMPLES = ("", "lane_rate=50Gb/s,latency=1us,routing=multipath", "routing=detour")


@topology("ub-mesh:board", source=_SOURCE, examples=_EXAMPLES, invariants=partial(_invariants, 1))
def board(*, routing: Routing = BASELINE, lane: Lane) -> Topology:
    """Link the 8 NPUs of a board in a full mesh: 28 links of x4, degree 7, diameter 1."""
    return _mesh("ub-mesh:board", 1, routing, lane)


@topology("ub-mesh:rack", source=_SOURCE, examples=_EXAMPLES, invariants=partial(_invariants, 2))
def rack(*, routing: Routing = BASELINE, lane: Lane) -> Topology:
    """Link 8 boards by full meshes of NPUs of equal place on them: 64 NPUs, 448 links of x4, diameter 2."""
    return _mesh("ub-mesh:rack", 2, routing, lane)


def _plan(dims: tuple[int, ...], inside: RackSettings, routing: str, lane: Lane) -> tuple[MeshPlan, str]:
    """Return the plan of a whole rack, after its check, and its routing."""
    name = "ub-mesh:rack-full"
    return check(MeshPlan(name, dims, inside, lane), 2), without_hrs(name, routing)


def _full_invariants(**settings: Any) -> Invariants:
    """Return the invariants of the full topology by closed forms."""
    return mesh_invariants(*_plan(**settings))


@topology(
    "ub-mesh:rack-full",
    source=f"{SOURCE}, 3.3.1, 3.3.2 and Table 3",
    examples=(
        "",
        "dims=3x2,planes=2,backup=8",
        "dims=2x4,lanes=8,lane_rate=50Gb/s,routing=detour",
        "dims=4x4,planes=1,latency=1us,routing=multipath",
    ),
    invariants=_full_invariants,
)
def rack_full(dims: Dims = (_SIDE, _SIDE), *, inside: RackSettings, routing: Routing = BASELINE, lane: Lane) -> Topology:
    """Add back-planes to the rack: 64 NPUs as in ub-mesh:rack, then 4 planes of 18 LRS, then the backup NPU."""
    return with_switches(*_plan(dims, inside, routing, lane))
