"""Python and machine code work graphs and collectives through alike: the same columns and times, to the last bit."""

from collections.abc import Callable, Iterable
from dataclasses import fields
from typing import Any

import numpy as np
import pytest

from emu.arrays import digest
from emu.collective.algorithm import compact_schedule, schedule
from emu.compiled.function import CompiledFunction
from emu.fabric.engine import refine as quotient_refine
from emu.fabric.engine.graph_check import check_graph, order_tasks
from emu.fabric.engine.quotient import quotient
from emu.fabric.engine.refine import refine
from emu.fabric.engine.state_layout import columns
from emu.fabric.engine.sweep import sweep
from emu.fabric.graph import Graph
from emu.fabric.lower import FabricJob, lower
from emu.fabric.run import run_graph, time_alone
from emu.topology.catalogue import build_topology
from tests.fabric.reference import graph_of, random_case
from tests.fabric.test_invariance import relabelled

LINKS = "bandwidth=50GB/s,latency=500ns"
CASES = [
    ("all_reduce", "ring", f"switch:n=8,{LINKS}"),
    ("all_reduce", "double-tree", f"torus:dims=4x4,{LINKS}"),
    ("all_to_all", "at-once", f"torus:dims=4x4,{LINKS}"),
    ("all_to_all", "at-once", f"fat-tree:radix=4,tiers=3,{LINKS}"),
    ("broadcast", "binomial", f"ring:n=7,{LINKS}"),
]


def as_python(self: CompiledFunction[..., Any], *args: Any) -> Any:
    with np.errstate(all="ignore"):
        return as_machine_code(self, *args) if self.has_records else self.python(*args)


def as_machine_code(self: CompiledFunction[..., Any], *args: Any) -> Any:
    return self.machine_code(self.match(args)[0])(*args)


def both(monkeypatch: pytest.MonkeyPatch, work: Callable[[], Iterable[object]]) -> tuple[str, str]:
    """The digests of what work gives, each way."""
    digests = []
    for way in (as_python, as_machine_code):
        monkeypatch.setattr(CompiledFunction, "__call__", way)
        digests.append(digest(work()))
    return digests[0], digests[1]


def parts(value: Any) -> Iterable[object]:
    return () if value is None else [getattr(value, field.name) for field in fields(value)]


def timed(graph: Graph) -> Iterable[object]:
    check_graph(graph)
    tasks = order_tasks(graph)
    yield tasks
    for way in (sweep, quotient):
        yield from parts(way(graph, tasks))
    yield from refine(columns(graph), graph.capacity_Bps, tasks) or ()
    yield from parts(run_graph(graph))


@pytest.mark.parametrize("first", range(0, 60, 10))
def test_any_graph_is_timed_alike(monkeypatch: pytest.MonkeyPatch, first: int) -> None:
    monkeypatch.setattr(quotient_refine, "_ALL_COUNTED", 256)  # as of 2**14
    graphs = [graph_of(*random_case(seed, most=400)) for seed in range(first, first + 10)]
    graphs += [relabelled(graph, np.arange(graph.n_tasks)[::-1], np.arange(graph.n_links)) for graph in graphs]
    python, machine = both(monkeypatch, lambda: [part for graph in graphs for part in timed(graph)])
    assert python == machine


@pytest.mark.parametrize(("operation", "algorithm", "line"), CASES)
def test_any_collective_is_lowered_alike(monkeypatch: pytest.MonkeyPatch, operation: str, algorithm: str, line: str) -> None:
    topology = build_topology(line)
    n = topology.n_npus
    rows, ranks = schedule(operation, algorithm, n), np.arange(n)
    sizes = np.full(rows.n_slots, 10**6)

    def work() -> Iterable[object]:
        piece = lower(FabricJob(rows, sizes, topology, ranks))
        yield from parts(piece.graph)
        yield from parts(run_graph(piece.graph))
        yield from parts(time_alone(FabricJob(compact_schedule(operation, algorithm, n), sizes, topology, ranks)))

    python, machine = both(monkeypatch, work)
    assert python == machine
