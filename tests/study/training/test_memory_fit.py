"""A model that does not fit a device is refused: by how much, which parts take it, and the nearest plan that fits."""

import re
from dataclasses import replace

import pytest

from emu.errors import InputError
from emu.model.generate.generate import memory_by_part
from emu.model.model import MODELS
from emu.model.plan.plan_checks import check_fits_model
from emu.model.plan.plan_text import parse_plan, spell
from emu.model.stack.software import MEGATRON
from emu.model.stack.stack import Stack
from emu.study.training.memory_fit import fitting_memory, nearest_plan
from emu.units import format_size
from launch.data.devices import find_device

H100 = find_device("h100", "bfloat16")
STACK = Stack()


def needed(model, plan):
    return sum(memory_by_part(model, plan, STACK).values())


# What does not fit an H100, on how many NPUs, and the plan that is named instead.
CASES = [
    ("llama3-8b", "dp=8", 64, 8, "tp=8,microbatch=1"),
    ("llama3-8b", "dp=8,microbatch=8", 64, 8, "tp=8,microbatch=1"),
    ("llama3-8b", "dp=64", 64, 64, "dp=64,sharding=fsdp"),
    ("llama3-8b", "tp=2,dp=8,sharding=zero1,sp", 64, 64, "tp=2,dp=4,pp=2,sp,sharding=zero1"),
    ("llama3-70b", "tp=8,dp=8", 64, 64, "tp=8,pp=8,sp"),
    ("llama3.1-405b", "tp=8,sp,pp=9,dp=2", 64, 1024, "tp=8,dp=2,pp=9,sp,sharding=fsdp,recompute=full"),
    ("mixtral-8x22b", "ep=8,dp=8", 64, 64, "ep=8,dp=8,pp=8,recompute=full"),
]


@pytest.mark.parametrize(("name", "text", "batch", "npus", "wanted"), CASES)
def test_the_plan_that_is_named_instead_fits_and_with_fewer_changes_none_does(name, text, batch, npus, wanted):
    model, plan = MODELS.find(name), parse_plan(text, global_batch=batch, seq=8192)
    found = nearest_plan(model, plan, STACK, H100.memory_bytes, npus)
    assert spell(found) == wanted
    check_fits_model(found, model)
    assert found.world <= npus
    assert (found.global_batch, found.seq) == (plan.global_batch, plan.seq)
    assert needed(model, found) <= H100.memory_bytes < needed(model, plan)
    for change in ({"recompute": "full"}, {"microbatch": 1}, {"sharding": "zero1"}, {"sharding": "fsdp"}):
        if len(changes(plan, found)) > 1:
            assert needed(model, replace(plan, **change)) > H100.memory_bytes


def changes(plan, found):
    """Names of what differs; dp gives what tp and pp take."""
    return {name for name in plan.__dataclass_fields__ if getattr(plan, name) != getattr(found, name)} - {"dp"}


def test_a_refusal_says_how_much_is_missing_where_it_is_and_what_fits():
    model, plan = MODELS.find("llama3-8b"), parse_plan("dp=64", global_batch=64, seq=8192)
    parts = memory_by_part(model, plan, STACK)
    takes, more, fits = (format_size(size) for size in (needed(model, plan), needed(model, plan) - 80 * 10**9, 80 * 10**9))
    told = [f"{name.replace('_', ' ')} {format_size(parts[name])}" for name in sorted(parts, key=lambda name: -parts[name])]
    message = (
        f"plan: llama3-8b by dp=64 takes {takes} of a rank's memory, {more} more than the {fits} of the h100: {', '.join(told)}"
        "; the nearest that fits is dp=64,sharding=fsdp, which takes "
        f"{format_size(needed(model, replace(plan, sharding='fsdp')))}"
    )
    assert told[0].startswith("activations")  # of the logits, and of the loss in float32
    with pytest.raises(InputError, match=f"^{re.escape(message)}$"):
        fitting_memory(model, plan, STACK, H100, 64)


def test_more_ranks_are_named_where_no_plan_of_as_many_fits():
    model, plan = MODELS.find("llama3-70b"), parse_plan("tp=8", global_batch=8, seq=2048)
    with pytest.raises(InputError, match=r"; the nearest that fits on 32 ranks is tp=8,pp=4, which takes \S+ GiB$"):
        fitting_memory(model, plan, STACK, H100, 32)
    with pytest.raises(
        InputError, match="; no plan near it on 8 ranks fits: take a larger topology, or another global batch or"
    ):
        fitting_memory(model, plan, STACK, H100, 8)


def test_what_fits_is_let_through_with_its_parts_and_so_is_all_where_the_memory_is_not_known():
    model, plan = MODELS.find("llama3-8b"), parse_plan("tp=8,sp,dp=8,microbatch=1", global_batch=64, seq=8192)
    assert fitting_memory(model, plan, STACK, H100, 64) == memory_by_part(model, plan, STACK)
    large = replace(plan, tp=1, sp=False)
    assert fitting_memory(model, large, STACK, replace(H100, memory_bytes=0), 64) == memory_by_part(model, large, STACK)


def test_the_plan_that_is_named_is_one_that_the_software_has() -> None:
    """Megatron-LM's distributed optimizer, and no FSDP2."""
    model, plan = MODELS.find("llama3-8b"), parse_plan("dp=64", global_batch=64, seq=8192)
    found = {stack.software.name: nearest_plan(model, plan, stack, 80 * 10**9, 64) for stack in (Stack(MEGATRON), Stack())}
    assert {software: spell(near) for software, near in found.items()} == {
        "megatron": "dp=16,pp=4",
        "pytorch": "dp=64,sharding=fsdp",
    }
