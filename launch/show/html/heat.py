"""What a drawing of busy links is made of, in units of the drawing with y downwards."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.colors import to_rgb

from emu.arrays import F64, I64
from emu.topology.topology import Links
from launch.show.picture.cables import cables

NOTHING = "#c3ccd5"  # carried
_RAMP = ("#fdd49e", "#fdbb84", "#fc8d59", "#ef6548", "#d7301f", "#990000", "#5f0000")  # ColorBrewer's OrRd, a darker end
_THINNEST, _WIDEST = 0.03, 0.11  # of a cable, in gaps between NPUs
_DARK = 0.55  # as bright as white words can be read on


@dataclass(frozen=True, slots=True)
class Cable:
    """A cable, or a bundle of them."""

    path: str
    colour: str
    wide: float
    told: str


@dataclass(frozen=True, slots=True)
class Line:
    """Words, centred."""

    x: float
    y: float
    size: float
    text: str


@dataclass(frozen=True, slots=True)
class Node:
    """A node, or a group of them."""

    x: float
    y: float
    wide: float
    high: float
    round: float
    colour: str
    ink: str
    told: str
    lines: tuple[Line, ...]


@dataclass(frozen=True, slots=True)
class Map:
    """What the template draws."""

    box: str
    wide: float
    high: float
    thin: float
    frames: tuple[str, ...]
    cables: tuple[Cable, ...]
    nodes: tuple[Node, ...]
    labels: tuple[Line, ...]
    most: str  # at the end of the scale
    scale: str  # what it is of
    ramp: str = ",".join((NOTHING, *_RAMP))


def heat(share: float, most: float) -> str:
    """The colour of a share, where the largest of all is the end of the scale."""
    if share <= 0 or most <= 0:
        return NOTHING
    return _RAMP[min(int(share / most * len(_RAMP)), len(_RAMP) - 1)]


def ink_on(colour: str) -> str:
    """Of words on a colour."""
    bright = float(np.dot(to_rgb(colour), (0.2126, 0.7152, 0.0722)))
    return "#ffffff" if bright < _DARK else "#22313f"


def percent(share: float) -> str:
    """`12.3 %`."""
    return f"{100 * share:.3g} %"


def cables_of(
    links: Links, shares: F64, course: F64, names: Sequence[str], gap: float, bundled: I64 | None = None
) -> list[Cable]:
    """Each cable in the colour of the busier of its directions; the busiest last, so that no other lies on it.

    Args:
        links: K links that are drawn.
        shares: [K].
        course: As `curves`.
        names: Of the nodes.
        gap: Between nodes.
        bundled: [K] links that each stands for.
    """
    rows, most = cables(links)[0], float(shares.max(initial=0.0))
    both = _either_way(links, shares)
    found = []
    for place in np.argsort(both[rows], kind="stable").tolist():
        row = int(rows[place])
        share = float(both[row])
        ends = " and ".join(names[int(end[row])] for end in (links.src, links.dst))
        many = "" if bundled is None else f", {bundled[row]:,} links"
        wide = gap * (_THINNEST + (_WIDEST - _THINNEST) * (share / most if most else 0.0))
        found.append(Cable(_path(course[place]), heat(share, most), round(wide, 4), f"{ends}{many}: busy {percent(share)}"))
    return found


def _either_way(links: Links, shares: F64) -> F64:
    """[K] the larger of the shares of a link and of those that lead back."""
    low, high = np.minimum(links.src, links.dst).astype(np.int64), np.maximum(links.src, links.dst).astype(np.int64)
    _, of = np.unique(np.stack((links.dimension, low, high)), axis=1, return_inverse=True)
    most = np.zeros(int(of.max(initial=-1)) + 1)
    np.maximum.at(most, of, shares)
    return np.asarray(most[of])


def _path(course: F64) -> str:
    """A line, of two points where it is straight."""
    straight = course[0] + np.linspace(0, 1, len(course))[:, None] * (course[-1] - course[0])
    kept = course[[0, -1]] if np.abs(course - straight).max() < 1e-3 else course[::2]
    return "M" + "L".join(f"{x:.2f} {-y:.2f}" for x, y in kept)


def points_of(corners: F64) -> str:
    """A polygon."""
    return " ".join(f"{x:.2f},{-y:.2f}" for x, y in corners)
