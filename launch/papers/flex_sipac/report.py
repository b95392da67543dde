"""The rows of the Flex-SiPAC paper, counted, proved and timed on topologies or from printed values; and its figures."""

from pathlib import Path
from typing import Any

from launch.papers.flex_sipac.counts import RADICES, WORDS, flex, tpuv4
from launch.papers.flex_sipac.times import ANSWERS
from launch.papers.flex_sipac.training import WORKLOAD_ROWS, by_size, by_skew
from launch.papers.networks import npus
from launch.papers.paper import Curve, Figure, Paper, from_nothing, register


def _sizes(_: Any) -> Figure:
    """Return figure 9: the size of each system by the radix of a switch."""
    radices = RADICES[2]
    curves = (
        Curve("SiP-OCS", radices, [npus(f"sip-ocs:n={radix}") for radix in radices]),
        Curve("TPUv4", radices, [tpuv4(radix) for radix in radices]),
        Curve("Flex-SiPAC, 2 levels", radices, [flex(radix, 2) for radix in radices]),
        Curve("Flex-SiPAC, 3 levels", RADICES[3], [flex(radix, 3) for radix in RADICES[3]]),
    )
    return Figure("Flex-SiPAC figure 9: size by the radix of a switch, as far as built", "radix", "CUs", curves, log="xy")


PAPER = register(
    Paper(
        Path(__file__).parent,
        title="Flex-SiPAC",
        source="Wu et al., Flexible silicon photonic architecture for accelerating distributed deep learning, J. Opt. Commun. "
        "Netw. 16 (2024).",
        example="--figure 9",
        figures={"7": by_size, "8": by_skew, "9": _sizes},
        answers=from_nothing({**ANSWERS, **WORKLOAD_ROWS}),
        words=WORDS,
        assumptions=lambda: (
            "counts are made on the built topologies `sipac`, `flex-sipac` and `tpuv4`; CUs that the light of a level joins "
            "share one WSS",
            "a wavelength has 32 Gb/s, and a CU has 60 wavelengths unless a row says otherwise (6.B)",
        ),
    )
)
