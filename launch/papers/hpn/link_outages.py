"""Rows of the HPN paper about a NIC's link that is down for some time while LLaMa-7B trains (9.3), played by the clock.

With two ToRs a message takes the NIC's other link. With one ToR there is no other way, and NCCL's transport sends it again and
again: after each timeout, until it has done so as often as it may. Then it reports an error, which ends the rank.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache
from math import ceil

from emu.model.generate.generate import generate
from emu.model.model_file import find_model
from emu.model.stack.stack import parse_stack
from emu.study.live.faulty_job import FaultyJob
from emu.study.live.timed_faults import RecordedSteps, run_through_timed_faults
from emu.study.training.composed.software_costs import device_under
from emu.study.training.step.choices import choice_for
from emu.topology.fault_injection.fault import Fault, nic_of
from emu.topology.topology import Topology
from emu.trace.trace import Trace
from emu.units import TICKS_PER_S
from launch.data.devices import find_device
from launch.data.stacks import STACKS
from launch.papers.hpn.times import NVLINK
from launch.papers.hpn.training import ALGORITHMS, DEVICE, GPUS, HOSTS, LLAMA_7B, STACK, dual_tor, plan_of
from launch.papers.networks import build_once
from launch.papers.targets import Answer

# NCCL_IB_TIMEOUT=22 is what Alibaba Cloud sets on its hosts for training (PAI, "RDMA: High-performance networks for distributed
# training"); 4.096 us * 2**timeout is InfiniBand's. NCCL_IB_RETRY_CNT=7 is the default of NCCL 2.18 (src/transport/net_ib.cc).
TIMEOUT_S, RESENDS = 4.096e-6 * 2**22, 7
_NOTHING = 1e-9  # share of a link's bandwidth with which it carries nothing, while messages keep to it
_DTYPE = "bfloat16"
_FLAP_S, _MINUTE_S, _BEYOND_S = 1.0, 60.0, 121.0  # seconds down: how long a flap lasts is not printed
_HALT_S = 9.0  # that a flap halts a job with one ToR for at least (9.3)
_NEGLIGIBLE = 0.1  # of what the job with one ToR loses


def single_tor(hosts: int) -> str:
    """Return the name of hosts whose NICs have all their bandwidth on one link to one ToR."""
    return f"servers:nodes={hosts},gpus={GPUS},{NVLINK},nic=50GB/s,network=switch"


@cache
def _step(hosts: int) -> Trace:
    """Return a step of LLaMa-7B with one microbatch."""
    return generate(find_model(LLAMA_7B), plan_of(hosts, 4 * hosts), parse_stack(STACK, STACKS))


@dataclass(frozen=True, slots=True)
class Outage:
    """A step with a link of a NIC down from its middle on."""

    lost_s: float  # that the step takes more
    resends: int  # how often a message was sent again before it went through; 0: it had another way
    stopped: str | None  # why the job ended; None: it went on


@cache
def outage(word: str, hosts: int, down_s: float) -> Outage:
    """Return a step in which the first NIC's first link is down for some seconds, on a topology.

    The system is tried first: it leads messages over other links, if it has any. If it has none, NCCL sends again.
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
    """Return the step as it goes with faults."""
    stack, trace = parse_stack(STACK, STACKS), _step(hosts)
    choice = choice_for(trace, ALGORITHMS, topology, _DTYPE)
    ran = RecordedSteps(trace, choice, device_under(stack, find_device(DEVICE, _DTYPE)), _DTYPE, stack)
    return run_through_timed_faults(ran, topology, faults)


def _words(hosts: int) -> tuple[str, ...]:
    """Return the notes of both rows."""
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
