"""The diagnosis of a packet run that stands still: the ports that wait for one another in a circle."""

import numpy as np

from emu.arrays import I64
from emu.fabric.engine.packets.packet_delivery import MOST_ROUNDS
from emu.fabric.engine.packets.packet_layout import HASH, N_DONE, NOW, PacketEngine
from emu.fabric.graph import Graph
from emu.topology.topology import Topology
from emu.units import format_size, format_time, seconds

_SHOWN = 8


def describe_stall(engine: PacketEngine, topology: Topology) -> str:
    """Return a sentence that says when a run came to a deadlock, and which ports wait for one another in a circle."""
    over, n_tasks = int(engine.scalars[N_DONE]), len(engine.tasks)
    when = f"packets: deadlock after {format_time(seconds(int(engine.scalars[NOW])))} with {over} of {n_tasks} tasks over"
    circle = find_circle(blockers(engine))
    if not circle:
        return f"{when}: no packet is on its way, and no port waits for itself over others"
    names = [port_name(q, engine, topology) for q in circle]
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    mend = _mend(engine.rules.choice)
    return f"{when}: these ports wait for one another in a circle: {', then '.join(names[:_SHOWN])}{more}; {mend}"


def describe_losses(engine: PacketEngine, graph: Graph, topology: Topology, task: int) -> str:
    """Return a sentence that says which message loses its packets again and again, and where it lost the last one."""
    own, links = graph.hop_link[graph.hop_start[task] : graph.hop_start[task + 1]], topology.links
    src, dst = topology.node_name(int(links.src[own[0]])), topology.node_name(int(links.dst[own[-1]]))
    message = f"the message of {format_size(int(graph.size_bytes[task]))} from {src} to {dst}"
    when = format_time(seconds(int(engine.scalars[NOW])))
    lost_at = int(engine.tasks["lost_at"][task])
    where = f"; it lost the last one at {port_name(lost_at, engine, topology)}" if lost_at >= 0 else ""
    return (
        f"packets: after {when} {message} has sent the same packets {MOST_ROUNDS} times, and none of them came{where}; "
        "take larger queues, recovery=selective or congestion control"
    )


def _mend(choice: int) -> str:
    """Return what to do against a circle, by the way in which packets choose their path."""
    if choice == HASH:
        return "take routes that cannot close a circle, or lossless=trim"
    return (
        "packets that choose their path all take the first lane of a link: take route=hash, whose packets keep to the lanes "
        "that the topology's routes name, or lossless=trim"
    )


def port_name(q: int, engine: PacketEngine, topology: Topology) -> str:
    """Return the name of queue `q`: its port, and its lane if the link has several lanes."""
    link, lane = divmod(q, engine.rules.n_lanes)
    name = f"{topology.node_name(int(topology.links.src[link]))} to {topology.node_name(int(topology.links.dst[link]))}"
    return f"{name} (lane {lane})" if engine.rules.n_lanes > 1 else name


def blockers(engine: PacketEngine) -> dict[int, set[int]]:
    """Return, for each queue whose packets fill the node behind it, the queues in which these packets wait."""
    found: dict[int, set[int]] = {}
    for name in ("first", "own_first"):
        for q in np.flatnonzero(engine.queues[name] >= 0).tolist():
            for ingress in np.unique(engine.packets["ingress"][_chain(engine, int(engine.queues[name][q]))]).tolist():
                if ingress >= 0:
                    found.setdefault(ingress, set()).add(q)
    return found


def _chain(engine: PacketEngine, first: int) -> I64:
    """Return the numbers of the packets of a queue in their order, from packet `first` on."""
    chain, follows = [], engine.packets["next"]
    while first >= 0:
        chain.append(first)
        first = int(follows[first])
    return np.array(chain)


def find_circle(waits: dict[int, set[int]]) -> list[int]:
    """Return nodes that wait for one another in a circle, in order; an empty list if there is no circle."""
    done: set[int] = set()
    for root in sorted(waits):
        path: list[int] = []
        stack = [(root, False)]
        while stack:
            node, is_over = stack.pop()
            if is_over:
                done.add(path.pop())
            elif node in path:
                return path[path.index(node) :]
            elif node not in done:
                path.append(node)
                stack.append((node, True))
                stack.extend((after, False) for after in sorted(waits.get(node, ())))
    return []
