"""Searches of small spaces, and what timing every candidate finds."""

from functools import cache

from emu.errors import InputError
from emu.model.peak import memory_by_part
from emu.model.read import find_model
from emu.model.stack import Stack
from emu.study.planning.find import find_plans
from emu.study.planning.kept import Kept
from emu.study.planning.row import Candidate, Planned, PlanRequest
from emu.study.planning.space import Space, placements
from emu.study.training.estimate import EstimateRequest, estimate
from emu.topology.catalogue import build_topology
from launch.data.devices import find_device

H100 = find_device("h100", "bfloat16")
KEPT = Kept(None)  # of all tests, but for those of what is kept
topology_of = cache(build_topology)


def asked(model: str, npus: int, batch: int, seq: int, software: str = "megatron", best: int = 4) -> PlanRequest:
    return PlanRequest(model, npus, batch, seq, Stack(software), ("auto",), best=best)


def found(request: PlanRequest, line: str, device=H100, kept: Kept | None = None, **words) -> Planned:
    return find_plans(request, [topology_of(line)], device, kept or KEPT, **words)


def candidates(request: PlanRequest) -> list[Candidate]:
    space = Space(find_model(request.model), request.stack, request.npus, request.global_batch, request.seq)
    return [Candidate(0, plan, axes) for plan in space.plans() for axes in placements(plan)]


def exhaustive(request: PlanRequest, line: str, device=H100) -> list[tuple[str, str, float]]:
    """Plan, placement and step time of the best, from every candidate that fits."""
    best: dict[object, tuple[float, Candidate]] = {}
    for each in candidates(request):
        memory = sum(memory_by_part(find_model(request.model), each.plan, request.stack).values())
        if device.memory_bytes and memory > device.memory_bytes:
            continue
        try:
            mine = (step_s(request, each, line, composed=True), each)
        except InputError:
            continue
        best[each.plan] = min(mine, best.get(each.plan, mine), key=lambda one: (one[0], one[1].words))
    few = [each for _, each in sorted(best.values(), key=lambda one: (one[0], one[1].words))[: request.best]]
    full = sorted((step_s(request, each, line), each.words, each) for each in few)
    return [(words[1], ",".join(each.axes), time_s) for time_s, words, each in full]


@cache
def step_s(request: PlanRequest, each: Candidate, line: str, *, composed: bool = False) -> float:
    step = EstimateRequest(request.model, each.plan, request.stack, request.algorithms, each.axes)
    most = {"most_events": 0} if composed else {}
    return estimate(step, topology_of(line), H100, **most).step_time_s


def table(planned: Planned) -> list[tuple[str, str, float]]:
    return [(row.plan, row.axes, row.step_time_s) for row in planned.rows]
