"""Steps of every architecture with any setting of the plan and of the stack, drawn at random; nothing is timed."""

from collections.abc import Iterator
from itertools import islice
from random import Random
from typing import NamedTuple

from benchmarks.composed.drawn import MOST_PASSES, MOST_RANKS
from emu.errors import InputError
from emu.model.model import find_model
from emu.model.plan.plan import CHOICES, Plan
from emu.model.plan.plan_checks import check_fits_model, check_runs
from emu.model.plan.plan_text import parse_plan, spell
from emu.model.stack.stack import ROLES, SOFTWARE, Stack, parse_stack

_MODELS = (
    "llama-tiny", "gpt-tiny", "nemotron-tiny", "mixtral-tiny", "deepseek-tiny", "qwen3-moe-tiny", "grok-tiny", "gpt-moe-tiny",
)  # fmt: skip
_EXPERTS = frozenset(_MODELS[3:])
_SIZES = {"tp": (1, 2, 2, 4), "cp": (1, 1, 2, 4), "dp": (1, 2, 4), "pp": (1, 1, 2, 4)}
_OTHER_DTYPES = ("float32", "bfloat16", "float8_e4m3fn")


class DrawnStep(NamedTuple):
    """A step that Emu accepts: a model, a plan and a stack."""

    model: str
    plan: Plan
    stack: Stack


def drawn_step(seed: int) -> DrawnStep:
    """Return a step that follows from a seed alone: the first one drawn that Emu accepts."""
    return next(each for each in _draws(Random(seed)) if isinstance(each, DrawnStep))


def refusals(seed: int, count: int) -> list[str]:
    """Return what is said of some drawn steps: why each is refused, or how its plan is spelled."""
    few = islice(_draws(Random(f"refused {seed}")), count)
    return [spell(each.plan) if isinstance(each, DrawnStep) else str(each) for each in few]


def _draws(rng: Random) -> Iterator[DrawnStep | InputError]:
    """Yield steps without end, each that is small enough to be generated, or why it is refused."""
    while True:
        name, software = rng.choice(_MODELS), rng.choice(sorted(SOFTWARE))
        try:
            plan, stack = _plan(rng, name, software), parse_stack(_stack(rng, software))
            check_fits_model(plan, find_model(name), stack)
            check_runs(plan, find_model(name), stack)
        except InputError as error:
            yield error
            continue
        if plan.world <= MOST_RANKS and plan.world * plan.passes <= MOST_PASSES:
            yield DrawnStep(name, plan, stack)


def _plan(rng: Random, name: str, software: str) -> Plan:
    """Return a drawn plan, which may be impossible."""
    sizes = {axis: rng.choice(of) for axis, of in _SIZES.items()}
    words = [f"{axis}={size}" for axis, size in sizes.items()]
    if name in _EXPERTS and rng.random() < 0.7:
        words += [f"ep={rng.choice((2, 2, 4))}"] + [f"etp={rng.choice((1, 2))}"] * (rng.random() < 0.3)
        words += rng.choice(([], ["capacity=1.5"], ["imbalance=0.3"]))
    for key, known in CHOICES.items():
        words += [f"{key}={rng.choice(known)}"] * (rng.random() < 0.6)
    if sizes["pp"] > 1:
        words += [f"order={rng.choice(SOFTWARE[software].orders)}"] + ["vp=2"] * (rng.random() < 0.6)
    words += ["sp"] * (rng.random() < 0.5) + ["clip=1"] * (rng.random() < 0.5) + ["dropout=0.1"] * (rng.random() < 0.2)
    words += [f"shard={rng.choice((2, 4))}"] * (rng.random() < 0.1) + ["microbatch=2"] * (rng.random() < 0.4)
    batch = sizes["dp"] * rng.choice((1, 2, 4)) * sizes["pp"]
    return parse_plan(",".join(words), global_batch=batch, seq=rng.choice((32, 64)))


def _stack(rng: Random, software: str) -> str:
    """Return the words of a drawn stack, which may be impossible."""
    words = [f"software={software}"]
    for key, values in SOFTWARE[software].settings.items():
        words += [f"{key}={rng.choice(values)}"] * (len(values) > 1 and rng.random() < 0.35)
    unfusable = SOFTWARE[software].unfusable
    words += [f"unfused={kind}" for kind in unfusable if rng.random() < 0.1][:1]
    words += [f"{role}={rng.choice(_OTHER_DTYPES)}" for role in ROLES if rng.random() < 0.08]
    return ",".join(words)
