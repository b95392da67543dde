"""UB-Mesh's board and rack: NPUs in full meshes of copper, which they relay for one another.

Liao et al., UB-Mesh: a Hierarchically Localized nD-FullMesh Datacenter Network Architecture (arXiv:2503.20377), 3.3.1
and Table 3. X is a board of 8 NPUs, Y the 8 boards of a rack. Only the links between NPUs: the back-plane's are not here.
"""

from emu.topology.catalogue import Bandwidth, Invariants, Latency, topology
from emu.topology.grid import Dimension, grid
from emu.topology.topology import Topology

_SOURCE = "Liao et al., UB-Mesh (arXiv:2503.20377), 3.3.1 and Table 3"
_SIDE = 8
_LANES = 4  # of each link: an NPU's 72 are 7 x 4 in X, 7 x 4 in Y and 16 to the back-plane
_LANE_RATE = 14e9  # bytes per second, one direction: 112 Gb/s
_LATENCY = 300_000_000  # ticks: 300 ns


def _mesh(name: str, n_dimensions: int, lane_rate: float, latency: int) -> Topology:
    npus = _SIDE**n_dimensions
    dimensions = [Dimension(_SIDE, "complete", _LANES * lane_rate, latency)] * n_dimensions
    bill = {"NPU": npus, f"link x{_LANES}": npus * n_dimensions * (_SIDE - 1) // 2}
    return grid(name, dimensions, bill=bill, assumptions=_assumptions(lane_rate, latency))


def _assumptions(lane_rate: float, latency: int) -> tuple[str, ...]:
    gbit, nanoseconds = lane_rate * 8 / 1e9, latency / 1e6
    return (
        f"a lane carries {gbit:g} Gb/s a direction, so a link of x{_LANES} {gbit * _LANES / 8:g} GB/s (no rate is published)",
        f"a link takes {nanoseconds:g} ns (no latency is published)",
        f"links between NPUs are x{_LANES}: it is what closes an NPU's 72 lanes, of which 16 go to the back-plane",
        "messages off row and column go X, then Y, cut through by one NPU; back-plane switches carry none of them",
    )


def _invariants(n_dimensions: int, lane_rate: float) -> Invariants:
    npus, degree = _SIDE**n_dimensions, n_dimensions * (_SIDE - 1)
    return Invariants(npus * degree, degree, n_dimensions, npus * _SIDE // 4 * _LANES * lane_rate)


def _board_invariants(lane_rate: float = _LANE_RATE, latency: int = _LATENCY) -> Invariants:
    return _invariants(1, lane_rate)


def _rack_invariants(lane_rate: float = _LANE_RATE, latency: int = _LATENCY) -> Invariants:
    return _invariants(2, lane_rate)


@topology("ub-mesh:board", source=_SOURCE, examples=("", "lane_rate=50Gb/s,latency=1us"), invariants=_board_invariants)
def board(lane_rate: Bandwidth = _LANE_RATE, latency: Latency = _LATENCY) -> Topology:
    """A board of 8 NPUs in a full mesh: 28 links of x4, degree 7, diameter 1."""
    return _mesh("ub-mesh:board", 1, lane_rate, latency)


@topology("ub-mesh:rack", source=_SOURCE, examples=("", "lane_rate=50Gb/s,latency=1us"), invariants=_rack_invariants)
def rack(lane_rate: Bandwidth = _LANE_RATE, latency: Latency = _LATENCY) -> Topology:
    """A rack of 8 boards, NPUs of equal place on them in a full mesh too: 64 NPUs, 448 links of x4, diameter 2."""
    return _mesh("ub-mesh:rack", 2, lane_rate, latency)
