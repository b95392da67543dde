"""Messages over a shaped star of 4 hosts: the times of the Linux kernel's TCP (tests/data/README.md) against Emu's."""

import csv
from collections.abc import Iterator
from pathlib import Path

import numpy as np

from benchmarks.fidelity.row import Row
from emu.arrays import F64, I64
from emu.collective.algorithm import schedule
from emu.collective.operation import divide_blocks, operation
from emu.collective.schedule import Schedule, Sends
from emu.fabric.lower import FabricJob, lower
from emu.fabric.run import run_graph
from emu.topology.builders.wiring import star
from emu.units import TICKS_PER_S, format_size, ticks

_DATA = Path(__file__).parents[2] / "tests" / "data" / "tcp-star.csv"
_HOSTS = 4
_PAYLOAD = 1448 / 1514  # bytes of data in an Ethernet frame of 1514


def rows() -> Iterator[Row]:
    """Yield a row for each line of what was measured."""
    for line in csv.DictReader(_DATA.read_text().splitlines()):
        yield (_collective if line["case"].startswith("all_") else _sharing)(line)


def _collective(line: dict[str, str]) -> Row:
    name, _, algorithm = line["case"].partition(" ")
    plan = schedule(name, {"ring": "ring", "at once": "at-once"}[algorithm], _HOSTS).expand()
    counts = operation(name, _HOSTS).block_counts(int(line["bytes"]))
    delivered_s = _delivered_s(plan, divide_blocks(counts, plan.n_slots, plan.shares).count, line)
    return _row(line, float(delivered_s.max()), 0.025)


def _sharing(line: dict[str, str]) -> Row:
    size, case = int(line["bytes"]), line["case"]
    sizes, which = [size, size], 0
    if case.startswith("incast"):
        sizes = [size // 4] * 3
    elif "m and m/2" in case:
        sizes, which = [size, size // 2], int(case.endswith("short one"))
    senders = np.arange(len(sizes))
    plan = Schedule.build(_HOSTS, len(sizes), [Sends(1 + senders, 0, senders)])
    return _row(line, float(_delivered_s(plan, np.array(sizes), line)[which]), 0.01)


def _row(line: dict[str, str], emu_s: float, bound: float) -> Row:
    case = f"Linux TCP: {line['case']}, {format_size(int(line['bytes']))}"
    return Row(case, float(line["measured_s"]), emu_s, "s", bound)


def _delivered_s(plan: Schedule, slot_bytes: I64, line: dict[str, str]) -> F64:
    """Seconds until each message is delivered."""
    rate_Bps, delay_s = float(line["rate_bps"]) / 8 * _PAYLOAD, float(line["delay_s"])
    fabric = star("star", _HOSTS, rate_Bps, ticks(delay_s / 2))  # each of the two hops has half of the delay
    piece = lower(FabricJob(plan, slot_bytes, fabric, np.arange(_HOSTS, dtype=np.int32)))
    return run_graph(piece.graph).end_fs[: len(piece.receiver)] / TICKS_PER_S
