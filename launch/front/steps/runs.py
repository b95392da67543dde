"""The question of `emu run`: what does a PyTorch script do on emulated NPUs, and how long does its step take?"""

import importlib
import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from emu.cluster.npu.npu import Npu
from emu.cluster.script_run import Script, run_loaded_script
from emu.cluster.script_source import read_source
from emu.errors import InputError, must_be
from emu.fabric.packet_fabric import PacketFabric, engine_choice
from emu.study.choice.chooser import choice_on
from emu.study.training.step.choices import check_words, with_choice, with_words
from emu.study.training.step.packet_step import by_packets, refuse_composed
from emu.study.training.step.step import Step, TimedTrace, time_trace
from emu.study.training.step_choice.algorithm_search import TimingEffort
from emu.study.training.timed_step import events_of, time_step
from emu.topology.fault_injection.fault_script import at_times, job_steps
from emu.topology.placement import place
from emu.trace.replay.replay import TraceLayout
from emu.trace.steps import count_steps, has_steps, with_steps
from emu.trace.timed_dtype import AS_RAN
from emu.units import is_whole
from launch.clusters import CLUSTERS, FAKE, ClusterOptions
from launch.front.argument_rules import excludes, needs
from launch.front.inputs import DeviceLike, Topologies, Words, check_float32, question
from launch.front.result import Result
from launch.front.steps import timed_steps
from launch.front.steps.replays import steps_of
from launch.front.steps.timed_steps import FaultyJobs, JobConditions, TimedSteps, TraceTarget, TraceTiming
from launch.show.blocks import Page

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

    def page(self) -> Page:
        """Return the report of all steps, with charts; a page with the reason where no step was timed."""
        return super().page() if self.rows else Result.page(self)

    def to_pandas(self) -> Any:
        """Return the steps as a DataFrame of pandas, as `TimedSteps.to_pandas`; an empty one where no step was timed."""
        return super().to_pandas() if self.rows else Result.to_pandas(self)

    def save_timeline(self, path: str | Path, *, every_rank: bool = False) -> None:
        """Write a timeline, as `TimedSteps.save_timeline`.

        Raises:
            InputError: no step was timed.
            WriteError: the file cannot be written.
        """
        if not self.rows:
            raise InputError(f"save_timeline: {self.title}")
        super().save_timeline(path, every_rank=every_rank)


@question
@needs(pace_compute="pace", pace_events="pace")
@excludes(patience="cluster=fake")
def run(
    script: str | Path,
    args: Sequence[str] = (),
    *,
    ranks: int,
    topology: Topologies,
    device: DeviceLike = "h100",
    dtype: str | None = None,
    algorithm: Words = (),
    stack: str = "",
    module: bool = False,
    no_cuda: bool = False,
    log_ranks: str | Sequence[int] | None = None,
    roles: str | Sequence[int] | None = None,
    fault: Words = (),
    trace: TraceTarget | None = None,
    cluster: str = "local",
    ray_address: str | None = None,
    ranks_per_actor: int | None = None,
    ray_options: str | Path | None = None,
    patience: float = 60.0,
    pace: float | None = None,
    pace_compute: str | None = None,
    pace_events: str | None = None,
    fabric: str = "fluid",
    network: str = "",
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
        no_cuda: Refuse a script that uses a CUDA device; False: a CUDA device is the rank's NPU.
        log_ranks: Show only the output of these ranks, such as `0,3`; None: all.
        roles: Ranks to trace with `cluster` fake, such as `0,1,1023`; None: 0, 1 and the last of each dim of the script's
            meshes, and all of pp.
        fault: Parts that fail while the job runs, such as `link 0-1 at step 2`, or files of such texts.
        trace: Save the trace of the run to this file, or call this function with it, before the step is timed.
        cluster: Where ranks run: as threads (local), in Ray actors (ray), or nowhere (fake; tensors have no data).
        ray_address: The address of a running Ray; None: start one on this machine.
        ranks_per_actor: The ranks of each Ray actor, as threads; None: 1.
        ray_options: A .toml file with Ray's own settings: strategy, resources, wait_s, runtime_env.
        patience: Seconds after which the run ends if a rank waits for something else than communication while all others wait.
        pace: Run virtual time by the clock of this host: a second of virtual time takes so many seconds.
        pace_compute: `on`: computation takes the device's time x `pace`; `off`: the time of this host; None: on.
        pace_events: `on`: elapsed_time of a script's torch.cuda.Event is virtual time; `off`: that of this host; None: on.
        fabric: The engine of the times: `fluid`, or packets, such as `packets:cell=8KiB`; the settings are cell, seed, events.
        network: The network of packets, such as `roce:route=in-turn`: roce, ultra-ethernet, infiniband, nvlink, ub or tcp, with
            settings; empty: that of the topology's file, else roce.

    Returns:
        The step on each topology; with `fault` the steps of the job, one after another.

    Raises:
        InputError: an argument is impossible, or the script cannot be read; the line says which, and how to mend it.
        RunError: a rank failed, or the calls of the ranks do not agree.
    """
    if ranks < 1:
        raise must_be("run", "--ranks", "1 or more", ranks)
    cluster_options = ClusterOptions(cluster, ray_address, ranks_per_actor, ray_options, (*CLUSTERS, FAKE), patience)
    timing = TraceTiming.of(topology, device, dtype, algorithm, stack)
    cluster_options.check_algorithms(timing.algorithms)
    job, fake = JobConditions.of(fault, pace, pace_compute, pace_events), cluster_options.cluster == FAKE
    engine = engine_choice(fabric, network)
    if job.faults:
        engine.check_whole("run")
    engine.check_clock("run", paced=job.factor is not None)
    engine.check_on(timing.machines)
    if fake:
        _check_fake(job)
    elif roles is not None:
        raise must_be("run", "--roles", "left out where all ranks run", roles, f"add --cluster {FAKE}")
    (built, npu_device), dtype = timing.build(dtype or AS_RAN), dtype or AS_RAN
    check_float32(npu_device, dtype)
    choices = [choice_on(each, timing.algorithms, dtype) for each in built]
    for each in built:
        place(each, ranks)
    npu = None if no_cuda else Npu(npu_device.name, npu_device.memory_bytes, npu_device.capability, npu_device.cores)
    logged_ranks = None if log_ranks is None else _ranks("--log-ranks", log_ranks, ranks)
    loaded = Script.of(read_source(script, module=module), args, ("launch",), npu, logged_ranks)
    ranks_of_roles = [] if roles is None else _ranks("--roles", roles, ranks)
    known, lost = job.known_faults(timing.machines, ranks, job_steps(job.faults))
    clock = job.pace(timing.machines[0], npu_device, dtype, timing.overheads, known)
    if fake:
        fake_run = importlib.import_module("emu.cluster.fake.fake_run")  # not above: it loads FSDP and dynamo
        recorded, code = fake_run.trace_loaded_script(loaded, ranks, ranks_of_roles, _log.info)
    else:
        with cluster_options.open_cluster(loaded.source.root, clock) as opened:
            recorded, code = run_loaded_script(replace(loaded, lost=lost), ranks, choices[0], opened)
    recorded = with_steps(recorded) if code == 0 else recorded
    recorded = recorded if fake or code else with_choice(recorded, choices[0])
    recorded = with_words(recorded, timing.algorithms, built, dtype)
    timed_steps.save_trace(TraceLayout(recorded, choices[0], built[0], npu_device, dtype), trace)
    if code or not has_steps(recorded):
        neither = "the script neither computed nor communicated, so there is nothing to time"
        notice = "as the script has failed, nothing is timed" if code else neither
        _log.info(notice)
        return ScriptRun((), notice, "", (), code)
    if job.faults and not at_times(job.faults):
        job.known_faults(timing.machines, ranks, count_steps(recorded))
        return timed_steps.paced_jobs(timing.time_with_faults(recorded, job.faults), clock)
    check_words(recorded, timing.given, built)
    layouts = (TraceLayout(recorded, choice, each, npu_device, dtype) for choice, each in zip(choices, built, strict=True))
    timed = (_timed(each, engine.packets, fake=fake) for each in layouts)
    steps = steps_of(f"Run of {loaded.source.name}", timed, "timing the step", len(built), timed_steps.pacing_of(clock))
    return ScriptRun(steps.rows, steps.title, steps.subtitle, steps.timed, 0)


def _timed(layout: TraceLayout, packets: PacketFabric | None, *, fake: bool) -> TimedTrace:
    """Return the timed trace of a run; only with fake ranks may its step be composed.

    Raises:
        InputError: Packets are given for a step that is composed, or `time_trace` or `by_packets` refuses the trace.
    """
    most = TimingEffort().most_events
    if packets is None:
        return time_step(layout, most) if fake else time_trace(layout)
    if not fake:
        return by_packets(time_trace(layout), packets)
    events = events_of(layout.trace)
    timed = time_step(layout, most) if events <= most else None
    if timed is None or timed.is_composed:
        refuse_composed("run", most, events, "take fewer ranks, or leave --fabric out")
    return by_packets(timed, packets)


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
    found = [int(word) if is_whole(word) else -1 for word in words]
    if not all(0 <= rank < ranks for rank in found):
        raise must_be("run", flag, f"ranks of 0..{ranks - 1} with commas between them", ",".join(words), "such as 0,3")
    return found
