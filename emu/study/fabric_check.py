"""The check of a fluid time by packets: the window in which the fabric has most to do, by both engines.

The packets run several times, each time with starts that are later at random by up to the time of a packet, because queues with
pauses are chaotic: one run says little. W tasks of the window.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np

from emu.arrays import I64
from emu.errors import EmuError
from emu.fabric.busy_window import TimedGraph, Window, WindowError, busiest_window, late_starts, packet_ticks
from emu.fabric.engine.packets.packet_run import PacketRun
from emu.fabric.engine.packets.ways import message_ends
from emu.fabric.graph import Graph
from emu.fabric.packet_fabric import PacketFabric
from emu.fabric.run import run_graph
from emu.study.packet_figures import blocked_fs, port_name
from emu.topology.topology import Topology
from emu.units import format_size, seconds

RUNS = 8
NOTHING_SENT = "nothing is sent"  # why a check could not be made
BEYOND = 0.05  # from which on packets and the fluid fabric differ enough to warn
_TOLD = 3  # ports and messages


@dataclass(frozen=True, slots=True)
class BlockingPort:
    """A port, the ticks for which its pauses held up other ports, and the most bytes that waited in it."""

    port: str
    blocked_s: float  # seconds of all pauses that it caused in a run, the mean of all; 0 where nothing pauses
    most_bytes: int  # that waited in it at one time


@dataclass(frozen=True, slots=True, kw_only=True)
class FabricCheck:
    """The time of a window by packets, divided by its time in the fluid fabric: the least and the most of several runs.

    `why_not` says why there is no check, if there is none.
    """

    network: str
    request: str  # the busiest request, whose time is compared
    runs: int
    fluid_s: float  # of the messages of this request that the window has
    least: float  # of the runs by packets: their time divided by the fluid one
    most: float
    share: float  # of the bytes times links of all communication, what the window has
    packet_hops: int  # of a run
    cell_bytes: int  # that were simulated as one packet; 0: packets were
    divisor: int  # by which the sizes of messages were divided
    ports: tuple[BlockingPort, ...]  # that block most
    messages: tuple[str, ...]  # between which nodes the first of these ports carries most, and for which other requests
    is_whole: bool = True  # whether packets could time all of it: a composed step has no graph of all its messages
    why_not: str = ""  # why there is no check; "": there is one

    @property
    def is_beyond(self) -> bool:
        """True if a run by packets differs from the fluid fabric by more than 5 %."""
        return bool(self.runs) and max(abs(self.least - 1), abs(self.most - 1)) > BEYOND


def unchecked(network: str, why_not: str) -> FabricCheck:
    """Return the check that could not be made, with the reason."""
    return FabricCheck(
        network=network, request="", runs=0, fluid_s=0.0, least=0.0, most=0.0, share=0.0, packet_hops=0, cell_bytes=0,
        divisor=1, ports=(), messages=(), why_not=why_not,
    )  # fmt: skip


def check_fabric(
    source: TimedGraph,
    topology: Topology,
    fabric: PacketFabric,
    request_name: Callable[[int], str],
    *,
    is_whole: bool = True,
) -> FabricCheck:
    """Return the check of a timed graph: its busiest window is run by packets, too; if that is impossible, the reason.

    Args:
        source: The graph with its times in the fluid fabric.
        topology: Its topology.
        fabric: The settings of the packet engine.
        request_name: A function that returns the name of a request from its number.
        is_whole: Whether packets could time the whole graph, which is advised if the window is too large.
    """
    kind = fabric.network.kind
    try:
        window = busiest_window(source, fabric.network)
        found = unchecked(kind, NOTHING_SENT) if window is None else _checked(window, source, topology, fabric, request_name)
    except WindowError as error:
        mend = "a smaller size, fewer ranks or --fabric packets" if is_whole else "a smaller size or fewer ranks"
        found = unchecked(kind, f"{error}; take {mend}")
    except EmuError as error:
        found = unchecked(kind, str(error))
    return replace(found, is_whole=is_whole)


def _checked(
    window: Window, source: TimedGraph, topology: Topology, fabric: PacketFabric, request_name: Callable[[int], str]
) -> FabricCheck:
    """Return the check of a window; arguments as in `check_fabric`.

    Raises:
        InputError: The window does not fit the network.
        RunError: Packets wait for one another in a circle.
    """
    fabric = replace(fabric, network=replace(fabric.network, cell_bytes=window.cell_bytes))
    fluid_fs = int(run_graph(window.graph).end_fs[window.of_request].max())
    runs = _runs(window, fabric, topology, source.key[window.task])
    took = [int(run.timeline.end_fs[window.of_request].max()) / max(fluid_fs, 1) for run in runs]
    ports, request = _blocking(runs, topology), source.request[window.task]
    busiest = int(request[np.argmax(window.of_request)])
    other = np.where(request == busiest, -1, request)
    return FabricCheck(
        network=fabric.network.kind,
        request=request_name(busiest),
        runs=RUNS,
        fluid_s=seconds(fluid_fs),
        least=min(took),
        most=max(took),
        share=window.share,
        packet_hops=runs[0].n_packet_hops,
        cell_bytes=window.cell_bytes,
        divisor=window.divisor,
        ports=tuple(ports.values()),
        messages=_crossing(window.graph, next(iter(ports)) // runs[0].lanes, other, topology, request_name) if ports else (),
    )


def _runs(window: Window, fabric: PacketFabric, topology: Topology, key: I64) -> list[PacketRun]:
    """Return the runs of a window by packets, each with starts and a seed of its own; `key` [W] as in a `TimedGraph`."""
    network, ways = fabric.network, fabric.ways(window.graph, topology, key)
    most_fs = packet_ticks(window.graph, network)
    late = (late_starts(window.graph, seed, most_fs) for seed in range(RUNS))
    return [fabric.run(graph, topology, ways, fabric.seed + seed) for seed, graph in enumerate(late)]


def _blocking(runs: Sequence[PacketRun], topology: Topology) -> dict[int, BlockingPort]:
    """Return, by queue, the ports that blocked longest over all runs, and after them those in which most bytes waited."""
    blocked = np.sum([blocked_fs(run) for run in runs], axis=0)
    most = np.max([run.queue_bytes.max(axis=0, initial=0) for run in runs], axis=0)
    first = np.lexsort((np.arange(len(most)), -most, -blocked))[:_TOLD].tolist()
    blocked_s = [seconds(int(blocked[queue]) // len(runs)) for queue in first]
    return {
        queue: BlockingPort(port_name(topology, queue, runs[0].lanes), held_s, int(most[queue]))
        for queue, held_s in zip(first, blocked_s, strict=True)
        if most[queue]
    }


def _crossing(graph: Graph, link: int, request: I64, topology: Topology, request_name: Callable[[int], str]) -> tuple[str, ...]:
    """Return phrases on the pairs of nodes for which a link carries most bytes, and on the other requests that use it.

    Args:
        graph: The window.
        link: The link.
        request: [W] the request of each task; -1: the busiest one, or none that is known.
        topology: The topology.
        request_name: A function that returns the name of a request.
    """
    src, dst = message_ends(graph, topology.links)
    task = graph.hop_task[graph.hop_link == link]
    carried = Counter[tuple[int, int, int]]()
    for v in task.tolist():
        carried[int(src[v]), int(dst[v]), int(request[v])] += int(graph.size_bytes[v])
    most = sorted(carried.items(), key=lambda each: (-each[1], each[0]))[:_TOLD]
    return tuple(
        f"{format_size(size)} from {topology.node_name(a)} to {topology.node_name(b)}"
        + (f" ({request_name(of)})" if of >= 0 else "")
        for (a, b, of), size in most
    )
