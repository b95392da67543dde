"""The request of jobs side by side, and the settings in which they are compared."""

from collections.abc import Sequence
from dataclasses import dataclass
from math import lcm

from emu.errors import either, must_be
from emu.fabric.packet_fabric import PacketFabric
from emu.study.jobs.job import Job
from emu.study.jobs.job_placement import read_policy

AUTO, WHOLE, COMPOSED = "auto", "whole", "composed"
TIMES = (AUTO, WHOLE, COMPOSED)
NONE, CIRCLE = "none", "circle"
SHIFTS = (NONE, CIRCLE)
WEIGHTS, FAIR, INTENSITY = "weights", "fair", "intensity"
SHARES = (WEIGHTS, FAIR, INTENSITY)
MOST_WEIGHT = 64
_MOST_PARTS = 2**20  # common multiple of all weights, by which bytes are multiplied


@dataclass(frozen=True, slots=True)
class JobsSetting:
    """A setting in which jobs run side by side: their placement, the shifts of their steps, and how they share a full link."""

    placement: str = "packed"
    shift: str = NONE
    share: str = WEIGHTS  # by the weights of jobs; evenly; or by weights that follow from their intensity

    def check(self) -> None:
        """Check the words of the setting.

        Raises:
            InputError: The placement or the shift is unknown.
        """
        read_policy(self.placement)
        if self.shift not in SHIFTS:
            raise must_be("jobs", "shift", either(SHIFTS), self.shift)
        if self.share not in SHARES:
            raise must_be("jobs", "share", either(SHARES), self.share)


@dataclass(frozen=True, slots=True)
class JobsRequest:
    """Jobs to be run side by side, the steady steps that each is to have, and how their steps are timed."""

    jobs: tuple[Job, ...]
    steps: int = 20
    time: str = AUTO  # `whole`: every message; `composed`: a body for each request; `auto`: whole where that is small
    packets: PacketFabric | None = None  # that give the times; None: messages are fluid

    def check(self) -> None:
        """Check what does not depend on a topology.

        Raises:
            InputError: There is no job, two have one name, or a number or a word is impossible.
        """
        names = [job.name for job in self.jobs]
        if not names:
            raise must_be("jobs", "[[job]]", "there once or more", "none", "write a [[job]] for each")
        _check_names(names)
        for job in self.jobs:
            if not 1 <= job.weight <= MOST_WEIGHT:
                raise must_be("jobs", f"weight of {job.name}", f"a whole number from 1 to {MOST_WEIGHT}", job.weight)
            if self.packets is not None and job.weight != 1:
                raise must_be(
                    "jobs", f"weight of {job.name}", "1 where --fabric is packets", job.weight, "packets have no weights"
                )
        parts = lcm(*(job.weight for job in self.jobs))
        if parts > _MOST_PARTS:
            raise must_be(
                "jobs", "weights", f"numbers with a common multiple of at most {_MOST_PARTS}", parts, "take powers of 2"
            )
        if self.steps < 1:
            raise must_be("jobs", "steps", "1 or more", self.steps)
        if self.time not in TIMES:
            raise must_be("jobs", "time", either(TIMES), self.time)
        if self.packets is not None and self.time == COMPOSED:
            raise must_be("jobs", "time", "whole or auto where --fabric is packets", self.time, "packets need every message")


def _check_names(names: Sequence[str]) -> None:
    """Check that no two jobs have one name."""
    twice = next((name for name in names if names.count(name) > 1), None)
    if twice is not None:
        raise must_be("jobs", "name", "another for each job", twice)
