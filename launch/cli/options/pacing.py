"""The options `--pace` and `--pace-compute` of the commands that run ranks: virtual time by the clock of this host."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial, wraps
from typing import Any, TypeVar, cast

import click

from emu.cluster.pace.timeliness import Pace, PaceFigures, Tempo
from emu.errors import InputError, must_be
from emu.model.stack.stack import Stack
from emu.study.live.faulty_job import FaultyJob
from emu.study.training.composed.software_costs import topology_under
from emu.topology.fault_injection.fault import Fault
from emu.topology.topology import Topology
from emu.trace.device.device import Device
from launch.cli.options.common import with_options

F = TypeVar("F", bound=Callable[..., Any])
_COMPUTES = {"on": True, "off": False}


@dataclass(frozen=True, slots=True)
class PaceOptions:
    """The values of `--pace` and `--pace-compute`.

    Raises:
        InputError: `--pace-compute` has an unknown value, or is given without `--pace`.
    """

    factor: float | None
    compute: str | None

    def __post_init__(self) -> None:
        if self.compute is None:
            return
        if self.compute not in _COMPUTES:
            raise must_be("run", "--pace-compute", " or ".join(_COMPUTES), self.compute)
        if self.factor is None:
            raise InputError("run: --pace-compute needs --pace; add --pace 1000")

    def on(self, topology: Topology, device: Device, dtype: str, stack: Stack, faults: Sequence[Fault] = ()) -> Pace | None:
        """Return the fabric and its clock; None where no pace was given.

        Args:
            topology: The whole machine.
            device: The device that gives the times of computations.
            dtype: The dtype as which float32 is timed.
            stack: The times that the software adds to messages.
            faults: The faults that ranks meet.

        Raises:
            InputError: the pace is not above 0.
        """
        if self.factor is None:
            return None
        tempo = Tempo(self.factor, device, dtype, _COMPUTES[self.compute or "on"])
        return Pace(tempo, topology, tuple(faults), partial(topology_under, stack))


def pacing_of(pace: Pace | None) -> PaceFigures | None:
    """Return how well this host kept up with a paced run; None where the run was not paced."""
    return None if pace is None else pace.figures()


def with_pace(results: Sequence[FaultyJob], pace: Pace | None) -> list[FaultyJob]:
    """Return the results, the first one with how well this host kept up: the run was paced by the first topology."""
    return [replace(results[0], paced=pacing_of(pace)), *results[1:]]


def pace_options(command: F) -> F:
    """Add `--pace` and `--pace-compute` to a command, which takes both as one `PaceOptions`."""

    @wraps(command)
    def called(*given: Any, pace: float | None, pace_compute: str | None, **rest: Any) -> Any:
        return command(*given, pacing=PaceOptions(pace, pace_compute), **rest)

    taken: Any = with_options(
        called,
        click.option(
            "--pace",
            type=float,
            metavar="FACTOR",
            help="Run virtual time by the clock of this host: a second of virtual time takes FACTOR seconds, such as 1000. "
            "Each message is held until it arrives on the first --topology. [default: messages are not held]",
        ),
        click.option(
            "--pace-compute",
            metavar="on|off",
            help="on: computation takes the device's time x FACTOR; off: the time of this host. [default: on, with --pace]",
        ),
    )
    return cast("F", taken)
