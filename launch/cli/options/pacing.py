"""`--pace` of the commands that run ranks: virtual time by this host's clock."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial, wraps
from typing import Any, TypeVar, cast

import click

from emu.cluster.pace.kept import Paced
from emu.cluster.pace.pace import Pace, Tempo
from emu.errors import must_be
from emu.model.stack.stack import Stack
from emu.registry import unknown
from emu.study.live.disturbed import Disturbed
from emu.study.training.composed.calls import topology_under
from emu.topology.fault_injection.fault import Fault
from emu.topology.topology import Topology
from emu.trace.device.device import Device
from launch.cli.options.common import with_options

F = TypeVar("F", bound=Callable[..., Any])
_COMPUTES = {"on": True, "off": False}


@dataclass(frozen=True, slots=True)
class Pacing:
    """What was asked for of it.

    Raises:
        InputError: how computation is paced where nothing is, or a word that is none.
    """

    factor: float | None
    compute: str | None

    def __post_init__(self) -> None:
        if self.compute is None:
            return
        if self.compute not in _COMPUTES:
            raise unknown("--pace-compute", self.compute, _COMPUTES)
        if self.factor is None:
            raise must_be("--pace-compute", "the run", "paced where this is given", "no --pace", "add --pace 1000")

    def on(self, topology: Topology, device: Device, dtype: str, stack: Stack, faults: Sequence[Fault] = ()) -> Pace | None:
        """The fabric and the tempo of its clock; None: no pace was asked for.

        Args:
            topology: The whole machine.
            device: What computations take.
            dtype: What float32 is timed as.
            stack: What the software takes for messages.
            faults: That ranks meet.

        Raises:
            InputError: a pace that is none.
        """
        if self.factor is None:
            return None
        tempo = Tempo(self.factor, device, dtype, _COMPUTES[self.compute or "on"])
        return Pace(tempo, topology, tuple(faults), partial(topology_under, stack))


def kept_of(pace: Pace | None) -> Paced | None:
    """How far this host has kept up, of a run that was paced."""
    return None if pace is None else pace.told()


def with_pace(results: Sequence[Disturbed], pace: Pace | None) -> list[Disturbed]:
    """The same; how far this host has kept up beside the first, on whose fabric the run was paced."""
    return [replace(results[0], paced=kept_of(pace)), *results[1:]]


def pace_options(command: F) -> F:
    """`--pace` and `--pace-compute`; the command takes both as one `Pacing`."""

    @wraps(command)
    def called(*given: Any, pace: float | None, pace_compute: str | None, **rest: Any) -> Any:
        return command(*given, pacing=Pacing(pace, pace_compute), **rest)

    taken: Any = with_options(
        called,
        click.option(
            "--pace",
            type=float,
            metavar="FACTOR",
            help="Let the ranks meet the fabric of the first --topology by this host's clock: a second of virtual time takes "
            "FACTOR seconds, such as 1000. Each message is held until its virtual arrival. [default: nothing is held]",
        ),
        click.option(
            "--pace-compute",
            metavar="on|off",
            help="Whether computation takes the device's time x FACTOR, too, or what it takes here. [default: on, with --pace]",
        ),
    )
    return cast("F", taken)
