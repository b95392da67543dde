"""Rows of the HPN paper that are training steps: what they gain on HPN over DCN+ (9.1), and lose with a link of a NIC (9.3).

The steps are those of `emu estimate`. The paper prints TP=8 and PP=8 of GPT-3 175B, gradients of 2 bytes (table 3), and that
Megatron reduces gradients by eight AllReduces of a host at once with TP=8 (9.2). Batches are those of the models' own papers.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from emu.model.plan.plan import Plan
from emu.model.plan.plan_text import spell
from emu.study.live.faulty_job import FaultyJob, time_faulty_job
from emu.topology.fault_injection.fault import Fault, nic_of
from emu.topology.fault_injection.machine_state import MachineState
from launch.papers.hpn.times import CONNECTIONS, DCN_JOB, FLOWS, HPN_JOB, NVLINK, gain_percent
from launch.papers.networks import build_once
from launch.papers.paper import AnswerFunction
from launch.papers.paper_steps import PaperSteps
from launch.papers.targets import Answer, Target

DEVICE, STACK = "h800", "software=megatron,gradient=bfloat16"
ALGORITHMS = (f"all_reduce=ring@{CONNECTIONS}", "auto")
SEQ = 2048


def plan_of(dp: int, batch: int, pp: int = 1, microbatch: int = 4) -> Plan:
    """Return a plan with TP=8 and sequence parallelism."""
    return Plan(tp=8, sp=True, pp=pp, dp=dp, global_batch=batch, seq=SEQ, microbatch=microbatch)


_LLAMA = "4 M tokens a step (Touvron et al., LLaMA)"
_GPT = "3.2 M tokens a step (Brown et al., GPT-3)"
_SMALL = (DCN_JOB, HPN_JOB)
_LARGE = (f"hpn:dcn-plus:dims=5x4x16x8,{NVLINK}", f"hpn:pod:dims=3x128x8,{NVLINK}")
# By row the model, the plan, the topologies DCN+ and HPN, and the source of the global batch.
_JOBS: Mapping[str, tuple[str, Plan, tuple[str, str], str]] = {
    "hpn-l7": ("llama2-7b", plan_of(56, 36 * 56), _SMALL, _LLAMA),
    "hpn-l13": ("llama2-13b", plan_of(56, 36 * 56), _SMALL, _LLAMA),
    "hpn-g175": ("korthikanti-175b", plan_of(7, 224 * 7, 8), _SMALL, _GPT),
    "hpn-149": ("korthikanti-175b", plan_of(37, 40 * 37, 8), _LARGE, f"the model of table 3; {_GPT}"),
}
_HOW = f"--device {DEVICE} --stack {STACK} --algorithm {' --algorithm '.join(ALGORITHMS)}"


def _plan_text(model: str, plan: Plan, batch: str) -> str:
    """Return a text on a training job: its model, its plan, its global batch, and where the size of the batch comes from.

    Args:
        model: The model.
        plan: The plan.
        batch: The source of the size of the batch, in words.
    """
    return f"{model} by {spell(plan)}, {plan.global_batch} sequences of {SEQ} tokens: {batch}"


def _step_gain(paper: Any, target: Target) -> Answer:
    """Return by how many per cent a training step is faster on HPN than on DCN+."""
    model, plan, words, batch = _JOBS[target.id]
    times = {word: paper.steps.estimate(model, plan, word, partial(build_once, word)).step_time_s for word in words}
    seconds = f"{times[words[0]]:.3f} s on DCN+, {times[words[1]]:.3f} s on HPN"
    where = f"the {plan.world // 8} hosts are taken segment by segment, in order"
    return Answer(gain_percent(words, times.__getitem__), (seconds, _plan_text(model, plan, batch), _HOW, FLOWS, where))


LLAMA_7B, HOSTS, GPUS = "llama2-7b", 32, 8  # the job of 9.3
WITH_TP8 = plan_of(HOSTS, 64 * HOSTS)
_WITH_TP1 = replace(WITH_TP8, tp=1, sp=False, dp=HOSTS * GPUS)
_FIRST, _LAST, _STEPS = 2, 3, 4  # the steps in which the link is down, and the steps of the job


def dual_tor(hosts: int) -> str:
    """Return the topology of a segment of HPN with a number of hosts, each of whose NICs has a link to either of two ToRs."""
    return f"hpn:segment:dims={hosts}x{GPUS},{NVLINK}"


def _with_link_down(steps: PaperSteps, plan: Plan) -> FaultyJob:
    """Return a simulated job that loses one of the two links of a NIC for two steps."""
    word = dual_tor(HOSTS)

    def timed(found: MachineState) -> Sequence[float]:
        of = f"{word}, as {found.topology.name}"
        return (steps.estimate(LLAMA_7B, plan, of, lambda: found.topology).step_time_s,)

    faults = [Fault("link", nic_of(build_once(word), 0)[0], _FIRST, _LAST)]
    return time_faulty_job(build_once(word), faults, plan.world, _STEPS, timed, DEVICE)


def lost_percent(job: FaultyJob) -> float:
    """Return the throughput in per cent that a job loses while the link is down, after the system's reaction."""
    return 100 * (1 - job.steps[0].time_s / job.steps[_LAST - 1].time_s)


def _lost_throughput(paper: Any, _: object) -> Answer:
    """Return how much of its throughput LLaMa-7B loses with one link of one NIC, in per cent."""
    job, other = (_with_link_down(paper.steps, plan) for plan in (WITH_TP8, _WITH_TP1))
    words = (
        f"steps of {', '.join(f'{step.time_s:.3f}' for step in job.steps)} s; the link is down in the second and the third",
        f"{job.steps[_FIRST - 1].mending_s:g} s of the second until BGP has converged, which is assumed; afterwards as before",
        _plan_text(LLAMA_7B, WITH_TP8, _LLAMA),
        f"not judged: with TP=1, which takes more memory than a GPU has, {lost_percent(other):.1f} %",
    )
    return Answer(lost_percent(job), (*words, _HOW, FLOWS))


STEPS: Mapping[str, AnswerFunction] = {**dict.fromkeys(_JOBS, _step_gain), "hpn-625": _lost_throughput}
