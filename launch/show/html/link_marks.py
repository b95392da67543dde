"""The marks on a drawing of busy links: cables, nodes and texts, in units of the drawing with y downwards."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from matplotlib.colors import to_rgb

from emu.arrays import F64, I64
from emu.topology.topology import Links
from launch.show.picture.cables import cables

NOTHING = "#c3ccd5"  # colour of a link that carries nothing
_RAMP = ("#fdd49e", "#fdbb84", "#fc8d59", "#ef6548", "#d7301f", "#990000", "#5f0000")  # ColorBrewer's OrRd, a darker end
_THINNEST, _WIDEST = 0.03, 0.11  # widths of a cable, in gaps between NPUs
_DARK = 0.55  # brightness below which white text can be read


@dataclass(frozen=True, slots=True)
class CableMark:
    """A cable of a drawing, or a bundle of cables, in the colour of its load."""

    path: str
    colour: str
    wide: float
    told: str


@dataclass(frozen=True, slots=True)
class TextLine:
    """A line of centred text."""

    x: float
    y: float
    size: float
    text: str


@dataclass(frozen=True, slots=True)
class NodeMark:
    """A node of a drawing, or a group of nodes, with its text."""

    x: float
    y: float
    wide: float
    high: float
    round: float
    colour: str
    ink: str
    told: str
    lines: tuple[TextLine, ...]


@dataclass(frozen=True, slots=True)
class LinkMap:
    """A drawing of busy links, as the template `links.html` draws it."""

    box: str
    wide: float
    high: float
    thin: float
    frames: tuple[str, ...]
    cables: tuple[CableMark, ...]
    nodes: tuple[NodeMark, ...]
    labels: tuple[TextLine, ...]
    most: str  # text at the end of the scale
    scale: str  # text after the scale
    ramp: str = ",".join((NOTHING, *_RAMP))


def heat(share: float, most: float) -> str:
    """Return the colour of a share on the scale from 0 to the largest share."""
    if share <= 0 or most <= 0:
        return NOTHING
    return _RAMP[min(int(share / most * len(_RAMP)), len(_RAMP) - 1)]


def ink_on(colour: str) -> str:
    """Return the colour of text that can be read on a colour: white or dark."""
    bright = float(np.dot(to_rgb(colour), (0.2126, 0.7152, 0.0722)))
    return "#ffffff" if bright < _DARK else "#22313f"


def percent(share: float) -> str:
    """Return a share in words, such as `12.3 %`."""
    return f"{100 * share:.3g} %"


def cables_of(
    links: Links, shares: F64, course: F64, names: Sequence[str], gap: float, bundled: I64 | None = None
) -> list[CableMark]:
    """Return a mark for each cable, in the colour of the busier of its directions.

    The busiest are last, so that no other is drawn over them.

    Args:
        links: K links that are drawn.
        shares: [K] the share of the step for which each link is busy.
        course: [cables, points, 2] the course of each cable, as `curves` returns it.
        names: The names of the nodes.
        gap: The gap between nodes, in units of the drawing.
        bundled: [K] the number of links in each bundle; None: a link is one link.
    """
    rows, most = cables(links)[0], float(shares.max(initial=0.0))
    both = _busier_direction(links, shares)
    found = []
    for place in np.argsort(both[rows], kind="stable").tolist():
        row = int(rows[place])
        share = float(both[row])
        ends = " and ".join(names[int(end[row])] for end in (links.src, links.dst))
        many = "" if bundled is None else f", {bundled[row]:,} links"
        wide = gap * (_THINNEST + (_WIDEST - _THINNEST) * (share / most if most else 0.0))
        found.append(CableMark(_path(course[place]), heat(share, most), round(wide, 4), f"{ends}{many}: busy {percent(share)}"))
    return found


def _busier_direction(links: Links, shares: F64) -> F64:
    """Return [K] the larger share of all links between the same two nodes, in either direction."""
    low, high = np.minimum(links.src, links.dst).astype(np.int64), np.maximum(links.src, links.dst).astype(np.int64)
    _, of = np.unique(np.stack((links.dimension, low, high)), axis=1, return_inverse=True)
    most = np.zeros(int(of.max(initial=-1)) + 1)
    np.maximum.at(most, of, shares)
    return np.asarray(most[of])


def _path(course: F64) -> str:
    """Return the course of a cable as an SVG path, of two points where it is straight."""
    straight = course[0] + np.linspace(0, 1, len(course))[:, None] * (course[-1] - course[0])
    kept = course[[0, -1]] if np.abs(course - straight).max() < 1e-3 else course[::2]
    return "M" + "L".join(f"{x:.2f} {-y:.2f}" for x, y in kept)


def points_of(corners: F64) -> str:
    """Return the corners of a polygon as SVG points."""
    return " ".join(f"{x:.2f},{-y:.2f}" for x, y in corners)
