"""The packet engine against htsim: `python -m benchmarks.queues FOLDER [TRANSPORT ...] [--starts N] [--cell BYTES]`.

FOLDER has tables of runs of htsim (`reference.py`). Each case is run with exact starts, as htsim's, and with 8 perturbed ones
(`--starts`), which are later by up to the time of a packet. A line has the model divided by htsim's value: with exact starts,
the mean over perturbed ones, and their range, and whether htsim's last flow lies inside it. Then come the means over cases and
how far the worst is off. Exit code 1 if one lies outside its bound.
"""

import sys
import time
from argparse import ArgumentParser, Namespace
from dataclasses import dataclass
from math import inf, isfinite
from pathlib import Path

import numpy as np

from benchmarks.queues.packet_cases import NETWORKS, packet_us, simulate
from benchmarks.queues.reference import HtsimRun, runs
from emu.arrays import F64
from launch.show.text.table import table

HEAD = (
    *("case", "flows", "htsim last us", "exact", "model/htsim", "range", "inside"),
    *("htsim mean us", "exact", "model/htsim", "range", "seconds"),
)


@dataclass(frozen=True)
class Bounds:
    """How far the means over cases may be from 1, and the worst case."""

    last: float
    mean_flow: float
    worst: float


ROCE = Bounds(0.02, 0.015, 0.08)
ULTRA_ETHERNET = Bounds(0.04, 0.04, 0.12)
NO_BOUNDS = Bounds(inf, inf, inf)  # of what htsim has no firm figures: docs/queues.md says why


@dataclass(frozen=True)
class Compared:
    """The model divided by a run of htsim: first with exact starts, then with perturbed ones, if there are any."""

    run: HtsimRun
    last: F64
    mean_flow: F64
    seconds: float

    @property
    def is_inside(self) -> bool:
        """True if htsim's last flow lies in the range of perturbed starts, of which each is late by up to a packet's time."""
        late = packet_us(self.run) / self.run.last_us
        return bool(self.last[1:].min(initial=self.last[0]) - late <= 1 <= self.last[1:].max(initial=self.last[0]))

    def cells(self) -> tuple[str, ...]:
        """The cells of its line."""
        last, mean = (self._cells(values) for values in (self.last, self.mean_flow))
        first = (self.run.case, str(len(self.run.src)), f"{self.run.last_us:.1f}")
        inside = "yes" if self.is_inside else "no"
        return *first, *last, inside, f"{self.run.mean_us:.1f}", *mean, f"{self.seconds:.2f}"

    @staticmethod
    def _cells(values: F64) -> tuple[str, str, str]:
        many = perturbed(values)
        return f"{values[0]:.4f}", f"{many.mean():.4f}", f"{many.min():.3f} to {many.max():.3f}"


def perturbed(values: F64) -> F64:
    """The values of perturbed starts, or that of exact ones if it is alone."""
    return values[1:] if len(values) > 1 else values


def compare(run: HtsimRun, starts: int, cell_bytes: int) -> Compared:
    """One case with exact starts, and with so many perturbed ones."""
    since, last, mean = time.perf_counter(), [], []
    for seed in range(-1, starts):
        timeline = simulate(run, max(seed, 0), seed >= 0, cell_bytes).timeline
        last.append(float(timeline.end_fs.max()) / 1e9 / run.last_us)
        mean.append(float((timeline.end_fs - timeline.start_fs).mean()) / 1e9 / run.mean_us)
    return Compared(run, np.array(last), np.array(mean), time.perf_counter() - since)


def summary(transport: str, all_of: list[Compared], bounds: Bounds) -> tuple[str, bool]:
    """The last lines of a table, and whether one lies outside its bound."""
    last, mean = (np.array([perturbed(getattr(c, name)).mean() for c in all_of]) for name in ("last", "mean_flow"))
    inside, starts = sum(c.is_inside for c in all_of), len(perturbed(all_of[0].last))
    chance = len(all_of) * (starts - 1) / (starts + 1)
    rows = (
        ("last flow, mean over cases", abs(last.mean() - 1), bounds.last, last.mean()),
        ("mean flow, mean over cases", abs(mean.mean() - 1), bounds.mean_flow, mean.mean()),
        ("last flow, worst case", abs(last - 1).max(), bounds.worst, last[abs(last - 1).argmax()]),
        ("mean flow, worst case", abs(mean - 1).max(), bounds.worst, mean[abs(mean - 1).argmax()]),
    )
    own = f"in {inside} of {len(all_of)} cases; a run of the model itself would in {chance:.0f} of them"
    lines = [f"{transport}: htsim's last flow lies in the range of {starts} runs of the model {own}"]
    for what, off, bound, value in rows:
        verdict = f"bound {bound:.1%}, {'outside' if off > bound else 'within'}" if isfinite(bound) else "not judged"
        lines.append(f"{transport}: {what} {value:.4f}, {verdict}")
    return "\n".join(lines), any(off > bound for _, off, bound, _ in rows)


def bounds_of(transport: str) -> Bounds:
    """The bounds of a transport."""
    if transport.endswith(("+dcqcn", "+gbn")):
        return NO_BOUNDS
    return ULTRA_ETHERNET if transport.startswith("uec") else ROCE


def options() -> Namespace:
    """The options of the command line."""
    parser = ArgumentParser(prog="python -m benchmarks.queues", description="the packet engine against runs of htsim")
    parser.add_argument("folder", type=Path)
    parser.add_argument("transport", nargs="*", default=list(NETWORKS))
    parser.add_argument("--starts", type=int, default=8)
    parser.add_argument("--cell", type=int, default=0)
    return parser.parse_args()


def main() -> None:
    """Print a table for each transport."""
    asked, failed = options(), False
    for transport in asked.transport:
        all_of = [compare(run, asked.starts, asked.cell) for run in runs(asked.folder, transport)]
        if not all_of and bounds_of(transport) is NO_BOUNDS:
            continue
        if not all_of:
            raise SystemExit(f"{asked.folder}: no table of {transport} in it")
        text, is_outside = summary(transport, all_of, bounds_of(transport))
        sys.stdout.write(f"{transport}\n{table(HEAD, [c.cells() for c in all_of])}\n{text}\n\n")
        sys.stdout.flush()
        failed |= is_outside
    raise SystemExit(int(failed))


if __name__ == "__main__":
    main()
