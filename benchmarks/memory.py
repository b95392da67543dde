"""Measure the memory that timing takes, in bytes a message: `python -m benchmarks.memory`, on Linux.

Each stage has a process of its own. Columns are counted as they are held; a peak is how far the resident memory of the process
rose above what it held before the stage, what the stage gives back included.
"""

import ctypes
import gc
import re
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np

from benchmarks.scale import LINK, SLOT_BYTES, THREE_TIER, apart
from emu.arrays import column
from emu.collective.algorithm import algorithm
from emu.collective.schedule import Schedule
from emu.compiled.function import ENOUGH, INTERPRETED
from emu.fabric.engine.graph_check import order_tasks
from emu.fabric.engine.quotient import quotient
from emu.fabric.engine.solver.state import State
from emu.fabric.engine.sweep import sweep
from emu.fabric.graph import COLUMNS, Graph
from emu.fabric.lower import FabricJob, lower
from emu.topology.catalogue import build_topology

CASES = (
    (f"switch:n=1024,{LINK}", "all_reduce", "ring"),
    (f"torus:dims=32x32,{LINK}", "all_to_all", "at-once"),
    (THREE_TIER, "all_to_all", "at-once"),
)
ROWS = ("src", "dst", "slot", "reduce", "channel", "round_end")
PREDECESSORS = ("pred_start", "pred", "pred_left")
HOPS = ("hop_start", "hop_link", "hop_weight")


@dataclass(frozen=True, slots=True)
class TimedCase:
    """A schedule with all its rows, on a topology."""

    topology: str
    operation: str
    algorithm: str

    def schedule(self) -> Schedule:
        """Return the schedule with all its rows."""
        found = algorithm(self.operation, self.algorithm)
        return found.schedule(found.fit(build_topology(self.topology).n_npus))

    def graph(self) -> Graph:
        """Return the graph of the tasks of all rows."""
        return self.lowered(self.schedule())

    def lowered(self, plan: Schedule) -> Graph:
        """Return the tasks of a schedule's rows."""
        topology = build_topology(self.topology)
        places = column(np.arange(topology.n_npus), np.int32)
        return lower(FabricJob(plan, np.broadcast_to(np.int64(SLOT_BYTES), plan.n_slots), topology, places)).graph


def solve(graph: Graph) -> object:
    """Time a graph by the solver alone."""
    state = State(graph.capacity_Bps)
    state.admit(graph)
    state.advance()
    return state.timeline()


ENGINE: dict[str, Callable[[Graph], object]] = {
    "sweep": lambda graph: sweep(graph, order_tasks(graph)),
    "quotient": lambda graph: quotient(graph, order_tasks(graph)),
    "solver": solve,
}


def resident(name: str) -> int:
    """Bytes of this process that are resident now (`VmRSS`), or were at most (`VmHWM`)."""
    found = re.search(rf"^{name}:\s+(\d+) kB$", Path("/proc/self/status").read_text(), re.MULTILINE)
    return int(found[1]) * 1024 if found else 0


def rise(call: Callable[[], object]) -> tuple[int, object]:
    """Bytes that the resident memory rises by during a call, and what it gives."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)  # what was freed goes back to the system, or the stage would find it there
    Path("/proc/self/clear_refs").write_text("5")  # forget the peak so far
    before = resident("VmRSS")
    result = call()
    return resident("VmHWM") - before, result


def load(way: str = "sweep") -> None:
    """Load the machine code of lowering and of a way, else loaded where it is first worth while: it is not of the messages."""
    INTERPRETED.elements = ENOUGH
    for topology in (f"torus:dims=2x2,{LINK}", "fat-tree:radix=4,tiers=3"):
        ENGINE[way](TimedCase(topology, "all_to_all", "at-once").graph())
    ENGINE[way](TimedCase(f"switch:n=4,{LINK}", "all_reduce", "ring").graph())


def held(value: object, names: tuple[str, ...]) -> int:
    """Bytes of some columns."""
    return sum(getattr(value, name).nbytes for name in names)


def columns(asked: TimedCase) -> list[float]:
    """Bytes a message of a schedule's rows, of predecessors, hops and other columns of tasks, and hops a message."""
    plan, graph = asked.schedule(), asked.graph()
    n = plan.n_rows
    others = held(graph, COLUMNS) - held(graph, PREDECESSORS) - held(graph, HOPS)
    sizes = held(plan, ROWS), held(graph, PREDECESSORS), held(graph, HOPS), others, len(graph.hop_link)
    return [size / n for size in sizes]


def lowering(asked: TimedCase) -> float:
    """Bytes a message that rise while tasks are made of rows, the tasks included."""
    plan = asked.schedule()
    load()
    return rise(partial(asked.lowered, plan))[0] / plan.n_rows


def timing(asked: TimedCase, way: str) -> str:
    """Bytes a message that rise while the engine times the tasks by one of its ways, the timeline included."""
    graph = asked.graph()
    load(way)
    rose, timeline = rise(partial(ENGINE[way], graph))
    return f"{rose / graph.n_tasks:.0f}" if timeline is not None else "refuses"


def row(asked: TimedCase) -> str:
    """Return one row of the table."""
    *sizes, hops = apart(partial(columns, asked))
    peak = apart(partial(lowering, asked))
    ways = [apart(partial(timing, asked, way)) for way in ENGINE]
    words = f"{asked.operation} {asked.algorithm}, {asked.topology.partition(',bandwidth')[0]}"
    return f"| {words} | {hops:.1f} | {' | '.join(f'{size:.0f}' for size in sizes)} | {peak:.0f} | {' | '.join(ways)} |"


def main() -> None:
    """Print the table."""
    stages = ("schedule", "predecessors", "hops (B)", "other columns", "lowering, peak")
    names = ("1,024 ranks", "hops", *stages, *(f"{way}, peak" for way in ENGINE))
    sys.stdout.write(f"| {' | '.join(names)} |\n|{'---|' * len(names)}\n")
    for case in CASES:
        sys.stdout.write(row(TimedCase(*case)) + "\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
