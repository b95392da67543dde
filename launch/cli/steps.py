"""What `emu run` and `emu replay` leave: a report a topology, and the timeline of the first."""

from collections.abc import Sequence
from pathlib import Path

import click

from emu.study.training.step import TimedTrace
from launch.cli.options import print_json
from launch.show.perfetto import write_perfetto
from launch.show.spans import lanes
from launch.show.text.step import step_report


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
