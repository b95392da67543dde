"""The arrays of congestion control before the first packet: the windows and the rates of all senders.

Letters: V tasks.
"""

import numpy as np
from numpy.typing import NDArray

from emu.arrays import F64, I64, column
from emu.fabric.engine.packets.congestion import CUBIC, DCQCN, DCTCP, FLOW, FREE_FLOW, NSCC, WINDOW, Control, Senders
from emu.fabric.engine.packets.packet_layout import NONE
from emu.fabric.engine.packets.packet_network import PacketNetwork, heeds_marks
from emu.fabric.engine.packets.rate_control import PACE, Pacing
from emu.fabric.engine.state_layout import align_records
from emu.fabric.graph import Graph
from emu.topology.topology import Topology
from emu.units import MAX_TICKS, TICKS_PER_S

_CONGESTION = {"none": FREE_FLOW, "nscc": NSCC, "dctcp": DCTCP, "window": WINDOW, "dcqcn": DCQCN, "cubic": CUBIC}
_REFERENCE_FS = 12 * 10**9  # round trip and link of which NSCC's constants are: 12 us, 100 Gb/s
_REFERENCE_BYTES = 150_000
_TARGET = 0.75  # delay in round trips


def control_of(graph: Graph, topology: Topology, network: PacketNetwork) -> Control:
    """Return the settings of congestion control for the longest round trip without load: the network's, or of any message.

    Source: `initNsccParams` of htsim's uec.cpp (ultraethernet/uet-htsim, commit 40ccb05).
    """
    trip = float(network.round_trip_fs or longest_round_trip(graph, topology, network, network.payload_bytes))
    target, share = _TARGET * trip, network.unit_bytes / network.wire_bytes(network.unit_bytes)
    return Control(
        kind=_CONGESTION[network.congestion],
        unit=network.unit_bytes,
        least=network.unit_bytes,
        most_trips=network.window_round_trips * share,
        target=target,
        period=int(trip),
        proportional=4 * share * network.unit_bytes * (target / _REFERENCE_FS) / target,
        slow=5 * share * network.unit_bytes,
        constant=0.15 * share * network.unit_bytes,
        fast=0.25,
    )


def longest_round_trip(graph: Graph, topology: Topology, network: PacketNetwork, payload_bytes: int) -> float:
    """Return the most ticks that so much payload and its acknowledgement take over the links of a message without load."""
    hops = np.diff(graph.hop_start)
    both_ways = network.wire_bytes(payload_bytes) + network.ack_bytes
    sender = np.repeat(np.arange(graph.n_tasks), hops)
    sending = np.bincount(sender, both_ways * TICKS_PER_S / graph.capacity_Bps[graph.hop_link], graph.n_tasks)
    passing = network.switch_fs * np.maximum(hops - 1, 0)
    return float((2 * (latencies(graph, topology) + passing) + sending).max(initial=1.0))


def senders_of(graph: Graph, control: Control, network: PacketNetwork) -> Senders:
    """Return the windows and the rates of all senders before the first packet; each is set by the sender's own link."""
    link = first_links(graph)
    return Senders(_flows(control, link, network), control, Pacing(_paces(control, link), network.raise_bytes))


def first_links(graph: Graph) -> F64:
    """Return [V] the rate of the first link of each message, in bytes a tick; 0 of a task that crosses no link."""
    link, is_message = np.zeros(graph.n_tasks), np.diff(graph.hop_start) > 0
    first = graph.hop_link[graph.hop_start[:-1][is_message]]
    link[is_message] = graph.capacity_Bps[first] / TICKS_PER_S
    return link


def largest_windows(network: PacketNetwork, round_trip_bytes: F64) -> F64:
    """Return [V] the payload bytes of the windows with which senders begin; the bytes of a round trip have headers."""
    share = network.unit_bytes / network.wire_bytes(network.unit_bytes)
    if network.window_bytes:
        return np.full_like(round_trip_bytes, network.window_bytes)
    return network.window_round_trips * round_trip_bytes * share


def _flows(control: Control, link: F64, network: PacketNetwork) -> NDArray[np.void]:
    """Return [V] the congestion window of each task's sender, at its largest; one record if senders have none."""
    if control.kind in (FREE_FLOW, DCQCN):
        return align_records(1, FLOW)
    flows = align_records(len(link), FLOW)
    flows["round_trip"], flows["link"] = control.period, link
    flows["scale"] = control.period * link / _REFERENCE_BYTES
    flows["window"] = flows["largest"] = np.maximum(largest_windows(network, control.period * link), control.least)
    return flows


def _paces(control: Control, link: F64) -> NDArray[np.void]:
    """Return [V] the rate of each task's sender, which is that of its link; one record if senders have none."""
    if control.kind != DCQCN:
        return align_records(1, PACE)
    paces = align_records(len(link), PACE)
    paces["link"] = paces["rate"] = paces["target"] = link
    paces["alpha"], paces["noticed"] = 1.0, NONE
    return paces


def marks_of(network: PacketNetwork, round_trip_bytes: F64) -> tuple[I64, I64]:
    """Return from how many bytes packets may be marked, and all are, in queues whose links pass these bytes in a round trip."""
    if network.mark_to_round_trips and not network.mark_to_bytes and heeds_marks(network):
        trips = network.mark_from_round_trips, network.mark_to_round_trips
        return whole_packets(network, trips[0], round_trip_bytes), whole_packets(network, trips[1], round_trip_bytes)
    is_marked = network.mark_to_bytes and heeds_marks(network)
    lengths = (network.mark_from_bytes, network.mark_to_bytes) if is_marked else (MAX_TICKS, MAX_TICKS)
    return np.full(len(round_trip_bytes), lengths[0]), np.full(len(round_trip_bytes), lengths[1])


def rooms_of(network: PacketNetwork, round_trip_bytes: F64) -> I64:
    """Return the bytes for which queues have room whose links pass these bytes in a round trip."""
    if network.queue_round_trips:
        return whole_packets(network, network.queue_round_trips, round_trip_bytes)
    return np.full(len(round_trip_bytes), network.queue_bytes)


def whole_packets(network: PacketNetwork, round_trips: float, round_trip_bytes: F64) -> I64:
    """Return the bytes of some round trips, where a round trip, and then the whole, is rounded up to whole packets."""
    wire = network.wire_bytes(network.payload_bytes)
    return column(np.ceil(round_trips * np.ceil(round_trip_bytes / wire)), np.int64) * wire


def latencies(graph: Graph, topology: Topology) -> I64:
    """Return [V] the sum of the latencies of the links that each message crosses, in ticks."""
    passed = np.concatenate(([0], np.cumsum(topology.links.latency_fs[graph.hop_link])))
    return np.asarray(passed[graph.hop_start[1:]] - passed[graph.hop_start[:-1]])
