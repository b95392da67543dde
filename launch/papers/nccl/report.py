"""NCCL's all_reduce on a node of 8 H100 as nccl-tests measured it, compared with `emu bench --stack nccl`.

Source of the rows: launch/data/measured/all_reduce-8xh100.csv, as published.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from statistics import median

import numpy as np
from scipy.optimize import least_squares

from emu.arrays import F64
from emu.collective.chooser_names import AUTO
from emu.model.stack.stack import Stack, parse_stack, spell_stack
from emu.study.measure.bench import bench
from emu.study.measure.request import BenchRequest
from emu.study.training.composed.software_costs import costed_topology
from emu.study.training.step.step import LEFT_OUT
from emu.topology.catalogue import build_topology
from launch.data.fitted import DATA, rows_of
from launch.data.presets import STACKS

NODE = "dgx-h100"
COMMAND = "emu repro nccl --fit"
_ROWS = DATA / "all_reduce-8xh100.csv"
_START, _LOW, _HIGH = (15.0, 1.0, 25.0, 0.7), (1.0, 0.05, 0.0, 0.3), (100.0, 10.0, 100.0, 1.0)  # us, us, us, a share


@dataclass(frozen=True, slots=True, kw_only=True)
class SizeRow:
    """The measured and Emu's time of a collective of one size; `ratio` is Emu's time over the measured one."""

    size_bytes: int
    measured_s: float
    ours_s: float
    ratio: float
    algorithm: str


@dataclass(frozen=True, slots=True, kw_only=True)
class NcclComparison:
    """The comparison of measured and computed times over all sizes."""

    rows: tuple[SizeRow, ...]
    median_error: float  # median of |ratio - 1|
    median_error_of_unseen: float | None = field(default=None, metadata=LEFT_OUT)  # from fits on the other half of the sizes
    topology: str
    stack: str  # stack in the words of `--stack`
    fitted_by: str


def measured_times() -> list[tuple[int, float]]:
    """Return the bytes and the measured seconds of all sizes."""
    return [(int(row["bytes"]), float(row["time_us"]) / 1e6) for row in rows_of(_ROWS)]


def nccl_stack() -> Stack:
    """Return the stack that `--stack nccl` gives."""
    return parse_stack("nccl", STACKS)


def rows(stack: Stack, which: Sequence[tuple[int, float]]) -> list[SizeRow]:
    """Return the measured and the computed times of some sizes.

    Args:
        stack: The stack with which times are computed.
        which: The bytes and the measured seconds of each size.
    """
    topology = costed_topology(stack, build_topology(NODE))
    sizes = tuple(size for size, _ in which)
    found = bench(topology, BenchRequest("all_reduce", stack.library or AUTO, sizes, launch_s=stack.launch_s))
    return [
        SizeRow(size_bytes=size, measured_s=taken, ours_s=row.time_s, ratio=row.time_s / taken, algorithm=row.built)
        for (size, taken), row in zip(which, found, strict=True)
    ]


def median_error(found: Sequence[SizeRow]) -> float:
    """Return the median of |ratio - 1|."""
    return median(abs(row.ratio - 1) for row in found)


def fit(which: Sequence[tuple[int, float]]) -> Stack:
    """Return the stack whose launch, alpha, adding and bandwidth fit best, by least squares of log(ours / measured)."""

    def errors(values: F64) -> F64:
        return np.log([row.ratio for row in rows(_stack(values), which)])

    best = least_squares(errors, _START, bounds=(_LOW, _HIGH), x_scale=_START, diff_step=1e-2, max_nfev=30)
    return _stack(best.x)


def _stack(values: F64) -> Stack:
    """Return the stack with given values of the fitted constants."""
    launch, alpha, adding, share = values.tolist()
    words = f"library=nccl,launch={launch:.4g}us,alpha={alpha:.4g}us,adding={adding:.4g}us,bandwidth={share:.4g}"
    return parse_stack(words)


def cross_validated_rows(which: Sequence[tuple[int, float]]) -> list[SizeRow]:
    """Return the times of each size, with constants that were fitted to the other half of the sizes."""
    found = [row for half in (0, 1) for row in rows(fit(which[half::2]), which[1 - half :: 2])]
    return sorted(found, key=lambda row: row.size_bytes)


def stack_words(stack: Stack) -> str:
    """Return a stack as the text that `--stack` takes."""
    return spell_stack(stack).partition(",")[2]
