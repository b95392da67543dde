"""A trace that another program recorded, with what was read of it and how long its steps were measured."""

from collections.abc import Mapping
from dataclasses import dataclass

from emu.trace.trace import Trace

MEASURED = "measured"  # the device whose computations last as they were measured


@dataclass(frozen=True, slots=True, kw_only=True)
class Reading:
    """What was read of a trace, and what was not."""

    format: str
    ranks: int
    filled_ranks: tuple[int, ...]  # ranks of no file, which do what a rank of equal groups does
    devices: tuple[str, ...]
    steps: int
    kernels: int  # that became computations, of all ranks; operators where the host computes
    streams: int  # of the rank that has most
    collectives: int  # calls of the host's program on all ranks, messages too
    collective_s: float  # their measured time, of all ranks, with waiting
    left_out: Mapping[str, int]  # how many events of each kind were not taken
    notes: tuple[str, ...]  # sentences on what was assumed


@dataclass(frozen=True, eq=False, slots=True)
class ForeignTrace:
    """A trace of another program."""

    trace: Trace
    reading: Reading
    step_times_s: tuple[float, ...]  # of each step, as measured: the mean of its ranks
