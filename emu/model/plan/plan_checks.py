"""The checks of a plan: whether it fits a model and a topology, and whether it can run."""

from collections.abc import Mapping
from contextlib import suppress
from dataclasses import replace
from math import gcd
from typing import Any

from emu.errors import InputError, either, must_be
from emu.model.model import EXPERT_COLUMNS, Model
from emu.model.operator import OPS
from emu.model.plan.plan import AXES, Plan, divisors, multiples, nearest
from emu.model.plan.stage_layers import _even_layers_text, stage_layers
from emu.model.stack.software import CHUNKED, OVERLAPPED
from emu.model.stack.stack import Stack

_PYTORCH = Stack()


def check_world(plan: Plan, model: Model, n_npus: int, of: str, stack: Stack = _PYTORCH) -> None:
    """Check that a topology has enough NPUs for the ranks of a plan.

    Raises:
        InputError: it has not; the message names the nearest size of one axis that fits.
    """
    if plan.world > n_npus:
        found = filter(None, (_smaller(plan, model, axis, n_npus, stack) for axis in ("dp", "pp", "cp", "tp")))
        near = max(found, key=lambda each: each[1].world, default=None)
        mend = (
            f"take {near[0]}={getattr(near[1], near[0])}, or a larger topology"
            if near
            else "take smaller axes, or a larger topology"
        )
        raise must_be("plan", " * ".join(AXES), f"at most the {n_npus} NPUs of {of}", plan.world, mend)


def _smaller(plan: Plan, model: Model, axis: str, most: int, stack: Stack) -> tuple[str, Plan] | None:
    """Return `axis`, and the plan with the largest size of it that fits at most `most` ranks; None if no size fits."""
    others = plan.world // getattr(plan, axis)
    for size in range(most // others, 0, -1):
        changed: dict[str, Any] = {axis: size}
        with suppress(InputError):
            found = replace(plan, **changed)
            check_fits_model(found, model, stack)
            return axis, found
    return None


def tp_sizes(model: Model, stack: Stack) -> Mapping[str, int]:
    """Return the sizes that tp must divide, by name; without the vocabulary if the software pads it.

    The padding is in `emu.model.layer_on_rank`.
    """
    fills_up = stack.software.pads_vocabulary and model.describe is not None
    return model.tp_divides if fills_up else {**model.tp_divides, "vocabulary": model.vocab}


def check_fits_model(plan: Plan, model: Model, stack: Stack = _PYTORCH) -> None:
    """Check that the axes of a plan divide the sizes of a model.

    Raises:
        InputError: they do not; the message names the nearest sizes that fit.
    """
    sizes = tp_sizes(model, stack)
    for name, size in sizes.items():
        if size % plan.tp:
            fits = nearest(plan.tp, divisors(gcd(*sizes.values())))
            raise must_be("plan", "tp", f"a divisor of the {size} {name} of {model.name}", plan.tp, f"take tp={fits}")
    _check_experts(plan, model)
    _check_ops(plan, stack)
    if plan.seq > model.max_seq:
        mend = f"take {model.max_seq}, or a model with a larger max_seq"
        raise must_be("plan", "seq", f"at most the {model.max_seq} tokens of {model.name}", plan.seq, mend)
    stage_layers(plan, model)


def _check_ops(plan: Plan, stack: Stack) -> None:
    """Check that it is known which outputs the software keeps if the plan says `recompute=ops`."""
    if plan.recompute != OPS:
        return
    known = stack.software.recompute
    if plan.recompute not in known:
        raise must_be("plan", "recompute", f"{either(known)} with software={stack.software.name}", plan.recompute)
    for name in ("tp", "cp", "ep"):
        if getattr(plan, name) > 1:
            mend = f"take recompute=selective or full, or {name}=1"
            raise must_be("plan", name, f"1 with recompute={OPS}", getattr(plan, name), mend)
    if plan.splits:
        raise must_be("plan", "order", f"one of whole backwards with recompute={OPS}", plan.pipeline, "take order=1f1b")


_WITHOUT_EXPERTS = {
    "ep": "take ep=1",
    "etp": "take etp=0, which is tp",
    "capacity": "take capacity=0",
    "imbalance": "take imbalance=0",
}


def _check_experts(plan: Plan, model: Model) -> None:
    for name, mend in _WITHOUT_EXPERTS.items():
        value = getattr(plan, name)
        if not model.experts and value > (1 if name == "ep" else 0):
            raise must_be("plan", name, f"left out, as {model.name} has no experts", value, mend)
    if model.experts and model.experts % plan.ep:
        mend = f"take ep={nearest(plan.ep, divisors(model.experts))}"
        raise must_be("plan", "ep", f"a divisor of the {model.experts} experts of {model.name}", plan.ep, mend)
    columns = model.tp_divides.get(EXPERT_COLUMNS, 0)
    if plan.etp and columns % plan.etp:
        mend = f"take etp={nearest(plan.etp, divisors(gcd(columns, plan.stage_ranks // plan.ep)))}"
        raise must_be("plan", "etp", f"a divisor of the {columns} {EXPERT_COLUMNS} of {model.name}", plan.etp, mend)
    if plan.exchanges and plan.rank_seq % plan.tp:
        what = f"such that the {plan.rank_seq} tokens of a rank divide by tp={plan.tp}, as its block of experts requires"
        raise must_be(
            "plan", "seq", what, plan.seq, f"take {multiples(plan.seq, plan.tp * plan.cp * (2 if plan.cp > 1 else 1))}"
        )


def check_runs(plan: Plan, model: Model, stack: Stack = _PYTORCH) -> None:
    """Check that the software of a stack supports a plan, and that its requests are known.

    Raises:
        InputError: it cannot; the message names what it can.
    """
    software = stack.software
    for word, value, known in (("order", plan.pipeline, software.orders), ("sharding", plan.sharding, software.shardings)):
        if value not in known:
            raise must_be("plan", word, f"{either(known)} with software={software.name}", value)
    if 1 < plan.shard_ranks < plan.dp and not software.shards_over_part:
        raise must_be("plan", "shard", f"0 or {plan.dp} with software={software.name}", plan.shard)
    if stack.tp in (OVERLAPPED, CHUNKED) and plan.tp > 1 and not plan.sp:
        raise must_be("plan", "sp", f"on where the stack says tp={stack.tp}", "off", f"{software.title} overlaps no all_reduce")
    if software.is_executed:
        _check_executed(plan, model, software.name)


def _check_executed(plan: Plan, model: Model, software: str) -> None:
    """Check that Emu can train by a plan on real ranks, and not only time it."""
    if plan.dropout:
        raise must_be("plan", "dropout", f"0 with software={software}", plan.dropout, "its models have no dropout")
    if plan.imbalance:
        raise must_be("plan", "imbalance", f"0 with software={software}", plan.imbalance, "its routers choose the experts")
    if not all(stage_layers(plan, model)):
        mend = (
            f"take layers={_even_layers_text(model.layers, plan.stages)}"
            if plan.stages <= model.layers
            else "take less pp or vp"
        )
        raise must_be("plan", "layers", f"1 or more in each stage with software={software}", 0, mend)
    if plan.pp > 1:
        plan.check_order(executed=True)
    if plan.splits and plan.shards_weights:
        mend = "PyTorch's hooks for fsdp do not see a split backward; or take order=interleaved or 1f1b"
        raise must_be("plan", "sharding", f"ddp or zero1 in the order {plan.pipeline}", plan.sharding, mend)
