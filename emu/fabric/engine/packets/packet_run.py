"""The entry to the packet engine: the run of a graph by packets, and its result.

Letters: V tasks, L links, Q queues, T samples, M pauses.
"""

import logging
import time
from dataclasses import dataclass
from typing import Any

import numpy as np

from emu.arrays import I32, I64, column
from emu.errors import InputError, RunError, must_be
from emu.fabric.engine.graph_check import check_graph, order_tasks
from emu.fabric.engine.packets.packet_arrays import LOGGED_PAUSES, grow, lay_out
from emu.fabric.engine.packets.packet_layout import (
    GIVEN_UP,
    N_BEYOND,
    N_DISORDERED,
    N_DONE,
    N_EVENTS,
    N_FREE,
    N_HOPS,
    N_OVER,
    N_PAUSES,
    N_RESENT,
    N_SAMPLES,
    N_TRIMMED,
    NOW,
    SAMPLE_FS,
    TOO_LATE,
    PacketEngine,
)
from emu.fabric.engine.packets.packet_loop import DONE, FULL, advance_packets, end_samples
from emu.fabric.engine.packets.packet_network import PacketNetwork
from emu.fabric.engine.packets.packet_tasks import begin_tasks
from emu.fabric.engine.packets.stall import describe_losses, describe_stall
from emu.fabric.engine.packets.ways import MOST_QUEUES, Ways, check_equal_ways, routed_ways, shortest_ways
from emu.fabric.graph import Graph, TaskError, Timeline
from emu.topology.topology import LEAST_LOADED, Topology
from emu.units import MAX_TICKS, format_time, seconds

MOST_PACKETS = 2**31 - 1  # of a message
SILENCE_S = 5.0  # after which a run says how far it is; one that is to take as long says so before it begins
_TOLD_FROM = 0.2  # share of the events that are forecast, from which on the time that is left is told
_EVENTS_PER_S = 5e6
_MARGIN = 2  # times the forecast that a refusal recommends: runs of all kinds of networks had up to 1.6 times the forecast
_STRIDE = 2**22  # events between two looks at the budget and the clock
_log = logging.getLogger("emu")


class PacketFitError(InputError):
    """The error of a graph that packets cannot run: it has more events than it may, or messages that are too large or small."""


@dataclass(frozen=True, eq=False, slots=True)
class PacketRun:
    """The result of a run by packets: the timeline, the lengths of queues, the pauses, and the packets that were lost."""

    timeline: Timeline
    lanes: int  # of a link: as many as the network has, or more where the topology's routes name more
    sample_fs: int  # length of the intervals of `queue_bytes`
    queue_bytes: I32  # [T, Q] the most bytes in each queue in each interval; queue: link * lanes + lane
    paused_fs: I64  # [Q] how long each queue was paused
    pauses: I64  # [M, 4] of the first pauses: the queue, since, until, and the queue whose packets caused it
    n_pauses: int
    n_events: int
    n_packet_hops: int  # packets or cells with payload, each on each link
    n_over: int  # packets that came to a queue that was full; a network without loss that is laid out well has none
    n_trimmed: int  # packets that found a queue full, were trimmed or lost, and were sent again
    n_resent: int  # packets that were sent again because the receiver wanted all from one that was missing
    n_disordered: int  # packets that came before one with a lower number
    n_beyond: int  # of these, packets that were further ahead than the receiver's window
    n_lost: int  # packets and credits that are still somewhere at the end: none, if nothing is lost

    def fullest(self, n: int) -> I64:
        """Return the `n` queues that held the most bytes at any sampled time, fullest first."""
        return np.argsort(-self.queue_bytes.max(axis=0, initial=0), kind="stable")[:n]


def run_packets(
    graph: Graph,
    topology: Topology,
    network: PacketNetwork,
    seed: int = 0,
    ways: Ways | None = None,
    most_events: int = MAX_TICKS,
) -> PacketRun:
    """Return the run of a graph, packet by packet.

    Args:
        graph: The graph; not a quotient, for packets meet on links that exist.
        topology: Its topology: its links are those of the graph.
        network: What ports, hosts and switches do with packets.
        seed: Decides all that is random.
        ways: The ways of its messages, and the number of lanes; by default those of `ways_of` where the key of each route is 0.
        most_events: The budget; about 5 million events take a second.

    Raises:
        InputError: The graph is invalid, or it does not fit the topology or the network.
        RunError: Packets wait for one another in a circle, one is lost again and again, or the budget is spent.
    """
    check_graph(graph)
    order_tasks(graph)
    _check_fit(graph, topology, network)
    _check_budget(graph, network, most_events)
    engine = lay_out(graph, topology, network, seed, ways or ways_of(graph, topology, network))
    begin_tasks(engine)
    engine = _run(engine, most_events, forecast_events(graph, network))
    end_samples(engine)
    late = int(engine.scalars[TOO_LATE])
    if engine.scalars[GIVEN_UP]:
        raise RunError(describe_losses(engine, graph, topology, late))
    if late >= 0:
        raise TaskError("graph", "{} ends beyond 9223 s, the end of the clock (2**63 ticks of 1 fs)", late)
    if engine.scalars[N_DONE] < graph.n_tasks:
        raise RunError(describe_stall(engine, topology))
    return _result(engine, graph)


def ways_of(graph: Graph, topology: Topology, network: PacketNetwork, key: I64 | None = None) -> Ways:
    """Return the paths that packets of each message may take: the hops of its task, or all the shortest paths.

    Args:
        graph: The graph.
        topology: Its topology.
        network: The network; it must have at least as many lanes as the routes of the topology name.
        key: [V] the key of each message's route, by which the topology names lanes; by default all are 0.

    Raises:
        InputError: There are too many queues, or `routed_ways` raises it.
    """
    check_unsprayed(topology)
    if len(topology.links) * network.lanes > MOST_QUEUES:
        raise must_be("packets", "links times lanes", f"at most {MOST_QUEUES}", len(topology.links) * network.lanes)
    if network.route == "hash" and topology.chooses:
        mend = "take a network with route=least-loaded"
        raise InputError(f"packets: messages of {topology.name} choose their way, and take none of a hash; {mend}")
    if network.route == "hash":
        keys = np.zeros(graph.n_tasks, np.int64) if key is None else key
        return routed_ways(graph, topology, network.lanes, keys, has_acks=network.acks != "none")
    is_chosen = network.route == LEAST_LOADED
    ways = shortest_ways(graph, topology.links, topology.passes, network.lanes, is_chosen=is_chosen)
    if is_chosen and topology.spray is not None:
        check_equal_ways(graph, topology, topology.spray, ways)
    return ways


def check_unsprayed(topology: Topology) -> None:
    """Check that the topology sends each message whole, for only the fluid fabric splits messages.

    Raises:
        InputError: The topology sprays messages.
    """
    if topology.spray is not None and not topology.chooses:
        raise InputError(
            f"packets: the messages of {topology.name} are sprayed in the fluid fabric only; take the topology without "
            "route=spray, and a network with route=in-turn, random, adaptive, entropy or least-loaded"
        )


def _check_fit(graph: Graph, topology: Topology, network: PacketNetwork) -> None:
    """Check that a graph fits the topology and the packet engine.

    Its links must be those of the topology, no message crosses a link twice, and no message is smaller than a cell.

    Raises:
        InputError: The graph is none of this topology.
        PacketFitError: Its messages are too large or too small.
    """
    if graph.n_links != len(topology.links):
        raise must_be("packets", "links of the graph", f"the {len(topology.links)} of {topology.name}", graph.n_links)
    if (graph.hop_weight > 1).any():
        raise InputError("packets: the graph is a quotient, whose tasks stand for several; lower it without symmetry")
    largest = int(graph.size_bytes.max(initial=0))
    if largest > MOST_PACKETS * network.unit_bytes:
        what = f"at most {MOST_PACKETS} packets or cells, {MOST_PACKETS * network.unit_bytes} B"
        raise _unfit("packets", "the largest message", what, f"{largest} B", "take larger cells")
    if network.cell_bytes > largest > 0:
        what = f"at most the largest message, {largest} B"
        raise _unfit("network", "cell", what, f"{network.cell_bytes} B", "take a smaller cell")


def _unfit(*of: Any) -> PacketFitError:
    """Return the error of a graph that packets cannot run; arguments as in `must_be`."""
    said = must_be(*of)
    error = PacketFitError(str(said))
    error.field, error.value, error.mend = said.field, said.value, said.mend
    return error


def forecast_events(graph: Graph, network: PacketNetwork) -> int:
    """Return a forecast of the number of events: two for each packet or acknowledgement on each link.

    Where nodes take time to pass a packet on, each link has one more.
    """
    packets = -(-graph.size_bytes // network.unit_bytes)
    answers = 0 if network.acks == "none" else -(-packets // network.packets_per_ack)
    return int(((2 + (network.switch_fs > 0)) * (packets + answers) * np.diff(graph.hop_start)).sum())


def _check_budget(graph: Graph, network: PacketNetwork, most_events: int) -> None:
    """Check, before a run begins, that its forecast number of events is within the budget; of a long run, tell the forecast.

    Raises:
        PacketFitError: It is not.
    """
    events = forecast_events(graph, network)
    lasts = f"a run has about {events} events, which takes about {events / _EVENTS_PER_S:.0f} s"
    if events <= most_events and events >= SILENCE_S * _EVENTS_PER_S:
        _log.info("packets: %s", lasts)
    if events > most_events:
        allow = f"allow {_MARGIN * events}, as pauses, credits and packets that are sent again add some"
        mend = f"{lasts}: {allow}, or take larger cells or a smaller size"
        raise _unfit("packets", "events", f"{events} or more", most_events, mend)


def _run(engine: PacketEngine, most_events: int, forecast: int) -> PacketEngine:
    """Run the event loop to its end, and return the engine; its arrays may be larger copies.

    Args:
        engine: The engine.
        most_events: The budget.
        forecast: The number of events that the run will have, about.

    Raises:
        RunError: The budget is spent before all tasks are over.
    """
    began_s = told_s = time.monotonic()
    while (why := _advance(engine, min(_STRIDE, most_events))) != DONE:
        if why == FULL:
            engine = grow(engine)
        over, all_tasks = int(engine.scalars[N_DONE]), len(engine.tasks)
        if engine.scalars[N_EVENTS] >= most_events and over < all_tasks:
            raise RunError(
                f"packets: the budget of {most_events} events is spent with {over} of {all_tasks} tasks over; "
                "raise it, take larger cells or smaller messages"
            )
        if time.monotonic() - told_s >= SILENCE_S:
            told_s = time.monotonic()
            _log.info("%s%s", _progress_text(engine), _left_text(int(engine.scalars[N_EVENTS]), forecast, told_s - began_s))
    return engine


def _advance(engine: PacketEngine, most: int) -> int:
    """Run at most `most` events, and return the reason for which the engine stopped.

    If the user interrupts it, the error says how far the run has come.
    """
    try:
        return int(advance_packets(engine, most))
    except KeyboardInterrupt as stopped:
        stopped.add_note(_progress_text(engine))
        raise


def _progress_text(engine: PacketEngine) -> str:
    """Return a phrase on how far a run has come: its virtual time and the tasks that have ended."""
    at = format_time(seconds(int(engine.scalars[NOW])))
    done, events = engine.scalars[N_DONE], engine.scalars[N_EVENTS]
    return f"packets: {done} of {len(engine.tasks)} tasks were over at {at}, after {events} events"


def _left_text(events: int, forecast: int, took_s: float) -> str:
    """Return in words how many events are left, and how long they take at the speed so far; empty if none was expected.

    The first events of a run are far slower than the others, while code is compiled: no time is told before a fifth is over.
    """
    left = forecast - events
    if left > 0 and events < _TOLD_FROM * forecast:
        return f" of about {forecast}"
    return f" of about {forecast}, about {took_s * left / max(events, 1):.0f} s left" if left > 0 else ""


def _result(engine: PacketEngine, graph: Graph) -> PacketRun:
    """Return the result of a run that is over: the times of tasks, and the statistics of ports and queues."""
    scalars, tasks, n_queues = engine.scalars, engine.tasks, len(engine.queues)
    carried = column(engine.ports["carried"], np.float64)
    start, left, end = (column(tasks[name], np.int64) for name in ("start", "left", "end"))
    kept, n_samples = min(int(scalars[N_PAUSES]), LOGGED_PAUSES), int(scalars[N_SAMPLES])
    return PacketRun(
        timeline=Timeline(start, left, end, carried, "packets"),
        lanes=engine.rules.n_lanes,
        sample_fs=int(scalars[SAMPLE_FS]),
        queue_bytes=engine.samples[: n_samples * n_queues].reshape(n_samples, n_queues),
        paused_fs=column(engine.queues["paused_for"], np.int64),
        pauses=engine.pause_log[: 4 * kept].reshape(-1, 4),
        n_pauses=int(scalars[N_PAUSES]),
        n_events=int(scalars[N_EVENTS]),
        n_packet_hops=int(scalars[N_HOPS]),
        n_over=int(scalars[N_OVER]),
        n_trimmed=int(scalars[N_TRIMMED]),
        n_resent=int(scalars[N_RESENT]),
        n_disordered=int(scalars[N_DISORDERED]),
        n_beyond=int(scalars[N_BEYOND]),
        n_lost=len(engine.packets) - int(scalars[N_FREE]),
    )
