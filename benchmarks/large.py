"""Two large models on eight fabrics: `emu estimate` of each, in a process of its own.

    python -m benchmarks.large [MODEL ...]

Both as Megatron-LM runs them. A fabric of fewer NPUs takes less dp, and as much less of the global batch.
"""

import json
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from subprocess import CalledProcessError
from typing import Any

from benchmarks.command import EMU, Ran, asked_for, ran
from emu.units import format_size, format_time

SECONDS, GB = 60, 8  # that each may take on one idle core, choices of algorithms kept


@dataclass(frozen=True, slots=True)
class Large:
    """A model at its real size."""

    plan: str
    global_batch: int
    seq: int
    topologies: tuple[str, ...]


MODELS = {
    "llama3.1-405b": Large(
        "tp=8,sp,pp=16,dp=128,layers=7,8x14,7,sharding=zero1,recompute=full",
        2048,
        8192,
        (
            "infinitehbd:dims=16x128x2x4,tp=8",
            "railx:torus:m=4,n=9,nodes=32x32",
            "ub-mesh:superpod",
            "hpn:pod",
            "flex-sipac:r=16,L=3,jobs=4096",
            "servers:nodes=228,gpus=72",
            "fat-tree:radix=64,tiers=3",
            "tpuv4:cubes=4x4x4",
        ),
    ),
    "gpt-moe-1.1t": Large(
        "tp=16,sp,pp=16,ep=8,dp=512,sharding=zero1,recompute=full",
        8192,
        2048,
        (
            "infinitehbd:dims=128x128x2x4,tp=16",
            "railx:torus:m=4,n=9,nodes=64x64",
            "ub-mesh:superpod",
            "hpn:pod",
            "flex-sipac:r=16,L=3,jobs=4096",
            "servers:nodes=1821,gpus=72",
            "fat-tree:radix=64,tiers=3",
            "tpuv4:cubes=4x4x4",
        ),
    ),
}
_COLUMNS = ("topology", "NPUs", "dp", "batch", "step", "compute", "exposed", "idle", "MFU", "memory a rank")
_COST = ("engine", "ranks timed", "tasks", "wall", "CPU", "GB")


def command(model: str, topology: str) -> tuple[str, ...]:
    """The words of one estimate."""
    of = MODELS[model]
    batch = ("--global-batch", str(of.global_batch), "--seq", str(of.seq))
    laid = ("--plan", of.plan, "--stack", "software=megatron")
    return ("estimate", "--model", model, *laid, *batch, "--topology", topology, "--scale-dp", "--json")


def row(found: Mapping[str, Any], done: Ran) -> str:
    """One line of the table."""
    means = found["mean_over_ranks"]
    exposed = ", ".join(f"{axis} {format_time(s)}" for axis, s in means["exposed_comm_by_axis_s"].items() if s)
    size = (found["topology"], found["ranks"], found["dp"], found["global_batch"])
    times = (format_time(found["step_time_s"]), format_time(means["compute_s"]), exposed, format_time(means["idle_s"]))
    rest = (f"{found['mfu']:.3f}", format_size(found["peak_memory_bytes"]))
    cost = (
        found["engine"],
        found["timed_ranks"],
        f"{found['tasks']:,}",
        f"{done.wall_s:.1f} s",
        f"{done.cpu_s:.1f} s",
        f"{done.peak_gb:.2f}",
    )
    return f"| {' | '.join(map(str, (*size, *times, *rest, *cost)))} |\n"


def main() -> int:
    """Print a table a model, ready for the README."""
    names = asked_for(MODELS, "large", "model")
    for model in names:
        of, columns = MODELS[model], (*_COLUMNS, *_COST)
        sys.stdout.write(f"{model} by {of.plan}, global batch {of.global_batch}, sequences of {of.seq}\n\n")
        sys.stdout.write(f"| {' | '.join(columns)} |\n|{'---|' * len(columns)}\n")
        for topology in of.topologies:
            try:
                done = ran(EMU, *command(model, topology), quiet=True)
            except CalledProcessError as error:
                sys.stdout.write(f"| {topology} | refused, code {error.returncode} |{' |' * (len(columns) - 2)}\n")
                continue
            sys.stdout.write(row(json.loads(done.said), done))
            sys.stdout.flush()
        sys.stdout.write(f"\nEach may take {SECONDS} s and {GB} GB on one idle core.\n\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
