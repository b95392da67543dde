"""The report of a synthesised schedule: its time beside bounds, the best trees and the fastest algorithm of the catalogue."""

import time
from dataclasses import dataclass
from typing import Any

from emu.bound.limit import limit_of
from emu.collective.algorithm import compact_schedule
from emu.collective.shape import dims_of, named_shape, ranks_of
from emu.errors import InputError
from emu.study.choice.fastest import fastest
from emu.study.choice.site import Requirement
from emu.study.measure.bench import busbw_factor
from emu.study.synthesize import SynthesisRequest, SynthesisResult, synthesize
from emu.study.timing import CollectiveJob, time_collective
from emu.synthesis.hops import hop_network
from emu.synthesis.route_bound import routes_s_per_byte
from emu.topology.topology import Topology


@dataclass(frozen=True, slots=True, kw_only=True)
class SynthesisRow:
    """The result of one synthesis; times are virtual except those that begin with `wall_`."""

    topology: str
    operation: str
    ranks: int
    size_bytes: int
    dtype: str
    time_s: float
    busbw_Bps: float
    of_bound: float | None  # the least time of any schedule over the time; None: nothing has to be sent
    bound: str  # the bound that says so
    of_tree_bound: float  # what the best trees take over the time; above 1 where trees are no limit
    tree_bound_s: float  # what the best trees take, the latency of a message included; for an all_to_all its best bound
    tree_bound: str  # what gives it: cuts, a linear program, or both halves of an all_reduce
    of_routes_bound: float | None  # as of_tree_bound, over the ways that the router offers alone; None: not worked out
    order: str  # of the sends: matched, translated, lanes, streams and others
    trees: int  # of all roots; for an all_to_all the paths of all parts
    units: int  # parts of a block that take a tree each
    pieces: int  # of a unit
    rounds: int
    rows: int  # slots that are sent
    tried: int  # schedules that were timed
    cut_short: bool  # whether the time was over before all were tried
    best: str  # the fastest algorithm of the catalogue; "": none fits
    best_time_s: float | None
    assumptions: tuple[str, ...]
    wall_s: float  # of the synthesis, with its proof


def synthesis_row(topology: Topology, request: SynthesisRequest) -> tuple[SynthesisRow, SynthesisResult]:
    """Return the report of a synthesis, and what was made.

    Raises:
        InputError: See `synthesize`.
    """
    began = time.perf_counter()
    found = synthesize(topology, request)
    wall_s = time.perf_counter() - began
    return _row(found, request, wall_s), found


def _row(found: SynthesisResult, request: SynthesisRequest, wall_s: float) -> SynthesisRow:
    """Return the report of what was made."""
    op, variant, time_s = found.operation, found.variant, found.time_s
    factor = busbw_factor(op.name, op.n_ranks)
    return SynthesisRow(
        topology=found.site.topology.name,
        operation=op.name,
        ranks=op.n_ranks,
        size_bytes=request.size,
        dtype=request.dtype,
        time_s=time_s,
        busbw_Bps=request.size / time_s * factor if time_s else 0.0,
        order=variant.how,
        **{name: getattr(variant, name) for name in ("trees", "units", "pieces")},
        rounds=found.schedule.n_rounds,
        rows=found.schedule.n_rows_of_all,
        **{name: getattr(found, name) for name in ("tried", "cut_short")},
        **_bounds(found, request),
        **_best_of_catalogue(found, request),
        assumptions=found.site.topology.assumptions,
        wall_s=wall_s,
    )


def _bounds(found: SynthesisResult, request: SynthesisRequest) -> dict[str, Any]:
    """Return the fields of a row that compare its time with bounds."""
    op, item = found.operation, found.item_bytes
    topology = found.site.topology
    limit = limit_of(topology, op, found.site.npus, helpers=topology.adds)  # as of other rows, see `emu bench`
    bound_s, bound = limit.least_s(int(op.block_counts(request.size // item).min()) * item)
    return {
        "of_bound": bound_s / found.time_s if bound and found.time_s else None,
        "bound": bound,
        "of_tree_bound": found.of_trees,
        "tree_bound_s": found.trees_s,
        "tree_bound": found.trees_by,
        "of_routes_bound": _of_routes(found, request),
    }


def _of_routes(found: SynthesisResult, request: SynthesisRequest) -> float | None:
    """Return the least time over the ways that the router offers, over the time.

    The result is None if every link is a way from rank to rank, so that the router has no say, if switches copy and add, or if
    the bound is too large a search. Where it is below that of trees over all links, that one is taken.
    """
    topology, op = found.site.topology, found.operation
    hops = hop_network(topology, found.site.npus)
    is_free = len(hops.link) == len(hops.src) == len(topology.links)
    if topology.adds or is_free or not found.time_s:
        return None
    s_per_byte = routes_s_per_byte(hops, op.name)
    if s_per_byte is None:
        return None
    block_bytes = int(op.block_counts(request.size // found.item_bytes).min()) * found.item_bytes
    return max(found.trees_s, block_bytes * s_per_byte + float(hops.head_s.min())) / found.time_s


def _best_of_catalogue(found: SynthesisResult, request: SynthesisRequest) -> dict[str, Any]:
    """Return the fastest algorithm of the catalogue for the same request, and its time; "" and None if none can be timed."""
    op, site, elements = found.operation, found.site, request.size // found.item_bytes
    try:
        (name, dims), _ = fastest(site, Requirement(op.name, op.root, elements, found.item_bytes))
        plan = compact_schedule(op.name, name, op.n_ranks, op.root, dims)
        job = CollectiveJob(op, plan, elements, found.item_bytes, site.topology, site.placement(), name=f"{op.name} {name}")
        shape = dims if dims and ranks_of(dims) == op.n_ranks else (op.n_ranks,)
        return {"best": named_shape(name, dims_of(shape)), "best_time_s": time_collective(job).end_s}
    except InputError:
        return {"best": "", "best_time_s": None}
