"""The rows of the HPN paper: counted on built topologies, timed on them, or computed from printed values."""

from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

from launch.papers.hpn.counts import COUNTS
from launch.papers.hpn.figures import FIGURES
from launch.papers.hpn.times import TIMES
from launch.papers.hpn.training import TRAINING, HpnSteps
from launch.papers.paper import Paper, from_nothing
from launch.papers.targets import Target, read_targets

_TARGETS = Path(__file__).with_name("targets.csv")


@dataclass(eq=False)
class HpnPaper(Paper):
    """The HPN paper; a topology is built for the first row that needs it."""

    targets: list[Target] = field(default_factory=lambda: read_targets(_TARGETS))
    steps: HpnSteps = field(default_factory=HpnSteps)
    figures = FIGURES
    answers = MappingProxyType({**TRAINING, **{name: from_nothing(way) for name, way in {**COUNTS, **TIMES}.items()}})
    notes = (
        "counts are made on the built topologies `hpn`, `hpn:pod`, `hpn:segment`, `hpn:clos`, `hpn:rail-only` and "
        "`hpn:dcn-plus`",
        "other rows are computed from inputs that the paper prints, never from the value of the row",
    )
