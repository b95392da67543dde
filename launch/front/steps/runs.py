"""The question of `emu run`: what does a PyTorch script do on emulated NPUs, and how long does its step take?"""

import importlib
import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from emu.cluster.npu.npu import Npu
from emu.cluster.pace.timeliness import Pace
from emu.cluster.script_run import Script, run_loaded_script
from emu.cluster.script_source import read_source
from emu.collective.algorithm import Choice
from emu.errors import must_be
from emu.study.choice.chooser import choice_on
from emu.study.training.step.choices import check_words, with_choice, with_words
from emu.study.training.step.step import Step, time_trace
from emu.study.training.timed_step import time_step
from emu.topology.fault_injection.fault_script import at_times, job_steps
from emu.topology.placement import place
from emu.topology.topology import Topology
from emu.trace.device.device import Device
from emu.trace.device.dtypes import AS_RAN
from emu.trace.replay.replay import TraceLayout
from emu.trace.steps import count_steps, has_steps, with_steps
from emu.trace.trace import Trace
from launch.clusters import CLUSTERS, FAKE, ClusterOptions
from launch.front.inputs import DeviceLike, Words, check_float32
from launch.front.question import question
from launch.front.steps.replays import steps_of
from launch.front.steps.timed_steps import FaultyJobs, TimedSteps
from launch.front.steps.trace_timing import JobConditions, KeepTrace, TraceTiming, keep_trace, paced_jobs, pacing_of

if TYPE_CHECKING:
    from launch.front.inputs import Topologies


_log = logging.getLogger("emu")


@dataclass(frozen=True, repr=False, eq=False)
class ScriptRun(TimedSteps[Step]):
    """The run of a script, with its step timed on each topology; a script that failed has no step."""

    code: int  # that the script exited with

    @property
    def exit_code(self) -> int:
        """The exit code of the script."""
        return self.code

    @property
    def has_report(self) -> bool:
        """True where the script has a step that was timed."""
        return bool(self.rows)

    def text(self) -> str:
        """Return the report of each step, or why there is none."""
        return super().text() if self.rows else self.title


@question
def run(
    script: str | Path,
    args: Sequence[str] = (),
    *,
    ranks: int,
    topology: "Topologies",
    device: DeviceLike = "h100",
    dtype: str | None = None,
    algorithm: Words = (),
    stack: str = "",
    module: bool = False,
    no_cuda: bool = False,
    log_ranks: str | Sequence[int] | None = None,
    roles: str | Sequence[int] | None = None,
    fault: Words = (),
    trace: KeepTrace | None = None,
    cluster: str = "local",
    ray_address: str | None = None,
    ranks_per_actor: int | None = None,
    ray_options: str | Path | None = None,
    patience: float = 60.0,
    pace: float | None = None,
    pace_compute: str | None = None,
    pace_events: str | None = None,
) -> ScriptRun | FaultyJobs:
    """Run an unmodified PyTorch script on emulated NPUs, and time its training step on a fabric.

    Args:
        script: The script; `-`: standard input; or the name of a module.
        args: The arguments of the script.
        ranks: The number of ranks (the WORLD_SIZE of the script).
        topology: The network: a name, a file, a `Topology` or a networkx graph; or several of them.
        device: The device: a name, a .toml file, or a `Device`.
        dtype: The data type as which float32 is timed; None: each tensor in its own.
        algorithm: Words that choose algorithms, such as `all_reduce=ring`; empty: `auto`.
        stack: The times that software adds to messages and requests, such as `launch=5us`.
        module: Whether `script` is the name of a module, as with `python -m`.
        no_cuda: Refuse a script that uses a CUDA device; otherwise it is the rank's NPU.
        log_ranks: Show only the output of these ranks; None: of all.
        roles: Ranks to trace with `cluster="fake"`; None: 0, 1 and the last of each dim of the script's meshes, and all of pp.
        fault: Parts that fail while the job runs, such as `link 0-1 at step 2`, or files of such texts.
        trace: Save the trace of the run to this file, or call this function with it, before the step is timed.
        cluster: Where ranks run: as threads (`local`), in Ray actors (`ray`), or nowhere (`fake`; tensors have no data).
        ray_address: The address of a running Ray; None: one is started on this machine.
        ranks_per_actor: The ranks of each Ray actor, as threads; None: 1.
        ray_options: A .toml file with Ray's own settings.
        patience: Seconds after which the run ends if a rank waits for something else than communication while all others wait.
        pace: Run virtual time by the clock of this host: a second of virtual time takes so many seconds.
        pace_compute: `on`: computation takes the device's time x `pace`; `off`: the time of this host; None: on.
        pace_events: `on`: elapsed_time of a script's torch.cuda.Event is virtual time; `off`: that of this host; None: on.

    Returns:
        The step on each topology; with `fault` the steps of the job, one after another.

    Raises:
        InputError: an argument is impossible, or the script cannot be read; the line says which, and how to mend it.
        RunError: a rank failed, or the calls of the ranks do not agree.
    """
    if ranks < 1:
        raise must_be("run", "--ranks", "1 or more", ranks)
    where = ClusterOptions(cluster, ray_address, ranks_per_actor, ray_options, (*CLUSTERS, FAKE), patience)
    timing, job = (
        TraceTiming.of(topology, device, dtype, algorithm, stack),
        JobConditions.of(fault, pace, pace_compute, pace_events),
    )
    if where.cluster == FAKE:
        _check_fake(job)
    elif roles is not None:
        raise must_be("run", "--roles", "left out where all ranks run", roles, f"add --cluster {FAKE}")
    built, found = timing.build(dtype or AS_RAN)
    check_float32(found, dtype or AS_RAN)
    choices = [choice_on(each, timing.algorithms, dtype or AS_RAN) for each in built]
    for each in built:
        place(each, ranks)
    npu = None if no_cuda else Npu(found.name, found.memory_bytes, found.capability, found.cores)
    heard = None if log_ranks is None else _ranks("--log-ranks", log_ranks, ranks)
    read = Script.of(read_source(script, module=module), args, ("launch",), npu, heard)
    named = [] if roles is None else _ranks("--roles", roles, ranks)
    asked = _ScriptRequest(read, ranks, named, timing, job, built, found, choices)
    return asked.run(where, trace)


@dataclass(frozen=True)
class _ScriptRequest:
    """A script that was read and checked, with all that its run and its timing need."""

    script: Script
    ranks: int
    roles: list[int]  # ranks that are traced where no rank runs; empty: as the script's meshes say
    timing: TraceTiming
    job: JobConditions
    built: list[Topology]
    device: Device
    choices: list[Choice]

    @property
    def dtype(self) -> str:
        """The data type as which float32 is timed."""
        return self.timing.dtype or AS_RAN

    def run(self, where: ClusterOptions, keep: KeepTrace | None) -> ScriptRun | FaultyJobs:
        """Run the script, keep its trace, and time its step."""
        job, timing = self.job, self.timing
        known, lost = job.known_faults(timing.machines, self.ranks, job_steps(job.faults))
        pace = job.pace(timing.machines[0], self.device, self.dtype, timing.calls, known)
        fake = where.cluster == FAKE
        if fake:
            fake_run = importlib.import_module("emu.cluster.fake.fake_run")  # not above: it loads FSDP and dynamo
            recorded, code = fake_run.trace_loaded_script(self.script, self.ranks, self.roles, _log.info)
        else:
            with where.open_cluster(self.script.source.root, pace) as cluster:
                script = replace(self.script, lost=lost)
                recorded, code = run_loaded_script(script, self.ranks, self.choices[0], cluster)
        if code == 0:
            recorded = with_steps(recorded)
        recorded = recorded if fake else with_choice(recorded, self.choices[0])
        recorded = with_words(recorded, timing.algorithms, self.built, self.dtype)
        keep_trace(recorded, keep)
        if code or not has_steps(recorded):
            neither = "the script neither computed nor communicated, so there is nothing to time"
            told = "as the script has failed, nothing is timed" if code else neither
            _log.info(told)
            return ScriptRun((), told, "", (), code)
        return self._timed(recorded, pace, fake=fake)

    def _timed(self, recorded: Trace, pace: Pace | None, *, fake: bool) -> ScriptRun | FaultyJobs:
        """Return the step of a recorded run on each topology; with faults, the steps of the job."""
        job, timing = self.job, self.timing
        if job.faults and not at_times(job.faults):
            job.known_faults(timing.machines, self.ranks, count_steps(recorded))
            return paced_jobs(timing.time_with_faults(recorded, job.faults), pace)
        check_words(recorded, timing.given, self.built)
        layouts = (
            TraceLayout(recorded, choice, each, self.device, self.dtype)
            for choice, each in zip(self.choices, self.built, strict=True)
        )
        timed = ((time_step if fake else time_trace)(each) for each in layouts)
        title = f"Run of {self.script.source.name}"
        steps = steps_of(title, timed, "timing the step", len(self.built), pacing_of(pace))
        return ScriptRun(steps.rows, steps.title, steps.subtitle, steps.timed, 0)


def _check_fake(job: JobConditions) -> None:
    """Refuse a pace and faults where no rank runs.

    Raises:
        InputError: one of them was given.
    """
    if job.factor is not None:
        raise must_be("run", "--cluster", "local or ray where --pace is given", FAKE, "no rank runs there")
    if job.faults:
        raise must_be("run", "--cluster", "local or ray where --fault is given", FAKE, "save a --trace, and replay that")


def _ranks(flag: str, given: str | Sequence[int], ranks: int) -> list[int]:
    """Return the ranks that an argument lists.

    Raises:
        InputError: a rank does not exist.
    """
    words = given.split(",") if isinstance(given, str) else [str(rank) for rank in given]
    found = [int(word) if word.isdecimal() else -1 for word in words]
    if not all(0 <= rank < ranks for rank in found):
        raise must_be("run", flag, f"ranks of 0..{ranks - 1} with commas between them", ",".join(words), "such as 0,3")
    return found
