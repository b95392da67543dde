"""Runs of torchtitan as published: launch/data/measured/torchtitan.csv, a row a run, with what each of its settings was.

Sources: torchtitan, benchmarks/llama3_h100_202412_torchtitan.md, tables 1 and 3, of the code at 9dec370 (26 December 2024).
From that code: train_configs/llama3_8b.toml (recomputation `op`), torchtitan/parallelisms/parallelize_llama.py (FSDP2 of each
layer and of the rest, torch.compile of each layer), torchtitan/config_manager.py (weights in float32, gathered in bfloat16,
gradients reduced in float32), torchtitan/optimizer.py (AdamW, foreach), train.py (the loss of logits that were cast to float32,
and is not compiled), torchtitan/metrics.py (memory is the most that PyTorch's allocator reserved) and run_llama_train.sh (the
allocator's segments grow). Attention is FlashAttention-2: PyTorch then took cuDNN's only where it was asked for
(pytorch/pytorch issue 142132, December 2024). With FP8 weights are gathered in it (docs/float8.md; torchtitan/float8.py: all
linear layers but the head, one scale for a tensor).
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from emu.model.plan.plan import Plan
from emu.model.plan.plan_text import parse_plan
from emu.model.stack.stack import Stack, parse_stack
from emu.study.training.estimate import EstimateRequest
from launch.data.fitted import DATA, rows_of
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
    """One run."""

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
        """The word for its network: NVLink in a server, 400 Gb/s a GPU between servers."""
        return f"servers:nodes={self.gpus // _NODE},gpus={_NODE},nvlink=450GB/s,nic=50GB/s"

    @property
    def request(self) -> EstimateRequest:
        """The step that is estimated."""
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
