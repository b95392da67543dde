"""A recorded trace that a command is to time, and what `emu run` and `emu replay` print: a report for each topology."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any

import click

from emu.study.training.step import TimedTrace, choice_for, time_trace
from emu.trace.read import load
from launch.cli.options import built_under, calls_of, print_json, served_by, timing_options, topology_option
from launch.show.perfetto import write_perfetto
from launch.show.spans import lanes
from launch.show.text.step import step_report


@dataclass(frozen=True, slots=True)
class Recorded:
    """A trace in a file, on what it is timed, and how."""

    trace: Path
    topologies: tuple[str, ...]
    device: str
    dtype: str
    algorithms: tuple[str, ...]
    timeline: Path | None
    stack: str

    def timed(self, perturb: int = 0) -> list[TimedTrace]:
        """The trace, timed on each topology.

        Raises:
            InputError: the file cannot be read, or a topology, a device or an algorithm is none.
        """
        recorded = load(self.trace)
        built, device = built_under(calls_of(self.stack), self.topologies, self.device, self.dtype)
        choices = [choice_for(recorded, served_by(self.algorithms), each, self.dtype) for each in built]
        pairs = zip(choices, built, strict=True)
        return [time_trace(recorded, choice, each, device, self.dtype, perturb=perturb) for choice, each in pairs]


def recorded_options(command: Callable[..., None]) -> Callable[..., None]:
    """TRACE, `--topology` and how a trace is timed; the command takes them as one `Recorded`."""

    @wraps(command)
    def called(
        trace: Path,
        topologies: tuple[str, ...],
        device: str,
        dtype: str,
        algorithms: tuple[str, ...],
        timeline: Path | None,
        stack: str,
        **rest: Any,
    ) -> None:
        command(Recorded(trace, topologies, device, dtype, algorithms, timeline, stack), **rest)

    return click.argument("trace", type=click.Path(path_type=Path))(topology_option(timing_options(called)))


def show_steps(timed: Sequence[TimedTrace], timeline: Path | None, *, as_json: bool) -> None:
    """Print each, and write the first's timeline.

    Raises:
        InputError: the timeline cannot be written.
    """
    if timeline is not None:
        first = timed[0]
        write_perfetto(lanes(first.trace, first.replayed, first.timeline, first.topology), timeline)
    steps = [each.step() for each in timed]
    if as_json:
        print_json(steps)
    else:
        click.echo("\n\n".join(map(step_report, steps)))
