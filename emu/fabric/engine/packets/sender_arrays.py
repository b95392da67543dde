"""The arrays of congestion control before the first packet: the windows and the rates of all senders.

Letters: V tasks.
"""

from math import ceil

import numpy as np
from numpy.typing import NDArray

from emu.arrays import I64
from emu.fabric.engine.packets.congestion import CUBIC, DCQCN, DCTCP, FLOW, FREE_FLOW, NSCC, WINDOW, Control, Senders
from emu.fabric.engine.packets.packet_layout import NONE
from emu.fabric.engine.packets.packet_network import PacketNetwork
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
    messages = np.diff(graph.hop_start) > 0
    first = graph.hop_link[graph.hop_start[:-1][messages]]
    fastest_Bps = float(graph.capacity_Bps[first].max(initial=1.0))
    hops, latency = np.diff(graph.hop_start)[messages], latencies(graph, topology)[messages]
    both_ways = network.wire_bytes(network.payload_bytes) + network.ack_bytes
    trips = 2 * latency + hops * (both_ways * TICKS_PER_S / fastest_Bps)
    trip, per_fs = float(network.round_trip_fs or trips.max(initial=1.0)), fastest_Bps / TICKS_PER_S
    scale, target = trip * per_fs / _REFERENCE_BYTES, _TARGET * trip
    marks, share = _marks(network, trip * per_fs), network.unit_bytes / network.wire_bytes(network.unit_bytes)
    return Control(
        kind=_CONGESTION[network.congestion],
        unit=network.unit_bytes,
        least=network.unit_bytes,
        bytes_per_fs=per_fs,
        most_trips=network.window_round_trips * share,
        target=target,
        period=int(trip),
        proportional=4 * share * network.unit_bytes * scale * (target / _REFERENCE_FS) / target,
        slow=5 * share * network.unit_bytes * scale,
        constant=0.15 * share * network.unit_bytes * scale,
        fast=0.25 * scale,
        mark_from=marks[0],
        mark_to=marks[1],
    )


def senders_of(control: Control, n_tasks: int, network: PacketNetwork) -> Senders:
    """Return the windows and the rates of all senders before the first packet."""
    window = largest_window(network, control.period * control.bytes_per_fs)
    pacing = Pacing(_paces(control, n_tasks), control.bytes_per_fs, network.raise_bytes)
    return Senders(_flows(control, n_tasks, window), control, pacing)


def largest_window(network: PacketNetwork, round_trip_bytes: float) -> float:
    """Return the payload bytes of the window with which a sender begins; the bytes of a round trip have headers."""
    share = network.unit_bytes / network.wire_bytes(network.unit_bytes)
    return network.window_bytes or network.window_round_trips * round_trip_bytes * share


def _flows(control: Control, n_tasks: int, window: float) -> NDArray[np.void]:
    """Return [V] the congestion window of each task's sender, at its largest; one record if senders have none."""
    flows = align_records(1 if control.kind in (FREE_FLOW, DCQCN) else n_tasks, FLOW)
    flows["round_trip"] = control.period
    flows["window"] = flows["largest"] = max(window, control.least)
    return flows


def _paces(control: Control, n_tasks: int) -> NDArray[np.void]:
    """Return [V] the rate of each task's sender, which is that of its link; one record if senders have none."""
    paces = align_records(n_tasks if control.kind == DCQCN else 1, PACE)
    paces["rate"] = paces["target"] = control.bytes_per_fs
    paces["alpha"], paces["noticed"] = 1.0, NONE
    return paces


def _marks(network: PacketNetwork, round_trip_bytes: float) -> tuple[int, int]:
    """Return the bytes of a queue from which packets may be marked, and from which all are."""
    if network.mark_to_bytes and network.congestion != "none":
        return network.mark_from_bytes, network.mark_to_bytes
    if network.mark_to_round_trips:
        lengths = network.mark_from_round_trips, network.mark_to_round_trips
        return whole_packets(network, lengths[0], round_trip_bytes), whole_packets(network, lengths[1], round_trip_bytes)
    return MAX_TICKS, MAX_TICKS


def whole_packets(network: PacketNetwork, round_trips: float, round_trip_bytes: float) -> int:
    """Return the bytes of some round trips, where a round trip, and then the whole, is rounded up to whole packets."""
    wire = network.wire_bytes(network.payload_bytes)
    return ceil(round_trips * ceil(round_trip_bytes / wire)) * wire


def latencies(graph: Graph, topology: Topology) -> I64:
    """Return [V] the sum of the latencies of the links that each message crosses, in ticks."""
    passed = np.concatenate(([0], np.cumsum(topology.links.latency_fs[graph.hop_link])))
    return np.asarray(passed[graph.hop_start[1:]] - passed[graph.hop_start[:-1]])
