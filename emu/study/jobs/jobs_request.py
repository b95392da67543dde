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
WEIGHTS, FAIR, INTENSITY, PRIORITY = "weights", "fair", "intensity", "priority"
SLICES, LANES, PLANES = "slices", "lanes", "planes"  # keep jobs apart
SHARES = (WEIGHTS, FAIR, INTENSITY, PRIORITY, SLICES, LANES, PLANES)
OWN, LEAST_LOADED = "own", "least-loaded"
ROUTES = (OWN, LEAST_LOADED)
MOST_WEIGHT, MOST_PRIORITY = 64, 63
_NO_PACKETS = {INTENSITY: "packets have no weights", SLICES: "packets of jobs are kept apart by lanes"}
_MOST_PARTS = 2**20  # common multiple of all weights, by which bytes are multiplied


@dataclass(frozen=True, slots=True)
class JobsSetting:
    """A setting in which jobs run side by side: their placement, shifts of steps, how they share links, and routes."""

    placement: str = "packed"
    shift: str = NONE
    share: str = WEIGHTS
    routes: str = OWN  # of the topology; or the least loaded ones, for one job after another

    @property
    def places(self) -> tuple[str, bool, str]:
        """The words that decide on which NPUs and over which links each job runs."""
        return self.placement, self.share == PLANES, self.routes

    def check(self, packets: PacketFabric | None = None) -> None:
        """Check the words of the setting.

        Args:
            packets: The packets that give the times; None: messages are fluid.

        Raises:
            InputError: A word is unknown, or says how links are shared that the fabric does not have.
        """
        read_policy(self.placement)
        for name, known in (("shift", SHIFTS), ("share", SHARES), ("routes", ROUTES)):
            if getattr(self, name) not in known:
                raise must_be("jobs", name, either(known), getattr(self, name))
        if packets is None and self.share == LANES:
            others = [share for share in SHARES if share != LANES]
            why = "the fluid fabric has no lanes; slices keep jobs apart there"
            raise must_be("jobs", "share", f"{either(others)} where --fabric is fluid", self.share, why)
        if packets is not None:
            self._check_packets(packets)

    def _check_packets(self, packets: PacketFabric) -> None:
        """Check that packets can share links in this way.

        Raises:
            InputError: They cannot.
        """
        if self.share in _NO_PACKETS:
            others = [share for share in SHARES if share not in _NO_PACKETS]
            what = f"{either(others)} where --fabric is packets"
            raise must_be("jobs", "share", what, self.share, _NO_PACKETS[self.share])
        if packets.network.route != "hash" and (self.share in (LANES, PRIORITY) or self.routes != OWN):
            what = "route=hash where jobs have lanes, priorities or chosen routes"
            raise must_be("jobs", "--network", what, f"route={packets.network.route}")


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
            if not 0 <= job.priority <= MOST_PRIORITY:
                raise must_be("jobs", f"priority of {job.name}", f"a whole number from 0 to {MOST_PRIORITY}", job.priority)
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
