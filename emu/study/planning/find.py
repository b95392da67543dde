"""Which plan trains a model fastest, on which of several topologies, and why does the next one lose?

A plan is ranked by its fastest placement. Candidates are timed as composed steps; then the best few as
`emu.study.training.estimate` times a step, and ranked by that.
"""

import time
from collections.abc import Sequence
from dataclasses import replace

from emu.errors import InputError, must_be
from emu.model.peak import memory_by_part
from emu.model.plan import Plan
from emu.model.read import find_model
from emu.model.spell import read_words, spell
from emu.study.planning.bound import Bounds, Rates
from emu.study.planning.floor import Floors
from emu.study.planning.kept import Kept, Names
from emu.study.planning.reasons import why
from emu.study.planning.row import Candidate, Planned, PlanRequest, PlanRow
from emu.study.planning.search import Bounded, Progress, Search, bounded, quiet
from emu.study.planning.space import Space, check, placements
from emu.study.planning.timed import COMPOSED, Submit, Timer, timing
from emu.study.training.calls import device_under, topology_under
from emu.study.training.composed import COMPOSED as TOLD
from emu.study.training.rate import MFU_ASSUMED
from emu.topology.placement import place
from emu.topology.topology import Topology
from emu.trace.device.device import Device
from emu.units import format_size

_NEAR = 100  # plans that hold least, of which the nearest that does not fit is looked for


def find_plans(
    request: PlanRequest,
    topologies: Sequence[Topology],
    device: Device,
    kept: Kept,
    *,
    processes: int = 1,
    progress: Progress = quiet,
) -> Planned:
    """The best plans of a model on so many NPUs of any of several topologies.

    Args:
        request: What is asked.
        topologies: Each with as many NPUs, or more.
        device: What computes.
        kept: What was timed before, to which is added.
        processes: That time candidates side by side.
        progress: Told what is done.

    Raises:
        InputError: a topology with fewer NPUs, no plan that fits, with the nearest; or one beside that fits neither.
    """
    request = replace(request, beside=tuple(replace(plan, microbatch=plan.pass_batch) for plan in request.beside))
    began, model, side_by_side = time.perf_counter(), find_model(request.model), 2 * processes
    names = Names(model, request.stack, device, request.algorithms, tuple(topologies))
    search = Search(model, request.stack, device.memory_bytes, request.best, names, kept, progress)
    for topology in topologies:
        place(topology, request.npus)
    for plan in request.beside:
        _check_beside(request, search, plan)
    n_plans, candidates = _candidates(request, search, topologies, device)
    timer = Timer(request, model, tuple(topologies), replace(device, memory_bytes=0))
    with timing(timer, processes) as submit:
        search.time(candidates, submit, side_by_side)
        if not search.best:
            raise _nearest(search, device, [each.candidate.plan for each in candidates])
        ours = search.full(search.ranked(), submit, side_by_side)
        theirs = [
            placed
            for number in range(len(topologies))
            for plan in request.beside
            for placed in _placed(search, number, plan, submit, side_by_side)
        ]
    return _planned(request, search, device, topologies, (n_plans, candidates), ours, theirs, time.perf_counter() - began)


def _placed(search: Search, topology: int, plan: Plan, submit: Submit, side_by_side: int) -> list[Candidate]:
    """A plan that was named, at its fastest placement on a topology."""
    named = [Candidate(topology, plan, axes) for axes in placements(plan)]
    return search.full(search.full(named, submit, side_by_side, COMPOSED)[:1], submit, side_by_side)


def _check_beside(request: PlanRequest, search: Search, plan: Plan) -> None:
    """It must be one of the model, for as many NPUs."""
    if plan.world != request.npus:
        raise must_be("plan", "beside", f"a plan of the {request.npus} NPUs", f"{spell(plan)} of {plan.world}")
    check(plan, search.model, request.stack)


def _candidates(
    request: PlanRequest, search: Search, topologies: Sequence[Topology], device: Device
) -> tuple[int, list[Bounded]]:
    """How many plans there are, and the candidates that may fit the memory, in the order of their bounds."""
    stack, floors = request.stack, Floors(search.model, request.stack)
    given = read_words(request.given) if request.given else {}
    space = Space(search.model, stack, request.npus, request.global_batch, request.seq, given)
    plans = list(space.plans())
    if not plans:
        if given and space.refused:
            raise InputError(f"plan: no plan of {request.npus} NPUs has {request.given}: {space.refused[0]}")
        batch = f"a global batch of {request.global_batch} and sequences of {request.seq} tokens"
        what = f"such that {search.model.name} with {batch} divides by axes of as many ranks"
        also = f", with {request.given} and software={stack.software}" if given else ""
        mend = "take a power of two, or a batch that divides by more" if not given else "give fewer words, or others"
        raise must_be("plan", "npus", f"{what}{also}", request.npus, mend)
    rates = [Rates.of(topology_under(stack, each)) for each in topologies]
    bounds = [Bounds(search.model, stack, device_under(stack, device).over(request.npus), each) for each in rates]
    found: list[Bounded] = []
    with search.progress(f"bounding the step times of {len(plans):,} plans", len(plans)) as advance:
        for plan in plans:
            if not search.has or floors.bytes(plan) <= search.has:
                found += bounded(plan, bounds)
            advance()
    if not found:
        raise _nearest(search, device, sorted(plans, key=floors.bytes))
    return len(plans), sorted(found, key=lambda each: each.order)


def _nearest(search: Search, device: Device, plans: Sequence[Plan]) -> InputError:
    """What the plan lacks that takes least, of those that hold least."""

    def taken(plan: Plan) -> dict[str, int]:
        return memory_by_part(search.model, plan, search.stack)

    sizes = [(sum(taken(plan).values()), spell(plan), plan) for plan in dict.fromkeys(plans[:_NEAR])]
    needed, words, plan = min(sizes, key=lambda each: each[:2])
    parts = sorted(taken(plan).items(), key=lambda part: -part[1])
    told = ", ".join(f"{name.replace('_', ' ')} {format_size(size)}" for name, size in parts)
    has, lacks = format_size(search.has), format_size(needed - search.has)
    return InputError(
        f"plan: no plan of {plan.world} NPUs fits {search.model.name} into the {has} of the {device.name}: the nearest, "
        f"{words}, takes {format_size(needed)} of a rank's memory, {lacks} more than there is ({told}); take more NPUs, a "
        "shorter sequence, or a device with more memory"
    )


def _planned(
    request: PlanRequest,
    search: Search,
    device: Device,
    topologies: Sequence[Topology],
    counted: tuple[int, Sequence[Bounded]],
    ours: Sequence[Candidate],
    theirs: Sequence[Candidate],
    wall_s: float,
) -> Planned:
    n_plans, candidates = counted
    bounds = {each.candidate: each.bound_s for each in candidates} | search.least_s
    every = sorted(dict.fromkeys((*ours, *theirs)), key=lambda each: (search.rows[each].step_time_s, each.words))
    first = search.rows[next(each for each in every if each in ours)]
    rows = [_row(search, each, first, bounds.get(each), beside=each in theirs) for each in every]
    needed = search.needed(candidates)
    seen = search.seen(needed)
    return Planned(
        model=search.model.name,
        npus=request.npus,
        device=device.name,
        memory_bytes=device.memory_bytes,
        global_batch=request.global_batch,
        seq=request.seq,
        software=request.stack.software,
        given=request.given,
        plans=n_plans,
        candidates=len(candidates),
        timed=len(needed),
        rows=tuple(rows),
        front=tuple(front_of(seen)),
        seen=tuple(sorted({(row.peak_memory_bytes, row.mfu) for row in seen})),
        assumptions=(*_assumed(topologies), *device.assumptions, *_SEARCHED, MFU_ASSUMED, TOLD),
        wall_s=wall_s,
    )


def _row(search: Search, candidate: Candidate, first: PlanRow, bound_s: float | None, *, beside: bool) -> PlanRow:
    row = search.rows[candidate]
    said = "" if row == first else why(row, first)
    if search.has and row.peak_memory_bytes > search.has:
        said = f"does not fit: {format_size(row.peak_memory_bytes - search.has)} of memory are missing; {said}"
    return replace(row, bound_s=bound_s, beside=beside, why=said)


def front_of(rows: Sequence[PlanRow]) -> list[PlanRow]:
    """Those of which none reaches as much MFU with less memory, or more with as little; the least memory first."""
    found: list[PlanRow] = []
    for row in sorted(rows, key=lambda row: (row.peak_memory_bytes, -row.mfu, row.plan, row.axes)):
        if not found or row.mfu > found[-1].mfu:
            found.append(row)
    return found


def _assumed(topologies: Sequence[Topology]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(sentence for each in topologies for sentence in each.assumptions))


_SEARCHED = (
    "searched are all sizes of the axes with exactly so many NPUs, microbatches that are powers of two, and virtual stages "
    "that are powers of two or divide the layers evenly; layers are spread as evenly as they go, cp goes by all_gather, every "
    "rank of dp has a share of the states where any are sharded, and no capacity cuts what experts take",
)
