"""Plans enumerated without `Space`: what a person counts who knows how layers are dealt to the stages of a pipeline."""

from contextlib import suppress
from itertools import product

from emu.errors import InputError
from emu.model.model import Model
from emu.model.plan.plan import Plan
from emu.model.plan.plan_checks import check_fits_model, check_runs
from emu.model.plan.plan_text import parse_plan
from emu.model.stack.stack import Stack, find_software


def virtual_stages(layers: int, places: int) -> list[int]:
    """How many stages a place may have: such that all stages have as many layers, or a power of two.

    Embedding and head count as a layer each, so that a stage at either end may have none; every other has one or more.
    """
    every = range(1, layers + 3)
    whole = [each for each in every if each * places in [stages for stages in every if layers / stages == layers // stages]]
    powers = [2**exponent for exponent in range(layers.bit_length() + 1) if places * 2**exponent <= layers + 2]
    return sorted({*whole, *powers})


def dealt(layers: int, stages: int) -> list[int]:
    """Layers of each stage: as even as can be, those that have one more in the middle, where no embedding and no head is."""
    found, middle = [layers // stages] * stages, (stages - 1) / 2
    for stage in sorted(range(stages), key=lambda stage: (abs(stage - middle), stage))[: layers % stages]:
        found[stage] += 1
    return found


# What is searched of each word of a plan that is no size; of an order's name that of the default is left out.
NAMES = {
    "sharding": ("ddp", "zero1", "fsdp"),
    "recompute": ("none", "selective", "full"),
    "order": ("gpipe", "1f1b", "interleaved", "zero-bubble", "zbv", "dualpipev"),
    "cp_comm": ("p2p", "all_gather"),
}


def plans(model: Model, software: str, npus: int, batch: int, seq: int) -> set[Plan]:
    """All that take exactly so many NPUs: every combination of words that `--plan` takes, for the model and the software.

    A word is tried only where it says something: `cp_comm` under cp, `sp` under tp, `ep` and `etp` with experts, `sharding`
    where ranks have copies, `shard` (of PyTorch's) but for all of dp, `order` and `vp` under pp; `etp` is a divisor of tp.
    """
    found = set()
    for tp, cp, pp, dp in product(range(1, npus + 1), repeat=4):
        if tp * cp * pp * dp != npus:
            continue
        sizes = f"tp={tp},cp={cp},pp={pp},dp={dp}"
        words = {
            "sp": ("on", "off") if tp > 1 else ("off",),
            "ep": range(1, npus + 1) if model.experts else (1,),
            "etp": [0, *(each for each in range(1, tp) if tp % each == 0)] if model.experts else [0],
            "shard": range(dp) if software == "pytorch" else [0],
            "sharding": NAMES["sharding"] if dp * cp > 1 else ("ddp",),
            "recompute": NAMES["recompute"],
            "cp_comm": NAMES["cp_comm"] if cp > 1 else ("p2p",),
            "microbatch": range(1, batch + 1),
        }
        for values in product(*words.values()):
            said = ",".join(f"{name}={value}" for name, value in zip(words, values, strict=True))
            for how in pipelines(model.layers, pp):
                with suppress(InputError):
                    found.add(taken(f"{sizes},{said}{how}", model, software, batch, seq))
    return found


def pipelines(layers: int, places: int) -> list[str]:
    """Words of each order with each number of virtual stages; of an order that is the default none, as a plan has it."""
    if places == 1:
        return [""]
    found = []
    for order, virtual in product(NAMES["order"], virtual_stages(layers, places)):
        of_stage = dealt(layers, places * virtual)
        told = "" if len({*of_stage}) == 1 else f",layers={','.join(map(str, of_stage))}"
        named = "" if order == ("1f1b" if virtual == 1 else "interleaved") else f",order={order}"
        found.append(f",vp={virtual}{named}{told}")
    return found


def taken(words: str, model: Model, software: str, batch: int, seq: int) -> Plan:
    """The plan that words say, as every command reads and checks it.

    Raises:
        InputError: there is none.
    """
    plan = parse_plan(words, global_batch=batch, seq=seq)
    check_fits_model(plan, model, Stack(find_software(software)))
    check_runs(plan, model, Stack(find_software(software)))
    return plan


def orders(plan: Plan) -> list[tuple[str, ...]]:
    """The axes of a plan that have more than one rank, the nearest NPUs' first: the first 8 orders by their places in its own.

    Its own is tp, cp, dp, pp.
    """
    own = [axis for axis in ("tp", "cp", "dp", "pp") if getattr(plan, axis) > 1]
    found = [order for order in product(range(len(own)), repeat=len(own)) if len({*order}) == len(own)]
    return [tuple(own[place] for place in order) for order in found[:8]]
