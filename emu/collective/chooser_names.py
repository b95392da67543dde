"""Words that stand in place of an algorithm's name where a choice is made by Emu, and what each of them needs."""

from collections.abc import Mapping
from typing import NamedTuple

AUTO = "auto"  # stands for the algorithm that the chooser picks
SYNTHESIZED = "synthesized"  # stands for the schedule that a synthesis makes, in place of an algorithm's name
AUTO_SYNTHESIZED = f"{AUTO}+{SYNTHESIZED}"  # stands for the faster one of both


class ChooserNeeds(NamedTuple):
    """The work that a word in place of an algorithm's name asks for."""

    times: bool  # whether algorithms of the catalogue are timed
    makes: bool  # whether a schedule is synthesised, which only the process that makes it knows


NAMED = ChooserNeeds(times=False, makes=False)  # of the name of an algorithm, or of a library
OWN_CHOOSERS: Mapping[str, ChooserNeeds] = {
    AUTO: ChooserNeeds(times=True, makes=False),
    SYNTHESIZED: ChooserNeeds(times=False, makes=True),
    AUTO_SYNTHESIZED: ChooserNeeds(times=True, makes=True),
}


def chooser_needs(word: str) -> ChooserNeeds:
    """Return what a word needs that may stand in place of an algorithm's name."""
    return OWN_CHOOSERS.get(word, NAMED)
