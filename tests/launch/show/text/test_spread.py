"""A line where a time is chaotic, none where it is not."""

from emu.fabric.run import Spread
from launch.show.text.table import spread_lines


def test_a_chaotic_time_is_told_with_both_ends_and_how_far_they_are_apart():
    told = "chaotic: the last step takes 2 ms to 2.1 ms (5.0 % apart) in 20 runs whose starts moved by a tick"
    assert spread_lines("the last step", Spread(20, 2e-3, 2.1e-3)) == [told]


def test_what_is_not_chaotic_is_not_told():
    assert spread_lines("the last step", None) == []
