"""The search for the plan that trains a model fastest on one of several topologies, and why each other plan is slower.

A plan is ranked by its fastest placement. Candidates are timed as composed steps, by the best of a few choices of algorithms.
Those near the best are timed once more, by the best of many choices. Then the best few are timed in full, as
`emu.study.training.estimate` times a step, and ranked by this time.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import lru_cache, partial
from itertools import product
from math import inf
from typing import Any

from emu.collective.algorithm import operation_of
from emu.collective.operation import OPERATIONS
from emu.errors import InputError, must_be
from emu.model.generate.generate import members, memory_by_part, roles_by_place
from emu.model.layer_on_rank import padding_note
from emu.model.model import find_model
from emu.model.operator import ModelOperator, Tokens
from emu.model.plan.plan import Plan
from emu.model.plan.plan_text import parse_plan, read_words, spell
from emu.model.stack.software import NOTHING
from emu.registry import unknown
from emu.study.choice.chooser import choice_on, is_automatic
from emu.study.choice.site import Site, choosers
from emu.study.job_pool import THIS_PROCESS, JobPool
from emu.study.planning.bound.bound import PATHS
from emu.study.planning.bound.candidate_bounds import CandidateBounds
from emu.study.planning.bound.memory_floors import MemoryFloors
from emu.study.planning.search.frontier import ANYWHERE
from emu.study.planning.search.results import FULL, THOROUGH, Progress, ResultCache, SearchState, Timer, kept_result, quiet
from emu.study.planning.search.row import BY, INTERRUPTED, PROVED, WORKED, Candidate, PlanRequest, PlanRow, PlanTable, reason_of
from emu.study.planning.search.search import Search
from emu.study.planning.space import Space, check, placements
from emu.study.training.axes import axes_named, check_taken, operations_by_axis
from emu.study.training.composed import composed
from emu.study.training.composed.software_costs import device_under, topology_under
from emu.study.training.room import parts_text
from emu.study.training.step.rate import MFU_ASSUMED
from emu.study.training.step.step import shared_fields
from emu.topology.placement import place
from emu.topology.topology import Topology
from emu.trace.device.device import Device
from emu.trace.device.step_error import RunKind
from emu.units import format_size

_PARTS = 2**12  # parts of a model in the cache of operators: plans share many
_NEAR = 100  # plans of the least memory among which the nearest is looked for


@lru_cache(_PARTS)
def _known_part(
    part_of: Callable[[str, Tokens], tuple[ModelOperator, ...]], part: str, tokens: Tokens
) -> tuple[ModelOperator, ...]:
    """Return the operators of a part by a model's function; each part is computed once a process."""
    return part_of(part, tokens)


class InterruptedSearch(KeyboardInterrupt):
    """The interruption of a search, with the table of what is known.

    Args:
        table: The table; None: no step was timed.
        cause: The error of the signal.
    """

    def __init__(self, table: PlanTable | None, cause: KeyboardInterrupt) -> None:
        super().__init__()
        self.table, self.cause = table, cause


def find_plans(
    request: PlanRequest,
    topologies: Sequence[Topology],
    device: Device,
    kept: ResultCache,
    *,
    pool: JobPool = THIS_PROCESS,
    progress: Progress = quiet,
) -> PlanTable:
    """Search for the best plans of a model on a number of NPUs of any of several topologies, and return their table.

    Args:
        request: The model, the number of NPUs and the settings of the search.
        topologies: Topologies with at least as many NPUs.
        device: The device that computes.
        kept: A cache of earlier results, to which new ones are added.
        pool: The processes that time candidates.
        progress: A function that is called with the progress.

    Raises:
        InputError: a topology has fewer NPUs, no plan fits (the message names the nearest), or a named plan does not fit.
        InterruptedSearch: Ctrl-C or SIGTERM has ended the search.
    """
    request = replace(request, beside=tuple(replace(plan, microbatch=plan.pass_batch) for plan in request.beside))
    search = _search(request, topologies, device, kept, progress)
    space = _space(search)
    search.plans, search.not_searched = _plans(search, space), space.left_out
    _check_words(search)
    timer = Timer(request, search.model, tuple(topologies), replace(device, memory_bytes=0))
    with pool.open(partial(kept_result, timer, kept, search.state.name_of), kept) as search.pool:
        try:
            ours, theirs = _find_best(search), _time_named(search)
        except KeyboardInterrupt as stopped:
            table = known_table(search)
            stopped.add_note(f"{search.state.text()}; started again, the search goes on from here")
            raise InterruptedSearch(table, stopped) from stopped
    return _table(search, _rows(search, ours, theirs), _decided(search))


def _check_words(search: Search) -> None:
    """Refuse words of --algorithm that no plan of the search can follow: an axis, its operation, or an algorithm there."""
    every = (*search.plans, *search.request.beside)
    for axis, words in axes_named(search.request.algorithms).items():
        unlike = {(*plan.sizes.values(), plan.sharded): plan for plan in every}.values()
        sizes = {members(plan, axis).shape[1] for plan in unlike} - {1}
        if not sizes:
            has = {name for plan in every for name, size in plan.sizes.items() if size > 1}
            raise unknown("axis of the plans searched", axis, has)
        for word in words:
            _check_operation(operation_of(word.partition("=")[0]), axis, search, every)
            under = [topology_under(search.request.stack, topology) for topology in search.topologies]
            check_taken(word, axis, [Site.first(topology, n) for topology in under for n in sorted(sizes)])


def _check_operation(operation: str, axis: str, search: Search, plans: Sequence[Plan]) -> None:
    """Refuse an operation that no plan's step asks for on an axis; plans of equal `_kind` ask for the same operations."""
    if operation not in OPERATIONS:
        return
    found: set[str] = set()
    for plan in {_kind(plan): plan for plan in sorted(plans, key=lambda plan: -plan.passes)}.values():
        with suppress(InputError):  # a plan that cannot be generated asks for nothing
            tapes = [role.tape for roles in roles_by_place(search.model, plan, search.request.stack) for role in roles]
            found |= operations_by_axis((tape.events(), tuple(tape.axes)) for tape in tapes).get(axis, set())
        if operation in found:
            return
    raise unknown(f"collective on {axis}", operation, found)


def _kind(plan: Plan) -> tuple[object, ...]:
    """Return the settings of a plan that decide which operations its ranks request, and on which axes."""
    axes = tuple(size > 1 for size in plan.sizes.values())
    return (*axes, plan.sharding, plan.sharded == plan.dp, plan.sp, plan.cp_comm, plan.splits, plan.exchanges)


def _search(
    request: PlanRequest, topologies: Sequence[Topology], device: Device, kept: ResultCache, progress: Progress
) -> Search:
    """Return the search of a request, before it begins."""
    began_s, model, stack = time.perf_counter(), find_model(request.model), request.stack
    model = replace(model, part=partial(_known_part, model.part))
    paths = PATHS[stack.software](model, stack, device_under(stack, device).over(request.npus))
    axes, names = frozenset(axes_named(request.algorithms)), not {*map(_named, request.algorithms)} <= {*choosers()}
    placed = CandidateBounds(paths, [topology_under(stack, each) for each in topologies], axes, names)
    chooses = is_automatic(choice_on(topologies[0], request.algorithms, "float32").chooser)
    state = SearchState.of(request, model, device, tuple(topologies), kept)
    return Search(request, model, topologies, device, chooses, began_s, placed, MemoryFloors(model, stack), state, progress)


def _named(word: str) -> str:
    """Return the algorithm or the chooser that a word such as `all_reduce=ring` or `auto` names."""
    return word.rpartition("=")[2]


def _find_best(search: Search) -> list[Candidate]:
    """Return the best candidates, ranked by their time in full.

    Raises:
        InputError: no plan fits the memory.
    """
    search.bound_plans()
    while True:
        search.run()
        if not search.best:
            raise _nearest(search)
        if search.chooses:
            search.time_near()
        found = search.time_all(search.ranked(), FULL)
        if search.reached(found):
            return found


def _time_named(search: Search) -> list[Candidate]:
    """Return the plans that the user names, in their fastest placements on each topology, without those that have no time."""
    found = list[Candidate]()
    for topology, plan in product(range(len(search.topologies)), search.request.beside):
        named = [Candidate(topology, plan, axes) for axes in placements(plan)]
        found += search.time_all(search.time_all(named, THOROUGH)[:1], FULL)
    return found


def _space(search: Search) -> Space:
    """Return the space of plans that a request searches.

    Raises:
        InputError: a topology has fewer NPUs, or a named plan does not fit the model or the number of NPUs.
    """
    request = search.request
    for topology in search.topologies:
        place(topology, request.npus)
    for plan in request.beside:
        if plan.world != request.npus:
            raise must_be("plan", "beside", f"a plan of the {request.npus} NPUs", f"{spell(plan)} of {plan.world}")
        check(plan, search.model, request.stack)
    given = read_words(request.given) if request.given else {}
    return Space(search.model, request.stack, request.npus, request.global_batch, request.seq, given)


def _plans(search: Search, space: Space) -> list[Plan]:
    """Return all plans of a space.

    Raises:
        InputError: there is none with the words that are given.
    """
    request, given, plans = search.request, space.given, list[Plan]()
    with search.progress("listing all plans", None, lambda: f"{len(plans):,} so far"):
        plans.extend(space.plans())
    if plans:
        return plans
    if given and space.refused:
        raise InputError(f"plan: no plan of {request.npus} NPUs has {request.given}: {space.refused[0]}")
    batch = f"a global batch of {request.global_batch} and sequences of {request.seq} tokens"
    what = f"such that {space.model.name} with {batch} divides by axes of as many ranks"
    also = f", with {request.given} and software={request.stack.software.name}" if given else ""
    mend = "take a power of two, or a batch that divides by more" if not given else "give fewer words, or others"
    raise must_be("plan", "npus", f"{what}{also}", request.npus, mend)


def _nearest(search: Search) -> InputError:
    """Return the error that says how much memory is missing for the plan that takes least of it.

    It is the smallest of the plans with the lowest memory floors.
    """

    def taken(plan: Plan) -> dict[str, int]:
        return memory_by_part(search.model, plan, search.request.stack)

    plans = dict.fromkeys(sorted(search.plans, key=search.floors.bytes)[:_NEAR])
    sizes = [(sum(taken(plan).values()), spell(plan), plan) for plan in plans]
    needed, words, plan = min(sizes, key=lambda each: each[:2])
    has, lacks, told = format_size(search.has), format_size(needed - search.has), parts_text(taken(plan))
    return InputError(
        f"plan: no plan of {plan.world} NPUs fits {search.model.name} into the {has} of the {search.device.name}: the nearest, "
        f"{words}, takes {format_size(needed)} of a rank's memory, {lacks} more than there is ({told}); take more NPUs, a "
        "shorter sequence, or a device with more memory"
    )


def known_table(search: Search) -> PlanTable | None:
    """Return the table of what an interrupted search knows; None if no step has a time yet."""
    best = search.interrupted()
    every = len(search.topologies) * sum(len(placements(plan)) for plan in search.plans)
    timed, memory = len(search.needed()), sum(places for _, places in (*search.without, *search.large))
    decided = {**dict.fromkeys(BY, 0), "memory": memory, "composed": timed, "undecided": every - memory - timed}
    counted = {"ended": INTERRUPTED, "least_s": search.least_s, "decided": decided}
    return _table(search, _rows(search, best, ()), counted) if best else None


def _table(search: Search, rows: tuple[PlanRow, ...], counted: Mapping[str, Any]) -> PlanTable:
    """Return the table of a search.

    Args:
        search: The search.
        rows: The rows of the table.
        counted: The fields `ended`, `least_s` and `decided` of the table.
    """
    request, device, seen, decided = search.request, search.device, search.seen(), counted["decided"]
    off = device.step_error(RunKind(bool(search.model.experts), request.stack.fp8 != NOTHING))
    least_s = None if counted["least_s"] == inf else counted["least_s"]
    named = {"model": search.model.name, "device": device.name, "software": request.stack.software.name}
    return PlanTable(
        **{**shared_fields(request, PlanTable), **named, **counted, "least_s": least_s},
        memory_bytes=device.memory_bytes,
        either_way=off and off.share,
        either_way_by=off and off.text,
        not_searched=search.not_searched,
        plans=len(search.plans),
        candidates=sum(decided.values()) - sum(places for bound_s, places in search.without if bound_s <= search.limit_s),
        timed=decided["composed"],
        rows=rows,
        front=tuple(front_of(seen)),
        seen=tuple(sorted({(row.peak_memory_bytes, row.mfu) for row in seen})),
        assumptions=_assumptions(search, rows),
        wall_s=time.perf_counter() - search.began_s,
    )


def _assumptions(search: Search, rows: Sequence[PlanRow]) -> tuple[str, ...]:
    """Return what the times of rows are based on, a sentence each."""
    request = search.request
    stack, batch = request.stack, {"global_batch": request.global_batch, "seq": request.seq}
    plans = [parse_plan(row.plan, **batch) for row in rows]
    filled_up = dict.fromkeys(told for plan in plans for told in padding_note(plan, search.model, stack))
    of_topologies = dict.fromkeys(told for each in search.topologies for told in each.assumptions)
    return (*of_topologies, *search.device.assumptions, *filled_up, MFU_ASSUMED, composed.COMPOSED_ASSUMED)


def _undecided(search: Search) -> tuple[int, int, float]:
    """Return what an ended search leaves undecided.

    Returns:
        The number of undecided candidates that have no placement yet, the number of those that have one, and the least
        bound of all of them, in seconds.
    """
    entries = [entry for entry in (*search.left, *search.frontier.entries) if entry.bound_s <= search.limit_s]
    places = [(entry.kind, len(placements(entry.candidate.plan))) for entry in entries]
    of_plans = len(search.topologies) * sum(n for known, n in places if known > ANYWHERE)
    placed = sum(n if known == ANYWHERE else 1 for known, n in places if known <= ANYWHERE)
    return of_plans, placed, min((entry.bound_s for entry in entries), default=inf)


def _decided(search: Search) -> Mapping[str, Any]:
    """Return the fields of a table that say how a search has ended, and what decides its candidates."""
    every = len(search.topologies) * sum(len(placements(plan)) for plan in search.plans)
    timed, bounds = len(search.needed()), (search.without, search.anywhere, search.large)
    without, near, large = (sum(places for least_s, places in of if least_s <= search.limit_s) for of in bounds)
    of_plans, placed, least_s = _undecided(search)
    bound, requests = every - without - near - of_plans, near - large - timed - placed
    by = (without + large, bound, requests, timed, of_plans + placed)
    ended = WORKED if of_plans + placed else PROVED
    return {"ended": ended, "least_s": least_s, "decided": dict(zip(BY, by, strict=True))}


def _rows(search: Search, ours: Sequence[Candidate], theirs: Sequence[Candidate]) -> tuple[PlanRow, ...]:
    """Return the rows of the table, the fastest first.

    Args:
        search: The search.
        ours: The candidates that the search found.
        theirs: The candidates of the plans that the user names.
    """
    every = sorted(dict.fromkeys((*ours, *theirs)), key=lambda each: (search.rows[each].step_time_s, each.words))
    first = search.rows[next(each for each in every if each in ours)]
    return tuple(_row(search, each, first, beside=each in theirs) for each in every)


def _row(search: Search, candidate: Candidate, first: PlanRow, *, beside: bool) -> PlanRow:
    """Return the row of a candidate, with its bound, what may come before it, and why it is slower than the first."""
    row, least_s = search.rows[candidate], search.least_s
    said = "" if row == first else reason_of(row, first)
    if search.has and row.peak_memory_bytes > search.has:
        said = f"does not fit: {format_size(row.peak_memory_bytes - search.has)} of memory are missing; if it fitted: {said}"
    untimed_s = None if row.step_time_s < least_s else least_s
    return replace(row, bound_s=search.step_bounds_s.get(candidate), least_untimed_s=untimed_s, beside=beside, why=said)


def front_of(rows: Sequence[PlanRow]) -> list[PlanRow]:
    """Return the rows that no other beats in both memory and MFU, the least memory first."""
    found: list[PlanRow] = []
    for row in sorted(rows, key=lambda row: (row.peak_memory_bytes, -row.mfu, row.plan, row.axes)):
        if not found or row.mfu > found[-1].mfu:
            found.append(row)
    return found
