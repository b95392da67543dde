"""The rows of the Flex-SiPAC paper: counted on what is built, proved and timed there, or summed up from what is printed."""

from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType

from launch.papers.flex_sipac.counts import COUNTED
from launch.papers.flex_sipac.figures import FIGURES
from launch.papers.flex_sipac.timed import TIMED
from launch.papers.paper import Paper as Printed
from launch.papers.paper import called
from launch.papers.targets import Target, read_targets

_TARGETS = Path(__file__).with_name("targets.csv")


@dataclass(eq=False)
class Paper(Printed):
    """A topology is built when the first row asks for it."""

    targets: list[Target] = field(default_factory=lambda: read_targets(_TARGETS))
    figures = FIGURES
    ways = MappingProxyType({name: called(way) for name, way in {**COUNTED, **TIMED}.items()})
    notes = (
        "counts are those of `sipac`, `flex-sipac` and `tpuv4` as they are built; a WSS is what the light of a level joins",
        "a wavelength has 32 Gb/s and a CU 60 of them unless told (6.B)",
    )
