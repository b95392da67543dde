"""A line where a time varies with perturbed starts, none where it does not."""

import pytest

from emu.fabric.run import Spread
from launch.show.text.table import spread_lines


@pytest.mark.parametrize(("most_s", "apart", "high"), [(2.1e-3, "5 %", "2.1 ms"), (2.004e-3, "0.2 %", "2.004 ms")])
def test_a_time_that_varies_is_told_with_its_share_and_both_ends(most_s, apart, high):
    told = f"varies by {apart}: the last step takes 2 ms to {high} in 20 runs whose starts moved by a tick"
    assert spread_lines("the last step", Spread(20, 2e-3, most_s)) == [told]


def test_what_does_not_vary_is_not_told():
    assert spread_lines("the last step", None) == []
