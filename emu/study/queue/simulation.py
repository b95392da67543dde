"""The clock of a queue: jobs arrive, run and end, and nodes fail and are repaired, as processes of SimPy."""

from collections.abc import Generator, Sequence
from dataclasses import dataclass
from itertools import groupby

import simpy

from emu.arrays import I64
from emu.study.faults.source import FaultLog
from emu.study.queue.gang_machine import FREE, GangMachine, NpuTime
from emu.study.queue.scheduler import Scheduler, SchedulerRules
from emu.study.queue.workload.queued_job import DAY_US, GangRun, JobRecord, QueuedJob

Steps = Generator[simpy.Event, object, None]
MOMENTS = 720  # at which the machine is looked at: each hour of 30 days


@dataclass(frozen=True, slots=True)
class QueueMoment:
    """A machine at one moment: how many NPUs jobs hold, how many are free, how many do not serve, and who waits."""

    time_us: int
    held: int
    free: int
    out: int  # faulty, or out of service
    largest: int  # NPUs of the largest job of whole groups that could start
    waiting: int  # jobs
    waiting_npus: int  # that these ask for


@dataclass(frozen=True, eq=False, slots=True)
class QueueHistory:
    """The history of a queue on a machine: a record of each, all runs with their ends, and all NPU time."""

    npus: int
    until_us: int
    records: tuple[JobRecord, ...]
    runs: tuple[tuple[GangRun, int], ...]
    spent: NpuTime
    moments: tuple[QueueMoment, ...]


class _Simulation:
    """A queue on a machine while time passes."""

    def __init__(self, machine: GangMachine, rules: SchedulerRules) -> None:
        self.env = simpy.Environment()
        self.scheduler = Scheduler(machine, rules, self._begin, self._saving)
        self.moments: list[QueueMoment] = []
        self._changed = self.env.event()
        self.env.process(self._schedule())

    def _change(self) -> None:
        """Have the scheduler look at the machine when all that happens at this time has happened."""
        if not self._changed.triggered:
            self._changed.succeed()

    def _schedule(self) -> Steps:
        """Call the scheduler after each change."""
        while True:
            yield self._changed
            self._changed = self.env.event()
            self.scheduler.schedule(int(self.env.now))

    def arrive(self, jobs: Sequence[QueuedJob]) -> Steps:
        """Submit each job at its time; those of one time together, before the scheduler looks at any."""
        for submit_us, together in groupby(jobs, key=lambda job: job.submit_us):
            yield self.env.timeout(submit_us - int(self.env.now))
            for job in together:
                self.scheduler.submit(job)
            self._change()

    def break_down(self, log: FaultLog) -> Steps:
        """Take nodes out of service and into it again, as a log of faults says; at equal times repairs come first."""
        spells = [[round(day * DAY_US) for day in days] for days in zip(log.start.tolist(), log.end.tolist(), strict=True)]
        lasting = [(*spell, node) for spell, node in zip(spells, log.unit.tolist(), strict=True) if spell[0] < spell[1]]
        events = [(begin, True, node) for begin, _, node in lasting] + [(end, False, node) for _, end, node in lasting]
        for time_us, together in groupby(sorted(events), key=lambda event: event[0]):
            yield self.env.timeout(time_us - int(self.env.now))
            for _, fails, node in together:
                if fails:
                    self.scheduler.fail(node, time_us)
                else:
                    self.scheduler.repair(node)
            self._change()

    def look(self, every_us: int) -> Steps:
        """Note the state of the machine at even moments."""
        while True:
            self.moments.append(_moment(self.scheduler, int(self.env.now)))
            yield self.env.timeout(every_us)

    def _begin(self, run: GangRun) -> None:
        self.env.process(self._run(run))

    def _run(self, run: GangRun) -> Steps:
        """End a run at its time, unless it has been stopped by then."""
        yield self.env.timeout(run.end_us - int(self.env.now))
        if self.scheduler.running.get(run.job.number) is run:
            self.scheduler.finish(run)
            self._change()

    def _saving(self, places: I64) -> None:
        self.env.process(self._save(places))

    def _save(self, places: I64) -> Steps:
        """Free places when the jobs that were on them have saved their state."""
        yield self.env.timeout(self.scheduler.rules.costs.checkpoint_us)
        self.scheduler.emptied(places)
        self._change()


def _moment(scheduler: Scheduler, now_us: int) -> QueueMoment:
    """Return the state of a machine at a moment."""
    machine, waiting = scheduler.machine, scheduler.waiting
    held, free = int((machine.holder != FREE).sum()), int(machine.free.sum())
    asked = sum(record.job.npus for record in waiting)
    largest = machine.largest(min(scheduler.rules.group, machine.machine.npus))
    return QueueMoment(now_us, held, free, machine.machine.npus - held - free, largest, len(waiting), asked)


def simulate(
    machine: GangMachine, jobs: Sequence[QueuedJob], log: FaultLog | None, rules: SchedulerRules, until_us: int
) -> QueueHistory:
    """Return what happens to jobs on a machine.

    Args:
        machine: The machine, empty and without faults.
        jobs: The jobs, in the order of their submission.
        log: The faults of its nodes; None: there are none.
        rules: The rules of its scheduler.
        until_us: The time at which the account ends; jobs that run then have done what they have done.
    """
    going = _Simulation(machine, rules)
    going.scheduler.schedule(0)
    going.env.process(going.arrive(jobs))
    if log is not None:
        going.env.process(going.break_down(log))
    going.env.process(going.look(max(1, until_us // MOMENTS)))
    going.env.run(until=until_us)
    scheduler = going.scheduler
    scheduler.close(until_us)
    records = tuple(scheduler.records.values())
    return QueueHistory(machine.machine.npus, until_us, records, tuple(scheduler.runs), scheduler.spent, tuple(going.moments))
