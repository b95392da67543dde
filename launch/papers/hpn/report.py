"""The rows of the HPN paper: counted on built topologies, timed on them, or computed from printed values."""

from dataclasses import dataclass
from functools import cached_property
from types import MappingProxyType

from launch.papers.hpn.counts import COUNTS
from launch.papers.hpn.figures import FIGURES
from launch.papers.hpn.times import TIMES
from launch.papers.hpn.training import TRAINING, HpnSteps
from launch.papers.paper import Paper, from_nothing, register


@register
@dataclass(eq=False)
class HpnPaper(Paper):
    """The HPN paper; a topology is built for the first row that needs it."""

    title = "Alibaba HPN"
    source = "Qian et al., Alibaba HPN: A Data Center Network for Large Language Model Training (SIGCOMM 2024)."
    figures = FIGURES
    answers = MappingProxyType({**TRAINING, **{name: from_nothing(way) for name, way in {**COUNTS, **TIMES}.items()}})
    notes = (
        "counts are made on the built topologies `hpn`, `hpn:pod`, `hpn:segment`, `hpn:clos`, `hpn:rail-only` and "
        "`hpn:dcn-plus`",
        "other rows are computed from inputs that the paper prints, never from the value of the row",
    )

    @cached_property
    def steps(self) -> HpnSteps:
        """The estimates of the paper's steps."""
        return HpnSteps(self.cache)
