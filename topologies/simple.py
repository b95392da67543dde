"""The textbook's topologies: switch, ring, full mesh, torus, hypercube.

No rate has a default: bandwidth and latency must be given.

Source: Dally and Towles, Principles and Practices of Interconnection Networks (2004), ch. 3 and 5. N NPUs, B a link's
bandwidth.

The ideal with which other topologies are compared: every NPU on one switch without forwarding latency.

Source: InfiniteHBD (SIGCOMM 2025), 6.1: Big-Switch.
"""

from math import factorial, prod

from emu.errors import must_be
from emu.topology.builders.clos import Tier, clos
from emu.topology.builders.grid import Dimension, grid
from emu.topology.builders.wiring import star
from emu.topology.catalogue import Bandwidth, Count, Dims, Invariants, Latency, topology
from emu.topology.topology import Topology
from emu.units import format_bandwidth, format_time, seconds

_BANDWIDTH = 800e9  # bytes per second, one direction: 6.4 Tb/s a GPU (InfiniteHBD, Table 8)


def _switch_invariants(n: int, bandwidth: float, **_: object) -> Invariants:
    """Return the invariants of NPUs on one switch by closed forms."""
    return Invariants(2 * n, 1, 2 * (n > 1), n // 2 * bandwidth, npus=n, switches=1, injection_Bps=bandwidth)


@topology(
    "big-switch",
    source="InfiniteHBD (SIGCOMM 2025), 6.1 and Table 8",
    examples=("n=8", "n=1", "n=3,bandwidth=50GB/s,latency=300ns", "n=64"),
    full=("n=2880", "n=8192"),
    invariants=_switch_invariants,
)
def big_switch(n: Count, bandwidth: Bandwidth = _BANDWIDTH, latency: Latency = 0) -> Topology:
    """Join NPUs by one large switch without forwarding latency: the upper limit of communication and of fault resilience."""
    assumptions = (f"a GPU has {format_bandwidth(bandwidth)} one way, a hop takes {format_time(seconds(latency))}",)
    return clos("big-switch", [Tier(n, 1, bandwidth, latency, name="NPU to switch")], {"switch": 1}, assumptions)


_SOURCE = "Dally and Towles, Principles and Practices of Interconnection Networks (2004)"
_MAX_BITS = 19  # d 2^d links below 2**24
_LINK = "bandwidth=50GB/s,latency=500ns"


def _examples(*shapes: str) -> tuple[str, ...]:
    """Return example settings: shapes, each with a bandwidth and a latency."""
    return tuple(f"{shape},{_LINK}" for shape in shapes)


def _torus_invariants(dims: tuple[int, ...], bandwidth: float, **_: object) -> Invariants:
    """Return the invariants of the torus topology by closed forms."""
    npus, used, longest = prod(dims), sum(s > 1 for s in dims), max(dims)
    halved = 2 * npus // longest * bandwidth if longest % 2 == 0 else None
    return Invariants(2 * used * npus, 2 * used, sum(s // 2 for s in dims), halved)


def _ring_invariants(n: int, bandwidth: float, **_: object) -> Invariants:
    """Return the invariants of the ring topology by closed forms."""
    used = n > 1
    return Invariants(2 * n * used, 2 * used, n // 2, 2 * bandwidth * used)


def _mesh_invariants(n: int, bandwidth: float, **_: object) -> Invariants:
    """Return the invariants of the mesh topology by closed forms."""
    return Invariants(n * (n - 1), n - 1, int(n > 1), (n // 2) * (n - n // 2) * bandwidth)


def _hypercube_invariants(d: int, bandwidth: float, **_: object) -> Invariants:
    """Return the invariants of the hypercube topology by closed forms."""
    return Invariants(d * 2**d, d, d, 2 ** (d - 1) * bandwidth, npus=2**d, switches=0, paths=factorial(d))


@topology("switch", source=_SOURCE, examples=_examples("n=8", "n=1", "n=2", "n=5"), invariants=_switch_invariants)
def switch(n: Count, bandwidth: Bandwidth, latency: Latency) -> Topology:
    """Join NPUs by one switch that never blocks: degree 1, diameter 2 links, bisection N/2 B."""
    return star("switch", n, bandwidth, latency)


@topology("ring", source=_SOURCE, examples=_examples("n=8", "n=1", "n=2", "n=3", "n=9"), invariants=_ring_invariants)
def ring(n: Count, bandwidth: Bandwidth, latency: Latency) -> Topology:
    """Join NPUs in a cycle, a link to each side: degree 2, diameter N/2, bisection 2 B."""
    return grid("ring", [Dimension(n, "cycle", bandwidth, latency)])


@topology("full-mesh", source=_SOURCE, examples=_examples("n=8", "n=1", "n=2", "n=5"), invariants=_mesh_invariants)
def full_mesh(n: Count, bandwidth: Bandwidth, latency: Latency) -> Topology:
    """Link each NPU to every other: degree N-1, diameter 1, bisection N²/4 B."""
    return grid("full-mesh", [Dimension(n, "complete", bandwidth, latency)])


@topology(
    "torus",
    source=_SOURCE,
    examples=_examples("dims=4x4", "dims=4x3", "dims=3x5", "dims=2x2x2", "dims=5x1x4", "dims=1", "dims=3x2x2x2"),
    invariants=_torus_invariants,
)
def torus(dims: Dims, bandwidth: Bandwidth, latency: Latency) -> Topology:
    """Close a grid to a ring along each of D dimensions: degree 2D, diameter sum of d/2, bisection 2N/d B of the longest.

    A dimension of size 2 has two parallel links each way, one of size 1 has none. The last dimension is numbered fastest and
    comes first in routes.
    """
    return grid("torus", [Dimension(size, "cycle", bandwidth, latency) for size in dims])


@topology("hypercube", source=_SOURCE, examples=_examples("d=3", "d=1", "d=2", "d=6"), invariants=_hypercube_invariants)
def hypercube(d: Count, bandwidth: Bandwidth, latency: Latency) -> Topology:
    """Link 2^d NPUs whose numbers differ in one bit: degree d, diameter d, bisection 2^d/2 B."""
    if d > _MAX_BITS:
        raise must_be("hypercube", "d", f"at most {_MAX_BITS}", d)
    return grid("hypercube", [Dimension(2, "complete", bandwidth, latency)] * d)
