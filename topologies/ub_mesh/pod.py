"""UB-Mesh from its board to its data-center network: the topologies of the catalogue, and their invariants.

- Board and rack (UB-Mesh 3.3.1, 3.3.2 and Table 3): NPUs in full meshes of copper, which relay for one another, and the
  back-planes of a rack. X is a board of 8 NPUs, Y the 8 boards of a rack.
- Pod and SuperPod (3.3.3, 3.3.4 and 6.3): a pod is 4 x 4 racks, a full mesh along rows (Z) and columns (alpha). A SuperPod is 8
  pods in which each rack has an x4 to each of 64 HRS; in a variant, racks are joined by HRS alone. With 1, 2, 4, 8 planes an
  NPU has x4, x8, x16, x32 out of its rack (Figure 20).
- Beyond the SuperPod (3.3.4): SuperPods under a Clos of the data-center network (DCN). Each rack is joined to it by the NICs of
  its CPU board (solution (b)) or by UB switches (solution (a)).

The backup NPU of a rack (64+1) takes the place of a failed NPU (3.3.2 and Figure 9). Letters: R racks of Y boards of X NPUs;
racks are in alpha columns and Z rows of a pod.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from math import comb, prod

import numpy as np

from emu.arrays import I64, column
from emu.topology.builders.grid import Dimension, grid
from emu.topology.builders.wiring import wire
from emu.topology.catalogue import Build, Dims, Invariants, planned, topology
from emu.topology.gang_rule import within_units
from emu.topology.topology import FailedParts, Placer, Reaction, Topology
from topologies.ub_mesh.mesh_routes.mesh_routing import relays, router
from topologies.ub_mesh.mesh_routes.mesh_shifts import shifts
from topologies.ub_mesh.mesh_routes.strategy import (
    BASELINE,
    STRATEGIES,
    Route,
    inside_words,
    mesh_router,
    notify_and_reroute,
    without_hrs,
)
from topologies.ub_mesh.parts import (
    DCN_PORTS,
    NPU_LANES,
    SOURCE,
    SPARE_LANES,
    SPARES,
    UPLINKS,
    X2,
    X4,
    DcnSettings,
    Lane,
    MeshPlan,
    RackSettings,
    check,
    npu_lanes,
    rates,
)
from topologies.ub_mesh.wires import cables, drawing, tiers


def placer(plan: MeshPlan, failed: Sequence[int] = ()) -> Placer:
    """Return the placement of ranks on the NPUs in order; the backup NPU of a rack takes the place of a failed NPU.

    Args:
        plan: The sizes of the UB-Mesh.
        failed: Failed nodes; a failed backup NPU takes no place.
    """
    backups = np.setdiff1d(plan.first_backup + np.arange(plan.racks), failed)
    return partial(_npus_of_ranks, plan, backups)


def _npus_of_ranks(plan: MeshPlan, backups: I64, n_ranks: int, faulty: I64) -> I64:
    """Return all NPUs that ranks can use, in order; the backup NPU of a rack replaces its first faulty NPU.

    The backup NPU of a rack takes the place of the first faulty NPU of that rack. Other faulty NPUs are left out.

    Args:
        plan: The sizes of the UB-Mesh.
        backups: The backup NPUs that work.
        n_ranks: The number of ranks; it changes nothing.
        faulty: The faulty NPUs.
    """
    npus = np.arange(plan.npus)
    rack, first = np.unique(faulty // plan.rack, return_index=True)
    spared = np.isin(plan.first_backup + rack, backups)
    npus[faulty[first[spared]]] = plan.first_backup + rack[spared]
    return column(np.setdiff1d(npus, faulty, assume_unique=True), np.int64)


def repair_with_backups(plan: MeshPlan, whole: Topology, broken: FailedParts, ranks: int, was: FailedParts) -> Reaction:
    """Return the reaction of a machine with backup NPUs to failed parts.

    Messages take other paths, and backup NPUs take the places of failed NPUs. The arguments are those of a `FaultHandler`,
    after the plan.
    """
    return notify_and_reroute(replace(whole, placer=placer(plan, broken.nodes)), broken, ranks, was)


def with_switches(plan: MeshPlan) -> Topology:
    """Return the topology of a plan that has passed `check`.

    Raises:
        InputError: There are more than 2**24 links, or links have no bandwidth.
    """
    links, laid = wire(plan.name, cables(plan).values())
    lrs = plan.racks * plan.planes * plan.plane
    parts = {"NPU": plan.npus, "backup NPU": plan.racks, "LRS": lrs, "HRS": plan.hrs}
    parts |= {"CPU": plan.cpus, "DCN switch": plan.leaves + plan.spines}
    own, spray = router(plan, links)
    return Topology(
        plan.name,
        plan.npus,
        plan.nodes,
        links,
        own,
        plan.dims,
        {kind: count for kind, count in (parts | laid).items() if count},
        (*rates(plan.lane), *_ports(plan), *_path_words(plan)),
        tiers(plan),
        placer(plan),
        partial(drawing, plan),
        spray=spray,
        symmetry=None if STRATEGIES[plan.route].chooses else partial(shifts, plan),
        relays=relays(plan),
        gangs=within_units(plan.rack),
        backups=True,
        fault_handler=partial(repair_with_backups, plan),
    )


def _ports(plan: MeshPlan) -> tuple[str, ...]:
    """Return the sentences about the links of an NPU and of a back-plane."""
    y, x = plan.dims[-2:]
    used, backup = npu_lanes(plan), plan.inside.backup
    return (
        f"links between NPUs are x{plan.inside.lanes} and an NPU has x{X4} to each of {plan.planes} back-planes: "
        f"{used} of its {NPU_LANES} lanes (the split is not printed)",
        f"a back-plane has {y} LRS, one a board, {x} to other racks and {SPARES} to CPUs and the backup NPU, an x{X4} between "
        "any two of different groups (all to all would take more lanes than an LRS has)",
        f"the backup NPU has x{backup} to each of these {SPARES}, which keep x{SPARE_LANES - backup} each for CPUs "
        f"({'one, which leads to the DCN' if plan.cpus else 'not nodes here'})",
    )


def _path_words(plan: MeshPlan) -> tuple[str, ...]:
    """Return the sentences about how racks are joined and how messages take these links."""
    inside = inside_words(plan.route)
    if plan.racks == 1:
        return (inside,)
    width = X4 * plan.planes * plan.dims[-1]
    mesh = (
        f"the x{width} between two racks of a row or a column is an x{X4} from each LRS to its like (which LRS is not said)",
        f"racks of a pod are joined by {_paths_between_racks(plan.route)}; "
        + (
            "each message is split evenly over them and the LRS that lead out"
            if STRATEGIES[plan.route].sprays
            else "each message takes the one of them and of the LRS that lead out with the least on it when it starts"
            if STRATEGIES[plan.route].chooses
            else "messages take them and the LRS that lead out by turns, over the NPUs of both racks and the channels, from "
            "where a hash of how the racks lie says (how they are chosen is not said)"
        ),
    )
    hrs = (f"each HRS has an x{X4} from every rack, {plan.uplinks} HRS on each LRS (how racks are cabled to HRS is not said)",)
    return (
        inside,
        *(mesh if plan.meshed else ()),
        *(hrs if plan.uplinks else ()),
        *(_dcn(plan, plan.beyond) if plan.beyond else ()),
    )


def _dcn(plan: MeshPlan, beyond: DcnSettings) -> tuple[str, ...]:
    """Return the sentences about the links to the DCN."""
    ports = plan.planes * SPARES
    via = {
        "nic": f"a rack has one CPU of x{ports * X4}, an x{X4} from each LRS for CPUs, and on it {ports} NICs of "
        f"{beyond.nic_rate * 8 / 1e9:g} Gb/s to the DCN (solution (b); neither is printed), which a message cuts through",
        "ub": f"each LRS for CPUs has an x{X2} to a UB switch of the DCN, {ports} a rack (solution (a); lanes are not printed)",
    }[beyond.via]
    return (
        via,
        f"the DCN is a Clos of two tiers, nothing oversubscribed, of switches of {DCN_PORTS} ports: {plan.leaves} leaves, each "
        f"of one LRS or NIC of all racks of a SuperPod, and {plan.spines} spines (its switches and tiers are not printed)",
    )


_DETOUR = "paths of at most one rack more than the shortest, of which no two share a link, on 2 virtual lanes free of deadlock"


def _paths_between_racks(route: str) -> str:
    """Return a phrase on the paths by which a strategy joins the racks of a pod."""
    strategy = STRATEGIES[route]
    if strategy.borrow:
        return f"{_DETOUR}, and over HRS" + ("" if strategy.chooses else f", with a part for each cable of x{X4} to them")
    return _DETOUR if strategy.detours else f"the shortest paths{', which channels alternate between' * (route == 'multipath')}"


def mesh_invariants(plan: MeshPlan) -> Invariants:
    """Return the invariants of a plan's topology.

    The halves with the least bandwidth between them are made of pods, or else of racks of a row or a column, if their number is
    even.
    """
    pods, a, z, y, x = plan.five
    degree = x - 1 + y - 1 + plan.planes
    lrs = plan.planes * ((y + x) * SPARES + y * x)
    beyond = plan.racks * plan.planes * SPARES * (1 + bool(plan.cpus)) * bool(plan.beyond) + plan.leaves * plan.spines
    inside = plan.rack * plan.planes + lrs + plan.planes * SPARES + y * comb(x, 2) + x * comb(y, 2)
    exits = plan.planes * x
    between = pods * exits * (a * comb(z, 2) + z * comb(a, 2)) * plan.meshed + plan.racks * exits * plan.uplinks
    return Invariants(
        2 * (plan.racks * inside + between + beyond),
        degree,
        _diameter(plan),
        _bisection(plan),
        shortest=not STRATEGIES[plan.route].detours,
        npus=plan.npus,
        switches=plan.nodes - plan.npus,
        injection_Bps=npu_lanes(plan) * plan.lane.lane_rate,
        paths=_paths(plan),
    )


def _diameter(plan: MeshPlan) -> int:
    """Return the number of links on a shortest path between the two NPUs farthest apart.

    A message takes at most two links in a rack. To another rack it takes two links up, those between racks, and two down. To
    another SuperPod it goes up to a spine and down.
    """
    pods, a, z, y, x = plan.five
    if plan.superpods > 1:
        return 8 + 2 * bool(plan.cpus)
    across = 2 if pods > 1 or not plan.meshed else (a > 1) + (z > 1)
    return 4 + across if plan.racks > 1 else (y > 1) + (x > 1)


def _paths(plan: MeshPlan) -> int | None:
    """Return the number of shortest paths between the farthest NPUs; None if it differs between such pairs."""
    pods, a, z, y, x = plan.five
    exits = plan.planes * x
    if plan.superpods > 1:
        ports = plan.planes * SPARES  # with NICs, any of them leads on from any LRS
        return plan.spines * ports ** (4 if plan.cpus else 2)
    if pods > 1 or (plan.racks > 1 and not plan.meshed):
        return exits * plan.uplinks
    if plan.racks > 1 and not plan.uplinks:
        return exits * ((a > 1) + (z > 1))
    return 2 if plan.racks == 1 and min(y, x) > 1 else None


def _bisection(plan: MeshPlan) -> float | None:
    """Return the bisection bandwidth (B/s, one way); None if no dimension can be halved.

    Half of the SuperPods cut all links that lead out of them. Half of the pods cut half of the cables to HRS. Half of the rows
    or columns cut (s/2)² of the s (s-1)/2 links between racks of a line.
    """
    pods, a, z, _, x = plan.five
    exits = plan.planes * x
    if plan.beyond and plan.superpods > 1:
        rate = plan.beyond.nic_rate if plan.cpus else X2 * plan.lane.lane_rate
        return plan.superpods // 2 * plan.spines * plan.planes * SPARES * rate if plan.superpods % 2 == 0 else None
    if plan.uplinks and pods % 2 == 0:
        return min(plan.racks // 2 * exits * plan.uplinks, plan.npus // 2 * plan.planes) * plan.lane.x4
    sizes = [s for s in (a, z) if s % 2 == 0]
    if plan.uplinks or not sizes:
        return None
    return min(prod((a, z)) // s * (s // 2) ** 2 for s in sizes) * exits * plan.lane.x4


_SOURCE = f"{SOURCE}, 3.3.1 and Table 3"
_SIDE = 8


def _mesh(name: str, n_dimensions: int, route: str, lane: Lane) -> Topology:
    """Return the topology of a full mesh of NPUs: a board, or a rack without its switches."""
    without_hrs(name, route)
    npus = _SIDE**n_dimensions
    dimensions = [Dimension(_SIDE, "complete", lane.x4, lane.latency)] * n_dimensions
    bill = {"NPU": npus, f"link x{X4}": npus * n_dimensions * (_SIDE - 1) // 2}
    assumptions = (
        *rates(lane),
        f"links between NPUs are x{X4}: it is what closes an NPU's 72 lanes, of which 16 go to the back-plane",
        inside_words(route),
    )
    mesh = grid(name, dimensions, bill=bill, assumptions=assumptions)
    own, spray = mesh_router(mesh.router, mesh.dims, route)
    alike = None if STRATEGIES[route].chooses else mesh.symmetry
    return replace(mesh, router=own, spray=spray, symmetry=alike, fault_handler=notify_and_reroute)


def _rack_invariants(n_dimensions: int, route: str, lane: Lane) -> Invariants:
    """Return the invariants of the topology by closed forms."""
    npus, degree = _SIDE**n_dimensions, n_dimensions * (_SIDE - 1)
    return Invariants(npus * degree, degree, n_dimensions, npus * _SIDE // 4 * lane.x4, shortest=not STRATEGIES[route].detours)


_EXAMPLES = (
    "",
    "lane_rate=50Gb/s,latency=1us,route=multipath",
    "route=detour",
    "route=spray-detour",
    "route=least-loaded-detour",
)


@topology("ub-mesh:board", source=_SOURCE, examples=_EXAMPLES, invariants=partial(_rack_invariants, 1))
def board(*, route: Route = BASELINE, lane: Lane) -> Topology:
    """Link the 8 NPUs of a board in a full mesh: 28 links of x4, degree 7, diameter 1."""
    return _mesh("ub-mesh:board", 1, route, lane)


@topology("ub-mesh:rack", source=_SOURCE, examples=_EXAMPLES, invariants=partial(_rack_invariants, 2))
def rack(*, route: Route = BASELINE, lane: Lane) -> Topology:
    """Link 8 boards by full meshes of the NPUs at equal places on them: 64 NPUs, 448 links of x4, diameter 2."""
    return _mesh("ub-mesh:rack", 2, route, lane)


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
        "dims=2x4,lanes=8,lane_rate=50Gb/s,route=detour",
        "dims=4x4,planes=1,latency=1us,route=multipath",
    ),
)
def rack_full(dims: Dims = (_SIDE, _SIDE), *, inside: RackSettings, route: Route = BASELINE, lane: Lane) -> MeshPlan:
    """Add back-planes to the rack: 64 NPUs as in ub-mesh:rack, then 4 planes of 18 LRS, then the backup NPU."""
    name = "ub-mesh:rack-full"
    return check(MeshPlan(name, dims, inside, lane, route=without_hrs(name, route)), 2)


_POD = (4, 4, 8, 8)
_SUPERPOD = (8, *_POD)
_DIMS = (8, 8, 4, 4, 8, 8)


@_with_switches(
    "ub-mesh:pod",
    "3.3.3",
    ("dims=2x2x4x4", "dims=2x2x2x2", "dims=3x2x2x3,planes=2,route=detour", "dims=1x4x2x2,lane_rate=50Gb/s"),
    ("", "planes=1", "planes=8,lanes=2"),
)
def pod(dims: Dims = _POD, *, inside: RackSettings, route: Route = BASELINE, lane: Lane) -> MeshPlan:
    """Link alpha x Z racks in a pod, x128 between any two racks of a row or a column: a 4D full mesh of 1024 NPUs."""
    return check(MeshPlan("ub-mesh:pod", dims, inside, lane, route=without_hrs("ub-mesh:pod", route)), 4)


@_with_switches(
    "ub-mesh:superpod",
    "3.3.4",
    (
        "dims=2x2x2x2x4",
        "dims=2x2x2x2x2,route=detour",
        "dims=3x2x1x2x3,planes=2,route=borrow",
        "dims=2x1x3x2x2,lane_rate=50Gb/s,route=multipath",
        "dims=2x2x3x2x2,planes=2,route=spray-borrow",
        "dims=2x2x3x2x2,planes=2,route=least-loaded-borrow",
    ),
    ("", "route=detour", "route=borrow", "planes=8,lanes=2", "planes=1"),
)
def superpod(dims: Dims = _SUPERPOD, *, inside: RackSettings, route: Route = BASELINE, lane: Lane) -> MeshPlan:
    """Join pods by one tier of HRS, with 256 lanes from each rack: 8192 NPUs, 9216 LRS, 64 HRS."""
    return check(MeshPlan("ub-mesh:superpod", dims, inside, lane, uplinks=UPLINKS, route=route), 5)


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
        "dims=3x1x2x1x2x3,planes=2,via=ub,route=borrow",
        "dims=2x2x2x1x2x2,planes=1,nic_rate=400Gb/s,route=detour",
        "dims=2x1x1x3x3x2,via=ub,lane_rate=50Gb/s",
    ),
    ("", "via=ub"),
)
def dcn(dims: Dims = _DIMS, *, inside: RackSettings, beyond: DcnSettings, route: Route = BASELINE, lane: Lane) -> MeshPlan:
    """Join SuperPods by a Clos of two tiers that a rack reaches by 8 NICs: 65,536 NPUs, 64 leaves, 128 spines."""
    return check(MeshPlan("ub-mesh:dcn", dims, inside, lane, uplinks=UPLINKS, beyond=beyond, route=route), 6)
