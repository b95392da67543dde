"""Runs of htsim (ultraethernet/uet-htsim) as tables: the fabric, the flows, and when each was received.

A table is a CSV file `CASE__TRANSPORT__SEED.csv`. Its first line has the fabric in words, its second the command, its third the
names of the columns: flow, src, dst, bytes, after (the flow whose receipt starts it), start_us, received_us, acked_us, spine.
"""

import csv
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from emu.arrays import F64, I64
from emu.topology.catalogue import build_topology
from emu.topology.topology import Topology

_FABRIC = re.compile(r"(\d+) ToRs x (\d+) hosts, (\d+) spines, (\d+) Gb/s, (\d+) ns a link")
US_FS = 10**9


@dataclass(frozen=True, eq=False)
class HtsimRun:
    """One run: flows as columns, -1 for what is not there."""

    case: str
    transport: str
    leaves: int
    hosts: int  # of a leaf
    spines: int
    topology: Topology
    src: I64
    dst: I64
    size_bytes: I64
    after: I64  # the flow whose receipt starts it
    ready_fs: I64
    spine: I64
    start_us: F64
    end_us: F64  # received, or acknowledged
    ends_acknowledged: bool  # whether the end is when the sender got the last acknowledgement

    @property
    def last_us(self) -> float:
        """When the last flow ended."""
        return float(self.end_us.max())

    @property
    def mean_us(self) -> float:
        """How long a flow took in the mean."""
        return float((self.end_us - self.start_us).mean())


def read_run(path: Path) -> HtsimRun:
    """The run of a file."""
    lines = path.read_text().splitlines()
    found = _FABRIC.search(lines[0])
    if found is None:
        raise SystemExit(f"{path}: the first line must name the fabric, got {lines[0]!r}")
    leaves, hosts, spines, gbps, latency_ns = map(int, found.groups())
    rows = list(csv.DictReader(lines[2:]))
    word = f"down={hosts}x{leaves},up=1x{spines},parallel=1x1,bandwidth={gbps}Gb/s,latency={latency_ns}ns"
    ends_at = "received_us" if rows[0]["received_us"] else "acked_us"
    start = np.array([float(row["start_us"]) for row in rows])
    after = _numbers(rows, "after")
    case, transport, _ = path.stem.split("__")
    return HtsimRun(
        case=case,
        transport=transport,
        leaves=leaves,
        hosts=hosts,
        spines=spines,
        topology=build_topology(f"fat-tree:pgft:{word}"),
        src=_numbers(rows, "src"),
        dst=_numbers(rows, "dst"),
        size_bytes=_numbers(rows, "bytes"),
        after=after,
        ready_fs=np.where(after < 0, np.rint(start * US_FS), 0).astype(np.int64),
        spine=_numbers(rows, "spine"),
        start_us=start,
        ends_acknowledged=ends_at == "acked_us",
        end_us=np.array([float(row[ends_at]) for row in rows]),
    )


def _numbers(rows: list[dict[str, str]], name: str) -> I64:
    """A column of whole numbers."""
    return np.array([int(row[name] or -1) for row in rows], np.int64)


def runs(folder: Path, transport: str) -> Iterator[HtsimRun]:
    """The runs of a transport in a folder, by the names of their files."""
    for path in sorted(folder.glob(f"*__{transport}__*.csv")):
        yield read_run(path)
