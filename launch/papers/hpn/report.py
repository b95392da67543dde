"""The rows of the HPN paper: counted on built topologies, timed on them, or computed from printed values; and its figures.

Training steps on HPN and on DCN+ (9.1) are those of `emu estimate`. The paper prints TP=8 and PP=8 of GPT-3 175B, gradients of
2 bytes (table 3), and that Megatron reduces gradients by eight AllReduces of a host at once with TP=8 (9.2). Batches are those
of the models' own papers.
"""

from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Any

from emu.model.plan.plan import Plan
from emu.model.plan.plan_text import spell
from launch.papers.hpn.counts import WORDS
from launch.papers.hpn.times import CONNECTIONS, DCN_JOB, FLOWS, HPN_JOB, NVLINK, TIMES, dual_plane, gain_percent
from launch.papers.networks import build_once
from launch.papers.paper import Curve, Figure, Paper, from_nothing, register
from launch.papers.step_estimates import PaperSteps
from launch.papers.targets import Answer, Target

_DEVICE, _STACK = "h800", "software=megatron,gradient=bfloat16"
_ALGORITHMS = (f"all_reduce=ring@{CONNECTIONS}", "auto")
_SEQ = 2048


def _plan(dp: int, batch: int, pp: int = 1, microbatch: int = 4) -> Plan:
    """Return a plan with TP=8 and sequence parallelism."""
    return Plan(tp=8, sp=True, pp=pp, dp=dp, global_batch=batch, seq=_SEQ, microbatch=microbatch)


_LLAMA = "4 M tokens a step (Touvron et al., LLaMA)"
_GPT = "3.2 M tokens a step (Brown et al., GPT-3)"
_SMALL = (DCN_JOB, HPN_JOB)
_LARGE = (f"hpn:dcn-plus:dims=5x4x16x8,{NVLINK}", f"hpn:pod:dims=3x128x8,{NVLINK}")
# By row the model, the plan, the topologies DCN+ and HPN, and the source of the global batch.
_JOBS: Mapping[str, tuple[str, Plan, tuple[str, str], str]] = {
    "hpn-l7": ("llama2-7b", _plan(56, 36 * 56), _SMALL, _LLAMA),
    "hpn-l13": ("llama2-13b", _plan(56, 36 * 56), _SMALL, _LLAMA),
    "hpn-g175": ("korthikanti-175b", _plan(7, 224 * 7, 8), _SMALL, _GPT),
    "hpn-149": ("korthikanti-175b", _plan(37, 40 * 37, 8), _LARGE, f"the model of table 3; {_GPT}"),
}


def _step_gain(paper: Any, target: Target) -> Answer:
    """Answer what a step gains on HPN over DCN+."""
    model, plan, words, batch = _JOBS[target.id]
    times = {word: paper.steps.estimate(model, plan, word, partial(build_once, word)).step_time_s for word in words}
    told = f"{model} by {spell(plan)}, {plan.global_batch} sequences of {_SEQ} tokens: {batch}"
    how = f"--device {_DEVICE} --stack {_STACK} --algorithm {' --algorithm '.join(_ALGORITHMS)}"
    seconds = f"{times[words[0]]:.3f} s on DCN+, {times[words[1]]:.3f} s on HPN"
    where = f"the {plan.world // 8} hosts are taken segment by segment, in order"
    return Answer(gain_percent(words, times.__getitem__), (seconds, told, how, FLOWS, where))


def _dual_plane(paper: Any) -> Figure:
    """Return figure 19: what an all_reduce gains from two planes, by the number of GPUs."""
    gains = dual_plane()
    printed = [float(target.value) for target in paper.targets if target.id in ("hpn-dp-lo", "hpn-dp-hi")]
    return Figure(
        "HPN figure 19: what an all_reduce of 4 GiB gains from two planes, between two segments",
        "GPUs",
        "gain, %",
        (
            Curve("ours", range(len(gains)), [*gains.values()]),
            Curve("least and most as printed (appendix A)", (0, len(gains) - 1), printed, printed=True),
        ),
        words=[str(gpus) for gpus in gains],
    )


PAPER = register(
    Paper(
        Path(__file__).parent,
        title="Alibaba HPN",
        source="Qian et al., Alibaba HPN: A Data Center Network for Large Language Model Training (SIGCOMM 2024).",
        answers={**dict.fromkeys(_JOBS, _step_gain), **from_nothing(TIMES)},
        words=WORDS,
        figures={"19": _dual_plane},
        assumptions=lambda: (
            "counts are made on the built topologies `hpn`, `hpn:pod`, `hpn:segment`, `hpn:clos`, `hpn:rail-only` and "
            "`hpn:dcn-plus`",
            "other rows are computed from inputs that the paper prints, never from the value of the row",
        ),
        steps_of=partial(PaperSteps, device_name=_DEVICE, software=_STACK, algorithms=_ALGORITHMS),
    )
)
