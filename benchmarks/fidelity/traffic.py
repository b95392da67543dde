"""Send the same messages over ns-3's TCP and over Emu's fabric.

In Emu a cable carries what a frame of the point-to-point link has of data: 1448 of 1502 bytes. Queues are fair (FqCoDel's,
which never drop) or first in, first out.
"""

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.fidelity.cases import FAIR, QUEUED, Traffic
from benchmarks.fidelity.row import Row, farthest
from emu.arrays import F64
from emu.errors import RunError
from emu.fabric.lower import FabricJob, LoweredSchedule, lower
from emu.fabric.run import run_graph
from emu.topology.builders.wiring import Cables, wire
from emu.topology.paths.shortest_paths import shortest
from emu.topology.topology import Topology
from emu.units import TICKS_PER_S, ticks

RATE_BPS, DELAY_S = 1e8, 50e-6
PAYLOAD = 1448 / 1502
BOUND = 0.015
_FIFO = "not judged: first in, first out, where TCP does not share max-min fairly"


def lowered(traffic: Traffic) -> LoweredSchedule:
    """The messages on Emu's fabric."""
    a, b = zip(*traffic.cables, strict=True)
    cables = Cables("cable", a, b, RATE_BPS / 8 * PAYLOAD, ticks(DELAY_S))
    links, bill = wire(traffic.case, [cables])
    router = shortest(links, traffic.n_nodes)
    topology = Topology(traffic.case, traffic.n_hosts, traffic.n_nodes, links, router, bill=bill)
    return lower(FabricJob(traffic.plan, traffic.slot_bytes, topology, np.arange(traffic.n_hosts, dtype=np.int32)))


def request(traffic: Traffic, piece: LoweredSchedule, fair: bool) -> dict[str, Any]:
    """Return the messages, and what each waits for, as packets.py takes them.

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
    """Yield a row for the message farthest off in each case; without fair queues, one for the last message too."""
    cases = [(traffic, lowered(traffic), fair) for some, fair in ((FAIR, True), (QUEUED, False)) for traffic in some]
    theirs = over_ns3([request(*case) for case in cases])
    for (traffic, piece, fair), measured in zip(cases, theirs, strict=True):
        ours = run_graph(piece.graph).end_fs[: len(measured)] / TICKS_PER_S
        pairs = zip(measured.tolist(), ours.tolist(), strict=True)
        if fair:
            yield farthest(f"ns-3 TCP: {traffic.case}", "s", pairs, BOUND)
        else:
            yield Row(f"ns-3 TCP, FIFO: {traffic.case}, the last", measured.max(), ours.max(), "s", None, _FIFO)
            yield farthest(f"ns-3 TCP, FIFO: {traffic.case}, farthest off", "s", pairs, None, _FIFO)
