"""How fast schedules are timed whose translations are declared: `python -m benchmarks.declared`.

One line a case: what is built (schedule and topology), and the time from the rows of rank 0 to the end of the last message.
"""

import resource
import sys
import time

import numpy as np

from emu.arrays import column
from emu.collective.algorithm import stored
from emu.fabric.symmetric import time_alone
from emu.topology.catalogue import build_topology

SLOT_BYTES, REPEATS = 2**16, 3
_LINK = "bandwidth=50GB/s,latency=500ns"
CASES = (  # those that take least memory first: the peak is the process's
    (f"ring:n=1024,{_LINK}", "all_reduce", "ring", ()),
    (f"ring:n=4096,{_LINK}", "all_reduce", "ring", ()),
    (f"torus:dims=64x64,{_LINK}", "all_reduce", "ring", ()),
    (f"torus:dims=128x64,{_LINK}", "all_to_all", "at-once", ()),
    (f"switch:n=15360,{_LINK}", "all_reduce", "hierarchical-ring", (15, 128, 8)),
    (f"torus:dims=448x448,{_LINK}", "all_reduce", "2d-ring", (448, 448)),
    ("hpn:pod", "all_reduce", "hierarchical-ring", (15, 128, 8)),
)


def measure(line: str, operation: str, name: str, dims: tuple[int, ...]) -> str:
    """The line of one case."""
    since = time.perf_counter()
    topology = build_topology(line)
    n = topology.n_npus
    plan = stored(operation, name, n, 0, dims)
    times = [time.perf_counter() - since]
    sizes = np.broadcast_to(np.int64(SLOT_BYTES), plan.n_slots)
    for _ in range(REPEATS):
        since = time.perf_counter()
        timeline = time_alone(plan, sizes, topology, column(np.arange(n), np.int32))
        times.append(time.perf_counter() - since)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024 / 1e9
    where = f"{operation} {name}, {line.partition(',')[0]}"
    taken = "".join(f"{seconds:9.2f}" for seconds in (times[0], times[1], min(times[1:])))
    return f"{where:50}{n:9,}{len(timeline.end_fs):11,}{taken}{peak:6.2f}  {timeline.how}\n"


def main() -> None:
    """Print a table."""
    sys.stdout.write(f"{'case':50}{'ranks':>9}{'tasks':>11}{'build s':>9}{'first s':>9}{'least s':>9}{'GB':>6}  how\n")
    for case in CASES:
        sys.stdout.write(measure(*case))


if __name__ == "__main__":
    main()
