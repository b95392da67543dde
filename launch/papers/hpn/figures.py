"""Figure 18 of the HPN paper, and its rows: LLaMa-7B over time while a link between a NIC and a ToR is down, or flaps (9.3).

With two ToRs messages take the other link once routes have converged. With one there is no other way, and NCCL's transport
sends a message again and again: after each timeout, until it has done so as often as it may. Then it reports an error, which
ends the rank. The account is that of `emu outage`, by the steps that the other rows of 9 have.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from emu.study.live.throughput import JobThroughput, Recourse, TimedJob, throughput_over_time
from emu.topology.fault_injection.fault import Fault, nic_of
from emu.topology.fault_injection.machine_state import MachineState
from emu.units import TICKS_PER_S
from launch.papers.hpn.times import NVLINK
from launch.papers.hpn.training import DEVICE, GPUS, HOSTS, LLAMA_7B, SEQ, WITH_TP8, dual_tor
from launch.papers.networks import build_once
from launch.papers.paper import AnswerFunction, Curve, Figure
from launch.papers.paper_steps import PaperSteps
from launch.papers.targets import Answer

# NCCL_IB_TIMEOUT=22 is what Alibaba Cloud sets on its hosts for training (PAI, "RDMA: High-performance networks for distributed
# training"); 4.096 us * 2**timeout is InfiniBand's. NCCL_IB_RETRY_CNT=7 is the default of NCCL 2.18 (src/transport/net_ib.cc).
TIMEOUT_S, RESENDS = 4.096e-6 * 2**22, 7
_FAILS_S, _UNTIL_S = 10.0, 200.0  # the link fails at 10 s (figure 18a)
_MINUTE_S, _BEYOND_S = 60.0, 121.0  # a repair within one minute, and after more than two
_FLAP_S = 1.0  # how long a flap lasts is not printed
_HALT_S = 9.0  # that a flap halts a job with one ToR for at least
_NEGLIGIBLE = 0.1  # of what the job with one ToR loses


def single_tor() -> str:
    """Return the topology of the job's hosts if each NIC has one link, with all its bandwidth, to one ToR."""
    return f"servers:nodes={HOSTS},gpus={GPUS},{NVLINK},nic=50GB/s,network=switch"


def down(steps: PaperSteps, word: str, down_s: float, switch: bool = False) -> JobThroughput:
    """Return a job over time on a topology, in which the first link of the first NIC is down from 10 s on.

    Args:
        steps: The estimates of the paper's steps.
        word: The topology.
        down_s: The seconds.
        switch: Whether the ToR at the end of the link is down, in place of the link.
    """
    topology = build_once(word)

    def timed(found: MachineState) -> Sequence[float]:
        on = f"{word}, as {found.topology.name} {found.topology.digest()}"
        return (steps.estimate(LLAMA_7B, WITH_TP8, on, lambda: found.topology).step_time_s,)

    ends = nic_of(topology, 0)[0]
    part, at = ("switch", ends[1:]) if switch else ("link", ends)
    first, last = (round(time_s * TICKS_PER_S) for time_s in (_FAILS_S, _FAILS_S + down_s))
    job = TimedJob(WITH_TP8.world, WITH_TP8.global_batch * SEQ, timed, DEVICE)
    recourse = Recourse(resend_s=TIMEOUT_S, resends=RESENDS)
    return throughput_over_time(topology, [Fault(part, at, first, last, timed=True)], _UNTIL_S, recourse, job)


def _row_notes() -> tuple[str, ...]:
    """Return the notes of all rows of figure 18."""
    return (
        f"{LLAMA_7B} on {HOSTS * GPUS} GPUs with TP=8: {_UNTIL_S:g} s of estimated steps, by `emu outage`",
        f"the link fails at {_FAILS_S:g} s",
        f"NCCL sends again every {TIMEOUT_S:.1f} s (NCCL_IB_TIMEOUT=22, which Alibaba Cloud sets), {RESENDS} times",
        f"not judged: by NCCL's own default of 18 it would give up after {(RESENDS + 1) * TIMEOUT_S / 16:.1f} s",
    )


def _goodput_text(*jobs: JobThroughput) -> str:
    """Return the goodputs of two jobs as text: one whose hosts have one ToR switch, one whose hosts have two."""
    one, two = (f"{job.goodput:.3f}" for job in jobs)
    return f"goodput of {_UNTIL_S:g} s: {one} with one ToR, {two} with two"


def _throughput_at(job: JobThroughput, time_s: float) -> float:
    """Return the share of the throughput that a job has just after a time."""
    return next(span.share for span in job.spans if span.begin_s <= time_s < span.end_s)


def link_failure(paper: Any, _: object) -> Answer:
    """Return how a link failure halts a job with one ToR, and whether it does so at once, and never ends a job with two ToRs.

    The job with one ToR must continue if the link is down for one minute, and end if it is down for two.
    """
    minute, beyond = (down(paper.steps, single_tor(), down_s) for down_s in (_MINUTE_S, _BEYOND_S))
    dual = down(paper.steps, dual_tor(HOSTS), _MINUTE_S)
    halts = all(_throughput_at(job, _FAILS_S) == 0 and job.waiting_s >= _MINUTE_S for job in (minute, beyond))
    found = f"back after 60 s: halts for {minute.waiting_s:.1f} s; after 121 s: {'ends' if beyond.stopped else 'goes on'}"
    words = (f"121 s: {beyond.stopped}", _goodput_text(minute, dual))
    holds = halts and minute.stopped is None and beyond.stopped is not None and dual.stopped is None
    return Answer(found, (*words, *_row_notes()), holds=holds)


def link_repair(paper: Any, _: object) -> Answer:
    """Return the throughput with two ToRs while the link is down and after; it must be less, and then whole at once."""
    job = down(paper.steps, dual_tor(HOSTS), _MINUTE_S)
    while_down, back = (_throughput_at(job, _FAILS_S + time_s) for time_s in (_MINUTE_S - 1, _MINUTE_S))
    tor = down(paper.steps, dual_tor(HOSTS), _MINUTE_S, switch=True)
    found = f"{100 * while_down:.1f} % while it is down, {100 * back:.1f} % from its repair on"
    other = f"not judged: with the whole ToR down, {100 * _throughput_at(tor, _FAILS_S + _MINUTE_S - 1):.1f} %"
    halted = f"it halts for {job.waiting_s:g} s until BGP has converged, which is assumed"
    return Answer(found, (halted, other, *_row_notes()), holds=0 < while_down < 1 and back == 1)


def link_flap(paper: Any, _: object) -> Answer:
    """Return the seconds that a flap costs with one ToR and with two; with one it must halt the job for over nine seconds."""
    one, two = (down(paper.steps, word, _FLAP_S) for word in (single_tor(), dual_tor(HOSTS)))
    lost_s = [_UNTIL_S * (1 - job.goodput) for job in (one, two)]
    words = (
        f"a flap of {_FLAP_S:g} s, as no length is printed; negligible is less than a tenth of what one ToR loses",
        "two ToRs: the link's messages wait until BGP has converged, for which 1 s is assumed, or the link is back",
    )
    holds = one.stopped is None and one.waiting_s > _HALT_S and lost_s[1] < _NEGLIGIBLE * lost_s[0]
    return Answer(
        f"one ToR {lost_s[0]:.1f} s, two {lost_s[1]:.2f} s", (*words, _goodput_text(one, two), *_row_notes()), holds=holds
    )


def over_time(paper: Any) -> Sequence[Figure]:
    """Return figure 18: throughput over time while a link is down, and while it flaps."""
    both = {"one ToR": single_tor(), "two ToRs": dual_tor(HOSTS)}
    downs = [(word, _MINUTE_S, f"{name}, back after 60 s") for name, word in both.items()]
    downs.append((single_tor(), _BEYOND_S, "one ToR, back after 121 s"))
    flaps = [(word, _FLAP_S, f"{name}, a flap of 1 s") for name, word in both.items()]
    titles = ("HPN figure 18a: a link fails at 10 s", "HPN figure 18b: a link flaps at 10 s")
    return [
        Figure(title, "s", "throughput, % of that without faults", [_curve(paper.steps, *line) for line in lines], low=0.0)
        for title, lines in zip(titles, (downs, flaps), strict=True)
    ]


def _curve(steps: PaperSteps, word: str, down_s: float, name: str) -> Curve:
    """Return a line of figure 18, with steps at the ends of spans."""
    spans = down(steps, word, down_s).spans
    return Curve(
        name, [end for span in spans for end in (span.begin_s, span.end_s)], [100 * s.share for s in spans for _ in "be"]
    )


OUTAGES: Mapping[str, AnswerFunction] = {"hpn-s-fail": link_failure, "hpn-s-back": link_repair, "hpn-s-flap": link_flap}
