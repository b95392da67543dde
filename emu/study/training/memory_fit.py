"""The check that a plan fits the memory of a device, and the nearest plan that fits."""

from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import product
from typing import Any

from emu.errors import InputError, mendable
from emu.model.generate.generate import memory_by_part
from emu.model.model import Model
from emu.model.plan.plan import Plan, divisors
from emu.model.plan.plan_checks import check_fits_model, check_runs
from emu.model.plan.plan_text import spell
from emu.model.stack.stack import Stack
from emu.trace.device.device import Device
from emu.units import format_size

_TIMES = (1, 2, 4, 8, 16, 32, 64)  # what tp and pp may be multiplied by
_SHARDING = ("ddp", "zero1", "fsdp")  # each keeps less on a rank than the one before


def fitting_memory(model: Model, plan: Plan, stack: Stack, device: Device, most_ranks: int) -> dict[str, int]:
    """Return the bytes of a rank by part; refuse a plan that needs more bytes than the device has.

    Args:
        model: The model that is trained.
        plan: The plan.
        stack: The software, with its precision.
        device: The device. If its memory is unknown (0), every plan fits.
        most_ranks: The most ranks that a proposed plan may have.

    Raises:
        InputError: The message says how much is missing, which parts take it, and the nearest plan that fits.
    """
    memory = memory_by_part(model, plan, stack)
    needed, has = sum(memory.values()), device.memory_bytes
    if not has or needed <= has:
        return memory
    line = (
        f"plan: {model.name} by {spell(plan)} takes {format_size(needed)} of a rank's memory, {format_size(needed - has)} more "
        f"than the {format_size(has)} of the {device.name}: {parts_text(memory)}"
    )
    raise mendable(line, "plan", spell(plan), _proposal_text(model, plan, stack, has, most_ranks))


def parts_text(memory: Mapping[str, int]) -> str:
    """Return the contents of a rank's memory as text, the largest first, such as `weights 12 GiB, activations 3 GiB`.

    Args:
        memory: The bytes of each content, such as `weights`.
    """
    largest_first = sorted(memory.items(), key=lambda part: -part[1])
    return ", ".join(f"{name.replace('_', ' ')} {format_size(size)}" for name, size in largest_first)


def _proposal_text(model: Model, plan: Plan, stack: Stack, has: int, most_ranks: int) -> str:
    """Return the phrase of an error that proposes the nearest plan that fits the memory.

    Args:
        model: The model.
        plan: The plan that does not fit.
        stack: The software.
        has: The bytes of the device's memory.
        most_ranks: The most ranks that a proposed plan may have.
    """
    found = nearest_plan(model, plan, stack, has, most_ranks)
    if found is None:
        return f"no plan near it on {most_ranks} ranks fits: take a larger topology, or another global batch or sequence"
    takes = format_size(sum(memory_by_part(model, found, stack).values()))
    ranks = "" if found.world == plan.world else f" on {found.world} ranks"
    return f"the nearest that fits{ranks} is {spell(found)}, which takes {takes}"


def nearest_plan(model: Model, plan: Plan, stack: Stack, has: int, most_ranks: int) -> Plan | None:
    """Return the plan that fits the memory with the fewest changes; None if none fits.

    Of several, the one with the fewest ranks is returned, then the first.
    Changes are a smaller microbatch, states sharded further, sequence parallelism, more tp, more pp, and full recomputation,
    in this order. More tp or pp takes ranks from dp, where that divides, or takes more ranks.
    """
    for _, _, values in sorted(_smaller_plans(plan, most_ranks), key=lambda found: found[:2]):
        try:
            found = replace(plan, **values)
            check_fits_model(found, model, stack)
            check_runs(found, model, stack)
        except InputError:
            continue
        if sum(memory_by_part(model, found, stack).values()) <= has:
            return found
    return None


def _smaller_plans(plan: Plan, most_ranks: int) -> Iterator[tuple[int, int, Mapping[str, Any]]]:
    """Yield changes of a plan that need less memory: the number of changed settings, the ranks, and the new values."""
    smaller = sorted((d for d in divisors(plan.rank_batch) if d < plan.pass_batch), reverse=True)
    shardings = _SHARDING[_SHARDING.index(plan.sharding) :]
    every = product((plan.recompute, "full"), _TIMES, _TIMES, (plan.sp, True), shardings, (plan.microbatch, *smaller))
    for recompute, pp, tp, sp, sharding, microbatch in every:
        wanted = {"recompute": recompute, "pp": plan.pp * pp, "tp": plan.tp * tp, "sp": sp, "sharding": sharding}
        changed = {name: value for name, value in wanted.items() if value != getattr(plan, name)}
        changed |= {"microbatch": microbatch} if microbatch != plan.microbatch else {}
        ranks = plan.world * tp * pp
        if tp * pp > 1 and plan.dp % (tp * pp) == 0:
            yield len(changed), plan.world, {**changed, "dp": plan.dp // (tp * pp)}
        if ranks <= most_ranks:
            yield len(changed), ranks, changed
