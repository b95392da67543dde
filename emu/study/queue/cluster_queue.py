"""The question of a queue: jobs over weeks on a machine, with its faults, by a policy."""

from collections.abc import Sequence
from dataclasses import dataclass

from emu.study.faults.source import Faults
from emu.study.faults.waste import Machine
from emu.study.queue.gang_machine import GangMachine
from emu.study.queue.job_speed import JobSpeeds
from emu.study.queue.queue_policy import QueuePolicy
from emu.study.queue.queue_row import QueuedOn, QueueRow, queue_row
from emu.study.queue.queued_job import DAY_US, QueuedJob, RunCosts
from emu.study.queue.scheduler import SchedulerRules
from emu.study.queue.simulation import simulate
from emu.trace.device.device import Device


@dataclass(frozen=True, slots=True)
class QueueRequest:
    """The request for a queue on each machine: its jobs, the time, the costs of runs, and the device of jobs with a model."""

    jobs: tuple[QueuedJob, ...]
    days: float
    costs: RunCosts
    group: int  # NPUs of a group of a job
    npus_per_node: int  # NPUs that fail together
    device: Device
    algorithms: tuple[str, ...] = ()


def queue_on(machine: Machine, faults: Faults | None, policies: Sequence[QueuePolicy], asked: QueueRequest) -> list[QueueRow]:
    """Return the figures of a queue on a machine, by each of some policies.

    Args:
        machine: The machine.
        faults: Its faults, which have times; None: there are none.
        policies: The policies.
        asked: The jobs, and all else.

    Raises:
        InputError: A job with a model cannot be timed on the machine.
    """
    speeds = JobSpeeds(GangMachine(machine, asked.npus_per_node), asked.group, asked.device, asked.algorithms)
    jobs = tuple(speeds.timed(job) for job in asked.jobs)
    rows = []
    for policy in policies:
        rules = SchedulerRules(policy, asked.costs, asked.group, speeds.slowness)
        on = QueuedOn(machine.topology.name, machine.copies, policy.name, asked.group)
        log = None if faults is None else faults.log
        until_us = round(asked.days * DAY_US)
        rows.append(queue_row(on, simulate(GangMachine(machine, asked.npus_per_node), jobs, log, rules, until_us)))
    return rows
