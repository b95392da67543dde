"""The axes of a plan as a person names them: their default order, any other, and what is refused with a way out."""

from itertools import permutations

import pytest

from emu.errors import InputError
from emu.model.plan.plan_text import parse_plan
from emu.study.training.axes import axes_of

PLANS = {"tp=2,dp=4,pp=2": ("tp", "dp", "pp"), "cp=2,dp=2": ("cp", "dp"), "tp=8": ("tp",), "dp=1": ()}


@pytest.mark.parametrize("text", PLANS)
def test_axes_are_those_of_more_than_one_rank_in_any_order(text: str) -> None:
    plan, own = parse_plan(text, global_batch=16, seq=64), PLANS[text]
    assert axes_of(plan) == own
    for order in permutations(own):
        assert axes_of(plan, order) == order
        beside = next(axis for axis in ("ep", "cp", "tp") if axis not in own)
        assert axes_of(plan, (*order[:1], beside, *order[1:])) == order  # an axis of one rank is no mistake


@pytest.mark.parametrize(
    "axes", [("tp",), ("tp", "dp"), ("tp", "dp", "pp", "tp"), ("tp", "dp", "world"), ("x",), ("pp", "pp", "tp")]
)
def test_another_list_is_refused_with_the_axes_of_the_plan_in_two_orders(axes: tuple[str, ...]) -> None:
    with pytest.raises(InputError) as raised:
        axes_of(parse_plan("tp=2,dp=4,pp=2", global_batch=16, seq=64), axes)
    what = "each of tp,dp,pp once, the one of neighbouring NPUs first"
    assert str(raised.value) == f"estimate: --axes must be {what}, got {','.join(axes)!r}; such as pp,dp,tp"
