"""The questions of recorded steps: `emu replay` times them on other topologies, `emu compare` compares two of them."""

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from emu.cluster.pace.timeliness import PaceFigures
from emu.errors import InputError, must_be
from emu.fabric.packet_fabric import FLUID_ENGINE, EngineChoice, engine_choice
from emu.study.training.grown_job import grown_job
from emu.study.training.step.costly_requests import with_costliest
from emu.study.training.step.packet_step import by_packets, checked
from emu.study.training.step.step import ReplayError, Step, TimedTrace
from emu.study.training.timed_step import time_replay
from emu.trace.comparison import Comparison
from emu.trace.comparison import compare as compared
from emu.trace.formats.reading import reading_of
from emu.trace.formats.trace_formats import read_foreign
from emu.trace.timed_dtype import usual_dtype
from emu.trace.trace import Trace
from emu.trace.trace_file import load
from launch.front.argument_rules import excludes
from launch.front.inputs import DeviceLike, Topologies, TopologyLike, Words, build_topology, question
from launch.front.result import Result
from launch.front.steps.timed_steps import (
    FaultyJobs,
    JobConditions,
    TimedSteps,
    TraceTiming,
    report_of_steps,
    steps_on_each,
    with_pacing,
)
from launch.show.progress import progress_bar
from launch.show.text.table import table

TraceLike = str | Path | Trace


@question
def load_trace(path: str | Path, *, host_time: bool = False, fill_ranks: bool = False) -> Trace:
    """Return the trace in a file of Emu's own, a profile of PyTorch, execution traces of Chakra, or a GOAL schedule.

    Args:
        path: The file, or a folder with a file of each rank.
        host_time: Whether the time of the host between launches counts; of a profile, and of Chakra's operators of the host.
        fill_ranks: Whether ranks without a file do what ranks of equal groups do; of a profile and of execution traces.

    Raises:
        InputError: the file cannot be read, or holds none.
    """
    with progress_bar(f"reading {Path(path).resolve().name}"):
        foreign = read_foreign(Path(path), host_time=host_time, fill_ranks=fill_ranks)
    if foreign is None and (host_time or fill_ranks) and Path(path).exists():
        option = "--host-time" if host_time else "--fill-ranks"
        raise InputError(
            f"replay: {option} needs a profile or execution traces of another program, got {str(path)!r}; leave it out"
        )
    return load(Path(path)) if foreign is None else foreign


def named_trace(given: TraceLike, *, host_time: bool = False, fill_ranks: bool = False) -> tuple[str, Trace]:
    """Return the name of a trace for reports, and the trace; see `load_trace` for arguments and errors."""
    if isinstance(given, Trace):
        return "a trace", given
    return Path(given).resolve().name, load_trace(given, host_time=host_time, fill_ranks=fill_ranks)


@question
@excludes(perturb="fault")
def replay(
    trace: TraceLike,
    *,
    topology: Topologies,
    ran_on: "TopologyLike | None" = None,
    device: DeviceLike | None = None,
    dtype: str | None = None,
    algorithm: Words = (),
    stack: str = "",
    fault: Words = (),
    perturb: int = 0,
    host_time: bool = False,
    fill_ranks: bool = False,
    ranks: int | None = None,
    fabric: str = "fluid",
    network: str = "",
    check_fabric: bool = False,
) -> TimedSteps[Step] | FaultyJobs:
    """Time a recorded trace on topologies, without running it again.

    Args:
        trace: The trace: a file of Emu's own, a profile of PyTorch or execution traces of Chakra (a file, or a folder with one
            a rank), a GOAL schedule, or a `Trace`.
        topology: The network: a name, a file, a `Topology` or a networkx graph; or several of them.
        ran_on: The network on which a trace with measured times ran; it is timed first, and tells the error of the replay.
        device: The device: a name, a .toml file, or a `Device`; None: h100, but computations that have times last as measured.
        dtype: The data type as which float32 is timed; `as-ran`: each in its own; None: as the command that recorded the trace.
        algorithm: Words that choose algorithms, such as `all_reduce=ring`; `recorded`: those of the run; empty: `auto`.
        stack: The times that software adds to messages and requests, such as `launch=5us`.
        fault: Parts that fail while the job runs, such as `link 0-1 at step 2`, or files of such texts.
        perturb: Compute the time so many more times, with random starts one tick later, and tell how far it spreads.
        host_time: Keep the time that the host took between launches, of a profile or of execution traces.
        fill_ranks: Let ranks without a file do what ranks of equal groups do, of a profile or of execution traces.
        ranks: Time a job of so many ranks with more data parallelism, a multiple of those of the trace; None: these.
        fabric: The engine of the times: `fluid`, or packets, such as `packets:cell=8KiB`; the settings are cell, seed, events.
        network: The network of packets, such as `roce:route=in-turn`: roce, ultra-ethernet, infiniband, nvlink, ub or tcp, with
            settings; empty: that of the topology's file, else roce.
        check_fabric: Check the fluid time: run the window in which the fabric has most to do by packets of `network`, 8 times
            with other starts.

    Returns:
        The step on each topology; with `fault` the steps of a job, one after another.

    Raises:
        InputError: the trace cannot be read, or an argument is impossible; the line says which, and how to mend it.
    """
    engine, job = engine_choice(fabric, network, check_fabric=check_fabric), JobConditions.of(fault)
    if job.faults:
        engine.check_whole("replay")
    name, recorded = named_trace(trace, host_time=host_time, fill_ranks=fill_ranks)
    if ranks is not None and ran_on is not None:
        raise InputError("replay: --ran-on compares a step with the measured one, which had fewer ranks; leave --ranks out")
    timing = TraceTiming.of_replay(topology, device, dtype, algorithm, stack)
    if ranks is not None:
        recorded = grown_job(recorded, _checked_ranks(ranks, timing))
    if ran_on is not None:
        timing = _with_origin(timing, recorded, ran_on, job)
    engine.check_on(timing.machines)
    if job.faults:
        with progress_bar(f"timing {name}"):
            return FaultyJobs(tuple(timing.time_with_faults(recorded, job.faults, clock=True)))
    timed = timed_replays(recorded, timing, perturb, engine)
    return steps_of(f"Replay of {name}", timed, f"timing {name}", len(timing.machines), of_profile=ran_on is not None)


def _checked_ranks(ranks: int, timing: TraceTiming) -> int:
    """Check that the largest topology has as many NPUs as the trace has ranks, and return the number of ranks."""
    most = max(machine.n_npus for machine in timing.machines)
    if ranks > most:
        raise must_be("replay", "ranks", f"at most {most}, the NPUs of the largest topology", ranks)
    return ranks


def _with_origin(timing: TraceTiming, recorded: Trace, ran_on: TopologyLike, job: JobConditions) -> TraceTiming:
    """Return the timing with the network on which a profile was taken as the first topology.

    Raises:
        InputError: the network is unknown, the trace is no profile, or faults change its steps.
    """
    if reading_of(recorded) is None:
        raise InputError("replay: --ran-on needs a profile, whose steps were measured; leave it out")
    if job.faults:
        raise InputError("replay: --ran-on compares a step without faults with the measured one; leave --fault out")
    origin = build_topology(ran_on)
    return replace(timing, machines=(origin, *(each for each in timing.machines if each.name != origin.name)))


def _with_errors(made: Iterable[tuple[Step, TimedTrace]]) -> Iterator[tuple[Step, TimedTrace]]:
    """Yield steps of a profile with the error of the replay on the first topology, on which the profile was taken."""
    error: ReplayError | None = None
    for step, timed in made:
        if error is None:
            share = step.step_time_s / (step.measured_step_s or step.step_time_s) - 1
            error = ReplayError(topology=step.topology, step_time_s=step.step_time_s, share=share)
        yield replace(step, replay_error=error), timed


def timed_replays(
    recorded: Trace, timing: TraceTiming, perturb: int = 0, engine: EngineChoice = FLUID_ENGINE
) -> Iterator[TimedTrace]:
    """Return an iterator over a trace timed on each topology; each is timed when it is needed.

    Args:
        recorded: The trace.
        timing: The topologies, and how it is timed.
        perturb: The number of further runs in which starts are perturbed.
        engine: The engine that gives the times.

    Raises:
        InputError: the device or an algorithm is unknown; or as `by_packets`.
    """
    dtype = timing.dtype or usual_dtype(recorded)
    built, device = timing.for_trace(recorded).build(dtype)
    on = ((recorded, timing.algorithms, each, device, dtype) for each in built)
    packets, check = engine
    if packets is not None:
        return (by_packets(time_replay(*each), packets, perturb) for each in on)
    timed = (time_replay(*each, perturb=perturb) for each in on)
    return timed if check is None else (checked(each, check) for each in timed)


def steps_of(
    title: str,
    timed: Iterable[TimedTrace],
    label: str,
    count: int,
    paced: PaceFigures | None = None,
    *,
    of_profile: bool = False,
) -> TimedSteps[Step]:
    """Return the answer that is the step on each topology.

    Args:
        title: The title of the report.
        timed: The timed trace on each topology, each computed when it is needed.
        label: The label of the progress.
        count: The number of topologies.
        paced: How well this host kept up with the first topology; None: the run was not paced.
        of_profile: Whether it is a profile that was taken on the first topology, so that the error of its replay is known.
    """
    made = ((with_costliest(each.step(), each), each) for each in timed)
    errors = _with_errors(made) if of_profile else made
    rows, every = steps_on_each(with_pacing(errors, paced), label, count, report_of_steps)
    subtitle = f"{rows[0].ranks} {rows[0].device} on {', '.join(step.topology for step in rows)}"
    return TimedSteps(rows, title, subtitle, every)


@dataclass(frozen=True, repr=False, eq=False)
class TraceComparison(Result[Comparison]):
    """The comparison of a step of two traces."""

    @property
    def exit_code(self) -> int:
        """0 if the steps are equal, and 1 if they are not."""
        return 0 if self.rows[0].equal else 1

    def text(self) -> str:
        """Return whether the traces are equal, the first difference, and a table of both by axis."""
        compared = self.rows[0]
        which = f"step {compared.steps[0]} of the first trace and step {compared.steps[1]} of the second"
        first, lines = compared.first, [f"equal: {which}, on each of {compared.ranks} ranks"]
        if first is not None:
            where = f"event {first.event}" if first.event >= 0 else "beyond the first trace's events"
            lines = [
                f"not equal: {which}, on {compared.differing_ranks} of {compared.ranks} ranks",
                f"first on rank {first.rank}, {where}: {first.what}",
            ]
        rows = [
            (axis or "other", *(str(n) for n in (*of.events, *of.bytes)), *(f"{f:.6g}" for f in of.flops))
            for axis, of in compared.by_axis.items()
        ]
        head = ("axis", "events", "second", "bytes", "second", "FLOPs", "second")
        return "\n".join([*lines, "", table(head, rows)])

    def as_json(self) -> object:
        """Return the comparison."""
        return {"equal": self.rows[0].equal, **asdict(self.rows[0])}


@question
def compare(first: TraceLike, second: TraceLike) -> TraceComparison:
    """Compare a step of two traces: requests, their order, bytes, dependencies, FLOPs and memory.

    Args:
        first: A trace: a file of Emu's own or of another program, as `replay` takes it, or a `Trace`.
        second: The other one.

    Raises:
        InputError: a file cannot be read.
    """
    return TraceComparison((compared(named_trace(first)[1], named_trace(second)[1]),))
