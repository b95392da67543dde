"""The best plan of table 2's bounds: TP in 1, 2 ... 128, PP in 1, 2 ... 16, DP in 1, 2 ... 1024 (footnote 6)."""

from collections.abc import Iterator, Sequence
from itertools import product
from typing import NamedTuple

from emu.errors import InputError
from emu.model.model import MODELS
from emu.model.peak import memory_by_part
from emu.model.plan import Plan
from emu.study.planning.bound import Outlines
from emu.study.planning.placed import Placed
from emu.study.planning.ways import Ways
from emu.study.training.calls import device_under, topology_under
from emu.study.training.estimate import Estimated
from emu.units import format_size
from launch.papers.infinitehbd.setting import Steps, Training, plan_of, topology_of

_ROOM = 1.2  # of a GPU's memory: the plan printed for 1,024 GPUs takes 80.5 GiB here, the least of them with TP=8 92.8 GiB
_TPS, _PPS, _MOST_DP = (1, 2, 4, 8, 16, 32, 64, 128), (1, 2, 4, 8, 16), 1024


class Found(NamedTuple):
    """The plan with the least step."""

    plan: Plan
    step: Estimated
    told: str  # how it was found


def best(steps: Steps, training: Training, gpus: int, tp: int = 0) -> Found:
    """The best plan, of one TP where it is given: estimated in the order of bounds, until no bound is below the best step.

    Raises:
        InputError: no plan has so many GPUs.
    """
    plans = [plan for plan in _plans(training, gpus, tp) if _held(steps, training, plan) <= _ROOM * steps.memory_bytes]
    bounds = _least_s(steps, training, plans)
    bounded = sorted(zip(bounds, range(len(plans)), plans, strict=True), key=lambda each: each[:2])
    if not bounded:
        raise InputError(f"repro: no plan of the bounds has {gpus} GPUs and room for the model")
    found: dict[Plan, Estimated] = {}
    for bound, _, plan in bounded:
        if found and bound >= min(step.step_time_s for step in found.values()):
            break
        found[plan] = steps.of(training, plan)
    won = min(found, key=lambda plan: found[plan].step_time_s)
    room = format_size(int(_ROOM * steps.memory_bytes))
    words = f"the best of {len(plans)} plans of {room} or less; {len(found)} estimated: no other can be faster by its bound"
    return Found(won, found[won], words)


def _plans(training: Training, gpus: int, tp: int) -> Iterator[Plan]:
    for own, pp in product([tp] if tp else _TPS, _PPS):
        dp, left = divmod(gpus, own * pp)
        if not left and 1 <= dp <= _MOST_DP:
            yield plan_of(training, own, pp, dp)


def _held(steps: Steps, training: Training, plan: Plan) -> int:
    return sum(memory_by_part(MODELS.find(training.model), plan, steps.stack).values())


def _least_s(steps: Steps, training: Training, plans: Sequence[Plan]) -> Iterator[float]:
    """No step of each takes less; what plans on one topology have in common is worked out once."""
    by_topology: dict[str, Placed] = {}
    for plan in plans:
        word = topology_of(plan.world, plan.tp)
        if word not in by_topology:
            by_topology[word] = _bounds(steps, training, plan)
        yield by_topology[word].anywhere_s(plan)[0]


def _bounds(steps: Steps, training: Training, plan: Plan) -> Placed:
    device = device_under(steps.stack, steps.device).over(plan.world)
    outlines = Outlines(Ways(MODELS.find(training.model), steps.stack, device))
    return Placed(outlines, [topology_under(steps.stack, steps.topology(plan))])
