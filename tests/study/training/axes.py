"""The axes and settings of a plan whose pairs tests train by, and the plans and models that they mean."""

from functools import cache
from pathlib import Path

from emu.errors import InputError
from emu.model.model import Model, find_model
from emu.model.plan.plan import Plan
from emu.model.plan.plan_checks import check_fits_model, check_runs
from emu.model.plan.plan_text import parse_plan
from tests.covering import Chosen, completed, covering, ordered, pairs, singles

_DATA = Path(__file__).parents[2] / "data"
_FILES = {"dense": "layers", "experts": "layers-of-experts"}
SETTINGS = {
    "pp": ["pp=2,order=gpipe", "pp=2", "pp=2,vp=2", *(f"pp=2,vp=2,order={o}" for o in ("zero-bubble", "zbv", "dualpipev"))],
    "tp": ["tp=2", "tp=2,sp"],
    "cp": ["cp=2", "cp=2,cp_comm=all_gather"],
    "dp": [
        "dp=2",
        "dp=2,sharding=zero1",
        "dp=2,sharding=fsdp",
        "dp=4,sharding=fsdp,shard=2",
        "dp=4,sharding=zero1,shard=2",
    ],
    "ep": ["ep=2"],
    "etp": ["etp=1", "etp=2"],
    "recompute": ["recompute=selective", "recompute=full"],
    "clip": ["clip=0", "clip=0.1"],
    "capacity": ["capacity=0.75"],
    "microbatch": ["microbatch=1"],
    "model": list(_FILES),
}


def word_of(chosen: Chosen) -> str:
    """The file of the model that a combination is trained on: of four layers where it has four stages, else of two."""
    layers = "four" if plan_of(chosen).stages == 4 else "two"
    return str(_DATA / f"{layers}-{_FILES[dict(chosen).get('model', 'dense')]}.toml")


_found = cache(find_model)


@cache
def plan_of(chosen: Chosen) -> Plan:
    """Return the plan of the smallest batch for its order: 2 sequences a rank, 4 one at a time or in DualPipeV."""
    values = {name: value for name, value in chosen if name != "model"}
    words = ",".join(values.values())
    ranks = int(values["dp"][3]) if "dp" in values else 1
    more = "microbatch" in values or "dualpipev" in words
    return parse_plan(words or "dp=1", global_batch=ranks * (4 if more else 2), seq=8)


def refusal(chosen: Chosen, model: Model | None = None) -> str:
    """Return what the product says against a combination, of another model if one is given; nothing where it takes it."""
    try:
        plan, found = plan_of(chosen), model or _found(word_of(chosen))
        check_fits_model(plan, found)
        check_runs(plan, found)
    except InputError as error:
        return str(error)
    return ""


@cache
def allowed(chosen: Chosen) -> bool:
    """Return whether the product takes a combination."""
    return not refusal(chosen)


def cost(chosen: Chosen) -> float:
    """About what it takes to train by: ranks times passes, with DTensor's dispatch thrice as much as without."""
    plan = plan_of(chosen)
    return plan.world * (1 + plan.passes / 2) * (3 if plan.tp > 1 else 1) + 2


def spelled(chosen: Chosen) -> str:
    """Return a combination as one would say it."""
    return " ".join(value for _, value in chosen)


# Those whose pairs occur in the plans of the default suite.
OFTEN = {**SETTINGS, "pp": ["pp=2"], "dp": SETTINGS["dp"][:3], "clip": ["clip=0.1"]}
COVERING = covering(OFTEN, lambda chosen: allowed(chosen) and plan_of(chosen).world <= 8, lambda chosen: cost(chosen) ** 0.5)


def every_pair() -> list[Chosen]:
    """Every value and every pair of values beside the fewest others that it needs, of each model; worked out in seconds."""
    found = (
        completed(ordered({**dict(chosen), "model": model}.items(), SETTINGS), SETTINGS, allowed, cost)
        for model in SETTINGS["model"]
        for chosen in (*singles(SETTINGS), *pairs(SETTINGS))
    )
    return list(dict.fromkeys(each for each in found if each is not None))
