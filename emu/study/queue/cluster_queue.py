"""The question of a queue: jobs over weeks on machines, with their faults, by some policies and for some seeds."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

from emu.study.faults.source import FaultLog
from emu.study.faults.waste import Machine
from emu.study.job_pool import THIS_PROCESS, JobPool, results_of
from emu.study.queue.gang_machine import GangMachine
from emu.study.queue.queue_policy import QueuePolicy
from emu.study.queue.queue_row import QueuedOn, QueueRow, queue_row
from emu.study.queue.scheduler import SchedulerRules
from emu.study.queue.simulation import simulate
from emu.study.queue.workload.job_speed import JobSpeeds
from emu.study.queue.workload.queued_job import DAY_US, QueuedJob, RunCosts
from emu.trace.device.device import Device

_AHEAD = 2  # cases that wait for each process of a pool


@dataclass(frozen=True, slots=True)
class QueueRequest:
    """The request for queues: the machines, the policies, the jobs of a seed, the time, the costs of runs, and the device."""

    machines: tuple[Machine, ...]
    policies: tuple[QueuePolicy, ...]
    jobs_of: Callable[[int], tuple[QueuedJob, ...]]  # seed -> jobs
    days: float
    costs: RunCosts
    group: int  # NPUs of a group of a job
    npus_per_node: int  # NPUs that fail together
    device: Device  # of jobs with a model
    algorithms: tuple[str, ...] = ()
    keeps_moments: bool = True  # whether rows have the moments at which the machine was looked at


class QueueCase(NamedTuple):
    """One machine with the jobs and the faults of one seed."""

    machine: int  # number in the request
    seed: int
    log: FaultLog | None  # of the faults of its nodes; None: there are none


class QueueWork:
    """The function that simulates one case by all policies; each process of a pool has its own, with the speeds of jobs."""

    def __init__(self, asked: QueueRequest) -> None:
        self._asked = asked
        self._speeds: dict[int, JobSpeeds] = {}

    def __call__(self, case: QueueCase) -> list[QueueRow]:
        """Return the row of each policy.

        Raises:
            InputError: A job with a model cannot be timed on the machine.
        """
        asked, speeds = self._asked, self._speeds_on(case.machine)
        jobs = tuple(speeds.timed(job) for job in asked.jobs_of(case.seed))
        rows = [self._row(case, policy, jobs) for policy in asked.policies]
        return rows if asked.keeps_moments else [replace(row, moments=()) for row in rows]

    def _speeds_on(self, number: int) -> JobSpeeds:
        """Return the speeds of jobs on a machine, which are the same for all seeds."""
        if number not in self._speeds:
            asked = self._asked
            machine = GangMachine(asked.machines[number], asked.npus_per_node)
            self._speeds[number] = JobSpeeds(machine, asked.group, asked.device, asked.algorithms)
        return self._speeds[number]

    def _row(self, case: QueueCase, policy: QueuePolicy, jobs: Sequence[QueuedJob]) -> QueueRow:
        """Return the row of one policy."""
        asked, machine = self._asked, self._asked.machines[case.machine]
        rules = SchedulerRules(policy, asked.costs, asked.group, self._speeds[case.machine].slowness)
        until_us = round(asked.days * DAY_US)
        on = QueuedOn(
            topology=machine.topology.name,
            copies=machine.copies,
            npus=machine.npus,
            policy=policy.name,
            group=asked.group,
            days=until_us / DAY_US,
        )
        history = simulate(GangMachine(machine, asked.npus_per_node), jobs, case.log, rules, until_us)
        return queue_row(on, history)


def queues(asked: QueueRequest, cases: Sequence[QueueCase], pool: JobPool = THIS_PROCESS) -> Iterator[list[QueueRow]]:
    """Yield the rows of each case, one for each policy, in the order of the cases; the processes of a pool do the cases."""
    with pool.open(QueueWork(asked), jobs=len(cases)) as opened:
        yield from results_of(map(opened.submit, cases), _AHEAD * opened.side_by_side)
