"""Profiles of GPUs written by hand, in the form of PyTorch's export_chrome_trace; times are in microseconds."""

import gzip
import json
from pathlib import Path
from typing import Any

Event = dict[str, Any]
HOST, COMPUTE, NCCL = 1, 7, 20  # a thread of the host, and two streams


def span(category: str, name: str, ts: float, dur: float, tid: int, **args: Any) -> Event:
    return {"ph": "X", "cat": category, "name": name, "pid": 0, "tid": tid, "ts": ts, "dur": dur, "args": args}


def step(number: int, ts: float, dur: float) -> Event:
    return span("user_annotation", f"ProfilerStep#{number}", ts, dur, HOST)


def call(name: str, ts: float, correlation: int, dur: float = 1) -> Event:
    return span("cuda_runtime", name, ts, dur, HOST, correlation=correlation)


def kernel(
    name: str, launched: float, ts: float, dur: float, correlation: int, stream: int = COMPUTE, **args: Any
) -> list[Event]:
    """Return a kernel and the call that launches it."""
    made = span("kernel", name, ts, dur, stream, device=0, stream=stream, correlation=correlation, **args)
    return [call("cudaLaunchKernel", launched, correlation), made]


def collective(
    what: str, launched: float, ts: float, dur: float, correlation: int, given: int, made: int, ranks: list[int], **args: Any
) -> list[Event]:
    """Return a kernel of NCCL with what PyTorch writes to it."""
    told = {"Collective name": what, "In msg nelems": given, "Out msg nelems": made, "dtype": "Float"}
    group = {"Group size": len(ranks), "Process Group Ranks": str(ranks), "Process Group Name": "0"}
    named = {**told, **group, "Process Group Description": "default_pg", **args}
    return kernel("ncclDevKernel_Generic", launched, ts, dur, correlation, NCCL, **named)


def step_of_ddp(start: float = 0, elements: int = 1000, ranks: list[int] | None = None) -> list[Event]:
    """Return a step: a gradient, its all_reduce beside the next gradient, and an optimizer that waits for both."""
    group = ranks or [0, 1]
    return [
        step(5, start, 500),
        *kernel("gradient_2", start + 1, start + 10, 40, 1),
        call("cudaStreamWaitEvent", start + 12, 90),  # NCCL's stream waits for that of the gradient
        *collective("allreduce", start + 14, start + 50, 100, 2, elements, elements, group),
        *kernel("gradient_1", start + 20, start + 50, 60, 3),
        call("cudaStreamWaitEvent", start + 30, 91),  # the optimizer waits for the all_reduce
        *kernel("optimizer", start + 40, start + 150, 20, 4),
    ]


def profile_of(rank: int, events: list[Event], world: int = 2, **more: Any) -> dict[str, Any]:
    told = {"backend": "nccl", "rank": rank, "world_size": world}
    devices = [{"id": 0, "name": "NVIDIA H100"}]
    return {"schemaVersion": 1, "deviceProperties": devices, "distributedInfo": told, "traceEvents": events, **more}


def write(folder: Path, name: str, profile: dict[str, Any]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    path, text = folder / name, json.dumps(profile).encode()
    path.write_bytes(gzip.compress(text) if name.endswith(".gz") else text)
    return path


def two_ranks(folder: Path) -> Path:
    """Return a folder with the profiles of two ranks that take one step."""
    write(folder, "rank0.json", profile_of(0, step_of_ddp()))
    write(folder, "rank1.json.gz", profile_of(1, step_of_ddp(start=7_000_000)))  # the clocks of hosts differ
    return folder


def exchange(what, ts, peer, elements, ranks="[0, 1]"):
    """Return a message to the rank at a place among two ranks, as its operator and NCCL's note tell it."""
    told = {"Input Dims": [[[elements]], [], []], "Concrete Inputs": ["", "", str(peer), "0"]}
    sizes = {"Collective name": what.strip("_"), "In msg nelems": elements, "Out msg nelems": elements, "dtype": "BFloat16"}
    group = {"Process Group Ranks": ranks, "Group size": 2}
    return [
        span("cpu_op", f"c10d::{what}", ts, 4, HOST, **told),
        span("cpu_op", "record_param_comms", ts + 1, 2, HOST, **sizes, **group),
    ]
