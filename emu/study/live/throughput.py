"""The throughput of a job over time while parts fail and return: halts, slower steps, restarts, and goodput.

A job is in one state at a time. It runs, with the throughput of an estimated step on the machine of that moment. It waits, from
the moment at which a part fails that its steps need until the system has reacted, or until its software sends the lost messages
again. If its last try is over before that, it ends. It saves a checkpoint. After it has ended it is down, and once the machine
has room it starts again from its last checkpoint. Work is counted in seconds that it would take without faults, so that goodput
is the lasting work over the time.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import ceil, inf, isclose
from typing import NamedTuple

import numpy as np

from emu.arrays import F64, I64, Bool, column
from emu.errors import InputError, must_be
from emu.study.live.faulty_job import StepTimes
from emu.topology.fault_injection.fault import Fault
from emu.topology.fault_injection.machine_history import MachineHistory, MachineMoment
from emu.topology.fault_injection.machine_state import with_shares
from emu.topology.topology import Topology
from emu.units import MAX_TICKS, TICKS_PER_S, format_time, seconds

RUNS, WAITS, SAVES, DOWN, STARTS = "runs", "waits", "saves", "is down", "starts again"
STATES = (RUNS, WAITS, SAVES, DOWN, STARTS)
_MOST_SAVES = 10_000  # checkpoints of an account
_TRICKLE = 1e-3  # share of its bandwidth that a failed link is tried with, to see whether steps need it
_SAME = 1e-6  # largest relative difference of the times of steps that need no failed link
_SLACK = 1e-12  # share of a span of waiting by which a time may miss a multiple of it
ASSUMED = (
    "throughput is that of whole steps on the machine of each moment; where within a step a fault comes is not followed "
    "(`emu replay --fault` follows it)",
    "a job waits from when a part fails that its steps need: no rank computes ahead, and the work until then is kept",
    "algorithms are chosen anew for the fabric that is left",
)
_SPARES = "NPUs have no rank: what a spare costs until it is needed, in time or energy, is not counted (`emu cost` prices all)"


@dataclass(frozen=True, slots=True)
class Recourse:
    """The durations of what the system and the software of a job do about faults, in seconds.

    Raises:
        InputError: A duration is negative, not finite where it must be, or is given without what it belongs to.
    """

    detect_s: float = 0.0  # from a change of the machine until the system begins to react
    resend_s: float = 0.0  # from a message that found no way to the next try; 0: the job ends when a message finds no way
    resends: int = 0  # tries before the job ends
    save_every_s: float = inf  # from the end of a checkpoint to the next; inf: none is saved
    save_s: float = 0.0  # of a checkpoint, in which the job stands still
    restart_s: float | None = None  # until a job that has ended runs again; None: it does not

    def __post_init__(self) -> None:
        given = {"detect": self.detect_s, "resend": self.resend_s, "checkpoint": self.save_s, "restart": self.restart_s or 0.0}
        for name, value in given.items():
            if not 0 <= value < inf:
                raise must_be("outage", name, "a time of 0 or more", f"{value:g} s")
        if not self.save_every_s > 0:
            raise must_be("outage", "checkpoint_every", "a time above 0", f"{self.save_every_s:g} s")
        if (self.resend_s > 0) != (self.resends > 0):
            raise InputError("outage: `every` and `times` of resend must both be above 0, or both 0")
        if self.save_s > 0 and self.save_every_s == inf:
            mend = "say how often, or leave it out"
            raise must_be("outage", "checkpoint", "0 s without checkpoint_every", f"{self.save_s:g} s", mend)

    @property
    def patience_s(self) -> float:
        """The seconds that the job waits after a message has found no path, before it ends."""
        return (self.resends + 1) * self.resend_s

    @property
    def last_try_s(self) -> float:
        """The seconds from a message that finds no way to the last try."""
        return self.resends * self.resend_s

    def next_try_s(self, waited_s: float) -> float:
        """Return the time (seconds since the wait began) of the first resend at or after `waited_s`."""
        return max(1, ceil(waited_s / self.resend_s - _SLACK)) * self.resend_s


@dataclass(frozen=True, slots=True)
class ThroughputSpan:
    """A span of time in which a job has one state and one throughput, as a share of that without faults."""

    begin_s: float
    end_s: float
    state: str  # one of STATES
    share: float  # of the throughput without faults
    tokens_per_s: float
    events: tuple[str, ...] = ()  # what failed, slowed down or came back as it began, and the end of the job
    told: str = ""  # what the system did about it, or that it cannot; "": nothing


@dataclass(frozen=True, slots=True, kw_only=True)
class JobThroughput:
    """The throughput of a job over time on one topology, in spans; goodput and all losses add up to the whole time.

    Fields such as `waiting_s` and `saving_s` are the seconds that each kind of loss took.
    """

    topology: str
    device: str
    ranks: int
    faults: tuple[str, ...]
    until_s: float
    step_time_s: float  # without faults
    tokens_per_s: float  # without faults
    spans: tuple[ThroughputSpan, ...]
    goodput: float  # work that lasts, over what the job would have done without faults and checkpoints
    slower_s: float  # lost while steps took longer
    waiting_s: float
    saving_s: float
    down_s: float  # from the end of the job until the machine had room, or to the end of the time
    starting_s: float
    again_s: float  # work that was lost with the job, from its last checkpoint on
    stopped: str | None  # why the job ended and did not start again; None: it goes on
    assumptions: tuple[str, ...]


class TimedJob(NamedTuple):
    """A job whose steps are all equal, with the function that times a step."""

    ranks: int
    tokens: int  # of a step
    timed: StepTimes
    device: str
    slots: I64 | None = None  # [ranks] the position of each rank in the order in which NPUs are given; None: its number

    def lost_rank(self, fault: Fault, slot: int) -> int:
        """Return the rank that a fault takes: a fault of a rank names it, others its position in the order of NPUs."""
        is_named = self.slots is None or fault.part == "rank"
        return slot if is_named else int(np.flatnonzero(self.slots == slot)[0])


def throughput_over_time(
    topology: Topology, faults: Sequence[Fault], until_s: float, recourse: Recourse, job: TimedJob
) -> JobThroughput:
    """Return the throughput of a job from 0 s on while faults come and go.

    Args:
        topology: The whole machine.
        faults: Faults at times, which `check_faults` has accepted.
        until_s: The time at which the account ends.
        recourse: What is done about faults, and how long it takes.
        job: The job.

    Raises:
        InputError: The time is not above 0 or beyond Emu's clock, a fault comes after it, a checkpoint comes before a step has
            ended, or the job cannot be timed without faults.
    """
    _check_time(until_s, recourse)
    history = MachineHistory(topology, faults, job.ranks, round(recourse.detect_s * TICKS_PER_S))
    rates = _Rates(job.timed, history.whole)
    _check_work(until_s, recourse, faults, rates.whole_s)
    course = _Course(history, rates.share, recourse, until_s, job.lost_rank)
    course.go()
    return course.account(topology, faults, job, rates.whole_s)


def _check_time(until_s: float, recourse: Recourse) -> None:
    """Check that the simulated time is within Emu's clock and does not have too many checkpoints.

    Raises:
        InputError: It is beyond the clock, or it has too many.
    """
    if not 0 < until_s <= seconds(MAX_TICKS):
        most = format_time(seconds(MAX_TICKS))
        raise must_be("outage", "until", f"above 0 and at most {most}, where Emu's clock ends", format_time(until_s))
    if until_s / recourse.save_every_s > _MOST_SAVES:
        raise must_be("outage", "checkpoint_every", f"{until_s / _MOST_SAVES:g} s or more", f"{recourse.save_every_s:g} s")


def _check_work(until_s: float, recourse: Recourse, faults: Sequence[Fault], step_s: float) -> None:
    """Check that a whole step fits between two checkpoints, and that all faults come before the end of the time.

    Raises:
        InputError: A step does not fit, or a fault comes later.
    """
    if recourse.save_every_s < step_s:
        wanted = f"at least {format_time(step_s)}, the time of a step"
        raise must_be("outage", "checkpoint_every", wanted, format_time(recourse.save_every_s))
    late = next((fault for fault in faults if fault.timed and seconds(fault.first) >= until_s), None)
    if late is not None:
        raise must_be("outage", "until", f"after {late}", format_time(until_s), "the account would end before this fault")


def _spares(topology: Topology, ranks: int) -> tuple[str, ...]:
    """Return a sentence on the NPUs that have no rank; none: all have one."""
    idle = topology.n_npus - ranks
    return (f"{idle} of {topology.n_npus} {_SPARES}",) if idle else ()


# The state in which each kind of time is lost.
_LOST: Mapping[str, str] = {"slower_s": RUNS, "waiting_s": WAITS, "saving_s": SAVES, "down_s": DOWN, "starting_s": STARTS}


class _Rates:
    """The throughput of a job at moments of a machine, as a share of its throughput without faults."""

    def __init__(self, timed: StepTimes, whole: MachineMoment) -> None:
        self._timed = timed
        self._known: dict[tuple[object, ...], float] = {}
        self.whole_s = self._step_s(whole, whole.share)

    def share(self, moment: MachineMoment) -> float:
        """Return the job's throughput at a moment as a share of that without faults; 0 if steps cannot run.

        Raises:
            InputError: A step cannot be timed there, such as where a pair has no route.
        """
        failed = moment.share == 0
        whole_s = self._step_s(moment, column(np.where(failed, 1.0, moment.share), np.float64))
        if failed.any() and not self._does_without(moment, failed, whole_s):
            return 0.0
        return self.whole_s / whole_s

    def _does_without(self, moment: MachineMoment, failed: Bool, whole_s: float) -> bool:
        """Return whether steps take as long as before although the failed links carry almost nothing."""
        try:
            trickle_s = self._step_s(moment, column(np.where(failed, _TRICKLE, moment.share), np.float64))
        except InputError:  # beyond Emu's clock
            return False
        return isclose(trickle_s, whole_s, rel_tol=_SAME)

    def _step_s(self, moment: MachineMoment, share: F64) -> float:
        """Return the seconds of a step with the given shares [L] of link bandwidth; results are cached."""
        found = moment.found
        key = (found.topology.digest(), found.npus.tobytes(), moment.speed.tobytes(), share.tobytes())
        if key not in self._known:
            topology = found.topology
            if (share != 1).any():
                topology = with_shares(topology, share, "slower links")
            self._known[key] = self._timed(replace(found, topology=topology, speed=moment.speed))[0]
        return self._known[key]


@dataclass(eq=False)
class _Course:
    """The life of one job on a machine with faults, from its first second to `until_s`: it runs, waits, or repeats lost work.

    Work is in seconds that it takes without faults.
    """

    history: MachineHistory
    share_of: Callable[[MachineMoment], float]
    recourse: Recourse
    until_s: float
    lost_rank: Callable[[Fault, int], int]  # the rank that a fault takes, as `TimedJob` has it
    state: str = RUNS
    now_s: float = 0.0
    wake_s: float = inf  # when the present state ends by itself
    save_at_s: float = inf
    since_s: float = 0.0  # when the job began to wait
    no_way: bool = False  # whether a message has found no way since then
    gives_up: bool = False  # whether the job ends where its waiting ends
    share: float = 1.0  # of the throughput without faults that the machine gives at present; 0: the job cannot run
    why: str = ""  # why there is no way at present; "": there is, or the system will find one
    done_s: float = 0.0  # work that lasts as far as is known
    saved_s: float = 0.0  # work that the last checkpoint has
    again_s: float = 0.0  # work that was lost
    stopped: str | None = None
    spans: list[ThroughputSpan] = field(default_factory=list)
    lost_s: dict[str, float] = field(default_factory=lambda: dict.fromkeys(STATES, 0.0))
    events: list[str] = field(default_factory=list)  # since the last span was written
    told: str = ""  # since then

    def go(self) -> None:
        """Advance from event to event until `until_s`, and record the spans of time between them.

        An event is a change of the machine, a checkpoint that is due, or the end of a wait.
        """
        self.save_at_s = self.recourse.save_every_s
        while self.now_s < self.until_s:
            change_s = inf if self.history.next_fs == MAX_TICKS else seconds(self.history.next_fs)
            due_s = self.save_at_s if self.state == RUNS else self.wake_s
            at_s = max(self.now_s, min(self.until_s, change_s, due_s))
            self._pass_to(at_s)
            if at_s < self.until_s:
                (self._meet if change_s <= at_s else self._wake)()

    def _pass_to(self, at_s: float) -> None:
        """Advance the clock to `at_s` in the present state, and account for the time."""
        took_s, share = at_s - self.now_s, self.share if self.state == RUNS else 0.0
        if not took_s:
            return
        self.done_s += share * took_s
        self.lost_s[self.state] += (1 - share) * took_s
        last = self.spans[-1] if self.spans else None
        if last is not None and not self.events and not self.told and (last.state, last.share) == (self.state, share):
            self.spans[-1] = replace(last, end_s=at_s)
        else:
            self.spans.append(ThroughputSpan(self.now_s, at_s, self.state, share, 0.0, tuple(self.events), self.told))
        self.now_s, self.events, self.told = at_s, [], ""

    def _meet(self) -> None:
        """Apply the next change of the machine to the job."""
        moment = self.history.turn()
        self.events += moment.events
        self.why = moment.stops
        try:
            self.share = 0.0 if self.why else self.share_of(moment)
        except InputError as error:
            self.share, self.why = 0.0, str(error)
        if moment.waits:  # without an NPU for each rank it does not run, also if it sends nothing
            self.share = 0.0
        self.told = f"no way: {self.why}" if self.why else moment.told or self.told
        if moment.taken and self.state != DOWN:
            self._end(", ".join(f"rank {self.lost_rank(*lost)} is lost, as {lost[0].state}" for lost in moment.taken))
        if self.stopped is None:
            self._settle()

    def _settle(self) -> None:
        """Set the state that follows from the throughput that the machine gives the job at present.

        A job that runs waits when it is 0. A job that is down starts when it is above 0, and is down again when it is 0.
        """
        if self.state in (RUNS, SAVES) and not self.share:
            self.state, self.since_s, self.no_way = WAITS, self.now_s, False
        if self.state == WAITS:
            self._wait()
        elif self.state == DOWN and self.share:
            self.state, self.wake_s = STARTS, self.now_s + (self.recourse.restart_s or 0.0)
        elif self.state == STARTS and not self.share:
            self.state, self.wake_s = DOWN, inf

    def _wait(self) -> None:
        """Let the job wait until its messages go on, and set the time at which it runs again or ends.

        It runs again once they have a way; if they had none, its senders first wait for their next try. It ends after the last
        try, or at once if there is no way and its software does not try again.
        """
        self.no_way = self.no_way or bool(self.why)
        if self.why and not self.recourse.resends:
            self._end(self.why)
            return
        next_s = self.recourse.next_try_s(self.now_s - self.since_s) if self.no_way else 0.0
        # Messages under way take new routes at once, but no sender waits for them longer than for its last try.
        self.gives_up = next_s > self.recourse.last_try_s or (self.recourse.resends > 0 and not self.share)
        if self.gives_up:
            self.wake_s = self.since_s + self.recourse.patience_s
        else:
            self.wake_s = max(self.now_s, self.since_s + next_s) if self.share else inf

    def _wake(self) -> None:
        """Do the transition at the scheduled end of the present state."""
        if self.state == RUNS:
            self.state, self.wake_s = SAVES, self.now_s + self.recourse.save_s
        elif self.state == WAITS and self.gives_up:
            tries = f"{self.recourse.resends} tries in {format_time(self.recourse.patience_s)} found no way"
            early = "" if self.share else ", as the system had not reacted yet"
            self._end(f"{tries}: {self.why}" if self.why else tries + early)
        else:
            self._run()

    def _run(self) -> None:
        """Let the job run again, after a checkpoint, a wait or a start."""
        if self.state == SAVES:
            self.saved_s = self.done_s
        if self.state != WAITS:
            self.save_at_s = self.now_s + self.recourse.save_every_s
        self.state, self.wake_s = RUNS, inf

    def _end(self, why: str) -> None:
        """End the job; the work since its last checkpoint is lost."""
        self.events.append("the job ends")
        self.again_s += self.done_s - self.saved_s
        self.done_s, self.state, self.wake_s = self.saved_s, DOWN, inf
        if self.recourse.restart_s is None:
            self.stopped = f"at {format_time(self.now_s)}: {why}"
        else:
            self._settle()

    def account(self, topology: Topology, faults: Sequence[Fault], job: TimedJob, whole_s: float) -> JobThroughput:
        """Return the account of the job.

        Args:
            topology: The whole machine.
            faults: The faults.
            job: The job.
            whole_s: The seconds of a step without faults.
        """
        return JobThroughput(
            topology=topology.name,
            device=job.device,
            ranks=job.ranks,
            faults=tuple(map(str, faults)),
            until_s=self.until_s,
            step_time_s=whole_s,
            tokens_per_s=job.tokens / whole_s,
            spans=tuple(replace(span, tokens_per_s=span.share * job.tokens / whole_s) for span in self.spans),
            goodput=self.done_s / self.until_s,
            **{name: self.lost_s[state] for name, state in _LOST.items()},
            again_s=self.again_s,
            stopped=self.stopped,
            assumptions=(*topology.assumptions, *ASSUMED, *_spares(topology, job.ranks)),
        )
