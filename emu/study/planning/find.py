"""The search for the plan that trains a model fastest on one of several topologies, and the reasons why others are slower.

A plan is ranked by its fastest placement. Candidates are timed as composed steps, by the best of a few choices of algorithms.
Those near the best are timed once more, by the best of many choices. Then the best few are timed in full, as
`emu.study.training.estimate` times a step, and ranked by this time.
"""

from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

from emu.errors import InputError, mendable
from emu.model.generate.generate import memory_by_part
from emu.model.plan.plan import Plan
from emu.model.plan.plan_text import spell
from emu.study.job_pool import THIS_PROCESS, JobPool
from emu.study.planning.plan_request import Candidate, PlanRequest
from emu.study.planning.plan_row import PlanRow, PlanTable
from emu.study.planning.plan_table import interrupted_table, plan_table
from emu.study.planning.prepared_search import PreparedSearch, prepare_search
from emu.study.planning.search.result_cache import ResultCache, do_and_store
from emu.study.planning.search.search import Search
from emu.study.planning.search.search_jobs import JobWorker
from emu.study.planning.search.search_state import Progress, SearchJobs, SearchState, quiet
from emu.study.training.memory_fit import parts_text
from emu.topology.topology import Topology
from emu.trace.device.device import Device
from emu.units import format_size

STARTED_AGAIN = "started again, the search lists and bounds all plans once more, and reads what was timed from its cache"
_NEAR = 100  # plans of the least memory among which the nearest is looked for


class InterruptedSearch(KeyboardInterrupt):
    """The interruption of a search by Ctrl-C or by a notebook's stop button; `table` has the plans so far.

    Args:
        table: The table, whose `rows` are the plans; None: no step was timed.
        cause: The error of the signal.
    """

    def __init__(self, table: PlanTable | None, cause: KeyboardInterrupt) -> None:
        known = "no plan is known yet" if table is None else "the plans so far: error.table.rows"
        super().__init__(f"the search was interrupted; {known}; {STARTED_AGAIN}")
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
    search, found = _run_search(request, topologies, device, kept, pool, progress)
    return plan_table(search, *found)


class BestPlan(NamedTuple):
    """The fastest plan of a search, and the number of steps that the search had to have timed."""

    row: PlanRow
    steps: int


def find_best_plan(request: PlanRequest, topology: Topology, device: Device, kept: ResultCache) -> BestPlan:
    """Return the fastest plan of a model on one topology; raises as `find_plans`."""
    search, (found, _) = _run_search(replace(request, top=1), (topology,), device, kept, THIS_PROCESS, quiet)
    return BestPlan(search.plans.rows[found[0]], search.jobs.steps)


_Ranked = tuple[list[Candidate], list[Candidate]]  # the candidates that a search found, and those that the user named


def _run_search(
    request: PlanRequest,
    topologies: Sequence[Topology],
    device: Device,
    kept: ResultCache,
    pool: JobPool,
    progress: Progress,
) -> tuple[Search, _Ranked]:
    """Return a search that has ended, with its best candidates; arguments and errors as those of `find_plans`."""
    request = replace(request, beside=tuple(replace(plan, microbatch=plan.pass_batch) for plan in request.beside))
    prepared = prepare_search(request, topologies, device, progress)
    state = SearchState.of(request, prepared.model, device, tuple(topologies), kept)
    worker = JobWorker(request, prepared.model, tuple(topologies), device.without_memory())  # the ladder checks memory
    with pool.open(partial(do_and_store, worker, kept, state.name_of), kept) as opened:
        search = Search(prepared, SearchJobs(state, opened), progress)
        try:
            found = search.find_best()
            if not found:
                raise _no_time_error(prepared, search)
            return search, (found, search.time_named())
        except KeyboardInterrupt as stopped:
            table = interrupted_table(search)
            stopped.add_note(f"{state.text()}; {STARTED_AGAIN}")
            raise InterruptedSearch(table, stopped) from stopped


def _no_time_error(prepared: PreparedSearch, search: Search) -> InputError:
    """Return the error of a search that has no plan with a time."""
    if not search.plans.quick_s:
        return InputError(search.plans.refusal) if search.plans.refusal else _no_room_error(prepared)
    count = len(search.plans.quick_s)
    line = f"plan: none of the {count} plans that were composed can be timed in full"
    return mendable(line, "plan", prepared.request.given, "ask `emu estimate` for one of them, which says why")


def _no_room_error(prepared: PreparedSearch) -> InputError:
    """Return the error for a search in which no plan fits the memory; it says how much the smallest plan lacks.

    The smallest is looked for among the plans with the lowest memory floors.
    """

    def taken(plan: Plan) -> dict[str, int]:
        return memory_by_part(prepared.model, plan, prepared.request.stack)

    plans = dict.fromkeys(sorted(prepared.plans, key=prepared.floors.bytes)[:_NEAR])
    sizes = [(sum(taken(plan).values()), spell(plan), plan) for plan in plans]
    needed, words, plan = min(sizes, key=lambda each: each[:2])
    has, lacks, told = (*map(format_size, (prepared.memory_bytes, needed - prepared.memory_bytes)), parts_text(taken(plan)))
    line = (
        f"plan: no plan of {plan.world} NPUs fits {prepared.model.name} into the {has} of the {prepared.device.name}: the "
        f"nearest, {words}, takes {format_size(needed)} of a rank's memory, {lacks} more than there is ({told})"
    )
    return mendable(line, "npus", plan.world, "take more NPUs, a shorter sequence, or a device with more memory")
