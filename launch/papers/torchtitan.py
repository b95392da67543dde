"""torchtitan's published runs, compared with `emu estimate`: their speed, with the clock set on one run, and their memory.

Runs are in launch/data/measured/torchtitan.csv, each in a row with its settings.

Sources: torchtitan, benchmarks/llama3_h100_202412_torchtitan.md, tables 1 and 3, of the code at 9dec370 (26 December 2024).
From that code: train_configs/llama3_8b.toml (recomputation `op`), torchtitan/parallelisms/parallelize_llama.py (FSDP2 of each
layer and of the rest, torch.compile of each layer), torchtitan/config_manager.py (weights in float32, gathered in bfloat16,
gradients reduced in float32), torchtitan/optimizer.py (AdamW, foreach), train.py (the loss of logits that were cast to float32,
and is not compiled), torchtitan/metrics.py (memory is the most that PyTorch's allocator reserved) and run_llama_train.sh (the
allocator's segments grow). Attention is FlashAttention-2: PyTorch then took cuDNN's only where it was asked for
(pytorch/pytorch issue 142132, December 2024). With FP8, weights are gathered in it (docs/float8.md; torchtitan/float8.py: all
linear layers but the head, one scale for a tensor).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from scipy.optimize import brentq

from emu.model.generate.generate import memory_by_part
from emu.model.generate.rank_step import reserved_bytes
from emu.model.model import find_model
from emu.model.plan.plan import Plan
from emu.model.plan.plan_text import parse_plan
from emu.model.stack.stack import Stack, parse_stack
from emu.study.training.estimate import EstimateRequest, PreparedEstimate, prepare
from emu.study.training.step_choice.algorithm_search import ALWAYS_COMPOSED
from emu.topology.catalogue import build_topology
from emu.trace.device.device import Device
from launch.data.devices import DEVICES
from launch.data.fitted import DATA, rows_of, write_fit
from launch.data.presets import STACKS
from launch.papers.measured.settings import HOPPER_NETWORK

ROWS = DATA / "torchtitan.csv"
DEVICE = "h100-500w"
_NODE = 8  # GPUs of a server
_COMPILED = {"no": "nothing", "yes": "layers"}
_FP8 = {"bf16": "", "fp8": ",fp8=tensor,fp8_gather=yes"}
_STACK = f"software=pytorch,{HOPPER_NETWORK},weight=float32,optimizer=foreach"


@dataclass(frozen=True, slots=True, kw_only=True)
class TorchtitanRun:
    """A published run of torchtitan."""

    id: str
    model: str
    gpus: int
    compiled: bool
    fp8: bool
    plan: Plan
    stack: Stack
    tokens_per_s: float  # of a GPU
    memory_bytes: float  # that the allocator had reserved at most, of the GPU with most

    @property
    def step_s(self) -> float:
        """The seconds of a step."""
        return self.plan.tokens / self.gpus / self.tokens_per_s

    @property
    def topology(self) -> str:
        """The text of the run's topology for `--topology`: NVLink within a server, 400 Gb/s per GPU between servers."""
        return f"servers:nodes={self.gpus // _NODE},gpus={_NODE},nvlink=450GB/s,nic=50GB/s"

    @property
    def request(self) -> EstimateRequest:
        """The estimate that is requested for the run."""
        return EstimateRequest(self.model, self.plan, self.stack, (self.stack.library,))


def read_rows(path: Path = ROWS) -> list[TorchtitanRun]:
    """Return the runs in the order of the file."""
    return [_run(row) for row in rows_of(path)]


def _run(row: Mapping[str, str]) -> TorchtitanRun:
    gpus, batch = int(row["gpus"]), int(row["local_batch"])
    words = f"dp={gpus},sharding={row['sharding']},recompute={row['recompute']},microbatch={batch}"
    return TorchtitanRun(
        id=row["id"],
        model=row["model"],
        gpus=gpus,
        compiled=row["compile"] == "yes",
        fp8=row["precision"] == "fp8",
        plan=parse_plan(words, global_batch=int(row["global_batch"]), seq=int(row["seq"])),
        stack=parse_stack(f"{_STACK},compile={_COMPILED[row['compile']]}{_FP8[row['precision']]}", STACKS),
        tokens_per_s=float(row["tokens_per_s_per_gpu"]),
        memory_bytes=float(row["memory_gib"]) * 2**30,
    )


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
    """A published run of torchtitan, with Emu's speed and memory for it."""

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
    """The speed of one run relative to that of another, measured and by Emu; it hardly depends on the device's clock."""

    what: str
    measured: float
    ours: float
    ratio: float


PreparedRow = tuple[TorchtitanRun, PreparedEstimate]  # a run of which all is known but what computations take


def ready(run: TorchtitanRun) -> PreparedRow:
    """Return a run with its prepared estimate, which can then be timed with devices of any clock frequency."""
    return run, prepare(run.request, build_topology(run.topology), _h100_with_clock(1.0), ALWAYS_COMPOSED)


def _h100_with_clock(clock: float) -> Device:
    """Return the H100 of the runs with a clock frequency, as a share of that of an H100 at full power.

    Its memory is not checked, because the runs have taken place.
    """
    return replace(DEVICES[DEVICE], memory_bytes=0, clock=clock * DEVICES["h100"].clock)


def clock_of(runs: Sequence[PreparedRow]) -> float:
    """Return the clock frequency, as that share, with which the estimate of the calibration run equals its measured time."""
    run, prepared = next(each for each in runs if each[0].id == SET_BY)

    def off(clock: float) -> float:
        return prepared.estimate(_h100_with_clock(clock))[0].step_time_s - run.step_s

    return float(brentq(off, _LOW, _HIGH, xtol=1e-5))


def row_of(run: TorchtitanRun, prepared: PreparedEstimate, clock: float) -> TorchtitanComparison:
    """Return a run beside its estimate on a device with this clock."""
    step, model = prepared.estimate(_h100_with_clock(clock))[0], find_model(run.model)
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
    """Yield each pair of runs that differ in one setting: compilation, FP8, or the number of GPUs."""
    for row in rows:
        for other in rows:
            on, of = (row.gpus, row.compiled, row.fp8), (other.gpus, other.compiled, other.fp8)
            if on == (other.gpus, True, other.fp8) and not other.compiled:
                yield _pair(f"compiled to eager on {row.gpus}", row, other)
            if on == (other.gpus, other.compiled, True) and not other.fp8:
                yield _pair(f"FP8 to bfloat16 on {row.gpus}", row, other)
            if on[1:] == of[1:] and row.gpus > other.gpus:
                yield _pair(f"{row.gpus} to {other.gpus} GPUs, {_settings_text(row)}", row, other)


def _settings_text(row: TorchtitanComparison) -> str:
    """Return a text on the settings of a run."""
    return "FP8" if row.fp8 else "compiled" if row.compiled else "eager"


def _pair(what: str, row: TorchtitanComparison, other: TorchtitanComparison) -> Pair:
    measured = row.measured_tokens_per_s / other.measured_tokens_per_s
    ours = row.ours_tokens_per_s / other.ours_tokens_per_s
    return Pair(what=what, measured=measured, ours=ours, ratio=ours / measured)


def write_clock(clock: float, path: Path) -> None:
    """Write the clock in the form that launch/data/devices.py reads.

    Raises:
        WriteError: The file cannot be written.
    """
    write_fit({DEVICE: {"clock": round(clock, 4), "set_by": SET_BY}}, path)
