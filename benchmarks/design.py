"""A design of 10,000 points, and one of 500 points beside the timing of every point.

    python -m benchmarks.design large
    python -m benchmarks.design brute [POINTS]

`large` asks for a machine of 64 NPUs for llama3-8b by Emu's price book, with 18 plans a point. `brute` asks for one of 4 or 8
NPUs, and compares the answer with that of a search for plans at every point and a comparison of every two points.
"""

import resource
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import emu
from emu.study.planning.find import find_plans
from emu.study.planning.plan_request import PlanRequest
from emu.study.planning.search.result_cache import ResultCache
from launch.front import inputs
from launch.front.design_space import spread

JOB: dict[str, Any] = {"model": "llama3-8b", "global_batch": 64, "seq": 8192, "stack": "software=megatron"}
LARGE = (
    "ub-mesh:rack:lane_rate={7GB/s..28GB/s:25},latency={100ns..1000ns:20}",
    "rail-only:dims={8x8,4x16,16x4},planes={1,2,3,4,6,8},latency={100ns..1000ns:50}",
    "hammingmesh:boards={2x2,1x4},planes={1,2,3,4},bandwidth={12.5GB/s..100GB/s:20},latency={100ns..1000ns:10}",
    "tpuv4:cubes=1x1x1,bandwidth={12.5GB/s..100GB/s:50},latency={100ns..1000ns:40}",
    "nvl:72:bandwidth={6.25GB/s..50GB/s:50},latency={100ns..1000ns:20}",
    "railx:torus:m=4,n={3,9},nodes=2x2,bandwidth={12.5GB/s..100GB/s:50},latency={100ns..1000ns:20}",
    "fat-tree:radix=16,planes={1,2,3,4},bandwidth={12.5GB/s..100GB/s:50},latency={100ns..1000ns:10}",
)
NPU = "dollars=30000,watts=700"
SMALL = (
    "ub-mesh:board:lane_rate={5GB/s..40GB/s:18},latency={100ns,300ns,1000ns}",
    "rail-only:dims=2x4,planes={1,2,3,4,6,8,12,16},latency={100ns,300ns,1000ns}",
    "nvl:72:bandwidth={2GB/s..50GB/s:15},latency={100ns,300ns,1000ns}",
)
BOTH = {"h100": "dollars=30000,watts=700", "h800": "dollars=24000,watts=650"}


@contextmanager
def clock(what: str) -> Iterator[None]:
    """Write how long a part took: by the clock, and of all cores together."""
    began, used = time.perf_counter(), _cpu_s()
    yield
    sys.stdout.write(f"{what}: {time.perf_counter() - began:.0f} s, {_cpu_s() - used:.0f} s of cores\n")
    sys.stdout.flush()


def _cpu_s() -> float:
    """Return the seconds of all cores that this process and its ended children have used."""
    each = [resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)]
    return sum(used.ru_utime + used.ru_stime for used in each)


def large() -> None:
    """Print the large design and what it took."""
    given: dict[str, Any] = {"plan": "sp,pp=1,cp=1,recompute=none", "npu": NPU, "faults": "tp=8,rate=1%,draws=200"}
    with tempfile.TemporaryDirectory() as folder, clock("a design of many points"):
        found = emu.design(npus=64, topology=LARGE, cache=folder, **JOB, **given)
    sys.stdout.write(found.text() + "\n")


def brute(points: int) -> None:
    """Print whether a design is what the timing of all points gives, and what both took."""
    topologies = [text for words in SMALL for text in spread(words)][: -(-points // 4)]
    prices = [f"{name}:{price}" for name, price in BOTH.items()]
    words: dict[str, Any] = {"plan": "sp,pp=1,cp=1,recompute=none", "npus": "4,8"}
    with tempfile.TemporaryDirectory() as folder, clock("the design"):
        found = emu.design(topology=topologies, device=[*BOTH], npu=prices, cache=folder, **words, **JOB)
    sys.stdout.write(f"{found.table.points} points, {found.table.timed} timed, {found.table.steps} steps\n")
    with clock("all points"):
        every = _timed(topologies)
    front = {name for name, own in every.items() if not any(_beats(other, own) for other in every.values())}
    ours = {(row.topology, row.device, row.npus) for row in found.rows}
    sys.stdout.write(f"{len(front)} points on the front; the design has {'the same' if ours == front else 'others'}\n")
    least = max(every, key=lambda name: every[name][0] / -every[name][1])
    sys.stdout.write(f"the best for the money: {least}; the design's: {found[0].name}\n")


def _timed(topologies: Sequence[str]) -> dict[Any, tuple[float, ...]]:
    """Return tokens per second, dollars and watts of every point, the last two negative."""
    stack = inputs.stack_of(JOB["stack"])
    kept, found = ResultCache(None), dict[Any, tuple[float, ...]]()
    for name, price in BOTH.items():
        device = inputs.device_of(name, stack.precision.activation)
        dollars, watts = (float(word.partition("=")[2]) for word in price.split(","))
        for npus in (4, 8):
            words = (JOB["model"], npus, JOB["global_batch"], JOB["seq"], stack, inputs.algorithm_words((), stack))
            for topology in topologies:
                request = PlanRequest(*words, "sp,pp=1,cp=1,recompute=none", (), 1)
                row = find_plans(request, [emu.build_topology(topology)], device, kept).rows[0]
                paid = emu.cost(topology=topology)[0]
                low, high = paid.cost, (paid.high or paid).cost
                share = npus / low.npus
                money = (low.dollars + high.dollars) / 2 * share + npus * dollars
                power = (low.watts + high.watts) / 2 * share + npus * watts
                found[topology, name, npus] = (row.tokens_per_s, -round(money, 6), -round(power, 6))
    return found


def _beats(one: tuple[float, ...], other: tuple[float, ...]) -> bool:
    """Return whether a point is nowhere worse than another one, and somewhere better."""
    return one != other and all(a >= b for a, b in zip(one, other, strict=True))


if __name__ == "__main__":
    if sys.argv[1] == "large":
        large()
    else:
        brute(int((sys.argv[2:] or ["500"])[0]))
