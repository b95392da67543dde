"""The question of `emu show timeline`: when do ranks compute and communicate? It loads what times a step."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from emu.errors import must_be
from emu.study.training.step.step import TimedTrace
from emu.units import format_time, seconds
from launch.front.inputs import DeviceLike, Topologies, Words, question
from launch.front.result import Result
from launch.front.steps.replays import TraceLike, named_trace, timed_replays
from launch.front.steps.timed_steps import TraceTiming, write_timeline
from launch.show.lanes import Lane, lanes
from launch.show.progress import progress_bar
from launch.show.text.table import table


@dataclass(frozen=True, repr=False, eq=False)
class StepTimeline(Result[Lane], drawn_by="chart.time_chart:timeline_figure"):
    """The spans of each rank and link during a step.

    The picture has the spans of the step that `emu.replay` reports, of 32 ranks at most.
    """

    timed: TimedTrace
    title: str

    def text(self) -> str:
        """Return a line for each stream of each rank, and for each link."""
        rows = [(lane.owner, lane.stream, str(len(lane.start)), *map(format_time, _spans(lane))) for lane in self.rows]
        return table(("who", "what", "spans", "busy", "from", "to"), rows)

    def as_json(self) -> object:
        """Return the times of each lane in seconds."""
        times = [dict(zip(("busy_s", "from_s", "to_s"), _spans(lane), strict=True)) for lane in self.rows]
        lanes = zip(self.rows, times, strict=True)
        return [{"who": of.owner, "what": of.stream, "spans": len(of.start), **spans} for of, spans in lanes]

    def _shown(self) -> tuple[Any, ...]:
        return self.rows, self.title, self.timed.report.began_fs, self.timed.report.ended_fs

    def save_timeline(self, path: str | Path, *, every_rank: bool = False) -> None:
        """Write a timeline for ui.perfetto.dev; arguments and errors as in `TimedSteps.save_timeline`."""
        write_timeline(self.timed, Path(path), every_rank=every_rank)


@question
def show_timeline(
    trace: TraceLike,
    *,
    topology: Topologies,
    device: DeviceLike | None = None,
    dtype: str | None = None,
    algorithm: Words = (),
    stack: str = "",
) -> StepTimeline:
    """Return when ranks compute and communicate in a recorded step, timed on a topology.

    Args:
        trace: The trace: a file of Emu's own or of another program, as `replay` takes it, or a `Trace`.
        topology: The network: a name, a file, a `Topology` or a networkx graph.
        device: The device: a name, a .toml file, or a `Device`; None: h100, but computations that have times last as measured.
        dtype: The data type as which float32 is timed; None: as the command that recorded the trace.
        algorithm: Words that choose algorithms, such as `all_reduce=ring`; `recorded`: those of the run; empty: `auto`.
        stack: The times that software adds to messages and requests, such as `launch=5us`.

    Raises:
        InputError: the trace cannot be read, or an argument is impossible.
    """
    timing = TraceTiming.of_replay(topology, device, dtype, algorithm, stack)
    if len(timing.machines) != 1:
        raise must_be("show timeline", "--topology", "given once", len(timing.machines), "one picture shows one fabric")
    name, recorded = named_trace(trace)
    with progress_bar("timing the step"):
        (timed,) = timed_replays(recorded, timing)
    found = tuple(lanes(timed.trace, timed.replayed, timed.timeline, timed.topology))
    return StepTimeline(found, timed, f"step {timed.report.step} of {name} on {timed.topology.name}")


def _spans(lane: Lane) -> tuple[float, float, float]:
    """Return the total time of a lane's spans, the begin of the first and the end of the last, in seconds."""
    first, last = (int(lane.start.min()), int(lane.end.max())) if len(lane.start) else (0, 0)
    return seconds(int((lane.end - lane.start).sum())), seconds(first), seconds(last)
