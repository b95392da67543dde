"""Pictures of the parts of the library: `emu.draw` of a topology or a schedule, and what a notebook shows of them."""

import base64
import html
from collections import Counter
from functools import singledispatch
from typing import TYPE_CHECKING

from emu.collective.schedule import Schedule
from emu.errors import InputError
from emu.topology.facts.facts import summary
from emu.topology.topology import Topology
from emu.trace.trace import Trace
from emu.units import format_size
from launch.front.result import late
from launch.show.text.table import table
from launch.show.text.topology_facts import topology_rows

if TYPE_CHECKING:  # it takes long to load
    from launch.show.canvas import ShownFigure


@singledispatch
def draw(value: object) -> "ShownFigure":
    """Return the picture of a topology or a schedule, a `Figure` of matplotlib; `.plot()` of an answer returns `Axes`.

    Raises:
        InputError: a value of this type has no picture.
    """
    mend = "draw a Topology or a Schedule, or use `.plot()` of an answer"
    raise InputError(f"draw: a {type(value).__name__} has no picture; {mend}")


@draw.register(Topology)
def _topology(value: Topology) -> "ShownFigure":
    drawn: ShownFigure = late("topology_picture:picture")(value, summary(value))
    return drawn


@draw.register(Schedule)
def _schedule(value: Schedule) -> "ShownFigure":
    title = f"{value.n_ranks} ranks: {value.n_rounds} rounds, {value.n_rows} slots sent"
    drawn: ShownFigure = late("chart.algorithm_chart:round_figure")(value, title)
    return drawn


@singledispatch
def view(value: object) -> str:
    """Return what a notebook shows of a value, as HTML."""
    return _picture(draw(value))


@view.register(Topology)
def _topology_view(value: Topology) -> str:
    rows = topology_rows(value, summary(value))
    cells = "".join(f"<tr><th>{html.escape(label)}</th><td>{html.escape(text)}</td></tr>" for label, text in rows)
    return f"{_picture(draw(value))}<table>{cells}</table>"


@view.register(Trace)
def _trace_view(value: Trace) -> str:
    roles = Counter(value.role_of_rank.tolist())
    peaks = value.peak_bytes.tolist()
    rows = [(str(i), str(roles[i]), str(len(of.step)), format_size(peaks[i])) for i, of in enumerate(value.events)]
    told = "\n".join(f"{key}: {text}" for key, text in value.meta)
    return f"<pre>{html.escape(told)}\n\n{html.escape(table(('role', 'ranks', 'events', 'memory'), rows))}</pre>"


def _picture(figure: "ShownFigure") -> str:
    """Return a figure as an image of HTML."""
    drawn: bytes = figure._repr_png_()
    return f'<img style="max-width:100%" src="data:image/png;base64,{base64.b64encode(drawn).decode()}">'
