"""The rows of the Flex-SiPAC paper: counted on built topologies, proved and timed on them, or computed from printed values."""

from dataclasses import dataclass
from types import MappingProxyType

from launch.papers.flex_sipac.counts import COUNTS
from launch.papers.flex_sipac.figures import FIGURES
from launch.papers.flex_sipac.times import TIMES
from launch.papers.paper import Paper, from_nothing, register


@register
@dataclass(eq=False)
class FlexSiPACPaper(Paper):
    """The Flex-SiPAC paper; a topology is built for the first row that needs it."""

    title = "Flex-SiPAC"
    source = (
        "Wu et al., Flexible silicon photonic architecture for accelerating distributed deep learning, J. Opt. Commun. "
        "Netw. 16 (2024)."
    )
    example = "--figure 9"
    figures = FIGURES
    answers = MappingProxyType({name: from_nothing(way) for name, way in {**COUNTS, **TIMES}.items()})
    notes = (
        "counts are made on the built topologies `sipac`, `flex-sipac` and `tpuv4`; CUs that the light of a level joins share "
        "one WSS",
        "a wavelength has 32 Gb/s, and a CU has 60 wavelengths unless a row says otherwise (6.B)",
    )
