"""A process group as one file names it: its ranks, and a label that tells groups of equal ranks apart."""

from typing import NamedTuple


class RankGroup(NamedTuple):
    """A group of a rank; two of the ranks of a file are one group if both fields are equal."""

    ranks: tuple[int, ...]
    label: str  # what its file calls it; each format makes an axis of it
