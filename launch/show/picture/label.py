"""The room of a label in a picture, and the search for a place that no other label takes."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from emu.arrays import F64
from launch.show.canvas import text_width_pt

_LINE = 1.3  # height of a line of text, in the size of its letters


class Label(NamedTuple):
    """The rectangle of a label, in units of the drawing."""

    low: F64  # [2] lower left corner
    size: F64  # [2] width and height

    @property
    def middle(self) -> tuple[float, float]:
        """The middle of the rectangle."""
        x, y = (self.low + self.size / 2).tolist()
        return x, y

    def lies_on(self, other: "Label") -> bool:
        """Return whether two rectangles overlap."""
        return bool((self.low < other.low + other.size).all() and (other.low < self.low + self.size).all())


def label_around(middle: ArrayLike, size: F64) -> Label:
    """Return the label of this size around a point."""
    return Label(np.asarray(middle) - size / 2, size)


def size_of_words(lines: Sequence[str], size_pt: float, points: float) -> F64:
    """Return [2] width and height of lines of text, with a little room around them.

    Args:
        lines: The lines.
        size_pt: The size of the letters.
        points: Points in a unit of the drawing.
    """
    return np.array((1.05 * max(text_width_pt(line, size_pt) for line in lines), _LINE * size_pt * len(lines))) / points


def free_place(places: Iterable[Label], taken: Iterable[Label]) -> Label:
    """Return the first place that overlaps no label; the first of all where there is no such place."""
    found, others = list(places), list(taken)
    return next((place for place in found if not any(place.lies_on(other) for other in others)), found[0])
