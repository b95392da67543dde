"""torchtitan's runs beside what `emu estimate` says of them: speed with the clock set on one run, and memory."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from scipy.optimize import brentq

from emu.model.generate.generate import memory_by_part
from emu.model.generate.rank_step import reserved_bytes
from emu.model.model import find_model
from emu.study.training.estimate import PreparedEstimate, prepare
from emu.study.training.step_choice.step_to_serve import ALWAYS_COMPOSED
from emu.topology.catalogue import build_topology
from emu.trace.device.device import Device
from launch.data.devices import DEVICES
from launch.data.fitted import write_fit
from launch.papers.torchtitan.rows import DEVICE, TorchtitanRun

COMMAND = "emu repro torchtitan --fit FILE.json"
SET_BY = "tt-8b-8-compiled"  # the run whose time sets the clock
NOTES = (
    f"the clock of the machine is set by the run {SET_BY} alone, as a share of that of the device h100; nothing else is fitted "
    "on these runs",
    "measured memory is the most that PyTorch's allocator reserved, which is what torchtitan prints",
    "ours is what the allocator asks for: on each stream (computation, gathered weights, reduced gradients) the most that "
    "lived there, as memory of one stream serves no other; rounding to pages and what lies unused between blocks are left out",
    "the spread of the speeds of GPUs is that of the device h100",
)
_LOW, _HIGH = 0.2, 2.0  # of the clock


@dataclass(frozen=True, slots=True, kw_only=True)
class TorchtitanComparison:
    """One run."""

    id: str
    gpus: int
    compiled: bool
    fp8: bool
    measured_tokens_per_s: float  # of a GPU
    ours_tokens_per_s: float
    ratio: float
    measured_memory_bytes: float
    ours_memory_bytes: int  # that the allocator reserves
    memory_ratio: float
    live_memory_bytes: int  # the most that lives at once
    sets_the_clock: bool
    plan: str
    stack: str
    topology: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Pair:
    """The speed of one run in relation to that of another, which no clock changes much."""

    what: str
    measured: float
    ours: float
    ratio: float


PreparedRow = tuple[TorchtitanRun, PreparedEstimate]  # a run of which all is known but what computations take


def ready(run: TorchtitanRun) -> PreparedRow:
    """Return a run that can be timed by any clock."""
    return run, prepare(run.request, build_topology(run.topology), _with(1.0), ALWAYS_COMPOSED)


def _with(clock: float) -> Device:
    """Return the device with a clock, as a share of that of an H100; its memory is not asked for, as the run was."""
    return replace(DEVICES[DEVICE], memory_bytes=0, clock=clock * DEVICES["h100"].clock)


def clock_of(runs: Sequence[PreparedRow]) -> float:
    """Return the clock with which the run that sets it takes as long as was measured."""
    run, prepared = next(each for each in runs if each[0].id == SET_BY)

    def off(clock: float) -> float:
        return prepared.moments(_with(clock))[0].step_time_s - run.step_s

    return float(brentq(off, _LOW, _HIGH, xtol=1e-5))


def row_of(run: TorchtitanRun, prepared: PreparedEstimate, clock: float) -> TorchtitanComparison:
    """Return a run beside its estimate by that clock."""
    step, model = prepared.moments(_with(clock))[0], find_model(run.model)
    reserved = reserved_bytes(model, run.plan, run.stack)
    ours = run.plan.tokens / run.gpus / step.step_time_s
    return TorchtitanComparison(
        id=run.id,
        gpus=run.gpus,
        compiled=run.compiled,
        fp8=run.fp8,
        measured_tokens_per_s=run.tokens_per_s,
        ours_tokens_per_s=ours,
        ratio=ours / run.tokens_per_s,
        measured_memory_bytes=run.memory_bytes,
        ours_memory_bytes=reserved,
        memory_ratio=reserved / run.memory_bytes,
        live_memory_bytes=sum(memory_by_part(model, run.plan, run.stack).values()),
        sets_the_clock=run.id == SET_BY,
        plan=step.plan,
        stack=step.stack,
        topology=run.topology,
    )


def pairs(rows: Sequence[TorchtitanComparison]) -> Iterator[Pair]:
    """Yield each run in relation to another of which one thing differs: compiled, with FP8, or on more GPUs."""
    for row in rows:
        for other in rows:
            on, of = (row.gpus, row.compiled, row.fp8), (other.gpus, other.compiled, other.fp8)
            if on == (other.gpus, True, other.fp8) and not other.compiled:
                yield _pair(f"compiled to eager on {row.gpus}", row, other)
            if on == (other.gpus, other.compiled, True) and not other.fp8:
                yield _pair(f"FP8 to bfloat16 on {row.gpus}", row, other)
            if on[1:] == of[1:] and row.gpus > other.gpus:
                yield _pair(f"{row.gpus} to {other.gpus} GPUs, {_how(row)}", row, other)


def _how(row: TorchtitanComparison) -> str:
    """Return the word for the settings of a run."""
    return "FP8" if row.fp8 else "compiled" if row.compiled else "eager"


def _pair(what: str, row: TorchtitanComparison, other: TorchtitanComparison) -> Pair:
    measured = row.measured_tokens_per_s / other.measured_tokens_per_s
    ours = row.ours_tokens_per_s / other.ours_tokens_per_s
    return Pair(what=what, measured=measured, ours=ours, ratio=ours / measured)


def write_clock(clock: float, path: Path) -> None:
    """Write the clock as launch/data/devices.py reads it.

    Raises:
        WriteError: the file cannot be written.
    """
    write_fit({DEVICE: {"clock": round(clock, 4), "set_by": SET_BY}}, path)
