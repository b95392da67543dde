"""The reasons in words, beside what the values are."""

import pytest

from emu.study.design.reasons import change_text, differences


@pytest.mark.parametrize(
    ("own", "other", "told"),
    [
        ({"planes": "4"}, {"planes": "2"}, ["twice the planes"]),
        ({"bandwidth": "12.5GB/s"}, {"bandwidth": "25GB/s"}, ["half the bandwidth"]),
        ({"latency": "1us"}, {"latency": "500ns"}, ["latency=1us instead of 500ns"]),
        ({"dims": "4x4"}, {"dims": "2x4"}, ["dims=4x4 instead of 2x4"]),
        ({"npus": "8"}, {"npus": "4"}, ["twice the NPUs"]),
        ({"npus": "12"}, {"npus": "4"}, ["NPUs=12 instead of 4"]),
        ({"k": "1"}, {}, ["k=1 instead of the default"]),
        ({"k": "1"}, {"k": "1"}, []),
    ],
)
def test_what_is_different_is_told_in_words(own, other, told):
    assert differences(own, other) == told


@pytest.mark.parametrize(("own", "told"), [(105, "5 % faster"), (90, "10 % slower"), (100.001, ""), (1100, "11 times as fast")])
def test_a_change_is_told_as_a_share_of_the_other(own, told):
    assert change_text(own, 100, "faster", "slower") == told
