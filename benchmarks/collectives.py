"""How fast collectives are built, proved and executed: `python -m benchmarks.collectives [build|execute|processes|verify ...]`.

One line a case, with its target. Each execution has a process of its own, so that its peak of memory is known. Ranks' buffers
lie apart (each its own allocation) or side by side (one allocation); all_reduce is in place.
"""

import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from multiprocessing import get_context
from pathlib import Path

import numpy as np
import psutil
import torch
from torch import Tensor, distributed
from torch._C._distributed_c10d import PrefixStore

from emu.backend.executor.executor import Buffers, execute
from emu.backend.executor.wire import LOOPBACK, GlooWire, reach_store, serve_store
from emu.collective.algorithm import algorithm, schedule
from emu.collective.operation import divide_blocks, operation
from emu.collective.proof import prove
from emu.collective.schedule import Schedule
from emu.errors import InputError, RunError

MIB, GB = 2**20, 10**9
FLOAT_BYTES = 4
EXECUTIONS = ((1024, MIB, "2.5 s, 2.5 GB"), (256, MIB, "0.3 s"), (64, 64 * MIB, "4 s"))
STACK = (8, 64 * MIB, "2 times stack, sum and copies back")
PROCESSES = ((8, 64 * MIB, "1.3 times gloo"), (8, MIB, "2 times gloo"))


@dataclass(frozen=True, slots=True)
class Line:
    """A line of what is printed: a case, its target, and what was measured here."""

    case: str
    target: str
    measured: str


def seconds(call: Callable[[], object]) -> float:
    """Wall-clock time."""
    since = time.perf_counter()
    call()
    return time.perf_counter() - since


def timed(call: Callable[[], object]) -> str:
    """The least of three wall-clock times, and the first, which may have to get its memory from the system."""
    times = [seconds(call) for _ in range(3)]
    return f"{min(times):.3g} s (first {times[0]:.3g} s)"


def build() -> Iterator[Line]:
    """Schedules of many ranks, and the proof of one."""
    ring, exchange, at_once = (
        algorithm(*key) for key in (("all_reduce", "ring"), ("all_to_all", "binary-exchange"), ("all_to_all", "at-once"))
    )
    made = ring.schedule(1024)
    columns = (made.src, made.dst, made.slot, made.reduce, made.channel, made.round_end)
    row_bytes = sum(column.nbytes for column in columns) / made.n_rows
    taken = timed(partial(ring.schedule, 1024))
    yield Line("build ring, 1,024 ranks", "0.2 s, 16 B a row", f"{taken}, {row_bytes:.1f} B a row")
    yield Line("build binary exchange, 1,024 ranks", "0.6 s", timed(partial(exchange.schedule, 1024)))
    try:
        taken = timed(partial(at_once.build, 8192))
    except InputError as error:
        taken = f"refused: {error}"
    yield Line("build all_to_all at once, 8,192 ranks, by translation", "10 ms", taken)
    yield Line("prove ring, 1,024 ranks", "1.5 s", timed(partial(prove, made, operation("all_reduce", 1024))))


@dataclass(frozen=True, slots=True)
class Executed:
    """Wall-clock times of one all_reduce in one process."""

    first_s: float  # compiles
    again_s: float
    moved_bytes: int
    bandwidth_Bps: float  # of a plain copy, bytes read and written
    stack_s: float
    peak_bytes: int

    def line(self, case: str, target: str, against_stack: bool) -> Line:
        """Return the line of a case, with these times in words."""
        ratio = f"{self.again_s / self.stack_s:.2f} times stack ({self.stack_s:.2f} s), " if against_stack else ""
        return Line(
            case,
            target,
            f"{self.again_s:.2f} s (first {self.first_s:.2f} s), {ratio}{self.peak_bytes / GB:.2f} GB, "
            f"{self.again_s * self.bandwidth_Bps / self.moved_bytes:.1f} times {self.moved_bytes / GB:.1f} GB moved at "
            f"{self.bandwidth_Bps / GB:.0f} GB/s",
        )


def execute_here() -> Iterator[Line]:
    """Ring all_reduces of real float32 in one process, those that fit its memory."""
    for (n, size, target), apart in ((case, apart) for case in (*EXECUTIONS, STACK) for apart in (False, True)):
        against_stack = (n, size, target) == STACK
        case = f"execute ring, {n:,} x {size // MIB} MiB, {'apart' if apart else 'side by side'}"
        needed, free = 3 * n * size, psutil.virtual_memory().available
        if needed > free:
            yield Line(case, target, f"skipped: needs {needed / GB:.1f} GB, {free / GB:.1f} GB are free")
            continue
        with ProcessPoolExecutor(1, get_context("spawn")) as pool:
            yield pool.submit(executed, n, size, apart, against_stack).result().line(case, target, against_stack)


def executed(n: int, size: int, apart: bool, against_stack: bool) -> Executed:
    """Execute four times, every result checked, and time a plain copy and what torch would do in the same run.

    Raises:
        RunError: a wrong sum.
    """
    count = size // FLOAT_BYTES
    tensors = filled(n, count, apart)
    run = partial(execute, schedule("all_reduce", "ring", n), operation("all_reduce", n))
    buffers = {rank: Buffers(tensor, tensor) for rank, tensor in enumerate(tensors)}
    first = seconds(partial(run, buffers))
    total = float(sum(rank % 7 for rank in range(n)))
    check(tensors, total)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    source, target = torch.ones(64 * MIB), torch.empty(64 * MIB)
    again, copied = [], []
    for _ in range(3):
        again.append(seconds(partial(run, buffers)))
        total *= n
        check(tensors, total)
        copied.append(seconds(partial(target.copy_, source)))
    stacked = [seconds(partial(stack, tensors)) for _ in range(3)] if against_stack else [0.0]
    bandwidth_Bps = 2 * source.nbytes / min(copied)
    return Executed(first, min(again), moved_bytes(schedule("all_reduce", "ring", n), count), bandwidth_Bps, min(stacked), peak)


def filled(n: int, count: int, apart: bool) -> list[Tensor]:
    """Small whole numbers, whose sums are exact."""
    tensors = [torch.empty(count) for _ in range(n)] if apart else list(torch.empty(n, count))
    for rank, tensor in enumerate(tensors):
        tensor.fill_(rank % 7)
    return tensors


def check(tensors: list[Tensor], total: float) -> None:
    """Check that every element of every rank is the sum.

    Raises:
        RunError: one is not.
    """
    for rank, tensor in enumerate(tensors):
        if not bool((tensor == total).all()):
            raise RunError(f"benchmark: rank {rank} has another sum than {total}")


def stack(tensors: list[Tensor]) -> None:
    """An all_reduce as torch alone would do it."""
    total = torch.stack(tensors).sum(0)
    for tensor in tensors:
        tensor.copy_(total)


def moved_bytes(made: Schedule, count: int) -> int:
    """Return the bytes that are moved: a copy reads and writes its slot; an add reads two and writes one."""
    slots = divide_blocks(np.array([count]), made.n_slots, made.shares)
    return int((slots.count[made.slot] * np.where(made.reduce, 3, 2)).sum()) * FLOAT_BYTES


def processes() -> Iterator[Line]:
    """The ring between processes over gloo's point-to-point transfers, against gloo's own all_reduce."""
    for n, size, target in PROCESSES:
        store = serve_store()
        with ProcessPoolExecutor(n, get_context("spawn")) as pool:
            times = np.array(list(pool.map(partial(one_of, n=n, size=size, port=store.port), range(n))))
        ours, gloo = times.max(axis=0).min(axis=1)
        measured = f"{ours / gloo:.2f} times gloo ({1000 * ours:.1f} against {1000 * gloo:.1f} ms)"
        yield Line(f"ring between {n} processes, {size // MIB} MiB", target, measured)


def one_of(rank: int, n: int, size: int, port: int) -> list[list[float]]:
    """Return what one process measures: the times of our all_reduce and of gloo's in turn, each after a barrier."""
    os.environ["GLOO_SOCKET_IFNAME"] = "lo"
    torch.set_num_threads(1)
    store = reach_store(LOOPBACK, port)
    wire = GlooWire(store, rank, n)
    distributed.init_process_group("gloo", store=PrefixStore("peer", store), rank=rank, world_size=n)
    data = torch.zeros(size // FLOAT_BYTES)
    counts = np.array([data.numel()])
    ours = partial(execute, schedule("all_reduce", "ring", n), operation("all_reduce", n), {rank: Buffers(data, data)})
    times: list[list[float]] = [[], []]
    for _ in range(6):
        for into, call in zip(
            times, (partial(ours, counts=counts, wire=wire), partial(distributed.all_reduce, data)), strict=True
        ):
            distributed.barrier()
            into.append(seconds(call))
    distributed.barrier()
    distributed.destroy_process_group()
    return times


def verify() -> Iterator[Line]:
    """The whole catalogue by `emu verify`, in a process of its own."""
    emu = Path(sys.executable).with_name("emu")
    taken = seconds(partial(subprocess.run, [emu, "verify", "--json"], check=True, stdout=subprocess.DEVNULL))
    yield Line("emu verify, the whole catalogue, n up to 64", "90 s on 2 cores", f"{taken:.1f} s")


GROUPS: dict[str, Callable[[], Iterator[Line]]] = {
    "build": build,
    "execute": execute_here,
    "processes": processes,
    "verify": verify,
}


def main() -> None:
    """Print one line a case of the groups that are named, or of all."""
    for name in sys.argv[1:] or GROUPS:
        for line in GROUPS[name]():
            sys.stdout.write(f"{line.case:56}{line.target:38}{line.measured}\n")
            sys.stdout.flush()


if __name__ == "__main__":
    main()
