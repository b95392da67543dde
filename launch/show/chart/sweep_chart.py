"""A chart of the step time at the values of a sweep, with a line for each topology and each combination of other sweeps."""

import re
from collections.abc import Sequence

from matplotlib import colormaps
from matplotlib.colors import to_hex
from matplotlib.figure import Figure

from emu.errors import InputError
from emu.units import parse_bandwidth, parse_size, parse_time
from launch.show.chart.line_chart import HorizontalAxis, Line, lines
from launch.show.text.sweep_table import SweepRow


def sweep_figure(rows: Sequence[SweepRow], title: str) -> Figure:
    """Return a chart of the step time against the values of the first sweep, without the points at which there is no step."""
    first = next(iter(rows[0].point))
    words = list(dict.fromkeys(row.point[first] for row in rows))
    places = _places(words)
    several = len({row.topology for row in rows if row.point == rows[0].point}) > 1
    found: dict[str, list[tuple[float, float]]] = {}
    for row in rows:
        if row.step is not None:
            others = [f"{name}={value}" for name, value in list(row.point.items())[1:]]
            name = ", ".join([*([_name(row, several=several)] if several or not others else []), *others])
            found.setdefault(name, []).append((places[row.point[first]], row.step.step_time_s))
    drawn = []
    for i, (name, at) in enumerate(found.items()):
        below, times_s = zip(*sorted(at), strict=True)
        drawn.append(Line(name, below, times_s, to_hex(colormaps["tab10"](i % 10))))
    return lines(drawn, title, below=HorizontalAxis(first, {place: word for word, place in places.items()}))


def _name(row: SweepRow, *, several: bool) -> str:
    """Return the name of a topology without the parameters that are swept."""
    swept_of = {name.removeprefix("topology.") for name in row.point if name.startswith("topology.")}
    return re.sub(rf"[,:]?({'|'.join(map(re.escape, swept_of))})=[^,:]*", "", row.topology) if swept_of else row.topology


def _places(words: Sequence[str]) -> dict[str, float]:
    """Return the place of each value on the lower axis.

    The place is the number in the value where each value has one above 0, else powers of two in the order of the values.
    """
    numbers = [_number(word) for word in words]
    if all(number is not None and number > 0 for number in numbers):
        return {word: number for word, number in zip(words, numbers, strict=True) if number is not None}
    return {word: 2.0**i for i, word in enumerate(words)}


def _number(word: str) -> float | None:
    """Return the value as a number: plain, a bandwidth, a time or a size; None where it is no number."""
    for read in (float, parse_bandwidth, parse_time, parse_size):
        try:
            return float(read(word))
        except (ValueError, InputError):
            continue
    return None
