"""The question of `emu plan`: which plan trains a model fastest on a number of NPUs, and why do the next ones lose?"""

import os
from contextlib import closing
from dataclasses import asdict, dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from emu.errors import InputError
from emu.model.plan.plan_text import parse_plan
from emu.study.job_pool import THIS_PROCESS, JobPool, LocalPool
from emu.study.planning.find import find_plans
from emu.study.planning.plan_request import TABLE_ROWS, PlanRequest
from emu.study.planning.plan_row import PlanRow, PlanTable
from emu.study.planning.search.result_cache import ResultCache, search_name
from emu.study.training.estimate import EstimateRequest, estimate_and_times
from emu.topology.topology import Topology
from emu.trace.device.device import Device
from launch.clusters import job_pool
from launch.front import inputs
from launch.front.inputs import DeviceLike, ModelLike, Topologies, Words, question
from launch.front.result import Result, lazy
from launch.front.steps.sweeps import PointTimer, Sweep, SweepPoint, device_text, sweep_steps
from launch.show.blocks import Page
from launch.show.progress import late_notice, progress_bar
from launch.show.text.estimate_table import plans_report

_PROCESSES = 2  # most processes that time candidates


@dataclass(frozen=True, repr=False, eq=False)
class PlanSearch(Result[PlanRow], drawn_by="chart.step_chart:plans_figure"):
    """The fastest plans that a search found, the fastest first, and why each other one is slower.

    The picture has MFU against memory, with the Pareto front.
    """

    table: PlanTable
    request: PlanRequest
    topologies: tuple[Topology, ...]
    device: Device

    @property
    def fastest(self) -> PlanRow:
        """The fastest plan that was found."""
        return self.table.fastest

    def text(self) -> str:
        """Return the table of plans, the reasons, and what was searched."""
        return plans_report(self.table)

    def as_json(self) -> object:
        """Return the table with all that the search found out."""
        return self.table

    def _shown(self) -> tuple[Any, ...]:
        return (self.table,)

    def page(self) -> Page:
        """Return the report of the search, with the step of the fastest plan."""
        row, request = self.fastest, self.request
        plan = parse_plan(row.plan, global_batch=request.global_batch, seq=request.seq)
        asked = EstimateRequest(request.model, plan, request.stack, request.algorithms, inputs.placement_order(row.axes))
        [topology, *_] = [each for each in self.topologies if each.name == row.topology]
        with late_notice("timing the fastest plan once more, for the report"):
            shown = estimate_and_times(asked, topology, self.device)
        made: Page = lazy("html.plan_page:plans_page")(self.table, shown)
        return made


@question
def plan(
    *,
    model: ModelLike,
    npus: int,
    topology: Topologies,
    global_batch: int,
    seq: int,
    device: DeviceLike = "h100",
    algorithm: Words = (),
    plan: str = "",
    beside: Words = (),
    top: int = TABLE_ROWS,
    prove_all: bool = False,
    cache: str | Path | None = None,
    sweep: Words = (),
    stack: str = "",
    workers: str = "local",
    ray_address: str | None = None,
) -> PlanSearch | Sweep:
    """Find the plan that trains a model fastest on a number of NPUs, and say why the next plans are slower.

    Results are kept. An interrupted search goes on where it stopped when it is started again.

    Args:
        model: The model: a name, a .toml file, or a dict of its `architecture` and sizes.
        npus: The number of NPUs that the job uses.
        topology: The network: a name, a file, a `Topology` or a networkx graph; or several of them.
        global_batch: Sequences in a step, over all ranks.
        seq: Tokens in a sequence.
        device: The device: a name, a .toml file, or a `Device`.
        algorithm: Words that choose algorithms, such as `all_reduce=ring`; empty: `auto` serves the step.
        plan: Search only plans with these words of `emu train --plan`, such as `tp=8,sp`; empty: all.
        beside: A plan of your own, such as `tp=8,sp,dp=8`, listed among those found; or several.
        top: The number of plans to find. Fewer are found sooner.
        prove_all: Go on until all of the `top` plans are proved: no other plan can be faster; False: until the first is,
            and then for a fixed amount of work.
        cache: Keep results in this folder; None: in the user's cache.
        sweep: Quantities and their values, such as `plan.tp=1,2,4,8`; several: all combinations.
        stack: The software and its settings, such as `software=megatron`.
        workers: The processes that time candidates, or points of a `sweep`: of this machine (`local`), or of a Ray (`ray`).
        ray_address: The address of a running Ray; None: start one on this machine.

    Returns:
        The plans; or with `sweep` the best plan at each point.

    Raises:
        InputError: an argument is impossible, or no plan fits; the line says which, and how to mend it.
        InterruptedSearch: the search was interrupted; its `table` has the plans that are known.
    """
    software, word = inputs.stack_of(stack), inputs.model_word(model)
    named = tuple(parse_plan(words, global_batch=global_batch, seq=seq) for words in inputs.several(beside))
    algorithms = inputs.algorithm_words(algorithm, software)
    request = PlanRequest(word, npus, global_batch, seq, software, algorithms, plan, named, top, prove_all)
    local = LocalPool(min(_PROCESSES, os.cpu_count() or 1))
    pool = job_pool("emu plan", workers, ray_address, local)
    with closing(ResultCache(inputs.cache_folder(cache))) as kept:
        if inputs.several(sweep):
            if named:
                raise InputError("plan: --sweep and --beside exclude each other; leave one of them out")
            words = {"model": word, "plan": plan, "stack": stack, "device": device_text(device)}
            words |= {"npus": str(npus), "seq": str(seq), "global-batch": str(global_batch)}
            timer = _points_timer(request, kept, local, pool)
            return sweep_steps(inputs.several(sweep), words, inputs.several(topology), timer, f"The best plan of {word}")
        built, found = inputs.topologies_of(topology), inputs.device_of(device, software.precision.activation)
        table = find_plans(request, built, found, kept, pool=pool, progress=progress_bar)
    return PlanSearch(table.rows, table, request, tuple(built), found)


def _points_timer(request: PlanRequest, kept: ResultCache, local: JobPool, pool: JobPool) -> PointTimer:
    """Return the timer of a sweep's points: local processes one point at a time, or a Ray task for each point."""
    recall = partial(_recalled, request, kept)
    if pool is local:
        return PointTimer(partial(_best_plan, request, kept, local), THIS_PROCESS, kept, recall=recall)
    return PointTimer(partial(_best_plan, request, kept, THIS_PROCESS), pool, kept, "searching the best plans", recall)


def _best_plan(request: PlanRequest, kept: ResultCache, pool: JobPool, point: SweepPoint) -> PlanRow:
    """Search the plans at a point of a sweep, store the fastest in the cache, and return it."""
    asked, name = _search_at(request, point)
    found = find_plans(asked, [point.topology], point.device, kept, pool=pool, progress=progress_bar).rows[0]
    kept.write(name, asdict(found))
    return found


def _recalled(request: PlanRequest, kept: ResultCache, point: SweepPoint) -> PlanRow | None:
    """Return the cached fastest plan at a point of a sweep; None if it is not cached."""
    found = kept.read(_search_at(request, point)[1])
    return None if found is None else PlanRow.stored(found)


def _search_at(request: PlanRequest, point: SweepPoint) -> tuple[PlanRequest, str]:
    """Return the search for plans at a point of a sweep, and the key under which its fastest plan is cached."""
    npus, global_batch, seq = map(point.whole, ("npus", "global-batch", "seq"))
    asked = replace(request, npus=npus, global_batch=global_batch, seq=seq)
    asked = replace(asked, model=point.model, given=point.said["plan"], stack=point.stack, top=1)
    asked = replace(asked, algorithms=inputs.algorithms_with(point.stack, request.algorithms))
    return asked, f"best of {search_name(asked, point.model, point.device, (point.topology,))}"
