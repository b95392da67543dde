"""The time of a recorded or generated training step on a fabric, and the parts of that time."""

import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import partial
from typing import Any, TypeVar

import numpy as np

from emu.arrays import F64, I64
from emu.cluster.pace.timeliness import PaceFigures
from emu.collective.choice import Choice
from emu.fabric.graph import Timeline, name_tasks
from emu.fabric.packet_fabric import FLUID_ASSUMED
from emu.fabric.run import Spread, check_seeds, spread
from emu.study.choice.chooser import is_automatic, library_words
from emu.study.fabric_check import FabricCheck
from emu.study.packet_figures import PacketFigures
from emu.study.training.composed.requests_by_place import PlaceRequests
from emu.study.training.step.choices import RecordedChooser, StepChoice, served_otherwise
from emu.study.training.step.rate import Products, dtype_notes, judged, messages_of, peak_notes, products_of
from emu.topology.topology import Topology
from emu.trace.device.device import Device
from emu.trace.formats.measured_parts import MeasuredParts
from emu.trace.formats.reading import reading_of
from emu.trace.growth import growth_notes
from emu.trace.replay.replay import TraceLayout, brief_replay, replay_timeline
from emu.trace.replay.replay_graph import ReplayGraph, Service, event_name
from emu.trace.report.activity import BusyLink, busiest, busy_shares
from emu.trace.report.collective_times import CollectiveTimes, collective_times
from emu.trace.report.compute_basis import ComputeBasis, compute_basis
from emu.trace.report.critical_path import PathPart, critical_path
from emu.trace.report.kernel_times import KernelTimes, kernel_times
from emu.trace.report.mean_parts import MeanParts, mean_parts
from emu.trace.report.report import StepReport, report
from emu.trace.report.request_times import Arrivals, requests_of
from emu.trace.trace import PARTS, Trace
from emu.units import format_size, format_time

RECORDED_MEMORY = (
    "peak memory is the storage that lived on a rank, in the dtypes that ran; activations are all that is nothing else"
)
EACH_ALONE = "what serves a request was chosen for it by itself, not for the step: a run needs it before there is a step"
_OF_TIMING = ("between_s", "spread", "packets", "fabric_check", "wall_fabric_s")  # fields that a `TimedTrace` has, too
LEFT_OUT = {"left out": "where it is None"}  # metadata of a field that has no meaning for some steps


@dataclass(frozen=True, slots=True, kw_only=True)
class CostlyRequest:
    """Equal requests from one line of the user's program, with their times on the rank that ended last."""

    line: str
    operation: str
    axis: str
    ranks: int  # ranks of the group
    times: int  # how often the request is made in the step
    size_bytes: int  # bytes of each request, as timed
    time_s: float  # seconds of all, each from this rank's entering to its leaving; in that time other ranks may be waited for
    algorithm: str | None  # None: it is a message
    alone_s: float | None  # seconds of each in the fluid fabric, alone, till its last rank leaves; None, as below: not computed
    busbw_Bps: float | None  # bus bandwidth as nccl-tests defines it, for that time
    of_bound: float | None  # the least time of any schedule divided by that time
    next_algorithm: str | None  # the fastest of the others
    next_s: float | None  # seconds of each by that algorithm


@dataclass(frozen=True, slots=True, kw_only=True)
class ReplayError:
    """The relative error of a replay on the fabric on which its profile was taken; below 0, the replay is shorter."""

    topology: str  # the fabric on which the profile was taken
    step_time_s: float  # seconds of the replay there
    share: float  # share of the measured time by which the replay is longer; below 0: shorter


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class Step:
    """The figures of a training step on one topology; times are virtual except those that begin with `wall_`."""

    topology: str
    device: str
    dtype: str  # what float32 is timed as; `as-ran`: each in the dtype that it ran in
    products: tuple[Products, ...]  # the FLOPs by the dtype in which they are timed, the dtype of most first
    messages_in: tuple[str, ...]  # the dtypes of the requests, as timed
    ranks: int
    step_times_s: tuple[float, ...]  # seconds of every step but the set-up
    step_groups: tuple[tuple[int, ...], ...]  # numbers of steps that do equal work; first those that the run is about
    step_time_s: float  # seconds: the median of the first group; of two steps, the shorter
    step: int  # the number of the step that took that time; the parts below are of this step
    rank: int  # the rank whose parts follow: the one that ended last
    compute_s: float
    early_compute_s: float  # computation of the step while another rank was still in the step before
    other_compute_s: float  # computation of other steps within compute_s
    compute_least_s: float  # the least of any rank: compute_s + early_compute_s - other_compute_s
    compute_most_s: float
    compute_basis: ComputeBasis | None = field(default=None, metadata=LEFT_OUT)  # None: no kernel was measured on the device
    exposed_comm_s: float
    idle_s: float
    bubble_s: float  # the part of idle_s that the rank waits for other stages of its pipeline
    straggling_by_rank_s: Mapping[int, float]  # the rest of idle_s: waits for each other rank of its own stage
    optimizer_s: float | None = field(default=None, metadata=LEFT_OUT)  # part of compute_s; None: no optimizer was seen
    exposed_comm_by_axis_s: Mapping[str, float]
    total_comm_s: float
    mean_over_ranks: MeanParts | None = field(default=None, metadata=LEFT_OUT)  # to compare steps; None: it was not asked for
    critical_path: tuple[PathPart, ...]  # parts that add up to the step, the longest first
    busiest_links: tuple[BusyLink, ...]  # three at most
    either_way: float | None = field(default=None, metadata=LEFT_OUT)  # share that it may be off; None: not known
    either_way_by: str | None = field(default=None, metadata=LEFT_OUT)  # runs that this share is of
    beyond_runs: str | None = field(default=None, metadata=LEFT_OUT)  # why it need not hold; None: it holds
    tokens_per_s: float | None = field(default=None, metadata=LEFT_OUT)  # as the next two; None: it is of no known model
    mfu: float | None = field(default=None, metadata=LEFT_OUT)
    hfu: float | None = field(default=None, metadata=LEFT_OUT)
    peak_memory_bytes: int  # bytes of the rank that holds most
    memory_by_part_bytes: Mapping[str, int]  # bytes of that rank by part
    algorithms: Mapping[str, str]  # by operation, what served it; where that differs, with the sizes as timed
    algorithms_by_axis: Mapping[str, Mapping[str, str]] = field(default_factory=dict)  # the same for each axis alone
    chosen: Mapping[str, str] | None = field(
        default=None, metadata=LEFT_OUT
    )  # as algorithms, in the words of a library that chose
    auto: StepChoice | None = field(default=None, metadata=LEFT_OUT)  # None: nothing was chosen for the step as a whole
    assumptions: tuple[str, ...]
    between_s: tuple[float, float] | None = field(default=None, metadata=LEFT_OUT)  # of a composed step, what all ranks' takes
    spread: Spread | None  # of the step over perturbed starts; None: they do not change it, or it was not asked for
    packets: PacketFigures | None = field(default=None, metadata=LEFT_OUT)  # what only packets know; None: it is the fluid time
    fabric_check: FabricCheck | None = field(default=None, metadata=LEFT_OUT)  # of that time by packets; None: not asked for
    wall_fabric_s: float
    measured_step_s: float | None = field(default=None, metadata=LEFT_OUT)  # that the step took; None: it was not profiled
    measured_parts: MeasuredParts | None = field(default=None, metadata=LEFT_OUT)  # of that time
    replay_error: ReplayError | None = field(default=None, metadata=LEFT_OUT)  # None: nobody said where the profile was taken
    collectives: tuple[CollectiveTimes, ...] | None = field(default=None, metadata=LEFT_OUT)  # of a profile
    kernels: tuple[KernelTimes, ...] | None = field(default=None, metadata=LEFT_OUT)  # of a profile that another device times
    read: tuple[str, ...] | None = field(default=None, metadata=LEFT_OUT)  # of a profile, what was read and what was not
    costliest: tuple[CostlyRequest, ...] | None = field(default=None, metadata=LEFT_OUT)  # None: no line is known of any
    hints: tuple[str, ...] | None = field(default=None, metadata=LEFT_OUT)  # where the program costs time
    paced: PaceFigures | None = field(default=None, metadata=LEFT_OUT)  # how far this host kept up; None: the run was not paced
    whole_script: bool = False  # no training step was seen, so that the only step is all that ran, set-up too

    @property
    def expected_s(self) -> tuple[float, float]:
        """The least and the largest time (s) that such a step takes in practice, by the error of published runs."""
        off = self.either_way or 0.0
        return self.step_time_s / (1 + off), self.step_time_s / (1 - off)

    def __repr__(self) -> str:
        rate = "" if self.mfu is None else f", MFU {self.mfu:.3f}"
        return f"<{type(self).__name__} {self.topology}: {format_time(self.step_time_s)}{rate}>"


S = TypeVar("S", bound=Step)


def shared_fields(value: object, cls: type[Any]) -> dict[str, Any]:
    """Return the attributes of a value that a dataclass has as fields, as keyword arguments for it."""
    return {each.name: getattr(value, each.name) for each in fields(cls) if hasattr(value, each.name)}


@dataclass(frozen=True, eq=False, slots=True)
class TimedTrace:
    """A trace on a topology, with the times of all its tasks; it makes the figures of the step."""

    trace: Trace
    topology: Topology
    device: Device
    dtype: str
    choice: Choice
    replayed: ReplayGraph
    timeline: Timeline
    report: StepReport
    link_busy: F64  # [L] the share of the step that each link is busy, as `busy_shares` returns it
    spread: Spread | None
    wall_fabric_s: float
    requests_by_place: PlaceRequests | None = None  # of a composed step; None: the trace has all ranks
    between_s: tuple[float, float] | None = None  # of a composed step, what the whole graph is estimated to take
    axes: tuple[str, ...] = ()  # whose ranks have neighbouring NPUs, nearest first; (): the topology's own order of NPUs
    engine_assumed: tuple[str, ...] = FLUID_ASSUMED  # on what the times of messages rest: the engine, and composing
    auto: StepChoice | None = None  # None: nothing was chosen for the step as a whole
    packets: PacketFigures | None = None  # what only packets know; None: it was not timed by packets
    fabric_check: FabricCheck | None = None  # of the fluid time by packets; None: it was not asked for

    @property
    def is_composed(self) -> bool:
        """True if one rank of each place stands for its place; else the trace has all ranks."""
        return self.requests_by_place is not None

    @property
    def ranks(self) -> int:
        """The number of ranks of the run."""
        return (
            self.trace.n_ranks if self.requests_by_place is None else len(self.requests_by_place.representatives.place_of_rank)
        )

    @property
    def how(self) -> str:
        """The method that timed the step: a method of the engine, or `composed`."""
        return "composed" if self.is_composed else self.timeline.how

    def members(self, number: int) -> tuple[int, ...]:
        """Return the ranks of a group of the trace.

        Where one rank represents many, those of the first group that it stands for.
        """
        group = self.trace.groups[number].ranks
        return group if self.requests_by_place is None else self.requests_by_place.members(number, group[0])

    def mean_over_ranks(self) -> MeanParts:
        """Return the seconds of each part of the step, such as compute and idle time, as means over all ranks of the job."""
        return mean_parts(self.trace, self.replayed, self.timeline, self.report, self._ranks_represented)

    @property
    def _ranks_represented(self) -> I64:
        """The number of ranks of the run that each rank of the trace stands for."""
        if self.requests_by_place is None:
            return np.ones(self.trace.n_ranks, np.int64)
        return np.bincount(self.requests_by_place.representatives.place_of_rank)

    def step(self, *, briefly: bool = False) -> Step:
        """Return the figures of the step; with `briefly` the critical path and the busiest links are left out."""
        most = max(self.trace.peak_by_part.tolist(), key=sum)
        products = products_of(self.trace, self.device, self.dtype)
        return Step(
            topology=self.topology.name,
            device=self.device.name,
            dtype=self.dtype,
            products=products,
            messages_in=messages_of(self.trace, self.dtype),
            **judged(self.trace, self.device, self.ranks, self.report.step_time_s, products),
            ranks=self.ranks,
            **self._parts(),
            compute_basis=compute_basis(self.trace, self.device, self.dtype, self.report.step, self._ranks_represented),
            critical_path=() if briefly else critical_path(self.trace, self.replayed, self.timeline, self.report),
            busiest_links=() if briefly else busiest(self.link_busy, self.topology),
            peak_memory_bytes=sum(most),
            memory_by_part_bytes=dict(zip(PARTS, most, strict=True)),
            algorithms=algorithms_of(self.replayed.services),
            algorithms_by_axis=algorithms_by_axis(self.replayed.services),
            chosen=self._chosen(),
            auto=self.auto,
            **self._profiled(briefly=briefly),
            assumptions=(*self.assumptions(), *peak_notes(self.trace, self.device, products)),
            **{name: getattr(self, name) for name in _OF_TIMING},
        )

    def _chosen(self) -> dict[str, str] | None:
        """Return the choices of a library by operation, in its own words; None if no library chose."""
        asked = ((each, library_words(self.choice.chooser, each.request)) for each in self.replayed.services)
        return _by_operation((each.request.operation, each.size_bytes, said) for each, said in asked if said) or None

    def _profiled(self, *, briefly: bool) -> dict[str, Any]:
        """Return fields for a step that was read from a profile: the reading, and the measured times."""
        reading, step = reading_of(self.trace), self.report.step
        if reading is None:
            return {}
        found: dict[str, Any] = {"read": reading.lines}
        if reading.step_times_s:
            found["measured_step_s"] = reading.step_times_s[step - 1]
        if reading.parts:
            found["measured_parts"] = reading.parts[step - 1]
        if not briefly and not self.is_composed and reading.collective_s:
            found["collectives"] = collective_times(self.trace, self.replayed, self.timeline, step)
        if not briefly and self.device.keeps_unknown:
            found["kernels"] = kernel_times(self.trace, self.device, self.dtype, step)
        return found

    def _parts(self) -> dict[str, Any]:
        """Return the parts of the step as fields of a `Step`, for the ranks of the job."""
        parts, asked = self.report.figures(), self.requests_by_place
        if asked is None:
            return parts
        place, by_place = parts["rank"], parts["straggling_by_rank_s"]
        rank = int((asked.representatives.place_of_rank == place).argmax())
        waited = self._waited(place) if by_place else {}
        waited_rank = asked.representatives.waited_rank
        by_rank = {waited_rank(rank, other, waited.get(other, ())): time_s for other, time_s in by_place.items()}
        return {**parts, "rank": rank, "straggling_by_rank_s": by_rank}

    def _waited(self, place: int) -> Mapping[int, Sequence[str]]:
        """Return the axes on which the representative of `place` waits for that of each other place, the longest wait first."""
        coming = Arrivals.of(self.replayed, self.timeline)
        asked = requests_of(self.trace, self.replayed, self.timeline, coming, place)
        waits, found = np.maximum(0, asked.met - np.maximum(asked.came, asked.since)), dict[int, Counter[str]]()
        for last, axis, ticks in zip(asked.last.tolist(), asked.axes.tolist(), waits.tolist(), strict=True):
            found.setdefault(last, Counter())[axis] += ticks
        return {last: [axis for axis, _ in of.most_common()] for last, of in found.items()}

    def _placement_note(self) -> str:
        """Return a sentence for the report that says which NPU each rank has."""
        if not self.axes:
            return f"the {self.ranks} ranks sit on the first of the {self.topology.n_npus} NPUs, in the topology's own order"
        nearest, *further = self.axes
        then = f", then {', '.join(further)}" if further else ""
        return (
            f"the {self.ranks} ranks sit on the first of the {self.topology.n_npus} NPUs, in the order of the axes: "
            f"neighbouring NPUs have the ranks of {nearest}{then}"
        )

    def assumptions(self) -> tuple[str, ...]:
        """Return a sentence for each assumption that no source states."""
        reading = reading_of(self.trace)
        own = [
            *(() if reading is None else reading.assumptions),
            *growth_notes(self.trace, as_measured=self.device.as_measured),
            self._placement_note(),
        ]
        if reading is None:
            own.append(RECORDED_MEMORY)
        if served_otherwise(self.trace, self.replayed.services):
            own.append("the run itself was served by other algorithms, which change no size and no order of requests")
        chooser = self.choice.chooser
        if self.auto is None and (is_automatic(chooser) or isinstance(chooser, RecordedChooser)):
            own.append(EACH_ALONE)
        return (
            *self.topology.assumptions,
            *self.replayed.assumptions,
            *own,
            *dtype_notes(self.trace, self.dtype),
            *self.engine_assumed,
        )


def with_means(step: S, timed: TimedTrace) -> S:
    """Return the step with its parts as means over all ranks (`mean_over_ranks`)."""
    return replace(step, mean_over_ranks=timed.mean_over_ranks())


def time_trace(layout: TraceLayout, *, perturb: int = 0, delays: bool = False) -> TimedTrace:
    """Return a trace timed by the graph of all its ranks; if wanted, also over perturbed starts.

    Args:
        layout: The trace on its fabric.
        perturb: The number of perturbed starts; if there are any, all ranks are timed.
        delays: Whether collectives that are a delay may lack their messages in the graph; no time changes.

    Raises:
        InputError: There are more ranks than NPUs, the dtype is unknown, the trace is impossible or has no step, an event ends
            beyond the clock, or `perturb` is 1.
    """
    if perturb:
        check_seeds(perturb)
    began, trace = time.perf_counter(), layout.trace
    layout = replace(layout, device=layout.device.for_ranks(trace.n_ranks))
    if delays:
        replayed, timeline = brief_replay(layout)
    else:
        replayed = layout.build_graph(None if perturb else layout.job_orbits())
        timeline = replay_timeline(layout, replayed)
    found = report(trace, replayed, timeline)
    wall_s = time.perf_counter() - began
    with name_tasks("trace", partial(event_name, trace, replayed)):
        apart = spread(replayed.graph, perturb, lambda other: report(trace, replayed, other).step_time_s) if perturb else None
    replayed = replace(replayed, graph=replayed.graph.on_ways(timeline.way))
    shares = busy_shares(replayed, timeline, found.began_fs, found.ended_fs)
    on = trace, layout.topology, layout.device, layout.dtype, layout.choice
    return TimedTrace(*on, replayed, timeline, found, shares, apart, wall_s)


def algorithms_of(services: Sequence[Service]) -> dict[str, str]:
    """Return the algorithm of each operation as text, such as `ring` or `direct 4 B to 64 KiB, ring 1 MiB`."""
    return _by_operation((request.operation, size_bytes, str(by)) for request, size_bytes, by in services)


def algorithms_by_axis(services: Sequence[Service]) -> dict[str, dict[str, str]]:
    """Return, by axis, the algorithm of each operation as text; the axes are in the order of their names."""
    axes = sorted({each.request.axis for each in services})
    return {axis: algorithms_of([each for each in services if each.request.axis == axis]) for axis in axes}


def _by_operation(served: Iterable[tuple[str, int, str]]) -> dict[str, str]:
    """Return, by operation, what served it; the sizes are told where several did.

    Args:
        served: The operation of each request, its bytes, and what served it.
    """
    sizes: dict[str, dict[str, list[int]]] = {}
    for operation, size_bytes, by in sorted(served, key=lambda each: each[:2]):
        sizes.setdefault(operation, {}).setdefault(by, []).append(size_bytes)
    return {
        operation: ", ".join(f"{name} {_range(found)}" if len(by) > 1 else name for name, found in by.items())
        for operation, by in sizes.items()
    }


def _range(sizes: list[int]) -> str:
    """Return a range of sizes in bytes as text, such as `4 B to 64 KiB`."""
    low, high = format_size(sizes[0]), format_size(sizes[-1])
    return low if low == high else f"{low} to {high}"
