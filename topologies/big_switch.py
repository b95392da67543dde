"""The ideal with which other topologies are compared: every NPU on one switch without forwarding latency.

Source: InfiniteHBD (SIGCOMM 2025), 6.1: Big-Switch.
"""

from emu.topology.builders.clos import Tier, clos
from emu.topology.catalogue import Bandwidth, Count, Invariants, Latency, topology
from emu.topology.topology import Topology
from emu.units import format_bandwidth, format_time, seconds

_BANDWIDTH = 800e9  # bytes per second, one direction: 6.4 Tb/s a GPU (InfiniteHBD, Table 8)


def _invariants(n: int, bandwidth: float, **_: object) -> Invariants:
    """Return the invariants of the topology by closed forms."""
    return Invariants(2 * n, 1, 2 * (n > 1), n // 2 * bandwidth, npus=n, switches=1, injection_Bps=bandwidth)


@topology(
    "big-switch",
    source="InfiniteHBD (SIGCOMM 2025), 6.1 and Table 8",
    examples=("n=8", "n=1", "n=3,bandwidth=50GB/s,latency=300ns", "n=64"),
    full=("n=2880", "n=8192"),
    invariants=_invariants,
)
def big_switch(n: Count, bandwidth: Bandwidth = _BANDWIDTH, latency: Latency = 0) -> Topology:
    """Join NPUs by one large switch without forwarding latency: the upper limit of communication and of fault resilience."""
    assumptions = (f"a GPU has {format_bandwidth(bandwidth)} one way, a hop takes {format_time(seconds(latency))}",)
    return clos("big-switch", [Tier(n, 1, bandwidth, latency, name="NPU to switch")], {"switch": 1}, assumptions)
