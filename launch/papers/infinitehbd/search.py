"""The best plan within the limits of table 2: TP of 1, 2 ... 128, PP of 1, 2 ... 16, DP of 1 to 1024 (footnote 6)."""

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from typing import NamedTuple

from emu.dtypes import item_bytes
from emu.errors import InputError
from emu.model.generate.generate import memory_by_part
from emu.model.generate.item import Ask
from emu.model.model import MODELS
from emu.model.plan.plan import Plan
from emu.study.planning.bound.bound import Outlines
from emu.study.planning.bound.charts import Charts
from emu.study.planning.bound.rates import Rates, RequestTime, UnplacedRequests
from emu.study.planning.bound.tape_paths import MegatronPaths
from emu.study.planning.search.row import PlanRow
from emu.study.training.composed.software_costs import device_under, topology_under
from emu.topology.topology import Topology
from emu.units import format_size
from launch.papers.infinitehbd.setting import GPUS, InfiniteHBDSteps, Training, plan_of

_TPS, _PPS, _MOST_DP = (1, 2, 4, 8, 16, 32, 64, 128), (1, 2, 4, 8, 16), 1024


class BestPlan(NamedTuple):
    """The plan with the shortest step."""

    plan: Plan
    step: PlanRow
    told: str  # how it was found, in words


def best_plan(steps: InfiniteHBDSteps, training: Training, gpus: int, tp: int = 0) -> BestPlan:
    """Return the best plan: plans are estimated in the order of their bounds, until no bound is below the best step.

    Args:
        steps: The estimates of steps.
        training: The model and what all its plans share.
        gpus: The number of GPUs.
        tp: The size of tensor parallelism; 0: any.

    Raises:
        InputError: no plan has this number of GPUs and fits the memory.
    """
    plans = [plan for plan in _plans(training, gpus, tp) if _states(steps, training, plan) <= steps.memory_bytes]
    bounds = _least_s(steps, training, plans)
    bounded = sorted(zip(bounds, range(len(plans)), plans, strict=True), key=lambda each: each[:2])
    if not bounded:
        raise InputError(f"repro: no plan within the limits of table 2 has {gpus} GPUs and fits their memory")
    found: dict[Plan, PlanRow] = {}
    for bound, _, plan in bounded:
        if found and bound >= min(step.step_time_s for step in found.values()):
            break
        found[plan] = steps.of(training, plan)
    won = min(found, key=lambda plan: found[plan].step_time_s)
    room = format_size(steps.memory_bytes)
    words = f"the best of {len(plans)} plans whose states take {room} or less; {len(found)} estimated: no other can be faster"
    return BestPlan(won, found[won], words)


def _plans(training: Training, gpus: int, tp: int) -> Iterator[Plan]:
    """Yield the plans within the limits of table 2."""
    for own, pp in product([tp] if tp else _TPS, _PPS):
        dp, left = divmod(gpus, own * pp)
        if not left and 1 <= dp <= _MOST_DP:
            yield plan_of(training, own, pp, dp)


def _states(steps: InfiniteHBDSteps, training: Training, plan: Plan) -> int:
    """Return the bytes that a GPU holds even with full recomputation: weights, gradients and states of the optimizer."""
    parts = memory_by_part(MODELS.find(training.model), plan, steps.stack(plan))
    return sum(size for part, size in parts.items() if part != "activations")


def _least_s(steps: InfiniteHBDSteps, training: Training, plans: Sequence[Plan]) -> Iterator[float]:
    """Yield a lower bound of the step time of each plan, in seconds; parts that plans share are computed once."""
    known: dict[int, tuple[Outlines, Charts]] = {}
    for plan in plans:
        stack, model = steps.stack(plan), MODELS.find(training.model)
        device = device_under(stack, steps.device).over(plan.world)
        if plan.world not in known:
            ways = MegatronPaths(model, stack, device)
            known[plan.world] = Outlines(ways), Charts(ways)
        outlines, charts = known[plan.world]
        outline, rings = outlines.of(plan), _Rings.under(plan, topology_under(stack, steps.topology(plan)))
        yield max(outline.seconds(rings), charts.seconds(outline, rings))


@dataclass(frozen=True, eq=False)
class _Rings:
    """The least times of requests where the ranks of tp are a ring, and others are joined by one cable of the DCN for a GPU."""

    anywhere: UnplacedRequests
    ring_Bps: float
    cable_Bps: float

    @staticmethod
    def under(plan: Plan, topology: Topology) -> "_Rings":
        """Return the least times for a plan on its rings; with tp below the GPUs of a node, other ranks are in the ring too."""
        first = topology.links.bandwidth_Bps[topology.links.src == 0]
        cable = float(first.min()) if plan.tp >= GPUS else float(first.sum())
        return _Rings(UnplacedRequests(Rates.of(topology), plan), float(first.sum() - first.min()), cable)

    def place_key(self, place: int) -> Hashable:
        """Return the key of a place, as `Requests` asks for it."""
        return self.anywhere.place_key(place)

    def axes_key(self, place: int, axes: tuple[str, ...]) -> Hashable:
        """Return the key of the axes at a place, as `Requests` asks for it."""
        return self.ring_Bps, self.cable_Bps, self.anywhere.axes_key(place, axes)

    def collective(self, place: int, ask: Ask) -> RequestTime:
        """Return the least time of a collective; a ring adds up in 2 (n - 1) parts of n (stack.toml)."""
        if ask.axis == "tp" and ask.operation == "all_reduce":
            ranks, size = self.anywhere.sizes["tp"], ask.elements * item_bytes(ask.dtype)
            return RequestTime(0.0, 2 * (ranks - 1) / ranks * size / self.ring_Bps)
        return self._between.collective(place, ask) if ask.axis == "dp" else self.anywhere.collective(place, ask)

    def messages(self, to: int, size: int) -> Sequence[RequestTime]:
        """Return the least times of messages to a place, as `Requests` asks for them."""
        return self._between.messages(to, size)

    @property
    def _between(self) -> UnplacedRequests:
        return UnplacedRequests(Rates(self.cable_Bps, self.cable_Bps), self.anywhere.plan)
