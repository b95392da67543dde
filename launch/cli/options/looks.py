"""Files that show a step to a person: `--html`, a report, and `--timeline`, for Perfetto."""

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import wraps
from pathlib import Path
from typing import Any

import click

from emu.study.training.step.step import Step, TimedTrace
from launch.cli.options.outputs import OutputFile, may_fail
from launch.show.lanes import MOST_RANKS, few_lanes, lanes
from launch.show.perfetto import write_perfetto

_HTML = "Write a report to look at to this file: one HTML file that needs no network."
_TIMELINE = f"Write a timeline to this file, for ui.perfetto.dev; of more than {MOST_RANKS} ranks one a role and stage."


@dataclass(frozen=True, slots=True)
class Looks:
    """What was asked for."""

    html: Path | None
    timeline: Path | None
    every_rank: bool

    @property
    def given(self) -> dict[str, object]:
        """By flag."""
        return {"--html": self.html, "--timeline": self.timeline}

    def write(self, title: str, subtitle: str, shown: Sequence[tuple[Step, TimedTrace]]) -> None:
        """Write the report of all topologies, and the timeline of the first."""
        self.write_timeline(shown[0][1])
        if self.html is not None:
            page, step = (
                importlib.import_module(f"launch.show.html.{name}") for name in ("page", "step_page")
            )  # loads matplotlib
            with may_fail():
                page.write_page(step.step_page(title, subtitle, shown), self.html)

    def write_timeline(self, timed: TimedTrace) -> None:
        """Write the timeline alone."""
        if self.timeline is not None:
            every = lanes(timed.trace, timed.replayed, timed.timeline, timed.topology)
            with may_fail():
                write_perfetto(every if self.every_rank else few_lanes(timed), self.timeline)


def looks_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """`--html` and those of `timeline_options`; the command takes all as one `Looks`."""
    return html_option(timeline_options(command))


def html_option(command: Callable[..., Any]) -> Callable[..., Any]:
    """`--html`."""
    return click.option("--html", type=OutputFile(), help=_HTML)(command)


def timeline_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """`--timeline` and `--every-rank`; the command takes them as one `Looks`."""

    @wraps(command)
    def called(*given: Any, timeline: Path | None, every_rank: bool, html: Path | None = None, **rest: Any) -> Any:
        return command(*given, looks=Looks(html, timeline, every_rank), **rest)

    every = click.option("--every-rank", is_flag=True, help="Write every rank and every link to the --timeline, however many.")
    return click.option("--timeline", type=OutputFile(), help=_TIMELINE)(every(called))
