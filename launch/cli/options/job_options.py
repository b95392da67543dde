"""Options of a job: `--fault`, the parts that fail while it runs, and `--pace`, virtual time by the clock of this host."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

import click

from emu.cluster.pace.timeliness import Pace, PaceFigures, Tempo
from emu.errors import InputError, RunError, must_be
from emu.model.stack.stack import Stack
from emu.study.live.faulty_job import FaultyJob, losses
from emu.study.training.composed.software_costs import topology_under
from emu.topology.catalogue import build_topology
from emu.topology.fault_injection.fault import Fault
from emu.topology.fault_injection.fault_script import faults_of, read_faults
from emu.topology.fault_injection.repair_action import RankLoss
from emu.trace.device.device import Device
from launch.cli.options.common import options_as_one, print_result
from launch.cli.options.files import OutputFile, write_png
from launch.show.text.waste_table import job_report

_SWITCH = {"on": True, "off": False}
_HELP = (
    "Let a part fail or slow down while the job runs, such as `link 3-7 at step 2`, `npu 5 at step 3`, `nic 4 slow 0.5 from "
    "step 3 to 5` or `rank 2 kill at step 3`. A .toml file lists several faults; `random link=0.01 npu=0.001 seed=3` draws "
    "them. Repeat it for more."
)


fault_option = click.option(
    "--fault",
    "faults",
    multiple=True,
    metavar='"PART at step S"|FILE|"random link=RATE ..."',
    callback=lambda _, __, words: read_faults(words),
    help=_HELP,
)
png_option = click.option(  # of a command that draws nothing but steps with faults
    "--png", type=OutputFile(".png"), help="Draw the time of each step to this file, with a mark at each --fault."
)


def check_fault_options(faults: Sequence[str], beside: Mapping[str, object]) -> None:
    """Refuse outputs that a job with faults does not have.

    Args:
        faults: The faults; empty: none.
        beside: The values of other options, by flag.

    Raises:
        InputError: naming the option.
    """
    for flag, value in beside.items():
        if faults and value:
            raise InputError(
                f"{flag}: shows a single step, and --fault and --checkpoint report every step of a job; leave {flag} out"
            )


def show_jobs(results: Sequence[FaultyJob], png: Path | None, *, as_json: bool) -> None:
    """Print each job, and draw them.

    Raises:
        RunError: a job stopped; it is raised after everything is printed.
    """
    print_result(results, lambda: "\n\n".join(map(job_report, results)), as_json=as_json)
    write_png(png, "chart.job_chart:picture", results)
    stopped = [result for result in results if result.stopped is not None]
    if stopped:
        raise RunError(f"{stopped[0].topology}: the job stopped in {stopped[0].stopped}")


@dataclass(frozen=True, slots=True)
class JobOptions:
    """The values of `--fault` and of `--png`, which draws steps with faults, and of `--pace` and its details.

    Raises:
        InputError: `--pace-compute` or `--pace-events` has an unknown value, or is given without `--pace`.
    """

    faults: tuple[str, ...]
    png: Path | None
    factor: float | None = None
    compute: str | None = None
    events: str | None = None

    def __post_init__(self) -> None:
        for flag, value in (("--pace-compute", self.compute), ("--pace-events", self.events)):
            if value is not None and value not in _SWITCH:
                raise must_be("run", flag, " or ".join(_SWITCH), value)
            if value is not None and self.factor is None:
                raise InputError(f"run: {flag} needs --pace; add --pace 1000")

    def check(self, beside: Mapping[str, object], *, checkpoints: Sequence[str] = ()) -> None:
        """Refuse outputs that a job with faults or checkpoints does not have, and a picture of a job without.

        Args:
            beside: The values of other options, by flag.
            checkpoints: The flag that asks for checkpoints; empty: there are none.

        Raises:
            InputError: naming the option.
        """
        check_fault_options(self.faults or checkpoints, beside)
        if self.png is not None and not (self.faults or checkpoints):
            raise InputError("--png: draws the steps of a job with faults, and no --fault is given; add a --fault")

    def known_faults(self, topologies: Sequence[str], ranks: int, steps: int) -> tuple[tuple[Fault, ...], tuple[RankLoss, ...]]:
        """Return the faults that `--fault` gives, and the ranks that they end, on the first topology.

        They are checked against the job and every topology. Where the run is paced, a fault may be at a time.

        Args:
            topologies: The topologies as they were written.
            ranks: The number of ranks.
            steps: The number of steps.

        Raises:
            InputError: a topology is unknown; or as `faults_of`.
        """
        if not self.faults:
            return (), ()
        built = [build_topology(word) for word in topologies]
        found = [faults_of(self.faults, each, ranks, steps, clock=self.factor is not None) for each in built]
        return found[0], losses(built[0], found[0], ranks, steps)

    def pace(self, topology: str, device: Device, dtype: str, stack: Stack, faults: Sequence[Fault] = ()) -> Pace | None:
        """Return the fabric and its clock; None where no pace was given.

        Args:
            topology: The whole machine, as it was written.
            device: The device that gives the times of computations.
            dtype: The dtype as which float32 is timed.
            stack: The times that the software adds to messages.
            faults: The faults that ranks meet.

        Raises:
            InputError: the pace is not above 0.
        """
        if self.factor is None:
            return None
        tempo = Tempo(self.factor, device, dtype, _SWITCH[self.compute or "on"], _SWITCH[self.events or "on"])
        return Pace(tempo, build_topology(topology), tuple(faults), partial(topology_under, stack))

    def show(self, results: Sequence[FaultyJob], pace: Pace | None, *, as_json: bool) -> None:
        """Print each job, and draw them; the first tells how well this host kept up, as it was the pace of the run.

        Raises:
            RunError: a job stopped; it is raised after everything is printed.
        """
        show_jobs([replace(results[0], paced=pacing_of(pace)), *results[1:]], self.png, as_json=as_json)


def pacing_of(pace: Pace | None) -> PaceFigures | None:
    """Return how well this host kept up with a paced run; None where the run was not paced."""
    return None if pace is None else pace.figures()


pace_option = click.option(
    "--pace",
    "factor",
    type=float,
    metavar="FACTOR",
    help="Run virtual time by the clock of this host: a second of virtual time takes FACTOR seconds, such as 1000. "
    "Each message is held until it arrives on the first --topology. [default: messages are not held]",
)
pace_compute_option = click.option(
    "--pace-compute",
    "compute",
    metavar="on|off",
    help="on: computation takes the device's time x FACTOR; off: the time of this host. [default: on, with --pace]",
)
pace_events_option = click.option(
    "--pace-events",
    "events",
    metavar="on|off",
    help="on: elapsed_time of a script's torch.cuda.Event is virtual time; off: it is the time of this host. "
    "[default: on, with --pace]",
)
faulty_job = options_as_one("job", JobOptions)  # of a command with the options above: it takes their values as one object
