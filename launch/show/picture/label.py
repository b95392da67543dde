"""Room that words of a picture take, so that none are written over others."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from emu.arrays import F64
from launch.show.page import wide_pt

_LINE = 1.3  # of text, in its size


class Label(NamedTuple):
    """A rectangle, in units of a drawing."""

    low: F64  # [2] the lower left
    size: F64  # [2]

    @property
    def middle(self) -> tuple[float, float]:
        """Where its words are centred."""
        x, y = (self.low + self.size / 2).tolist()
        return x, y

    def lies_on(self, other: "Label") -> bool:
        """Whether they share room."""
        return bool((self.low < other.low + other.size).all() and (other.low < self.low + self.size).all())


def centred(middle: ArrayLike, size: F64) -> Label:
    """The label round a point."""
    return Label(np.asarray(middle) - size / 2, size)


def size_of_words(lines: Sequence[str], size_pt: float, points: float) -> F64:
    """[2] width and height of lines of text, with a little air, where `points` go into a unit."""
    return np.array((1.05 * max(wide_pt(line, size_pt) for line in lines), _LINE * size_pt * len(lines))) / points


def free(places: Iterable[Label], taken: Iterable[Label]) -> Label:
    """The first place that none of those taken lies on; the first of all where there is none."""
    found, others = list(places), list(taken)
    return next((place for place in found if not any(place.lies_on(other) for other in others)), found[0])
