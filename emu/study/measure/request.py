"""The request of a bench, and its case on one topology, which is checked before any schedule is built."""

from contextlib import suppress
from dataclasses import dataclass, replace
from math import inf

import numpy as np

from emu.bound.limit import QUICK_EFFORT, Effort
from emu.collective.algorithm import algorithm, compact_schedule
from emu.collective.chooser_names import SYNTHESIZED, chooser_needs
from emu.collective.operation import REDUCING, Operation, operation
from emu.collective.schedule import RowsError, Schedule
from emu.collective.shape import Grid, PartialGrid, Shape, check_grid
from emu.dtypes import REDUCE_OPERATIONS, check_reduces, item_bytes, reductions_of
from emu.errors import InputError, must_be
from emu.fabric.packet_fabric import ADDING_ASSUMED, FLUID_ASSUMED, FLUID_ENGINE, EngineChoice
from emu.fabric.run import check_seeds
from emu.registry import unknown
from emu.study.choice.site import Site, choosers
from emu.study.timing import CollectiveJob, time_collective
from emu.topology.placement import by_axes, npu_order, switches_add_assumption
from emu.topology.topology import Topology
from emu.units import format_time

MOST_SIZES = 10_000
_CHOSEN_BY_FLUID = "auto chose the algorithm by its time in the fluid fabric; by packets another may be faster"


@dataclass(frozen=True, slots=True)
class BenchRequest:
    """A bench: an operation on buffers of several sizes, and how it is served and timed.

    A size is the bytes of the whole buffer: for all_gather and reduce_scatter that of all ranks together. `axes` is the order
    in which ranks count the dims of the topology. `perturb` is the number of runs with slightly shifted starts, which show how
    far the time varies. `effort` is the work spent on lower bounds of the time.
    """

    operation: str
    algorithm: str  # or one of `OWN_CHOOSERS`, at each size; or a library's name, for what that takes
    sizes: tuple[int, ...]
    dtype: str = "float32"
    reduce: str = "sum"
    root: int = 0
    ranks: int | None = None  # all NPUs of the topology
    send_overhead_fs: int = 0
    dims: Grid = ()  # for an algorithm on a grid, or on some of its places; the topology's where they fit, else the best
    axes: tuple[int, ...] = ()  # of the topology's dims, in which order ranks count them; () = its own order of NPUs
    perturb: int = 0  # the perturbations of the starts over which the time is told to vary; 0: none
    effort: Effort = QUICK_EFFORT  # for bounds, where quick ones leave a gap
    launch_s: float = 0.0  # that each rank takes before it enters a collective
    engine: EngineChoice = FLUID_ENGINE


@dataclass(frozen=True, eq=False, slots=True)
class PlacedBench:
    """A bench request on one topology, with the operation, and the NPUs of its ranks (the site)."""

    request: BenchRequest
    operation: Operation
    site: Site
    item_bytes: int

    def elements(self, size: int) -> int:
        """Return the number of elements in a size in bytes."""
        return size // self.item_bytes

    def synthesis_case(self, size: int) -> "Case":
        """Return the case of the schedule that is synthesised for a size in bytes.

        Raises:
            InputError: See `kept_schedule`.
        """
        from emu.study.synthesize import kept_schedule  # here, as all other benches start without it

        plan, made = kept_schedule(self.site, self.operation, self.elements(size), self.item_bytes)
        told = f"{made.how}, {made.trees} trees, {made.pieces} pieces"
        return Case(self, SYNTHESIZED, (), self.operation.n_ranks, plan, chosen=told)

    def faster_case(self, other: "Case", size: int) -> "Case":
        """Return the case of the schedule that is synthesised for a size in bytes if it takes less time than another case.

        If it does not, or if none can be made, the result is the other case.
        """
        with suppress(InputError):
            made = replace(self.synthesis_case(size), passed_over=other.passed_over)
            if time_collective(made.job(size)).end_s < time_collective(other.job(size)).end_s:
                return made
        return other

    def case(self, name: str, grid: Grid | None = None) -> "Case":
        """Return the case of an algorithm, on the site's grid unless another is given.

        Raises:
            InputError: There is no such algorithm, or it does not take that many ranks.
        """
        op, found = self.operation, algorithm(self.operation.name, name)
        dims = self.site.dims_for(found) if grid is None else grid
        shape = found.fit(op.n_ranks, dims)
        try:
            plan = compact_schedule(op.name, name, op.n_ranks, op.root, dims)
        except RowsError:
            what = f"{op.name} {name}: sends too many messages among {op.n_ranks} ranks to be timed"
            raise RowsError(f"{what}; take fewer ranks, another grid (--dims), or --algorithm auto") from None
        return Case(self, name, dims, shape, plan)


@dataclass(frozen=True, eq=False, slots=True)
class Case:
    """One algorithm of a bench with its schedule; it makes a collective to be timed for each size."""

    asked: PlacedBench
    algorithm: str
    dims: Grid  # that it was offered
    shape: Shape  # that it is built for
    schedule: Schedule  # as it is stored
    passed_over: tuple[str, ...] = ()  # algorithms that were not tried when it was chosen
    chosen: str = ""  # by a library, in its own words
    chosen_assumed: tuple[str, ...] = ()  # on what the library's choice rests, a sentence each

    def job(self, size: int) -> CollectiveJob:
        """Return the collective to be timed for a buffer of `size` bytes."""
        asked, op = self.asked, self.asked.operation
        where, overhead_fs = asked.site, asked.request.send_overhead_fs
        name = f"{op.name} {self.algorithm}"
        return CollectiveJob(
            op, self.schedule, asked.elements(size), asked.item_bytes, where.topology, where.placement(), overhead_fs, name
        )

    def assumptions(self) -> tuple[str, ...]:
        """Return one sentence for each assumption on which the time of this collective rests.

        They are assumptions of the topology, of the launch of a collective, of a library's choice, of the adds in switches, and
        of the engine.
        """
        topology = self.asked.site.topology
        launch_s = self.asked.request.launch_s
        launch = [f"launching a collective takes {format_time(launch_s)} on each of its ranks"] if launch_s else []
        packets = self.asked.request.engine.packets
        model = FLUID_ASSUMED if packets is None else (*packets.assumptions, *self._choice_assumption(), ADDING_ASSUMED)
        adding = (*switches_add_assumption(topology, self.schedule.helpers), *self._adding_assumption())
        return (*topology.assumptions, *launch, *self.chosen_assumed, *adding, *model)

    def _adding_assumption(self) -> tuple[str, ...]:
        """Return the sentence that says that `auto` let no switch add though some can; empty unless ranks leave NPUs free."""
        topology, n = self.asked.site.topology, self.asked.operation.n_ranks
        room = len(npu_order(topology))
        if not self._is_automatic or not topology.adds or self.schedule.helpers or n == room:
            return ()
        return (
            f"switches can add, but no algorithm that lets them was the fastest on {n} ranks; try all {room} (--ranks {room})",
        )

    def _choice_assumption(self) -> tuple[str, ...]:
        """Return the sentence that says that `auto` chose by times of the fluid fabric; empty if it did not choose."""
        return (_CHOSEN_BY_FLUID,) if self._is_automatic else ()

    @property
    def _is_automatic(self) -> bool:
        """True if the algorithm was chosen by its time."""
        return chooser_needs(self.asked.request.algorithm).times


def place_bench(topology: Topology, request: BenchRequest) -> PlacedBench:
    """Return a bench on a topology.

    Raises:
        InputError: A name is unknown, the ranks do not fit, or a size is no whole number of elements.
    """
    item, request = item_bytes(request.dtype), replace(request, engine=request.engine.on(topology))
    op = operation(request.operation, len(npu_order(topology)) if request.ranks is None else request.ranks, request.root)
    if request.dims:
        check_grid("bench", request.dims, op.n_ranks)
    site = _site(topology, request, op.n_ranks)
    if request.algorithm not in choosers():
        _check_fits(request, op.n_ranks, site)
    _check_values(request, op, item)
    return PlacedBench(request, op, site, item)


def _site(topology: Topology, request: BenchRequest, n: int) -> Site:
    """Return the NPUs of the ranks.

    They follow --axes; else they are the members of a partial grid on the topology's own grid; else the first NPUs.
    """
    dims, axes, own, first = request.dims, request.axes, topology.dims, Site.first(topology, n)
    if axes:
        npus = tuple(by_axes(topology, axes)[:n].tolist())  # it refuses axes that the topology does not have
        turned = tuple(own[axis] for axis in axes) if own and n == topology.n_npus else ()
        return Site(topology, npus, dims or turned, bool(dims))
    if not dims:
        return first
    return Site(topology, dims.members if isinstance(dims, PartialGrid) and dims.dims == own else first.npus, dims, only=True)


def _check_fits(request: BenchRequest, n: int, site: Site) -> None:
    """Refuse an algorithm that does not fit the ranks or the grid."""
    found = algorithm(request.operation, request.algorithm)
    if request.dims:
        found.check(request.dims)
    found.fit(n, site.grid)


def _check_values(request: BenchRequest, op: Operation, item: int) -> None:
    """Refuse a reduction, a size or a number of perturbed starts that the operation does not allow."""
    if request.perturb:
        check_seeds(request.perturb)
    if request.reduce not in REDUCE_OPERATIONS:
        raise unknown("reduce operation", request.reduce, REDUCE_OPERATIONS)
    if op.name in REDUCING:
        check_reduces(op.name, request.dtype, request.reduce, reductions_of(request.dtype))
    for size in request.sizes:
        if size % item:
            raise must_be("bench", "--size", f"a multiple of {item} bytes, the size of a {request.dtype}", size)
        op.check_count(size // item)


def sizes_between(begin: int, end: int, factor: float) -> tuple[int, ...]:
    """Return sizes from `begin` to `end`, each `factor` times the one before, as in nccl-tests.

    Raises:
        InputError: The end is below the beginning, the factor is not above 1, or there would be too many sizes.
    """
    if not 0 < begin <= end:
        raise must_be("bench", "--size, or -b and -e,", "above 0, and the end not below the beginning", f"{begin} B to {end} B")
    if not 1 < factor < inf:
        raise must_be("bench", "--factor", "above 1", factor)
    steps = int(np.floor(np.log(end / begin) / np.log(factor) + 1e-9))
    if steps >= MOST_SIZES:
        raise must_be("bench", "--factor", f"such that there are at most {MOST_SIZES:,} sizes", factor, "take a larger one")
    return tuple(int(begin * factor**i) for i in range(steps + 1))
