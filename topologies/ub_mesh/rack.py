"""UB-Mesh's board and rack: NPUs in full meshes of copper, which they relay for one another, and a rack's back-planes.

UB-Mesh 3.3.1, 3.3.2 and Table 3. X is a board of 8 NPUs, Y the 8 boards of a rack.
"""

from functools import partial
from typing import Any

from emu.topology.catalogue import Dims, Invariants, topology
from emu.topology.grid import Dimension, grid
from emu.topology.topology import Topology
from topologies.ub_mesh.build import known, with_switches
from topologies.ub_mesh.parts import SOURCE, X4, Inside, Lane, Plan, check, rates

_SOURCE = f"{SOURCE}, 3.3.1 and Table 3"
_SIDE = 8


def _mesh(name: str, n_dimensions: int, lane: Lane) -> Topology:
    npus = _SIDE**n_dimensions
    dimensions = [Dimension(_SIDE, "complete", lane.x4, lane.latency)] * n_dimensions
    bill = {"NPU": npus, f"link x{X4}": npus * n_dimensions * (_SIDE - 1) // 2}
    assumptions = (
        *rates(lane),
        f"links between NPUs are x{X4}: it is what closes an NPU's 72 lanes, of which 16 go to the back-plane",
        "messages off row and column go X, then Y, cut through by one NPU; back-plane switches carry none of them",
    )
    return grid(name, dimensions, bill=bill, assumptions=assumptions)


def _invariants(n_dimensions: int, lane: Lane) -> Invariants:
    npus, degree = _SIDE**n_dimensions, n_dimensions * (_SIDE - 1)
    return Invariants(npus * degree, degree, n_dimensions, npus * _SIDE // 4 * lane.x4)


_EXAMPLES = ("", "lane_rate=50Gb/s,latency=1us")


@topology("ub-mesh:board", source=_SOURCE, examples=_EXAMPLES, invariants=partial(_invariants, 1))
def board(lane: Lane) -> Topology:
    """A board of 8 NPUs in a full mesh: 28 links of x4, degree 7, diameter 1."""
    return _mesh("ub-mesh:board", 1, lane)


@topology("ub-mesh:rack", source=_SOURCE, examples=_EXAMPLES, invariants=partial(_invariants, 2))
def rack(lane: Lane) -> Topology:
    """A rack of 8 boards, NPUs of equal place on them in a full mesh too: 64 NPUs, 448 links of x4, diameter 2."""
    return _mesh("ub-mesh:rack", 2, lane)


def _plan(dims: tuple[int, ...], inside: Inside, lane: Lane) -> Plan:
    return check(Plan("ub-mesh:rack-full", dims, inside, lane), 2)


def _full_invariants(**settings: Any) -> Invariants:
    return known(_plan(**settings))


@topology(
    "ub-mesh:rack-full",
    source=f"{SOURCE}, 3.3.1, 3.3.2 and Table 3",
    examples=("", "dims=3x2,planes=2,backup=8", "dims=2x4,lanes=8,lane_rate=50Gb/s", "dims=4x4,planes=1,latency=1us"),
    invariants=_full_invariants,
)
def rack_full(dims: Dims = (_SIDE, _SIDE), *, inside: Inside, lane: Lane) -> Topology:
    """The rack with its back-planes: 64 NPUs as in ub-mesh:rack, then 4 planes of 18 LRS, then the backup NPU."""
    return with_switches(_plan(dims, inside, lane))
