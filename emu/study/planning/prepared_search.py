"""A search for plans before it begins: the model, the topologies, the plans of its space, and all that can be refused."""

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import lru_cache, partial

from emu.collective.choice import operation_of
from emu.collective.operation import OPERATIONS
from emu.errors import InputError, must_be
from emu.model.generate.generate import groups_of_axis, roles_by_place
from emu.model.model import Model, find_model
from emu.model.operator import ModelOperator, Tokens
from emu.model.pipeline_order import ORDERS
from emu.model.plan.plan import Plan
from emu.model.plan.plan_text import read_words, spell
from emu.registry import unknown
from emu.study.choice.chooser import choice_on, is_automatic
from emu.study.choice.site import Site, choosers
from emu.study.planning.bound.candidate_bounds import CandidateBounds
from emu.study.planning.bound.memory_floors import MemoryFloors
from emu.study.planning.bound.outline import PATHS
from emu.study.planning.plan_request import PlanRequest
from emu.study.planning.search.search_state import Progress
from emu.study.planning.space import Space, check
from emu.study.training.axis_algorithms import axes_named, check_taken, operations_by_axis
from emu.study.training.composed.software_costs import costed_device, costed_topology
from emu.topology.placement import place
from emu.topology.topology import Topology
from emu.trace.device.device import Device

_PARTS = 2**12  # parts of a model in the cache of operators: plans share many


@dataclass(frozen=True, eq=False)
class PreparedSearch:
    """The inputs of a search after all checks: the request, the topologies, the device and the model."""

    request: PlanRequest
    model: Model
    topologies: Sequence[Topology]
    device: Device
    bounds: CandidateBounds
    floors: MemoryFloors
    chooses: bool  # whether algorithms are chosen for a step: no word names all of them
    plans: Sequence[Plan]  # those that are searched
    not_searched: tuple[str, ...]  # what else the words that all plans have could say
    began_s: float = field(default_factory=time.perf_counter)  # when it began, by the clock of `time.perf_counter`

    @property
    def memory_bytes(self) -> int:
        """The bytes of the device's memory; 0: not known."""
        return self.device.memory_bytes

    def may_fit(self, plan: Plan) -> bool:
        """Return whether the lower bound of a plan's memory fits the device; if not, the plan is never timed."""
        return not self.memory_bytes or self.floors.bytes(plan) <= self.memory_bytes


def prepare_search(request: PlanRequest, topologies: Sequence[Topology], device: Device, progress: Progress) -> PreparedSearch:
    """Return the inputs of the search of a request.

    Raises:
        InputError: a topology has fewer NPUs, no plan has the words that are given, a named plan does not fit the model or the
            number of NPUs, or a word of `algorithms` names what no plan can follow.
    """
    began_s, stack = time.perf_counter(), request.stack
    model = find_model(request.model)
    model = replace(model, part=partial(_known_part, model.part))
    paths = PATHS[stack.software](model, stack, costed_device(stack, device).for_ranks(request.npus))
    axes, named = frozenset(axes_named(request.algorithms)), {*map(_algorithm_named, request.algorithms)}
    names_algorithm = not named <= {*choosers()}
    bounds = CandidateBounds(paths, [costed_topology(stack, each) for each in topologies], axes, names_algorithm)
    chooses = is_automatic(choice_on(topologies[0], request.algorithms, "float32").chooser)
    space, floors = _space(request, model, topologies), MemoryFloors(model, stack)
    plans, left_out = _plans(request, space, progress), space.left_out
    found = PreparedSearch(request, model, topologies, device, bounds, floors, chooses, plans, left_out, began_s)
    _check_words(found)
    return found


@lru_cache(_PARTS)
def _known_part(
    part_of: Callable[[str, Tokens], tuple[ModelOperator, ...]], part: str, tokens: Tokens
) -> tuple[ModelOperator, ...]:
    """Return the operators of a part of the model; results are cached for the life of the process."""
    return part_of(part, tokens)


def _algorithm_named(word: str) -> str:
    """Return the algorithm or the chooser that a value such as `all_reduce=ring` or `auto` names."""
    return word.rpartition("=")[2]


def _space(request: PlanRequest, model: Model, topologies: Sequence[Topology]) -> Space:
    """Return the space of plans that a request searches.

    Raises:
        InputError: a number is below 1, a topology has too few NPUs, or a named plan does not fit the model or that number.
    """
    for name, count in (("npus", request.npus), ("top", request.top)):
        if count < 1:
            raise must_be("plan", f"--{name}", "1 or more", count)
    for topology in topologies:
        place(topology, request.npus)
    for plan in request.beside:
        if plan.world != request.npus:
            raise must_be("plan", "beside", f"a plan of the {request.npus} NPUs", f"{spell(plan)} of {plan.world}")
        check(plan, model, request.stack)
    given = read_words(request.given) if request.given else {}
    if given.get("order") and given["order"] not in ORDERS:
        raise unknown("order of a pipeline", str(given["order"]), ORDERS)
    return Space(model, request.stack, request.npus, request.global_batch, request.seq, given)


def _plans(request: PlanRequest, space: Space, progress: Progress) -> list[Plan]:
    """Return all plans of a space.

    Raises:
        InputError: there is none with the words that are given.
    """
    given, plans = space.given, list[Plan]()
    with progress("listing all plans", None, lambda: f"{len(plans):,} so far"):
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


def _check_words(search: PreparedSearch) -> None:
    """Refuse values of `--algorithm` that no plan of the search can follow: an axis, its operation, or an algorithm there."""
    every = (*search.plans, *search.request.beside)
    for axis, words in axes_named(search.request.algorithms).items():
        unlike = {(*plan.sizes.values(), plan.shard_ranks): plan for plan in every}.values()
        sizes = {groups_of_axis(plan, axis).shape[1] for plan in unlike} - {1}
        if not sizes:
            has = {name for plan in every for name, size in plan.sizes.items() if size > 1}
            raise unknown("axis of the plans searched", axis, has)
        for word in words:
            _check_operation(operation_of(word.partition("=")[0]), axis, search, every)
            under = [costed_topology(search.request.stack, topology) for topology in search.topologies]
            check_taken(word, axis, [Site.first(topology, n) for topology in under for n in sorted(sizes)])


def _check_operation(operation: str, axis: str, search: PreparedSearch, plans: Sequence[Plan]) -> None:
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
    return (*axes, plan.sharding, plan.shard_ranks == plan.dp, plan.sp, plan.cp_comm, plan.splits, plan.exchanges)
