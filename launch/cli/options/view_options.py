"""The options `--html`, a report, and `--timeline`, a file for Perfetto."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any

import click

from emu.study.training.step.step import Step, TimedTrace
from launch.cli.options.outputs import OutputFile, may_fail, write_html
from launch.show.lanes import MOST_RANKS, few_lanes, lanes
from launch.show.perfetto import write_perfetto

_HTML = "Write a report with charts and tables to this HTML file. It needs no network to be read."
_TIMELINE = f"Write a timeline for ui.perfetto.dev to this file. Above {MOST_RANKS} ranks it shows one rank a role and stage."


@dataclass(frozen=True, slots=True)
class ViewOptions:
    """The values of `--html`, `--timeline` and `--every-rank`."""

    html: Path | None
    timeline: Path | None
    every_rank: bool

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
            with may_fail():
                write_perfetto(every if self.every_rank else few_lanes(timed), self.timeline)


def view_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add `--html`, `--timeline` and `--every-rank` to a command, which takes them as one `ViewOptions`."""
    return html_option(timeline_options(command))


def html_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add `--html` to a command."""
    return click.option("--html", type=OutputFile(), help=_HTML)(command)


def timeline_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add `--timeline` and `--every-rank` to a command, which takes them as one `ViewOptions`."""

    @wraps(command)
    def called(*given: Any, timeline: Path | None, every_rank: bool, html: Path | None = None, **rest: Any) -> Any:
        return command(*given, looks=ViewOptions(html, timeline, every_rank), **rest)

    every = click.option("--every-rank", is_flag=True, help="Write every rank and every link to the --timeline.")
    return click.option("--timeline", type=OutputFile(), help=_TIMELINE)(every(called))
