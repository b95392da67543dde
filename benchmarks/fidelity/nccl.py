"""NCCL's all_reduce on a node of 8 H100 (launch/data/measured), each half of the sizes predicted by what fits the other.

Calibrated are four numbers: launch_s of a collective, alpha_s of a message from GPU to GPU (half of it to the switch or from
it), bandwidth_Bps of a GPU's port one way, and setup_s that a collective added in the switch takes besides. What is timed is
Emu's own schedules on a star, and the fastest counts, as NCCL picks the fastest.
"""

from collections.abc import Iterator
from statistics import median
from typing import NamedTuple

import numpy as np
from scipy.optimize import least_squares

from benchmarks.fidelity.row import Row
from emu.arrays import F64
from emu.collective.algorithm import schedule
from emu.collective.operation import operation
from emu.study.timing import CollectiveJob, time_collective
from emu.topology.builders.wiring import star
from emu.topology.placement import place
from emu.units import format_bandwidth, format_size, format_time, ticks
from launch.papers.nccl.report import measured_times

_GPUS, _ITEM_BYTES = 8, 4
_BY_GPUS, _BY_SWITCH = ("ring", "double-tree"), "in-switch"
_MEDIAN = 0.10  # asked of the predictions
_CASE = "NCCL, 8 x H100"


class Calibration(NamedTuple):
    """The four constants that are fitted; the text of this module says what they are."""

    launch_s: float
    alpha_s: float
    setup_s: float
    bandwidth_Bps: float

    def __str__(self) -> str:
        times = (f"{name} {format_time(time)}" for name, time in zip(("launch", "alpha", "set-up"), self, strict=False))
        return ", ".join((*times, f"bandwidth {format_bandwidth(self.bandwidth_Bps)}"))


START = Calibration(1e-5, 1e-6, 3e-5, 300e9)  # of the search: the orders of magnitude
_FACTOR = 50  # the search stays within it of them


class _Size(NamedTuple):
    bytes: int
    measured_s: float


def predicted_s(found: Calibration, size_bytes: int) -> float:
    """Return how long the fastest of Emu's schedules takes with these constants."""
    by_gpus = min(_timed_s(name, size_bytes, found) for name in _BY_GPUS)
    return found.launch_s + min(by_gpus, found.setup_s + _timed_s(_BY_SWITCH, size_bytes, found))


def _timed_s(name: str, size_bytes: int, found: Calibration) -> float:
    fabric = star("node", _GPUS, found.bandwidth_Bps, ticks(found.alpha_s / 2))
    op, plan = operation("all_reduce", _GPUS), schedule("all_reduce", name, _GPUS)
    return time_collective(CollectiveJob(op, plan, size_bytes // _ITEM_BYTES, _ITEM_BYTES, fabric, place(fabric, _GPUS))).end_s


def fit(sizes: list[_Size]) -> Calibration:
    """The least squares of the logarithms of predicted over measured."""

    def errors(logs: F64) -> F64:
        found = Calibration(*np.exp(logs).tolist())
        return np.array([np.log(predicted_s(found, size.bytes) / size.measured_s) for size in sizes])

    start, far = np.log(START), np.log(_FACTOR)
    found = least_squares(errors, start, diff_step=1e-3, bounds=(start - far, start + far))
    return Calibration(*np.exp(found.x).tolist())


def rows() -> Iterator[Row]:
    """Each size by the fit that has not seen it, then the median of the errors of each half."""
    sizes = [_Size(*size) for size in measured_times()]
    for half, name in enumerate(("1st, 3rd, ...", "2nd, 4th, ...")):
        found = fit(sizes[half::2])
        predicted = [_row(size, found, f"predicted from the {name} sizes") for size in sizes[1 - half :: 2]]
        yield from predicted
        off = median(abs(row.emu / row.measured - 1) for row in predicted)
        yield Row(f"{_CASE}: 1 + median error, from the {name} sizes", 1 + off, 1, "", _MEDIAN, str(found))


def _row(size: _Size, found: Calibration, reason: str) -> Row:
    case = f"{_CASE}: all_reduce, {format_size(size.bytes)}"
    return Row(case, size.measured_s, predicted_s(found, size.bytes), "s", None, reason)
