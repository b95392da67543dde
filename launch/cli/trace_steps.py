"""The steps of a recorded trace: the options that choose the trace, and the reports that `emu run` and `emu replay` print."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import click

from emu.cluster.pace.timeliness import PaceFigures
from emu.collective.algorithm import Choice
from emu.model.stack.stack import Stack
from emu.study.live.faulty_job import FaultyJob, time_faulty_job, times_of_trace
from emu.study.live.timed_faults import RecordedSteps, run_through_timed_faults
from emu.study.training.composed.software_costs import device_under, topology_under
from emu.study.training.step.choices import choice_for
from emu.study.training.step.costly_requests import with_costliest
from emu.study.training.step.rate import messages_of, products_of, timed_told
from emu.study.training.step.step import TimedTrace, with_means
from emu.study.training.traced_step import time_replay
from emu.topology.catalogue import build_topology
from emu.topology.fault_injection.fault import check_before_end
from emu.topology.fault_injection.fault_script import at_times, faults_of, given_faults, job_steps
from emu.topology.topology import Topology
from emu.trace.device.device import Device
from emu.trace.device.dtypes import usual_dtype
from emu.trace.steps import count_steps
from emu.trace.trace import Trace
from emu.trace.trace_file import load
from launch.cli.options import common
from launch.cli.options.view_options import ViewOptions
from launch.data.devices import find_device
from launch.show.text.step_report import step_report

RECORDED = "recorded"  # a word of `--algorithm`: the algorithms of the recorded run


@dataclass(frozen=True, slots=True)
class TimingOptions:
    """The options that say on which topologies a trace is timed, and how."""

    topologies: tuple[str, ...]
    device: str
    dtype: str | None  # None: the dtype that the command of the trace uses
    algorithms: tuple[str, ...]
    stack: str

    @property
    def calls(self) -> Stack:
        """The times that the software adds to messages and requests."""
        return common.calls_of(self.stack)

    @property
    def words(self) -> tuple[str, ...]:
        """The words that choose algorithms for a run."""
        return common.algorithm_choice(self.algorithms, self.calls)

    def build(self, dtype: str) -> tuple[list[Topology], Device]:
        """Return the topologies and the device, each with the times that the stack adds to messages and requests.

        Raises:
            InputError: a topology, the device or the dtype is unknown.
        """
        built = [topology_under(self.calls, build_topology(word)) for word in self.topologies]
        return built, device_under(self.calls, find_device(self.device, dtype))

    def time_with_faults(self, recorded: Trace, faults: Sequence[str], *, clock: bool = False) -> list[FaultyJob]:
        """Return the steps of a trace on each topology while parts fail; a trace of one step is repeated.

        Args:
            recorded: The trace.
            faults: The faults as `read_faults` returns them.
            clock: Whether a fault may be at a time instead of a step.

        Raises:
            InputError: a topology, the device, an algorithm or a fault is unknown.
        """
        stack, dtype = self.calls, self.dtype or usual_dtype(recorded)
        found = device_under(stack, find_device(self.device, dtype))
        steps, ranks = count_steps(recorded), recorded.n_ranks
        steps = steps if steps > 1 else job_steps(faults)
        built = [build_topology(word) for word in self.topologies]
        known = [faults_of(faults, each, ranks, steps, clock=clock) for each in built]

        def chosen(topology: Topology) -> Choice:
            return choice_for(recorded, self.words, topology, dtype)

        if at_times(faults):
            ran = [RecordedSteps(recorded, chosen(topology_under(stack, each)), found, dtype, stack) for each in built]
            told = [run_through_timed_faults(*each) for each in zip(ran, built, known, strict=True)]
            for each in told:
                if each.stopped is None:  # a fault after the end of the job is refused
                    check_before_end(given_faults(faults), sum(step.time_s for step in each.steps))
        else:
            timed = times_of_trace(recorded, chosen, found, dtype, stack)
            told = [time_faulty_job(each, of, ranks, steps, timed, found.name) for each, of in zip(built, known, strict=True)]
        how = timed_told(dtype, products_of(recorded, found, dtype), messages_of(recorded, dtype))
        return [replace(each, timed=how) for each in told]


@dataclass(frozen=True, slots=True)
class RecordedTrace(TimingOptions):
    """A trace in a file, with the options that say how it is timed."""

    trace: Path

    @property
    def words(self) -> tuple[str, ...]:
        """The words that choose algorithms: the given ones alone where one of them is `recorded`."""
        others = tuple(word for word in self.algorithms if word != RECORDED)
        return others if RECORDED in self.algorithms else common.algorithm_choice(others, self.calls)

    def time(self, perturb: int = 0) -> list[TimedTrace]:
        """Return the trace timed on each topology.

        Args:
            perturb: The number of further runs in which starts are perturbed.

        Raises:
            InputError: the file cannot be read, or a topology, the device or an algorithm is unknown.
        """
        recorded = load(self.trace)
        dtype = self.dtype or usual_dtype(recorded)
        built, device = self.build(dtype)
        return [time_replay(recorded, self.words, each, device, dtype, perturb=perturb) for each in built]


_TIMING = (common.topology_option, common.device_option, common.dtype_option, common.algorithm_option, common.calls_option)
timing_options = common.options_as_one("timing", TimingOptions, *_TIMING)
recorded_options = common.options_as_one(
    "recorded", RecordedTrace, click.argument("trace", type=click.Path(path_type=Path)), *_TIMING
)


def show_steps(
    title: str, timed: Sequence[TimedTrace], looks: ViewOptions, *, as_json: bool, paced: PaceFigures | None = None
) -> None:
    """Print the step on each topology, and write the report and the timeline.

    Args:
        title: The title of the report.
        timed: The timed trace on each topology.
        looks: The files of the report and the timeline.
        as_json: Whether to print JSON.
        paced: How well this host kept up with the first topology; None: the run was not paced.
    """
    shown = [(with_costliest(each.step(), each), each) for each in timed]
    shown = with_means(shown) if as_json or len(shown) > 1 else shown
    steps = [step for step, _ in shown]
    steps[0] = replace(steps[0], paced=paced)
    topologies = ", ".join(step.topology for step in steps)
    common.print_result(steps, lambda: "\n\n".join(map(step_report, steps)), as_json=as_json)
    looks.write(title, f"{steps[0].ranks} {steps[0].device} on {topologies}", list(zip(steps, timed, strict=True)))
