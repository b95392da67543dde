"""What to measure, and what that comes to on one topology: checked once, before anything is built."""

from dataclasses import dataclass

import numpy as np

from emu.bound.limit import QUICK, Effort
from emu.collective.algorithm import algorithm, stored
from emu.collective.operation import REDUCING, Operation, operation
from emu.collective.schedule import Schedule
from emu.collective.shape import Grid, Shape, ranks_of, show_shape
from emu.collective.shape import PartialGrid as Part
from emu.dtypes import REDUCE_OPERATIONS, check_reduces, item_bytes, reductions_of
from emu.errors import must_be
from emu.fabric.perturb import check_seeds
from emu.registry import unknown
from emu.study.choice.requirement import choosers
from emu.study.choice.site import Site
from emu.study.timing.collective import Job
from emu.topology.placement import by_axes, order, switches_add_assumption
from emu.topology.topology import Topology
from emu.units import format_time

_MODEL = (
    "messages share the bandwidth of a link max-min fairly",
    "a message takes the latencies of its links one after another, then flows over all of them at once",
    "adding what arrives takes no time",
)


@dataclass(frozen=True, slots=True)
class BenchRequest:
    """What to measure: sizes in bytes of the whole buffer (total for all_gather and reduce_scatter)."""

    operation: str
    algorithm: str  # or `AUTO`, the fastest at each size, or a library's name: what that takes at each size
    sizes: tuple[int, ...]
    dtype: str = "float32"
    reduce: str = "sum"
    root: int = 0
    ranks: int | None = None  # all NPUs of the topology
    send_overhead_fs: int = 0
    dims: Grid = ()  # for an algorithm on a grid, or on some of its places; the topology's where they fit, else the best
    axes: tuple[int, ...] = ()  # of the topology's dims, in which order ranks count them; () = its own order of NPUs
    perturb: int = 0  # over how many perturbations of the starts a chaotic time is spread; 0: none
    effort: Effort = QUICK  # for bounds, where quick ones leave a gap
    launch_s: float = 0.0  # that each rank takes before it enters a collective


@dataclass(frozen=True, eq=False, slots=True)
class Asked:
    """A request on one topology."""

    request: BenchRequest
    operation: Operation
    site: Site
    item_bytes: int

    def elements(self, size: int) -> int:
        """Of a size in bytes."""
        return size // self.item_bytes

    def case(self, name: str, grid: Grid | None = None) -> "Case":
        """The algorithm of that name for it, on the site's grid unless another is given.

        Raises:
            InputError: no such algorithm, or ranks that it does not take.
        """
        op, dims = self.operation, self.site.grid if grid is None else grid
        shape = algorithm(op.name, name).fit(op.n_ranks, dims)
        return Case(self, name, dims, shape, stored(op.name, name, op.n_ranks, op.root, dims))


@dataclass(frozen=True, eq=False, slots=True)
class Case:
    """One algorithm for what was asked, built."""

    asked: Asked
    algorithm: str
    dims: Grid  # that it was offered
    shape: Shape  # that it is built for
    plan: Schedule  # as it is stored
    passed_over: tuple[str, ...] = ()  # algorithms that were not tried when it was chosen
    chosen: str = ""  # by a library, in its own words

    def job(self, size: int) -> Job:
        """What is timed for a size in bytes."""
        asked, op = self.asked, self.asked.operation
        where, overhead_fs = asked.site, asked.request.send_overhead_fs
        name = f"{op.name} {self.algorithm}"
        return Job(op, self.plan, asked.elements(size), asked.item_bytes, where.topology, where.placement(), overhead_fs, name)

    def assumptions(self) -> tuple[str, ...]:
        """What its time rests on, a sentence each: what the topology takes for granted, then what the fabric's model does."""
        topology = self.asked.site.topology
        launch_s = self.asked.request.launch_s
        launch = [f"launching a collective takes {format_time(launch_s)} on each of its ranks"] if launch_s else []
        return (*topology.assumptions, *launch, *switches_add_assumption(topology, self.plan.helpers), *_MODEL)


def ask(topology: Topology, request: BenchRequest) -> Asked:
    """What a request comes to on a topology.

    Raises:
        InputError: an unknown name, ranks that do not fit, or a size that is no whole number of elements.
    """
    item = item_bytes(request.dtype)
    op = operation(request.operation, len(order(topology)) if request.ranks is None else request.ranks, request.root)
    if request.dims and ranks_of(request.dims) != op.n_ranks:
        raise must_be("bench", "dims", f"a grid of the {op.n_ranks} ranks", show_shape(request.dims))
    site = _site(topology, request, op.n_ranks)
    if request.algorithm not in choosers():
        _check_fits(request, op.n_ranks, site)
    _check_values(request, op, item)
    return Asked(request, op, site, item)


def _site(topology: Topology, request: BenchRequest, n: int) -> Site:
    """By the axes asked for, else the places of a job on some of the topology's own grid, else its first NPUs."""
    dims, axes, own, first = request.dims, request.axes, topology.dims, Site.first(topology, n)
    if axes:
        turned = tuple(own[axis] for axis in axes) if own and n == topology.n_npus else ()
        return Site(topology, tuple(by_axes(topology, axes)[:n].tolist()), dims or turned, bool(dims))
    if not dims:
        return first
    return Site(topology, dims.members if isinstance(dims, Part) and dims.dims == own else first.npus, dims, only=True)


def _check_fits(request: BenchRequest, n: int, site: Site) -> None:
    found = algorithm(request.operation, request.algorithm)
    if request.dims:
        found.check(request.dims)
    found.fit(n, site.grid)


def _check_values(request: BenchRequest, op: Operation, item: int) -> None:
    if request.perturb:
        check_seeds(request.perturb)
    if request.reduce not in REDUCE_OPERATIONS:
        raise unknown("reduce operation", request.reduce, REDUCE_OPERATIONS)
    if op.name in REDUCING:
        check_reduces(op.name, request.dtype, request.reduce, reductions_of(request.dtype))
    for size in request.sizes:
        if size % item:
            raise must_be("bench", "size", f"a multiple of {item} bytes, the size of a {request.dtype}", size)
        op.check_count(size // item)


def sizes_between(begin: int, end: int, factor: float) -> tuple[int, ...]:
    """Sizes from `begin` to `end`, each `factor` times the one before, as nccl-tests steps them.

    Raises:
        InputError: an end below the beginning, or a factor that does not grow.
    """
    if not 0 < begin <= end:
        raise must_be("bench", "sizes", "above 0, and the end (-e) not below the beginning (-b)", f"{begin} B to {end} B")
    if factor <= 1:
        raise must_be("bench", "factor", "above 1", factor)
    steps = int(np.floor(np.log(end / begin) / np.log(factor) + 1e-9))
    return tuple(int(begin * factor**i) for i in range(steps + 1))
