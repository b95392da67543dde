"""Does a plan fit a model, and can it be executed? All is checked before anything is built."""

from collections.abc import Iterable
from math import gcd

from emu.errors import must_be
from emu.model.model import Model
from emu.model.order import ORDERS
from emu.model.plan import Plan, divisors, nearest


def check_fits(plan: Plan, model: Model, world: int | None = None) -> None:
    """Refuse a model that a plan does not divide, or a world of another size.

    Raises:
        InputError: the message names the nearest sizes that fit.
    """
    if world is not None and world != plan.world:
        raise must_be("plan", "the product of its axes", f"the {world} ranks of the world", plan.world)
    for name, size in model.tp_divides.items():
        if size % plan.tp:
            fits = nearest(plan.tp, divisors(_common(model.tp_divides.values())))
            raise must_be("plan", "tp", f"a divisor of the {size} {name} of {model.name}", plan.tp, f"take tp={fits}")
    _check_experts(plan, model)
    if plan.seq > model.max_seq:
        raise must_be("plan", "seq", f"at most the {model.max_seq} tokens of {model.name}", plan.seq)
    stage_layers(plan, model)


def _check_experts(plan: Plan, model: Model) -> None:
    for name in ("ep", "etp", "capacity"):
        value = getattr(plan, name)
        if not model.experts and value > (1 if name == "ep" else 0):
            raise must_be("plan", name, f"left out, as {model.name} has no experts", value)
    if model.experts and model.experts % plan.ep:
        mend = f"take ep={nearest(plan.ep, divisors(model.experts))}"
        raise must_be("plan", "ep", f"a divisor of the {model.experts} experts of {model.name}", plan.ep, mend)
    if plan.exchanges and plan.rank_seq % plan.tp:
        what = f"such that the {plan.rank_seq} tokens of a rank divide by tp={plan.tp}, as its block of experts asks"
        raise must_be("plan", "seq", what, plan.seq)


def check_executed(plan: Plan, model: Model) -> None:
    """Refuse what real ranks cannot train by.

    Raises:
        InputError: the message names what they can.
    """
    if plan.pp > 1 and ORDERS[plan.pipeline].splits and plan.sharding == "fsdp":
        mend = "PyTorch's hooks for fsdp do not see a split backward; or take order=interleaved or 1f1b"
        raise must_be("plan", "sharding", f"ddp or zero1 in the order {plan.pipeline}", plan.sharding, mend)
    if model.tied and plan.pp > 1 and {0, plan.stages - 1} <= set(plan.stages_of(0)):
        what = f"one whose ends are on two ranks, as {model.name} has one table for words in and out"
        raise must_be("plan", "order", what, plan.pipeline, "take order=1f1b, gpipe or interleaved")


def stage_layers(plan: Plan, model: Model) -> tuple[int, ...]:
    """Layers of each stage, in the order of the model.

    Raises:
        InputError: the stages do not have as many as the model, or those of the model do not divide.
    """
    told = f"of the {model.layers} layers of {model.name}"
    if plan.layers:
        if sum(plan.layers) != model.layers:
            raise must_be("plan", "layers", f"in all the {model.layers} of {model.name}", sum(plan.layers))
        return plan.layers
    if model.layers % plan.stages:
        fits = nearest(plan.pp, (pp for pp in divisors(model.layers) if model.layers % (pp * plan.vp) == 0))
        mend = f"take pp={fits}, or say what each stage has: layers={_spread(model.layers, plan.stages)}"
        raise must_be("plan", "pp * vp", f"a divisor {told}", plan.stages, mend)
    return (model.layers // plan.stages,) * plan.stages


def _spread(layers: int, stages: int) -> str:
    """As even as can be, the ends with fewer, for the embedding and the head weigh too."""
    low, more = divmod(layers, stages)
    if not more:
        return f"{low}x{stages}"
    first = (stages - more) // 2
    parts = ((low, first), (low + 1, more), (low, stages - more - first))
    return ",".join(f"{size}x{times}" if times > 1 else str(size) for size, times in parts if times)


def _common(sizes: Iterable[int]) -> int:
    return gcd(*sizes)
