"""The rows of the HPN paper: counted on what is built, timed on it, or summed up from what the paper prints."""

from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

from launch.papers.hpn.counts import COUNTED
from launch.papers.hpn.figures import FIGURES
from launch.papers.hpn.timed import TIMED
from launch.papers.hpn.trained import TRAINED, Steps
from launch.papers.paper import Paper as Printed
from launch.papers.paper import called
from launch.papers.targets import Target, read_targets

_TARGETS = Path(__file__).with_name("targets.csv")


@dataclass(eq=False)
class Paper(Printed):
    """A topology is built when the first row asks for it."""

    targets: list[Target] = field(default_factory=lambda: read_targets(_TARGETS))
    steps: Steps = field(default_factory=Steps)
    figures = FIGURES
    ways = MappingProxyType({**TRAINED, **{name: called(way) for name, way in {**COUNTED, **TIMED}.items()}})
    notes = (
        "counts are those of `hpn` and its variants `pod`, `segment`, `clos`, `rail-only` and `dcn-plus` as they are built",
        "other rows are worked out from what the paper prints, never from the value of a row",
    )
