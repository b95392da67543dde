"""What does a recorded training step take on a fabric, and where does its time go?"""

import time
from collections.abc import Mapping
from dataclasses import dataclass, replace

from emu.collective.algorithm import Choice
from emu.fabric.run import run
from emu.fabric.timeline import Timeline
from emu.topology.placement import place
from emu.topology.topology import Topology
from emu.trace.device import Device
from emu.trace.replay import Replayed, replay
from emu.trace.report import StepReport, report
from emu.trace.trace import Kind, Trace

_ALGORITHMS = "algorithms"  # the key of a trace's meta under which what served it is kept


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """The last step of a run on one topology; times are virtual but for those that begin with `wall_`."""

    topology: str
    device: str
    dtype: str  # what float32 is timed as
    ranks: int
    step_times_s: tuple[float, ...]  # of every step but set-up
    step_time_s: float  # the last
    compute_s: float
    exposed_comm_s: float
    idle_s: float
    exposed_comm_by_axis_s: Mapping[str, float]
    total_comm_s: float
    peak_memory_bytes: int
    algorithms: Mapping[str, str]  # by operation, what served it
    assumptions: tuple[str, ...]
    wall_fabric_s: float


@dataclass(frozen=True, eq=False, slots=True)
class TimedTrace:
    """A trace on a topology, with the moments of all its tasks."""

    trace: Trace
    topology: Topology
    device: Device
    dtype: str
    choice: Choice
    replayed: Replayed
    timeline: Timeline
    report: StepReport
    wall_fabric_s: float

    def step(self) -> Step:
        """The figures."""
        r = self.report
        return Step(
            topology=self.topology.name,
            device=self.device.name,
            dtype=self.dtype,
            ranks=self.trace.n_ranks,
            step_times_s=r.step_times_s,
            step_time_s=r.step_time_s,
            compute_s=r.compute_s,
            exposed_comm_s=r.exposed_comm_s,
            idle_s=r.idle_s,
            exposed_comm_by_axis_s=r.exposed_comm_by_axis_s,
            total_comm_s=r.total_comm_s,
            peak_memory_bytes=int(self.trace.peak_bytes.max(initial=0)),
            algorithms=algorithms_of(self.trace, self.choice),
            assumptions=self.assumptions(),
            wall_fabric_s=self.wall_fabric_s,
        )

    def assumptions(self) -> tuple[str, ...]:
        """A sentence for each thing that no source says."""
        own = [
            f"the {self.trace.n_ranks} ranks sit on the first of the {self.topology.n_npus} NPUs",
            "peak memory is the storage that lived on a rank, in the dtypes that ran",
        ]
        if self.dtype != "float32":
            own.append(f"what ran in float32 is timed as {self.dtype}")
        return (*self.topology.assumptions, *self.replayed.assumptions, *own)


def time_trace(trace: Trace, choice: Choice, topology: Topology, device: Device, dtype: str) -> TimedTrace:
    """Time a trace on a topology, its ranks on the first NPUs.

    Raises:
        InputError: more ranks than NPUs, an unknown dtype, or a trace without a step.
    """
    began = time.perf_counter()
    replayed = replay(trace, choice, topology, place(topology, trace.n_ranks), device, dtype)
    timeline = run(replayed.graph)
    found = report(trace, replayed, timeline)
    return TimedTrace(trace, topology, device, dtype, choice, replayed, timeline, found, time.perf_counter() - began)


def algorithms_of(trace: Trace, choice: Choice) -> dict[str, str]:
    """What serves each operation that the steps of a trace ask for."""
    asked = {e.name[i] for e in trace.events for i in range(len(e)) if e.kind[i] == Kind.COLLECTIVE and e.step[i]}
    return {operation: choice.name(operation) for operation in sorted(asked)}


def with_choice(trace: Trace, choice: Choice) -> Trace:
    """The trace, with what served it noted in its meta."""
    words = " ".join(f"{operation}={name}" for operation, name in algorithms_of(trace, choice).items())
    return replace(trace, meta=(*trace.meta, (_ALGORITHMS, words)))


def choice_of(trace: Trace, words: tuple[str, ...] = ()) -> Choice:
    """What served a trace when it ran, but for what `words` (OPERATION=NAME) say otherwise.

    Raises:
        InputError: a word that is no choice, or an algorithm that is unknown here.
    """
    noted = dict(trace.meta).get(_ALGORITHMS, "").split()
    return Choice.parse((*noted, *words))
