"""An elastic job: after it loses an NPU or a rank, it resumes from its last checkpoint on a spare NPU or on fewer ranks.

Its checkpoints are in a folder, so that a later run can resume from there, too.
A leg is the work of a job from a checkpoint until it loses a rank, or until its end. A loss counts as its step begins.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from pathlib import Path

from emu.arrays import digest
from emu.collective.choice import Choice
from emu.errors import InputError, LostError, RunError, must_be
from emu.files import check_folder, make_folder
from emu.model.model import find_model
from emu.model.plan.plan import Plan
from emu.model.plan.plan_checks import check_fits_model
from emu.model.plan.plan_text import spell
from emu.model.stack.stack import Stack
from emu.study.choice.chooser import choice_on
from emu.study.live.faulty_job import (
    FaultyJob,
    LiveStep,
    Recovery,
    StepTimes,
    check_room_for_job,
    faults_at,
    job_ends,
    job_of_steps,
    times_of_trace,
)
from emu.study.training.composed.software_costs import costed_device
from emu.study.training.learn.checkpoints import CheckpointFolder, job_of, last
from emu.study.training.learn.learn import LearningResult, RunOn, learn, on_threads
from emu.study.training.learn.program import Program
from emu.study.training.train import TrainRequest, program_of
from emu.topology.fault_injection.fault import Fault
from emu.topology.fault_injection.fault_script import faults_of
from emu.topology.fault_injection.machine_state import RankLoss, events_of, machine_state, repair_action, states_of
from emu.topology.topology import Topology
from emu.trace.device.device import Device
from emu.trace.trace import Trace
from emu.units import seconds


@dataclass(frozen=True, slots=True)
class Leg:
    """A stretch of an elastic job on one plan: from a checkpoint until it loses a rank, or until the end of the job.

    `first` is the number of steps that were done before it; `since` is the step from which its faults hold.
    """

    plan: Plan
    first: int  # steps that were done before
    since: int  # the step as which began what was lost, whose faults hold; of the first leg the steps that were done before
    lost: RankLoss | None = None  # at its end; None: what no fault says, or it came to the end of the job
    why: str = ""  # it ended before that of the job


@dataclass(frozen=True, slots=True)
class ElasticJob:
    """The result of an elastic job that has finished: its legs in order, and the losses of all steps."""

    legs: tuple[Leg, ...]
    learned: LearningResult  # with the trace of the last leg
    final: Program


def run_elastic(
    program: Program, choice: Choice, run_on: RunOn, topology: Topology, faults: Sequence[Fault], *, goes_on: bool
) -> ElasticJob:
    """Run a job to its end, resuming after each loss of a rank, and return all its legs.

    Args:
        program: The whole job, with the folder of its checkpoints.
        choice: The algorithms of its requests in every leg, so that the same plan gives the same bits.
        run_on: The cluster on which ranks run.
        topology: The whole machine.
        faults: Faults that `check_faults` has accepted.
        goes_on: Whether the job goes on after it loses a rank.

    Raises:
        InputError: The checkpoint is cut off or of another plan, or the job is done already.
        LostError: A rank is lost, and the job does not go on.
        RunError: No plan with less dp fits what remains; or as `learn`.
    """
    program = _begun(program)
    legs, reference, since = list[Leg](), program.reference(), program.first
    if goes_on:  # what failed before the checkpoint may have left less room
        program = replace(program, plan=_plan_for_remaining(program, topology, faults, since))
    while True:
        ahead = job_ends(topology, faults, program.plan, program.steps, since)[:1]
        program = replace(program, lost=ahead)
        try:
            learned = learn(program, choice, run_on, reference)
        except LostError as error:
            if not goes_on and program.dies and ahead:  # a process that died says nothing
                raise LostError(f"{ahead[0]}; {error}") from None
            if not goes_on or (not ahead and legs and legs[-1].first == program.first):  # that would go on for ever
                raise
            loss, why = (ahead[0], ahead[0].why) if ahead else (None, str(error).partition(";")[0])
        else:
            return ElasticJob((*legs, Leg(program.plan, program.first, since)), learned, program)
        legs.append(Leg(program.plan, program.first, since, loss, why))
        since = loss.step if loss else since
        program = _resumed(replace(program, plan=_plan_for_remaining(program, topology, faults, since)))


def _begun(program: Program) -> Program:
    """Return the program from the last checkpoint on; refuse a job that is done already."""
    program = _resumed(program)
    if program.first >= program.steps and program.kept is not None:
        what = f"holds the end of this job, {program.first} of {program.steps} steps"
        raise InputError(f"--checkpoint: {program.kept.folder!r} {what}; take more --steps, or another folder")
    return program


def _resumed(program: Program) -> Program:
    """Return the program from the last checkpoint on, or from the beginning."""
    kept = program.kept
    assert kept is not None
    step, loss = last(Path(kept.folder), kept.job) or (0, ())
    return replace(program, first=step, kept=replace(kept, before=loss))


def _plan_for_remaining(program: Program, topology: Topology, faults: Sequence[Fault], step: int) -> Plan:
    """Return the plan on which a job continues: the one with the largest dp that fits what still works.

    Args:
        program: The job; dp is at most that of its plan.
        topology: The machine without faults.
        faults: All faults of the run.
        step: The step from which on the plan is used.

    Raises:
        RunError: Not even dp = 1 finds room.
    """
    now, plan, model = faults_at(faults, step), program.plan, find_model(program.model)
    told = ""
    for dp in range(plan.dp, 0, -1):
        try:
            smaller = replace(plan, dp=dp)
            check_fits_model(smaller, model)
            check_room_for_job(topology, now, smaller)
        except InputError as error:
            told = told or str(error)
            continue
        return smaller
    what = ", ".join(states_of(now))
    raise RunError(f"elastic: step {step}: {what}, and no dp of {spell(plan)} finds room on what remains: {told}")


def time_elastic(
    done: ElasticJob, topology: Topology, faults: Sequence[Fault], times: Mapping[Plan, StepTimes], device: str
) -> FaultyJob:
    """Return the timed steps of an elastic job, including the steps that were lost and repeated.

    Args:
        done: The job.
        topology: The whole machine.
        faults: The faults of the job.
        times: For each plan, a function that gives the times of its steps on a machine.
        device: The name of the device.
    """
    steps, recoveries = list[LiveStep](), list[Recovery]()

    @cache
    def timed(plan: Plan, now: tuple[Fault, ...]) -> tuple[str, float]:
        """Return the name of the machine around faults, and the seconds of a step; of several steps, the middle one."""
        found = machine_state(topology, now, plan.world)
        of_steps = sorted(times[plan](found))
        return found.topology.name, of_steps[(len(of_steps) - 1) // 2]

    _, whole = timed(done.legs[0].plan, ())
    for leg, following in zip(done.legs, (*done.legs[1:], None), strict=True):
        end = leg.lost.step - 1 if leg.lost else done.final.steps if following is None else following.first
        begun = len(steps)
        steps += _steps_of_leg(leg, end, topology, faults, timed)
        if following is not None:
            lost = steps[begun:][following.first - leg.first :]
            recoveries.append(_recovery(leg, following, lost, topology, faults))
    first, learned = done.legs[0], done.learned
    losses = {"loss": learned.loss, "reference_loss": learned.reference_loss}
    known = {"device": device, "ranks": first.plan.world, "recoveries": tuple(recoveries), **losses}
    return job_of_steps(topology, faults, steps, whole * (done.final.steps - first.first), ASSUMED, **known)


ASSUMED = (
    "a loss counts as its step begins; what was done since the last checkpoint is done again",
    "writing and reading checkpoints and starting ranks take no virtual time (`emu faults --checkpoint --restart` counts them)",
    "what serves the requests is chosen anew where a step is timed, and was chosen for the whole machine where it ran",
)


# The name of the machine around faults, and the seconds of a step of a plan there.
_TimedOn = Callable[[Plan, tuple[Fault, ...]], tuple[str, float]]


def _steps_of_leg(leg: Leg, end: int, topology: Topology, faults: Sequence[Fault], timed: _TimedOn) -> list[LiveStep]:
    """Return the timed steps of a leg up to step `end`."""
    found = list[LiveStep]()
    before = faults_at(faults, leg.since - 1 if leg.since > leg.first else leg.first)
    for step in range(leg.first + 1, end + 1):
        now = faults_at(faults, max(step, leg.since))
        if step > leg.since:  # a smaller world may not have the rank
            now = tuple(fault for fault in now if fault.part != "rank" or fault.at[0] < leg.plan.world)
        of_parts = tuple(fault for fault in now if fault.part != "rank")  # a killed rank changes no time
        (took_fs, told), (name, time_s) = repair_action(topology, before, now, leg.plan.world), timed(leg.plan, of_parts)
        mended_s = seconds(took_fs)
        found.append(LiveStep(step, time_s + mended_s, mended_s, events_of(before, now), told, name))
        before = now
    return found


def _recovery(leg: Leg, following: Leg, lost: Sequence[LiveStep], topology: Topology, faults: Sequence[Fault]) -> Recovery:
    """Return the recovery between two legs: what was lost, and what it took to continue."""
    at = leg.lost.step if leg.lost else following.first + 1
    now, before = faults_at(faults, at), faults_at(faults, at - 1)
    mended_s = seconds(repair_action(topology, before, now, following.plan.world)[0])
    again = sum(step.time_s - step.mending_s for step in lost)
    return Recovery(
        step=at,
        lost=leg.why,
        went_on_from=following.first,
        plan=spell(following.plan),
        ranks=following.plan.world,
        lost_steps=len(lost),
        recovery_s=mended_s + again,
    )


def traces_by_plan(done: ElasticJob, choice: Choice, run_on: RunOn = on_threads) -> dict[Plan, Trace]:
    """Return one trace for each plan of the job's legs; plans without a complete leg are run for two steps.

    Raises:
        RunError: As `learn`.
    """
    found = {done.final.plan: done.learned.trace}
    for leg in done.legs:
        if leg.plan not in found:
            short = replace(done.final, plan=leg.plan, kept=None, first=0, lost=(), steps=min(2, done.final.steps))
            found[leg.plan] = run_on(leg.plan.world, choice, short)[1]
    return found


@dataclass(frozen=True, slots=True)
class CheckpointPolicy:
    """The folder of a job's checkpoints, and the steps between them.

    Raises:
        InputError: The folder cannot be made or written, or there are no steps between checkpoints.
    """

    folder: Path
    every: int = 1  # steps
    goes_on: bool = False  # whether the job goes on after a loss
    dies: bool = False  # whether a lost rank takes its process with it

    def __post_init__(self) -> None:
        check_folder("--checkpoint", self.folder)
        if self.every < 1:
            raise must_be("--checkpoint-every", "steps", "1 or more", self.every)


def train_with_checkpoints(
    request: TrainRequest,
    keeping: CheckpointPolicy,
    topology: Topology,
    device: Device,
    faults: Sequence[str],
    stack: Stack,
    run_on: RunOn = on_threads,
) -> FaultyJob:
    """Train through faults, and return the figures of each step.

    Args:
        request: The training run.
        keeping: The folder of checkpoints, and how often they are saved.
        topology: The whole machine.
        device: The device that times computation.
        faults: Faults as `read_faults` returns them.
        stack: The software, with its time for messages and requests.
        run_on: The cluster on which the ranks really run.

    Raises:
        InputError: As `train`, `faults_of`, or `run_elastic`.
        RunError: As `run_elastic`.
    """
    known = faults_of(faults, topology, request.plan.world, request.steps)
    program, choice = program_of(request, [topology], device)
    model, rate = find_model(request.model), request.learning_rate
    job = job_of(model, request.plan, seed=request.seed, rate=rate, text=digest([request.text]))
    make_folder("--checkpoint", keeping.folder)
    kept = CheckpointFolder(str(keeping.folder.resolve()), keeping.every, job)
    program = replace(program, kept=kept, dies=keeping.dies)
    try:
        done = run_elastic(program, choice, run_on, topology, known, goes_on=keeping.goes_on)
    except RunError as error:  # it says the last step whose checkpoint exists
        found = last(Path(kept.folder), kept.job)
        if found is not None:
            error.args = (f"{error}; {found[0]} steps are kept, the last with loss {found[1][-1]:.6f}",)
        raise
    asked = costed_device(stack, device)
    chosen, traces = partial(choice_on, words=request.algorithms, dtype=request.dtype), traces_by_plan(done, choice, run_on)
    times = {plan: times_of_trace(trace, chosen, asked, request.dtype, stack) for plan, trace in traces.items()}
    return time_elastic(done, topology, known, times, device.name)
