"""Words of a plan at the edge of what they may say: zeros that mean a default, counts of stages, and figures without zeros."""

from math import prod

import pytest

from emu.errors import InputError
from emu.model.pipeline_order import orders_with
from emu.model.plan.plan import Plan
from emu.model.plan.plan_text import parse_plan, spell


@pytest.mark.parametrize("name", ["etp", "shard", "microbatch"])
def test_a_size_that_may_be_left_to_its_default_may_be_said_to_be_zero(name: str) -> None:
    assert parse_plan(f"{name}=0") == Plan()


@pytest.mark.parametrize("name", ["tp", "cp", "ep", "dp", "pp", "vp"])
def test_an_axis_has_a_rank_at_least(name: str) -> None:
    with pytest.raises(InputError, match=f"^plan: {name} must be 1 or more, got 0$"):
        parse_plan(f"{name}=0")


@pytest.mark.parametrize("word", ["8x", "8xtwo", "8x2x2", "x3"])
def test_a_number_of_stages_with_so_many_layers_is_a_whole_number(word: str) -> None:
    with pytest.raises(InputError, match=f"^plan: layers must be layers of each stage, got '{word}'; "):
        parse_plan(f"pp=4,layers=7,{word}")


@pytest.mark.parametrize("said", ["no", "yes", "0"])
def test_sp_is_on_or_off_and_nothing_else(said: str) -> None:
    assert [parse_plan(f"tp=2,sp={word}").sp for word in ("on", "off")] == [True, False]
    with pytest.raises(InputError, match=f"^plan: sp must be on or off, got '{said}'"):
        parse_plan(f"tp=2,sp={said}")


@pytest.mark.parametrize("text", ["capacity=2", "clip=0", "clip=2.5", "imbalance=0.25"])
def test_a_rate_is_spelt_without_digits_that_say_nothing(text: str) -> None:
    assert spell(parse_plan(text)) == text


@pytest.mark.parametrize(
    ("virtual", "orders"),
    [(1, {"gpipe", "1f1b"}), (2, {"interleaved", "zero-bubble", "zbv", "dualpipev"}), (3, {"interleaved", "zero-bubble"})],
)
def test_orders_that_interleave_stages_need_two_of_them_on_a_rank(virtual: int, orders: set[str]) -> None:
    assert set(orders_with(virtual)) == orders
    for order in {"gpipe", "interleaved", "zbv"} - orders:
        with pytest.raises(InputError, match=rf"^plan: vp must be .* in the order {order}, got {virtual}; take order="):
            Plan(pp=2, vp=virtual, order=order, global_batch=prod((2, 2, virtual)))
