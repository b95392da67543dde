"""Questions of `emu show`: what are a topology and a collective like?

`emu.draw` makes a picture of a topology or a schedule; a notebook shows topologies, schedules and traces by functions here.
"""

import base64
import html
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from emu.collective.algorithm import algorithm as find_algorithm
from emu.collective.msccl.xml_format import to_xml
from emu.collective.operation import Operation
from emu.collective.operation import operation as find_operation
from emu.collective.schedule import Schedule
from emu.collective.shape import Grid, check_grid, ranks_of, show_shape
from emu.errors import mendable, must_be
from emu.files import write_file
from emu.topology.facts.facts import Summary, summary
from emu.topology.topology import Topology
from emu.trace.trace import Trace
from emu.units import format_size
from launch.front.inputs import TopologyLike, build_topology, grid_of, question
from launch.front.result import Result, lazy
from launch.show.text.collective_table import MOST_RANKS, round_lines
from launch.show.text.table import table
from launch.show.text.topology_facts import find_node, link_classes, routes_as_json, routes_table, topology_rows

if TYPE_CHECKING:  # it takes long to load
    from launch.show.canvas import ShownFigure

_SHOWN_RANKS = 8
_COLUMNS = ("round", "src", "dst", "slot", "written_slot", "reduce", "channel")
_TIER = ("dimension", "name", "links", "bandwidth_Bps", "latency_s")


@dataclass(frozen=True, repr=False, eq=False)
class TopologyFacts(Result[Summary], drawn_by="topology_picture:picture"):
    """The counts, degree, diameter, bisection, bill and assumptions of a topology.

    The picture is a drawing; a topology of more than 400 nodes is drawn as groups of nodes.
    """

    topology: Topology
    name: str  # as it was given

    def text(self) -> str:
        """Return a line of text for each number of the topology, such as its diameter."""
        return "\n".join(f"{label:<14}{value}" for label, value in topology_rows(self.topology, self.rows[0]))

    def as_json(self) -> object:
        """Return the figures, the tiers of links, the bill, the network of packets and the assumptions."""
        built = self.topology
        tiers = [{key: getattr(each, key) for key in _TIER} for each in link_classes(built)]
        more = {"tiers": tiers, "bill": built.bill, "network": built.network, "assumptions": built.assumptions}
        return {"name": self.name, **asdict(self.rows[0]), **more}

    def _shown(self) -> tuple[Any, ...]:
        return self.topology, self.rows[0]


@dataclass(frozen=True, repr=False, eq=False)
class RouteFacts(Result[Mapping[str, Any]]):
    """The routes between two nodes of a topology."""

    topology: Topology
    ends: tuple[int, int]  # the nodes

    def text(self) -> str:
        """Return a line for each route."""
        return routes_table(self.topology, *self.ends)

    def as_json(self) -> object:
        """Return the routes."""
        return self.rows[0]


@question
def show_topology(name: TopologyLike, *, route: Sequence[int | str] | None = None) -> TopologyFacts | RouteFacts:
    """Return the figures of a topology, or the routes between two of its nodes.

    Args:
        name: The topology: a name, a file, a `Topology` or a networkx graph.
        route: Two nodes, each by its number or name; None: the figures.

    Raises:
        InputError: the topology or a node is unknown, or there are not two nodes.
    """
    built = build_topology(name)
    if route is None:
        return TopologyFacts((summary(built),), built, name if isinstance(name, str) else built.name)
    if len(route) != 2:
        raise must_be("show topology", "--route", "two nodes", ", ".join(map(str, route)) or "none")
    first, second = (find_node(built, str(word)) for word in route)
    return RouteFacts((routes_as_json(built, first, second),), built, (first, second))


@dataclass(frozen=True, repr=False, eq=False)
class ScheduleRounds(Result[Schedule], drawn_by="chart.algorithm_chart:round_figure", files=(".xml",)):
    """A schedule: what each rank sends in each round.

    The picture has the rounds as arrows; with many ranks or rounds, the slots that each sends to each.
    """

    operation: Operation
    algorithm: str
    title: str

    def text(self) -> str:
        """Return the messages of each round as text if there are few ranks; `0>1 +3`: rank 0 sends slot 3, rank 1 adds it."""
        few = self.rows[0].n_ranks <= MOST_RANKS
        return "\n".join([self.title, *(round_lines(self.rows[0]) if few else ())])

    def records(self) -> Sequence[object]:
        """Return the rows of the schedule; each row is a slot that one rank sends to another."""
        of = self.rows[0]
        columns = (of.round_column(), of.src, of.dst, of.slot, of.written_slot, of.reduce, of.channel)
        return [dict(zip(_COLUMNS, row, strict=True)) for row in zip(*(c.tolist() for c in columns), strict=True)]

    def as_json(self) -> object:
        """Return the rows of the schedule."""
        return self.records()

    def _shown(self) -> tuple[Any, ...]:
        return self.rows[0], self.title

    def save_xml(self, path: Path) -> None:
        """Write the schedule as MSCCL XML, to run it on GPUs."""
        write_file("--xml", path, to_xml(self.rows[0], self.operation, self.algorithm).encode())


@question
def show_collective(
    operation: str, algorithm: str, *, ranks: int | None = None, dims: str | Grid = "", root: int = 0
) -> ScheduleRounds:
    """Return what each rank sends in each round of a collective.

    Args:
        operation: The operation, such as `all_reduce`.
        algorithm: The algorithm, such as `ring`.
        ranks: The number of ranks; None: 8, or the product of `dims`.
        dims: The shape of the grid, for an algorithm on a grid, such as `4x4`. 4x4:0-7 takes its ranks 0 to 7.
        root: The root rank, for an operation that has one.

    Raises:
        InputError: a name is unknown, or there is no schedule of this shape.
    """
    grid = grid_of(dims)
    n = ranks if ranks is not None else ranks_of(grid) if grid else _SHOWN_RANKS
    if grid:
        check_grid("show collective", grid, n)
    found = find_algorithm(operation, algorithm)
    shape = grid or found.fit(n)  # the schedule refuses a grid that does not fit
    built = found.schedule(shape, root)
    title = f"{operation} {algorithm} on {show_shape(shape)} ranks: {built.n_rounds} rounds, {built.n_rows} slots sent"
    return ScheduleRounds((built,), find_operation(operation, n, root), algorithm, title)


def draw(value: object) -> "ShownFigure":
    """Return the picture of a topology or a schedule, a `Figure` of matplotlib; `.plot()` of an answer returns `Axes`.

    Raises:
        InputError: a value of this type has no picture.
    """
    if isinstance(value, Topology):
        drawn: ShownFigure = lazy("topology_picture:picture")(value, summary(value))
    elif isinstance(value, Schedule):
        title = f"{value.n_ranks} ranks: {value.n_rounds} rounds, {value.n_rows} slots sent"
        drawn = lazy("chart.algorithm_chart:round_figure")(value, title)
    else:
        mend = "draw a Topology or a Schedule, or use `.plot()` of an answer"
        if isinstance(value, str):
            mend = f"draw a topology by emu.draw(emu.build_topology({value!r})), or a schedule of emu.schedule"
        raise mendable(f"draw: a {type(value).__name__} has no picture", "value", value, mend)
    return drawn


def view(value: object) -> str:
    """Return an HTML view of a value for a notebook, such as a picture of a schedule."""
    if isinstance(value, Trace):
        return _trace_view(value)
    if not isinstance(value, Topology):
        return _picture(draw(value))
    rows = topology_rows(value, summary(value))
    left = 'style="text-align:left"'  # notebooks align to the right
    cells = "".join(f"<tr><th {left}>{html.escape(label)}</th><td {left}>{html.escape(text)}</td></tr>" for label, text in rows)
    return f"{_picture(draw(value))}<table>{cells}</table>"


def _trace_view(value: Trace) -> str:
    """Return the HTML view of a trace: facts about its run, and a table of its roles."""
    roles = Counter(value.role_of_rank.tolist())
    peaks = value.peak_bytes.tolist()
    rows = [(str(i), str(roles[i]), str(len(of.step)), format_size(peaks[i])) for i, of in enumerate(value.events)]
    told = "\n".join(f"{key}: {text}" for key, text in value.meta)
    return f"<pre>{html.escape(told)}\n\n{html.escape(table(('role', 'ranks', 'events', 'memory'), rows))}</pre>"


def _picture(figure: "ShownFigure") -> str:
    """Return a figure as an HTML image element."""
    drawn: bytes = figure._repr_png_()
    return f'<img style="max-width:100%" src="data:image/png;base64,{base64.b64encode(drawn).decode()}">'
