"""The layers of each stage of a pipeline."""

from emu.errors import must_be
from emu.model.model import EMBEDDING, HEAD, Model
from emu.model.plan.plan import Plan, divisors, nearest
from emu.model.plan.plan_text import spell_layers


def stage_layers(plan: Plan, model: Model) -> tuple[int, ...]:
    """Return the number of layers of each stage, in the order of the model.

    Raises:
        InputError: the stages do not have all layers of the model, or its layers cannot be divided evenly.
    """
    layers = f"of the {model.layers} layers of {model.name}"
    if plan.layers:
        if sum(plan.layers) != model.layers:
            mend = f"take layers={_even_layers_text(model.layers, plan.stages)}"
            raise must_be("plan", "layers", f"{model.layers} in all, as {model.name} has", sum(plan.layers), mend)
        return plan.layers
    if model.layers % plan.stages:
        fits = nearest(plan.pp, (pp for pp in divisors(model.layers) if model.layers % (pp * plan.vp) == 0))
        stages = f"pp={fits}" if fits else f"pp * vp = {nearest(plan.stages, divisors(model.layers))}"
        each = f", or say what each stage has: layers={_even_layers_text(model.layers, plan.stages)}"
        mend = f"take {stages}{each if plan.stages <= model.layers else ''}"
        raise must_be("plan", "pp * vp", f"a divisor {layers}", plan.stages, mend)
    return (model.layers // plan.stages,) * plan.stages


def part_names(plan: Plan, model: Model, stage: int) -> tuple[str, ...]:
    """Return the names of the parts of the model that a stage has, in the order of the model."""
    sizes = stage_layers(plan, model)
    first = sum(sizes[:stage])
    kinds = model.kinds[first : first + sizes[stage]]
    return (*([EMBEDDING] if stage == 0 else []), *kinds, *([HEAD] if stage == plan.stages - 1 else []))


def even_layers(layers: int, stages: int) -> tuple[int, ...]:
    """Return the number of layers of each stage, as even as possible; first and last stages get fewer."""
    low, more = divmod(layers, stages)
    first = (stages - more) // 2
    return (*[low] * first, *[low + 1] * more, *[low] * (stages - more - first))


def _even_layers_text(layers: int, stages: int) -> str:
    return spell_layers(even_layers(layers, stages))
