"""The options `--html`, a report, and `--timeline`, a file for Perfetto."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import click

from emu.study.training.step.step import Step, TimedTrace
from launch.cli.options.common import options_as_one
from launch.cli.options.files import OutputFile, write_html, write_output
from launch.show.lanes import MOST_RANKS, few_lanes, lanes
from launch.show.perfetto import write_perfetto

_HTML = "Write a report with charts and tables to this HTML file. It needs no network to be read."
_TIMELINE = f"Write a timeline for ui.perfetto.dev to this file. Above {MOST_RANKS} ranks it shows one rank a role and stage."


@dataclass(frozen=True, slots=True)
class ViewOptions:
    """The values of `--html`, `--timeline` and `--every-rank`."""

    timeline: Path | None
    every_rank: bool
    html: Path | None = None

    @property
    def given(self) -> dict[str, object]:
        """The values of the options that name files, by flag."""
        return {"--html": self.html, "--timeline": self.timeline}

    def write(self, title: str, subtitle: str, shown: Sequence[tuple[Step, TimedTrace]]) -> None:
        """Write the report of all topologies, and the timeline of the first."""
        self.write_timeline(shown[0][1])
        write_html(self.html, "html.step_page:step_page", title, subtitle, shown)

    def write_timeline(self, timed: TimedTrace) -> None:
        """Write the timeline, if `--timeline` was given."""
        if self.timeline is not None:
            every = lanes(timed.trace, timed.replayed, timed.timeline, timed.topology)
            write_output(self.timeline, partial(write_perfetto, every if self.every_rank else few_lanes(timed)))


html_option = click.option("--html", type=OutputFile(), help=_HTML)
_TIMELINE_OPTIONS = (
    click.option("--timeline", type=OutputFile(), help=_TIMELINE),
    click.option("--every-rank", is_flag=True, help="Write every rank and every link to the --timeline."),
)
timeline_options = options_as_one("looks", ViewOptions, *_TIMELINE_OPTIONS)
view_options = options_as_one("looks", ViewOptions, html_option, *_TIMELINE_OPTIONS)
