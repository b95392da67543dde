"""The figures of the HPN paper."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

from launch.papers.figure import Curve, Figure
from launch.papers.hpn.times import dual_plane


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


FIGURES: Mapping[str, Callable[[Any], Figure]] = MappingProxyType({"19": _dual_plane})
