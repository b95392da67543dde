"""A recorded trace that a command is to time, and what `emu run` and `emu replay` print: a report for each topology."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import wraps
from pathlib import Path
from typing import Any

import click

from emu.cluster.pace.kept import Paced
from emu.collective.algorithm import Choice
from emu.model.stack.stack import Stack
from emu.study.live.clocked import Ran, clocked
from emu.study.live.disturbed import Disturbed, disturbed
from emu.study.live.times import of_trace
from emu.study.training.composed.calls import device_under, topology_under
from emu.study.training.served.replayed import time_replay
from emu.study.training.step.choices import choice_for
from emu.study.training.step.costliest import with_costliest
from emu.study.training.step.precision import messages_of, products_of, timed_told
from emu.study.training.step.step import TimedTrace
from emu.topology.catalogue import build_topology
from emu.topology.live.check import check_met
from emu.topology.live.script import at_times, faults_of, job_steps, said_in
from emu.topology.topology import Topology
from emu.trace.device.dtypes import usual_dtype
from emu.trace.read import load
from emu.trace.steps import count_steps
from emu.trace.trace import Trace
from launch.cli.options.common import built_under, calls_of, print_json, served_by, timing_options, topology_option
from launch.cli.options.looks import Looks
from launch.cli.options.outputs import print_text
from launch.data.devices import find_device
from launch.show.text.step_report import step_report


@dataclass(frozen=True, slots=True)
class Recorded:
    """A trace in a file, on what it is timed, and how."""

    trace: Path
    topologies: tuple[str, ...]
    device: str
    dtype: str | None  # None: as the command that made the trace times it
    algorithms: tuple[str, ...]
    stack: str

    def timed(self, perturb: int = 0) -> list[TimedTrace]:
        """The trace, timed on each topology.

        Raises:
            InputError: the file cannot be read, or a topology, a device or an algorithm is none.
        """
        recorded = load(self.trace)
        dtype = self.dtype or usual_dtype(recorded)
        built, device = built_under(calls_of(self.stack), self.topologies, self.device, dtype)
        words = served_by(self.algorithms, calls_of(self.stack))
        return [time_replay(recorded, words, each, device, dtype, perturb=perturb) for each in built]

    def disturbed(self, faults: Sequence[str]) -> list[Disturbed]:
        """The steps of the trace on each topology, while parts fail; a trace of one step goes on with steps like it.

        Raises:
            InputError: as `timed`; or a fault of what is not there.
        """
        recorded, stack = load(self.trace), calls_of(self.stack)
        words, dtype = served_by(self.algorithms, stack), self.dtype or usual_dtype(recorded)
        return faulted(recorded, self.topologies, faults, words, stack, self.device, dtype, clock=True)


def faulted(
    recorded: Trace,
    topologies: Sequence[str],
    faults: Sequence[str],
    words: Sequence[str],
    stack: Stack,
    device: str,
    dtype: str,
    *,
    clock: bool = False,
) -> list[Disturbed]:
    """The steps of a trace on each topology, while parts fail.

    Args:
        recorded: What ran.
        topologies: As they are typed.
        faults: As `read_faults` has them.
        words: What serves its collectives.
        stack: What the software takes.
        device: What computes.
        dtype: What float32 is timed as.
        clock: Whether faults may be at times since the steps began.

    Raises:
        InputError: a topology, a device, an algorithm or a fault is none.
    """
    found = device_under(stack, find_device(device, dtype))
    steps, ranks = count_steps(recorded), recorded.n_ranks
    steps = steps if steps > 1 else job_steps(faults)
    built = [build_topology(word) for word in topologies]
    known = [faults_of(faults, each, ranks, steps, clock=clock) for each in built]

    def chosen(topology: Topology) -> Choice:
        return choice_for(recorded, words, topology, dtype)

    if at_times(faults):
        ran = [Ran(recorded, chosen(topology_under(stack, each)), found, dtype, stack) for each in built]
        told = [clocked(*each) for each in zip(ran, built, known, strict=True)]
        _check_met(told, faults)
    else:
        timed = of_trace(recorded, chosen, found, dtype, stack)
        told = [disturbed(each, of, ranks, steps, timed, found.name) for each, of in zip(built, known, strict=True)]
    how = timed_told(dtype, products_of(recorded, found, dtype), messages_of(recorded, dtype))
    return [replace(each, timed=how) for each in told]


def _check_met(told: Sequence[Disturbed], faults: Sequence[str]) -> None:
    """Refuse faults at times that the steps of a job do not reach."""
    for each in told:
        if each.stopped is None:
            check_met(said_in(faults), sum(step.time_s for step in each.steps))


def recorded_options(command: Callable[..., None]) -> Callable[..., None]:
    """TRACE, `--topology` and how a trace is timed; the command takes them as one `Recorded`."""

    @wraps(command)
    def called(
        trace: Path,
        topologies: tuple[str, ...],
        device: str,
        dtype: str | None,
        algorithms: tuple[str, ...],
        stack: str,
        **rest: Any,
    ) -> None:
        command(Recorded(trace, topologies, device, dtype, algorithms, stack), **rest)

    return click.argument("trace", type=click.Path(path_type=Path))(topology_option(timing_options(called)))


def show_steps(title: str, timed: Sequence[TimedTrace], looks: Looks, *, as_json: bool, paced: Paced | None = None) -> None:
    """Print each, and write what shows them.

    Args:
        title: What was timed.
        timed: On each topology.
        looks: Where the report and the timeline go.
        as_json: Whether to print JSON.
        paced: How far this host kept up with the first topology, if the run was paced.
    """
    steps = [with_costliest(each.step(), each) for each in timed]
    steps[0] = replace(steps[0], paced=paced)
    topologies = ", ".join(step.topology for step in steps)
    if as_json:
        print_json(steps)
    else:
        print_text("\n\n".join(map(step_report, steps)))
    looks.write(title, f"{steps[0].ranks} {steps[0].device} on {topologies}", list(zip(steps, timed, strict=True)))
