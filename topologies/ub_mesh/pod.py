"""UB-Mesh's pod and SuperPod, and the SuperPod whose racks are joined by HRS alone.

Source: UB-Mesh 3.3.3, 3.3.4 and 6.3. A pod is 4 x 4 racks, a full mesh along rows (Z) and columns (alpha). A SuperPod is 8 pods
in which each rack has an x4 to each of 64 HRS. With 1, 2, 4, 8 planes an NPU has x4, x8, x16, x32 out of its rack (Figure 20).

Also here: UB-Mesh beyond the SuperPod: SuperPods under a Clos of the data centre's network (UB-Mesh 3.3.4).

Each rack is joined to it by the NICs of its CPU board (solution (b)) or by UB switches (solution (a)).

UB-Mesh's board and rack: NPUs in full meshes of copper, which relay for one another, and the back-planes of a rack.

Source: UB-Mesh 3.3.1, 3.3.2 and Table 3. X is a board of 8 NPUs, Y the 8 boards of a rack.
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial

from emu.topology.builders.grid import Dimension, grid
from emu.topology.catalogue import Build, Dims, Invariants, planned, topology
from emu.topology.topology import Topology
from topologies.ub_mesh.build import mesh_invariants, with_switches
from topologies.ub_mesh.mesh_routes.recovery import notify_and_reroute
from topologies.ub_mesh.mesh_routes.strategy import BASELINE, STRATEGIES, Routing, inside_words, mesh_router, without_hrs
from topologies.ub_mesh.parts import SOURCE, UPLINKS, X4, DcnSettings, Lane, MeshPlan, RackSettings, check, rates

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


def _rack_invariants(n_dimensions: int, routing: str, lane: Lane) -> Invariants:
    """Return the invariants of the topology by closed forms."""
    npus, degree = _SIDE**n_dimensions, n_dimensions * (_SIDE - 1)
    return Invariants(
        npus * degree, degree, n_dimensions, npus * _SIDE // 4 * lane.x4, shortest=not STRATEGIES[routing].detours
    )


_EXAMPLES = ("", "lane_rate=50Gb/s,latency=1us,routing=multipath", "routing=detour")


@topology("ub-mesh:board", source=_SOURCE, examples=_EXAMPLES, invariants=partial(_rack_invariants, 1))
def board(*, routing: Routing = BASELINE, lane: Lane) -> Topology:
    """Link the 8 NPUs of a board in a full mesh: 28 links of x4, degree 7, diameter 1."""
    return _mesh("ub-mesh:board", 1, routing, lane)


@topology("ub-mesh:rack", source=_SOURCE, examples=_EXAMPLES, invariants=partial(_rack_invariants, 2))
def rack(*, routing: Routing = BASELINE, lane: Lane) -> Topology:
    """Link 8 boards by full meshes of NPUs of equal place on them: 64 NPUs, 448 links of x4, diameter 2."""
    return _mesh("ub-mesh:rack", 2, routing, lane)


def _with_switches(
    name: str, section: str, examples: tuple[str, ...], full: tuple[str, ...] = ()
) -> Callable[[Callable[..., MeshPlan]], Build]:
    """Return a decorator that files a function from settings to a plan with switches as a topology."""
    return planned(name, with_switches, mesh_invariants, source=f"{SOURCE}, {section}", examples=examples, full=full)


@_with_switches(
    "ub-mesh:rack-full",
    "3.3.1, 3.3.2 and Table 3",
    (
        "",
        "dims=3x2,planes=2,backup=8",
        "dims=2x4,lanes=8,lane_rate=50Gb/s,routing=detour",
        "dims=4x4,planes=1,latency=1us,routing=multipath",
    ),
)
def rack_full(dims: Dims = (_SIDE, _SIDE), *, inside: RackSettings, routing: Routing = BASELINE, lane: Lane) -> MeshPlan:
    """Add back-planes to the rack: 64 NPUs as in ub-mesh:rack, then 4 planes of 18 LRS, then the backup NPU."""
    name = "ub-mesh:rack-full"
    return check(MeshPlan(name, dims, inside, lane, routing=without_hrs(name, routing)), 2)


_POD = (4, 4, 8, 8)
_SUPERPOD = (8, *_POD)
_DIMS = (8, 8, 4, 4, 8, 8)


@_with_switches(
    "ub-mesh:pod",
    "3.3.3",
    ("dims=2x2x4x4", "dims=2x2x2x2", "dims=3x2x2x3,planes=2,routing=detour", "dims=1x4x2x2,lane_rate=50Gb/s"),
    ("", "planes=1", "planes=8,lanes=2"),
)
def pod(dims: Dims = _POD, *, inside: RackSettings, routing: Routing = BASELINE, lane: Lane) -> MeshPlan:
    """Link alpha x Z racks in a pod, x128 from each to each other of its row and column: a 4D full mesh of 1024 NPUs."""
    return check(MeshPlan("ub-mesh:pod", dims, inside, lane, routing=without_hrs("ub-mesh:pod", routing)), 4)


@_with_switches(
    "ub-mesh:superpod",
    "3.3.4",
    (
        "dims=2x2x2x2x4",
        "dims=2x2x2x2x2,routing=detour",
        "dims=3x2x1x2x3,planes=2,routing=borrow",
        "dims=2x1x3x2x2,lane_rate=50Gb/s,routing=multipath",
    ),
    ("", "routing=detour", "routing=borrow", "planes=8,lanes=2", "planes=1"),
)
def superpod(dims: Dims = _SUPERPOD, *, inside: RackSettings, routing: Routing = BASELINE, lane: Lane) -> MeshPlan:
    """Join pods by one tier of HRS, x256 from each rack: 8192 NPUs, 9216 LRS, 64 HRS."""
    return check(MeshPlan("ub-mesh:superpod", dims, inside, lane, uplinks=UPLINKS, routing=routing), 5)


@_with_switches(
    "ub-mesh:superpod-clos",
    "6.3 and Figure 18(b)",
    ("dims=2x2x2x2x2", "dims=2x1x2x4x3,planes=2", "dims=3x1x1x2x4"),
    ("",),
)
def superpod_clos(dims: Dims = _SUPERPOD, *, inside: RackSettings, lane: Lane) -> MeshPlan:
    """Join the racks of UB-Mesh by HRS with all their lanes and none between racks: 8192 NPUs, 256 HRS."""
    uplinks = sum(dims[-2:-1])  # as many cables out of an LRS as it has from boards
    return check(MeshPlan("ub-mesh:superpod-clos", dims, inside, lane, meshed=False, uplinks=uplinks), 5)


@_with_switches(
    "ub-mesh:dcn",
    "3.3.4",
    (
        "dims=2x2x1x2x2x2",
        "dims=3x1x2x1x2x3,planes=2,via=ub,routing=borrow",
        "dims=2x2x2x1x2x2,planes=1,nic_rate=400Gb/s,routing=detour",
        "dims=2x1x1x3x3x2,via=ub,lane_rate=50Gb/s",
    ),
    ("", "via=ub"),
)
def dcn(dims: Dims = _DIMS, *, inside: RackSettings, beyond: DcnSettings, routing: Routing = BASELINE, lane: Lane) -> MeshPlan:
    """Join SuperPods by a Clos of two tiers that a rack reaches by 8 NICs: 65,536 NPUs, 64 leaves, 128 spines."""
    return check(MeshPlan("ub-mesh:dcn", dims, inside, lane, uplinks=UPLINKS, beyond=beyond, routing=routing), 6)
