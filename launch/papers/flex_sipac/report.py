"""The rows of the Flex-SiPAC paper: counted on built topologies, proved and timed on them, or computed from printed values."""

from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

from launch.papers.flex_sipac.counts import COUNTS
from launch.papers.flex_sipac.figures import FIGURES
from launch.papers.flex_sipac.times import TIMES
from launch.papers.paper import Paper, from_nothing
from launch.papers.targets import Target, read_targets

_TARGETS = Path(__file__).with_name("targets.csv")


@dataclass(eq=False)
class FlexSiPACPaper(Paper):
    """The Flex-SiPAC paper; a topology is built for the first row that needs it."""

    targets: list[Target] = field(default_factory=lambda: read_targets(_TARGETS))
    figures = FIGURES
    answers = MappingProxyType({name: from_nothing(way) for name, way in {**COUNTS, **TIMES}.items()})
    notes = (
        "counts are made on the built topologies `sipac`, `flex-sipac` and `tpuv4`; CUs that the light of a level joins share "
        "one WSS",
        "a wavelength has 32 Gb/s, and a CU has 60 wavelengths unless a row says otherwise (6.B)",
    )
