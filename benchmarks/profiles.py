"""Make large profiles, replay them, and print time and memory: `python -m benchmarks.profiles [BYTES ...]`.

A profile is such as PyTorch's profiler writes it: a plain file of each of eight ranks, of three steps. Each operator of the
host has its call in Python, launches a kernel and is linked to it; every fiftieth is an all_reduce of 25 MB on another stream.
"""

import json
import shutil
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.command import EMU, ran

RANKS, STEPS, BUCKET = 8, 3, 50  # BUCKET: kernels between two collectives
SIZES = (1e9, 2e9)  # bytes
TOPOLOGY = "switch:n=8,bandwidth=50GB/s,latency=1us"
_KERNEL_US, _HOST_US = 40.0, 30.0  # how long a kernel takes, and how much earlier the host launches it
_GROUP = str(list(range(RANKS)))
_NAMES = ("aten::mm", "aten::add_", "aten::_scaled_dot_product_flash_attention", "aten::native_layer_norm")
_GEMM = "sm90_xmma_gemm_bf16bf16_bf16f32_f32_nt_n_tilesize128x128x64_warpgroupsize1x1x1_execute_segment_k_off_kernel__5x_cublas"
_SHAPES = {"Input Dims": [[4096, 4096], [4096, 11008]], "Input type": ["c10::BFloat16"] * 2, "Sequence number": 1}
_LAUNCHED = {"device": 0, "context": 1, "registers per thread": 168, "shared memory": 213_248, "blocks per SM": 6.5}
_SENT = {
    "Collective name": "allreduce",
    "dtype": "Float",
    "In msg nelems": 6_250_000,
    "Out msg nelems": 6_250_000,
    "Group size": RANKS,
    "Process Group Name": "0",
    "Process Group Description": "default_pg",
    "Process Group Ranks": _GROUP,
}


def _span(category: str, name: str, place: tuple[int, int], times: tuple[float, float], **args: Any) -> str:
    """Return an event as text; `place` is the process and the thread, `times` are start and duration in microseconds."""
    where = {"pid": place[0], "tid": place[1], "ts": round(times[0], 3), "dur": round(times[1], 3)}
    return json.dumps({"ph": "X", "cat": category, "name": name, **where, "args": args})


def _kernel(number: int, at_us: float) -> Iterator[str]:
    """Yield the events of one kernel, with those of the host that launches it."""
    sends, host = number % BUCKET == BUCKET - 1, at_us - _HOST_US
    name, stream = ("nccl:all_reduce", 20) if sends else (_NAMES[number % len(_NAMES)], 7)
    told = {**_LAUNCHED, "stream": stream, "correlation": number, "External id": number, **(_SENT if sends else {})}
    yield _span("python_function", f"torch/nn/modules/module.py(1743): _call_impl_{number % 97}", (1, 1), (host, 25.0))
    yield _span("cpu_op", name, (1, 1), (host + 1, 20.0), **{"External id": number, **_SHAPES})
    yield _span("cuda_runtime", "cudaLaunchKernel", (1, 1), (host + 5, 4.0), correlation=number, cbid=211)
    kernel = "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)" if sends else _GEMM
    yield _span("kernel", kernel, (0, stream), (at_us, _KERNEL_US - 1), **told)
    for phase, place, when in (("s", (1, 1), host + 5), ("f", (0, stream), at_us)):
        link = {
            "ph": phase,
            "id": number,
            "pid": place[0],
            "tid": place[1],
            "ts": round(when, 3),
            "cat": "ac2g",
            "name": "ac2g",
        }
        yield json.dumps(link)


def _write_events(path: Path, kernels: int) -> None:
    """Write the events of a rank as a list: three steps with so many kernels in all."""
    of_step = kernels // STEPS
    with path.open("w", encoding="utf-8") as file:
        file.write("[\n")
        for step in range(STEPS):
            began, lasts = 1000.0 + step * of_step * _KERNEL_US, of_step * _KERNEL_US
            file.write(_span("user_annotation", f"ProfilerStep#{step + 7}", (1, 1), (began - _HOST_US, lasts)) + ",\n")
            for number in range(step * of_step, (step + 1) * of_step):
                file.write(",\n".join(_kernel(number, 1000.0 + number * _KERNEL_US)) + ",\n")
        file.write('{"ph": "M", "name": "process_name", "pid": 1, "tid": 0, "ts": 0, "args": {"name": "python"}}\n]')


def write_job(folder: Path, size: float) -> int:
    """Write the profiles of all ranks, of about `size` bytes in all; return the number of kernels. All ranks do the same."""
    sample = [len(",\n".join(_kernel(100_000 + i, 4e6 + i)) + ",\n") for i in range(BUCKET)]
    kernels = int(size / RANKS / (sum(sample) / BUCKET)) // STEPS * STEPS
    events = folder / "events"
    _write_events(events, kernels)
    for rank in range(RANKS):
        told = {"backend": "nccl", "rank": rank, "world_size": RANKS}
        head = {"schemaVersion": 1, "deviceProperties": [{"id": 0, "name": "NVIDIA H100 80GB HBM3"}], "distributedInfo": told}
        with (folder / f"rank{rank}.json").open("wb") as file, events.open("rb") as body:
            file.write(f'{json.dumps(head)[:-1]}, "traceEvents": '.encode())
            shutil.copyfileobj(body, file)
            file.write(b"}\n")
    events.unlink()
    return RANKS * kernels


def main(sizes: list[float]) -> None:
    """Print a line for each size."""
    for size in sizes:
        with tempfile.TemporaryDirectory() as folder:
            kernels = write_job(Path(folder), size)
            wrote = sum(file.stat().st_size for file in Path(folder).iterdir())
            took = ran(EMU, "replay", folder, "--topology", TOPOLOGY, "--algorithm", "all_reduce=ring")
            read = next(line for line in took.said.splitlines() if line.startswith("read"))
        sys.stdout.write(f"{wrote / 1e9:.2f} GB, {kernels:,} kernels: {took} ({took.cpu_s:.0f} s of CPU)\n  {read}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main([float(word) for word in sys.argv[1:]] or list(SIZES))
