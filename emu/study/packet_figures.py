"""What only packets know of a run by packets, for reports: the ports in which most bytes waited, pauses, and what was lost."""

from dataclasses import dataclass

from emu.fabric.engine.packets.packet_run import PacketRun
from emu.fabric.packet_fabric import PacketFabric
from emu.topology.topology import Topology
from emu.units import seconds

_PORTS = 3  # that are told


@dataclass(frozen=True, slots=True)
class FullPort:
    """A port and the most bytes that waited in it at one time."""

    port: str
    most_bytes: int


@dataclass(frozen=True, slots=True)
class PacketFigures:
    """The figures of a run by packets beside its time."""

    network: str
    lanes: int  # of a link
    fluid_s: float  # the time in the fluid fabric
    packet_hops: int
    events: int
    pauses: int
    paused_s: float  # of the link that was paused longest
    fullest: tuple[FullPort, ...]
    trimmed: int  # packets that found a queue full and were sent again
    disordered: int  # packets that came before one that was sent earlier
    over: int  # packets beyond the room of a queue that should not overflow; 0 where packets are trimmed


def figures_of(run: PacketRun, fabric: PacketFabric, topology: Topology, fluid_s: float) -> PacketFigures:
    """Return what a run by packets tells beside its time."""
    lanes, links = run.lanes, topology.links
    full = [
        FullPort(
            f"{topology.call(int(links.src[q // lanes]))} to {topology.call(int(links.dst[q // lanes]))}"
            + (f" (lane {q % lanes})" if lanes > 1 else ""),
            int(run.queue_bytes[:, q].max(initial=0)),
        )
        for q in run.fullest(_PORTS).tolist()
    ]
    return PacketFigures(
        network=fabric.network.kind,
        lanes=run.lanes,
        fluid_s=fluid_s,
        packet_hops=run.n_packet_hops,
        events=run.n_events,
        pauses=run.n_pauses,
        paused_s=seconds(int(run.paused_fs.max(initial=0))),
        fullest=tuple(port for port in full if port.most_bytes),
        trimmed=run.n_trimmed,
        disordered=run.n_disordered,
        over=0 if fabric.network.lossless == "trim" else run.n_over,
    )
