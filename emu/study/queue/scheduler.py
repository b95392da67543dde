"""The scheduler of a machine: it starts, stops and moves the jobs of a queue by a policy, and keeps account of all NPU time.

It knows the time only by what it is told; `emu.study.queue.simulation` is its clock. Letters: N places.
"""

from bisect import insort
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import partial

import numpy as np

from emu.arrays import I64, Bool, column
from emu.study.queue.gang_machine import (
    AGAIN,
    BLOCKED,
    FAULTY,
    FRAGMENTED,
    FREE,
    IDLE,
    OUT,
    SAVING,
    STARTING,
    STOPPED,
    UNUSED,
    WORK,
    GangMachine,
    NpuTime,
)
from emu.study.queue.queue_policy import QueuePolicy
from emu.study.queue.room import Reservation, earliest, jobs_to_move, jobs_to_stop
from emu.study.queue.workload.queued_job import ENDED, REFUSED, RUNNING, WAITING, GangRun, JobRecord, QueuedJob, RunCosts
from emu.topology.gang_rule import NOWHERE

_Size = tuple[int, bool, bool]  # the NPUs of a job, whether they must be on one copy, and whether of all free places
Slowness = Callable[[QueuedJob, I64], Fraction]  # the time of a job's work on some places, over that on an idle machine


def as_asked(job: QueuedJob, places: I64) -> Fraction:
    """Return 1: the time of the work is as it was given, wherever the job is placed."""
    return Fraction(1)


@dataclass(frozen=True, slots=True)
class SchedulerRules:
    """The rules of a scheduler: its policy, the costs of runs, the NPUs of a group, and the speed of jobs by placement."""

    policy: QueuePolicy
    costs: RunCosts
    group: int  # NPUs of a group of a job; a smaller job is one group
    slowness: Slowness = as_asked


class Scheduler:
    """The jobs that wait and run on a machine.

    Args:
        machine: The machine.
        rules: The rules.
        begin: Called with each run that begins; `finish` is to be called when it ends.
        saving: Called with places on which a stopped job still saves its state; `emptied` is to be called with them after that.
    """

    def __init__(
        self, machine: GangMachine, rules: SchedulerRules, begin: Callable[[GangRun], None], saving: Callable[[I64], None]
    ) -> None:
        self.machine, self.rules = machine, rules
        self.records: dict[int, JobRecord] = {}
        self.waiting: list[JobRecord] = []
        self.running: dict[int, GangRun] = {}
        self.runs: list[tuple[GangRun, int]] = []  # all runs that are over, and when
        self.spent = NpuTime()
        self._begin, self._saving = begin, saving
        self._emptied_us: list[tuple[int, I64]] = []  # when places on which jobs save their state are free
        self._reserved: Reservation | None = None

    def submit(self, job: QueuedJob) -> None:
        """Put a job into the queue, or refuse it if it has no room even on the whole machine."""
        record = self.records[job.number] = JobRecord(job)
        most = self.machine.machine.npus
        if job.npus > most:
            record.state, record.reason = REFUSED, f"it asks for {job.npus} NPUs of {most}"
        elif not self.machine.has_ever_room(job.npus, self._group(job.npus), in_one_copy=job.trained is not None):
            record.state, record.reason = REFUSED, f"{job.npus} NPUs find no room even on the empty machine"
        else:
            self._wait(record)

    def _wait(self, record: JobRecord) -> None:
        record.state = WAITING
        insort(self.waiting, record, key=self.rules.policy.key)

    def _group(self, npus: int) -> int:
        return min(self.rules.group, npus)

    def _place(self, job: QueuedJob, free: Bool) -> I64:
        """Return the places of a job among free ones; none without room. The ranks of a model stay on one copy."""
        return self.machine.place(job.npus, self._group(job.npus), free, in_one_copy=job.trained is not None)

    def finish(self, run: GangRun) -> None:
        """Note that a run has done all the work of its job."""
        record = self.records[run.job.number]
        self._leave(run, run.end_us)
        record.left_us, record.state, record.end_us = 0, ENDED, run.end_us

    def _leave(self, run: GangRun, now_us: int, *, fault: bool = False) -> None:
        """Take a run off its places, and note what its time went to; a fault loses the work since the last checkpoint."""
        record, progress = self.records[run.job.number], run.progress(now_us)
        asked, held = run.job.npus, len(run.places)
        done_us = progress.kept_us + (0 if fault else progress.since_us)
        self.spent.add(WORK, asked * done_us)
        self.spent.add(AGAIN, asked * progress.since_us if fault else 0)
        self.spent.add(SAVING, asked * (progress.saved_us + progress.waited_us))
        self.spent.add(STARTING, asked * progress.started_us)
        self.spent.add(UNUSED, (held - asked) * sum(progress))
        record.left_us = run.left_us(done_us)
        record.saved = record.saved or done_us > 0
        self.machine.hold(run.places, FREE)
        del self.running[run.job.number]
        self.runs.append((run, now_us))

    def fail(self, node: int, now_us: int) -> None:
        """Take the NPUs of a node out of service, and stop the jobs on them."""
        machine = self.machine
        npus = machine.node(node)
        hit = set(machine.holder[npus[machine.sound[npus]]].tolist())
        machine.fail(node)
        hit |= set(machine.holder[machine.failed].tolist())  # a backup has gone to another place
        for number in sorted(hit - {FREE, STOPPED}):
            run, record = self.running[number], self.records[number]
            if run.end_us <= now_us:
                self.finish(run)
                continue
            self._leave(run, now_us, fault=True)
            record.faults += 1
            record.saved = True  # from its last checkpoint, or from the beginning, it starts as from one
            self._wait(record)
        self._reserved = None

    def repair(self, node: int) -> None:
        """Take the NPUs of a node into service again."""
        self.machine.repair(node)
        self._reserved = None

    def emptied(self, places: I64) -> None:
        """Free places on which stopped jobs have saved their state."""
        self.machine.hold(places, FREE)
        self._emptied_us = [each for each in self._emptied_us if each[1] is not places]

    def schedule(self, now_us: int) -> None:
        """Start, stop and move jobs by the policy, and note what the other NPUs wait for from now on."""
        policy = self.rules.policy
        while self.waiting and (self._start_first(now_us) or self._make_room(now_us)):
            pass
        if self.waiting and policy.skips:
            self._start_others(now_us, None)
        elif self.waiting and policy.backfills:
            self._start_others(now_us, self._reservation(self.waiting[0]))
        self.spent.change(now_us, self._rates())

    def _rates(self) -> dict[str, int]:
        """Return how many NPUs without a job wait for what."""
        machine = self.machine
        empty = machine.holder == FREE
        free, failed = int((empty & machine.serves).sum()), int((empty & machine.failed).sum())
        why = IDLE
        if self.waiting:
            why = FRAGMENTED if free >= self.waiting[0].job.npus else BLOCKED
        saving = int((machine.holder == STOPPED).sum())
        out = int(empty.sum()) - free - failed
        return {why: free, FAULTY: failed, OUT: out, SAVING: saving}

    def _run(self, record: JobRecord, places: I64, now_us: int, wait_us: int = 0) -> GangRun:
        """Return a run of a job on some places, from now on."""
        job, rules = record.job, self.rules
        return GangRun(job, places, now_us, record.left_us, rules.costs, wait_us, record.saved, rules.slowness(job, places))

    def _start(self, record: JobRecord, run: GangRun) -> None:
        """Start a job that is no longer in the queue."""
        record.state = RUNNING
        record.start_us = run.start_us if record.start_us is None else record.start_us
        self.machine.hold(run.places, run.job.number)
        self.running[run.job.number] = run
        self._begin(run)

    def _start_first(self, now_us: int) -> bool:
        """Start the first job of the queue if it has room; return whether it has."""
        record, free = self.waiting[0], self.machine.free
        places = self._place(record.job, free)
        kept = self._reserved
        if not len(places) and kept is not None and kept.job == record.job.number and free[kept.places].all():
            places = kept.places  # a rule that does not find all room there is still keeps a promise
        if not len(places):
            return False
        self.waiting.pop(0)
        self._start(record, self._run(record, places, now_us))
        return True

    def _reservation(self, record: JobRecord) -> Reservation | None:
        """Return the promise to the first job; None if it has no room before a repair.

        It holds until a fault, a repair, or a job that stops: run times are known, so nothing else can make it better.
        """
        if self._reserved is not None and self._reserved.job == record.job.number:
            return self._reserved
        ends = [(run.end_us, run.places) for run in self.running.values()] + self._emptied_us
        found = earliest(partial(self._place, record.job), self.machine, ends)
        self._reserved = None if found is None else Reservation(record.job.number, *found)
        return self._reserved

    def _start_others(self, now_us: int, kept: Reservation | None) -> None:
        """Start all jobs after the first that have room and keep the promise to it."""
        free, full = self.machine.free, set[_Size]()
        apart = free.copy()
        if kept is not None:
            apart[kept.places] = False
        left, started = int(free.sum()), []
        for record in self.waiting[1:]:
            if not left:
                break
            run = None if record.job.npus > left else self._fitting(record, now_us, (free, apart), kept, full)
            if run is not None:
                record.backfilled = True
                started.append(record.job.number)
                self._start(record, run)
                free[run.places] = apart[run.places] = False
                left = int(free.sum())
        self.waiting = [record for record in self.waiting if record.job.number not in started]

    def _fitting(
        self, record: JobRecord, now_us: int, rooms: tuple[Bool, Bool], kept: Reservation | None, full: set[_Size]
    ) -> GangRun | None:
        """Return a run of a job that ends before a promise falls due, or lies apart from its places; None without room.

        Args:
            record: The job.
            now_us: The time.
            rooms: [N] the free places, and those of them that are not promised.
            kept: The promise; None: there is none.
            full: The sizes of jobs that have no room, in all places or apart from the promised ones; sizes are added.
        """
        for room, everywhere in zip(rooms, (True, False), strict=True):
            size = record.job.npus, record.job.trained is not None, everywhere
            places = NOWHERE if size in full else self._place(record.job, room)
            if not len(places):
                full |= {size, (*size[:2], False)}  # what has no room anywhere has none apart
                break
            run = self._run(record, places, now_us)
            if kept is None or not everywhere or run.end_us <= kept.start_us or not np.isin(places, kept.places).any():
                return run
        return None

    def _make_room(self, now_us: int) -> bool:
        """Stop or move other jobs for the first job, as far as the policy allows it; return whether it has started."""
        record, policy = self.waiting[0], self.rules.policy
        return (policy.preempts and self._preempt(record, now_us)) or (policy.migrates and self._migrate(record, now_us))

    def _preempt(self, record: JobRecord, now_us: int) -> bool:
        """Stop jobs of lower priority for a job: those of the lowest, and of these those that started last, first."""
        lower = [run for run in self.running.values() if run.job.priority < record.job.priority]
        lower.sort(key=lambda run: (run.job.priority, -run.start_us, -run.job.number))
        found = jobs_to_stop(partial(self._place, record.job), self.machine.free, lower) if lower else None
        if found is None:
            return False
        places, stopped = found
        for run in stopped:
            self._leave(run, now_us)
            self.records[run.job.number].preemptions += 1
            self._wait(self.records[run.job.number])
        self._replace(now_us, stopped, [(record, places)])
        return True

    def _migrate(self, record: JobRecord, now_us: int) -> bool:
        """Move smaller jobs for a job for which enough places are free."""
        free, npus = self.machine.free, record.job.npus
        if int(free.sum()) < npus:
            return False
        smaller = [run for run in self.running.values() if run.job.npus < npus]
        moves = jobs_to_move(partial(self._place, record.job), self._place, free, smaller)
        if moves is None:
            return False
        for run, _ in moves.moved:
            self._leave(run, now_us)
            self.records[run.job.number].moves += 1
        goes = [(self.records[run.job.number], places) for run, places in moves.moved]
        self._replace(now_us, [run for run, _ in moves.moved], [(record, moves.places), *goes])
        return True

    def _replace(self, now_us: int, stopped: Sequence[GangRun], starts: Iterable[tuple[JobRecord, I64]]) -> None:
        """Start jobs on their places once stopped jobs have saved their state, and keep the other places until then."""
        wait_us = self.rules.costs.checkpoint_us if stopped else 0
        for record, places in starts:
            self.waiting = [each for each in self.waiting if each is not record]
            self._start(record, self._run(record, places, now_us, wait_us))
        left = np.concatenate([NOWHERE, *(run.places for run in stopped)])
        left = column(left[self.machine.holder[left] == FREE], np.int64)
        if len(left) and wait_us:
            self.machine.hold(left, STOPPED)
            self._emptied_us.append((now_us + wait_us, left))
            self._saving(left)
        self._reserved = None

    def close(self, now_us: int) -> None:
        """End the account: jobs that still run have done what they have done."""
        for run in [*self.running.values()]:
            if run.end_us <= now_us:
                self.finish(run)
            else:
                self._leave(run, now_us)
        self.spent.change(now_us, {})
