"""The question of `emu jobs`: how far do jobs that share a fabric slow one another down, and what helps?"""

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

from emu.errors import must_be
from emu.fabric.packet_fabric import engine_choice
from emu.study.jobs.jobs_request import JobsRequest, JobsSetting
from emu.study.jobs.jobs_row import JobsRow
from emu.study.jobs.setting_run import RunSideBySide, run_in_setting
from emu.study.jobs.side_by_side import place_side_by_side
from emu.topology.topology import Topology
from launch.front.inputs import Topologies, Words, question, several, topologies_of
from launch.front.result import Result
from launch.front.sharing.job_tables import JobsLike, jobs_of
from launch.show.blocks import Page
from launch.show.html.jobs_page import jobs_page
from launch.show.job_lanes import job_lanes
from launch.show.lanes import write_perfetto
from launch.show.progress import with_progress
from launch.show.text.jobs_table import jobs_report


@dataclass(frozen=True, repr=False, eq=False)
class SharedJobs(Result[JobsRow], drawn_by="chart.jobs_chart:jobs_figure"):
    """Jobs side by side: their steps alone and beside the others, in one setting or in several.

    The picture of one setting has a lane for each job; that of several has the slow-down of each job in each of them.
    """

    runs: tuple[RunSideBySide, ...]

    def text(self) -> str:
        """Return the report of one setting, or the table of several with the report of that with the shortest steps."""
        return jobs_report(self.rows)

    def page(self) -> Page:
        """Return the report as a page of HTML, with a picture of the lanes of each setting."""
        return jobs_page(self.runs)

    def _shown(self) -> tuple[Any, ...]:
        return (self.runs,)

    def save_timeline(self, path: str | Path) -> None:
        """Write a timeline for ui.perfetto.dev with a lane for each job, of the first setting.

        Args:
            path: The file.

        Raises:
            WriteError: the file cannot be written.
        """
        write_perfetto(job_lanes(self.runs[0].times), Path(path))


@question
def jobs(
    jobs: JobsLike,
    *,
    topology: Topologies,
    placement: Words = (),
    shift: Words = (),
    share: Words = (),
    routes: Words = (),
    steps: int | None = None,
    fabric: str = "fluid",
    network: str = "",
) -> SharedJobs:
    """Run jobs side by side on one fabric: their steps alone and beside the others, and who slows whom over which links.

    Args:
        jobs: The jobs: a .toml file with a table `[[job]]` for each, or a dict of the same form.
        topology: The network: a name, a file, a `Topology` or a networkx graph; or several of them.
        placement: The placement of jobs that name no NPUs: packed, spread, rails, segments, random or own, with settings, such
            as `spread:unit=2`; or several. Empty: that of the file, or packed.
        shift: Later starts of jobs: `none`, or `circle`, by which jobs that share links send in turn; or several. Empty: that
            of the file, or none.
        share: How jobs share links: by their `weights`, evenly (`fair`), by weights that follow from their `intensity`
            (computation for each second of the busiest link), by strict `priority`; or apart, by `slices` of links, by
            `lanes` of packets, by `planes`; or several. Empty: that of the file, or weights.
        routes: The paths of messages: the topology's `own`, or the `least-loaded` ones, for one job after another; or several.
            Empty: that of the file, or own.
        steps: The steady steps that each job is to have; None: those of the file, or 20.
        fabric: The engine of the times: `fluid`, or packets, such as `packets:cell=8KiB`; the settings are cell, seed, events.
        network: The network of packets, such as `roce:route=in-turn`: roce, ultra-ethernet, infiniband, nvlink, ub or tcp, with
            settings; empty: that of the topology's file, else roce.

    Raises:
        InputError: an argument or a job is impossible; the line says which, and how to mend it.
        RunError: packets wait for one another in a circle, or the budget is spent.
    """
    found, settings = jobs_of(jobs)
    engine = engine_choice(fabric, network)
    wanted = settings.get("steps", 20) if steps is None else steps
    if not isinstance(wanted, int) or isinstance(wanted, bool):
        raise must_be("jobs", "steps", "a whole number of 1 or more", wanted)
    request = JobsRequest(found, wanted, settings.get("time", "auto"), engine.packets)
    request.check()
    usual = {"placement": (placement, "packed"), "shift": (shift, "none")}
    usual |= {"share": (share, "weights"), "routes": (routes, "own")}
    words = (_words(name, several(given) or several(settings.get(name)) or (word,)) for name, (given, word) in usual.items())
    asked = [JobsSetting(*each) for each in product(*words)]
    machines = topologies_of(topology)
    for each, machine in product(asked, machines):
        each.check(engine.on(machine).packets)
    count = len(machines) * len(asked)
    made = with_progress(_runs(request, machines, asked), "running jobs side by side", count, _line, lambda of: of.row)
    runs = tuple(made)
    return SharedJobs(tuple(each.row for each in runs), runs)


def _words(name: str, given: tuple[Any, ...]) -> tuple[str, ...]:
    """Return the words of a setting.

    Raises:
        InputError: One is no text.
    """
    for word in given:
        if not isinstance(word, str) or not word:
            raise must_be("jobs", name, "a text, or a list of texts", word)
    return given


def _runs(request: JobsRequest, machines: list[Topology], asked: list[JobsSetting]) -> Iterator[RunSideBySide]:
    """Yield the jobs side by side on each machine in each setting; settings with the same places are placed once."""
    for machine in machines:
        for places in dict.fromkeys(each.places for each in asked):
            same = [each for each in asked if each.places == places]
            beside = place_side_by_side(request, machine, same[0])
            yield from (run_in_setting(beside, each) for each in same)


def _line(made: RunSideBySide) -> str:
    """Return what is known of a setting as a line of progress."""
    row = made.row
    setting = f"placement {row.placement}, shift {row.shift}, share {row.share}, routes {row.routes}"
    return f"{row.topology}, {setting}: steps take {row.slow_down:.3f} times as long"
