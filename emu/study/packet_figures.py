"""The figures of a run by packets, for reports: the ports in which most bytes waited, pauses, and what was sent again."""

from dataclasses import dataclass

import numpy as np

from emu.arrays import F64
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
    """The figures of a run by packets other than its time: queues, pauses, lost packets, and the fluid time beside it."""

    network: str  # the kind of the network of packets, such as roce
    lanes: int  # of a link
    fluid_s: float  # the time in the fluid fabric
    packet_hops: int  # hops of all packets
    events: int
    pauses: int
    paused_s: float  # of the link that was paused longest
    fullest: tuple[FullPort, ...]
    trimmed: int  # packets that found a queue full and were sent again
    disordered: int  # packets that came before one that was sent earlier
    over: int  # packets beyond the room of a queue that should not overflow; 0 where packets are trimmed


def port_name(topology: Topology, queue: int, lanes: int) -> str:
    """Return the name of the port of a queue: the ends of its link, and the lane if the link has several."""
    link, lane = divmod(queue, lanes)
    src, dst = (topology.node_name(int(end[link])) for end in (topology.links.src, topology.links.dst))
    return f"{src} to {dst}" + (f" (lane {lane})" if lanes > 1 else "")


def blocked_fs(run: PacketRun) -> F64:
    """Return [Q] the ticks for which each queue held up others by pauses, as far as they were logged."""
    blocked = np.zeros(len(run.paused_fs))
    known = run.pauses[run.pauses[:, 3] >= 0]
    np.add.at(blocked, known[:, 3], (known[:, 2] - known[:, 1]).astype(np.float64))
    return blocked


def figures_of(run: PacketRun, fabric: PacketFabric, topology: Topology, fluid_s: float) -> PacketFigures:
    """Return the figures of a run by packets other than its time, such as the fullest queues."""
    full = [
        FullPort(port_name(topology, queue, run.lanes), int(run.queue_bytes[:, queue].max(initial=0)))
        for queue in run.fullest(_PORTS).tolist()
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
