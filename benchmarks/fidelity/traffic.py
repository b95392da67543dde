"""Send the same messages over ns-3's TCP and over Emu's fabric.

In Emu's fluid fabric a cable carries what a frame of the point-to-point link has of data: 1448 of 1502 bytes. Queues are fair
(FqCoDel's, which never drop), or first in, first out. Of the latter Emu's packet engine is judged, where ns-3's own times move
by less than the bound if each message starts up to a round trip later.
"""

import json
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.fidelity.cases import FAIR, QUEUED, Traffic
from benchmarks.fidelity.row import Row, farthest
from emu.arrays import F64
from emu.errors import RunError
from emu.fabric.engine.packets.packet_network import PacketNetwork
from emu.fabric.engine.packets.packet_run import run_packets
from emu.fabric.graph import Graph
from emu.fabric.lower import FabricJob, LoweredSchedule, lower
from emu.fabric.run import run_graph
from emu.topology.builders.wiring import Cables, wire
from emu.topology.paths.shortest_paths import shortest
from emu.topology.topology import Topology
from emu.units import TICKS_PER_S, ticks

RATE_BPS, DELAY_S = 1e8, 50e-6
FRAME_BYTES = 1502
PAYLOAD = 1448 / FRAME_BYTES
BOUND, FIFO_BOUND = 0.015, 0.05
STARTS = 4  # perturbed ones
ROUND_TRIP_S = 4 * DELAY_S + 2 * FRAME_BYTES * 8 / RATE_BPS  # over one router, without a queue
TCP = PacketNetwork(  # as packets.cc and packets.py set it
    kind="ns-3 TCP",
    payload_bytes=1448,
    header_bytes=FRAME_BYTES - 1448,
    acks="in-order",
    packets_per_ack=8,
    ack_bytes=FRAME_BYTES - 1448,
    lossless="drop",
    queue_bytes=100 * FRAME_BYTES,
    congestion="cubic",
    window_bytes=2**16,
    host_queue="fifo",
    timeout_fs=ticks(0.2),
)


def topology_of(traffic: Traffic, payload: float) -> Topology:
    """Return hosts, routers and cables, which carry so much payload a byte."""
    a, b = zip(*traffic.cables, strict=True)
    cables = Cables("cable", a, b, RATE_BPS / 8 * payload, ticks(DELAY_S))
    links, bill = wire(traffic.case, [cables])
    return Topology(traffic.case, traffic.n_hosts, traffic.n_nodes, links, shortest(links, traffic.n_nodes), bill=bill)


def lowered(traffic: Traffic, payload: float = PAYLOAD) -> LoweredSchedule:
    """The messages on Emu's fabric."""
    hosts = np.arange(traffic.n_hosts, dtype=np.int32)
    return lower(FabricJob(traffic.plan, traffic.slot_bytes, topology_of(traffic, payload), hosts))


def late_s(graph: Graph, n: int, seed: int) -> F64:
    """Return [n] by how much each message that waits for none starts later: up to a round trip; seed 0: not at all."""
    late = np.random.default_rng(seed).uniform(0, ROUND_TRIP_S, n)
    return np.where((np.diff(graph.pred_start[: n + 1]) == 0) & (seed > 0), late, 0.0)


def packet_ends(traffic: Traffic, seed: int) -> F64:
    """Return the seconds until each message has come in Emu's packet engine."""
    piece = lowered(traffic, 1.0)
    graph, n = piece.graph, len(piece.receiver)
    ready_fs = graph.ready_fs.copy()
    ready_fs[:n] += np.rint(late_s(graph, n, seed) * TICKS_PER_S).astype(np.int64)
    run = run_packets(replace(graph, ready_fs=ready_fs), topology_of(traffic, 1.0), TCP, seed)
    return np.asarray(run.timeline.end_fs[:n] / TICKS_PER_S)


def request(traffic: Traffic, piece: LoweredSchedule, fair: bool, seed: int = 0) -> dict[str, Any]:
    """Return the messages, and what each waits for, as packets.py takes them; `seed` as in `late_s`.

    A connection sends in order by itself; what waits until another's bytes have left waits here until they have come.
    """
    graph, n = piece.graph, len(piece.receiver)
    ends = np.stack((graph.owner[:n], piece.receiver), axis=-1)
    message, pred = np.repeat(np.arange(n), np.diff(graph.pred_start[: n + 1])), graph.pred[: graph.pred_start[n]]
    assert (pred < n).all(), "messages wait for messages alone"
    in_order = graph.pred_left[: len(pred)] & (ends[message] == ends[pred]).all(axis=1)
    return {
        "fair": fair,
        "nodes": traffic.n_nodes,
        "cables": [(*cable, RATE_BPS, DELAY_S) for cable in traffic.cables],
        "messages": np.column_stack((ends, graph.size_bytes[:n])).tolist(),
        "late": late_s(graph, n, seed).tolist(),
        "waits": np.column_stack((message, pred))[~in_order].tolist(),
    }


def over_ns3(requests: list[dict[str, Any]]) -> list[F64]:
    """Seconds until each message of each case has come, in a process of its own.

    Raises:
        RunError: ns-3 is not installed, or ends early.
    """
    command = [sys.executable, str(Path(__file__).with_name("packets.py"))]
    ran = subprocess.run(command, input=json.dumps(requests), capture_output=True, text=True, check=False)
    if ran.returncode:
        mend = f"install the extra `fidelity`, as `make fidelity` does{_last_line(ran.stderr)}"
        raise RunError(f"fidelity: ns-3 ended with {ran.returncode}; {mend}")
    return [np.array(ends) for ends in json.loads(ran.stdout)]


def _last_line(text: str) -> str:
    lines = text.strip().splitlines()
    return f" ({lines[-1]})" if lines else ""


def rows() -> Iterator[Row]:
    """Yield a row for the message farthest off in each case; first in, first out, one for the last message too."""
    pieces = [lowered(traffic) for traffic in FAIR]
    theirs = over_ns3([request(*case, True) for case in zip(FAIR, pieces, strict=True)])
    for traffic, piece, measured in zip(FAIR, pieces, theirs, strict=True):
        ours = run_graph(piece.graph).end_fs[: len(measured)] / TICKS_PER_S
        yield farthest(f"ns-3 TCP: {traffic.case}", "s", zip(measured.tolist(), ours.tolist(), strict=True), BOUND)
    yield from fifo_rows()


def fifo_rows() -> Iterator[Row]:
    """Yield the rows of queues that are first in, first out: the last message, and the one that is farthest off."""
    seeds = range(STARTS + 1)
    theirs = over_ns3([request(traffic, lowered(traffic), False, seed) for traffic in QUEUED for seed in seeds])
    for i, traffic in enumerate(QUEUED):
        measured = np.sort(theirs[i * len(seeds) : (i + 1) * len(seeds)], axis=1)  # which of equal messages is first is chance
        ours = np.sort([packet_ends(traffic, seed) for seed in seeds], axis=1)
        yield fifo_row(f"{traffic.case}, the last", measured[:, -1], ours[:, -1])
        rows = [fifo_row(f"{traffic.case}, farthest off", *both) for both in zip(measured.T, ours.T, strict=True)]
        yield max(rows, key=lambda row: abs(row.ratio - 1))


def fifo_row(case: str, measured: F64, ours: F64) -> Row:
    """Return the row of the means over starts; it has no bound where ns-3's own starts differ by more than the bound."""
    spread = float(measured.max() / measured.min()) - 1
    own = f"ns-3's own starts differ by {spread:.1%}"
    chaos = spread > FIFO_BOUND
    reason = f"not judged, chaos: {own}" if chaos else own
    return Row(f"ns-3 TCP, FIFO: {case}", measured.mean(), ours.mean(), "s", None if chaos else FIFO_BOUND, reason)
