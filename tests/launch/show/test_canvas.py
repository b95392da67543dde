"""Titles find room on their page, and labels beside one another."""

import numpy as np
import pytest

from launch.show.canvas import new_page, spread_apart, text_width_pt, wrap
from tests.launch.show.drawn import outside

LONG = "all_reduce ring on 8 ranks: rank 0, slot 0 holds the value of rank 0, it must be the values of ranks 0-7"
NAME = "torus:" + ",".join(f"dims{i}=4x4x4" for i in range(30))


@pytest.mark.parametrize("title", ["short", LONG, f"two\nlines, {LONG}", NAME, "x" * 400, "a$b_c^{d"])
@pytest.mark.parametrize("wide_in", [3.0, 6.5])
def test_a_title_is_whole_and_within_its_page(title, wide_in):
    figure, axes = new_page(wide_in, 2.0, title)
    assert "".join(figure.get_suptitle().split()) == "".join(title.split())
    assert outside(figure) == []
    assert axes.get_position().height * figure.get_figheight() > 1.0  # the page grows, not the drawing's share of it shrinks


def test_a_line_is_broken_after_words_and_items_of_names_before_letters():
    assert wrap("ab cd", 10, 1.05 * text_width_pt("ab c", 10) / 72) == ["ab", "cd"]
    assert wrap("ab:cd=1,ef", 10, 1.05 * text_width_pt("ab:cd=1,", 10) / 72) == ["ab:cd=1,", "ef"]
    assert wrap("abcdef", 10, 1.05 * text_width_pt("abcd", 10) / 72) == ["abcd", "ef"]


def test_labels_that_have_room_stay_and_others_part_evenly():
    assert spread_apart(np.array([0.0, 5.0, 9.0]), 2.0).tolist() == [0, 5, 9]
    assert spread_apart(np.array([4.0, 4.0]), 2.0).tolist() == [3, 5]
    places = np.sort(np.random.default_rng(1).uniform(0, 5, 12))
    assert np.diff(spread_apart(places, 1.0)).min() > 1 - 1e-9
