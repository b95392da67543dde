"""Searches of small spaces, and what timing every candidate finds."""

from dataclasses import replace
from functools import cache
from random import Random

from emu.errors import InputError
from emu.model.generate.generate import memory_by_part
from emu.model.model import find_model
from emu.model.plan.plan import Plan
from emu.model.stack.stack import SOFTWARE, Stack, find_software
from emu.study.planning.bound.candidate_bounds import CandidateBounds
from emu.study.planning.bound.outline import PATHS
from emu.study.planning.find import find_plans
from emu.study.planning.plan_request import Candidate, PlanRequest
from emu.study.planning.plan_row import PlanTable
from emu.study.planning.request_times.rates import LeastTime
from emu.study.planning.search.result_cache import ResultCache
from emu.study.planning.search.search_jobs import JobWorker, RequestJob
from emu.study.planning.space import Space, placements
from emu.study.training.composed.software_costs import costed_device, costed_topology
from emu.study.training.estimate import EstimateRequest, estimate
from emu.study.training.step_choice.algorithm_search import ALWAYS_COMPOSED
from emu.topology.catalogue import build_topology
from emu.trace.device.device import Device
from launch.data.devices import find_device
from tests.study.planning.enumerated import orders, plans

MODELS = ("llama-tiny", "gpt-tiny", "gpt-moe-tiny", "deepseek-tiny", "nemotron-tiny", "mixtral-tiny")
LINES = {
    "ub-mesh:board": 8,
    "ub-mesh:rack": 64,
    "fat-tree:radix=4": 16,
    "fat-tree:radix=8": 128,
    "servers:nodes=2,gpus=4": 8,
    "servers:nodes=8,gpus=8": 64,
    "torus:dims=4x4x4,bandwidth=50GB/s,latency=500ns": 64,
    "switch:n=64,bandwidth=50GB/s,latency=500ns": 64,
}
H100 = find_device("h100", "bfloat16")
KEPT = ResultCache(None)  # of all tests, but for those of what is kept
topology_of = cache(build_topology)


def asked(model: str, npus: int, batch: int, seq: int, software: str = "megatron", top: int = 4, by=()) -> PlanRequest:
    """A request that proves all of its plans, as timing every candidate does."""
    return PlanRequest(model, npus, batch, seq, Stack(find_software(software)), by, top=top, prove_all=True)


def drawn(seed: int, most: int, largest: int) -> tuple[PlanRequest, str, Device]:
    """A space at random, of `most` plans at the most, on `largest` NPUs or fewer; its device may have little memory."""
    random = Random(seed)
    while True:
        npus = 2 ** random.randint(1, largest.bit_length() - 1)
        lines = [line for line, n in LINES.items() if n >= npus]
        software, seq = random.choice(sorted(SOFTWARE)), 2 ** random.randint(5, 8)
        request = asked(
            random.choice(MODELS), npus, random.choice((1, 2, 4, 6, 8, 16)), seq, software, random.choice((2, 5, 10))
        )
        plans = list(dict.fromkeys(each.plan for each in candidates(request)))
        if request.top < len(plans) <= most:
            sizes = sorted(held(request, plan) for plan in random.sample(plans, min(20, len(plans))))
            memory = random.choice((0, sizes[-1], sizes[len(sizes) // 2]))
            return request, random.choice(lines), replace(H100, memory_bytes=memory)


def held(request: PlanRequest, plan: Plan) -> int:
    return sum(memory_by_part(find_model(request.model), plan, request.stack).values())


def of(request, line):
    device = costed_device(request.stack, H100).for_ranks(request.npus)
    ways = PATHS[request.stack.software](find_model(request.model), request.stack, device)
    return CandidateBounds(ways, [costed_topology(request.stack, topology_of(line))])


def tightest_s(placed: CandidateBounds, each: Candidate, times) -> float:
    """Return a candidate's bound by the times of its own requests, once all are known."""
    is_final = False
    while not is_final:
        [(least_s, is_final)] = placed.tighter([each], times)
    return least_s


def times(request, line):
    """Return a function that times requests as a search has them timed."""
    worker = JobWorker(request, find_model(request.model), (topology_of(line),), H100)
    return lambda number, wanted: {name: LeastTime(**worker(RequestJob(number, each))) for name, each in wanted.items()}


def found(request: PlanRequest, line: str, device=H100, kept: ResultCache | None = None, **words) -> PlanTable:
    return find_plans(request, [topology_of(line)], device, kept or KEPT, **words)


def candidates(request: PlanRequest) -> list[Candidate]:
    space = Space(find_model(request.model), request.stack, request.npus, request.global_batch, request.seq)
    return [Candidate(0, plan, axes) for plan in space.plans() for axes in placements(plan)]


def enumerated(request: PlanRequest) -> list[Candidate]:
    """The candidates by other code than a search's."""
    found = plans(find_model(request.model), request.stack.software.name, request.npus, request.global_batch, request.seq)
    return [Candidate(0, plan, axes) for plan in found for axes in orders(plan)]


def exhaustive(request: PlanRequest, line: str, device=H100) -> list[tuple[str, str, float]]:
    """Plan, placement and step time of the best, from every candidate that fits."""
    best: dict[object, tuple[float, Candidate]] = {}
    for each in enumerated(request):
        if device.memory_bytes and held(request, each.plan) > device.memory_bytes:
            continue
        try:
            mine = (step_s(request, each, line, composed=True), each)
        except InputError:
            continue
        best[each.plan] = min(mine, best.get(each.plan, mine), key=lambda one: (one[0], one[1].tie_key))
    few = [each for _, each in sorted(best.values(), key=lambda one: (one[0], one[1].tie_key))[: request.top]]
    full = sorted((step_s(request, each, line), each.tie_key, each) for each in few)
    return [(words[1], ",".join(each.axes), time_s) for time_s, words, each in full]


@cache
def step_s(request: PlanRequest, each: Candidate, line: str, *, composed: bool = False) -> float:
    step = EstimateRequest(request.model, each.plan, request.stack, request.algorithms, each.axes)
    most = {"effort": ALWAYS_COMPOSED} if composed else {}
    return estimate(step, topology_of(line), H100, **most).step_time_s


def table(planned: PlanTable) -> list[tuple[str, str, float]]:
    return [(row.plan, row.axes, row.step_time_s) for row in planned.rows]
