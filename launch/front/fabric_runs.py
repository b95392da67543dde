"""The question of `emu show fabric-run`: where do packets wait, which links pause, and who blocks whom?"""

from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any, TypeGuard

from emu.collective.operation import OPERATIONS
from emu.collective.shape import Grid
from emu.errors import InputError, at_place, must_be
from emu.fabric.packet_fabric import FLUID, PacketFabric, engine_choice
from emu.registry import unknown
from emu.study.fabric_run import FabricRun, PortUse, collective_run, trace_run
from emu.study.measure.bench import next_case
from emu.study.measure.request import BenchRequest, PlacedBench, place_bench
from emu.study.pause_tree import PauseTree
from emu.study.training.composed.software_costs import costed_topology
from emu.study.training.step.packet_step import packet_assumptions, packet_replay
from emu.topology.topology import Topology
from emu.units import format_size, parse_size, seconds
from launch.front.inputs import (
    DeviceLike,
    Topologies,
    Words,
    algorithm_words,
    grid_of,
    overheads_of,
    question,
    topologies_of,
)
from launch.front.result import Result, lazy
from launch.front.steps.replays import TraceLike, named_trace, timed_replays
from launch.front.steps.timed_steps import TraceTiming
from launch.show.blocks import Page
from launch.show.progress import progress_bar
from launch.show.text.queue_report import queue_report

_WHERE = "show fabric-run"


@dataclass(frozen=True, repr=False, eq=False)
class PacketPorts(Result[PortUse], drawn_by="chart.queue_chart:queue_figure"):
    """The ports of a run by packets: how much waited in them, how long they paused, and who blocks whom.

    The picture has the queues over time, the pauses of links, and the tree of pauses of each port that was full.
    """

    found: FabricRun

    def text(self) -> str:
        """Return the time, a line for each of the fullest ports, and the trees of pauses."""
        return queue_report(self.found, self.rows)

    def as_json(self) -> object:
        """Return the figures of the run, its ports, and the trees of pauses."""
        found = self.found
        trees = [
            {**_tree_as_json(found, tree), "not_on_its_way": _held_as_json(found, tree.queue)} for tree in found.causes.trees
        ]
        times = {"time_s": found.time_s, **asdict(found.figures)}
        what = {"name": found.name, "topology": found.topology.name, **times}
        return {**what, "ports": self.rows, "full_ports": trees, "assumptions": found.assumptions}

    def _shown(self) -> tuple[Any, ...]:
        return (self.found,)

    def page(self) -> Page:
        """Return the report as a page: queues and pauses over time on the drawing of the topology, and the picture."""
        made: Page = lazy("html.queue_page:queue_page")(self.found, self.rows)
        return made


def _tree_as_json(found: FabricRun, tree: PauseTree) -> dict[str, Any]:
    """Return a port and the ports upstream that it held up."""
    upstream = [_tree_as_json(found, each) for each in tree.upstream]
    return {"port": found.port(tree.queue), "pauses": tree.pauses, "paused_s": seconds(tree.paused_fs), "upstream": upstream}


def _held_as_json(found: FabricRun, root: int) -> list[dict[str, Any]]:
    """Return the messages that the tree of a port held up although they do not cross it."""
    return [
        {
            "message": found.message(held.task),
            "port": found.port(held.queue),
            "held_s": seconds(held.held_fs),
            "time_s": seconds(held.time_fs),
            "fluid_s": seconds(held.fluid_fs),
        }
        for held in found.held(root)
    ]


@question
def show_fabric_run(
    what: TraceLike,
    *,
    topology: Topologies,
    network: str = "",
    fabric: str = "packets",
    algorithm: Words = (),
    size: int | str | None = None,
    ranks: int | None = None,
    dims: str | Grid = "",
    device: DeviceLike | None = None,
    dtype: str | None = None,
    stack: str = "",
) -> PacketPorts:
    """Return where packets wait in a collective or a recorded run, which links pause, and who blocks whom.

    Args:
        what: The operation of a collective, such as `all_to_all`, or a trace, as `replay` takes it.
        topology: The network: a name, a file, a `Topology` or a networkx graph.
        network: The network of packets, such as `roce:route=in-turn`: roce, ultra-ethernet, infiniband, nvlink, ub or tcp, with
            settings; empty: that of the topology's file, else roce.
        fabric: Packets and their settings cell, seed and events, such as `packets:cell=8KiB`.
        algorithm: The algorithm of a collective, or words that choose those of a trace; empty: that of the
            library of `stack`, or `auto`.
        size: The bytes of one rank's buffer of a collective, such as `8MiB`; None: it is a trace.
        ranks: The ranks of a collective; None: all NPUs of the topology.
        dims: The shape of the grid, for a collective's algorithm on a grid, such as `4x4`; empty: the topology's.
        device: The device of a trace: a name, a .toml file, or a `Device`; None: as in `replay`.
        dtype: The data type of a collective, or as which float32 of a trace is timed; None: float32, or as in `replay`.
        stack: The times that software adds to messages and requests, such as `launch=5us`.

    Raises:
        InputError: an argument is impossible; the line says which, and how to mend it.
        RunError: packets wait for one another in a circle, or the budget is spent.
    """
    engine = engine_choice(fabric, network)
    packets = engine.packets
    if packets is None:
        raise must_be(_WHERE, "--fabric", "packets, such as packets:cell=8KiB", FLUID, "the fluid fabric has no queues")
    if _is_operation(what):
        if device is not None:
            raise must_be(_WHERE, "--device", "left out where a collective is shown", str(device), "it computes nothing")
        under = overheads_of(stack)
        asked = _request(what, algorithm_words(algorithm, under), size, ranks, grid_of(dims), dtype)
        asked = replace(asked, launch_s=under.launch_s, engine=engine)
        found = _collective(asked, costed_topology(under, _one(topologies_of(topology))), packets)
    else:
        for flag, value in (("--size", size), ("--ranks", ranks), ("--dims", dims or None)):
            if value is not None:
                raise must_be(_WHERE, flag, "left out where a trace is shown", str(value), "a trace has its own messages")
        found = _trace(what, TraceTiming.of_replay(topology, device, dtype, algorithm, stack), packets)
    return PacketPorts(found.ports(), found)


def _is_operation(what: TraceLike) -> TypeGuard[str]:
    """Return whether a word names a collective operation, not a trace.

    Raises:
        InputError: it is a single word that is neither.
    """
    if not isinstance(what, str) or what in OPERATIONS:
        return isinstance(what, str)
    if what.isidentifier() and not Path(what).exists():
        raise unknown("operation (nor a trace)", what, OPERATIONS)
    return False


def _one(machines: list[Topology] | tuple[Topology, ...]) -> Topology:
    """Return the only topology.

    Raises:
        InputError: there are several.
    """
    if len(machines) != 1:
        raise must_be(_WHERE, "--topology", "given once", len(machines), "one picture shows one fabric")
    return machines[0]


def _request(
    operation: str, algorithm: tuple[str, ...], size: int | str | None, ranks: int | None, grid: Grid, dtype: str | None
) -> BenchRequest:
    """Return the request of a collective of one size; arguments as in `show_fabric_run`.

    Raises:
        InputError: there is no size, or several algorithms.
    """
    if size is None:
        raise must_be(_WHERE, "--size", "given for a collective, such as 8MiB", "none")
    names = algorithm[1:] or algorithm  # after the library's or `auto`
    if len(names) > 1 or "=" in names[0]:
        raise must_be(_WHERE, "--algorithm", "one NAME for a collective", " ".join(names))
    [name] = names
    return BenchRequest(operation, name, (parse_size(size, "--size"),), dtype or "float32", ranks=ranks, dims=grid)


def _placed(request: BenchRequest, topology: Topology) -> PlacedBench:
    """Return the collective on a topology, as `bench` places it; its errors name this command.

    Raises:
        InputError: as `place_bench`.
    """
    try:
        return place_bench(topology, request)
    except InputError as error:
        if str(error).startswith("bench: "):
            raise at_place(_WHERE, error) from error
        raise


def _collective(request: BenchRequest, topology: Topology, packets: PacketFabric) -> FabricRun:
    """Return the run of a collective by packets."""
    [size] = request.sizes
    packets, case = packets.on(topology), next_case(_placed(request, topology), size)
    job = case.job(size)
    with progress_bar(f"running {job.name} by packets"):
        found = collective_run(job._replace(name=f"{job.name} of {format_size(size)}"), packets)
    return replace(found, assumptions=case.assumptions(), launch_s=request.launch_s, chosen=case.chosen)


def _trace(what: TraceLike, timing: TraceTiming, packets: PacketFabric) -> FabricRun:
    """Return the run of all steps of a trace by packets."""
    packets = packets.on(_one(timing.machines))
    name, recorded = named_trace(what)
    with progress_bar(f"running {name} by packets"):
        [timed] = timed_replays(recorded, timing)
        assumed = (*timed.topology.assumptions, *packet_assumptions(timed, packets))
        return trace_run(name, packet_replay(timed, packets), assumed)
