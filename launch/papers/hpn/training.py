"""Rows of the HPN paper that are training steps: what they gain on HPN over DCN+ (9.1), and lose with a link of a NIC (9.3).

While a NIC's link is down, a message takes the other link where there are two ToRs. With one ToR there is no other way, and
NCCL's transport sends it again and again: after each timeout, until it has done so as often as it may. Then it reports an
error, which ends the rank.

The steps are those of `emu estimate`. The paper prints TP=8 and PP=8 of GPT-3 175B, gradients of 2 bytes (table 3), and that
Megatron reduces gradients by eight AllReduces of a host at once with TP=8 (9.2). Batches are those of the models' own papers.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from math import ceil
from typing import Any

from emu.model.generate.generate import generate
from emu.model.model import find_model
from emu.model.plan.plan import Plan
from emu.model.plan.plan_text import spell
from emu.model.stack.stack import parse_stack
from emu.study.live.faulty_job import FaultyJob, time_faulty_job
from emu.study.live.timed_faults import run_through_timed_faults
from emu.study.training.composed.software_costs import device_under
from emu.study.training.step.choices import choice_for
from emu.topology.fault_injection.fault import Fault, nic_of
from emu.topology.fault_injection.machine_state import MachineState
from emu.topology.topology import Topology
from emu.trace.replay.replay import TraceLayout
from emu.trace.trace import Trace
from emu.units import TICKS_PER_S
from launch.data.devices import find_device
from launch.data.presets import STACKS
from launch.papers.hpn.times import CONNECTIONS, DCN_JOB, FLOWS, HPN_JOB, NVLINK, gain_percent
from launch.papers.networks import build_once
from launch.papers.paper import AnswerFunction
from launch.papers.paper_steps import PaperSteps
from launch.papers.targets import Answer, Target

DEVICE, STACK = "h800", "software=megatron,gradient=bfloat16"
ALGORITHMS = (f"all_reduce=ring@{CONNECTIONS}", "auto")
_SEQ = 2048


def plan_of(dp: int, batch: int, pp: int = 1, microbatch: int = 4) -> Plan:
    """Return a plan with TP=8 and sequence parallelism."""
    return Plan(tp=8, sp=True, pp=pp, dp=dp, global_batch=batch, seq=_SEQ, microbatch=microbatch)


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
    """Return a job in words.

    Args:
        model: The model.
        plan: The plan.
        batch: The source of its batch, in words.
    """
    return f"{model} by {spell(plan)}, {plan.global_batch} sequences of {_SEQ} tokens: {batch}"


def _step_gain(paper: Any, target: Target) -> Answer:
    """Answer what a step gains on HPN over DCN+."""
    model, plan, words, batch = _JOBS[target.id]
    times = {word: paper.steps.estimate(model, plan, word, partial(build_once, word)).step_time_s for word in words}
    seconds = f"{times[words[0]]:.3f} s on DCN+, {times[words[1]]:.3f} s on HPN"
    where = f"the {plan.world // 8} hosts are taken segment by segment, in order"
    return Answer(gain_percent(words, times.__getitem__), (seconds, _plan_text(model, plan, batch), _HOW, FLOWS, where))


LLAMA_7B, HOSTS, GPUS = "llama2-7b", 32, 8  # the job of 9.3
_WITH_TP8 = plan_of(HOSTS, 64 * HOSTS)
_WITH_TP1 = replace(_WITH_TP8, tp=1, sp=False, dp=HOSTS * GPUS)
_FIRST, _LAST, _STEPS = 2, 3, 4  # the steps in which the link is down, and the steps of the job


def dual_tor(hosts: int) -> str:
    """Return the topology of a segment of HPN with a number of hosts, each of whose NICs has a link to either of two ToRs."""
    return f"hpn:segment:dims={hosts}x{GPUS},{NVLINK}"


def _with_link_down(steps: PaperSteps, plan: Plan) -> FaultyJob:
    """Return a job that loses one of the two links of a NIC for two steps."""
    word = dual_tor(HOSTS)

    def timed(found: MachineState) -> Sequence[float]:
        of = f"{word}, as {found.topology.name}"
        return (steps.estimate(LLAMA_7B, plan, of, lambda: found.topology).step_time_s,)

    faults = [Fault("link", nic_of(build_once(word), 0)[0], _FIRST, _LAST)]
    return time_faulty_job(build_once(word), faults, plan.world, _STEPS, timed, DEVICE)


def lost_percent(job: FaultyJob) -> float:
    """Return the throughput, in per cent, that a job loses while the link is down, once the system has reacted."""
    return 100 * (1 - job.steps[0].time_s / job.steps[_LAST - 1].time_s)


def _lost_throughput(paper: Any, _: object) -> Answer:
    """Answer how much of its throughput LLaMa-7B loses with one link of one NIC, in per cent."""
    job, other = (_with_link_down(paper.steps, plan) for plan in (_WITH_TP8, _WITH_TP1))
    words = (
        f"steps of {', '.join(f'{step.time_s:.3f}' for step in job.steps)} s; the link is down in the second and the third",
        f"{job.steps[_FIRST - 1].mending_s:g} s of the second until BGP has converged, which is assumed; afterwards as before",
        _plan_text(LLAMA_7B, _WITH_TP8, _LLAMA),
        f"not judged: with TP=1, which takes more memory than a GPU has, {lost_percent(other):.1f} %",
    )
    return Answer(lost_percent(job), (*words, _HOW, FLOWS))


STEPS: Mapping[str, AnswerFunction] = {**dict.fromkeys(_JOBS, _step_gain), "hpn-625": _lost_throughput}


# NCCL_IB_TIMEOUT=22 is what Alibaba Cloud sets on its hosts for training (PAI, "RDMA: High-performance networks for distributed
# training"); 4.096 us * 2**timeout is InfiniBand's. NCCL_IB_RETRY_CNT=7 is the default of NCCL 2.18 (src/transport/net_ib.cc).
TIMEOUT_S, RESENDS = 4.096e-6 * 2**22, 7
_NOTHING = 1e-9  # share of a link's bandwidth with which it carries nothing, while messages keep to it
_DTYPE = "bfloat16"
_FLAP_S, _MINUTE_S, _BEYOND_S = 1.0, 60.0, 121.0  # seconds down: how long a flap lasts is not printed
_HALT_S = 9.0  # that a flap halts a job with one ToR for at least (9.3)
_NEGLIGIBLE = 0.1  # of what the job with one ToR loses


def single_tor(hosts: int) -> str:
    """Return the topology of hosts whose NICs have all their bandwidth on one link to one ToR."""
    return f"servers:nodes={hosts},gpus={GPUS},{NVLINK},nic=50GB/s,network=switch"


@cache
def _step(hosts: int) -> Trace:
    """Return a step of LLaMa-7B with one microbatch."""
    return generate(find_model(LLAMA_7B), plan_of(hosts, 4 * hosts), parse_stack(STACK, STACKS))


@dataclass(frozen=True, slots=True)
class Outage:
    """The result of a step in whose middle a link of a NIC goes down."""

    lost_s: float  # that the step takes more
    resends: int  # how often a message was sent again before it went through; 0: it had another way
    stopped: str | None  # why the job ended; None: it went on


@cache
def outage(word: str, hosts: int, down_s: float) -> Outage:
    """Return the result of a step during which the first NIC's first link is down for some seconds.

    The system's own reaction is tried first, which sends messages over other links if there are any. If there are none, NCCL
    sends messages again.

    Args:
        word: The topology.
        hosts: The number of hosts.
        down_s: The seconds for which the link is down.
    """
    topology = build_once(word)
    middle_s = _played(topology, hosts).undisturbed_s / 2
    ends, first = nic_of(topology, 0)[0], round(middle_s * TICKS_PER_S)
    led = _played(topology, hosts, Fault("link", ends, first, first + round(down_s * TICKS_PER_S), timed=True))
    if led.stopped is None:
        return Outage(led.steps[0].time_s - led.undisturbed_s, 0, None)
    waits = ceil(down_s / TIMEOUT_S)
    if waits > RESENDS:
        end = round((middle_s + (RESENDS + 1) * TIMEOUT_S) * TICKS_PER_S)
        down = Fault("link", ends, first, None, _NOTHING, timed=True)
        ended = _played(topology, hosts, down, Fault("rank", (0,), end, timed=True))
        return Outage(float("inf"), RESENDS, ended.stopped)
    again = first + round(waits * TIMEOUT_S * TICKS_PER_S)
    waited = _played(topology, hosts, Fault("link", ends, first, again, _NOTHING, timed=True))
    return Outage(waited.steps[0].time_s - waited.undisturbed_s, waits, waited.stopped)


def _played(topology: Topology, hosts: int, *faults: Fault) -> FaultyJob:
    """Return a step of the job with given faults."""
    stack, trace = parse_stack(STACK, STACKS), _step(hosts)
    choice = choice_for(trace, ALGORITHMS, topology, _DTYPE)
    recorded = TraceLayout(trace, choice, topology, device_under(stack, find_device(DEVICE, _DTYPE)), _DTYPE)
    return run_through_timed_faults(recorded, stack, faults)


def _words(hosts: int) -> tuple[str, ...]:
    """Return the notes of the two rows about links that fail."""
    return (
        f"{LLAMA_7B} on {hosts * GPUS} GPUs with TP=8, a step of one microbatch; the link goes down in its middle",
        f"NCCL sends again every {TIMEOUT_S:.1f} s (NCCL_IB_TIMEOUT=22, which Alibaba Cloud sets), {RESENDS} times",
        f"not judged: by NCCL's own default of 18 it would give up after {(RESENDS + 1) * TIMEOUT_S / 16:.1f} s",
    )


def link_failure(hosts: int = HOSTS) -> Answer:
    """Answer whether a job with one ToR halts at once, goes on after a minute and not after two; two ToRs go on."""
    minute, beyond = (outage(single_tor(hosts), hosts, down_s) for down_s in (_MINUTE_S, _BEYOND_S))
    dual = outage(dual_tor(hosts), hosts, _BEYOND_S)
    halts = minute.lost_s >= _MINUTE_S and beyond.lost_s >= _BEYOND_S
    found = f"back after 60 s: lost {minute.lost_s:.1f} s; after 121 s: {'ended' if beyond.stopped else 'went on'}"
    words = (f"121 s: {beyond.stopped}", f"with two ToRs a step in which the link goes down takes {dual.lost_s:.1f} s more")
    holds = halts and minute.stopped is None and beyond.stopped is not None and dual.stopped is None
    return Answer(found, (*words, *_words(hosts)), holds=holds)


def link_flap(hosts: int = HOSTS) -> Answer:
    """Answer whether a flap halts a job with one ToR for more than nine seconds, and hardly one with two."""
    one, two = (outage(word(hosts), hosts, _FLAP_S) for word in (single_tor, dual_tor))
    words = (
        f"a flap of {_FLAP_S:g} s, as no length is printed; negligible is less than a tenth of what one ToR loses",
        "two ToRs: the link's messages wait until BGP has converged, for which 1 s is assumed, or the link is back",
    )
    holds = one.stopped is None and one.lost_s > _HALT_S and two.lost_s < _NEGLIGIBLE * one.lost_s
    return Answer(f"one ToR {one.lost_s:.1f} s, two {two.lost_s:.2f} s", (*words, *_words(hosts)), holds=holds)


OUTAGES: Mapping[str, Callable[[], Answer]] = {"hpn-s-fail": link_failure, "hpn-s-flap": link_flap}
