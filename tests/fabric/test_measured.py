"""Held to what the Linux kernel's TCP took on a shaped star; see tests/data/README.md."""

import csv
from pathlib import Path

import numpy as np
import pytest

from collectives.exchange import at_once
from collectives.ring import all_reduce
from emu.collective.operation import divide_blocks, operation
from emu.collective.schedule import Schedule, Sends
from emu.fabric.lower import FabricJob, lower
from emu.fabric.run import run_graph
from emu.topology.builders.wiring import star
from emu.units import ticks

ROWS = list(csv.DictReader((Path(__file__).parents[1] / "data" / "tcp-star.csv").read_text().splitlines()))
SHARING = [r for r in ROWS if not r["case"].startswith("all_") and int(r["bytes"]) >= 2**20]
COLLECTIVES = [r for r in ROWS if r["case"].startswith("all_")]
TCP_PAYLOAD = 1448 / 1514  # bytes of data in an Ethernet frame of 1514


def delivered_s(schedule, slot_bytes, row):
    """Seconds until each message is delivered."""
    # The star's two hops have half of the delay each.
    rate, delay = float(row["rate_bps"]) / 8 * TCP_PAYLOAD, ticks(float(row["delay_s"]) / 2)
    piece = lower(FabricJob(schedule, slot_bytes, star("star", 4, rate, delay), np.arange(4)))
    return run_graph(piece.graph).end_fs[: len(piece.receiver)] / 1e15


def flows(case, m):
    """The bytes of the flows into rank 0, and which of them the case is about."""
    if case.startswith("incast"):
        return [m // 4] * 3, 0
    if "m and m/2" in case:
        return [m, m // 2], int(case.endswith("short one"))
    return [m, m], 0


def name(row):
    return f"{row['case']}, {row['bytes']}"


@pytest.mark.parametrize("row", SHARING, ids=name)
def test_flows_share_a_port_as_the_kernel_lets_them(row):
    sizes, which = flows(row["case"], int(row["bytes"]))
    senders = np.arange(len(sizes))
    schedule = Schedule.build(4, len(sizes), [Sends(1 + senders, 0, senders)])
    assert delivered_s(schedule, np.array(sizes), row)[which] == pytest.approx(float(row["measured_s"]), rel=0.01)


@pytest.mark.parametrize("row", COLLECTIVES, ids=name)
def test_collectives_take_what_they_take_over_the_kernel(row):
    kind, _, _ = row["case"].partition(" ")
    schedule = (all_reduce if kind == "all_reduce" else at_once)(4).expand()
    counts = operation(kind, 4).block_counts(int(row["bytes"]))
    sizes = divide_blocks(counts, schedule.n_slots, schedule.shares).count
    assert delivered_s(schedule, sizes, row).max() == pytest.approx(float(row["measured_s"]), rel=0.025)
