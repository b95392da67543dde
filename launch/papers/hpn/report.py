"""The rows of the HPN paper: counted on built topologies, timed on them, or computed from printed values; and its figures."""

from functools import partial
from pathlib import Path
from typing import Any

from launch.papers.hpn.counts import WORDS
from launch.papers.hpn.figures import OUTAGES, over_time
from launch.papers.hpn.times import TIMES, dual_plane
from launch.papers.hpn.traffic import QUEUES
from launch.papers.hpn.training import ALGORITHMS, DEVICE, STACK, STEPS
from launch.papers.paper import Curve, Figure, FittedInput, Paper, from_nothing, register
from launch.papers.paper_steps import PaperSteps


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


_PAIRS = FittedInput("4 connections a pair of NICs, which gives the 3:1 of 6.1", rows=("hpn-3x",))
_BY_PAIRS = (
    "hpn-3x",
    "hpn-716",
    "hpn-347",
    "hpn-mar",
    "hpn-ag",
    "hpn-ar",
    "hpn-dp-",
    "hpn-625",
    *QUEUES,
    *STEPS,
)  # rows timed by it
PAPER = register(
    Paper(
        Path(__file__).parent,
        title="Alibaba HPN",
        source="Qian et al., Alibaba HPN: A Data Center Network for Large Language Model Training (SIGCOMM 2024).",
        answers={**STEPS, **OUTAGES, **from_nothing({**TIMES, **QUEUES})},
        fitted=dict.fromkeys(_BY_PAIRS, _PAIRS),
        words=WORDS,
        figures={"18": over_time, "19": _dual_plane},
        assumptions=lambda: (
            "counts are made on the built topologies `hpn`, `hpn:pod`, `hpn:segment`, `hpn:clos`, `hpn:rail-only` and "
            "`hpn:dcn-plus`",
            "other rows are computed from inputs that the paper prints, never from the value of the row",
        ),
        steps_of=partial(PaperSteps, device_name=DEVICE, software=STACK, algorithms=ALGORITHMS),
    )
)
