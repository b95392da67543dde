"""Lower bounds of the step on a topology by the best of all plans, without the time of any step.

They are the bounds of a search for plans, from fast and loose to slow and tight.
"""

from collections.abc import Sequence
from contextlib import suppress
from functools import partial
from math import inf

from emu.errors import InputError
from emu.study.job_pool import THIS_PROCESS
from emu.study.planning.plan_request import PlanRequest
from emu.study.planning.prepared_search import PreparedSearch, prepare_search
from emu.study.planning.search.ladder import BoundLadder
from emu.study.planning.search.result_cache import ResultCache, do_and_store
from emu.study.planning.search.search import MOST_WORK
from emu.study.planning.search.search_jobs import JobWorker
from emu.study.planning.search.search_state import SearchJobs, SearchState, quiet
from emu.topology.topology import Topology
from emu.trace.device.device import Device


def least_anywhere_s(prepared: PreparedSearch) -> Sequence[float]:
    """Return for each topology of a search the least seconds of a step by any plan, in any placement.

    It is infinite if no plan may fit the memory.
    """
    least_s = [inf] * len(prepared.topologies)
    for plan in filter(prepared.may_fit, prepared.plans):
        with suppress(InputError):  # it cannot be generated
            least_s = [*map(min, least_s, prepared.bounds.anywhere_s(plan))]
    return least_s


def least_step_s(request: PlanRequest, topology: Topology, device: Device, kept: ResultCache, rung: int) -> float:
    """Return a lower bound of the step by any plan on one topology, in seconds; infinite if no plan fits the memory.

    Args:
        request: The model and the plans that are searched.
        topology: The topology.
        device: The device.
        kept: A cache of times of requests, to which new ones are added.
        rung: The rung of the ladder of bounds that the least plan has climbed: `PLACED` or `READY`.

    Raises:
        InputError: as `prepare_search`.
    """
    prepared = prepare_search(request, (topology,), device, quiet)
    state = SearchState.of(request, prepared.model, device, (topology,), kept)
    worker = JobWorker(request, prepared.model, (topology,), device.without_memory())
    with THIS_PROCESS.open(partial(do_and_store, worker, kept, state.name_of), kept) as opened:
        ladder = BoundLadder(prepared, SearchJobs(state, opened), MOST_WORK)
        ladder.add_plans(quiet)
        least = ladder.frontier.least()
        while least is not None and least.rung > rung:
            ladder.climb(ladder.frontier.take_batch(inf))
            least = ladder.frontier.least()
    return min(inf if least is None else least.bound_s, ladder.dropped_least_s)
